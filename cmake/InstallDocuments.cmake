# The documents as they lie in the source tree, so that links between them hold: also those to reports of what was measured, with
# the tables that these name. Databases and raw logs stay in the source tree.
set(_tree "${CMAKE_CURRENT_LIST_DIR}/..")
set(_documents "share/doc/dynamiccl")
foreach(_file README.md CHANGELOG.md ARCHITECTURE.md CONTRIBUTING.md LICENSE)
  install(FILES "${_tree}/${_file}" DESTINATION "${_documents}" COMPONENT program)
endforeach()
install(DIRECTORY "${_tree}/docs" DESTINATION "${_documents}" COMPONENT program
  FILES_MATCHING PATTERN "*.md" PATTERN "report.png")
install(FILES "${_tree}/experiments/experiment.schema.json" DESTINATION "${_documents}/experiments" COMPONENT program)
install(DIRECTORY "${_tree}/reports/measured" DESTINATION "${_documents}/reports" COMPONENT program
  FILES_MATCHING PATTERN "*.md" PATTERN "*.md.xz" PATTERN "*.txt" PATTERN "*.csv" PATTERN "*.tsv")
