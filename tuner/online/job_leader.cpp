#include "tuner/online/job_leader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "tuner/agents/policy_file.hpp"
#include "tuner/job/launch_space.hpp"

namespace dynamiccl {
namespace {

using std::chrono::milliseconds;

/// How often the calls are read: often enough for a neighbour to be noticed within some steps.
constexpr milliseconds kLook{50};
constexpr milliseconds kReadFacts{100};
constexpr std::size_t kMostLeaderProblems = 16;

double thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

/// Ranks are missing, which would have to agree: on other hosts, or on their way.
bool is_partial(const Region& region) {
  return region.header().claimed.load(std::memory_order_acquire) < region.ranks();
}

}  // namespace

void put_row(std::map<RegimeKey, TableEntry>& rows, TableEntry row) {
  const auto [place, is_new] = rows.try_emplace(row.key, row);
  if (!is_new && row.evidence.tuned_us > 0) place->second = std::move(row);
}

JobLeader::JobLeader(std::string folder, const JobLeaderOptions& options)
    : folder_(std::move(folder)),
      options_(options),
      agent_(options.kept_agent != nullptr
                 ? options.kept_agent
                 : std::shared_ptr<Agent>(make_agent(options.agent, options.agent_options))),
      watch_(folder_) {
  author_.agent = std::string(agent_->name());
  author_.seed = options.agent_options.seed;
  if (reads_policy(author_.agent))
    author_.policy_version =
        read_policy(policy_or_throw(options.agent_options.policy_path)).version();
}

void JobLeader::problem(const std::string& text) {
  if (problems_.size() < kMostLeaderProblems &&
      std::find(problems_.begin(), problems_.end(), text) == problems_.end())
    problems_.push_back(text);
}

LearnerOptions JobLeader::learner_options(std::uint64_t communicator) {
  LearnerOptions options;
  options.shared_agent = agent_.get();
  options.author = author_;
  std::uint32_t possible = 0;
  for (std::size_t function = 0; function < kCallFunctions; ++function)
    possible |= watch_.possible(function);
  options.context = call_context(*facts_, possible);
  options.regime = facts_->regime.id + options_.label;
  options.regime_id = facts_->regime.id;
  options.regime_name = facts_->regime.name;
  options.state = facts_->state;
  options.state.parallelism = options_.parallelism;
  options.calls_per_trial = options_.calls_per_trial;
  options.learn_cost = options_.learn_cost;
  options.most_rounds = options_.most_rounds;
  options.start = options_.start;
  options.steps = [this](std::uint32_t epoch) { return watch_.reading(epoch); };
  options.recent_step = [this](std::uint32_t epoch) { return watch_.recent_step(epoch); };
  options.latest_step = [this] { return watch_.latest_step(); };
  options.predicted = [this, communicator](std::size_t function, std::size_t bin) {
    return watch_.predicted(communicator, function, bin);
  };
  if (!floor_.empty())
    options.gloo_floor = [this, communicator](std::size_t function, std::size_t bin) {
      return gloo_takes(communicator, function, bin);
    };
  options.on_decision = options_.on_decision;
  options.on_event = options_.on_event;
  return options;
}

std::optional<Micros> JobLeader::gloo_takes(std::uint64_t communicator, std::size_t function,
                                            std::size_t bin) {
  std::uint64_t bytes = 0;
  int ranks = 0;
  for (const MixEntry& entry : watch_.mix())
    if (entry.communicator == communicator && entry.function == function &&
        CallTable::bin(entry.bytes) == bin) {
      bytes = std::max(bytes, entry.bytes);
      ranks = entry.ranks;
    }
  return bytes == 0 ? std::nullopt : floor_.at(collective_of(function), ranks, Bytes(bytes));
}

void JobLeader::meet_regions() {
  for (const std::string& path : regions_in(folder_)) {
    if (learners_.contains(path) || refused_[path]) continue;
    std::string why;
    std::shared_ptr<Region> region = Region::open(path, why);
    if (region == nullptr) {
      // One bad file keeps nobody from leading the others.
      refused_[path] = true;
      problem(why);
      continue;
    }
    if (region->ranks() < 2) {
      refused_[path] = true;
      continue;
    }
    if (is_partial(*region)) continue;
    try {
      const std::uint64_t communicator = region->header().communicator;
      learners_[path] =
          std::make_unique<CallDriver>(std::move(region), learner_options(communicator));
    } catch (const Error& error) {
      refused_[path] = true;
      problem(error.what());
    }
  }
}

void JobLeader::read_facts() {
  auto facts = read_job_facts(folder_, options_.host_facts, watch_.nodes(), watch_.ranks());
  // Until every rank has recorded where it is, the regime is not known; those of other hosts tell
  // nobody here.
  if (!facts || (facts->ranks < watch_.ranks() && facts->nodes <= 1)) return;
  facts_ = std::move(facts);
  if (options_.gloo != nullptr) floor_ = GlooFloor(*options_.gloo, facts_->regime.json);
}

std::string JobLeader::beyond_this_host() const {
  for (const std::string& path : regions_in(folder_)) {
    std::string ignored;
    const auto region = Region::open(path, ignored);
    if (region == nullptr || !is_partial(*region) || region->slot(0).calls.load() == 0) continue;
    const RegionHeader& header = region->header();
    return fmt::format(
        "{} of the {} ranks of communicator {:016x} share the job's folder: the others run on "
        "other "
        "hosts, or do not see it. Settings per call are agreed on within one host, so that its "
        "calls keep NCCL's own choices; launch settings hold for all of its hosts",
        header.claimed.load(), region->ranks(), header.communicator);
  }
  return "";
}

void JobLeader::hear_calls() {
  const std::vector<JobCall>& calls = watch_.calls();
  auto call = std::upper_bound(calls.begin(), calls.end(), heard_until_ns_,
                               [](std::int64_t ns, const JobCall& other) { return ns < other.ns; });
  for (; call != calls.end(); ++call) {
    heard_until_ns_ = call->ns;
    if (call->device_ns == 0) continue;
    for (auto& [path, learner] : learners_)
      if (learner->region().header().communicator == call->communicator)
        learner->hear(call->function, CallTable::bin(call->bytes), call->epoch,
                      Micros(call->device_ns / 1e3));
  }
}

void JobLeader::look() {
  const auto now = Clock::now();
  if (now - looked_ < kLook) return;
  looked_ = now;
  watch_.refresh();
  if (!facts_ && now - facts_read_ > kReadFacts && watch_.ranks() > 0) {
    facts_read_ = now;
    read_facts();
  }
  hear_calls();
  if (watch_.rhythm_changes() != rhythm_changes_) {
    rhythm_changes_ = watch_.rhythm_changes();
    if (options_.on_event)
      options_.on_event("the job's rhythm has changed: settings are searched anew");
    for (auto& [path, learner] : learners_) learner->reopen();
  }
}

bool JobLeader::step() {
  // Whoever made it may be another thread than who leads.
  if (!cpu_began_s_) cpu_began_s_ = thread_cpu_s();
  look();
  if (const std::string replays = watch_.graph_replays(); !replays.empty()) problem(replays);
  if (options_.learn && facts_) meet_regions();
  for (auto& [path, learner] : learners_)
    if (!gone_[path]) gone_[path] = !learner->step();
  const bool none_left =
      !learners_.empty() && std::all_of(learners_.begin(), learners_.end(),
                                        [&](const auto& one) { return gone_.at(one.first); });
  return !(none_left || (learners_.empty() && watch_.over()));
}

bool JobLeader::settled() const {
  bool any = false;
  for (const auto& [path, learner] : learners_) {
    const auto gone = gone_.find(path);
    if (gone != gone_.end() && gone->second) continue;
    // A communicator that hardly calls has nothing to learn.
    if (learner->tasks() == 0) continue;
    any = true;
    if (!learner->finished()) return false;
  }
  return any;
}

std::optional<LedTable> JobLeader::table() const {
  const CallDriver* largest = nullptr;
  for (const auto& [path, learner] : learners_)
    if (learner->tasks() > 0 &&
        (largest == nullptr || learner->region().ranks() > largest->region().ranks()))
      largest = learner.get();
  if (largest == nullptr) return std::nullopt;
  const RegionHeader& header = largest->region().header();
  return LedTable{largest->table(), largest->epoch(),
                  static_cast<unsigned>(largest->region().ranks()), header.nodes,
                  watch_.costs(header.communicator)};
}

std::vector<TableEntry> JobLeader::entries() const {
  std::map<RegimeKey, TableEntry> rows;
  for (const auto& [path, learner] : learners_)
    for (TableEntry& entry : learner->entries()) put_row(rows, std::move(entry));
  std::vector<TableEntry> all;
  for (auto& [key, row] : rows) all.push_back(std::move(row));
  return all;
}

LeaderCost JobLeader::cost() const {
  LeaderCost cost;
  cost.wall_s = std::chrono::duration<double>(Clock::now() - began_).count();
  cost.cpu_s = cpu_began_s_ ? thread_cpu_s() - *cpu_began_s_ : 0;
  double spent_us = 0;
  for (const auto& [path, learner] : learners_) {
    cost.choices += learner->choices();
    spent_us += learner->choice_time().count();
  }
  cost.choice_us = cost.choices > 0 ? spent_us / cost.choices : 0;
  return cost;
}

std::vector<std::string> JobLeader::summary() const {
  std::vector<std::string> lines;
  if (!floor_.empty())
    lines.push_back(
        fmt::format("Gloo's time is known here for {}", counted(floor_.count(), "size")));
  for (const auto& [path, learner] : learners_) {
    if (learner->tasks() == 0) continue;
    lines.push_back(fmt::format(
        "communicator {:016x}, {}: {}, {} tried, which cost {:.0f} ms in all, "
        "{} failed, {}, {} taken back{}{}",
        learner->region().header().communicator, counted(learner->region().ranks(), "rank"),
        counted(learner->tasks(), "size"), counted(learner->rounds(), "setting"),
        learner->lost().count() / 1e3, counted(learner->aborted(), "proposal"),
        counted(learner->alarms(), "alarm"), counted(learner->rolled_back(), "table"),
        learner->above_floor() > 0
            ? fmt::format(", {} left as Gloo takes less than half", learner->above_floor())
            : "",
        learner->finished() ? ", settled" : ""));
  }
  return lines;
}

}  // namespace dynamiccl
