#include "orchestrator/doctor/job/find_ranks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "containers/command.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_descriptor.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// Variables by which a launcher tells a process its rank.
struct RankVariables {
  const char* rank;
  const char* world;  ///< "" = none, and the rank counts for itself
  const char* local;  ///< ranks on this machine; "" = none
  const char* job;    ///< equal in all ranks that one command has started; "" = none
  /// Equal in all of a job, and different in most others'; "" = none. Equal ones prove nothing, as
  /// PyTorch's default is port 29500 for every job.
  const char* marker;
};
// Open MPI's and Slurm's tell PMI's, too; torchrun's names are the most general. Slurm's are also
// those of a launcher in its job, whose ranks have others in front of them.
constexpr std::array kRankVariables{
    RankVariables{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                  "PMIX_NAMESPACE", "PMIX_NAMESPACE"},
    RankVariables{"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_JOBID", "PMI_JOBID"},
    RankVariables{"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT", "MASTER_PORT"},
    RankVariables{"SLURM_PROCID", "SLURM_NTASKS", "", "SLURM_STEP_ID", "SLURM_JOB_ID"},
    RankVariables{"DYNAMICCL_RANK", "", "", "DYNAMICCL_LAUNCH", "DYNAMICCL_LAUNCH"},
};

struct PossibleRank {
  ProcessStat process;
  int rank = 0;
  int world = 0;
  int local = 0;
  std::string job;
  std::string marker;         ///< as LiveJob's
  std::size_t row = 0;        ///< of kRankVariables
  bool communicates = false;  ///< has mapped a library for it
};

std::string value_of(const std::map<std::string, std::string>& variables, const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

int whole_number_of(const std::string& text) {
  int value = -1;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  return end.ptr == text.data() + text.size() ? value : -1;
}

std::optional<PossibleRank> candidate_of(const ProcessStat& process) {
  const auto variables = variables_of(process.pid);
  for (const auto& names : kRankVariables) {
    const int rank = whole_number_of(value_of(variables, names.rank));
    const int world = whole_number_of(value_of(variables, names.world));
    if (rank < 0 || (*names.world != '\0' && world <= rank)) continue;
    const auto job = value_of(variables, names.job);
    const auto marker = value_of(variables, names.marker);
    return PossibleRank{process,
                        rank,
                        std::max(world, 0),
                        std::max(whole_number_of(value_of(variables, names.local)), 0),
                        std::string(names.rank) + " " + marker + " " + job,
                        marker.empty() ? "" : std::string(names.marker) + "=" + marker,
                        static_cast<std::size_t>(&names - kRankVariables.data()),
                        false};
  }
  return std::nullopt;
}

/// Of the processes that have one rank's number, as wrappers, shells and what a rank has started
/// do, the one that is the rank: the uppermost that communicates, else the lowest first child.
const PossibleRank& rank_itself(const std::vector<PossibleRank>& same) {
  const PossibleRank* best = &same.front();
  for (const auto& one : same) {
    const bool below = one.process.parent == best->process.pid;
    if (one.communicates != best->communicates ? one.communicates : below && !one.communicates)
      best = &one;
  }
  return *best;
}

std::vector<PossibleRank> candidates_below(const std::vector<pid_t>& roots,
                                           const std::vector<ProcessStat>& all) {
  std::vector<PossibleRank> found;
  for (const pid_t root : roots)
    for (const auto& process : tree_of(root, all)) {
      const bool known = std::any_of(found.begin(), found.end(), [&](const PossibleRank& one) {
        return one.process.pid == process.pid;
      });
      if (known || process.state == 'Z') continue;
      if (auto candidate = candidate_of(process)) found.push_back(std::move(*candidate));
    }
  return found;
}

std::size_t different_ranks(const std::vector<PossibleRank>& candidates) {
  std::vector<int> ranks;
  for (const auto& one : candidates) ranks.push_back(one.rank);
  std::sort(ranks.begin(), ranks.end());
  return static_cast<std::size_t>(std::unique(ranks.begin(), ranks.end()) - ranks.begin());
}

pid_t parent_of(pid_t pid, const std::vector<ProcessStat>& all) {
  for (const auto& process : all)
    if (process.pid == pid) return process.parent;
  return 0;
}

/// The same from one level further up, where one rank was named: its launcher's others.
/// @returns whether any came
bool climb(std::vector<pid_t>& roots, std::vector<PossibleRank>& candidates,
           const std::vector<ProcessStat>& all) {
  const std::string job = candidates.front().job;
  for (pid_t above = parent_of(roots.front(), all); above > 1; above = parent_of(above, all)) {
    auto more = candidates_below({above}, all);
    std::erase_if(more, [&](const PossibleRank& one) { return one.job != job; });
    if (different_ranks(more) > different_ranks(candidates)) {
      candidates = std::move(more);
      roots = {above};
      return true;
    }
  }
  return false;
}

/// What has ended among the children of the launchers, as far as they have not collected it. What a
/// rank that lives has started, as a loader, is no rank.
std::vector<EndedProcess> ended_below(const std::vector<pid_t>& roots,
                                      const std::vector<ProcessStat>& all,
                                      const std::vector<LiveRank>& ranks = {}) {
  std::set<pid_t> of_ranks;
  for (const auto& rank : ranks)
    for (const auto& process : tree_of(rank.pid, all)) of_ranks.insert(process.pid);
  std::vector<EndedProcess> ended;
  for (const pid_t root : roots)
    for (const auto& process : tree_of(root, all)) {
      if (process.state != 'Z' || of_ranks.contains(process.pid)) continue;
      const int status = process.wait_status;
      ended.push_back({process.pid, process.name, WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                       WIFSIGNALED(status) ? WTERMSIG(status) : 0});
    }
  return ended;
}

std::string user_of(pid_t pid) {
  struct stat status {};
  if (stat(fmt::format("/proc/{}", pid).c_str(), &status) != 0) return "";
  const auto* user = getpwuid(status.st_uid);
  return user != nullptr ? user->pw_name : fmt::format("user {}", status.st_uid);
}

/// Whether no process's variables are kept from this user. A first process that may do more than
/// root here is the machine's own.
bool all_readable(const std::vector<ProcessStat>& all) {
  bool first = false;  // which everybody sees, unless /proc hides the processes of others
  for (const auto& process : all) {
    first = first || process.pid == 1;
    if (process.pid == 1 && geteuid() == 0) continue;
    const FileDescriptor file(
        open(fmt::format("/proc/{}/environ", process.pid).c_str(), O_RDONLY | O_CLOEXEC));
    if (file.get() < 0 && (errno == EACCES || errno == EPERM)) return false;
  }
  return first;
}

/// The processes that one word names: a number, slurm:JOB, VARIABLE=VALUE, a container.
std::vector<pid_t> roots_of(const std::string& word, const std::vector<ProcessStat>& all) {
  constexpr std::string_view kSlurm = "slurm:";
  const std::string name = word.starts_with(kSlurm) ? word.substr(kSlurm.size()) : word;
  const int number = whole_number_of(name);
  std::vector<pid_t> roots;
  if (number > 0 && name == word) {
    for (const auto& process : all)
      if (process.pid == number) return {number};
  }
  if (const auto equals = word.find('='); equals != std::string::npos && equals > 0) {
    const auto variable = word.substr(0, equals);
    for (const auto& process : all)
      if (value_of(variables_of(process.pid), variable.c_str()) == word.substr(equals + 1))
        roots.push_back(process.pid);
    if (!roots.empty()) return roots;
    throw NoRankHere(fmt::format("doctor: --job {}: no process that this user may read has this "
                                 "variable with this value",
                                 word),
                     all_readable(all));
  }
  if (number > 0) {
    for (const auto& process : all)
      if (value_of(variables_of(process.pid), "SLURM_JOB_ID") == name) roots.push_back(process.pid);
    if (roots.empty())
      throw NoRankHere(
          fmt::format("doctor: --job {}: no process here has this number, and none that this "
                      "user may read is of a job of Slurm with it (`squeue` says on which "
                      "nodes a job is)",
                      word),
          name != word && all_readable(all));
    return roots;
  }
  for (const char* engine : {"docker", "podman"}) {
    if (find_program(engine).empty()) continue;
    CommandOptions options;
    options.timeout = std::chrono::seconds(10);
    const auto result =
        run_command({engine, "inspect", "--format", "{{.State.Pid}}", "--", name}, options);
    const int pid = result.exit_code == 0 ? whole_number_of(std::string(trim(result.out))) : -1;
    if (pid > 0) return {pid};
    if (pid == 0)
      throw NoRankHere(
          fmt::format("doctor: --job {}: this container of {} does not run", word, engine), true);
  }
  throw NoRankHere(
      fmt::format("doctor: --job {}: no process, no running container of Docker or Podman "
                  "and no job of Slurm here has this name; name a process id (of mpirun, "
                  "torchrun or a rank), a container, slurm:JOB, or VARIABLE=VALUE of the "
                  "ranks",
                  word));
}

}  // namespace

LiveJob ranks_among(const std::vector<pid_t>& named, const std::vector<ProcessStat>& all) {
  std::vector<pid_t> roots = named;
  auto candidates = candidates_below(roots, all);
  LiveJob job;
  if (candidates.empty()) return job;
  // Others' ranks below the same shell are another job's, and Slurm's tasks that start ranks are
  // none.
  auto first = std::find_if(candidates.begin(), candidates.end(), [](const PossibleRank& one) {
    return std::string_view(kRankVariables[one.row].rank) != "SLURM_PROCID";
  });
  if (first == candidates.end()) first = candidates.begin();
  const std::string marker = first->job;
  std::erase_if(candidates, [&](const PossibleRank& one) { return one.job != marker; });
  const auto world = static_cast<std::size_t>(std::max(candidates.front().world, 0));
  if (roots.size() == 1 && different_ranks(candidates) == 1 && world != 1)
    climb(roots, candidates, all);
  job.marker = candidates.front().marker;
  std::map<int, std::vector<PossibleRank>> by_rank;
  for (auto& one : candidates) {
    one.communicates = !loaded_libraries(one.process.pid).empty();
    by_rank[one.rank].push_back(one);
    job.world = std::max(job.world, one.world);
    job.all_here = one.local > 0 && one.local == one.world;
  }
  for (const auto& [rank, same] : by_rank) {
    const auto& itself = rank_itself(same).process;
    LiveRank facts;
    facts.rank = rank;
    facts.pid = itself.pid;
    facts.program = itself.name;
    facts.nice = itself.nice;
    job.ranks.push_back(std::move(facts));
  }
  job.ended = ended_below(roots, all, job.ranks);
  return job;
}

LiveJob find_ranks(const std::vector<std::string>& named, bool of_several) {
  const auto all = all_processes();
  std::vector<pid_t> roots;
  bool sure = true;
  for (std::size_t i = 0; i < named.size(); ++i) {
    try {
      for (const pid_t pid : roots_of(named[i], all)) roots.push_back(pid);
    } catch (const NoRankHere& none) {
      sure = sure && none.sure;
      if (!of_several || (i + 1 == named.size() && roots.empty()))
        throw NoRankHere(none.what(), sure);
    }
  }
  auto job = ranks_among(roots, all);
  if (!job.ranks.empty()) return job;
  std::vector<std::string> hidden;
  for (const pid_t root : roots)
    for (const auto& process : tree_of(root, all))
      if (access(fmt::format("/proc/{}/environ", process.pid).c_str(), R_OK) != 0 &&
          hidden.size() < 3)
        hidden.push_back(
            fmt::format("{} ({}, {})", process.name, process.pid, user_of(process.pid)));
  if (!hidden.empty())
    throw Error(ErrorKind::input,
                fmt::format("doctor: --job {}: the variables of {} may not be read: start it as "
                            "that user, or as root",
                            join(named, ", "), join(hidden, ", ")));
  const auto over = ended_below(roots, all);
  if (!over.empty())
    throw NoRankHere(
        fmt::format("doctor: --job {}: no rank runs there any more, {} {} over; its own "
                    "output says why",
                    join(named, ", "), counted(over.size(), "process"),
                    over.size() == 1 ? "is" : "are"),
        sure, over);
  throw NoRankHere(
      fmt::format("doctor: --job {}: no process there has a rank's variable "
                  "(OMPI_COMM_WORLD_RANK, PMI_RANK, RANK with WORLD_SIZE, SLURM_PROCID); "
                  "name the launcher, or a rank",
                  join(named, ", ")));
}

}  // namespace dynamiccl
