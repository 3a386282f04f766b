# Read by CPack once per package format: an archive also holds the libraries that packages name as what they depend on.
if(CPACK_GENERATOR STREQUAL "TXZ")
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS "${CPACK_CMAKE_BUILD_FOLDER}" "${CPACK_PACKAGE_NAME}" bundled /)
endif()
