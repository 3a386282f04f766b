// What learning while a job runs costs the job, and how near it comes to the best table: the
// learner itself (CallDriver, ranks' agreement and all) in jobs that are replayed from stored
// measurements, against the same job, call by call, under the best table from the start.
//
//   xzcat reports/measured/h100x2-2026-11-containers/online/rounds-after.txt.xz > ROUNDS
//   online_learning benchmarks/online_world.csv ROUNDS [AGENT [SEEDS]]
//
// The world: microseconds by size and setting (the .csv). 4 KiB to 1 MiB: what a leader measured
// between two containers with a GPU each, over library's in the same launch
// (h100x2-2026-11-containers/hosts); 16 and 64 MiB: launch settings with so many channels
// (h200x2-2026-11/tuned-cross), LL and tree over ring/Simple as over NVLink there. "fitted" lies
// between measured ones (an additive model in ln us). Pace: the rounds of stored launches,
// smoothed; calls besides differ as the measurements' MADs say. Jobs: "sizes" is
// scripts/nccl_sizes.py; "bert" sends 52 buckets of 25 MiB while it computes for 100 ms
// (BERT-Large), of even pace. The neighbour is made up: calls take three times as long, and 15 %
// more for every doubling of the channels beyond 2.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <queue>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/statistics/fast_random.hpp"
#include "core/statistics/statistics.hpp"
#include "core/vocabulary/error.hpp"
#include "plugin/agreement/member.hpp"
#include "tuner/export/export.hpp"
#include "tuner/online/call_driver.hpp"

using namespace dynamiccl;

namespace {

constexpr std::size_t kAllReduce = 4;
constexpr double kLookNs = 50e6;  ///< as JobLeader's
constexpr double kPollNs = 2e6;   ///< as leaders'
constexpr int kSteps = 1000;

using Cell = std::tuple<std::uint8_t, std::uint8_t, std::uint8_t>;
Cell key_of(const CallCell& cell) { return {cell.algorithm, cell.protocol, cell.channels}; }

SpaceContext context_of(std::size_t bin) {
  SpaceContext context;
  context.backend = Backend::nccl;
  context.collective = Collective::allreduce;
  context.ranks = context.nodes = 2;
  context.size = Bytes(std::uint64_t{1} << bin);
  context.shared_memory = false;
  context.nccl_plugin = true;
  return context;
}

/// Microseconds of each size's settings.
struct World {
  std::map<std::size_t, std::map<Cell, double>> us;
  std::map<std::size_t, CallCell> best;
  std::vector<std::vector<double>> paces;  ///< by step, of stored launches

  void read(const std::string& path) {
    std::map<std::size_t, std::map<std::string, double>> rows;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string size, setting, time;
      if (std::getline(words, size, ',') && std::getline(words, setting, ',') &&
          std::getline(words, time, ',') && std::isdigit(size.front()) != 0)
        rows[std::stoul(size)][setting] = std::stod(time);
    }
    if (rows.empty()) throw Error(ErrorKind::input, path + ": no settings' times");
    for (const auto& [bin, times] : rows) {
      SpaceOptions options;
      options.scopes = {KnobScope::call};
      const ActionSpace space = make_space(context_of(bin), options);
      for (const Action& arm : space.arms()) {
        const auto found = times.find(space.text(arm));
        if (found == times.end())
          throw Error(ErrorKind::input, path + ": no time of " + space.text(arm));
        const CallCell cell = call_cell(space.setting(arm));
        if (!us[bin].contains(key_of(cell))) us[bin][key_of(cell)] = found->second;
        if (!best.contains(bin) || found->second < us[bin].at(key_of(best[bin]))) best[bin] = cell;
      }
    }
  }

  void read_paces(const std::string& path) {
    std::map<std::string, std::vector<double>> launches;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string side, launch, what;
      double round = 0, ms = 0;
      if (words >> side >> launch >> what >> round >> ms && what == "round" &&
          (side == "table" || side == "plain"))
        launches[side + launch].push_back(ms);
    }
    for (const auto& [name, ms] : launches) {
      // Start-up is no pace.
      const std::vector<double> later(ms.begin() + std::min<std::ptrdiff_t>(20, std::ssize(ms)),
                                      ms.end());
      if (later.size() < 100) continue;
      const double middle = median(later);
      std::vector<double> pace;
      constexpr std::size_t kHalf = 4;
      for (std::size_t i = kHalf; i + kHalf < later.size(); ++i)
        pace.push_back(median({later.begin() + static_cast<std::ptrdiff_t>(i - kHalf),
                               later.begin() + static_cast<std::ptrdiff_t>(i + kHalf + 1)}) /
                       middle);
      paces.push_back(pace);
    }
    if (paces.empty())
      throw Error(ErrorKind::input, path + ": no rounds of \"table\" or \"plain\"");
  }
};

struct JobKind {
  std::string name;
  std::vector<std::pair<std::size_t, int>> calls;  ///< bin and how often, in order
  double compute_us = 0;                           ///< behind which calls hide; 0: calls alone
  double bytes_over_bin = 1;                       ///< of a call, over the world's size
  double jitter = 0.1;                             ///< standard deviation of ln(call)
  bool moving = true;                              ///< as stored launches' paces do
};

/// One job under a learner or a fixed table.
class Replay {
 public:
  Replay(const World& world, const JobKind& kind, std::uint64_t seed)
      : world_(world), kind_(kind), seed_(seed) {
    if (mkdtemp(folder_.data()) == nullptr) throw Error(ErrorKind::environment, folder_);
    for (auto& rank : ranks_) rank = std::make_unique<Member>(region());
    FastRandom random(seed);
    pace_ = static_cast<std::size_t>(random.uniform() * static_cast<double>(world.paces.size()));
    shift_ = static_cast<std::size_t>(random.uniform() * 1000);
  }
  ~Replay() { std::filesystem::remove_all(folder_); }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  void fix(const CallTable& table) { fixed_ = table; }
  void learn(const std::string& agent) {
    LearnerOptions options;
    options.agent = agent;
    options.agent_options.seed = seed_;
    options.context = context_of(20);
    options.steps = [this](std::uint32_t epoch) { return reading(epoch); };
    options.recent_step = [this](std::uint32_t epoch) { return recent_step(epoch); };
    options.latest_step = [this]() -> std::optional<Micros> {
      if (steps_us_.empty()) return std::nullopt;
      return Micros(std::max(steps_us_.back(), (now_ - step_begun_) / 1e3));
    };
    options.now_ns = [this] { return static_cast<std::int64_t>(now_); };
    options.on_decision = [this](const DecisionRecord&) { ++trials_; };
    if (std::getenv("ONLINE_LEARNING_VERBOSE") != nullptr)
      options.on_event = [this](const std::string& text) {
        fmt::print(stderr, "seed {} step {}: {}\n", seed_, steps_.size(), text);
      };
    learner_ = std::make_unique<CallDriver>(region(), options);
  }

  void run(int steps, bool neighbour) {
    neighbour_ = neighbour;
    for (int i = 0; i < steps; ++i) kind_.compute_us > 0 ? hidden_step() : plain_step();
  }

  [[nodiscard]] const std::vector<double>& steps() const { return steps_us_; }
  [[nodiscard]] const CallDriver& learner() const { return *learner_; }
  [[nodiscard]] double settled_after() const { return static_cast<double>(settled_after_); }
  [[nodiscard]] int trials() const { return trials_; }
  [[nodiscard]] std::int64_t calls() const { return calls_; }
  /// Steps until all sizes had settled last; so many as there are where some have not.
  [[nodiscard]] std::size_t settled_last() const {
    return was_settled_ ? settled_last_ : steps_us_.size();
  }
  /// Calls in all when the learner's `alarm`-th alarm came; nullopt: it has not.
  [[nodiscard]] std::optional<std::int64_t> alarm_after(int alarm) const {
    const auto found = alarms_.find(alarm);
    return found == alarms_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  struct Step {
    double us = 0;
    std::optional<std::uint32_t> epoch;
  };
  struct Told {
    double at = 0;
    std::size_t bin = 0;
    std::uint32_t epoch = 0;
    double us = 0;
    double other_us = 0;  ///< of the other rank
    bool operator<(const Told& other) const { return at > other.at; }
  };

  [[nodiscard]] std::shared_ptr<Region> region() const {
    std::string problem;
    std::shared_ptr<Region> region = Region::open_or_make(folder_, {5, 2}, problem);
    if (region == nullptr) throw Error(ErrorKind::environment, problem);
    return region;
  }

  /// The same in every replay of a seed, whatever the table.
  [[nodiscard]] double noise() {
    FastRandom random(seed_ * 1'000'003 + static_cast<std::uint64_t>(calls_));
    double factor = std::exp(kind_.jitter * random.normal());
    if (random.uniform() < 0.02) factor *= 1 + 2 * random.uniform();
    if (kind_.moving) {
      const std::vector<double>& pace = world_.paces[pace_];
      factor *= pace[(shift_ + steps_us_.size()) % pace.size()];
    }
    return factor;
  }

  double call_us(std::size_t bin, const CallCell& cell) {
    double us = world_.us.at(bin).at(key_of(cell)) * kind_.bytes_over_bin * noise();
    if (neighbour_) {
      us *= 3;
      if (cell.channels > 2 && cell.channels != CallCell::kAny)
        us *= 1 + 0.15 * std::log2(cell.channels / 2.0);
    }
    return us;
  }

  /// The ranks decide on a call now; @return its microseconds
  double decide(std::size_t bin) {
    CallCell cell{};
    if (fixed_) {
      cell = fixed_->cells[kAllReduce][bin];
    } else {
      cell = ranks_[0]->decide(kAllReduce, bin);
      if (!(ranks_[1]->decide(kAllReduce, bin) == cell))
        throw Error(ErrorKind::bug, "ranks differ");
    }
    const std::uint32_t epoch = fixed_ ? 0 : ranks_[0]->epoch();
    if (mixed_ || (step_epoch_ && *step_epoch_ != epoch)) mixed_ = true;
    step_epoch_ = epoch;
    const double us = call_us(bin, cell);
    ++calls_;
    last_ = {0, bin, epoch, us, us * (1 + 0.02 * static_cast<double>(calls_ % 3))};
    return us;
  }

  /// Time passes; what ends meanwhile is told, and the leader looks.
  void advance(double to) {
    while (!fixed_ && next_poll_ <= to) {
      tell(next_poll_);
      now_ = next_poll_;
      next_poll_ += kPollNs;
      if (now_ >= next_look_) {
        next_look_ = now_ + kLookNs;
        for (; !unheard_.empty(); unheard_.pop_front())
          learner_->hear(kAllReduce, unheard_.front().bin, unheard_.front().epoch,
                         Micros(unheard_.front().us));
      }
      learner_->step();
      if (settled_after_ == 0 && learner_->finished()) settled_after_ = std::ssize(steps_us_);
      if (std::exchange(was_settled_, learner_->finished()) != learner_->finished())
        settled_last_ = steps_us_.size();
      if (learner_->alarms() > 0) alarms_.try_emplace(learner_->alarms(), calls_);
    }
    if (!fixed_) tell(to);
    now_ = to;
  }
  void tell(double until) {
    while (!under_way_.empty() && under_way_.top().at <= until) {
      const Told& done = under_way_.top();
      ranks_[0]->record(kAllReduce, done.bin, done.epoch,
                        static_cast<std::uint64_t>(done.us * 1000));
      ranks_[1]->record(kAllReduce, done.bin, done.epoch,
                        static_cast<std::uint64_t>(done.other_us * 1000));
      unheard_.push_back(done);
      under_way_.pop();
    }
  }

  void end_step(double begun) {
    const double us = (now_ - begun) / 1e3;
    steps_us_.push_back(us);
    steps_.push_back({us, mixed_ ? std::nullopt : step_epoch_});
    step_epoch_.reset();
    mixed_ = false;
  }

  /// Every call is waited for.
  void plain_step() {
    constexpr double kHostUs = 12;
    const double begun = step_begun_ = now_;
    for (const auto& [bin, count] : kind_.calls)
      for (int i = 0; i < count; ++i) {
        last_.at = now_ + (kHostUs + decide(bin)) * 1e3;
        under_way_.push(last_);
        advance(last_.at);
      }
    end_step(begun);
  }

  /// Calls go on behind the backward pass, one after the other; the host asks for them before.
  void hidden_step() {
    const double begun = step_begun_ = now_;
    const double forward = begun + 0.35e3 * kind_.compute_us;
    const double backward = 0.65e3 * kind_.compute_us;
    int count = 0;
    for (const auto& [bin, calls] : kind_.calls) count += calls;
    double sent = forward;  // end of the last call
    int n = 0;
    for (const auto& [bin, calls] : kind_.calls)
      for (int i = 0; i < calls; ++i) {
        const double ready = forward + backward * ++n / count;
        advance(begun + (ready - begun) * 0.8);
        sent = std::max(ready, sent) + decide(bin) * 1e3;
        last_.at = sent;
        under_way_.push(last_);
      }
    constexpr double kOptimiserNs = 3e6;
    advance(std::max(sent, forward + backward) + kOptimiserNs);
    end_step(begun);
  }

  [[nodiscard]] std::vector<double> times_under(std::uint32_t epoch) const {
    std::vector<double> times;
    const std::size_t from = steps_.size() > 160 ? steps_.size() - 160 : 0;
    for (std::size_t i = from; i < steps_.size(); ++i)
      if (steps_[i].epoch == epoch) times.push_back(steps_[i].us);
    if (!times.empty()) times.erase(times.begin());
    return times;
  }
  [[nodiscard]] std::optional<StepReading> reading(std::uint32_t epoch) const {
    const std::vector<double> times = times_under(epoch);
    if (times.empty()) return std::nullopt;
    const double middle = median(times);
    return StepReading{times.size(), Micros(middle),
                       1.4826 * median_absolute_deviation(times) / middle};
  }
  [[nodiscard]] std::optional<Micros> recent_step(std::uint32_t epoch) const {
    const std::vector<double> times = times_under(epoch);
    if (times.size() < 5) return std::nullopt;
    return Micros(median({times.end() - 5, times.end()}));
  }

  const World& world_;
  JobKind kind_;
  std::uint64_t seed_;
  std::string folder_ = std::filesystem::temp_directory_path() / "online-learning-XXXXXX";
  std::unique_ptr<Member> ranks_[2];
  std::unique_ptr<CallDriver> learner_;
  std::optional<CallTable> fixed_;
  std::size_t pace_ = 0;
  std::size_t shift_ = 0;
  bool neighbour_ = false;
  double now_ = 1e9;
  double next_poll_ = 1e9;
  double next_look_ = 1e9;
  std::priority_queue<Told> under_way_;
  std::deque<Told> unheard_;
  Told last_;
  std::vector<double> steps_us_;
  std::vector<Step> steps_;
  std::optional<std::uint32_t> step_epoch_;
  double step_begun_ = 0;
  bool mixed_ = false;
  std::int64_t calls_ = 0;
  int trials_ = 0;
  std::int64_t settled_after_ = 0;
  bool was_settled_ = false;
  std::size_t settled_last_ = 0;
  std::map<int, std::int64_t> alarms_;
};

double sum(const std::vector<double>& of, std::size_t from, std::size_t to) {
  double all = 0;
  for (std::size_t i = from; i < to; ++i) all += of[i];
  return all;
}
double middle(const std::vector<double>& of, std::size_t from, std::size_t to) {
  return median({of.begin() + static_cast<std::ptrdiff_t>(from),
                 of.begin() + static_cast<std::ptrdiff_t>(to)});
}

CallTable best_table(const World& world, bool neighbour) {
  CallTable table{};
  for (const auto& [bin, settings] : world.us) {
    double least = 0;
    for (const auto& [cell, us] : settings) {
      const auto& [algorithm, protocol, channels] = cell;
      double time = us;
      if (neighbour && channels > 2 && channels != CallCell::kAny)
        time *= 1 + 0.15 * std::log2(channels / 2.0);
      if (least > 0 && time >= least) continue;
      least = time;
      table.cells[kAllReduce][bin] = {algorithm, protocol, channels};
    }
  }
  return table;
}

void say(const char* what, std::vector<double> values, const char* unit) {
  std::sort(values.begin(), values.end());
  fmt::print("  {:<58} {:>8.2f} [{:.2f}, {:.2f}] {}\n", what, median(values), values.front(),
             values.back(), unit);
}

/// A thousand steps alone, five hundred beside a neighbour, five hundred alone again.
void report(const World& world, const JobKind& kind, const std::string& agent, int seeds) {
  constexpr std::size_t kPhase = 500;
  std::vector<double> lost, tried, settled, late, standard, early, trials, alarms, noticed, beside,
      beside_late, again, again_late, all_alarms, came, gone, beside_calls, again_calls;
  for (int seed = 1; seed <= seeds; ++seed) {
    const auto number = static_cast<std::uint64_t>(seed);
    const auto fixed = [&](const CallTable& quiet, const CallTable& loud) {
      Replay replay(world, kind, number);
      replay.fix(quiet);
      replay.run(kSteps, false);
      replay.fix(loud);
      replay.run(kPhase, true);
      replay.fix(quiet);
      replay.run(kPhase, false);
      return replay.steps();
    };
    const std::vector<double> best = fixed(best_table(world, false), best_table(world, true));
    const std::vector<double> plain = fixed(CallTable{}, CallTable{});
    Replay online(world, kind, number);
    online.learn(agent);
    online.run(kSteps, false);
    const std::int64_t calls = online.calls();
    const int before = online.learner().alarms();
    tried.push_back(100 * online.learner().lost().count() / sum(best, 0, kSteps));
    settled.push_back(online.settled_after());
    if (std::getenv("ONLINE_LEARNING_VERBOSE") != nullptr)
      for (const TableEntry& entry : online.learner().entries())
        fmt::print(stderr, "seed {}: {} {} {:.1f} -> {:.1f} us\n", seed, entry.key.task.text(),
                   entry.arm, entry.evidence.default_us, entry.evidence.tuned_us);
    trials.push_back(online.trials());
    alarms.push_back(before);
    online.run(kPhase, true);
    const std::size_t recovered = online.settled_last();
    noticed.push_back(static_cast<double>(online.alarm_after(before + 1).value_or(1e6) - calls));
    online.run(kPhase, false);
    const std::size_t recovered_again = std::max(online.settled_last(), kSteps + kPhase);
    all_alarms.push_back(online.learner().alarms() - before);
    const std::vector<double>& steps = online.steps();
    const auto over = [&](std::size_t from, std::size_t to) {
      return 100 * (sum(steps, from, to) / sum(best, from, to) - 1);
    };
    const auto slower = [&](std::size_t from, std::size_t to) {
      return 100 * (middle(steps, from, to) / middle(best, from, to) - 1);
    };
    // As many calls under the best table there take as long.
    const auto calls_lost = [&](std::size_t from, std::size_t to) {
      const double phase = sum(best, from, from + kPhase) / static_cast<double>(kPhase);
      const auto a_step = static_cast<double>(calls) / static_cast<double>(kSteps);
      return to > from ? (sum(steps, from, to) - sum(best, from, to)) / phase * a_step : 0;
    };
    came.push_back(calls_lost(kSteps, recovered));
    gone.push_back(calls_lost(kSteps + kPhase, recovered_again));
    beside_calls.push_back(calls_lost(kSteps, kSteps + kPhase));
    again_calls.push_back(calls_lost(kSteps + kPhase, steps.size()));
    standard.push_back(100 * (sum(plain, 0, kSteps) / sum(best, 0, kSteps) - 1));
    lost.push_back(over(0, kSteps));
    if (std::getenv("ONLINE_LEARNING_VERBOSE") != nullptr)
      fmt::print(stderr, "seed {}: late {:.2f} %, beside {:.2f} %, again {:.2f} %\n", seed,
                 slower(300, kSteps), slower(kSteps + 300, kSteps + kPhase),
                 slower(kSteps + kPhase + 300, steps.size()));
    early.push_back(over(0, 300));
    late.push_back(slower(300, kSteps));
    beside.push_back(over(kSteps, kSteps + kPhase));
    beside_late.push_back(slower(kSteps + 300, kSteps + kPhase));
    again.push_back(over(kSteps + kPhase, steps.size()));
    again_late.push_back(slower(kSteps + kPhase + 300, steps.size()));
  }
  fmt::print("{}, {}, {} seeds: median [least, most]\n", kind.name, agent, seeds);
  say("without a learner, time of 1,000 steps over the best table's", standard, "%");
  say("time of 1,000 steps over the best table's", lost, "%");
  say("by settings that were tried, as the learner counts", tried, "%");
  say("of the first 300 alone", early, "%");
  say("steps until all had settled first", settled, "");
  say("step after 300 over the best table's", late, "%");
  say("measurements", trials, "");
  say("searches anew without a cause", alarms, "");
  say("neighbour: calls until it was noticed", noticed, "");
  say("beside it: time of 500 steps over the best table's there", beside, "%");
  say("beside it: step after 300", beside_late, "%");
  say("alone again: time of 500 steps", again, "%");
  say("alone again: step after 300", again_late, "%");
  say("searches anew, neighbour come and gone", all_alarms, "");
  say("neighbour come: calls lost until all had settled", came, "");
  say("neighbour gone: calls lost until all had settled", gone, "");
  say("beside it: calls lost in 500 steps", beside_calls, "");
  say("alone again: calls lost in 500 steps", again_calls, "");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3)
    throw Error(ErrorKind::input, "usage: online_learning WORLD_CSV ROUNDS [AGENT [SEEDS]]");
  World world;
  world.read(argv[1]);
  world.read_paces(argv[2]);
  const std::string agent = argc > 3 ? argv[3] : "ppo";
  const int seeds = argc > 4 ? std::max(1, std::atoi(argv[4])) : 20;
  report(world, {"sizes", {{12, 20}, {16, 20}, {20, 8}, {24, 1}, {26, 1}}}, agent, seeds);
  report(world, {"bert", {{20, 1}, {24, 51}}, 100e3, 25.0 / 16, 0.04, false}, agent, seeds);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "online_learning: {}\n", error.what());
  return 2;
}
