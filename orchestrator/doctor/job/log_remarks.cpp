#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/job/job_verdict.hpp"
#include "orchestrator/doctor/job/logged_job.hpp"

namespace dynamiccl {
namespace {

using Line = std::string_view;

constexpr std::size_t kMostSpeakers = 65536;
constexpr std::size_t kLongestRemark = 220;

/// What a message of NCCL means for a job that starts, or that is slower than it could be.
struct Sign {
  Line words;
  Line also;  ///< stands in the message, too; "" = nothing more
  const char* id;
  const char* means;
  const char* fix;
};

constexpr const char* kShmFix =
    "--shm-size=1g (docker, podman), shm_size: 1g (compose), an emptyDir with medium: Memory at "
    "/dev/shm (pod); ls -l /dev/shm/nccl-* shows what dead jobs left";
constexpr const char* kMemlockFix =
    "--ulimit memlock=-1 (docker), LimitMEMLOCK=infinity in slurmd's unit, ulimit -l unlimited";

// What NCCL 2.10 to 2.28 write, in the words of their init.cc, transport/, misc/ and plugin/.
constexpr std::array kSigns{
    Sign{"posix_fallocate failed", "", "shm-full", "/dev/shm has no room for NCCL's segments",
         kShmFix},
    Sign{"while creating shared memory segment", "/dev/shm/nccl-", "shm-full",
         "/dev/shm has no room for NCCL's segments", kShmFix},
    Sign{"no socket interface found", "", "no-interface", "no interface is left for NCCL's sockets",
         "NCCL_SOCKET_IFNAME: \"=eth0\" is that one alone, \"eth\" all that begin so, \"^docker\" "
         "all others; it must be there in every container (ip -br link)"},
    Sign{"No interface found in the same subnet", "", "no-interface",
         "the interface of NCCL_COMM_ID's subnet is not there",
         "NCCL_COMM_ID must be an address that this host has a route of its own to"},
    Sign{"GPU Direct RDMA Disabled", "", "no-gpudirect",
         "the network card does not read the GPU's memory: everything is copied by way of the host",
         "on the host: modprobe nvidia-peermem (or nv_peer_mem), or a driver and kernel with "
         "DMA-BUF; then NCCL_NET_GDR_LEVEL=SYS shows whether distance alone forbids it"},
    Sign{"could not read", "/sys/", "no-topology",
         "NCCL cannot read how the machine's devices are joined, as in a VM or with /sys hidden",
         "NCCL_TOPO_FILE=FILE with the provider's description of this machine type; containers "
         "need /sys as it is"},
    Sign{"P2P is disabled between connected GPUs", "", "p2p-off",
         "the driver refuses peer access between GPUs that are joined",
         "nvidia-smi topo -p2p r names why; on bare metal switch ACS off in the PCI bridges or "
         "pass iommu=pt to the kernel (NCCL's guide, PCI access control services)"},
    Sign{"ibv_reg_mr", "annot allocate memory", "memlock",
         "RDMA may not lock the memory that it needs", kMemlockFix},
    Sign{"ibv_create_", "annot allocate memory", "memlock",
         "RDMA may not lock the memory that it needs", kMemlockFix},
    Sign{"Duplicate GPU detected", "", "one-gpu", "two ranks were given one GPU",
         "CUDA_VISIBLE_DEVICES or torch.cuda.set_device by the local rank; NCCL takes one rank of "
         "a GPU"},
    Sign{"Mismatched NCCL version", "", "versions-differ",
         "ranks have loaded different versions of NCCL",
         "start all ranks from one image or environment; `dynamiccl doctor --job PID` names each "
         "rank's file"},
    Sign{"cuMemImportFromShareableHandle", "", "host-id",
         "NCCL takes two containers for one host and cannot pass memory between them",
         "share PID and IPC namespaces between them, or leave NCCL_HOSTID and /etc/machine-id "
         "apart (`dynamiccl doctor PROFILE` says which of both)"},
    Sign{"ould not find:", "libnccl-net-", "no-plugin",
         "the network plugin was not found: NCCL uses its own sockets or verbs",
         "LD_LIBRARY_PATH must hold the plugin's folder inside the container; "
         "NCCL_NET_PLUGIN=NAME for libnccl-net-NAME.so"},
    Sign{"TUNER/Plugin", "ould not find", "no-tuner",
         "the tuner plugin that was asked for was not found: NCCL decides by itself",
         "NCCL_TUNER_PLUGIN takes a path, too; ldd of it inside the container shows what it lacks"},
    Sign{"TUNER/Plugin", "ailed to find nccl", "no-tuner",
         "the tuner plugin is of another version of NCCL, and NCCL decides by itself",
         "a plugin that was built for this NCCL, or the NCCL that it was built for"},
    Sign{"NCCL_TUNER_PLUGIN set by environment to none", "", "tuner-forbidden",
         "the job forbids tuner plugins, those of clouds and of `dynamiccl tune` alike",
         "leave NCCL_TUNER_PLUGIN unset where a tuned table is to act"},
    Sign{"NET/IB : No device found", "", "no-rdma",
         "no InfiniBand or RoCE card is seen: ranks of several hosts use TCP",
         "where there are cards: --device /dev/infiniband and --ulimit memlock=-1 (docker), "
         "rdma/... resources (pod); else this is right"},
};

constexpr const char* kNoServer =
    "the image has no ssh server, by which the launcher reaches its ranks";
constexpr const char* kNoServerFix =
    "an image with openssh-server, or ranks without ssh: an agent that enters the containers "
    "(mpirun --mca plm_rsh_agent, mpiexec -launcher-exec: kubectl exec, docker exec), as "
    "`dynamiccl run` brings its own";
constexpr const char* kPmix = "the ranks' PMIx and the launcher's do not understand each other";
constexpr const char* kPmixFix =
    "srun --mpi=list and ompi_info (in the image) name the versions: an Open MPI of the host's "
    "major version of PMIx; where they agree, PMIX_MCA_gds=hash does without the memory that a "
    "container hides, and rootless Podman needs --userns=keep-id";

/// What others than NCCL say: launchers, their daemons, and who catches signals. Their rows are
/// numbered on behind NCCL's.
constexpr std::array kOtherSigns{
    Sign{"sshd: No such file or directory", "", "no-sshd", kNoServer, kNoServerFix},
    Sign{"sshd: not found", "", "no-sshd", kNoServer, kNoServerFix},
    Sign{"PMIX ERROR:", "bfrop", "pmix", kPmix, kPmixFix},
    Sign{"UNPACK-PMIX-VALUE: UNSUPPORTED TYPE", "", "pmix", kPmix, kPmixFix},
    Sign{"OPAL ERROR: Unreachable in file pmix", "", "pmix", kPmix, kPmixFix},
    // Open MPI says so after a rank's death, too: of the same id, the first is the one reported.
    Sign{"PMIX ERROR:", "", "pmix",
         "PMIx reports an error between ranks and launcher; their versions may differ", kPmixFix},
    Sign{"libnccl-profiler", "0x", "profiler-crash",
         "a rank crashed inside of the profiler plugin that NCCL has loaded",
         "NCCL_PROFILER_PLUGIN=none for one start: if that runs, a plugin that was built for this "
         "NCCL"},
    Sign{"ras", "0x", "ras-crash", "a rank crashed in the thread of NCCL's RAS",
         "NCCL_RAS_ENABLE=0, or a newer NCCL: none of the job's calls needs RAS"},
};

const Sign& sign_at(std::size_t index) {
  return index < kSigns.size() ? kSigns.at(index) : kOtherSigns.at(index - kSigns.size());
}

/// "... 0x122927 rasMsgHandlePeersUpdate() ...": a function of RAS in a stack.
bool in_ras(Line line) {
  for (auto at = line.find(" ras"); at != Line::npos; at = line.find(" ras", at + 1)) {
    const auto name = line.substr(at + 4, line.find('(', at) - at - 4);
    if (line.find('(', at) != Line::npos && !name.empty() && name.front() >= 'A' &&
        name.front() <= 'Z' && name.find(' ') == Line::npos)
      return true;
  }
  return false;
}

/// Whether NCCL looks for a plugin by itself and finds none, as on most healthy machines: nobody
/// has asked for it.
bool lacks_default(const LoggedJob& job, const std::string& process, Line message) {
  if (message.find("TUNER/Plugin: Failed to find") != Line::npos)
    return !job.asked_for_tuner.contains(process);
  constexpr Line kNotFound = "ould not find:";
  const auto at = message.find(kNotFound);
  if (at == Line::npos) return false;
  Line name = trim(message.substr(at + kNotFound.size()));
  name = name.substr(0, name.find(' '));
  if (name.ends_with('.')) name.remove_suffix(1);
  return name == "libnccl-tuner.so" || name == "libnccl-net.so";
}

/// Symbols of several versions are tried one after the other: the last line counts.
void read_tuner(LoggedJob& job, const std::string& process, Line message) {
  const bool asks = message.find("TUNER/Plugin: Plugin name set by env") != Line::npos ||
                    message.find("NCCL_TUNER_PLUGIN set by environment") != Line::npos;
  if (asks && job.asked_for_tuner.size() < kMostSpeakers) job.asked_for_tuner.insert(process);
  if (!message.starts_with("TUNER/Plugin: Using ") ||
      message.starts_with("TUNER/Plugin: Using internal"))
    return;
  for (auto& [index, sign] : job.signs)
    if (Line(sign_at(index).id) == "no-tuner") sign.lines.erase(process);
  std::erase_if(job.signs, [](const auto& sign) { return sign.second.lines.empty(); });
}

/// "NCCL_SOCKET_NTHREADS set by environment to 4.": it is in force, which silence leaves open.
void read_setting(LoggedJob& job, const std::string& process, Line message) {
  constexpr Line kSet = " set by environment to ";
  constexpr std::size_t kMostSettings = 256;
  constexpr std::size_t kLongestValue = 120;
  if (job.speakers.size() < kMostSpeakers) job.speakers.insert(process);
  const auto at = message.find(kSet);
  const auto name = message.substr(0, at);
  if (at == Line::npos || !name.starts_with("NCCL_") || name.find(' ') != Line::npos) return;
  auto value = trim(message.substr(at + kSet.size()));
  if (value.ends_with('.')) value.remove_suffix(1);
  if (job.settings.size() >= kMostSettings && !job.settings.contains(std::string(name))) return;
  auto& values = job.settings[std::string(name)];
  if (values.size() >= kMostSettings) return;
  auto& by = values[std::string(value.substr(0, kLongestValue))];
  if (by.size() < kMostSpeakers) by.insert(process);
}

bool is_bridge(Line interface) {
  constexpr std::array kBridges{Line("docker"), Line("br-"), Line("virbr"),  Line("veth"),
                                Line("lxc"),    Line("cni"), Line("flannel")};
  return std::any_of(kBridges.begin(), kBridges.end(),
                     [&](Line start) { return interface.starts_with(start); });
}

/// "eth0" of "... Using [0]eth0:10.0.0.1<0> [1]..." and "... Using eth0:10.0.0.1<0>"; "" = neither.
std::string interface_of(Line message) {
  if (!message.starts_with("Bootstrap") && !message.starts_with("NET/Socket")) return "";
  const auto using_at = message.find("Using ");
  if (using_at == Line::npos || message.find('<') == Line::npos) return "";
  auto rest = message.substr(using_at + 6);
  if (rest.starts_with('[')) rest.remove_prefix(std::min(rest.find(']') + 1, rest.size()));
  const auto colon = rest.find(':');
  return colon == Line::npos || colon > 15 ? "" : std::string(rest.substr(0, colon));
}

/// "Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0": the two ranks, who speaks, and the way.
struct Hop {
  int from = -1;
  int to = -1;
  bool from_speaks = true;
  std::string way;
};

int number_at(Line text) {
  int value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::optional<Hop> hop_of(Line message) {
  const auto arrow = message.find(" -> ");
  const auto via = message.find(" via ");
  const auto colon = message.find(" : ");
  if (!message.starts_with("Channel ") || arrow == Line::npos || via == Line::npos ||
      colon == Line::npos || colon > arrow || via < arrow)
    return std::nullopt;
  const auto way = message.substr(via + 5);
  return Hop{number_at(message.substr(colon + 3)), number_at(message.substr(arrow + 4)),
             message.find("[receive]") == Line::npos, std::string(way.substr(0, way.find('/')))};
}

/// Of ranks that two communicators join in two ways.
int slowness(Line way) { return way == "P2P" ? 0 : way == "SHM" ? 1 : 2; }

/// Ranks of one host that do not reach each other's GPUs.
void add_hops(const LoggedJob& job, std::vector<JobRemark>& found) {
  std::map<std::string, std::set<std::pair<int, int>>> by_way;
  for (const auto& [pair, way] : job.hops) {
    const auto from = job.host_of.find(pair.first);
    const auto to = job.host_of.find(pair.second);
    if (from != job.host_of.end() && to != job.host_of.end() && from->second == to->second &&
        !from->second.empty())
      by_way[way].insert(pair);
  }
  for (const auto& [way, id, what] :
       {std::tuple{"SHM", "host-memory", "through host memory"},
        std::tuple{"NET", "network-inside", "by the network, although they are on one host"}}) {
    const auto pairs = by_way.find(way);
    if (pairs == by_way.end()) continue;
    const auto [from, to] = *pairs->second.begin();
    found.push_back(
        {id,
         fmt::format("{} of one host {} {}, not from GPU to GPU: rank {} to rank {}{}",
                     counted(pairs->second.size(), "pair"),
                     pairs->second.size() == 1 ? "sends" : "send", what, from, to,
                     pairs->second.size() == 1 ? "" : ", ..."),
         "where nvidia-smi topo -m shows NV or PIX: let each rank see all GPUs of the host (srun "
         "without --gpus-per-task and --gpu-bind, one container for all ranks), and "
         "NCCL_P2P_DISABLE "
         "and NCCL_P2P_LEVEL unset"});
  }
}

/// All have come to the first call, and peer access carries it: what a bridge that sends it round
/// by the processor (ACS), or an IOMMU, makes of it.
void add_hang_over_peers(const LoggedJob& job, std::vector<JobRemark>& found) {
  constexpr std::uint64_t kFirstCalls = 2;
  const bool by_peers = std::any_of(job.hops.begin(), job.hops.end(),
                                    [](const auto& hop) { return hop.second == "P2P"; });
  if (!by_peers) return;
  for (const auto& [key, group] : job.groups) {
    const bool all_stand =
        std::all_of(group.members.begin(), group.members.end(), [&](const auto& member) {
          const auto& [entered, ended] = std::tie(member.second.entered, member.second.ended);
          return entered && entered->first <= kFirstCalls && (!ended || *ended < *entered);
        });
    if (!group.timed_out || !all_stand || group.members.size() < job.ranks_in_hops()) continue;
    found.push_back({"p2p-hang",
                     fmt::format("all {} are in their first calls, over peer access, and none ends",
                                 counted(group.members.size(), "rank")),
                     "NCCL_P2P_DISABLE=1 for one start: if that runs, switch ACS off in the PCI "
                     "bridges or pass iommu=pt to the kernel (NCCL's guide, PCI access control "
                     "services)"});
    return;
  }
}

void add_interfaces(const LoggedJob& job, std::vector<JobRemark>& found) {
  std::map<std::string, std::set<std::string>> hosts;
  for (const auto& [host, interface] : job.interface_of) hosts[interface].insert(host);
  if (hosts.size() < 2) return;
  std::vector<std::string> parts;
  bool bridge = false;
  for (const auto& [interface, on] : hosts) {
    bridge = bridge || is_bridge(interface);
    parts.push_back(fmt::format("{} on {}{}", interface, *on.begin(),
                                on.size() > 1 ? fmt::format(" and {} more", on.size() - 1) : ""));
  }
  found.push_back(
      {bridge ? "wrong-interface" : "interfaces-differ",
       fmt::format("NCCL's sockets use {}{}", join(parts, ", "),
                   bridge ? ": a container bridge reaches no other host" : ""),
       "one NCCL_SOCKET_IFNAME that holds on every host, handed to all ranks (mpirun -x, "
       "--env of each container): \"=NAME\", or \"^docker,br-\" where names differ"});
}

}  // namespace

std::size_t LoggedJob::ranks_in_hops() const {
  std::set<int> ranks;
  for (const auto& [pair, way] : hops) ranks.insert({pair.first, pair.second});
  return ranks.size();
}

void read_log_remark(LoggedJob& job, const std::string& host, const std::string& process,
                     Line message) {
  if (const auto interface = interface_of(message);
      !interface.empty() && job.interface_of.size() < kMostSpeakers)
    job.interface_of.emplace(host, interface);
  if (const auto hop = hop_of(message); hop && job.hops.size() < kMostSpeakers) {
    auto& way = job.hops.emplace(std::pair{hop->from, hop->to}, hop->way).first->second;
    if (slowness(hop->way) < slowness(way)) way = hop->way;
    auto& own = job.host_of.emplace(hop->from_speaks ? hop->from : hop->to, host).first->second;
    if (own != host) own.clear();
  }
  read_tuner(job, process, message);
  read_setting(job, process, message);
  if (lacks_default(job, process, message)) return;
  for (std::size_t i = 0; i < kSigns.size(); ++i) {
    if (message.find(kSigns[i].words) == Line::npos) continue;
    if (message.find(kSigns[i].also) == Line::npos) continue;
    auto& lines = job.signs[i].lines;
    if (lines.size() < kMostSpeakers) lines.emplace(process, message.substr(0, kLongestRemark));
    return;
  }
}

void read_other_remark(LoggedJob& job, Line line) {
  // Healthy processes have such stacks, too, where somebody has them printed.
  constexpr int kLongestStack = 64;
  if (line.find("Process received signal") != Line::npos ||
      line.find("Caught signal ") != Line::npos)
    job.stack_lines_left = kLongestStack;
  const bool crashed = job.stack_lines_left > 0;
  if (crashed) --job.stack_lines_left;
  for (std::size_t i = 0; i < kOtherSigns.size(); ++i) {
    const auto& sign = kOtherSigns[i];
    if (line.find(sign.words) == Line::npos || line.find(sign.also) == Line::npos) continue;
    const Line id = sign.id;
    if (id.ends_with("-crash") && !crashed) continue;
    if (id == "ras-crash" && !in_ras(line)) continue;
    auto& lines = job.signs[kSigns.size() + i].lines;
    const auto text = line.substr(0, kLongestRemark);
    if (lines.size() < kMostSpeakers) lines.emplace(text, text);
    return;
  }
}

std::vector<std::string> settings_read(const LoggedJob& job) {
  std::vector<std::string> said;
  constexpr std::size_t kMostValues = 3;
  for (const auto& [name, values] : job.settings) {
    if (values.size() > kMostValues) {
      said.push_back(fmt::format("{}: {} different values", name, values.size()));
      continue;
    }
    for (const auto& [value, by] : values)
      said.push_back(fmt::format(
          "{}={}{}", name, value,
          by.size() == job.speakers.size()
              ? ""
              : fmt::format(" ({} of {})", by.size(), counted(job.speakers.size(), "process"))));
  }
  return said;
}

std::vector<JobRemark> remarks(const LoggedJob& job) {
  std::vector<JobRemark> found;
  std::set<std::string> told;
  for (const auto& [index, seen] : job.signs) {
    const Sign& sign = sign_at(index);
    if (!told.insert(sign.id).second) continue;
    found.push_back(
        {sign.id,
         fmt::format(
             "{}: \"{}{}\"{}", sign.means,
             index < kSigns.size() ? seen.lines.begin()->first + ": " : "",
             seen.lines.begin()->second,
             seen.lines.size() > 1 ? fmt::format(" and {} more", seen.lines.size() - 1) : ""),
         sign.fix});
  }
  add_interfaces(job, found);
  add_hops(job, found);
  add_hang_over_peers(job, found);
  return found;
}

}  // namespace dynamiccl
