#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/vocabulary/splitmix64.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

constexpr std::string_view kNone = "none";

/// Whether workers average the weights of all of them.
bool averages(const TrainingSpec& spec) {
  return has_local_steps(spec.synchronisation) &&
         method_row(spec.method).sums != SumPlace::neighbours && !spec.switch_to;
}

bool averages_locally(const TrainingSpec& spec) {
  return averages(spec) && spec.synchronisation == Synchronisation::local;
}

template <Synchronisation kHow>
bool waits(const TrainingSpec& spec) {
  return waits_as(spec, kHow);
}

template <Synchronisation kHow>
bool begins(const TrainingSpec& spec) {
  return spec.synchronisation == kHow;
}

using Spec = TrainingSpec;
using How = Synchronisation;
constexpr std::string_view kPlainAverages =
    "synchronisation = \"local\" with averages of all workers, without switch_to";

constexpr SettingRow kMeetingRows[] = {
    setting<&Spec::synchronisation>("synchronisation", "when workers wait for each other"),
    setting<&Spec::staleness>("staleness", "ssp: steps that a worker may be ahead of the slowest")
        .of("synchronisation = \"ssp\"", waits<How::ssp>),
    setting<&Spec::backups>("backups", "backup: workers of each step that are not waited for", 1)
        .of("synchronisation = \"backup\"", waits<How::backup>),
    setting<&Spec::local_steps>(
        "local_steps",
        "local, post-local, adacomm (in the beginning), easgd: steps between two meetings", 1)
        .of("synchronisation = \"local\", \"post-local\", \"adacomm\" and \"easgd\"",
            [](const Spec& s) {
              return has_local_steps(s.synchronisation) || waits<How::local>(s);
            }),
    setting<&Spec::local_after>("local_after",
                                "post-local: steps of plain SGD before local ones begin, without "
                                "epochs the warm-up's among them")
        .of("synchronisation = \"post-local\"", begins<How::post_local>),
    setting<&Spec::topology>("topology", "d-psgd: who averages with whom")
        .of("methods that average with neighbours (d-psgd)",
            [](const Spec& s) { return method_row(s.method).sums == SumPlace::neighbours; }),
    setting<&Spec::slow_momentum>(
        "slow_momentum", "local, post-local: momentum of the averages themselves (SlowMo); 0: none",
        0, kBelowOne, "a number from 0, below 1")
        .of("local steps with averages of all workers, without switch_to",
            [](const Spec& s) {
              return averages_locally(s) || (averages(s) && begins<How::post_local>(s));
            }),
    setting<&Spec::shares>("shares",
                           "local: the workers' parts of the data, by which averages are weighted: "
                           "equal, or linear (one part, two, three, ...)")
        .of(kPlainAverages, averages_locally),
    setting<&Spec::participants>(
        "participants", "local: workers that take part in a round, drawn anew for each; 0: all")
        .of(kPlainAverages, averages_locally),
    setting<&Spec::lag_threshold>(
        "lag_threshold",
        "lag: squared change of a gradient up to which it is not sent, over the mean squared "
        "movement of the weights; 0: all are sent")
        .of("synchronisation = \"lag\"", begins<How::lag>),
    setting<&Spec::adapt_every>("adapt_every",
                                "adacomm: steps after which the loss sets how long rounds are", 1)
        .of("synchronisation = \"adacomm\"", begins<How::adacomm>),
    setting<&Spec::group_size>(
        "group_size",
        "ssp, asp, staggered: workers that all-reduce among themselves and whose first one speaks "
        "with the server; 1: no groups",
        1),
    SettingRow{"switch_to",
               "how workers wait from the end of epoch switch_after on; none: as before",
               [](Spec& spec, const SettingRow&, const std::string& value) {
                 spec.switch_to.reset();
                 if (value != kNone) spec.switch_to = parse_named<Synchronisation>(value);
               },
               [](const Spec& spec) {
                 return std::string(spec.switch_to ? name_of(*spec.switch_to) : kNone);
               }},
    setting<&Spec::switch_after>("switch_after", "epochs before switch_to", 1)
        .of("switch_to", [](const Spec& s) { return s.switch_to.has_value(); })};
/// Why a setting is said that the cell has no use for.
std::string misplaced_setting(const TrainingSpec& spec) {
  static const TrainingSpec usual;
  for (const SettingRow& row : kMeetingRows)
    if (row.has_use != nullptr && !row.has_use(spec) && row.write(spec) != row.write(usual))
      return fmt::format("{}: belongs to {}; leave it out", row.name, row.belongs_to);
  return "";
}

/// Why there is no such server, where one answers workers by itself or keeps what they sent.
std::string server_contradiction(const TrainingSpec& spec, Synchronisation how) {
  if (!is_asynchronous(how) && how != Synchronisation::lag) return "";
  if (spec.placement == ServerPlacement::colocated)
    return fmt::format(
        "synchronisation = \"{}\" with placement = \"colocated\": a server that computes too "
        "would make workers wait for its own step; leave out placement",
        name_of(how));
  if (spec.servers > 1 && how != Synchronisation::asp)
    return fmt::format(
        "synchronisation = \"{}\" with {} servers (partial): each would put updates into an order "
        "of its own; take asp, or servers = 1",
        name_of(how), spec.servers);
  if (spec.servers > 1 &&
      (spec.compression != Codec::none || spec.group_size > 1 || spec.switch_to))
    return fmt::format(
        "synchronisation = \"asp\" with {} servers and {} (partial): servers that share weights "
        "take plain gradients of single workers, in one way throughout; take servers = 1",
        spec.servers,
        spec.compression != Codec::none ? "compression"
        : spec.group_size > 1           ? "group_size"
                                        : "switch_to");
  if (how == Synchronisation::lag && spec.optimizer == OptimizerPlace::server)
    return "optimizer = \"server\" with lag: workers judge a gradient by how far they moved the "
           "weights themselves; leave out optimizer";
  return "";
}

/// Why there are no groups of workers between which a server is.
std::string group_contradiction(const TrainingSpec& spec) {
  if (spec.group_size == 1) return "";
  if (!is_asynchronous(spec.synchronisation))
    return fmt::format(
        "group_size = {} with synchronisation = \"{}\": groups differ from one all-reduce where a "
        "server answers each by itself; take bsp-ps with ssp, asp or staggered",
        spec.group_size, name_of(spec.synchronisation));
  if (waits_as(spec, Synchronisation::backup))
    return fmt::format(
        "group_size = {} with backup workers (partial): a late group would be dropped whole; take "
        "ssp, asp or staggered",
        spec.group_size);
  if (spec.switch_to)
    return fmt::format("group_size = {} with switch_to (partial): groups go one way throughout",
                       spec.group_size);
  return "";
}

std::string switch_contradiction(const TrainingSpec& spec) {
  if (!spec.switch_to) return "";
  const TrainingMethodRow& row = method_row(spec.method);
  const auto refusal = [&](const std::string& why) {
    return fmt::format("switch_to = \"{}\" from \"{}\" with {}: {}", name_of(*spec.switch_to),
                       name_of(spec.synchronisation), row.name, why);
  };
  if (auto why = switch_misfit(row.sums, spec.synchronisation, *spec.switch_to); !why.empty())
    return refusal(why);
  if (row.engine || row.grouping != MessageGrouping::together)
    return refusal("only bsp-ps and bsp-a2a go over while they train");
  if (spec.epochs == 0) return refusal("it comes at an epoch's end; say epochs instead of steps");
  if (spec.epochs <= spec.switch_after)
    return refusal(fmt::format("it comes after epoch {}; say more epochs", spec.switch_after));
  if (is_tuned(spec)) return refusal("the library's calls are set for one way of waiting");
  if (spec.packing != Packing::none || spec.compression != Codec::none)
    return refusal("what travels plainly alone goes over (partial)");
  if (spec.optimizer == OptimizerPlace::server)
    return refusal("the server is the optimizer anyway; leave out optimizer");
  return server_contradiction(spec, *spec.switch_to);
}

/// The methods that can be had with it: "bsp-ps, bsp-a2a or d-psgd".
std::string methods_that_wait(Synchronisation how) {
  std::vector<std::string_view> names;
  for (const TrainingMethod method :
       {TrainingMethod::bsp_ps, TrainingMethod::bsp_a2a, TrainingMethod::d_psgd}) {
    const TrainingMethodRow& row = method_row(method);
    if (synchronisation_fit(how, row.sums).fit == PairFit::legal) names.push_back(row.name);
  }
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  return text;
}

/// Why the synchronisation, and what belongs to it alone, does not go with the method.
std::string synchronisation_contradiction(const TrainingSpec& spec) {
  const TrainingMethodRow& row = method_row(spec.method);
  const Synchronisation how = spec.synchronisation;
  if (how != Synchronisation::bsp) {
    const Fit& pair = synchronisation_fit(how, row.sums);
    if (pair.fit != PairFit::legal)
      return fmt::format("synchronisation = \"{}\" with {} ({}): {}", name_of(how), row.name,
                         pair.fit == PairFit::partial ? "partial" : "illegal", pair.reason);
  }
  if (auto reason = misplaced_setting(spec); !reason.empty()) return reason;
  if (auto reason = switch_contradiction(spec); !reason.empty()) return reason;
  const bool locally = waits_as(spec, Synchronisation::local) ||
                       waits_as(spec, Synchronisation::post_local) ||
                       waits_as(spec, Synchronisation::adacomm);
  if (how != Synchronisation::bsp) {
    if (row.engine || row.grouping != MessageGrouping::together)
      return fmt::format(
          "synchronisation = \"{}\": what {} does within a step has nothing to do where workers "
          "do not wait for each other in each; take {}",
          name_of(how), row.name, methods_that_wait(how));
  }
  if (locally && spec.local_steps < 2)
    return fmt::format("synchronisation = \"{}\": say local_steps = 2 or more",
                       name_of(has_local_steps(how) ? how : Synchronisation::local));
  if (how == Synchronisation::d2 && spec.topology != PeerGraph::ring &&
      spec.topology != PeerGraph::torus)
    return fmt::format(
        "synchronisation = \"d2\" with topology = \"{}\" (illegal): what the last average moved "
        "says nothing of the next where neighbours change or do not send both ways; take ring or "
        "torus",
        name_of(spec.topology));
  if (auto reason = group_contradiction(spec); !reason.empty()) return reason;
  if (auto reason = server_contradiction(spec, how); !reason.empty()) return reason;
  if (has_local_steps(how) && spec.optimizer == OptimizerPlace::server)
    return "optimizer = \"server\" with local steps: workers are the optimizers between two "
           "averages; leave out optimizer";
  return "";
}

}  // namespace

SettingPart meeting_part() { return {kMeetingRows, synchronisation_contradiction}; }

bool waits_as(const TrainingSpec& spec, Synchronisation synchronisation) {
  return spec.synchronisation == synchronisation || spec.switch_to == synchronisation;
}

TrainingSpec leg_of(const TrainingSpec& spec, bool after) {
  TrainingSpec leg = spec;
  leg.synchronisation =
      after ? spec.switch_to.value_or(spec.synchronisation) : spec.synchronisation;
  leg.switch_to.reset();
  leg.switch_after = 1;
  if (!has_local_steps(leg.synchronisation)) leg.local_steps = 1;
  return leg;
}

int round_steps(const TrainingSpec& spec) {
  return has_local_steps(spec.synchronisation) ? spec.local_steps : 1;
}

int groups_of(const TrainingSpec& spec, int workers) { return workers / spec.group_size; }

int adapted_steps(int steps, int first, double first_loss, double loss) {
  const double share = first_loss > 0 ? std::max(loss, 0.0) / first_loss : 1;
  const double by_loss = std::ceil(std::sqrt(share) * first);
  // A loss that stays where it is halves them all the same: else they would never become one.
  const double shorter = by_loss < steps ? by_loss : std::ceil(steps / 2.0);
  return std::isfinite(shorter) ? std::max(1, static_cast<int>(shorter)) : steps;
}

double share_of(const TrainingSpec& spec, int workers, int worker) {
  if (spec.shares == DataShares::equal) return 1.0 / workers;
  return 2.0 * (worker + 1) / (static_cast<double>(workers) * (workers + 1));
}

std::vector<int> participants_of(const TrainingSpec& spec, int workers, std::uint64_t round,
                                 std::uint64_t seed) {
  std::vector<int> all(static_cast<std::size_t>(workers));
  std::iota(all.begin(), all.end(), 0);
  if (spec.participants == 0 || spec.participants >= workers) return all;
  const auto wanted = static_cast<std::size_t>(spec.participants);
  std::uint64_t state = splitmix64_mixed(seed ^ 0x5A17ULL) ^ (round * kSplitmix64Step);
  for (std::size_t i = 0; i < wanted; ++i) {
    state = splitmix64_of(state);
    std::swap(all[i], all[i + state % (all.size() - i)]);
  }
  all.resize(wanted);
  std::sort(all.begin(), all.end());
  return all;
}

bool weighs_workers(const TrainingSpec& spec) {
  return spec.shares != DataShares::equal || spec.participants > 0;
}

}  // namespace dynamiccl
