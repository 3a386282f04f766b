#pragma once

#include <optional>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "tuner/action/action_space.hpp"

namespace dynamiccl {

/// What decides which actions exist and are safe.
struct SpaceContext {
  Backend backend{};
  Collective collective = Collective::allreduce;
  Architecture architecture = Architecture::ring;
  int ranks = 2;
  int nodes = 1;
  Bytes size{};  ///< segments of at least this size are the same as none; 0 = unknown
  bool nvlink = false;
  bool peer_to_peer = false;  ///< GPUs may map each other's memory
  bool shared_memory = true;  ///< the ranks share /dev/shm
  bool collnet = false;       ///< a CollNet plugin is there
  bool multicast = false;     ///< NVLS may be used
  /// Asking for huge pages changes something here (why_no_huge_pages() in core).
  bool huge_pages = true;
  /// Ranks are numbered over the nodes in turn, so that each hop of a ring goes over the network.
  bool dealt = false;
  bool ina_active = false;  ///< in-network aggregation: only the default exists
  /// True: algorithm, protocol and channel cap go per call to our NCCL plugin; false: all knobs are
  /// given by environment at launch.
  bool nccl_plugin = false;
};

/// Value lists of an experiment; empty = the built-in list. "default" is added in front.
struct SpaceOptions {
  std::vector<std::string> algorithms;
  std::vector<std::string> segments;  ///< bytes
  std::vector<std::string> fanouts;
  /// Of our own ring and server: messages under way. Empty = not searched for the ring, the
  /// built-in list for the server.
  std::vector<std::string> depths;
  std::vector<std::string> shards;  ///< of our own server's push_pull
  std::vector<std::string> channels;
  std::vector<std::string> threads;
  std::vector<std::string> chunks;          ///< bytes, multiples of 256
  std::vector<std::string> socket_threads;  ///< NCCL over sockets
  /// Further launch-scope knobs, "env.UCX_TLS", "mca.btl_tcp_sndbuf" or "malloc.keep", with their
  /// values.
  std::vector<std::pair<std::string, std::vector<std::string>>> launch;
  /// Scopes that may be changed; a knob of another scope stays at its default.
  std::vector<KnobScope> scopes{KnobScope::launch, KnobScope::communicator, KnobScope::call};
  /// Also settings that no job can load (Reach::own).
  bool own = true;
};

/// The arms of a task on its backend. What an unsafe or impossible combination is, by backend:
///   NCCL: algorithms the collective lacks; NVLS, CollNet, PAT where their hardware is missing;
///     LL128 without NVLink; P2P and SHM where the ranks cannot share; protocol, without algorithm,
///     stays NCCL's; helper threads only where the network is used.
///   Open MPI, MPICH: algorithms for another number of ranks (two_proc, power of two, even);
///   segment
///     and fan-out only where the algorithm reads them.
///   Between nodes of several ranks each: Open MPI's two levels (coll_han), which leave the
///   algorithm
///     to Open MPI, and where ranks are dealt to the nodes in turn, numbering them node by node.
///   All: the allocator's settings for messages below 128 KiB, whose temporary buffers glibc keeps
///     anyway, and huge pages where asking for them changes nothing.
/// A backend without an actuator gives the default alone; so does in-network aggregation.
/// @throws Error(input) for an unknown algorithm in `options`
ActionSpace make_space(const SpaceContext& context, const SpaceOptions& options = {});

/// Does an arm sum on each node first, and between nodes then?
bool is_hierarchical(const ActionSpace& space, const Action& action);
/// What such arms are expected to save of the default's time, ln(time), where links between nodes
/// may be slower than those inside; as much more is expected where they are not.
inline constexpr double kHierarchyGain = 0.5;

/// Open MPI's name for a collective in its control variables.
std::string tuned_name(Collective collective);

/// Algorithms that `make_space` knows for a backend and collective, without "default".
std::vector<std::string> known_algorithms(Backend backend, Collective collective);

}  // namespace dynamiccl
