# One more query: its file THEME/NAME.cpp or THEME/NAME.sql, and its line here, in the order of the listing.
set(_queries
  times/latency times/tails times/bandwidth times/fit times/components times/copy_share times/line_rate times/node_scaling
  environments/overhead environments/attribution environments/interconnect environments/transports environments/interfaces environments/regimes environments/page_faults environments/interference
  choices/best choices/axis choices/crossover choices/switch_points choices/beside_neighbour choices/tradeoffs choices/findings choices/floor choices/flips choices/published choices/design_space
  training/training training/scaling training/prediction training/atlas training/architecture training/messages training/calls training/energy training/curves training/time_to_target training/training_memory training/compression training/cost_orders training/payloads training/c2c
  trust/coverage trust/failures trust/independence trust/noise trust/warmup trust/skew trust/clocks trust/stragglers trust/stopping trust/history
  tuning/decisions tuning/trace tuning/regret tuning/flags
  database/runs database/launches database/launch_medians database/events database/schema)
target_sources(dyn_reports PRIVATE queries/query.cpp queries/no_rows.cpp queries/registry.cpp queries/sql_head.cpp
  queries/choices/axis_rows.cpp)
set(_includes "")
set(_declarations "")
set(_rows "")
foreach(_path IN LISTS _queries)
  get_filename_component(_query "${_path}" NAME)
  get_filename_component(_theme "${_path}" DIRECTORY)
  if(EXISTS "${CMAKE_CURRENT_LIST_DIR}/${_path}.sql")
    dyn_embed_text(dyn_reports query_${_query} "${CMAKE_CURRENT_LIST_DIR}/${_path}.sql")
    string(APPEND _includes "#include \"embedded/query_${_query}.hpp\"\n")
    string(APPEND _rows "      {\"${_theme}\", \"${_query}\", nullptr, embedded::query_${_query}},\n")
  else()
    target_sources(dyn_reports PRIVATE queries/${_path}.cpp)
    string(APPEND _declarations "Query ${_query}_query();\n")
    string(APPEND _rows "      {\"${_theme}\", \"${_query}\", &dynamiccl::${_query}_query, {}},\n")
  endif()
endforeach()
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/generated/embedded/query_list.hpp" CONTENT
"#pragma once
#include <string_view>
#include <vector>
#include \"reports/queries/query.hpp\"
@_includes@
namespace dynamiccl {
@_declarations@}
namespace dynamiccl::embedded {
/// One query file.
struct QueryFile {
  std::string_view theme;
  std::string_view name;
  Query (*make)();
  std::string_view sql;
};
inline std::vector<QueryFile> query_list() {
  return {
@_rows@  };
}
}
" @ONLY)
