#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "orchestrator/doctor/job/job_verdict.hpp"

namespace dynamiccl {
namespace {

// Docker's default, which NCCL fills with a few pairs of ranks.
constexpr std::uint64_t kSmallShm = std::uint64_t{64} << 20;
// Below this much of it a library that wants a segment is refused or dies by SIGBUS.
constexpr std::uint64_t kFullShm = std::uint64_t{8} << 20;
// Of the time; half of it is what two ranks on one core have.
constexpr double kBusyWaiting = 0.4;
constexpr std::uint64_t kSmallLock = std::uint64_t{1} << 30;

std::string library_text(const LoadedLibrary& library) {
  return library.build_id.empty()
             ? library.path
             : fmt::format("{} (build {})", library.path, library.build_id.substr(0, 12));
}

/// What tells one copy of a library from another: two paths of one build are one.
std::string identity(const LoadedLibrary& library) {
  return library.build_id.empty() ? library.path : library.build_id;
}

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / (1 << 20));
}

void add_two_copies(const LiveJob& job, std::vector<JobRemark>& found) {
  for (const auto& rank : job.ranks) {
    std::map<std::string, std::map<std::string, std::string>> copies;
    for (const auto& library : rank.libraries)
      copies[library.name].emplace(library.path, library_text(library));
    // Two copies of one build have two states, too.
    for (const auto& [name, paths] : copies) {
      if (paths.size() < 2) continue;
      std::vector<std::string> texts;
      for (const auto& [path, text] : paths) texts.push_back(text);
      found.push_back({"two-libraries",
                       fmt::format("rank {} has {} copies of {} loaded: {}", rank.rank,
                                   paths.size(), name, join(texts, ", ")),
                       "keep one: pip list | grep nccl, LD_LIBRARY_PATH and LD_PRELOAD bring the "
                       "second"});
      return;
    }
  }
}

void add_two_mpis(const LiveJob& job, std::vector<JobRemark>& found) {
  for (const auto& rank : job.ranks) {
    std::set<std::string> names;
    for (const auto& library : rank.libraries) names.insert(library.name);
    if (!names.contains("Open MPI") || !names.contains("MPICH")) continue;
    found.push_back({"two-libraries",
                     fmt::format("rank {} has Open MPI and MPICH loaded", rank.rank),
                     "link and start it by one of them: ldd PROGRAM shows who brings the other"});
    return;
  }
}

void add_versions(const LiveJob& job, std::vector<JobRemark>& found) {
  std::map<std::string, std::map<std::string, std::pair<int, std::string>>> builds;
  for (const auto& rank : job.ranks)
    for (const auto& library : rank.libraries)
      builds[library.name].emplace(identity(library), std::pair{rank.rank, library_text(library)});
  for (const auto& [name, ids] : builds) {
    std::set<int> ranks;
    std::vector<std::string> texts;
    for (const auto& [id, one] : ids) {
      ranks.insert(one.first);
      texts.push_back(fmt::format("rank {}: {}", one.first, one.second));
    }
    if (ids.size() > 1 && ranks.size() > 1)
      found.push_back(
          {"versions-differ",
           fmt::format("ranks have different builds of {} loaded: {}", name, join(texts, "; ")),
           "start all ranks from one image or one environment"});
  }
}

void add_shared_memory(const LiveJob& job, std::vector<JobRemark>& found) {
  for (const auto& rank : job.ranks) {
    if (rank.shm_bytes == 0) continue;
    const bool full = rank.shm_free_bytes < kFullShm;
    if (!full && rank.shm_bytes > kSmallShm) continue;
    const auto left = rank.nccl_files == 0
                          ? std::string()
                          : fmt::format(
                                "; {} nccl-* hold {}, and NCCL removes its own once its ranks have "
                                "met: dead jobs left them",
                                counted(rank.nccl_files, "file"), megabytes(rank.nccl_files_bytes));
    found.push_back({full ? "shm-full" : "shm-small",
                     fmt::format("/dev/shm of rank {} has {} free of {}{}", rank.rank,
                                 megabytes(rank.shm_free_bytes), megabytes(rank.shm_bytes), left),
                     full && (rank.shm_bytes > kSmallShm || rank.nccl_files > 0)
                         ? "ls -l /dev/shm: what dead jobs left can be removed (rm /dev/shm/nccl-* "
                           "while no job starts), and a pod's goes with the pod, not with a "
                           "container that starts again"
                         : "--shm-size=1g (docker, podman), shm_size: 1g (compose), an emptyDir "
                           "with medium: Memory at /dev/shm (pod)"});
    return;
  }
}

void add_user_namespaces(const LiveJob& job, std::vector<JobRemark>& found) {
  std::map<std::string, int> spaces;
  for (const auto& rank : job.ranks)
    if (!rank.user_namespace.empty()) spaces.emplace(rank.user_namespace, rank.rank);
  if (spaces.size() > 1)
    found.push_back({"user-namespaces",
                     fmt::format("{} user namespaces hold the ranks of this machine, so that none "
                                 "may read another's memory: large messages are copied twice",
                                 spaces.size()),
                     "one container or one unshare around all ranks of a machine; "
                     "OMPI_MCA_btl_vader_single_copy_mechanism=none ends Open MPI's warning"});
}

void add_memory_namespaces(const LiveJob& job, std::vector<JobRemark>& found) {
  std::map<std::string, int> spaces;
  for (const auto& rank : job.ranks)
    if (!rank.ipc_namespace.empty()) spaces.emplace(rank.ipc_namespace, rank.rank);
  if (spaces.size() > 1)
    found.push_back(
        {"memory-apart",
         fmt::format("the ranks of this machine lie in {} IPC namespaces: they share no "
                     "memory, and NCCL takes no NVLink between them",
                     spaces.size()),
         "all ranks of a machine in one container or pod; else --ipc host and --pid host "
         "(docker), hostIPC: true and hostPID: true (pod), and all GPUs seen by each "
         "(`dynamiccl doctor PROFILE` names what of it is needed)"});
}

void add_locked_memory(const LiveJob& job, std::vector<JobRemark>& found) {
  for (const auto& rank : job.ranks)
    if (job.has_rdma && rank.memlock_bytes < kSmallLock) {
      found.push_back({"memlock",
                       fmt::format("rank {} may lock {} of memory, and RDMA has to", rank.rank,
                                   megabytes(rank.memlock_bytes)),
                       "--ulimit memlock=-1 (docker), LimitMEMLOCK=infinity in slurmd's unit, "
                       "ulimit -l unlimited"});
      return;
    }
}

void add_one_core(const LiveJob& job, std::vector<JobRemark>& found) {
  std::map<std::string, std::vector<std::string>> cores;
  for (const auto& rank : job.ranks)
    if (!rank.only_core.empty()) cores[rank.only_core].push_back(std::to_string(rank.rank));
  for (const auto& [core, ranks] : cores)
    if (ranks.size() > 1)
      found.push_back({"one-core",
                       fmt::format("ranks {} may run on core {} alone", join(ranks, ", "), core),
                       "bind each to a core of its own: --map-by core --bind-to core (Open MPI), "
                       "-bind-to core (MPICH), srun --cpu-bind=cores, a larger --cpuset-cpus"});
}

/// What a rank was started with, so that it shows though nothing seems wrong.
void add_slow_path(const LiveJob& job, std::vector<JobRemark>& found) {
  for (const auto& rank : job.ranks) {
    if (rank.slow_settings.empty()) continue;
    const auto names = [&](const char* name) {
      return rank.slow_settings.find(name) != std::string::npos;
    };
    const bool direct = names("P2P_"), shared = names("SHM_");
    found.push_back({"slow-path",
                     fmt::format("rank {} was started with {}, so that GPUs of one machine {}",
                                 rank.rank, rank.slow_settings,
                                 direct && shared ? "talk through sockets"
                                 : direct         ? "talk through the host's memory"
                                                  : "without a direct way talk through sockets"),
                     "start it without " + rank.slow_settings});
    return;
  }
}

/// Open MPI's `--map-by node`, `-ppn 1`, `--distribution=cyclic`.
void add_dealt_ranks(const LiveJob& job, std::vector<JobRemark>& found) {
  const auto neighbours = [](const LiveRank& a, const LiveRank& b) { return b.rank == a.rank + 1; };
  if (job.all_here || job.ranks.size() < 2 ||
      static_cast<std::size_t>(std::max(0, job.world)) <= job.ranks.size() ||
      std::adjacent_find(job.ranks.begin(), job.ranks.end(), neighbours) != job.ranks.end())
    return;
  std::vector<std::string> here;
  for (const auto& rank : job.ranks) here.push_back(std::to_string(rank.rank));
  found.push_back(
      {"dealt-ranks",
       fmt::format("of {} ranks this machine has {}: none has the next one on its own machine, so "
                   "that a ring crosses the network at each hop",
                   job.world, join(here, ", ")),
       "ranks numbered node by node: OMPI_MCA_rmaps_base_ranking_policy=slot or --map-by "
       "slot (Open MPI), -ppn RANKS_PER_NODE (MPICH), srun --distribution=block"});
}

/// Where all ranks wait for cores, the machine delays them, before any of them is called late.
void add_busy_machine(const LiveJob& job, std::vector<JobRemark>& found) {
  double least = job.ranks.empty() ? 0 : 1;
  for (const auto& rank : job.ranks)
    least =
        std::min(least, rank.looks.empty() || job.seconds <= 0
                            ? 0
                            : (rank.looks.back().wait_s - rank.looks.front().wait_s) / job.seconds);
  if (least > kBusyWaiting)
    found.push_back({"busy-machine",
                     fmt::format("every rank was ready and without a core at least {:.0f} % of the "
                                 "time, so little can be said of one more than of another",
                                 100 * least),
                     "fewer ranks, or cores that nobody else uses (top shows who does)"});
}

void add_stuck(const LiveJob& job, std::vector<JobRemark>& found) {
  for (const auto& rank : job.ranks)
    for (const auto& socket : rank.sockets) {
      found.push_back(
          {"retransmits",
           fmt::format("rank {}: bytes to {} were sent again {} times without an answer", rank.rank,
                       socket.peer, socket.retransmits),
           "a firewall, a link that is down, or loss on the way: ip -s link"});
      return;
    }
}

}  // namespace

std::vector<JobRemark> remarks(const LiveJob& job) {
  std::vector<JobRemark> found;
  add_two_copies(job, found);
  add_two_mpis(job, found);
  add_versions(job, found);
  add_shared_memory(job, found);
  add_user_namespaces(job, found);
  add_memory_namespaces(job, found);
  add_locked_memory(job, found);
  add_one_core(job, found);
  add_dealt_ranks(job, found);
  add_busy_machine(job, found);
  add_stuck(job, found);
  add_slow_path(job, found);
  return found;
}

}  // namespace dynamiccl
