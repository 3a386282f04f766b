# dyn_embed_text(TARGET NAME FILE): makes FILE readable as `extern const char* const dynamiccl::embedded::NAME`
# through #include "embedded/NAME.hpp", so that one binary carries its SQL and pages.
function(dyn_embed_text target name file)
  get_filename_component(_file "${file}" ABSOLUTE)
  set(_dir "${CMAKE_BINARY_DIR}/generated/embedded")
  set(_header "${_dir}/${name}.hpp")
  set(_source "${_dir}/${name}.cpp")
  file(MAKE_DIRECTORY "${_dir}")
  file(WRITE "${_header}.new"
    "#pragma once\n#include <string_view>\nnamespace dynamiccl::embedded {\nextern const std::string_view ${name};\n}\n")
  file(COPY_FILE "${_header}.new" "${_header}" ONLY_IF_DIFFERENT)
  file(REMOVE "${_header}.new")
  add_custom_command(OUTPUT "${_source}"
    COMMAND "${CMAKE_COMMAND}" -DINPUT=${_file} -DOUTPUT=${_source} -DNAME=${name} -P "${CMAKE_SOURCE_DIR}/cmake/EmbedFileScript.cmake"
    DEPENDS "${_file}" "${CMAKE_SOURCE_DIR}/cmake/EmbedFileScript.cmake" VERBATIM)
  target_sources(${target} PRIVATE "${_source}")
  # Each has the same local names.
  set_source_files_properties("${_source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
