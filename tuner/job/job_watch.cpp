#include "tuner/job/job_watch.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/statistics/statistics.hpp"
#include "plugin/agreement/region.hpp"

namespace dynamiccl {
namespace {

/// Calls of a process that are kept; older ones no longer say how the job is now.
constexpr std::size_t kKept = 32768;
/// Among how many of the last calls a rhythm is looked for.
constexpr std::size_t kSearched = 8192;
constexpr std::size_t kMostProblems = 16;

std::vector<RhythmCall> as_rhythm(const std::vector<JobCall>& calls) {
  std::vector<RhythmCall> heard;
  heard.reserve(calls.size());
  for (const JobCall& call : calls) heard.push_back({call.ns, call.kind});
  return heard;
}

/// The last `most` calls, of one communicator or of all.
std::vector<JobCall> last_calls(const std::vector<JobCall>& calls, std::size_t most,
                                std::optional<std::uint64_t> communicator) {
  std::vector<JobCall> last;
  for (auto call = calls.rbegin(); call != calls.rend() && last.size() < most; ++call)
    if (!communicator || call->communicator == *communicator) last.push_back(*call);
  std::reverse(last.begin(), last.end());
  return last;
}

/// The communicator with the most bytes.
std::uint64_t busiest(const std::vector<JobCall>& calls) {
  std::map<std::uint64_t, std::uint64_t> bytes;
  for (const JobCall& call : calls) bytes[call.communicator] += call.bytes + 1;
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? 0 : most->first;
}

/// Whether what came last still belongs to steps: a job's start may have a rhythm of its own.
bool still_repeats(const std::vector<JobCall>& calls, const Rhythm& rhythm) {
  if (rhythm.steps.empty()) return false;
  const std::size_t end = rhythm.steps.back().first + rhythm.pattern.size();
  return calls.size() - end < std::max<std::size_t>(2 * rhythm.pattern.size(), 32);
}

bool same_up_to_rotation(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  if (a.size() != b.size()) return false;
  std::vector<std::uint32_t> twice = a;
  twice.insert(twice.end(), a.begin(), a.end());
  return std::search(twice.begin(), twice.end(), b.begin(), b.end()) != twice.end();
}

}  // namespace

void JobWatch::take(Told& told) {
  const CallStreamHeader& header = told.stream->header();
  Process& process = processes_[header.process_key];
  if (header.ranks > process.largest) {
    process.largest = header.ranks;
    process.rank = header.rank;
  }
  for (const CallRecord& record : told.stream->read(told.next)) {
    if (record.function == kCallFunctions || record.function >= told_end) continue;
    const auto key = std::tuple(header.communicator, record.function, record.bytes);
    const auto kind =
        kinds_.try_emplace(key, static_cast<std::uint32_t>(kinds_.size())).first->second;
    process.calls.push_back({record.host_ns, header.communicator, record.bytes, record.device_ns,
                             record.epoch, kind, record.function, record.algorithm, record.protocol,
                             record.channels});
    ++process.heard;
  }
}

void JobWatch::refresh() {
  for (const std::string& path : call_streams_in(folder_)) {
    if (streams_.contains(path)) continue;
    std::string problem;
    std::unique_ptr<CallStream> stream = CallStream::open(path, problem);
    if (stream == nullptr) {
      if (problems_.size() < kMostProblems &&
          std::find(problems_.begin(), problems_.end(), problem) == problems_.end())
        problems_.push_back(problem);
      continue;
    }
    streams_[path] = {std::move(stream), 0};
  }
  for (auto& [path, told] : streams_) take(told);
  for (auto& [key, process] : processes_) {
    // Recorded when they end, which is not the order in which they were started.
    std::sort(process.calls.begin(), process.calls.end(),
              [](const JobCall& a, const JobCall& b) { return a.ns < b.ns; });
    if (process.calls.size() > 2 * kKept)
      process.calls.erase(process.calls.begin(),
                          process.calls.end() - static_cast<std::ptrdiff_t>(kKept));
  }
}

bool JobWatch::over() const {
  return !streams_.empty() && std::all_of(streams_.begin(), streams_.end(), [](const auto& told) {
    return told.second.stream->header().closed.load(std::memory_order_acquire) != 0;
  });
}

const JobWatch::Process* JobWatch::listened() const {
  const Process* best = nullptr;
  for (const auto& [key, process] : processes_)
    if (best == nullptr || process.largest > best->largest ||
        (process.largest == best->largest && process.rank < best->rank))
      best = &process;
  return best;
}

const std::vector<JobCall>& JobWatch::calls() const {
  static const std::vector<JobCall> kNone;
  const Process* process = listened();
  return process == nullptr ? kNone : process->calls;
}

const Rhythm& JobWatch::rhythm() {
  const Process* process = listened();
  if (process == nullptr) {
    rhythm_.reason = "no rank has reported a call";
    return rhythm_;
  }
  if (process->heard == rhythm_heard_) return rhythm_;
  rhythm_heard_ = process->heard;
  if (rhythm_.found()) {
    std::vector<JobCall> last = last_calls(process->calls, kSearched, only_);
    Rhythm followed = follow_rhythm(as_rhythm(last), rhythm_.pattern);
    holds_ = still_repeats(last, followed);
    if (holds_) {
      rhythm_ = std::move(followed);
      rhythm_calls_ = std::move(last);
      // More calls may show that what repeats is a part of a longer sequence.
      const bool whole = searched_heard_ >= kSearched;
      const bool outlived = calls_since_adoption(*process) >= adopted_calls_;
      if (outlived && !confirmed_) {
        searched_heard_ = process->heard;
        // Unless what is found now is another.
        confirmed_ = true;
        search_rhythm(*process);
        return rhythm_;
      }
      if (whole || process->heard < searched_heard_ + searched_heard_ / 2) return rhythm_;
    }
  }
  // Looking for it costs milliseconds: not again for every call.
  if (searched_heard_ != 0 && process->heard < searched_heard_ + searched_heard_ / 8)
    return rhythm_;
  searched_heard_ = process->heard;
  search_rhythm(*process);
  return rhythm_;
}

void JobWatch::search_rhythm(const Process& process) {
  Rhythm found;
  for (const auto& only : {std::optional<std::uint64_t>{}, std::optional(busiest(process.calls))}) {
    std::vector<JobCall> last = last_calls(process.calls, kSearched, only);
    found = find_rhythm(as_rhythm(last));
    if (!found.found()) continue;
    const bool same = rhythm_.found() && same_up_to_rotation(found.pattern, rhythm_.pattern);
    // What still goes on gives way to what it is a part of alone.
    if (holds_ && rhythm_.found() && (same || found.pattern.size() <= rhythm_.pattern.size()))
      return;
    if (rhythm_.found() && !same && !holds_) ++rhythm_changes_;
    // For as long again as from its first step on: what a job begins with is no evidence.
    if (!same) {
      adopted_ns_ = last.back().ns;
      adopted_calls_ = last.size() - found.steps.front().first;
      confirmed_ = false;
    }
    holds_ = still_repeats(last, found);
    rhythm_ = std::move(found);
    rhythm_calls_ = std::move(last);
    only_ = only;
    return;
  }
  if (!rhythm_.found()) rhythm_ = std::move(found);
}

bool JobWatch::outgrown() {
  const Process* process = listened();
  if (process == nullptr || !rhythm_.found() || process->heard == searched_heard_) return false;
  const auto before = rhythm_.pattern;
  searched_heard_ = process->heard;
  search_rhythm(*process);
  return !same_up_to_rotation(before, rhythm_.pattern);
}

std::size_t JobWatch::calls_since_adoption(const Process& process) const {
  std::size_t since = 0;
  for (auto call = process.calls.rbegin();
       call != process.calls.rend() && call->ns > adopted_ns_ && since < adopted_calls_; ++call)
    if (!only_ || call->communicator == *only_) ++since;
  return since;
}

bool JobWatch::confirmed() const { return rhythm_.found() && holds_ && confirmed_; }

std::size_t JobWatch::interruptions() const {
  std::size_t count = 0;
  for (std::size_t i = 1; i < rhythm_.steps.size(); ++i)
    if (rhythm_.steps[i - 1].first + rhythm_.pattern.size() != rhythm_.steps[i].first) ++count;
  return count;
}

JobWatch::StepCalls JobWatch::step_calls() const {
  StepCalls calls;
  if (rhythm_.steps.empty()) return calls;
  for (std::size_t k = 0; k < rhythm_.pattern.size(); ++k) {
    const JobCall& call = rhythm_calls_[rhythm_.steps.front().first + k];
    calls.emplace_back(call.function, call.bytes);
  }
  std::sort(calls.begin(), calls.end());
  return calls;
}

bool JobWatch::ends_in_steps() const {
  if (rhythm_.steps.empty()) return false;
  const std::size_t end = rhythm_.steps.back().first + rhythm_.pattern.size();
  return holds_ && rhythm_calls_.size() - end < rhythm_.pattern.size();
}

bool JobWatch::reduces() const {
  constexpr std::size_t kReduce = 1, kReduceScatter = 3, kAllReduce = 4;
  for (const auto& [key, kind] : kinds_) {
    const std::size_t function = std::get<1>(key);
    // What else MPI does but wait is no start's copy of a weight either.
    const bool sums = function == kReduce || function == kReduceScatter || function == kAllReduce ||
                      (function > kCallFunctions && function != told_barrier);
    if (sums &&
        std::find(rhythm_.pattern.begin(), rhythm_.pattern.end(), kind) != rhythm_.pattern.end())
      return true;
  }
  return false;
}

std::vector<double> JobWatch::times_under(std::uint32_t epoch) {
  const Rhythm& rhythm = this->rhythm();
  std::vector<double> times;
  if (!rhythm.found()) return times;
  for (const RhythmStep& step : rhythm.steps) {
    if (!(step.time.count() > 0)) continue;
    bool whole = true;
    for (std::size_t k = 0; k < rhythm.pattern.size() && whole; ++k)
      whole = rhythm_calls_[step.first + k].epoch == epoch;
    if (whole) times.push_back(step.time.count());
  }
  // The first step under a table connects what it needs.
  if (!times.empty()) times.erase(times.begin());
  return times;
}

std::optional<StepReading> JobWatch::reading(std::uint32_t epoch) {
  const std::vector<double> times = times_under(epoch);
  if (times.empty()) return std::nullopt;
  const double middle = median(times);
  return StepReading{times.size(), Micros(middle),
                     1.4826 * median_absolute_deviation(times) / middle};
}

std::optional<Micros> JobWatch::recent_step(std::uint32_t epoch) {
  constexpr std::ptrdiff_t kLast = 5;
  const std::vector<double> times = times_under(epoch);
  if (!holds_ || std::ssize(times) < kLast) return std::nullopt;
  return Micros(median({times.end() - kLast, times.end()}));
}

std::optional<Micros> JobWatch::latest_step() {
  const Rhythm& rhythm = this->rhythm();
  if (!rhythm.found() || rhythm.steps.empty()) return std::nullopt;
  std::int64_t ended_ns = 0;
  Micros whole;
  for (auto step = rhythm.steps.rbegin(); step != rhythm.steps.rend() && ended_ns == 0; ++step) {
    if (!(step->time.count() > 0)) continue;
    whole = step->time;
    ended_ns = rhythm_calls_[step->first].ns + static_cast<std::int64_t>(whole.count() * 1e3);
  }
  if (ended_ns == 0) return std::nullopt;
  const Micros under_way(static_cast<double>(rhythm_calls_.back().ns - ended_ns) / 1e3);
  return std::max(whole, under_way);
}

std::vector<double> JobWatch::step_times() {
  std::vector<double> times;
  for (const RhythmStep& step : rhythm().steps)
    if (step.time.count() > 0) times.push_back(step.time.count());
  return times;
}

std::vector<MixEntry> JobWatch::mix() {
  std::map<std::uint64_t, int> ranks;
  for (const auto& [path, told] : streams_)
    ranks[told.stream->header().communicator] = told.stream->header().ranks;
  std::map<std::uint32_t, MixEntry> by_kind;
  for (const JobCall& call : calls()) {
    MixEntry& entry = by_kind[call.kind];
    entry.communicator = call.communicator;
    entry.ranks = ranks[call.communicator];
    entry.function = call.function;
    entry.bytes = call.bytes;
    ++entry.calls;
    if (call.device_ns == 0) continue;
    ++entry.timed;
    entry.device_us += call.device_ns / 1e3;
  }
  for (const std::uint32_t kind : rhythm().pattern) by_kind[kind].per_step += 1;
  std::vector<MixEntry> entries;
  for (auto& [kind, entry] : by_kind) entries.push_back(entry);
  return entries;
}

std::optional<std::array<float, kPredictions>> JobWatch::predicted(std::uint64_t communicator,
                                                                   std::size_t function,
                                                                   std::size_t bin) const {
  for (const auto& [path, told] : streams_) {
    const CallStreamHeader& header = told.stream->header();
    if (header.communicator == communicator &&
        (header.known[function].load(std::memory_order_acquire) >> bin & 1) != 0)
      return header.predicted[function][bin];
  }
  return std::nullopt;
}

std::vector<CallCost> JobWatch::costs(std::uint64_t communicator) const {
  std::vector<CallCost> costs;
  for (std::size_t function = 0; function < kCallFunctions; ++function)
    for (std::size_t bin = 0; bin < kCallBins; ++bin)
      if (const auto expected = predicted(communicator, function, bin))
        if (const auto cost = witness_cost(function, bin, *expected)) costs.push_back(*cost);
  return costs;
}

std::uint64_t JobWatch::largest() const {
  std::uint64_t found = 0;
  std::uint64_t most = 0;
  for (const auto& [path, told] : streams_) {
    const CallStreamHeader& header = told.stream->header();
    const std::uint64_t decided = header.decided.load(std::memory_order_relaxed);
    if (header.ranks != ranks() || (found != 0 && decided <= most)) continue;
    found = header.communicator;
    most = decided;
  }
  return found;
}

std::uint32_t JobWatch::possible(std::size_t function) const {
  std::uint32_t mask = 0;
  for (const auto& [path, told] : streams_) {
    const CallStreamHeader& header = told.stream->header();
    const std::uint64_t known = header.known[function].load(std::memory_order_acquire);
    for (std::size_t bin = 0; bin < kCallBins; ++bin)
      for (std::size_t i = 0; (known >> bin & 1) != 0 && i < kPredictions; ++i)
        if (header.predicted[function][bin][i] >= 0.0F) mask |= std::uint32_t{1} << i;
  }
  return mask;
}

std::string JobWatch::graph_replays() {
  const Process* process = listened();
  if (process == nullptr) return "";
  std::uint64_t decided = 0;
  for (const auto& [path, told] : streams_)
    decided += told.stream->header().decided.load(std::memory_order_relaxed);
  if (decided != decided_) {
    decided_ = decided;
    decided_ns_ = monotonic_ns();
  }
  // Without the tuner half nobody asks at all. Calls of one group are decided together and recorded
  // one by one, so that many calls without a question are ordinary, whole steps for a while are
  // not.
  constexpr std::int64_t kWhileNs = 300'000'000;
  if (monotonic_ns() - decided_ns_ < kWhileNs) return "";
  // A job's weights are handed out in one large group, after the question for it.
  if (rhythm().found() && !reduces()) return "";
  constexpr std::uint64_t kSteps = 3;
  constexpr std::uint64_t kWithoutRhythm = 4096;
  // By when they were started: a GPU ends what its host asked for long before.
  std::uint64_t unasked = 0;
  for (auto call = process->calls.rbegin(); call != process->calls.rend() && call->ns > decided_ns_;
       ++call)
    ++unasked;
  const std::uint64_t most =
      rhythm().found() ? kSteps * rhythm_.pattern.size() + 8 : kWithoutRhythm;
  if (decided == 0 || unasked <= most) return "";
  return fmt::format(
      "NCCL has made {} calls since it last asked for settings: they are replayed from captured "
      "CUDA graphs, which keep the settings of their capture",
      unasked);
}

int JobWatch::ranks() const {
  const Process* process = listened();
  return process == nullptr ? 0 : process->largest;
}

int JobWatch::nodes() const {
  int most = 0;
  for (const auto& [path, told] : streams_)
    if (told.stream->header().ranks == ranks()) most = std::max(most, told.stream->header().nodes);
  return most;
}

}  // namespace dynamiccl
