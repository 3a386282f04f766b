#include "train/synchronise/update_server.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/error.hpp"
#include "train/exchange/ring_halves.hpp"
#include "workers/clock.hpp"
#include "workers/standing.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

/// For a message that was sent long ago to come at last.
constexpr Micros kGrace{1e6};

}  // namespace

Shard shard_of(const ExchangePlan& plan, int server) {
  const auto begin = [&](int number) {
    return RingHalves::part_begin(plan.elements(), static_cast<std::size_t>(plan.servers),
                                  static_cast<std::size_t>(number));
  };
  return {begin(server), begin(server + 1) - begin(server)};
}

UpdateServer::UpdateServer(Messages& comm, const ExchangePlan& plan, const TrainingSpec& spec,
                           Micros silence)
    : comm_(comm),
      whole_(spec),
      silence_(silence),
      first_(comm.rank() == kUpdateServer),
      first_worker_(plan.servers),
      workers_(groups_of(spec, comm.size() - plan.servers)),
      weights_(shard_of(plan, comm.rank()).count),
      velocity_(weights_.size()),
      gradient_(weights_.size()),
      served_(static_cast<std::size_t>(workers_)) {
  for (auto& served : served_) served.slot.resize(weights_.size());
  if (plan.codec.codec != Codec::none) decoder_.emplace(plan);
  serve_as(leg_of(whole_, false));
}

void UpdateServer::serve_as(const TrainingSpec& leg) {
  spec_ = leg;
  policy_ = &update_policy(spec_.synchronisation);
  wanted_ = policy_->of_update(spec_, workers_);
  sum_.resize(policy_->adds_up() ? weights_.size() : 0);
  summed_ = 0;
  turn_ = 0;
}

void UpdateServer::start() {
  comm_.wait(comm_.irecv(weights_.data(), weights_.size() * sizeof(float), rank_of(0), kPieceTag));
  std::fill(velocity_.begin(), velocity_.end(), 0.0F);
  for (auto& served : served_) served.clock = 0;
  version_ = 0;
  log_.clear();
  serve_as(leg_of(whole_, false));
}

void UpdateServer::switch_over() {
  log_.push_back({UpdateEvent::Kind::switched, 0, 0});
  if (!planted_fault("forget-switch")) serve_as(leg_of(whole_, true));
}

std::vector<int> UpdateServer::owing() const {
  std::vector<int> ranks;
  for (int worker = 0; worker < workers_; ++worker)
    if (served_[static_cast<std::size_t>(worker)].computes) ranks.push_back(rank_of(worker));
  return ranks;
}

/// Whose gradient may come now.
std::vector<int> UpdateServer::awaited() const {
  if (!policy_->in_turns) return owing();
  const int turn = planted_fault("out-of-turn") ? workers_ - 1 - turn_ : turn_;
  return {rank_of(turn)};
}

/// A worker that was stopped is not forgotten over others that go on without it.
std::optional<int> UpdateServer::overdue() const {
  const double now = now_us();
  for (const int rank : awaited()) {
    const Served& served =
        served_[static_cast<std::size_t>((rank - rank_of(0)) / spec_.group_size)];
    if (now - served.since_us > silence_.count()) return rank;
  }
  return std::nullopt;
}

int UpdateServer::receive() {
  int from = 0;
  if (const auto late = overdue()) {
    try {
      // Silent by this clock, while the server looked elsewhere: its message may have come.
      from = comm_.receive_any(&head_, sizeof head_, {*late}, kPushTag, kGrace);
    } catch (const SilenceError&) {
      refuse_silence({*late}, silence_);
    }
  } else {
    from = comm_.receive_any(&head_, sizeof head_, awaited(), kPushTag, silence_);
  }
  take_gradient(from);
  const int worker = (from - rank_of(0)) / spec_.group_size;
  Served& served = served_[static_cast<std::size_t>(worker)];
  DYN_ASSERT(head_.worker == static_cast<std::uint32_t>(worker) && head_.clock == served.clock,
             "a worker pushes its steps one after the other");
  settle(served);
  served.computes = false;
  return worker;
}

/// For the encoded gradient that the heading tells of.
void UpdateServer::make_room(int from) {
  const std::size_t limit = decoder_->frame_limit(head_.clock);
  if (head_.bytes > limit)
    throw Error(
        ErrorKind::data,
        fmt::format("rank {} tells of an encoded gradient of {} bytes, {} makes {} at most; "
                    "start all ranks from one version",
                    from, head_.bytes, name_of(whole_.compression), limit));
  frames_.resize(head_.bytes);
}

/// After its heading, which says how long it is where it is encoded.
void UpdateServer::take_gradient(int from) {
  void* into = gradient_.data();
  std::size_t bytes = gradient_.size() * sizeof(float);
  if (decoder_) {
    make_room(from);
    into = frames_.data();
    bytes = frames_.size();
  }
  comm_.wait_within(comm_.irecv(into, bytes, from, kPieceTag), from, silence_);
  if (!decoder_) return;
  const double start_us = now_us();
  std::fill(gradient_.begin(), gradient_.end(), 0.0F);
  decoder_->add_all(head_.clock, frames_.data(), frames_.size(), gradient_.data());
  decode_us_ += now_us() - start_us;
}

void UpdateServer::settle(Served& served) {
  const int rank = rank_of(static_cast<int>(&served - served_.data()));
  for (const Request request : served.sending) comm_.wait_within(request, rank, silence_);
  served.sending.clear();
}

void UpdateServer::update(int gradients) {
  const float* sum = policy_->adds_up() ? sum_.data() : gradient_.data();
  const auto momentum = static_cast<float>(optimizer_momentum(spec_));
  sgd_update({static_cast<float>(spec_.learning_rate), momentum}, weights_.data(), velocity_.data(),
             sum, static_cast<float>(1.0 / gradients), weights_.size());
  ++version_;
}

void UpdateServer::take(int worker) {
  Served& served = served_[static_cast<std::size_t>(worker)];
  const double start_us = now_us();
  const bool late = policy_->adds_up() && head_.version != version_;
  log_.push_back({late ? UpdateEvent::Kind::dropped : UpdateEvent::Kind::applied,
                  static_cast<std::uint32_t>(worker), served.clock});
  ++served.clock;
  ++served.in_phase;
  waiting_.push_back(worker);
  turn_ = (turn_ + 1) % workers_;
  if (late) return;
  if (!first_ && planted_fault("lose-shard") && worker == workers_ - 1) return;
  if (!policy_->adds_up()) {
    const int all = workers_ * spec_.group_size;
    update(all);
    if (planted_fault("use-twice") && worker == workers_ - 1) update(all);
  } else {
    for (std::size_t i = 0; i < sum_.size(); ++i)
      sum_[i] = summed_ == 0 ? gradient_[i] : sum_[i] + gradient_[i];
    if (++summed_ == wanted_) {
      update(wanted_);
      summed_ = 0;
    }
  }
  update_us_ += now_us() - start_us;
}

bool UpdateServer::may_go_on(const Served& served) const {
  std::uint32_t slowest = served.in_phase;
  for (const auto& other : served_) slowest = std::min(slowest, other.in_phase);
  std::uint32_t ahead = served.in_phase - slowest;
  if (planted_fault("exceed-bound") && ahead > 0) --ahead;
  return policy_->may_go_on(spec_, {ahead, served.head.version != version_});
}

void UpdateServer::release(std::uint64_t budget) {
  std::vector<int> held;
  for (const int worker : std::exchange(waiting_, {})) {
    if (allowed_ < budget && may_go_on(served_[static_cast<std::size_t>(worker)])) {
      ++allowed_;
      answer(worker, UpdateEvent::Kind::answered);
    } else {
      held.push_back(worker);
    }
  }
  waiting_ = std::move(held);
}

void UpdateServer::answer(int worker, UpdateEvent::Kind kind) {
  const bool goes_on = kind == UpdateEvent::Kind::answered;
  Served& served = served_[static_cast<std::size_t>(worker)];
  settle(served);
  served.computes = goes_on;
  served.since_us = now_us();
  served.head = {version_, goes_on ? 1U : 0U};
  // The weights change while these are on their way.
  if (first_ || goes_on || !planted_fault("old-shard"))
    std::copy(weights_.begin(), weights_.end(), served.slot.begin());
  const std::size_t bytes = served.slot.size() * sizeof(float);
  served.sending.push_back(
      comm_.isend(&served.head, sizeof served.head, rank_of(worker), kPullTag));
  served.sending.push_back(comm_.isend(served.slot.data(), bytes, rank_of(worker), kPieceTag));
  sent_bytes_ += bytes;
  log_.push_back({kind, static_cast<std::uint32_t>(worker), served.clock});
}

std::vector<UpdateRound> UpdateServer::serve(int rounds) {
  const auto wanted_rounds = static_cast<std::size_t>(rounds);
  // Steps of the phase; with backup workers updates end it, and steps during them are free.
  const bool holds_back = first_ && !policy_->adds_up();
  const std::uint64_t budget =
      holds_back ? static_cast<std::uint64_t>(rounds) * static_cast<std::uint64_t>(workers_)
                 : UINT64_MAX;
  allowed_ = static_cast<std::uint64_t>(workers_);
  for (auto& served : served_) {
    served.computes = true;
    served.since_us = now_us();
    served.head.version = version_;
    served.in_phase = 0;
  }
  turn_ = 0;
  std::vector<UpdateRound> done;
  UpdateRound round{now_us(), 0, 0, 0};
  int came = 0;
  while (done.size() < wanted_rounds) {
    const std::uint32_t before = version_;
    update_us_ = decode_us_ = 0;
    if (came == 0) stand_at_next(Standpoint::gradients);
    take(receive());
    update_us_ += decode_us_;
    round.loss += head_.loss;
    round.update_us += update_us_;
    ++came;
    const bool over = policy_->adds_up() ? version_ != before : came == workers_;
    if (over) {
      round.loss /= came;
      round.total_us = now_us() - round.start_us;
      done.push_back(round);
      round = {round.start_us + round.total_us, 0, 0, 0};
      came = 0;
    }
    if (!first_ || done.size() < wanted_rounds) release(budget);
  }
  // Backup workers that were late still: what they bring is nobody's.
  while (first_ && !owing().empty()) take(receive());
  waiting_.clear();
  for (int worker = 0; worker < workers_; ++worker) answer(worker, UpdateEvent::Kind::ended);
  for (auto& served : served_) settle(served);
  return done;
}

UpdateWorker::UpdateWorker(Messages& comm, const ExchangePlan& plan, const TrainingSpec& spec,
                           TrainingWorker& worker, Micros timeout)
    : comm_(comm),
      worker_(worker),
      buffers_(worker),
      count_(plan.elements()),
      number_(static_cast<std::uint32_t>(worker.number() / spec.group_size)),
      timeout_(timeout) {
  for (int server = 0; server < plan.servers; ++server) shards_.push_back(shard_of(plan, server));
  if (spec.group_size > 1)
    group_.emplace(comm, group_plan(plan, spec), worker.number(), worker.workers(), spec.group_size,
                   buffers_.gradients());
  if (plan.codec.codec != Codec::none)
    messages_.emplace(plan, static_cast<int>(number_), groups_of(spec, worker.workers()));
}

UpdateWorker::~UpdateWorker() { worker_.hold(true, false); }

void UpdateWorker::start() {
  clock_ = 0;
  answers_.assign(shards_.size(), {});
  if (messages_) messages_->restart();
  if (group_) group_->restart();
  if (worker_.number() != 0) return;
  const std::vector<float> weights = worker_.host_weights();
  for (std::size_t server = 0; server < shards_.size(); ++server)
    comm_.wait(comm_.isend(weights.data() + shards_[server].begin,
                           shards_[server].count * sizeof(float), static_cast<int>(server),
                           kPieceTag));
}

std::optional<CodingFigures> UpdateWorker::take_coding() {
  if (!messages_) return std::nullopt;
  return messages_->take_coding();
}

/// The gradient as it travels: all messages of the plan as one.
std::pair<const void*, std::size_t> UpdateWorker::message() {
  if (!messages_) return {buffers_.gradients(), count_ * sizeof(float)};
  messages_->begin_step();
  const std::size_t bytes = messages_->encode_all(buffers_.gradients(), frames_);
  return {frames_.data(), bytes};
}

double UpdateWorker::note(const char* what, double start_us, std::size_t bytes) {
  const double end_us = now_us();
  noted_.spans.push_back({what, 0, start_us, end_us, 0, bytes});
  return end_us;
}

void UpdateWorker::receive(int server, std::vector<std::pair<Request, int>>& open) {
  const auto index = static_cast<std::size_t>(server);
  AnswerHead& answer = answers_[index];
  const Shard& shard = shards_[index];
  open.emplace_back(comm_.irecv(&answer, sizeof answer, server, kPullTag), server);
  open.emplace_back(
      comm_.irecv(buffers_.answers() + shard.begin, shard.count * sizeof(float), server, kPieceTag),
      server);
}

/// The gradient against the servers' weights.
void UpdateWorker::ask_servers() {
  const auto [pushed_data, pushed_bytes] = message();
  const double start_us = now_us();
  push_.bytes = pushed_bytes;
  sent_bytes_ += pushed_bytes;
  const int servers = static_cast<int>(shards_.size());
  std::vector<std::pair<Request, int>> pushes;
  std::vector<std::pair<Request, int>> pulls;
  for (int server = 0; server < servers; ++server) {
    // What is encoded goes whole, to one server.
    const Shard& shard = shards_[static_cast<std::size_t>(server)];
    const std::size_t bytes = servers > 1 ? shard.count * sizeof(float) : pushed_bytes;
    const char* data = static_cast<const char*>(pushed_data) + shard.begin * sizeof(float);
    receive(server, pulls);
    pushes.emplace_back(comm_.isend(&push_, sizeof push_, server, kPushTag), server);
    pushes.emplace_back(comm_.isend(data, bytes, server, kPieceTag), server);
  }
  const auto wait_for_all = [&](std::vector<std::pair<Request, int>>& open) {
    for (const auto& [request, server] : std::exchange(open, {}))
      comm_.wait_within(request, server, timeout_);
  };
  wait_for_all(pushes);
  const double pushed_us = note("push", start_us, pushed_bytes);
  wait_for_all(pulls);
  // The others did not know yet that the phase was over.
  if (answers_.front().goes_on == 0)
    for (int server = 1; server < servers; ++server) receive(server, pulls);
  wait_for_all(pulls);
  note("pull", pushed_us, count_ * sizeof(float));
}

std::vector<StepTimes> UpdateWorker::work() {
  std::vector<StepTimes> steps;
  const bool leaves =
      planted_fault("leave-group") && worker_.number() == worker_.workers() - 1 && group_;
  AnswerHead& answer = answers_.front();
  answer.goes_on = 1;
  calls_.clear();
  calls_left_out_ = 0;
  while (answer.goes_on != 0) {
    stand_at_next(Standpoint::step);
    StepTimes step = worker_.step_by_itself(false);
    noted_ = {step.start_us, {}};
    const double start_us = now_us();
    stand_at(Standpoint::exchange);
    buffers_.fetch();
    if (leaves) std::fill_n(buffers_.gradients(), count_, 0.0F);
    if (group_) {
      step.loss = group_->mean(step.loss);
      const GroupSum sum = group_->sum();
      noted_.spans.push_back({"reduce", 0, sum.start_us, sum.end_us, 0, sum.bytes});
    }
    push_ = {number_, clock_++, answer.version, static_cast<float>(step.loss), 0};
    if (!group_ || group_->leads()) ask_servers();
    if (group_) {
      const double share_us = now_us();
      group_->share(&answer, sizeof answer);
      group_->share(buffers_.answers(), count_ * sizeof(float));
      note("broadcast", share_us, count_ * sizeof(float));
    }
    buffers_.bring();
    const double there_us = now_us();
    worker_.take_weights(worker_.sums(), 1);
    worker_.memory().complete();
    step.exposed_us = there_us - start_us;
    step.update_us = now_us() - there_us;
    step.total_us = now_us() - step.start_us;
    steps.push_back(step);
    if (calls_.size() < kMostSteps)
      calls_.push_back(std::move(noted_));
    else
      calls_left_out_ += noted_.spans.size();
  }
  return steps;
}

}  // namespace dynamiccl
