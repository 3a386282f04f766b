#include "core/wire/run_config.hpp"

#include <fmt/format.h>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/json_problem.hpp"
#include "core/vocabulary/parsed_json.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

json cell_to_json(const WorkCell& cell) {
  json object = {{"id", cell.id},
                 {"collective", name_of(cell.collective)},
                 {"size_bytes", cell.size.count()},
                 {"datatype", name_of(cell.datatype)},
                 {"algorithm", cell.algorithm},
                 {"in_place", cell.in_place},
                 {"knobs", cell.knobs}};
  if (cell.batch > 0) object["batch"] = cell.batch;
  return object;
}

WorkCell cell_from_json(const json& object) {
  WorkCell cell;
  cell.id = object.at("id").get<std::string>();
  cell.collective = parse_named<Collective>(object.at("collective").get<std::string>());
  cell.size = Bytes(object.at("size_bytes").get<std::uint64_t>());
  cell.datatype = parse_named<DataType>(object.at("datatype").get<std::string>());
  cell.algorithm = object.at("algorithm").get<std::string>();
  cell.in_place = object.at("in_place").get<bool>();
  cell.knobs = object.at("knobs").get<std::map<std::string, std::string>>();
  cell.batch = object.value("batch", 0);
  return cell;
}

json protocol_to_json(const Protocol& protocol) {
  return {{"warmup", protocol.warmup},
          {"iterations", protocol.iterations},
          {"min_iterations", protocol.min_iterations},
          {"cell_time_cap_us", protocol.cell_time_cap.count()},
          {"batch_target_us", protocol.batch_target.count()},
          {"max_batch", protocol.max_batch},
          {"batch_rooted", protocol.batch_rooted},
          {"rotate_buffers", protocol.rotate_buffers},
          {"rank_aggregation", name_of(protocol.rank_aggregation)},
          {"verify", protocol.verify}};
}

Protocol protocol_from_json(const json& object) {
  Protocol protocol;
  protocol.warmup = object.at("warmup").get<int>();
  protocol.iterations = object.at("iterations").get<int>();
  protocol.min_iterations = object.at("min_iterations").get<int>();
  protocol.cell_time_cap = Micros(object.at("cell_time_cap_us").get<double>());
  protocol.batch_target = Micros(object.at("batch_target_us").get<double>());
  protocol.max_batch = object.at("max_batch").get<int>();
  protocol.batch_rooted = object.value("batch_rooted", false);
  protocol.rotate_buffers = object.value("rotate_buffers", false);
  protocol.rank_aggregation =
      parse_named<RankAggregation>(object.at("rank_aggregation").get<std::string>());
  protocol.verify = object.at("verify").get<bool>();
  return protocol;
}

}  // namespace

std::string to_json(const RunConfig& config) {
  json cells = json::array();
  for (const auto& cell : config.cells) cells.push_back(cell_to_json(cell));
  const json object = {{"protocol_version", config.protocol_version},
                       {"launch_id", config.launch_id},
                       {"backend", name_of(config.backend)},
                       {"architecture", name_of(config.architecture)},
                       {"ranks", config.ranks},
                       {"server_rank", config.server_rank},
                       {"seed", config.seed},
                       {"output_dir", config.output_dir},
                       {"rendezvous_dir", config.rendezvous_dir},
                       {"interface", config.interface},
                       {"gpu_of_rank", config.gpu_of_rank},
                       {"connect_timeout_us", config.connect_timeout.count()},
                       {"protocol", protocol_to_json(config.protocol)},
                       {"cells", cells}};
  return object.dump(1);
}

RunConfig run_config_from_json(const std::string& text) {
  try {
    const json object = parsed_json(text);
    RunConfig config;
    config.protocol_version = object.at("protocol_version").get<int>();
    if (config.protocol_version != kRunProtocolVersion) {
      throw Error(
          ErrorKind::data,
          fmt::format("run.json has protocol version {}, this worker speaks {}; rebuild so that "
                      "worker and orchestrator come from one build",
                      config.protocol_version, kRunProtocolVersion));
    }
    config.launch_id = object.at("launch_id").get<std::string>();
    config.backend = parse_named<Backend>(object.at("backend").get<std::string>());
    config.architecture = parse_named<Architecture>(object.at("architecture").get<std::string>());
    config.ranks = object.at("ranks").get<int>();
    config.server_rank = object.at("server_rank").get<int>();
    config.seed = object.at("seed").get<std::uint64_t>();
    config.output_dir = object.at("output_dir").get<std::string>();
    config.rendezvous_dir = object.at("rendezvous_dir").get<std::string>();
    config.interface = object.at("interface").get<std::string>();
    config.gpu_of_rank = object.at("gpu_of_rank").get<std::vector<int>>();
    config.connect_timeout = Micros(object.at("connect_timeout_us").get<double>());
    config.protocol = protocol_from_json(object.at("protocol"));
    for (const auto& cell : object.at("cells")) config.cells.push_back(cell_from_json(cell));
    return config;
  } catch (const json::exception& error) {
    throw Error(ErrorKind::data, fmt::format("run.json: {}", json_problem(error)));
  }
}

}  // namespace dynamiccl
