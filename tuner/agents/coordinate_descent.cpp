#include "tuner/agents/coordinate_descent.hpp"

#include <algorithm>
#include <cmath>

#include "core/statistics/fast_random.hpp"
#include "core/vocabulary/digest.hpp"
#include "tuner/agents/arm_history.hpp"

namespace dynamiccl {
namespace {

constexpr double kInitialRate = 0.01;

}  // namespace

/// The search of one key: a cursor over subspaces and dimensions.
class CoordinateDescent::Search {
 public:
  Search(std::shared_ptr<const ActionSpace> space, std::uint64_t seed)
      : owner_(std::move(space)),
        space_(*owner_),
        history_(space_.arms().size()),
        random_(seed),
        subspaces_(space_.subspaces()) {
    pending_ = 0;  // the default first
  }

  [[nodiscard]] std::optional<std::size_t> pending() const { return pending_; }
  [[nodiscard]] DescentPhase phase() const { return phase_; }
  [[nodiscard]] std::size_t best() const { return history_.best().value_or(0); }

  void learn(std::size_t arm, const Trial& trial) {
    history_.add(arm, trial);
    if (!pending_ || arm != *pending_) return;
    if (!started_) {
      started_ = true;
      enter_subspace();
    } else {
      judge_probe(arm);
    }
    // Points that are known already are judged without being measured again.
    while (pending_ && known(*pending_)) judge_probe(*pending_);
  }

 private:
  [[nodiscard]] bool known(std::size_t arm) const {
    return history_.tries(arm) > 0 || history_.failed(arm);
  }
  /// Bandwidth in units of 1/us: the message is the same for all arms.
  [[nodiscard]] double bandwidth(std::size_t arm) const {
    const auto log_us = history_.failed(arm) ? std::nullopt : history_.log_us(arm);
    return log_us ? std::exp(-*log_us) : 0;
  }

  void enter_subspace() {
    if (subspace_ == subspaces_.size()) {
      pending_.reset();
      phase_ = DescentPhase::converged;
      return;
    }
    const auto [first, last] = subspaces_[subspace_];
    optimum_ = first + random_.below(last - first);
    dimension_ = space_.implementation_knobs();
    at_start_ = true;
    reset_dimension();
    pending_ = optimum_;
    phase_ = DescentPhase::probing;
  }

  void reset_dimension() {
    rate_ = kInitialRate;
    direction_ = 1;
    turned_ = false;
  }

  void judge_probe(std::size_t arm) {
    if (at_start_) {
      at_start_ = false;
    } else if (bandwidth(arm) > bandwidth(optimum_)) {
      const double before = bandwidth(optimum_);
      rate_ = before > 0 ? (bandwidth(arm) - before) / before : 1;
      optimum_ = arm;
      turned_ = true;  // where going on helped, going back leads to where we were
      phase_ = DescentPhase::improving;
    } else {
      give_up_direction();
    }
    propose();
  }

  void give_up_direction() {
    rate_ = kInitialRate;
    if (!turned_) {
      turned_ = true;
      direction_ = -direction_;
      return;
    }
    ++dimension_;
    reset_dimension();
    phase_ = DescentPhase::advance_dimension;
  }

  /// Sets `pending_` to the neighbour to be measured next, or enters the next subspace.
  void propose() {
    while (dimension_ < space_.knobs().size()) {
      if (const auto neighbour = step_from_optimum()) {
        pending_ = *neighbour;
        if (phase_ == DescentPhase::advance_dimension) phase_ = DescentPhase::probing;
        return;
      }
      give_up_direction();
    }
    ++subspace_;
    enter_subspace();
  }

  /// The nearest allowed arm at least one place away in the current dimension.
  [[nodiscard]] std::optional<std::size_t> step_from_optimum() const {
    Action action = space_.arms()[optimum_];
    const int values = static_cast<int>(space_.knobs()[dimension_].values.size());
    const int places = std::max(1, static_cast<int>(std::lround(rate_ * values)));
    const int from = action[dimension_];
    int to = std::clamp(from + direction_ * places, 0, values - 1);
    for (; to != from; to -= direction_) {
      action[dimension_] = static_cast<std::uint8_t>(to);
      if (const auto arm = space_.find(action)) return arm;
    }
    return std::nullopt;
  }

  std::shared_ptr<const ActionSpace> owner_;
  const ActionSpace& space_;
  ArmHistory history_;
  FastRandom random_;
  std::vector<std::pair<std::size_t, std::size_t>> subspaces_;
  std::optional<std::size_t> pending_;
  std::size_t subspace_ = 0;
  std::size_t optimum_ = 0;
  std::size_t dimension_ = 0;
  double rate_ = kInitialRate;
  int direction_ = 1;
  bool turned_ = false;    ///< the other direction was tried or need not be
  bool at_start_ = false;  ///< the pending point is the subspace's random start
  bool started_ = false;
  DescentPhase phase_ = DescentPhase::idle;
};

CoordinateDescent::CoordinateDescent(const AgentOptions& options) : seed_(options.seed) {}
CoordinateDescent::~CoordinateDescent() = default;

CoordinateDescent::Search& CoordinateDescent::search(const Task& task) {
  auto& entry = searches_[task.key];
  if (!entry) {
    const std::uint64_t key =
        std::stoull(stable_id(task.key.regime + "|" + task.key.task.text()), nullptr, 16);
    entry = std::make_unique<Search>(task.space, seed_ * 0x9e3779b97f4a7c15 + key);
  }
  return *entry;
}

const CoordinateDescent::Search* CoordinateDescent::find(const Task& task) const {
  const auto found = searches_.find(task.key);
  return found == searches_.end() ? nullptr : found->second.get();
}

Choice CoordinateDescent::act(const Task& task) {
  const Search& state = search(task);
  const auto pending = state.pending();
  return pending ? Choice{*pending, 1, true} : Choice{state.best(), 1, false};
}

void CoordinateDescent::learn(const Task& task, std::size_t arm, const Trial& trial) {
  search(task).learn(arm, trial);
}

bool CoordinateDescent::finished(const Task& task) const {
  const Search* state = find(task);
  return state != nullptr && !state->pending();
}

std::size_t CoordinateDescent::recommend(const Task& task) const {
  const Search* state = find(task);
  return state == nullptr ? 0 : state->best();
}

void CoordinateDescent::reopen(const RegimeKey& key) { searches_.erase(key); }

DescentPhase CoordinateDescent::phase(const Task& task) const {
  const Search* state = find(task);
  return state == nullptr ? DescentPhase::idle : state->phase();
}

}  // namespace dynamiccl
