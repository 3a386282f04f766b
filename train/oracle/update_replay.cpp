#include "train/oracle/update_replay.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "train/exchange/ring_halves.hpp"
#include "train/oracle/codec_replay.hpp"
#include "train/oracle/training_check.hpp"
#include "train/plan/sgd.hpp"
#include "train/synchronise/asynchronous_training.hpp"
#include "train/synchronise/worker_group.hpp"

namespace dynamiccl {
namespace {

using Kind = UpdateEvent::Kind;

/// What the ring of a group makes of its members' gradients, in the order in which it adds.
void add_around(const ExchangePlan& plan, const std::vector<std::vector<float>>& gradients,
                std::vector<float>& sum) {
  const std::size_t members = gradients.size();
  for (const Piece& piece : plan.pieces) {
    for (std::size_t part = 0; part < members; ++part) {
      const auto first = piece.offset + RingHalves::part_begin(piece.count, members, part);
      const auto end = piece.offset + RingHalves::part_begin(piece.count, members, part + 1);
      for (std::size_t i = first; i < end; ++i) {
        sum[i] = gradients[part][i];
        for (std::size_t more = 1; more < members; ++more)
          sum[i] += gradients[(part + more) % members][i];
      }
    }
  }
}

/// The sum of a group's gradients at these weights; without groups one worker's gradient.
/// @param within codecs of the groups' members, which are added in rank order; nullptr where they
///               send plain values
void group_gradient(const ExchangePlan& plan, const TrainingSpec& spec, TrainingWorker& worker,
                    const UpdateEvent& event, const std::vector<float>& weights,
                    ReplayedSum* within, std::vector<float>& sum) {
  std::vector<std::vector<float>> gradients;
  for (int member = 0; member < spec.group_size; ++member) {
    const int number = static_cast<int>(event.worker) * spec.group_size + member;
    worker.take_host_weights(weights.data());
    worker.compute_for(number, event.clock);
    gradients.push_back(worker.host_gradients());
    if (within != nullptr) within->pass(number, gradients.back());
  }
  if (within == nullptr) return add_around(plan, gradients, sum);
  sum = std::move(gradients.front());
  for (std::size_t member = 1; member < gradients.size(); ++member)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradients[member][i];
}

/// What one process gets that computes and applies in the log's order, each worker's gradients at
/// the weights that it had been given: the weights, in the order of gradients. `worker` is at the
/// start; whose weights are its learner's afterwards is open. Where the plan has a codec, each
/// worker's gradients go through it in the order of its steps, those that were dropped too.
std::vector<float> replay_updates(const ExchangePlan& plan, const TrainingSpec& spec,
                                  TrainingWorker& worker, const UpdateLog& log);
std::vector<float> replay_updates(const ExchangePlan& plan, const TrainingSpec& whole,
                                  TrainingWorker& worker, const UpdateLog& log) {
  TrainingSpec spec = leg_of(whole, false);
  std::optional<ReplayedSum> coded;
  if (plan.codec.codec != Codec::none) coded.emplace(plan, groups_of(spec, worker.workers()));
  std::optional<ReplayedSum> within;
  if (spec.group_compression != Codec::none)
    within.emplace(group_plan(plan, spec), worker.workers());
  const std::size_t count = worker.gradient_bytes() / sizeof(float);
  const Sgd sgd{static_cast<float>(spec.learning_rate),
                static_cast<float>(optimizer_momentum(spec))};
  std::vector<float> weights = worker.host_weights();
  std::vector<float> velocity(count, 0.0F);
  std::vector<float> sum(count, 0.0F);
  std::vector<float> gradient(count, 0.0F);
  const int groups = groups_of(spec, worker.workers());
  std::vector<std::vector<float>> given(static_cast<std::size_t>(groups), weights);
  int wanted = update_policy(spec.synchronisation).of_update(spec, groups);
  int used = 0;
  for (const UpdateEvent& event : log) {
    if (event.kind == Kind::switched) {
      spec = leg_of(whole, true);
      wanted = update_policy(spec.synchronisation).of_update(spec, groups);
    }
    if (event.kind == Kind::answered || event.kind == Kind::ended) given[event.worker] = weights;
    if (event.kind != Kind::applied && !((coded || within) && event.kind == Kind::dropped))
      continue;
    group_gradient(plan, spec, worker, event, given[event.worker], within ? &*within : nullptr,
                   gradient);
    if (coded) coded->pass(static_cast<int>(event.worker), gradient);
    if (event.kind == Kind::dropped) continue;  // its codec thinks that it was sent
    for (std::size_t i = 0; i < count; ++i) sum[i] = used == 0 ? gradient[i] : sum[i] + gradient[i];
    if (++used < wanted) continue;
    const bool adds_up = update_policy(spec.synchronisation).adds_up();
    const auto scale = static_cast<float>(1.0 / (adds_up ? wanted : worker.workers()));
    sgd_update(sgd, weights.data(), velocity.data(), sum.data(), scale, count);
    used = 0;
  }
  return weights;
}

/// The server's log on every rank.
UpdateLog shared_log(Communicator& comm, UpdateLog log) {
  std::vector<std::int32_t> size{static_cast<std::int32_t>(log.size())};
  broadcast_host(comm, size.data(), sizeof size[0], kUpdateServer);
  log.resize(static_cast<std::size_t>(size[0]));
  broadcast_host(comm, log.data(), log.size() * sizeof log[0], kUpdateServer);
  return log;
}

}  // namespace

void check_updates(Communicator& comm, const ExchangePlan& plan, const TrainingSpec& spec,
                   TrainingWorker* worker, Micros silence, CellRecord& record) {
  UpdateLog log;
  std::vector<float> served(plan.elements());
  std::vector<float> own;
  {
    AsynchronousTraining training(comm, plan, spec, worker, silence);
    training.start();
    training.run(spec.oracle, 0);
    if (spec.switch_to) {
      training.switch_over();
      training.run(spec.oracle, 0);
    }
    if (training.server() != nullptr) {
      log = training.server()->log();
      served = training.server()->weights();
    } else {
      own = worker->host_weights();
    }
  }
  log = shared_log(comm, std::move(log));
  broadcast_host(comm, served.data(), served.size() * sizeof(float), kUpdateServer);
  const int workers = groups_of(spec, comm.size() - 1);
  nlohmann::json events = nlohmann::json::array();
  for (const auto& event : log)
    events.push_back({static_cast<int>(event.kind), event.worker, event.clock});
  if (worker == nullptr) record.training->details["update_log"] = std::move(events);
  std::vector<float> expected;
  if (worker != nullptr) {
    worker->reset();
    // One process is enough for the replay.
    expected = worker->number() == 0 ? replay_updates(plan, spec, *worker, log) : served;
    worker->reset();
  }
  compare_weights(comm, "the replay of the server's log", spec.oracle, served, expected, record);
  // At the phase's end every worker has the server's bits.
  const auto unlike = static_cast<double>(worker == nullptr ? 0 : unlike_bits(own, served));
  record.checked += own.size();
  record.wrong += static_cast<std::uint64_t>(unlike);
  if (const double apart = sum_over_ranks(comm, {unlike})[0]; apart > 0)
    fail_check(record, fmt::format("after {} rounds {:.0f} weights of workers are not the "
                                   "server's bits",
                                   spec.oracle, apart));
  if (const auto broken = broken_rule(spec, workers, log); !broken.empty()) {
    ++record.wrong;
    fail_check(record, fmt::format("synchronisation = \"{}\" was not kept: {}",
                                   name_of(spec.synchronisation), broken));
  }
}

}  // namespace dynamiccl
