# dyn_options: what every target of ours is compiled with; linked privately, never exported.
add_library(dyn_options INTERFACE)
target_compile_features(dyn_options INTERFACE cxx_std_20)
target_include_directories(dyn_options INTERFACE "${CMAKE_SOURCE_DIR}" "${CMAKE_BINARY_DIR}/generated")
target_compile_options(dyn_options INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  # GCC 12 sees overlapping copies in std::string's own header when it optimises (GCC bug 105651), and unset members of a
  # std::variant that is moved into a vector.
  "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>,$<NOT:$<CONFIG:Debug>>>:-Wno-restrict;-Wno-maybe-uninitialized>"
  $<$<BOOL:${DYNAMICCL_WERROR}>:-Werror>)
# Hardening, checked on the built programs by tests/repo/hardening_test.cpp: stack protector and checked copies where code is
# optimised; all addresses bound at start and read-only afterwards; no executable stack. Programs are position-independent.
target_compile_options(dyn_options INTERFACE
  "$<$<AND:$<NOT:$<CONFIG:Debug>>,$<COMPILE_LANGUAGE:CXX>>:-fstack-protector-strong;-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
target_link_options(dyn_options INTERFACE LINKER:-z,relro,-z,now,-z,noexecstack)
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)
if(DYNAMICCL_SANITIZE)
  target_compile_options(dyn_options INTERFACE -fsanitize=${DYNAMICCL_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(dyn_options INTERFACE -fsanitize=${DYNAMICCL_SANITIZE})
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# All programs land in the build folder's root, so that build/<preset>/dynamiccl is the one to start.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
find_program(DYNAMICCL_CCACHE ccache)
if(DYNAMICCL_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${DYNAMICCL_CCACHE}")
endif()

# dyn_library(NAME SOURCES... ): one library per folder, built where a program that is built needs it.
function(dyn_library name)
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${ARGN})
  target_link_libraries(${name} PRIVATE dyn_options)
endfunction()
# dyn_seldom_runs(TARGETS...): what waits for others, or for a disk, most of its time. Compiling it is what a first build waits for.
function(dyn_seldom_runs)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endforeach()
endfunction()
