# Writes OUTPUT with version and source revision. `git status` would write the index it is made from: not wanted.
set(ENV{GIT_OPTIONAL_LOCKS} 0)
find_program(GIT git)
set(revision "unknown revision")
set(dirty false)
if(GIT)
  execute_process(COMMAND "${GIT}" rev-parse --short=12 HEAD WORKING_DIRECTORY "${SOURCE}"
                  OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(revision "${head}")
    execute_process(COMMAND "${GIT}" status --porcelain --untracked-files=no WORKING_DIRECTORY "${SOURCE}"
                    OUTPUT_VARIABLE changes ERROR_QUIET)
    if(NOT "${changes}" STREQUAL "")
      set(dirty true)
    endif()
  endif()
endif()
set(text "#pragma once
namespace dynamiccl::version {
inline constexpr const char* kVersion = \"${VERSION}\";
inline constexpr const char* kRevision = \"${revision}\";
inline constexpr bool kDirty = ${dirty};
inline constexpr const char* kCompiler = \"${COMPILER}\";
inline constexpr const char* kBuildType = \"${BUILD_TYPE}\";
}  // namespace dynamiccl::version
")
file(WRITE "${OUTPUT}" "${text}")
