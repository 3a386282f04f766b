#include "orchestrator/experiment/protocol.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/counted.hpp"

namespace dynamiccl {
namespace {

template <class Target, class Value>
void set(Target& target, const std::optional<Value>& value) {
  if (value) target = static_cast<Target>(*value);
}

bool from_command_line(const TableReader& table, const char* key) {
  const auto& path = table.node(key)->source().path;
  return path && path->starts_with("--");
}

void read_iterations(TableReader& table, Protocol& cells) {
  const auto iterations = table.integer("iterations");
  const auto least = table.integer("min_iterations");
  set(cells.iterations, iterations);
  set(cells.min_iterations, least);
  // `--set protocol.iterations=3` asks for fewer than the file's least and gets them.
  const bool overridden = iterations && least && from_command_line(table, "iterations") &&
                          !from_command_line(table, "min_iterations");
  // Of what was not understood nothing is said but that.
  const bool understood = iterations || !table.has("iterations");
  if (least && understood && *least > cells.iterations && !overridden)
    table.complain("min_iterations",
                   fmt::format("protocol.min_iterations: {} are more than protocol.iterations, {}; "
                               "lower it or raise those",
                               *least, cells.iterations));
  cells.min_iterations = std::min(cells.min_iterations, cells.iterations);
}

void read_noise(TableReader& protocol, NoiseLimits& limits) {
  auto table = protocol.table("noise");
  if (!table) return;
  set(limits.busy, table->number("busy"));
  set(limits.load, table->number("load"));
  set(limits.steal, table->number("steal"));
  set(limits.psi_cpu, table->number("psi_cpu"));
  set(limits.psi_memory, table->number("psi_memory"));
  set(limits.psi_io, table->number("psi_io"));
  set(limits.throttled, table->integer("throttled"));
  set(limits.wait, table->duration("wait"));
  set(limits.gpu_capped, table->number("gpu_capped"));
  table->finish();
}

/// @param launches_understood false after a mistake in `launches`
void read_stopping(TableReader& table, bool launches_understood, RunProtocol& protocol) {
  set(protocol.target_interval, table.number("target_interval"));
  const auto most = table.integer("max_launches");
  set(protocol.max_launches, most);
  set(protocol.time_budget, table.duration("time_budget"));
  if (table.has("max_launches") && !table.has("target_interval"))
    table.complain(
        "max_launches",
        "protocol.max_launches bounds what protocol.target_interval asks for: give both, "
        "or launches alone");
  const bool told = (table.has("max_launches") && !most) || !launches_understood;
  if (protocol.target_interval > 0 && protocol.max_launches < protocol.launches && !told)
    table.complain("max_launches", "protocol.max_launches: expected at least protocol.launches");
}

constexpr int kFewestBeforeALook = 6;

std::optional<double> finite_number(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

}  // namespace

void read_protocol(TableReader& root, RunProtocol& protocol) {
  auto table = root.table("protocol");
  if (!table) return;
  Protocol& cells = protocol.cells;
  const auto launches = table->integer("launches");
  set(protocol.launches, launches);
  set(protocol.retries, table->integer("retries"));
  set(protocol.launch_timeout, table->duration("launch_timeout"));
  set(protocol.connect_timeout, table->duration("connect_timeout"));
  set(cells.warmup, table->integer("warmup"));
  read_iterations(*table, cells);
  set(cells.cell_time_cap, table->duration("cell_time_cap"));
  set(cells.batch_target, table->duration("batch_target"));
  set(cells.max_batch, table->integer("max_batch"));
  set(cells.batch_rooted, table->boolean("batch_rooted"));
  set(cells.rank_aggregation, table->name<RankAggregation>("rank_aggregation"));
  set(cells.verify, table->boolean("verify"));
  read_stopping(*table, launches || !table->has("launches"), protocol);
  read_noise(*table, protocol.noise);
  table->finish();
}

nlohmann::json to_json(const RunProtocol& protocol) {
  nlohmann::json object = {
      {"warmup", protocol.cells.warmup},
      {"iterations", protocol.cells.iterations},
      {"min_iterations", protocol.cells.min_iterations},
      {"cell_time_cap_us", protocol.cells.cell_time_cap.count()},
      {"batch_target_us", protocol.cells.batch_target.count()},
      {"max_batch", protocol.cells.max_batch},
      {"rank_aggregation", name_of(protocol.cells.rank_aggregation)},
      {"verify", protocol.cells.verify},
      {"launches", protocol.launches},
      {"target_interval",
       protocol.target_interval > 0 ? nlohmann::json(protocol.target_interval) : nlohmann::json()},
      {"max_launches", protocol.max_launches},
      {"time_budget_s", protocol.time_budget.count() > 0
                            ? nlohmann::json(protocol.time_budget.seconds())
                            : nlohmann::json()},
      {"noise", to_json(protocol.noise)},
      {"retries", protocol.retries},
      {"launch_timeout_s", protocol.launch_timeout.seconds()},
      {"connect_timeout_s", protocol.connect_timeout.seconds()}};
  // Said where it is asked for, so that protocols of before read the same.
  if (protocol.cells.batch_rooted) object["batch_rooted"] = true;
  return object;
}

nlohmann::json to_json(const NoiseLimits& limits) {
  return {{"busy", limits.busy},
          {"load", limits.load},
          {"steal", limits.steal},
          {"psi_cpu", limits.psi_cpu},
          {"psi_memory", limits.psi_memory},
          {"psi_io", limits.psi_io},
          {"throttled", limits.throttled},
          {"wait_s", limits.wait.seconds()},
          {"gpu_capped", limits.gpu_capped}};
}

NoiseLimits noise_limits_from_json(const nlohmann::json& limits) {
  NoiseLimits result;
  const auto read = [&](const char* key, double& value) {
    value = finite_number(limits, key).value_or(value);
  };
  read("busy", result.busy);
  read("load", result.load);
  read("steal", result.steal);
  read("psi_cpu", result.psi_cpu);
  read("psi_memory", result.psi_memory);
  read("psi_io", result.psi_io);
  read("gpu_capped", result.gpu_capped);
  result.throttled =
      static_cast<int>(finite_number(limits, "throttled").value_or(result.throttled));
  result.wait = Micros(1e6 * finite_number(limits, "wait_s").value_or(result.wait.seconds()));
  return result;
}

int first_launches(const RunProtocol& protocol) {
  if (protocol.target_interval <= 0) return protocol.launches;
  return std::min(std::max(protocol.launches, kFewestBeforeALook), protocol.max_launches);
}

int most_launches(const RunProtocol& protocol) {
  return protocol.target_interval > 0 ? protocol.max_launches : protocol.launches;
}

std::string launches_text(const RunProtocol& protocol) {
  std::string text = counted(protocol.launches, "launch");
  if (protocol.target_interval > 0)
    text = fmt::format("{} to {} launches, until the 95 % interval is within {:g} %",
                       first_launches(protocol), protocol.max_launches,
                       protocol.target_interval * 100);
  if (protocol.time_budget.count() > 0)
    text += fmt::format(", within {:g} s", protocol.time_budget.seconds());
  return text;
}

std::optional<StoppingRule> stopping_rule(const RunProtocol& protocol) {
  if (protocol.target_interval <= 0) return std::nullopt;
  return StoppingRule{protocol.target_interval, first_launches(protocol), protocol.max_launches};
}

}  // namespace dynamiccl
