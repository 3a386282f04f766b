// What does not go with where a cell trains: its backend, its ranks, its data.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/units.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {

std::string engine_misfit(TrainingMethod method, Backend backend) {
  const auto& engine = method_row(method).engine;
  if (!engine || *engine == backend) return "";
  return "ddp, PyTorch's own engine, brings Gloo along: measure it with backend gloo";
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
  if (spec.servers > 1 && is_asynchronous(spec.synchronisation))
    return fmt::format(
        "synchronisation = \"{}\" with {} servers on GPUs over {} (partial): it was tried in host "
        "memory alone; take servers = 1, or a library of the host",
        name_of(spec.synchronisation), spec.servers, name_of(backend));
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
