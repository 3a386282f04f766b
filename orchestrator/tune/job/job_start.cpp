// What a search of a job begins with: its first launch, whether it can be tuned, and its settings.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/tune/job/job_tuning.hpp"
#include "orchestrator/tune/job/job_words.hpp"
#include "orchestrator/tune/job/library_watch.hpp"
#include "profiles/detect/facts.hpp"
#include "profiles/detect/probes/meeting_folder.hpp"
#include "profiles/detect/probes/one_host.hpp"
#include "tuner/export/one_host.hpp"
#include "tuner/job/mpi_space.hpp"
#include "tuner/state/state_from_regime.hpp"

namespace dynamiccl {
namespace {

/// What ranks need that are not started here, or not as this user.
std::string of_elsewhere(const JobCommand& command) {
  if (const std::string flags = goes_elsewhere(command); !flags.empty()) return "\n" + flags;
  if (geteuid() != 0) return "";
  return fmt::format(
      "\nRanks that run as another user may write there after `chmod 1777 {}` alone, as may "
      "every user of this machine then",
      command.launches.path());
}

/// How the command is launched may bind its ranks, unless its line says so itself.
bool may_bind(const std::vector<std::string>& argv) {
  if (!is_mpi_launcher(argv.front())) return false;
  return std::none_of(argv.begin(), argv.end(), [](const std::string& word) {
    for (const char* own : {"-bind-to", "-map-by", "-rankfile", "-cpu-set", "-cpu-list"})
      if (word.find(own) != std::string::npos) return true;
    return word == "-rf" || word == "hwloc_base_binding_policy";
  });
}

}  // namespace

void JobTuning::require_tunable(const JobTrialResult& seen) const {
  const std::string end = last_line(seen.output);
  const std::string said = end.empty() ? "" : "\nits last line on stderr: " + end;
  if (!seen.started) throw Error(ErrorKind::input, seen.reason);
  if (seen.disk_full) throw Error(ErrorKind::environment, seen.reason);
  if (!seen.ok() && seen.failed())
    throw Error(
        ErrorKind::input,
        fmt::format("the command failed by itself (exit code {}, after {:.1f} s), before {}{}"
                    "\nStart it without `dynamiccl tune --` until it runs; it gets no input "
                    "here",
                    seen.exit_code, seen.seconds,
                    seen.heard ? "enough of its steps were seen" : "any rank had loaded the plugin",
                    said));
  if (!seen.heard)
    throw Error(
        ErrorKind::input,
        fmt::format(
            "the command ran for {:.0f} s and no rank of it loaded the plugin, so nothing is known "
            "of its calls{}{}\nIt must use NCCL 2.23 or later (earlier ones read no "
            "NCCL_CONF_FILE), reach its first collective within --trial-seconds, and see {} and "
            "{}; NCCL_DEBUG=INFO shows whether NCCL read the file and found the plugin{}\nOf a job "
            "that communicates by MPI or Gloo no rank was seen that had such a library loaded from "
            "a file of its own; one of Gloo, whose calls nobody can watch, is judged by the time "
            "of the whole command, with `tune --whole -- COMMAND`",
            seen.seconds,
            seen.without_gpu ? "; no GPU is here, so it was not waited for until --trial-seconds"
                             : "",
            said, command_.launches.path(), command_.plugin, of_elsewhere(command_)));
  for (const std::string& note : seen.notes)
    if (note.find("CUDA graphs") != std::string::npos)
      throw Error(ErrorKind::input, note +
                                        "; run the job without graph capture to tune it, its "
                                        "settings then hold for the captured calls too");
  if (!seen.ok() && seen.ended_itself)
    throw Error(
        ErrorKind::input,
        fmt::format("no step could be found in the job, which was over after {:.1f} s: {}{}\n"
                    "Let it train for more steps, or ask for fewer with --steps and "
                    "--warmup-steps",
                    seen.seconds, seen.reason, said));
  if (!seen.ok())
    throw Error(ErrorKind::input,
                fmt::format("no step could be found in the job: {}{}\nGive it more time with "
                            "--trial-seconds (it had {:.0f} s), or fewer --steps",
                            seen.reason, said, seen.seconds));
}

void JobTuning::observe() {
  console_.expect(static_cast<std::size_t>(options_.launches));
  JobTrialResult seen = launch({}, 0, true, "default, looked at alone");
  if (result_.interrupted_by != 0) return;
  if (seen.is_recognised()) {
    observe_other(*seen.speaks);
    return;
  }
  require_tunable(seen);
  if (!seen.facts)
    throw Error(ErrorKind::input, "the ranks did not tell where they run (no rank-*.json in " +
                                      command_.launches.path() +
                                      "): they must be able to write there");
  result_.facts = *seen.facts;
  if (call_agent_ != nullptr && admit(result_.facts.state) != GuardVerdict::pass) {
    call_agent_.reset();
    result_.notes.emplace_back(
        "in-network aggregation is active: NCCL's own choices are left alone per call");
  }
  if (call_agent_ != nullptr && !seen.beyond_this_host.empty()) {
    call_agent_.reset();
    result_.notes.push_back(seen.beyond_this_host);
  }
  result_.facts.one_host = offered_one_host();
  // The space says so.
  if (keeps_order(result_.facts, options_.constraints)) call_agent_.reset();
  best_us_ = seen.step.count();
  best_arm_ = "default";
  result_.observed = std::move(seen);
}

ActionSpace JobTuning::other_space(const std::optional<MainTraffic>& traffic) {
  const JobFacts& facts = result_.facts;
  const bool same_bits = keeps_order(facts, options_.constraints);
  if (same_bits)
    result_.notes.emplace_back(
        "sums must stay the same bit by bit: no algorithm of the library is changed");
  return mpi_launch_space(facts, same_bits ? std::nullopt : traffic,
                          facts.library == Backend::openmpi && may_bind(command_.argv),
                          users_variables(facts.library), result_.notes);
}

/// A job of MPI is started anew with what tells its calls; one of Gloo tells nothing, so that the
/// command's whole time is all there is.
void JobTuning::observe_other(Backend library) {
  const bool mpi = backend_facts(library).is_mpi;
  result_.facts.library = library;
  call_agent_.reset();
  if (!mpi && !whole_)
    throw Error(ErrorKind::input,
                "the command's ranks communicate by " + library_title(library) +
                    ", whose calls nothing can watch from outside; where the command ends by "
                    "itself within --trial-seconds, --whole judges by the time of all of it");
  console_.note(fmt::format("its ranks communicate by {}: {}", library_title(library),
                            mpi ? "their calls are watched by " + command_.mpi_watcher()
                                : "the command's whole time is judged"));
  JobTrialResult seen = launch({}, 0, true, "default, looked at alone");
  if (result_.interrupted_by != 0) return;
  require_watched(seen, library);
  result_.facts = seen.facts ? *seen.facts : facts_of_machine(probe_facts(), library);
  if (result_.facts.library == Backend::nccl)
    throw Error(ErrorKind::input, "the command's MPI says that it is \"" + result_.facts.mpi +
                                      "\": settings of Open MPI and MPICH are known here");
  best_us_ = seen.step.count();
  best_arm_ = "default";
  result_.observed = std::move(seen);
}

/// @throws Error(input) where nothing of the launch can be judged
void JobTuning::require_watched(JobTrialResult& seen, Backend library) {
  const std::string end = last_line(seen.output);
  const std::string said = end.empty() ? "" : "\nits last line on stderr: " + end;
  if (seen.failed())
    throw Error(ErrorKind::input,
                fmt::format("the command failed (exit code {}, after {:.1f} s) where {} was loaded "
                            "into its ranks{}\nStart it without `dynamiccl tune --` until it runs; "
                            "it gets no input here",
                            seen.exit_code, seen.seconds, command_.mpi_watcher(), said));
  if (seen.ok()) return;
  if (seen.ended_itself && !whole_) {
    whole_ = true;
    take_whole(seen);
    result_.notes.push_back(
        fmt::format("{}: the time of the whole command was judged",
                    seen.heard ? "no step repeats in it" : "no rank recorded what it calls"));
    return;
  }
  if (!seen.heard && !whole_)
    throw Error(
        ErrorKind::input,
        fmt::format(
            "the command's ranks have {} loaded, but none recorded what it calls within {:.0f} "
            "s: LD_PRELOAD={} and DYNAMICCL_MPI_FOLDER must reach them, and they must be "
            "able to write to {}{}{}",
            library_title(library), seen.seconds, command_.mpi_watcher(), command_.launches.path(),
            said, of_elsewhere(command_)));
  throw Error(ErrorKind::input,
              fmt::format("no step could be found in the job: {}{}\nGive it more time with "
                          "--trial-seconds (it had {:.0f} s), or fewer --steps; where the command "
                          "ends by itself, --whole judges by the time of all of it",
                          seen.reason, said, seen.seconds));
}

/// Ranks of this machine that use sockets because they are isolated, though nobody asked for it.
OneHostWay JobTuning::offered_one_host() {
  const JobFacts& facts = result_.facts;
  const bool apart =
      facts.network && !facts.rdma && facts.ranks > 1 && facts.ranks_per_host == facts.ranks;
  if (!apart || (facts.nccl_version > 0 && facts.nccl_version < kOneHostSince))
    return OneHostWay::none;
  std::set<std::string> said = users_variables(Backend::nccl);
  for (const auto& [name, value] : facts.variables) said.insert(name);
  for (const char* name : {"NCCL_HOSTID", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NET"})
    if (said.contains(name)) {
      result_.notes.push_back(fmt::format("{} is set: the ranks stay hosts of their own", name));
      return OneHostWay::none;
    }
  if (facts.one_dev_shm && !facts.preloaded) return OneHostWay::settings;
  make_one_host_folder(command_);
  const MeetingFolder folder = look_at_meeting_folder(command_.one_host_folder());
  std::error_code unseen;
  const std::string library = command_.one_host_library();
  if (folder.trouble == FolderTrouble::none && std::filesystem::exists(library, unseen) &&
      (facts.preloaded || goes_elsewhere(command_).empty()))
    return OneHostWay::library;
  result_.notes.push_back(fmt::format(
      "the ranks, all on this machine, use sockets, and one host could not be tried "
      "(docs/one-host.md): {}",
      folder.trouble != FolderTrouble::none
          ? fmt::format(
                "{}: {}; choose a short path in /dev/shm with --out, or name a folder by {}",
                command_.one_host_folder(), folder.why, kOneHostFolder)
          : "start them with " + preload_flags(command_)));
  return OneHostWay::none;
}

void JobTuning::make_search() {
  const JobTrialResult& seen = result_.observed;
  const JobFacts& facts = result_.facts;
  const bool nccl = facts.library == Backend::nccl;
  const auto told = main_traffic(seen.mix);
  const MainTraffic traffic = told.value_or(MainTraffic{});
  const double share = communication_share(seen.mix, seen.step).value_or(0.5);
  Task task;
  task.space = std::make_shared<const ActionSpace>(
      nccl
          ? launch_space(facts, options_.constraints, users_variables(facts.library), result_.notes)
          : other_space(told));
  result_.settings = task.space->arms().size();
  task.key = {facts.regime.id,
              {traffic.collective, SizeBin::of(traffic.size), facts.ranks, facts.nodes,
               Architecture::ring, facts.library}};
  task.state = facts.state;
  task.state.parallelism = options_.parallelism;
  set_task(task.state, task.key.task, traffic.size, traffic.size);
  task.prior_log_us = nccl ? launch_prior(*task.space, facts, seen.step, share)
                           : mpi_launch_prior(*task.space, seen.step);
  if (seen.whole)
    console_.note(fmt::format("{} in all", milliseconds(seen.step.count())));
  else
    console_.note(fmt::format(
        "{} a step{}, {} a step, of which collectives take {:.0f} %{}; most bytes: {} of {}",
        counted(seen.calls_per_step, "call"), seen.by_pauses ? " (separated by pauses alone)" : "",
        milliseconds(seen.step.count()), 100 * share, nccl ? " on the GPU" : "",
        name_of(traffic.collective), format_bytes(traffic.size)));
  console_.note(fmt::format("regime: {}; {} {}; {}", facts.regime.name,
                            library_title(facts.library), facts.version(),
                            counted(result_.settings, "launch setting")));
  if (nccl) say_floor();
  task.prior_trust = kLaunchPriorTrust;
  task_ = std::move(task);
  agent_ = launch_agent(options_.agent, options_.agent_options);
  loop_.emplace(*agent_);
  history_.emplace(result_.settings);
  best_settled_ = call_agent_ == nullptr;
}

/// What NCCL's default takes in this job against what Gloo took in its place.
void JobTuning::say_floor() const {
  if (options_.gloo == nullptr) return;
  const GlooFloor floor(*options_.gloo, result_.facts.regime.json);
  std::size_t known = 0;
  for (const MixEntry& entry : result_.observed.mix) {
    const auto gloo = floor.at(collective_of(entry.function), entry.ranks, Bytes(entry.bytes));
    if (!gloo || entry.timed == 0) continue;
    ++known;
    const Micros now(entry.device_us / static_cast<double>(entry.timed));
    if (now > *gloo)
      console_.note(fmt::format("{} of {} is slower than Gloo by NCCL's default: {}, Gloo took {}",
                                name_of(collective_of(entry.function)),
                                format_bytes(Bytes(entry.bytes)), format_micros(now),
                                format_micros(*gloo)));
  }
  if (known > 0)
    console_.note(fmt::format(
        "Gloo's time is known here for {} of {} sizes: calls' settings that take more than twice "
        "as long give way to NCCL's own, unless these take longer still",
        known, result_.observed.mix.size()));
}

/// One host that came to nothing: ranks that the variables do not reach, or that the library leaves
/// apart, which it says on their standard error.
void JobTuning::note_one_host(const JobChoice& setting, const JobTrialResult& trial) {
  const bool one_host =
      setting.variables.contains(kOneHostFolder) || setting.variables.contains("NCCL_HOSTID");
  if (!one_host || !trial.facts || !trial.facts->network) return;
  result_.notes.push_back(fmt::format(
      "the ranks stayed hosts of their own although one host was tried (docs/one-host.md): {}",
      trial.facts->preloaded || setting.variables.contains("NCCL_HOSTID")
          ? "their standard error says why"
          : "the library was not loaded in them; start them with " + preload_flags(command_)));
}

}  // namespace dynamiccl
