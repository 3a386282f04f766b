#include "orchestrator/doctor/preflight.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "containers/cluster/cluster_environment.hpp"
#include "containers/cluster/hidden_gpus.hpp"
#include "containers/cluster/node_links.hpp"
#include "core/statistics/statistics.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/launch/machine.hpp"
#include "orchestrator/launch/observe.hpp"
#include "orchestrator/run/launch_runner.hpp"
#include "profiles/detect/pair_places.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

// Long enough that the link's rate decides, on one of 1 Gbit/s 67 ms.
constexpr Bytes kPairSize{std::uint64_t{8} << 20};
constexpr int kPairCalls = 5;
constexpr const char* kPairCell = "pair";
/// What a clock may be off beyond what asking took.
constexpr double kClockSlack_s = 1;

/// Carry a pair in this order: the first needs no MPI on the nodes.
constexpr std::array kCarriers{Backend::gloo, Backend::openmpi, Backend::mpich};

/// A node's answers that ought to be the same everywhere.
std::map<std::string, std::string> answers_of(const NodeReport& report) {
  std::map<std::string, std::string> answers{{"locked memory (ulimit -l)", report.locked_memory},
                                             {"cores", std::to_string(report.cores)}};
  const auto add = [&](const char* what, const char* pointer) {
    const json value =
        report.facts.is_object() ? report.facts.value(json::json_pointer(pointer), json()) : json();
    if (value.is_null()) return;
    answers[what] = value.is_string() ? value.get<std::string>() : value.dump();
  };
  add("kernel", "/system/kernel");
  add("distribution", "/system/distribution");
  add("C library", "/system/libc_version");
  add("processor", "/cpu/model");
  add("GPUs", "/gpu/usable");
  add("GPU driver", "/gpu/driver_version");
  if (const auto links = links_of_node(report.facts); !links.empty())
    answers["network"] = join(links, "; ");
  return answers;
}

/// Those that say something else than most do; the first of equally many counts as most.
void add_minorities(const std::string& what, const std::map<std::string, std::string>& of_nodes,
                    std::vector<NodeNote>& notes) {
  std::map<std::string, int> count;
  for (const auto& [node, value] : of_nodes) ++count[value];
  if (count.size() < 2) return;
  std::string usual;
  for (const auto& [node, value] : of_nodes)
    if (usual.empty() || count[value] > count[usual]) usual = value;
  for (const auto& [node, value] : of_nodes)
    if (value != usual)
      notes.push_back({node, fmt::format("{} is {}, on other nodes {}", what, value, usual)});
}

RunProtocol pair_protocol() {
  RunProtocol protocol;
  protocol.cells.warmup = 1;
  protocol.cells.iterations = protocol.cells.min_iterations = kPairCalls;
  protocol.cells.cell_time_cap = Micros(10e6);
  protocol.launch_timeout = Micros(60e6);
  protocol.connect_timeout = Micros(10e6);
  return protocol;
}

PlannedGroup pair_group(Backend backend) {
  PlannedGroup group;
  group.id = fmt::format("preflight {}", name_of(backend));
  group.environment = "bare-metal";
  group.backend = backend;
  group.ranks = 2;
  WorkCell cell;
  cell.id = kPairCell;
  cell.collective = Collective::sendrecv;
  cell.size = kPairSize;
  group.cells.push_back({cell, ""});
  return group;
}

/// One launch after the other, each on another pair.
class Pairs {
 public:
  Pairs(std::shared_ptr<ClusterSession> cluster, LaunchSite site, Backend backend, Console& console)
      : cluster_(std::move(cluster)),
        group_(pair_group(backend)),
        console_(console),
        runner_({{{"bare-metal", bare_metal()}}, pair_protocol(), 1}, with_cluster(std::move(site)),
                nullptr, console, random_uuid()) {}

  /// @returns why no rank can be started on them, "" = it can
  std::string prepare(std::vector<std::string>& names) {
    const auto& readiness = runner_.prepare_environment("bare-metal");
    names.clear();
    for (const auto& node : cluster_->nodes()) names.push_back(node.name);
    return readiness.state == Readiness::State::ready ? "" : readiness.reason;
  }

  std::optional<PairTime> measure(const std::string& a, const std::string& b) {
    if (interrupt_signal() != 0) return std::nullopt;
    runner_.stop_environments();
    cluster_->narrow_to({a, b});
    std::vector<std::string> of_ranks;
    for (const auto& node : cluster_->nodes()) of_ranks.push_back(node.name);
    const auto done = runner_.attempt(group_, {}, launches_++, pair_protocol());
    cluster_->narrow_to({});
    if (interrupt_signal() != 0) return std::nullopt;
    PairTime time;
    if (!done.ok()) {
      time.failure = done.finished.end.reason;
      console_.detail(fmt::format("{} - {}: {}", a, b, first_line(time.failure)));
      return time;
    }
    read(done.finished, of_ranks, time);
    console_.detail(fmt::format("{} - {}: {}", a, b, rate_text(time.fastest_us)));
    return time;
  }

  /// What the ranks' library calls itself, by node.
  [[nodiscard]] const std::map<std::string, std::string>& libraries() const { return libraries_; }

  static std::string rate_text(double us) {
    const double mbit = static_cast<double>(kPairSize.count()) * 8 / us;
    return mbit < 1000 ? fmt::format("{:.0f} Mbit/s each way", mbit)
                       : fmt::format("{:.3g} Gbit/s each way", mbit / 1000);
  }
  /// The next one too where the first announces it: "not every node can take ranks:".
  static std::string first_line(const std::string& text) {
    const auto end = text.find('\n');
    if (end == std::string::npos || end == 0 || text[end - 1] != ':') return text.substr(0, end);
    const std::string_view rest = trim(std::string_view(text).substr(end));
    return text.substr(0, end) + " " + std::string(rest.substr(0, rest.find('\n')));
  }

 private:
  static EnvironmentProfile bare_metal() {
    EnvironmentProfile profile;
    profile.name = "bare-metal";
    profile.kind = EnvironmentKind::bare_metal;
    return profile;
  }
  [[nodiscard]] LaunchSite with_cluster(LaunchSite site) const {
    site.cluster = cluster_;
    return site;
  }

  void read(const FinishedLaunch& finished, const std::vector<std::string>& of_ranks,
            PairTime& time) {
    for (const auto& file : finished.records) {
      for (const auto& record : file.records) {
        if (const auto* hello = std::get_if<HelloRecord>(&record);
            hello != nullptr && static_cast<std::size_t>(hello->rank) < of_ranks.size())
          libraries_[of_ranks[static_cast<std::size_t>(hello->rank)]] =
              hello->library + " " + hello->library_version;
        const auto* cell = std::get_if<CellRecord>(&record);
        if (cell == nullptr || cell->measured.total_us.empty()) continue;
        const auto& calls = cell->measured.total_us;
        // The slower of the two ends.
        time.fastest_us = std::max(time.fastest_us, *std::min_element(calls.begin(), calls.end()));
        time.typical_us = std::max(time.typical_us, median(calls));
      }
    }
    if (time.fastest_us <= 0) time.failure = "the launch left no times";
  }

  std::shared_ptr<ClusterSession> cluster_;
  PlannedGroup group_;
  Console& console_;
  LaunchRunner runner_;
  std::map<std::string, std::string> libraries_;
  int launches_ = 0;
};

std::optional<Backend> carrier(std::optional<Backend> asked, const LaunchSite& site,
                               const ClusterSession& cluster, std::string& why) {
  const auto can = inspect_cluster({}, site.worker_folder, cluster);
  const auto reason = [&](Backend backend) {
    const auto found = can.backend_reasons.find(backend);
    return found == can.backend_reasons.end() ? "" : found->second;
  };
  if (asked) {
    why = reason(*asked);
    return why.empty() ? asked : std::nullopt;
  }
  for (const Backend backend : kCarriers)
    if (reason(backend).empty()) return backend;
  why = reason(kCarriers.front());
  return std::nullopt;
}

json node_pairs(ClusterSession& cluster, const std::vector<std::string>& nodes,
                const MachineDeclarations& declared) {
  RankHosts hosts;
  hosts.declared = declared;
  const auto slurm =
      cluster.job().empty() ? std::map<std::string, std::string>{} : slurm_facts(cluster.job());
  const auto topology = slurm.find("topology");
  place_hosts({}, topology == slurm.end() ? "" : topology->second, hosts);
  if (hosts.places.empty()) hosts.places = cluster.measured_places();
  std::vector<RankPlace> places;
  for (const auto& node : nodes) places.push_back({node, nullptr});
  return to_json(pair_places(places, hosts.places));
}

std::string suspect_text(const Preflight& preflight, const PairSuspect& suspect) {
  const auto name = [&](std::size_t node) { return preflight.nodes.at(node); };
  const auto& best = *preflight.search.reference;
  const std::string what =
      suspect.link ? fmt::format("the link {} - {}", name(suspect.node), name(suspect.with))
                   : name(suspect.node);
  if (!suspect.failure.empty() && suspect.confirmed)
    return fmt::format(
        "{}: no launch comes up ({}), while {} - {} works: look for a route, a "
        "firewall and the library there{}",
        what, Pairs::first_line(suspect.failure), name(best.a), name(best.b),
        suspect.link ? "" : ", and drain it until then");
  const auto& interval = suspect.ratio.interval;
  const std::string ratio = interval ? fmt::format("{:.2f} [{:.2f}, {:.2f}]", suspect.ratio.value,
                                                   interval->low, interval->high)
                            : suspect.failure.empty() ? "no"
                                                      : "a failed launch and no";
  const std::string held =
      fmt::format("{} times the time of {} - {} ({} + {} fresh launches)", ratio, name(best.a),
                  name(best.b), suspect.launches_a_side, suspect.launches_a_side);
  if (!suspect.confirmed) return fmt::format("{}: not borne out: {}", what, held);
  return fmt::format("{} is slow: {}; {}", what, held,
                     suspect.link ? "both ends are well with others: look at cables and switches"
                                  : fmt::format("drain it: with {}", name(suspect.with)));
}

}  // namespace

bool Preflight::found() const {
  const bool none_ran = !search.launches.empty() && !search.reference && !search.stopped;
  return !unavailable.empty() || !notes.empty() || search.found() || none_ran;
}

std::vector<NodeNote> odd_nodes(const std::vector<NodeReport>& reports) {
  std::vector<NodeNote> notes;
  std::map<std::string, std::map<std::string, std::string>> by_question;
  for (const auto& report : reports) {
    if (std::abs(report.clock_offset_s) > report.round_trip_s / 2 + kClockSlack_s)
      notes.push_back(
          {report.name,
           fmt::format("its clock is {:.1f} s {} this machine's", std::abs(report.clock_offset_s),
                       report.clock_offset_s > 0 ? "ahead of" : "behind")});
    for (const auto& [question, answer] : answers_of(report))
      by_question[question][report.name] = answer;
  }
  for (const auto& [question, answers] : by_question) add_minorities(question, answers, notes);
  return notes;
}

Preflight look_at_nodes(std::shared_ptr<ClusterSession> cluster, LaunchSite site,
                        std::optional<Backend> backend, Console& console) {
  Preflight preflight;
  preflight.start = name_of(cluster->options().start);
  preflight.size = kPairSize;
  for (const auto& node : cluster->nodes()) preflight.nodes.push_back(node.name);
  if (const auto chosen = carrier(backend, site, *cluster, preflight.unavailable))
    preflight.backend = *chosen;
  else
    return preflight;
  EnvironmentProfile bare;
  bare.kind = EnvironmentKind::bare_metal;
  if (const auto reason = cluster_unavailable_reason(bare, *cluster)) {
    preflight.unavailable = *reason;
    return preflight;
  }
  // Pairs are in the order of names.
  cluster->keep_nodes();
  const MachineDeclarations declared = site.machine;
  Pairs pairs(cluster, std::move(site), preflight.backend, console);
  // Such a variable may also be why no step starts.
  if (cluster->options().slurm())
    for (const auto& line : hidden_gpus_around()) preflight.notes.push_back({"(all)", line});
  preflight.unavailable = pairs.prepare(preflight.nodes);
  if (!preflight.unavailable.empty()) return preflight;
  preflight.pairs = node_pairs(*cluster, preflight.nodes, declared);
  for (auto& note : odd_nodes(cluster->reports())) preflight.notes.push_back(std::move(note));
  preflight.search = find_slow_nodes(preflight.nodes.size(), [&](std::size_t a, std::size_t b) {
    return pairs.measure(preflight.nodes[a], preflight.nodes[b]);
  });
  add_minorities("the library", pairs.libraries(), preflight.notes);
  return preflight;
}

std::string to_text(const Preflight& preflight) {
  std::string text = fmt::format("{} by {}: {}\n", counted(preflight.nodes.size(), "node"),
                                 preflight.start, join(preflight.nodes, ", "));
  if (const auto pairs = pair_places_text(preflight.pairs); !pairs.empty())
    text += fmt::format("  pairs of nodes share: {}\n", pairs);
  for (const auto& note : preflight.notes)
    text += fmt::format("  NODE {}: {}\n", note.node, note.what);
  if (!preflight.unavailable.empty()) return text + "  " + preflight.unavailable + "\n";
  for (const auto& launch : preflight.search.launches)
    text += fmt::format("  {} - {}: {}\n", preflight.nodes[launch.a], preflight.nodes[launch.b],
                        launch.time.ok() ? Pairs::rate_text(launch.time.fastest_us)
                                         : "failed: " + Pairs::first_line(launch.time.failure));
  if (preflight.search.reference)
    for (const auto& suspect : preflight.search.suspects)
      text += fmt::format("  {}{}\n", suspect.confirmed ? "CAUSE " : "",
                          suspect_text(preflight, suspect));
  text += fmt::format("  {}, {} exchanged by {} in each\n",
                      counted(preflight.search.launches.size(), "launch"),
                      format_bytes(preflight.size), name_of(preflight.backend));
  if (preflight.search.stopped) return text + "  ended before its end: nothing is known\n";
  if (!preflight.search.reference) return text + "  no pair of nodes works together\n";
  if (preflight.search.found()) return text;
  return text + (preflight.nodes.size() > 2
                     ? "  no node is slower than the others\n"
                     : "  two nodes: which one is the slower is not known; give three or more\n");
}

json to_json(const Preflight& preflight) {
  json out = {{"nodes", preflight.nodes},
              {"start", preflight.start},
              {"backend", name_of(preflight.backend)},
              {"size_bytes", preflight.size.count()},
              {"stopped", preflight.search.stopped},
              {"pairs", preflight.pairs},
              {"notes", json::array()},
              {"launches", json::array()},
              {"suspects", json::array()}};
  if (!preflight.unavailable.empty()) out["unavailable"] = preflight.unavailable;
  for (const auto& note : preflight.notes)
    out["notes"].push_back({{"node", note.node}, {"what", note.what}});
  for (const auto& launch : preflight.search.launches) {
    json one = {{"nodes", {preflight.nodes[launch.a], preflight.nodes[launch.b]}}};
    if (launch.time.ok()) {
      one["fastest_us"] = launch.time.fastest_us;
      one["median_us"] = launch.time.typical_us;
    } else {
      one["failure"] = launch.time.failure;
    }
    out["launches"].push_back(one);
  }
  if (!preflight.search.reference) return out;
  const auto& best = *preflight.search.reference;
  out["reference"] = {preflight.nodes[best.a], preflight.nodes[best.b]};
  for (const auto& suspect : preflight.search.suspects) {
    json one = {{"node", preflight.nodes[suspect.node]},
                {"with", preflight.nodes[suspect.with]},
                {"link", suspect.link},
                {"confirmed", suspect.confirmed},
                {"launches_a_side", suspect.launches_a_side},
                {"text", suspect_text(preflight, suspect)}};
    if (!suspect.failure.empty()) one["failure"] = suspect.failure;
    if (suspect.ratio.interval)
      one["time_ratio"] = {{"value", suspect.ratio.value},
                           {"low", suspect.ratio.interval->low},
                           {"high", suspect.ratio.interval->high}};
    out["suspects"].push_back(one);
  }
  return out;
}

}  // namespace dynamiccl
