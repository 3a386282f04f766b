# What `cmake --install` puts where, and the packages that CPack makes of it. Programs lie in lib/dynamiccl next to
# each other, as containers mount that one folder; bin/dynamiccl points there. Data are found from the program.
include(GNUInstallDirs)
set(DYNAMICCL_LIBRARY_FOLDER "${CMAKE_INSTALL_LIBDIR}/dynamiccl")
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr" OR CMAKE_INSTALL_LIBDIR MATCHES "/")
  # Not the folder of the machine's architecture: data lie at ../../share from the programs.
  set(DYNAMICCL_LIBRARY_FOLDER "lib/dynamiccl")
endif()
set(_data "share/dynamiccl")

# dyn_install(COMPONENT TARGETS...): those of the targets that this build has.
function(dyn_install component)
  foreach(target ${ARGN})
    if(TARGET ${target})
      install(TARGETS ${target} COMPONENT ${component}
        RUNTIME DESTINATION "${DYNAMICCL_LIBRARY_FOLDER}" LIBRARY DESTINATION "${DYNAMICCL_LIBRARY_FOLDER}")
    endif()
  endforeach()
endfunction()

dyn_install(program dynamiccl dynamiccl-probe dynamiccl-leader dynamiccl-aggregator)
dyn_install(openmpi dynamiccl-worker-openmpi)
dyn_install(mpich dynamiccl-worker-mpich)
dyn_install(gloo dynamiccl-worker)
dyn_install(trainers dynamiccl-trainer dynamiccl-trainer-openmpi dynamiccl-trainer-mpich dynamiccl-learn)
dyn_install(plugin dynamiccl-nccl-plugin dynamiccl-mpi-watch)
dyn_install(onehost dynamiccl-onehost)

# The archive also brings what a machine without Debian's packages lacks. What must match the machine's own programs or
# driver stays the machine's: the C and C++ libraries, MPI, PyTorch, CUDA and NCCL.
set(_bundled "")
foreach(_target dynamiccl dynamiccl-leader dynamiccl-aggregator dynamiccl-worker dynamiccl-worker-openmpi dynamiccl-worker-mpich)
  if(TARGET ${_target})
    set_target_properties(${_target} PROPERTIES INSTALL_RPATH "$ORIGIN/lib")
    string(APPEND _bundled " \"$<TARGET_FILE:${_target}>\"")
  endif()
endforeach()
if(TARGET dynamiccl-worker)
  # An older kind of path, which also holds for what Gloo's library loads. Not for the others: MPI's library has its own.
  target_link_options(dynamiccl-worker PRIVATE "LINKER:--disable-new-dtags")
endif()
install(CODE "
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${_bundled} RESOLVED_DEPENDENCIES_VAR _libraries
    UNRESOLVED_DEPENDENCIES_VAR _absent
    PRE_EXCLUDE_REGEXES \"^(ld-linux|lib(c|m|dl|pthread|rt|resolv|stdc[+][+]|gcc_s|mpi|mpich|cuda|nccl)[.-])\")
  foreach(_library IN LISTS _libraries)
    file(INSTALL \"\${_library}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${DYNAMICCL_LIBRARY_FOLDER}/lib\" FOLLOW_SYMLINK_CHAIN)
  endforeach()" COMPONENT bundled EXCLUDE_FROM_ALL)
install(CODE "
  set(_bin \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin\")
  file(MAKE_DIRECTORY \"\${_bin}\")
  file(CREATE_LINK \"../${DYNAMICCL_LIBRARY_FOLDER}/dynamiccl\" \"\${_bin}/dynamiccl\" SYMBOLIC)" COMPONENT program)
install(DIRECTORY profiles/environments profiles/machines DESTINATION "${_data}/profiles" COMPONENT program)
install(FILES tuner/policy/pretrained.policy DESTINATION "${_data}/tuner/policy" COMPONENT program)
install(FILES tuner/places/measured.tsv DESTINATION "${_data}/tuner/places" COMPONENT program)
install(DIRECTORY experiments DESTINATION "${_data}" COMPONENT program)
include(InstallDocuments)

set(CPACK_PACKAGE_NAME dynamiccl)
set(CPACK_PACKAGE_VENDOR "DynamICCL")
set(CPACK_PACKAGE_CONTACT "DynamICCL developers <dynamiccl@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "measures, explains and tunes collective communication")
set(CPACK_RESOURCE_FILE_LICENSE "${CMAKE_SOURCE_DIR}/LICENSE")
set(CPACK_GENERATOR "DEB;TXZ")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX "/usr")
set(CPACK_OUTPUT_FILE_PREFIX "${CMAKE_BINARY_DIR}/packages")
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
set(CPACK_CMAKE_BUILD_FOLDER "${CMAKE_BINARY_DIR}")
set(CPACK_PROJECT_CONFIG_FILE "${CMAKE_SOURCE_DIR}/cmake/CPackPerGenerator.cmake")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(_all program)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME dynamiccl)
# What a run starts besides workers: images, link rates, and the making of images.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "dynamiccl-worker-gloo, iproute2, mmdebstrap, uidmap, patchelf")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "docker.io, podman, elfutils, gnuplot-nox")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA "${CMAKE_SOURCE_DIR}/cmake/debian/postrm")
foreach(_row "openmpi;dynamiccl-worker-openmpi;openmpi-bin" "mpich;dynamiccl-worker-mpich;mpich" "gloo;dynamiccl-worker-gloo;"
    "trainers;dynamiccl-trainers;libopenblas0-pthread" "plugin;dynamiccl-nccl-plugin;-"
    "onehost;dynamiccl-onehost;-")
  list(GET _row 0 _component)
  list(GET _row 1 _package)
  list(GET _row 2 _needs)
  string(TOUPPER ${_component} _upper)
  set(CPACK_DEBIAN_${_upper}_PACKAGE_NAME ${_package})
  if(_needs STREQUAL "-")
    # It is loaded by other programs: alone, without the rest.
    set(CPACK_DEBIAN_${_upper}_PACKAGE_DEPENDS "")
  elseif(_needs)
    set(CPACK_DEBIAN_${_upper}_PACKAGE_DEPENDS "dynamiccl (= ${PROJECT_VERSION}), ${_needs}")
  else()
    set(CPACK_DEBIAN_${_upper}_PACKAGE_DEPENDS "dynamiccl (= ${PROJECT_VERSION})")
  endif()
  list(APPEND _all ${_component})
endforeach()
if(NOT TARGET dynamiccl-trainer)
  list(REMOVE_ITEM _all trainers)
endif()
set(CPACK_COMPONENTS_ALL ${_all})
include(CPack)
