// Which settings of a training cell do not go together, and why.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/units.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

/// Why there is no library's all-reduce in each step that could be set.
std::string tuner_contradiction(const TrainingSpec& spec) {
  if (!is_tuned(spec)) return "";
  const TrainingMethodRow& row = method_row(spec.method);
  std::string why;
  if (row.engine) why = "sums by an engine that calls the library itself";
  if (row.sums == SumPlace::server) why = "sums at a server by messages of our own";
  if (row.sums == SumPlace::neighbours) why = "averages with neighbours by messages of our own";
  if (row.split) why = "sums in halves around a ring of our own";
  if (spec.packing != Packing::none) why = "packed values go around a ring of our own";
  if (spec.compression != Codec::none) why = "encoded values go by calls of their own";
  if (spec.synchronisation != Synchronisation::bsp || spec.switch_to)
    why = "without BSP there is no all-reduce of gradients in each step";
  if (why.empty()) return "";
  return fmt::format(
      "tuner = \"{}\" with {}: {}, so that there is no call of the library to set; take bsp-a2a, "
      "wfbp-a2a, mg-wfbp or bytescheduler-a2a, plain and bsp",
      spec.tuner, row.name, why);
}

/// A setting of another synchronisation than the cell has.
std::string misplaced_synchronisation_setting(const TrainingSpec& spec) {
  static const TrainingSpec usual;
  const TrainingMethodRow& row = method_row(spec.method);
  const Synchronisation how = spec.synchronisation;
  const bool averages = has_local_steps(how) && row.sums != SumPlace::neighbours;
  const bool plainly = how == Synchronisation::local || how == Synchronisation::post_local;
  const bool locally = has_local_steps(how) || waits_as(spec, Synchronisation::local);
  struct Rule {
    bool broken;
    const char* key;
    const char* to;
  };
  const Rule rules[] = {
      {spec.staleness != usual.staleness && !waits_as(spec, Synchronisation::ssp), "staleness",
       "synchronisation = \"ssp\""},
      {spec.backups != usual.backups && !waits_as(spec, Synchronisation::backup), "backups",
       "synchronisation = \"backup\""},
      {spec.local_steps > 1 && !locally, "local_steps",
       "synchronisation = \"local\", \"post-local\", \"adacomm\" and \"easgd\""},
      {spec.local_after > 0 && how != Synchronisation::post_local, "local_after",
       "synchronisation = \"post-local\""},
      {spec.lag_threshold != usual.lag_threshold && how != Synchronisation::lag, "lag_threshold",
       "synchronisation = \"lag\""},
      {spec.adapt_every != usual.adapt_every && how != Synchronisation::adacomm, "adapt_every",
       "synchronisation = \"adacomm\""},
      {spec.elastic != usual.elastic && how != Synchronisation::easgd, "elastic",
       "synchronisation = \"easgd\""},
      {spec.switch_after != usual.switch_after && !spec.switch_to, "switch_after", "switch_to"},
      {spec.gossip_pull != usual.gossip_pull &&
           (row.sums != SumPlace::neighbours || spec.compression == Codec::none),
       "gossip_pull", "d-psgd with compression"},
      {spec.topology != usual.topology && row.sums != SumPlace::neighbours, "topology",
       "methods that average with neighbours (d-psgd)"},
      {spec.slow_momentum > 0 && !(averages && plainly && !spec.switch_to), "slow_momentum",
       "local steps with averages of all workers, without switch_to"},
      {spec.shares != usual.shares &&
           !(averages && how == Synchronisation::local && !spec.switch_to),
       "shares", "synchronisation = \"local\" with averages of all workers, without switch_to"},
      {spec.participants > 0 && !(averages && how == Synchronisation::local && !spec.switch_to),
       "participants",
       "synchronisation = \"local\" with averages of all workers, without switch_to"}};
  for (const Rule& rule : rules)
    if (rule.broken) return fmt::format("{}: belongs to {}; leave it out", rule.key, rule.to);
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
  if (spec.servers > 1)
    return fmt::format(
        "synchronisation = \"{}\" with {} servers (partial): each would put updates into an order "
        "of its own; take servers = 1",
        name_of(how), spec.servers);
  if (how == Synchronisation::lag && spec.optimizer == OptimizerPlace::server)
    return "optimizer = \"server\" with lag: workers judge a gradient by how far they moved the "
           "weights themselves; leave out optimizer";
  return "";
}

/// Why no GPU sums what workers push.
std::string server_sums_contradiction(const TrainingSpec& spec) {
  if (spec.server_sums == ServerSums::host) return "";
  const TrainingMethodRow& row = method_row(spec.method);
  const auto refusal = [&](const std::string& why) {
    return fmt::format("server_sums = \"{}\" with {}", name_of(spec.server_sums), why);
  };
  if (row.sums != SumPlace::server)
    return refusal(fmt::format("{}: it has no server; take bsp-ps or wfbp-ps", row.name));
  if (row.order == SendOrder::by_urgency)
    return refusal(fmt::format(
        "{} (partial): each worker sends in an order of its own, and NCCL matches calls by their "
        "order; take bsp-ps or wfbp-ps",
        row.name));
  if (spec.placement == ServerPlacement::colocated)
    return refusal(
        "placement = \"colocated\" (partial): sums of parts on every worker's GPU are NCCL's "
        "reduce-scatter; take dear, or leave out placement");
  const Synchronisation how = spec.synchronisation;
  if ((how != Synchronisation::bsp && !has_local_steps(how)) || spec.switch_to)
    return refusal(
        "a server that answers each worker by itself, or keeps what it sent: NCCL knows no message "
        "from whoever comes first; take bsp or local steps");
  if (spec.compression != Codec::none)
    return refusal("compression (partial): servers decode on their processors; leave one out");
  if (spec.server_sums == ServerSums::chief && spec.servers > 1)
    return refusal(fmt::format("{} servers (partial): a chief feeds one server; leave out servers",
                               spec.servers));
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
    if (synchronisation_pair(how, row.sums).fit == PairFit::legal) names.push_back(row.name);
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
    const SynchronisationPair& pair = synchronisation_pair(how, row.sums);
    if (pair.fit != PairFit::legal)
      return fmt::format("synchronisation = \"{}\" with {} ({}): {}", name_of(how), row.name,
                         pair.fit == PairFit::partial ? "partial" : "illegal", pair.reason);
  }
  if (auto reason = misplaced_synchronisation_setting(spec); !reason.empty()) return reason;
  if (spec.slow_worker != kAnyWorker && spec.slow_factor <= 1)
    return "slow_worker: says who is slowed; say how much by slow_factor";
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
  if (auto reason = group_contradiction(spec); !reason.empty()) return reason;
  if (auto reason = server_contradiction(spec, how); !reason.empty()) return reason;
  if (has_local_steps(how) && spec.optimizer == OptimizerPlace::server)
    return "optimizer = \"server\" with local steps: workers are the optimizers between two "
           "averages; leave out optimizer";
  return "";
}

/// What is made of all workers' sums is made of plain ones.
std::string coded_average_contradiction(const TrainingSpec& spec) {
  if (spec.compression == Codec::none) return "";
  const char* with = nullptr;
  if (spec.slow_momentum > 0) with = "slow_momentum";
  if (weighs_workers(spec)) with = "shares or participants";
  if (method_row(spec.method).sums == SumPlace::neighbours &&
      spec.topology == PeerGraph::random_pairs)
    return fmt::format(
        "compression = \"{}\" with topology = \"random-pairs\" (partial): what is known of "
        "neighbours is a replica of each, and they change in every round; take ring, torus or "
        "exponential",
        name_of(spec.compression));
  if (with == nullptr) return "";
  return fmt::format(
      "compression = \"{}\" with {} (partial): averages with weights or momentum of their own are "
      "plain; leave one out",
      name_of(spec.compression), with);
}

/// Why gradients are not encoded so within groups.
std::string group_codec_contradiction(const TrainingSpec& spec) {
  if (spec.group_compression == Codec::none) return "";
  const CodecRow& row = codec_row(spec.group_compression);
  const auto refusal = [&](std::string_view why) {
    return fmt::format("group_compression = \"{}\": {}", row.name, why);
  };
  if (spec.group_size == 1)
    return refusal("belongs to group_size of 2 or more; take compression, or leave it out");
  if (row.kind == CodecKind::low_rank || row.kind == CodecKind::sketched || !row.of_all.empty())
    return refusal(
        "members of a group send each other one message each (partial); take topk, bf16 or qsgd");
  if (!row.alike)
    return refusal(
        "members of a group expect messages of one size (partial); take topk, bf16 or qsgd");
  if (row.momentum || row.codec == Codec::signsgd)
    return refusal(
        "what comes of a group's sum is a gradient, with its length and without momentum "
        "(illegal); take topk or ef-sign");
  return "";
}

/// Why the length of a step is not set layer by layer, or not from step to step.
std::string rate_contradiction(const TrainingSpec& spec) {
  const char* key = spec.lars > 0 ? "lars" : spec.rate_warmup > 0 ? "rate_warmup" : nullptr;
  if (key == nullptr) return "";
  if (spec.optimizer == OptimizerPlace::server || is_asynchronous(spec.synchronisation) ||
      spec.switch_to)
    return fmt::format(
        "{} where a server applies gradients (partial): servers hold parts of layers and go by no "
        "worker's steps; take optimizer = \"worker\" with bsp",
        key);
  if (spec.synchronisation == Synchronisation::lag)
    return fmt::format(
        "{} with lag (partial): its rule divides by one learning rate; leave one out", key);
  return "";
}

/// Why a worker cannot keep what `oracle` compares: the kernel would kill it half-way.
std::string oracle_contradiction(const TrainingSpec& spec) {
  constexpr std::uint64_t kMostKept = std::uint64_t{8} << 30;
  const std::uint64_t copy = facts_of(spec.model, spec.sequence).parameters * sizeof(float);
  const std::uint64_t copies = oracle_copies(spec);
  if (copies <= kMostKept / copy) return "";
  return fmt::format(
      "oracle = {} with model = \"{}\": each worker would keep {} copies of {:.1f} MiB of weights "
      "in host memory, of which {} are taken at most; take a smaller oracle, or a smaller model "
      "for "
      "the check",
      spec.oracle, name_of(spec.model), copies, static_cast<double>(copy) / (1 << 20),
      format_bytes(Bytes(kMostKept)));
}

}  // namespace

std::uint64_t oracle_copies(const TrainingSpec& spec) {
  if (spec.oracle == 0) return 0;
  const auto rounds = static_cast<std::uint64_t>(spec.oracle) * (spec.switch_to ? 2 : 1);
  // Of plain steps the weights before each and after the last; of others the momentum too, and what
  // both of them are compared with.
  const bool plainly = trains_as_one(spec) && spec.synchronisation == Synchronisation::bsp;
  return plainly ? rounds + 1 : 4 * rounds + 2;
}

std::string training_contradiction(const TrainingSpec& spec) {
  if (auto reason = synchronisation_contradiction(spec); !reason.empty()) return reason;
  if (auto reason = compression_contradiction(spec, spec.method, spec.synchronisation,
                                              spec.packing != Packing::none);
      !reason.empty())
    return reason;
  if (auto reason = server_sums_contradiction(spec); !reason.empty()) return reason;
  if (auto reason = coded_average_contradiction(spec); !reason.empty()) return reason;
  if (auto reason = group_codec_contradiction(spec); !reason.empty()) return reason;
  if (auto reason = rate_contradiction(spec); !reason.empty()) return reason;
  if (method_row(spec.method).sums != SumPlace::server) {
    std::string asks_for_servers;
    if (spec.servers > 0) asks_for_servers = fmt::format("servers = {}", spec.servers);
    if (spec.optimizer == OptimizerPlace::server) asks_for_servers = "optimizer = \"server\"";
    if (spec.placement == ServerPlacement::colocated)
      asks_for_servers = "placement = \"colocated\"";
    if (!asks_for_servers.empty())
      return fmt::format("{}: {} has no server; take one of the -ps methods", asks_for_servers,
                         name_of(spec.method));
  }
  if (spec.packing != Packing::none && !method_row(spec.method).packs)
    return fmt::format(
        "packing = \"{}\": {} sends plain values; take one of the -a2a methods, "
        "mg-wfbp or dear",
        name_of(spec.packing), name_of(spec.method));
  if (auto reason = tuner_contradiction(spec); !reason.empty()) return reason;
  if (auto reason = oracle_contradiction(spec); !reason.empty()) return reason;
  if (spec.target > 0 && spec.epochs == 0)
    return "target without epochs: the accuracy is looked at after each; say at most how many";
  if (spec.looks > 1 && spec.epochs == 0)
    return "looks without epochs: they are parts of an epoch; say at most how many epochs";
  if (spec.steps > 0 && spec.epochs > 0)
    return "steps and epochs: each says how much is trained; leave one out";
  return "";
}

std::string engine_misfit(TrainingMethod method, Backend backend) {
  const auto& engine = method_row(method).engine;
  if (!engine || *engine == backend) return "";
  return "ddp, PyTorch's own engine, brings Gloo along: measure it with backend gloo";
}

std::string tuner_misfit(const TrainingSpec& spec, Backend backend) {
  const BackendFacts& facts = backend_facts(backend);
  if (!is_tuned(spec) || !facts.on_gpu || facts.channels) return "";
  return fmt::format(
      "tuner = \"{}\": the trainer sets the calls of openmpi, mpich, gloo and nccl; take one of "
      "these instead of {}",
      spec.tuner, name_of(backend));
}

std::string server_gpu_misfit(const TrainingSpec& spec, bool has_gpu) {
  if (spec.server_sums == ServerSums::gpu && !has_gpu)
    return "server_sums = \"gpu\": the server has no GPU (env.DYNAMICCL_SERVER_GPU = \"none\"); "
           "take server_sums = \"chief\", or leave out that setting";
  if (spec.server_sums == ServerSums::chief && has_gpu)
    return "server_sums = \"chief\": a chief feeds a server without a GPU; say "
           "env.DYNAMICCL_SERVER_GPU = \"none\", or take server_sums = \"gpu\"";
  return "";
}

std::string gpu_misfit(const TrainingSpec& spec, Backend backend) {
  if (spec.server_sums != ServerSums::host && !backend_facts(backend).gpu_queue)
    return fmt::format(
        "server_sums = \"{}\" over {} (partial): a server's GPU is sent to by NCCL alone; take "
        "backend nccl, or leave it out",
        name_of(spec.server_sums), name_of(backend));
  if (!backend_facts(backend).on_gpu) return "";
  if (spec.lars > 0 || spec.rate_warmup > 0)
    return fmt::format(
        "{} on GPUs over {} (partial): the tensor library's fused update has one rate; take a "
        "library of the host",
        spec.lars > 0 ? "lars" : "rate_warmup", name_of(backend));
  const CodecRow& codec = codec_row(spec.compression);
  if (codec.codec == Codec::none) return "";
  const auto refusal = [&](const char* why) {
    return fmt::format("compression = \"{}\" on GPUs over {} (partial): {}", codec.name,
                       name_of(backend), why);
  };
  if (!backend_facts(backend).gpu_queue)
    return refusal(
        "gradients are encoded behind the backward pass in the GPU's own queue, which MPI's calls "
        "have no place in; take backend nccl, or openmpi or mpich in host memory");
  // By the host, for messages of the host.
  if (is_asynchronous(spec.synchronisation) || method_row(spec.method).sums != SumPlace::all_reduce)
    return "";
  if (is_encoded_by_host(codec_settings(spec))) {
    if (codec.sum != CodecSum::reduced) return "";
    return refusal(
        "its loops are the host's alone, and their sums the library's, which NCCL makes on GPUs; "
        "take topk, or a library of the host");
  }
  if (method_row(spec.method).order == SendOrder::by_urgency)
    return refusal(
        "the method chooses a message when the last one has come back, and encoded gradients are "
        "queued in an order that is known before; take wfbp-a2a or mg-wfbp");
  return "";
}

namespace {

/// A server's GPU keeps a piece of each worker, all of them counted by one call's ints.
std::string slots_misfit(const TrainingSpec& spec, int workers) {
  if (spec.server_sums != ServerSums::gpu) return "";
  const std::uint64_t whole = facts_of(spec.model, spec.sequence).parameters;
  const auto servers = static_cast<std::uint64_t>(servers_of(spec, 0));
  const std::uint64_t part =
      std::min((whole + servers - 1) / servers, partition_of(spec).count() / sizeof(float));
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<int>::max());
  if (part <= kMost / static_cast<std::uint64_t>(workers)) return "";
  return fmt::format(
      "server_sums = \"gpu\" with partition = {}: {} workers' pieces of up to {} elements are more "
      "than one call of NCCL's counts ({}); take a smaller partition",
      format_bytes(partition_of(spec)), workers, part, kMost);
}

/// Rounds in which post-local still sums gradients: sums end with a round, too.
std::uint64_t summing_rounds(const TrainingSpec& spec) {
  const auto of_round = static_cast<std::uint64_t>(round_steps(spec));
  return (static_cast<std::uint64_t>(spec.local_after) + of_round - 1) / of_round;
}

/// Why the epochs leave no round for one of two ways of waiting: the cell would be named after what
/// it never did. Rounds that an epoch's end cuts off are not begun.
/// @param steps of each worker in an epoch
std::string rounds_misfit(const TrainingSpec& spec, std::uint64_t steps) {
  const auto all = static_cast<std::uint64_t>(spec.epochs) * steps;
  const auto later = static_cast<std::uint64_t>(round_steps(leg_of(spec, true)));
  const auto none_of = [&](std::string_view where, std::uint64_t round, std::uint64_t left,
                           std::string_view else_take) {
    return fmt::format(
        "{}: a round of {} steps does not fit into the {} left for it, as an epoch has {}; take "
        "fewer local_steps, or {}",
        where, round, left, steps, else_take);
  };
  if (spec.switch_to) {
    const auto before = static_cast<std::uint64_t>(spec.switch_after) * steps;
    const auto first = static_cast<std::uint64_t>(round_steps(leg_of(spec, false)));
    if (before < first) return none_of("switch_after", first, before, "a later switch_after");
    const std::uint64_t left = all - before / first * first;
    return left < later ? none_of("switch_to", later, left, "more epochs") : "";
  }
  // Without steps before them there are local steps alone, of which one round is always done.
  if (spec.synchronisation != Synchronisation::post_local || spec.local_after == 0) return "";
  const std::uint64_t left = all - std::min(all, summing_rounds(spec) * later);
  return left < later
             ? none_of("local_after", later, left, "more epochs, or an earlier local_after")
             : "";
}

}  // namespace

std::string local_after_misfit(const TrainingSpec& spec, int warmup, int iterations) {
  if (spec.synchronisation != Synchronisation::post_local || spec.epochs > 0) return "";
  const bool budget = spec.steps > 0;
  const std::uint64_t all = static_cast<std::uint64_t>(warmup) +
                            static_cast<std::uint64_t>(budget ? spec.steps : iterations);
  const std::uint64_t summed = summing_rounds(spec);
  if (summed < all) return "";
  const auto of_round = static_cast<std::uint64_t>(round_steps(spec));
  return fmt::format(
      "local_after = {}: sums of gradients take {} of {}, and {} done in all "
      "(protocol.warmup = {}, {} = {}), so that no local step would come; take local_after = {} at "
      "most, more {}, or epochs",
      spec.local_after, counted(summed, "round"), counted(of_round, "step"),
      all == 1 ? "1 is" : fmt::format("{} are", all), warmup,
      budget ? "steps" : "protocol.iterations", budget ? spec.steps : iterations,
      all == 0 ? 0 : (all - 1) * of_round, budget ? "steps" : "iterations");
}

std::string samples_misfit(const TrainingSpec& spec, std::uint64_t samples, int workers) {
  const auto all = static_cast<std::uint64_t>(workers);
  const std::uint64_t of_step = all * static_cast<std::uint64_t>(spec.batch);
  if (spec.epochs > 0 && spec.shares == DataShares::equal && of_step > samples)
    return fmt::format(
        "epochs = {} with batch = {}: {} worker{} take{} {} samples in a step, and the data have "
        "{}: no pass over them fills one; take a smaller batch, more samples, or steps",
        spec.epochs, spec.batch, workers, workers == 1 ? "" : "s", workers == 1 ? "s" : "", of_step,
        samples);
  if (spec.epochs > 0)
    if (auto reason = rounds_misfit(spec, samples / of_step); !reason.empty()) return reason;
  // The first worker has the smallest part.
  if (spec.shares == DataShares::linear && samples < all * (all + 1) / 2)
    return fmt::format(
        "shares = \"linear\": of {} samples the first of {} workers would have none; take {} or "
        "more",
        samples, workers, all * (all + 1) / 2);
  return "";
}

std::string ranks_misfit(const TrainingSpec& spec, int ranks) {
  const int servers = servers_of(spec, ranks);
  const char* plural = servers == 1 ? "" : "s";
  const char* of_ranks = ranks == 1 ? "" : "s";
  if (workers_of(spec, ranks) < 1)
    return fmt::format("{} server{} leave{} no worker among {} rank{}", servers, plural,
                       servers == 1 ? "s" : "", ranks, of_ranks);
  if (servers > ranks)
    return fmt::format("{} colocated server{} {} more than {} rank{}", servers, plural,
                       servers == 1 ? "is" : "are", ranks, of_ranks);
  const int workers = workers_of(spec, ranks);
  if (spec.group_size > 1 && workers % spec.group_size != 0)
    return fmt::format("group_size = {}: {} worker{} not fill groups of so many", spec.group_size,
                       workers, workers == 1 ? " does" : "s do");
  if (spec.participants > workers)
    return fmt::format("participants = {}: there {} {} worker{}", spec.participants,
                       workers == 1 ? "is" : "are", workers, workers == 1 ? "" : "s");
  if (waits_as(spec, Synchronisation::backup) && spec.backups >= workers)
    return fmt::format("backups = {}: of {} worker{} none would be waited for", spec.backups,
                       workers, workers == 1 ? "" : "s");
  if (spec.slow_worker >= workers)
    return fmt::format("slow_worker = {}: workers are numbered 0 to {}", spec.slow_worker,
                       workers - 1);
  if (auto reason = slots_misfit(spec, workers); !reason.empty()) return reason;
  if (is_generated(spec.data))
    if (auto reason = samples_misfit(spec, static_cast<std::uint64_t>(spec.samples), workers);
        !reason.empty())
      return reason;
  return method_row(spec.method).sums == SumPlace::neighbours
             ? topology_misfit(spec.topology, workers)
             : "";
}

}  // namespace dynamiccl
