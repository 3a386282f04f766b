#include "train/oracle/update_replay.hpp"

#include <fmt/format.h>

#include <algorithm>
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

/// What one process gets that computes and applies in the orders of the servers' logs: each
/// worker's gradient at the shards that all servers had given it, applied by each server in its
/// turn. Where the plan has a codec, or groups, there is one server, and each worker's gradients go
/// through the codec in the order of its steps, those that were dropped too.
class UpdateReplay {
 public:
  /// @param worker at the start; whose weights are its learner's afterwards is open
  UpdateReplay(const ExchangePlan& plan, const TrainingSpec& spec, TrainingWorker& worker,
               const std::vector<UpdateLog>& logs)
      : plan_(plan),
        whole_(spec),
        spec_(leg_of(spec, false)),
        worker_(worker),
        sgd_{static_cast<float>(spec_.learning_rate),
             static_cast<float>(optimizer_momentum(spec_))},
        groups_(groups_of(spec_, worker.workers())),
        weights_(worker.host_weights()),
        velocity_(weights_.size(), 0.0F),
        sum_(weights_.size(), 0.0F) {
    if (plan.codec.codec != Codec::none) coded_.emplace(plan, groups_);
    if (spec_.group_compression != Codec::none)
      within_.emplace(group_plan(plan, spec_), worker.workers());
    const auto groups = static_cast<std::size_t>(groups_);
    given_.assign(groups, {weights_, {}, std::vector<std::uint32_t>(logs.size(), 0)});
    wanted_ = update_policy(spec_.synchronisation).of_update(spec_, groups_);
    for (const UpdateLog& log : logs)
      servers_.push_back({log, shard_of(plan, static_cast<int>(servers_.size())), 0});
  }

  /// The weights, in the order of gradients; nullopt where each server waits for what another one
  /// gave later.
  std::optional<std::vector<float>> weights() {
    for (bool moved = true; std::exchange(moved, false);) {
      for (std::size_t server = 0; server < servers_.size(); ++server)
        while (!ended(servers_[server]) && follow(server)) moved = true;
    }
    if (!std::all_of(servers_.begin(), servers_.end(), ended)) return std::nullopt;
    return weights_;
  }

 private:
  struct Server {
    const UpdateLog& log;
    Shard shard;
    std::size_t at;  ///< events of the log that were followed
  };
  /// What a worker computes with.
  struct Given {
    std::vector<float> weights;
    std::vector<float> gradient;
    std::vector<std::uint32_t> clocks;  ///< of each server's shard
    std::uint32_t computed = 0;         ///< gradients
    std::size_t used = 0;               ///< servers that have applied the last one
  };
  static bool ended(const Server& server) { return server.at == server.log.size(); }

  /// The next event of a server's log. @returns false where it has to wait for another server
  bool follow(std::size_t index) {
    Server& server = servers_[index];
    const UpdateEvent& event = server.log[server.at];
    const Shard& shard = server.shard;
    if (event.kind == Kind::switched) {
      spec_ = leg_of(whole_, true);
      wanted_ = update_policy(spec_.synchronisation).of_update(spec_, groups_);
    } else if (event.kind == Kind::answered || event.kind == Kind::ended) {
      Given& given = given_.at(event.worker);
      std::copy_n(weights_.data() + shard.begin, shard.count, given.weights.data() + shard.begin);
      given.clocks[index] = event.clock;
    } else if (event.kind == Kind::applied || coded_ || within_) {
      if (!compute(event)) return false;
      // Of one that was dropped the codec thinks that it was sent.
      if (event.kind == Kind::applied) apply(given_[event.worker], shard);
    }
    ++server.at;
    return true;
  }

  /// The gradient of this event's worker and step, for whichever server is the first to need it.
  bool compute(const UpdateEvent& event) {
    Given& given = given_.at(event.worker);
    if (given.computed > event.clock) return true;
    for (const std::uint32_t clock : given.clocks)
      if (clock != event.clock) return false;
    given.gradient.resize(weights_.size());
    group_gradient(plan_, spec_, worker_, event, given.weights, within_ ? &*within_ : nullptr,
                   given.gradient);
    if (coded_) coded_->pass(static_cast<int>(event.worker), given.gradient);
    given.computed = event.clock + 1;
    given.used = 0;
    return true;
  }

  /// One server adds gradients up where its policy says; several apply each as it comes.
  void apply(Given& given, const Shard& shard) {
    float* sum = sum_.data() + shard.begin;
    const float* gradient = given.gradient.data() + shard.begin;
    for (std::size_t i = 0; i < shard.count; ++i)
      sum[i] = used_ == 0 ? gradient[i] : sum[i] + gradient[i];
    if (++given.used == servers_.size()) given.gradient = {};
    if (++used_ < wanted_) return;
    const bool adds_up = update_policy(spec_.synchronisation).adds_up();
    const auto scale = static_cast<float>(1.0 / (adds_up ? wanted_ : worker_.workers()));
    sgd_update(sgd_, weights_.data() + shard.begin, velocity_.data() + shard.begin, sum, scale,
               shard.count);
    used_ = 0;
  }

  const ExchangePlan& plan_;
  const TrainingSpec& whole_;
  TrainingSpec spec_;  ///< how workers wait now
  TrainingWorker& worker_;
  Sgd sgd_;
  int groups_;
  std::optional<ReplayedSum> coded_;
  std::optional<ReplayedSum> within_;
  std::vector<float> weights_;
  std::vector<float> velocity_;
  std::vector<float> sum_;
  std::vector<Given> given_;
  std::vector<Server> servers_;
  int wanted_ = 1;
  int used_ = 0;
};

/// Every server's log, and the shards of all, on every rank.
void share(Communicator& comm, const ExchangePlan& plan, std::vector<UpdateLog>& logs,
           std::vector<float>& served) {
  for (int server = 0; server < plan.servers; ++server) {
    UpdateLog& log = logs[static_cast<std::size_t>(server)];
    auto size = static_cast<std::int32_t>(log.size());
    broadcast_host(comm, &size, sizeof size, server);
    log.resize(static_cast<std::size_t>(size));
    broadcast_host(comm, log.data(), log.size() * sizeof log[0], server);
    const Shard shard = shard_of(plan, server);
    broadcast_host(comm, &served[shard.begin], shard.count * sizeof(float), server);
  }
}

}  // namespace

void check_updates(Communicator& comm, const ExchangePlan& plan, const TrainingSpec& spec,
                   TrainingWorker* worker, Micros silence, CellRecord& record) {
  const int rank = comm.rank();
  std::vector<UpdateLog> logs(static_cast<std::size_t>(plan.servers));
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
      logs[static_cast<std::size_t>(rank)] = training.server()->log();
      const std::vector<float>& shard = training.server()->weights();
      std::copy(shard.begin(), shard.end(), &served[shard_of(plan, rank).begin]);
    } else {
      own = worker->host_weights();
    }
  }
  share(comm, plan, logs, served);
  if (worker == nullptr) {
    nlohmann::json events = nlohmann::json::array();
    for (const auto& event : logs[static_cast<std::size_t>(rank)])
      events.push_back({static_cast<int>(event.kind), event.worker, event.clock});
    record.training->details["update_log"] = std::move(events);
  }
  std::string broken;
  const int workers = groups_of(spec, comm.size() - plan.servers);
  for (const UpdateLog& log : logs)
    if (broken.empty()) broken = broken_rule(spec, workers, log);
  std::vector<float> expected;
  if (worker != nullptr) {
    worker->reset();
    expected = served;
    // One process is enough for the replay.
    if (worker->number() == 0) {
      const auto replayed = UpdateReplay(plan, spec, *worker, logs).weights();
      if (replayed) expected = *replayed;
      if (!replayed && broken.empty())
        broken = "each server applied a gradient before another one had given its weights";
    }
    worker->reset();
  }
  compare_weights(comm, "the replay of the server's log", spec.oracle, served, expected, record);
  // At the phase's end every worker has the server's bits.
  note_unlike(comm, own.size(), worker == nullptr ? 0 : unlike_bits(own, served),
              fmt::format("of workers are not the server's bits after {} rounds", spec.oracle),
              record);
  if (!broken.empty()) {
    ++record.wrong;
    fail_check(record, fmt::format("synchronisation = \"{}\" was not kept: {}",
                                   name_of(spec.synchronisation), broken));
  }
}

}  // namespace dynamiccl
