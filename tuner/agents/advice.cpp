#include "tuner/agents/advice.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/vocabulary/backend.hpp"
#include "tuner/state/published_scaling.hpp"

namespace dynamiccl {
namespace {

using Shape = ArmTraits::Shape;
using Latency = ArmTraits::Protocol;

constexpr double kSmallMessage = 64 << 10;
constexpr double kLargeMessage = 1 << 20;
constexpr double kHugeMessage = 1 << 30;
/// log2 of the size at which start-up and bytes weigh alike: a tree below, a ring above.
constexpr double kTurnLog2 = 18;
constexpr int kManyRanks = 16;
/// All hints of an arm together move it by no more of their weight than this.
constexpr double kMostHints = 3;

double bytes_of(const Task& task) {
  return task.state.effective_size ? static_cast<double>(task.state.effective_size->count())
                                   : std::exp2(task.key.task.bin.log2);
}

double yes(bool applies) { return applies ? 1 : 0; }

bool is_allreduce(const Task& task) {
  return task.key.task.architecture == Architecture::ring &&
         task.key.task.collective == Collective::allreduce;
}

double tree_low_latency(const ArmTraits& arm) {
  return (arm.shape == Shape::tree   ? -0.5
          : arm.shape == Shape::ring ? 0.5
                                     : 0) +
         (arm.protocol == Latency::low_latency ? -0.5
          : arm.protocol == Latency::simple    ? 0.5
                                               : 0);
}

double low_latency(const ArmTraits& arm) {
  return arm.protocol == Latency::low_latency ? -1 : arm.protocol == Latency::simple ? 1 : 0;
}

double tree(const ArmTraits& arm) {
  return arm.shape == Shape::tree ? -1 : arm.shape == Shape::ring ? 1 : 0;
}

/// Is it a call that other work waits for? nullopt: the parallelism does not say it.
std::optional<bool> waited_for(const Task& task) {
  if (!task.state.parallelism) return std::nullopt;
  switch (*task.state.parallelism) {
    case ParallelismMode::tp:
      return true;
    case ParallelismMode::pp:
      return false;
    case ParallelismMode::three_d:  // activations are all-reduced, gradients mostly scattered
      return task.state.stage_role ? task.state.stage_role == StageRole::intra_stage_allreduce
                                   : task.key.task.collective == Collective::allreduce;
    default:
      return std::nullopt;
  }
}

constexpr std::array kHints{
    Hint{"wfbp", "wait-free backpropagation's many small calls: LL or LL128",
         [](const Task& task) {
           return yes(task.state.schedule == Schedule::wfbp && bytes_of(task) < kLargeMessage);
         },
         [](const ArmTraits& arm, const Task&) { return low_latency(arm); }},
    Hint{"fused", "fused large calls: Simple, fewer channels",
         [](const Task& task) {
           return yes(task.state.schedule == Schedule::mg_wfbp && bytes_of(task) >= kLargeMessage);
         },
         [](const ArmTraits& arm, const Task&) {
           return -0.5 * low_latency(arm) + 0.5 * arm.channels;
         }},
    Hint{"partitioned", "partitioned medium calls: more channels",
         [](const Task& task) {
           return yes(task.state.schedule == Schedule::partitioned &&
                      bytes_of(task) >= kSmallMessage && bytes_of(task) < 16 * kLargeMessage);
         },
         [](const ArmTraits& arm, const Task&) { return -arm.channels; }},
    Hint{"parallelism",
         "tensor-parallel activations: tree and LL; pipeline gradients: ring, Simple",
         [](const Task& task) { return yes(waited_for(task).has_value()); },
         [](const ArmTraits& arm, const Task& task) {
           return waited_for(task).value_or(false) ? tree_low_latency(arm) : -tree_low_latency(arm);
         }},
    Hint{"start-up wall", "all-reduce of many ranks, pieces of a few KiB: more channels, LL, tree",
         [](const Task& task) {
           const int ranks = task.key.task.group_size;
           return yes(is_allreduce(task) && ranks >= kManyRanks &&
                      bytes_of(task) / ranks < kSmallMessage);
         },
         [](const ArmTraits& arm, const Task&) {
           return (2 * tree_low_latency(arm) - arm.channels) / 3;
         }},
    Hint{"critical", "what the step waits for: tree and LL; what goes beside it: ring and Simple",
         [](const Task& task) { return yes(task.state.critical.has_value()); },
         [](const ArmTraits& arm, const Task& task) {
           return *task.state.critical ? tree_low_latency(arm) : -tree_low_latency(arm);
         }},
    Hint{"size", "large messages: ring, small ones: tree",
         [](const Task& task) {
           return std::min(1.0, std::abs(std::log2(std::max(1.0, bytes_of(task))) - kTurnLog2) / 6);
         },
         [](const ArmTraits& arm, const Task& task) {
           return bytes_of(task) < std::exp2(kTurnLog2) ? tree(arm) : -tree(arm);
         }},
    Hint{"topology",
         "torus, jellyfish: ring; fat tree: no hierarchy; bcube, hammingmesh: hierarchy",
         [](const Task& task) { return yes(task.state.topology.has_value()); },
         [](const ArmTraits& arm, const Task& task) {
           switch (*task.state.topology) {
             case Topology::torus:
             case Topology::jellyfish:
               return arm.shape == Shape::ring ? -1.0 : arm.shape == Shape::unsaid ? 0.0 : 1.0;
             case Topology::fat_tree:
               return arm.shape == Shape::hierarchical ? 1.0
                      : arm.shape == Shape::unsaid     ? 0.0
                                                       : -0.5;
             case Topology::bcube:
             case Topology::hammingmesh:
               return arm.shape == Shape::hierarchical ? -1.0 : 0.0;
             default:
               return 0.0;
           }
         }},
    Hint{"protocol", "up to 64 KiB: LL or LL128, from 1 MiB on: Simple",
         [](const Task& task) {
           return yes(bytes_of(task) <= kSmallMessage || bytes_of(task) >= kLargeMessage);
         },
         [](const ArmTraits& arm, const Task& task) {
           return bytes_of(task) <= kSmallMessage ? low_latency(arm) : -low_latency(arm);
         }},
    // For all sizes it was advised; measured, large messages want the opposite.
    Hint{"containers", "NCCL across containers, up to 64 KiB: fewer channels",
         [](const Task& task) {
           return yes(backend_facts(task.key.task.backend).channels &&
                      task.state.cross_container == true && bytes_of(task) <= kSmallMessage);
         },
         [](const ArmTraits& arm, const Task&) { return arm.channels; }},
};

bool low_intensity(const Task& task) {
  return task.state.model_intensity && *task.state.model_intensity < published_intensity_split();
}

constexpr std::array kBoldness{
    Boldness{
        "scaling", "intense model, 32 ranks, batch 64: it scales to 99 % already",
        [](const Task& task) { return scales_by_itself(task.state, task.key.task.group_size); },
        0.6},
    Boldness{"infiniband", "1 MB and more over InfiniBand: near line rate already",
             [](const Task& task) {
               const bool fast = task.state.inter_link == InterLink::infiniband ||
                                 task.state.inter_link == InterLink::gpudirect_rdma;
               return task.key.task.nodes > 1 && fast && bytes_of(task) >= 1e6;
             },
             0.6},
    Boldness{"unscheduled", "all-reduce after the backward pass: defaults are safe",
             [](const Task& task) {
               return task.state.schedule == Schedule::none && task.state.sync == SyncMode::bsp &&
                      is_allreduce(task);
             },
             0.7},
    Boldness{"one gibibyte", "1 GiB on four GPUs of a node",
             [](const Task& task) {
               return backend_facts(task.key.task.backend).on_gpu &&
                      task.key.task.group_size == 4 && task.key.task.nodes == 1 &&
                      bytes_of(task) >= kHugeMessage;
             },
             0.6},
    Boldness{"small batch", "low-intensity model, small batch",
             [](const Task& task) {
               return low_intensity(task) && task.state.local_batch.value_or(1 << 20) <= 16;
             },
             1.4},
    Boldness{"small messages", "below 64 KiB, where protocols matter",
             [](const Task& task) { return bytes_of(task) < kSmallMessage; }, 1.3},
    Boldness{"many wfbp ranks", "wait-free backpropagation with many ranks",
             [](const Task& task) {
               return task.state.schedule == Schedule::wfbp && is_allreduce(task) &&
                      task.key.task.group_size >= kManyRanks;
             },
             1.4},
    Boldness{"pcie", "nodes whose GPUs have PCIe alone",
             [](const Task& task) {
               return backend_facts(task.key.task.backend).on_gpu &&
                      task.state.intra_link == IntraLink::pcie;
             },
             1.3},
    Boldness{"containers", "NCCL across containers",
             [](const Task& task) {
               return backend_facts(task.key.task.backend).channels &&
                      task.state.cross_container == true;
             },
             1.4},
    Boldness{"away from home",
             "not BSP, all-reduce, uncompressed: what was learnt speaks less of it",
             [](const Task& task) {
               const State& state = task.state;
               return (state.sync && state.sync != SyncMode::bsp) ||
                      (state.compression && state.compression != Compression::none) ||
                      task.key.task.architecture == Architecture::ps;
             },
             0.7},
};

/// Of the value of a knob that goes by several names; "default" where the space has none of them.
std::string_view value_of(const ActionSpace& space, const Action& action,
                          std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (space.knob_index(name)) return space.value(action, name);
  return "default";
}

Shape shape_of(std::string_view algorithm) {
  const auto has = [&](std::string_view part) {
    return algorithm.find(part) != std::string_view::npos;
  };
  if (has("smp") || has("hierarch") || has("collnet") || has("nvls")) return Shape::hierarchical;
  if (has("ring") || has("pipeline") || has("chain") || has("neighbor")) return Shape::ring;
  if (has("tree") || has("binomial") || has("knomial") || has("doubling") || has("bcube") ||
      has("binary") || has("bruck"))
    return Shape::tree;
  return Shape::unsaid;
}

constexpr std::array<std::string_view, 8> kChannelKnobs{
    "channels",          "call.channels",     "call.min_ctas",          "call.max_ctas",
    "env.NCCL_MIN_CTAS", "env.NCCL_MAX_CTAS", "env.NCCL_MAX_NCHANNELS", "env.NCCL_MIN_NCHANNELS"};

double channels_of(const ActionSpace& space, const Action& action, double usual) {
  for (const std::string_view name : kChannelKnobs) {
    const auto knob = space.knob_index(name);
    const auto magnitude = knob ? space.magnitude(*knob, action[*knob]) : std::nullopt;
    // Eight times as many or as few are all the way.
    if (magnitude) return std::clamp((*magnitude - std::log2(usual)) / 3, -1.0, 1.0);
  }
  return 0;
}

/// What NCCL takes by itself: few where sockets carry its messages, where each is a thread's work.
double usual_channels(const Task& task) {
  const State& state = task.state;
  const bool sockets = state.shared_memory == false || task.key.task.nodes > 1;
  return sockets ? 2 : 16;
}

}  // namespace

ArmTraits traits_of(const ActionSpace& space, const Action& action, double usual_channels) {
  ArmTraits traits;
  traits.shape = shape_of(value_of(space, action, {"algorithm", "env.NCCL_ALGO"}));
  const std::string_view protocol =
      value_of(space, action, {"protocol", "call.protocol", "env.NCCL_PROTO"});
  if (protocol == "Simple" || protocol == "SIMPLE") traits.protocol = Latency::simple;
  if (protocol == "LL" || protocol == "LL128") traits.protocol = Latency::low_latency;
  traits.channels = channels_of(space, action, usual_channels);
  return traits;
}

std::span<const Hint> hints() { return kHints; }
std::span<const Boldness> boldness_terms() { return kBoldness; }

std::vector<double> hinted_log_us(const Task& task, double weight) {
  std::vector<double> offsets;
  offsets.reserve(task.space->arms().size());
  for (const Action& action : task.space->arms()) {
    double sum = 0;
    if (!ActionSpace::is_default(action)) {
      const ArmTraits traits = traits_of(*task.space, action, usual_channels(task));
      for (const Hint& hint : kHints)
        if (const double applies = hint.applies(task); applies > 0)
          sum += applies * hint.judges(traits, task);
    }
    offsets.push_back(weight * std::clamp(sum, -kMostHints, kMostHints));
  }
  return offsets;
}

double boldness_of(const Task& task) {
  double factor = 1;
  for (const Boldness& term : kBoldness)
    if (term.applies(task)) factor *= term.factor;
  // What communication takes of the step is what there is to gain.
  if (task.state.c2c_ratio && *task.state.c2c_ratio > 0)
    factor *= std::clamp(std::pow(*task.state.c2c_ratio / usual_c2c(), 0.25), 0.7, 1.4);
  return std::clamp(factor, 0.5, 2.0);
}

}  // namespace dynamiccl
