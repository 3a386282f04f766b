#include "core/wire/run_config.hpp"

#include <fmt/format.h>

#include "core/vocabulary/json_problem.hpp"
#include "core/vocabulary/named_json.hpp"
#include "core/vocabulary/parsed_json.hpp"

namespace dynamiccl {
using nlohmann::json;

namespace run_members {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkCell, id, collective, datatype, algorithm, in_place, knobs)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Protocol, warmup, iterations, min_iterations, max_batch,
                                   rank_aggregation, verify)
}  // namespace run_members

// What has a unit has it in the name of its key.

static void to_json(json& object, const WorkCell& cell) {
  run_members::to_json(object, cell);
  object["size_bytes"] = cell.size.count();
  if (cell.batch > 0) object["batch"] = cell.batch;
}

static void from_json(const json& object, WorkCell& cell) {
  run_members::from_json(object, cell);
  cell.size = Bytes(object.at("size_bytes").get<std::uint64_t>());
  cell.batch = object.value("batch", 0);
}

static void to_json(json& object, const Protocol& protocol) {
  run_members::to_json(object, protocol);
  object["cell_time_cap_us"] = protocol.cell_time_cap.count();
  object["batch_target_us"] = protocol.batch_target.count();
  object["batch_rooted"] = protocol.batch_rooted;
  object["rotate_buffers"] = protocol.rotate_buffers;
}

static void from_json(const json& object, Protocol& protocol) {
  run_members::from_json(object, protocol);
  protocol.cell_time_cap = Micros(object.at("cell_time_cap_us").get<double>());
  protocol.batch_target = Micros(object.at("batch_target_us").get<double>());
  protocol.batch_rooted = object.value("batch_rooted", false);
  protocol.rotate_buffers = object.value("rotate_buffers", false);
}

namespace run_members {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunConfig, protocol_version, launch_id, backend, architecture,
                                   ranks, server_rank, seed, output_dir, rendezvous_dir, interface,
                                   gpu_of_rank, protocol, cells)
}  // namespace run_members

std::string to_json(const RunConfig& config) {
  json object;
  run_members::to_json(object, config);
  object["connect_timeout_us"] = config.connect_timeout.count();
  return object.dump(1);
}

RunConfig run_config_from_json(const std::string& text) {
  try {
    const json object = parsed_json(text);
    if (const int version = object.at("protocol_version").get<int>();
        version != kRunProtocolVersion)
      throw Error(
          ErrorKind::data,
          fmt::format("run.json has protocol version {}, this worker speaks {}; rebuild so that "
                      "worker and orchestrator come from one build",
                      version, kRunProtocolVersion));
    RunConfig config;
    run_members::from_json(object, config);
    config.connect_timeout = Micros(object.at("connect_timeout_us").get<double>());
    return config;
  } catch (const json::exception& error) {
    throw Error(ErrorKind::data, fmt::format("run.json: {}", json_problem(error)));
  }
}

}  // namespace dynamiccl
