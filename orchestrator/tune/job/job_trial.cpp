#include "orchestrator/tune/job/job_trial.hpp"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/algorithm/string/replace.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <numeric>
#include <thread>

#include "containers/local_ranks.hpp"
#include "containers/owner.hpp"
#include "core/statistics/statistics.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/others_files.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/run/held_folder.hpp"
#include "orchestrator/tune/job/left_ranks.hpp"
#include "orchestrator/tune/job/library_watch.hpp"
#include "profiles/detect/probes/one_host.hpp"
#include "tuner/export/one_host.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kLookEvery = std::chrono::milliseconds(5);
/// Without a GPU no rank of NCCL's comes up; what speaks for one all the same does so at once.
constexpr auto kWithoutGpu = std::chrono::seconds(10);

/// Here, or wherever else the command starts its ranks.
bool gpus_may_be_there(const JobCommand& command) {
  std::error_code ignored;
  return fs::exists("/dev/nvidiactl", ignored) || !goes_elsewhere(command).empty();
}

/// Looks on while the command runs, on a thread of its own.
class Observer {
 public:
  Observer(const std::string& folder, const TrialRequest& request)
      : request_(request), leader_(folder, leader_options(request)) {}

  [[nodiscard]] bool enough() const { return enough_.load(); }
  /// A rank has loaded the plugin.
  [[nodiscard]] bool hears() const { return hears_.load(); }
  void end() { ended_.store(true); }

  void look_on() {
    try {
      while (!ended_.load()) {
        leader_.step();
        hears_.store(leader_.watch().heard());
        if (!enough_.load() && has_enough()) enough_.store(true);
        std::this_thread::sleep_for(kLookEvery);
      }
      leader_.step();
    } catch (const std::exception& error) {
      failure_ = error.what();
      // A job that is accompanied goes on without its leader; a trial without a result is over.
      if (request_.steps != 0) enough_.store(true);
    }
    cost_ = leader_.cost();
  }

  /// After look_on().
  void report(JobTrialResult& result) {
    leader_.watch().refresh();
    result.heard = leader_.watch().heard();
    result.facts = leader_.facts();
    result.cut = cut_;
    const Rhythm rhythm = leader_.watch().rhythm();
    result.calls = leader_.watch().calls().size();
    if (!measured_ && believed()) measured_ = measure(least_steps());
    if (!failure_.empty())
      result.reason = failure_;
    else if (!rhythm.found())
      result.reason = rhythm.reason;
    else if (!is_step())
      result.reason =
          "calls repeated while the job began, and nothing repeats among those that came last";
    else if (!measured_ && !known_step())
      result.reason =
          fmt::format("its calls repeat a sequence of {}, that of the first launch had {}",
                      leader_.watch().step_calls().size(), request_.step_calls.size());
    else if (!measured_ && !believed())
      result.reason = fmt::format(
          "a sequence of {} calls repeats, but not yet often enough to be no part of a longer one",
          rhythm.pattern.size());
    else if (!measured_)
      result.reason = fmt::format("{} steps were seen, {} are needed after the warm-up",
                                  rhythm.timed, least_steps());
    else
      fill(result, rhythm);
    result.decisions = std::move(decisions_);
    result.notes = leader_.summary();
    result.notes.insert(result.notes.end(), leader_.problems().begin(), leader_.problems().end());
    result.beyond_this_host = leader_.beyond_this_host();
    if (!result.beyond_this_host.empty() && request_.learn_at_once)
      result.notes.push_back(result.beyond_this_host);
    result.cost = cost_;
  }

 private:
  JobLeaderOptions leader_options(const TrialRequest& request) {
    JobLeaderOptions options = request.leader;
    options.learn = request.learn_at_once;
    options.start = request.table;
    options.on_decision = [this](const DecisionRecord& record) { decisions_.push_back(record); };
    return options;
  }

  [[nodiscard]] std::size_t least_steps() const {
    return std::max<std::size_t>(3, request_.steps / 2);
  }

  /// A part of a step repeats as well.
  [[nodiscard]] bool known_step() {
    return request_.step_calls.empty() || leader_.watch().step_calls() == request_.step_calls;
  }
  /// Where nothing is known of the job's step, it must be heard for a while.
  [[nodiscard]] bool believed() {
    return !request_.step_calls.empty() || leader_.watch().confirmed();
  }

  /// And for some seconds: alike layers of one long step, or a job's start, go by in less. A
  /// sequence that something interrupts now and then may be a part of a longer one.
  [[nodiscard]] bool has_lasted() {
    if (!request_.step_calls.empty()) return true;
    if (const auto calls = leader_.watch().step_calls(); calls != believed_calls_) {
      believed_calls_ = calls;
      believed_since_ = Clock::now();
    }
    const std::size_t interruptions = leader_.watch().interruptions();
    const bool doubtful = interruptions > 0 && interruptions < kEnoughToRepeat;
    return Clock::now() - believed_since_ >= (doubtful ? kLongestLook : kLeastLook);
  }

  /// Copies alone are how jobs begin: they are steps where nothing else followed.
  [[nodiscard]] bool is_step() {
    return leader_.watch().reduces() || leader_.watch().ends_in_steps();
  }

  /// Steps after the warm-up, under the table from the start.
  std::optional<std::vector<double>> measure(std::size_t least) {
    if (!known_step()) return std::nullopt;
    std::vector<double> times = leader_.watch().step_times();
    if (times.size() < request_.warmup + least) return std::nullopt;
    times.erase(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(request_.warmup));
    step_calls_ = leader_.watch().step_calls();
    return times;
  }

  /// Not even the shortest of the first steps can win: further ones would say nothing new.
  bool is_hopeless() {
    if (request_.step_calls.empty() || !leader_.watch().reduces()) return false;
    auto first = measure(kFirstSteps);
    if (!first || std::accumulate(first->begin(), first->end(), 0.0) < kLeastUs / 2) return false;
    if (*std::min_element(first->begin(), first->end()) < request_.hopeless_from.count())
      return false;
    measured_ = std::move(first);
    return true;
  }

  [[nodiscard]] bool is_time_to_look() {
    if (Clock::now() - looked_ < std::chrono::milliseconds(50)) return false;
    looked_ = Clock::now();
    return true;
  }

  bool has_enough() {
    const double elapsed = std::chrono::duration<double>(Clock::now() - began_).count();
    if (request_.whole) return cut_ = elapsed * 1e6 >= request_.hopeless_from.count();
    if (request_.steps == 0) {
      // Where nothing is learnt nobody else looks for the step before the job is over, and a
      // sequence that is first found then has outlived nothing. What was found before may be of
      // the job's start.
      if (is_time_to_look()) static_cast<void>(leader_.watch().rhythm());
      return false;
    }
    if (!measured_) {
      if (!is_time_to_look()) return false;
      if (is_hopeless()) return cut_ = true;
      const auto times = leader_.watch().step_times();
      const bool lasted = has_lasted();
      // Copies alone are how jobs begin; so are a few calls in a moment.
      const bool training = leader_.watch().reduces();
      const double heard_us = std::accumulate(times.begin(), times.end(), 0.0);
      if (!training || times.size() < request_.warmup + request_.steps || heard_us < kLeastUs)
        return false;
      if (!lasted || !believed()) return false;
      if (request_.step_calls.empty() && leader_.watch().outgrown()) return false;
      measured_ = measure(least_steps());
      if (!measured_) return false;
      if (request_.learn_seconds <= 0 || median(*measured_) >= request_.hopeless_from.count())
        return true;
      leader_.begin_learning();
      learning_since_ = Clock::now();
      return false;
    }
    const double learning = std::chrono::duration<double>(Clock::now() - learning_since_).count();
    if (elapsed > request_.seconds || learning > request_.learn_seconds + kPatience) return true;
    const auto table = leader_.table();
    if (!leader_.settled() && learning < request_.learn_seconds) return false;
    // Steps under what was learnt, for as long as a measurement takes.
    const auto reading = table ? leader_.watch().reading(table->epoch) : std::nullopt;
    return reading && reading->steps >= request_.steps;
  }

  void fill(JobTrialResult& result, const Rhythm& rhythm) {
    result.step_us = *measured_;
    result.step = Micros(median(result.step_us));
    result.spread = 1.4826 * median_absolute_deviation(result.step_us) / result.step.count();
    result.calls_per_step = step_calls_.size();
    result.step_calls = step_calls_;
    result.by_pauses = rhythm.by_pauses;
    result.mix = leader_.watch().mix();
    result.origin = origin();
    const auto table = leader_.table();
    if (!table) return;
    result.settled = leader_.settled();
    result.entries = leader_.entries();
    const auto reading = leader_.watch().reading(table->epoch);
    if (!reading || reading->steps < least_steps() || table->table == request_.table) return;
    result.learnt_step = reading->step;
    if (reading->step.count() > result.step.count()) return;
    result.learnt = table->table;
    result.origin.ranks = table->ranks;
    result.origin.nodes = table->nodes;
    result.origin.made.costs = table->costs;
  }

  [[nodiscard]] TableOrigin origin() {
    const JobWatch& watch = leader_.watch();
    TableOrigin origin{
        static_cast<unsigned>(watch.ranks()), static_cast<unsigned>(watch.nodes()), {}};
    origin.made.costs = watch.costs(watch.largest());
    if (const auto& facts = leader_.facts()) {
      origin.made.nccl = facts->nccl_release();
      origin.made.gpu = facts->gpu;
    }
    return origin;
  }

  static constexpr std::size_t kFirstSteps = 3;  ///< after which a launch may be hopeless
  static constexpr double kPatience = 5;
  static constexpr double kLeastUs = 0.5e6;  ///< that the steps take together
  static constexpr auto kLeastLook = std::chrono::seconds(2);
  static constexpr auto kLongestLook = std::chrono::seconds(10);
  static constexpr std::size_t kEnoughToRepeat = 6;  ///< for a longer sequence to have been found
  const TrialRequest& request_;
  std::vector<DecisionRecord> decisions_;
  JobLeader leader_;
  std::optional<std::vector<double>> measured_;
  JobWatch::StepCalls step_calls_;  ///< of the steps that were measured
  JobWatch::StepCalls believed_calls_;
  Clock::time_point believed_since_;  ///< when that was first taken for the job's step
  LeaderCost cost_;
  std::string failure_;
  Clock::time_point began_ = Clock::now();
  Clock::time_point looked_{};
  Clock::time_point learning_since_{};
  bool cut_ = false;
  std::atomic<bool> enough_{false};
  std::atomic<bool> hears_{false};
  std::atomic<bool> ended_{false};
};

std::map<std::string, std::string> conf_of(const JobCommand& command, const TrialRequest& request,
                                           const HeldFolder& folder) {
  std::map<std::string, std::string> conf = request.variables;
  conf.erase("LD_PRELOAD");
  conf["NCCL_TUNER_PLUGIN"] = command.plugin;
  conf["NCCL_PROFILER_PLUGIN"] = command.plugin;
  conf["DYNAMICCL_TUNER_FOLDER"] = folder.path();
  if (!request.times_calls) conf["DYNAMICCL_PROFILE_EVENTS"] = "calls";
  if (!(request.table == CallTable{})) {
    const TableOrigin& origin = request.origin;
    folder.write("nccl.table",
                 to_text(call_rows(request.table, origin.ranks, origin.nodes), origin.made));
    conf["DYNAMICCL_TUNER_TABLE"] = folder.path() + "/nccl.table";
  }
  return conf;
}

/// Who may write to a launch's folder can mislead the tuner, and end it and the ranks by cutting
/// what they map there. Ranks of a container may run as another user; for others, who wants them
/// opens the folder above.
bool serves_other_users(const JobCommand& command) {
  return !goes_elsewhere(command).empty() || command.launches.is_open_to_all();
}

/// What ranks wrote in an earlier search is not of this one's ranks: their files lie there still,
/// as do streams and regions of a search that was killed.
void forget_earlier(const std::string& folder) {
  std::error_code problem;
  std::vector<fs::path> told;
  for (fs::directory_iterator at(folder, problem), end; !problem && at != end;
       at.increment(problem)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("rank-") || name.starts_with("calls-") || name.starts_with("comm-"))
      told.push_back(at->path());
  }
  for (const fs::path& path : told) fs::remove(path, problem);
}

/// A folder with less tells nothing of a job's calls: half a megabyte for each rank and
/// communicator.
constexpr std::uintmax_t kLeastSpace = std::uintmax_t{4} << 20;
constexpr std::uintmax_t kLeastOfRank = std::uintmax_t{512} << 10;

std::uintmax_t free_space(const HeldFolder& folder) {
  struct statvfs space {};
  // A file system that does not tell is not full.
  if (fstatvfs(folder.descriptor(), &space) != 0) return std::numeric_limits<std::uintmax_t>::max();
  return std::uintmax_t{space.f_bavail} * space.f_frsize;
}

std::string no_space(const HeldFolder& folder) {
  return fmt::format(
      "{}: {} are free there, too little for what the ranks tell of their calls (half a megabyte "
      "for each of them and communicator); free some space, or choose another place with --out",
      folder.path(), format_bytes(Bytes(free_space(folder))));
}

void require_space(const HeldFolder& folder) {
  if (free_space(folder) < kLeastSpace) throw Error(ErrorKind::environment, no_space(folder));
}

void explain(const ProcessOutcome& outcome, JobTrialResult& result) {
  const ProcessResult& process = outcome.results.front();
  result.exit_code = process.signal != 0 ? 128 + process.signal : process.exit_code;
  result.interrupted_by = outcome.interrupted_by;
  result.seconds = outcome.duration.count() / 1e6;
  result.output = process.stderr_tail;
  if (!outcome.left_over.empty() && !outcome.ended_early && !outcome.timed_out)
    result.notes.push_back("processes outlived the command and were ended: " +
                           join(outcome.left_over, ", "));
  if (!process.start_error.empty()) {
    result.started = false;
    result.reason = "the command could not be started: " + process.start_error;
    return;
  }
  result.ended_itself = !outcome.ended_early && !outcome.timed_out && outcome.interrupted_by == 0;
  if (outcome.interrupted_by != 0) result.reason = "interrupted";
  if (result.ended_itself && result.exit_code != 0)
    result.reason = fmt::format("the command ended with exit code {}", result.exit_code);
}

void add_preload(const std::string& library, Command& job) {
  if (library.empty()) return;
  const char* others = std::getenv("LD_PRELOAD");
  const bool alone = others == nullptr || *others == '\0';
  job.environment["LD_PRELOAD"] = alone ? library : fmt::format("{}:{}", library, others);
}

/// How the ranks get a launch's settings and tell what they call: by files of NCCL's, or by their
/// variables and a library that watches what they call of MPI.
void equip(const JobCommand& command, const TrialRequest& request, const HeldFolder& folder,
           Command& job) {
  if (request.library == Backend::nccl) {
    command.launches.write(
        "nccl.conf", conf_text(conf_of(command, request, folder), users_conf(request.steps == 0)));
    job.environment["NCCL_CONF_FILE"] = command.launches.path() + "/nccl.conf";
    // The loader reads no file of NCCL's.
    const auto library = request.variables.find("LD_PRELOAD");
    add_preload(library == request.variables.end() ? "" : library->second, job);
    return;
  }
  for (const auto& [name, value] : request.variables) job.environment[name] = value;
  if (!backend_facts(request.library).is_mpi) return;
  job.environment["DYNAMICCL_MPI_FOLDER"] = folder.path();
  add_preload(command.mpi_watcher(), job);
}

/// Where the whole command stands for the step.
void judge_whole(const TrialRequest& request, JobTrialResult& result) {
  if (!request.whole || !result.started || result.interrupted_by != 0 || result.failed()) return;
  // What was cut takes as long as that at least.
  if (result.ended_itself || result.cut)
    take_whole(result);
  else
    result.reason = fmt::format("the command did not end within {:.0f} s", request.seconds);
}

}  // namespace

JobTrialResult run_trial(const JobCommand& command, const TrialRequest& request,
                         const std::function<void(const std::string&)>& on_output) {
  command.out.require_same();
  command.launches.require_same();
  require_space(command.launches);
  constexpr mode_t kOpenToAll = 01777;
  constexpr mode_t kOwn = 0700;
  const HeldFolder folder = command.launches.below(fmt::format("launch-{:03}", request.number),
                                                   serves_other_users(command) ? kOpenToAll : kOwn);
  forget_earlier(folder.held());
  // In memory, it goes with the machine's next start.
  if (request.variables.contains(kOneHostFolder)) make_one_host_folder(command);
  Command job{command.argv, command.environment};
  equip(command, request, folder, job);
  JobTrialResult result;
  Observer observer(folder.held(), request);
  std::thread looking([&] { observer.look_on(); });
  ProcessOptions options;
  options.timeout = Micros(request.seconds * 1e6);
  options.marker = random_uuid();
  options.keeps_none = request.steps != 0;
  // What a killed tuner leaves of a trial `clean` ends; a job that it accompanies is the user's.
  if (request.steps != 0)
    for (const auto& [name, value] : rank_marks("trial-" + options.marker, owner_token()))
      job.environment[name] = value;
  const bool by_nccl = request.library == Backend::nccl;
  LibraryWatch libraries(options.marker, gpus_may_be_there(command));
  const auto began = Clock::now();
  const bool may_be_heard = !by_nccl || request.steps == 0 || gpus_may_be_there(command);
  options.enough = [&] {
    if (!observer.hears()) {
      result.disk_full = free_space(command.launches) < kLeastOfRank;
      if (by_nccl && request.steps != 0) result.speaks = libraries.sure();
      result.without_gpu = !may_be_heard && Clock::now() - began > kWithoutGpu;
    }
    return result.disk_full || result.without_gpu || result.speaks || observer.enough();
  };
  options.on_stderr = options.on_stdout = on_output;
  const ProcessOutcome outcome = run_processes({job}, options);
  observer.end();
  looking.join();
  observer.report(result);
  explain(outcome, result);
  if (by_nccl && !result.heard && !result.speaks) result.speaks = libraries.seen();
  judge_whole(request, result);
  if (result.disk_full) result.reason = no_space(command.launches);
  if (!result.heard && !result.whole && result.reason.empty())
    result.reason = by_nccl ? "no rank loaded the plugin" : "no rank recorded what it calls";
  // A job that is accompanied ends when its own starter says so.
  if (request.steps != 0)
    if (const auto left = end_ranks_of(folder.path(), folder.held()); !left.empty())
      result.notes.push_back("ranks outlived the command and were ended: " + join(left, ", "));
  // Half a megabyte per rank and communicator: what was written is taken in.
  std::error_code ignored;
  for (const std::string& stream : call_streams_in(folder.held())) fs::remove(stream, ignored);
  for (const std::string& region : regions_in(folder.held())) fs::remove(region, ignored);
  // Leaders name files by the folder that is held open; users know it by its path.
  for (std::string& note : result.notes) boost::replace_all(note, folder.held(), folder.path());
  return result;
}

namespace {

constexpr const char* kWritten = "# Written by dynamiccl";
constexpr const char* kUsersPart = "# What NCCL would have read without it:";

/// Settings that an earlier `tune` wrote are what is tuned, not what the user has set himself.
std::string_view without_ours(std::string_view text) {
  const std::string mark = std::string("\n") + kUsersPart + "\n";
  while (text.starts_with(kWritten)) {
    const auto users = text.find(mark);
    text = users == std::string_view::npos ? "" : text.substr(users + mark.size());
  }
  return text;
}

}  // namespace

std::string conf_text(const std::map<std::string, std::string>& ours,
                      const std::string& users_text) {
  std::string text = std::string(kWritten) + "; the first value of a name counts.\n";
  for (const auto& [name, value] : ours) text += name + "=" + value + "\n";
  if (!users_text.empty()) text += std::string(kUsersPart) + "\n" + users_text + "\n";
  return text;
}

void take_whole(JobTrialResult& result) {
  result.whole = true;
  result.reason.clear();
  result.step = Micros(result.seconds * 1e6);
  result.step_us = {result.step.count()};
  result.spread = 0;
  result.calls_per_step = result.calls;
  result.step_calls.clear();
}

std::string JobCommand::mpi_watcher() const {
  return (fs::path(plugin).parent_path() / "libdynamiccl-mpi-watch.so").string();
}

std::string JobCommand::one_host_library() const {
  return (fs::path(plugin).parent_path() / kOneHostLibrary).string();
}

std::string JobCommand::one_host_folder() const {
  const char* named = std::getenv(kOneHostFolder);
  const bool usual = named == nullptr || *named == '\0';
  const std::string folder = usual ? out.path() + "/" + kOneHostBelow : named;
  if (folder.find_first_of("\n\r") == std::string::npos) return folder;
  throw Error(ErrorKind::input,
              fmt::format("{} names a folder of several lines: a file of NCCL's has one for it; "
                          "name another",
                          kOneHostFolder));
}

void make_one_host_folder(const JobCommand& command) {
  if (command.one_host_folder() != command.out.path() + "/" + kOneHostBelow) return;
  // Root's may serve ranks of any user.
  static_cast<void>(command.out.below(kOneHostBelow, geteuid() == 0 ? 01777 : 0700));
}

std::string users_conf_path() {
  const char* named = std::getenv("NCCL_CONF_FILE");
  const char* home = std::getenv("HOME");
  return named != nullptr && *named != '\0' ? named
         : home != nullptr                  ? std::string(home) + "/.nccl.conf"
                                            : "";
}

std::string users_conf(bool whole) {
  const std::string path = users_conf_path();
  // NCCL would read no settings there either.
  if (path == "/dev/null") return "";
  require_whole_file(path);
  const std::string text = file_text(path);
  return whole ? text : std::string(without_ours(text));
}

bool users_conf_is_tuned() { return users_conf(true).starts_with(kWritten); }

std::string goes_elsewhere(const JobCommand& command) {
  const std::string program = fs::path(command.argv.front()).filename().string();
  const std::string conf = command.launches.path() + "/nccl.conf";
  // What is found is read from next to the launches.
  const std::string& shared = command.out.path();
  if (program == "docker" || program == "podman")
    return fmt::format(
        "`{} run` needs {} {} --env NCCL_CONF_FILE={}; `{} exec` the last of them, in containers "
        "that have the volumes",
        program, volume_option(shared), volume_option(command.plugin, "", true), shell_quote(conf),
        program);
  if (program == "ssh" || program == "kubectl" || program == "srun")
    return fmt::format(
        "{} must pass NCCL_CONF_FILE={}, and {} and {} must be on every host under these names",
        program, conf, shared, command.plugin);
  return "";
}

}  // namespace dynamiccl
