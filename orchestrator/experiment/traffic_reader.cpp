#include "orchestrator/experiment/traffic_reader.hpp"

#include "core/vocabulary/error.hpp"
#include "profiles/table_reader.hpp"
#include "train/spec/llm_traffic.hpp"

namespace dynamiccl {

TrafficWork read_traffic(TableReader& table, const std::vector<int>& ranks) {
  TrafficWork traffic;
  traffic.model = table.text("traffic").value_or("");
  traffic.parallel = table.text("parallel").value_or("");
  traffic.shrink = static_cast<int>(table.integer("shrink").value_or(1));
  table.finish();
  const char* key = "traffic";
  try {
    const LlmModel& model = llm_named(traffic.model);
    key = "parallel";
    for (const int count : ranks) parse_parallelism(traffic.parallel, model, count);
  } catch (const Error& error) {
    table.complain(key, error.what());
  }
  return traffic;
}

}  // namespace dynamiccl
