#include "orchestrator/cli/verbs/plan_printer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/simulated.hpp"
#include "core/vocabulary/terminal_lines.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/group_commands.hpp"
#include "orchestrator/plan/estimate.hpp"
#include "orchestrator/run/console.hpp"
#include "orchestrator/run/stopping.hpp"
#include "train/spec/payload.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

std::string shell_lines(std::string_view head, const std::vector<std::string>& argv,
                        std::size_t width) {
  std::vector<std::string> quoted;
  for (const auto& argument : argv) quoted.push_back(shell_quote(argument));
  return command_lines(head, quoted, width);
}

std::optional<Payload> payload_of_cell(const PlannedCell& cell) {
  if (cell.work.collective != Collective::training || !cell.impossible.empty()) return {};
  return payload_of(training_spec(cell.work));
}

/// Whether every round has as many steps as the first of local ones.
bool rounds_are_alike(const TrainingSpec& spec) {
  return spec.synchronisation != Synchronisation::adacomm &&
         spec.synchronisation != Synchronisation::post_local && !spec.switch_to;
}

/// "391 KiB, 12.2 KiB encoded, once in 4 steps" of a worker; what goes plainly in each step is its
/// size alone.
std::string size_text(const PlannedCell& cell) {
  std::string text = format_bytes(cell.work.size);
  const auto payload = payload_of_cell(cell);
  if (!payload) return text;
  if (!payload->effective_bytes) {
    text += ", encoded in as many bytes as its values or shapes say";
  } else if (*payload->effective_bytes != payload->nominal_bytes) {
    text += fmt::format(", {} encoded", format_bytes(Bytes(*payload->effective_bytes)));
  }
  if (payload->exchanges < 1)
    text += fmt::format(", once in {}{:.0f} steps",
                        rounds_are_alike(training_spec(cell.work)) ? "" : "up to ",
                        1 / payload->exchanges);
  return text;
}

json payload_json(const PlannedCell& cell) {
  const auto payload = payload_of_cell(cell);
  if (!payload) return {};
  return {{"nominal_bytes", payload->nominal_bytes},
          {"effective_bytes", payload->effective_bytes ? json(*payload->effective_bytes) : json()},
          {"firing", name_of(payload->firing)},
          {"exchanges", payload->exchanges}};
}

/// "allreduce: 4 B, 1 KiB" lines; cells that differ in more are distinguished by it.
std::vector<std::string> cell_lines(const PlannedGroup& group) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::string>> sizes;
  for (const auto& cell : group.cells) {
    if (!cell.impossible.empty()) continue;
    std::string what(name_of(cell.work.collective));
    if (cell.work.datatype != DataType::float32)
      what += fmt::format(" {}", name_of(cell.work.datatype));
    if (cell.work.algorithm != "library") what += " " + cell.work.algorithm;
    if (cell.work.in_place) what += " in place";
    for (const auto& [name, value] : cell.work.knobs) what += fmt::format(" {}={}", name, value);
    if (!sizes.contains(what)) order.push_back(what);
    sizes[what].push_back(size_text(cell));
  }
  std::vector<std::string> lines;
  for (const auto& what : order) lines.push_back(what + ": " + join(sizes.at(what), ", "));
  return lines;
}

/// "2 cells impossible: reason" lines.
std::vector<std::string> impossible_lines(const PlannedGroup& group) {
  std::map<std::string, std::size_t> counts;
  for (const auto& cell : group.cells) {
    if (!cell.impossible.empty()) ++counts[cell.impossible];
  }
  std::vector<std::string> lines;
  for (const auto& [reason, count] : counts)
    lines.push_back(fmt::format("{} impossible: {}", counted(count, "cell"), reason));
  return lines;
}

std::string knobs_text(const PlannedGroup& group) {
  std::string text;
  for (const auto& [name, value] : group.knobs) text += fmt::format(" {}={}", name, value);
  return text;
}

/// ", about 3s a launch"; nothing where nothing is launched.
std::string time_text(const PlannedGroup& group, const EnvironmentProfile& profile,
                      const RunProtocol& protocol) {
  if (group.possible_cells() == 0) return "";
  return fmt::format(", about {} a launch",
                     format_eta(estimated_launch(group, profile, protocol).seconds()));
}

/// Which machines the ranks run on: nobody should have to guess that it is one.
std::string place_text(const LaunchSite& site, const Plan& plan) {
  // Of one plan all are, or none.
  if (!plan.groups.empty() && is_simulated(plan.groups.front().environment))
    return "simulated on this machine by SimGrid's SMPI: no rank runs";
  if (!site.cluster)
    return "on this machine alone, one host; --hosts or --slurm spread ranks over several";
  const auto& options = site.cluster->options();
  const auto nodes = site.cluster->nodes();
  const std::string count = counted(nodes.size(), "node");
  if (!options.slurm())
    return fmt::format("{} by {}: {}", count,
                       options.remote_shell.empty() ? "ssh" : options.remote_shell,
                       placement_text(nodes));
  if (options.job_per_launch())
    return fmt::format(
        "{} of Slurm jobs of their own, one for each launch and one at a time ({}), "
        "started by {}",
        count, name_of(options.jobs), name_of(options.start));
  return fmt::format("{} of {}, started by {}, one at a time", count,
                     site.cluster->job().empty()
                         ? "a Slurm allocation that `run` asks for and gives back"
                         : "Slurm job " + site.cluster->job(),
                     name_of(options.start));
}

std::string placement_of(const PlannedGroup& group, const ClusterSession& cluster) {
  const auto& options = cluster.options();
  return placement_text(place_ranks(cluster.nodes(), group.ranks, options.ranks_per_node)) +
         (options.dealt ? ", dealt in turn" : "");
}

json group_json(const PlannedGroup& group, const Experiment& experiment, const LaunchSite& site) {
  const auto& profile = experiment.profiles.at(group.environment);
  const auto commands = commands_of(group, profile, site);
  json cells = json::array();
  for (const auto& cell : group.cells) {
    cells.push_back({{"id", cell.work.id},
                     {"collective", name_of(cell.work.collective)},
                     {"size_bytes", cell.work.size.count()},
                     {"payload", payload_json(cell)},
                     {"datatype", name_of(cell.work.datatype)},
                     {"algorithm", cell.work.algorithm},
                     {"in_place", cell.work.in_place},
                     {"knobs", cell.work.knobs},
                     {"impossible", cell.impossible.empty() ? json() : json(cell.impossible)}});
  }
  return {
      {"id", group.id},
      {"environment", group.environment},
      {"profile", profile.name},
      {"backend", name_of(group.backend)},
      {"architecture", name_of(group.architecture)},
      {"ranks", group.ranks},
      {"knobs", group.knobs},
      {"estimated_launch_s", estimated_launch(group, profile, experiment.protocol).seconds()},
      {"launch_timeout_s", launch_timeout(experiment.protocol, launch_cells(group, 0)).seconds()},
      {"environment_commands", commands.environment},
      {"launch_commands", commands.launch},
      {"commands_unknown", commands.problem.empty() ? json() : json(commands.problem)},
      {"placement", site.cluster && group.possible_cells() > 0
                        ? json(placement_of(group, *site.cluster))
                        : json()},
      {"cells", std::move(cells)}};
}

}  // namespace

json plan_json(const Experiment& experiment, const Plan& plan, const LaunchSite& site) {
  json groups = json::array();
  for (const auto& group : plan.groups) groups.push_back(group_json(group, experiment, site));
  return {{"name", experiment.name},
          {"seed", experiment.seed},
          {"place", place_text(site, plan)},
          {"launches", first_launches(experiment.protocol)},
          {"most_launches", most_launches(experiment.protocol)},
          {"cells", plan.cell_count()},
          {"impossible_cells", plan.cell_count() - plan.possible_cells()},
          {"estimated_s", estimated_run(plan, experiment).seconds()},
          {"groups", std::move(groups)}};
}

namespace {

std::string group_text(const PlannedGroup& group, const Experiment& experiment,
                       const LaunchSite& site, std::size_t width, bool shows_commands) {
  const auto& profile = experiment.profiles.at(group.environment);
  std::string text = fmt::format(
      "{} {} {} {} {}{}: {} to measure{}\n", group.id, group.environment, name_of(group.backend),
      name_of(group.architecture), counted(group.ranks, "rank"), knobs_text(group),
      counted(group.possible_cells(), "cell"), time_text(group, profile, experiment.protocol));
  for (const auto& line : cell_lines(group)) text += "  " + line + "\n";
  if (group.rounded_cells() > 0)
    text += fmt::format("  {}: sizes rounded down to whole elements for each of {}\n",
                        counted(group.rounded_cells(), "cell"), counted(group.ranks, "rank"));
  for (const auto& line : impossible_lines(group)) text += "  " + line + "\n";
  if (site.cluster && group.possible_cells() > 0)
    text += "  on " + placement_of(group, *site.cluster) + "\n";
  const auto commands = commands_of(group, profile, site);
  if (!commands.problem.empty()) text += "  commands unknown: " + commands.problem + "\n";
  text = broken_text(text, width);
  if (!shows_commands) return text;
  for (const auto& argv : commands.environment) text += shell_lines("  block$ ", argv, width);
  for (const auto& argv : commands.launch) text += shell_lines("  launch$ ", argv, width);
  return text;
}

/// What more ranks than cores come to; "" where there are no more.
std::string crowd_text(const Plan& plan, const LaunchSite& site) {
  int most = 0;
  for (const auto& group : plan.groups)
    if (group.possible_cells() > 0 && !is_simulated(group.environment))
      most = std::max(most, group.ranks);
  if (site.cluster || site.cores == 0 || most <= site.cores) return "";
  return fmt::format("{} share {}: how ranks wait for a core is timed, too\n",
                     counted(most, "rank"), counted(site.cores, "core"));
}

}  // namespace

std::string plan_text(const Experiment& experiment, const Plan& plan, const LaunchSite& site,
                      std::size_t width, bool shows_commands) {
  const std::string summary = broken_text(
      fmt::format("{}: {}, {}, {} of them impossible; of each group {}; about {}\n",
                  experiment.name, counted(plan.groups.size(), "group"),
                  counted(plan.cell_count(), "cell"), plan.cell_count() - plan.possible_cells(),
                  launches_text(experiment.protocol),
                  format_eta(estimated_run(plan, experiment).seconds())),
      width);
  std::string text = summary +
                     broken_text(fmt::format("all launches: {}\n", place_text(site, plan)), width) +
                     crowd_text(plan, site);
  for (const auto& group : plan.groups)
    text += "\n" + group_text(group, experiment, site, width, shows_commands);
  text += "\n" + summary;
  if (plan.possible_cells() == 0) return text + "nothing of it can run here\n";
  return shows_commands ? text : text + "plan -v shows the commands\n";
}

}  // namespace dynamiccl
