# format rewrites, check_format only looks; tidy runs clang-tidy over what was compiled.
file(GLOB_RECURSE _sources CONFIGURE_DEPENDS
  core/*.[ch]pp profiles/*.[ch]pp containers/*.[ch]pp orchestrator/*.[ch]pp workers/*.[ch]pp train/*.[ch]pp plugin/*.[ch]pp tuner/*.[ch]pp
  db/*.[ch]pp reports/*.[ch]pp tests/*.[ch]pp benchmarks/*.[ch]pp)
find_program(DYNAMICCL_CLANG_FORMAT clang-format)
if(DYNAMICCL_CLANG_FORMAT)
  add_custom_target(format COMMAND "${DYNAMICCL_CLANG_FORMAT}" -i ${_sources} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}" VERBATIM)
  add_custom_target(check_format COMMAND "${DYNAMICCL_CLANG_FORMAT}" --dry-run --Werror ${_sources} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}" VERBATIM)
endif()
find_program(DYNAMICCL_RUN_CLANG_TIDY NAMES run-clang-tidy run-clang-tidy-14)
if(CMAKE_UNITY_BUILD)
  add_custom_target(tidy COMMAND "${CMAKE_COMMAND}" -E echo "tidy looks at each file by itself: configure with -DCMAKE_UNITY_BUILD=OFF"
    COMMAND "${CMAKE_COMMAND}" -E false VERBATIM)
elseif(DYNAMICCL_RUN_CLANG_TIDY)
  # clang 14 cannot read libtorch's headers next to GCC 12's library, nor a processor's feature "f16c"; half precision it
  # knows on processors that have it alone.
  set(_unread "train/torch/|tuner/learn/trainer|workers/collectives/sum")
  add_custom_target(tidy COMMAND "${DYNAMICCL_RUN_CLANG_TIDY}" -quiet -p "${CMAKE_BINARY_DIR}" -extra-arg=-mavx512fp16
    "${CMAKE_SOURCE_DIR}/(?!${_unread})(core|profiles|containers|orchestrator|workers|train|plugin|tuner|db|reports)/.*[.]cpp$" WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}" VERBATIM)
endif()
