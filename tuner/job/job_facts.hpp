#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "profiles/detect/regime.hpp"
#include "tuner/action/spaces.hpp"
#include "tuner/export/one_host.hpp"
#include "tuner/state/state.hpp"

namespace dynamiccl {

/// "Open MPI", "MPICH", "Gloo", "NCCL": for people.
std::string library_title(Backend library);

/// Where a job runs, as its ranks recorded when their communicators were made.
struct JobFacts {
  Regime regime;
  State state;  ///< its static part
  int ranks = 1;
  int nodes = 1;                    ///< as NCCL counts them
  int ranks_per_host = 1;           ///< of the machine with the most
  int cores = 1;                    ///< of this machine
  Backend library = Backend::nccl;  ///< by which its ranks communicate
  std::string mpi;          ///< version of an MPI, "4.1.4"; of another than the two: what it says
  bool ucx = false;         ///< it is an MPICH that sends by UCX
  bool huge_pages = false;  ///< asking for them changes something here
  int nccl_version = 0;     ///< 22809 is 2.28.9; 0: not known
  std::string gpu;          ///< model of this machine's; "": several, none
  std::string driver;       ///< of the GPUs; "": none, or not known
  std::map<std::string, std::string> variables;  ///< NCCL_ variables that the ranks were given
  bool peer_to_peer = false;
  bool shared_memory = false;
  bool network = false;  ///< some messages go through sockets or InfiniBand
  bool rdma = false;     ///< the network has RDMA
  int nics = 1;          ///< RDMA devices of the host with the fewest
  /// How ranks that use sockets within a machine are to be tried as one host; the search says.
  OneHostWay one_host = OneHostWay::none;
  bool one_dev_shm = false;                   ///< all ranks of a host have one /dev/shm
  bool preloaded = false;                     ///< all ranks have loaded the library of one host
  bool one_network = false;                   ///< and one network namespace
  bool all_gpus = false;                      ///< each rank sees as many GPUs as its host has ranks
  [[nodiscard]] std::string nccl() const;     ///< "2.28.9"; "unknown"
  [[nodiscard]] std::string version() const;  ///< of the library: nccl(), or `mpi`
  /// "2.28": what a table's origin says; "": unknown
  [[nodiscard]] std::string nccl_release() const;
};

/// What the plugin has left of each rank in a job's folder. That may hold anything: what is no
/// object is left out.
std::vector<nlohmann::json> ranks_told_in(const std::string& folder);

/// The same as facts of the job.
/// @param host_facts probe_facts() of this machine: what ranks of one machine share
/// @param nodes, ranks as NCCL counts them; 0: not known. Where ranks of other nodes have recorded
///        elsewhere, the regime is that of the ranks seen, and its name and id say so: what they
///        share, the others may not.
/// @returns nullopt until a rank has recorded something
std::optional<JobFacts> read_job_facts(const std::string& folder, const nlohmann::json& host_facts,
                                       int nodes, int ranks = 0);

/// Of a job whose ranks tell nothing: what their machine is, as far as they are not apart in it.
JobFacts facts_of_machine(const nlohmann::json& host_facts, Backend library);

/// What decides which per-call settings exist: the regime, and what NCCL itself has not ruled out.
/// @param possible JobWatch::possible(); 0: no call was decided yet
SpaceContext call_context(const JobFacts& facts, std::uint32_t possible);

}  // namespace dynamiccl
