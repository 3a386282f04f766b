# format rewrites, check_format only looks; tidy runs clang-tidy over what was compiled.
file(GLOB_RECURSE _sources CONFIGURE_DEPENDS
  core/*.[ch]pp profiles/*.[ch]pp containers/*.[ch]pp orchestrator/*.[ch]pp workers/*.[ch]pp tuner/*.[ch]pp
  db/*.[ch]pp reports/*.[ch]pp tests/*.[ch]pp benchmarks/*.[ch]pp)
find_program(DYNAMICCL_CLANG_FORMAT clang-format)
if(DYNAMICCL_CLANG_FORMAT)
  add_custom_target(format COMMAND "${DYNAMICCL_CLANG_FORMAT}" -i ${_sources} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}" VERBATIM)
  add_custom_target(check_format COMMAND "${DYNAMICCL_CLANG_FORMAT}" --dry-run --Werror ${_sources} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}" VERBATIM)
endif()
find_program(DYNAMICCL_RUN_CLANG_TIDY NAMES run-clang-tidy run-clang-tidy-14)
if(DYNAMICCL_RUN_CLANG_TIDY)
  add_custom_target(tidy COMMAND "${DYNAMICCL_RUN_CLANG_TIDY}" -quiet -p "${CMAKE_BINARY_DIR}"
    "${CMAKE_SOURCE_DIR}/(core|profiles|containers|orchestrator|workers|tuner|db|reports)/.*" WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}" VERBATIM)
endif()
