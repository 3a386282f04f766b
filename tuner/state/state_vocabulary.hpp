#pragma once

#include "core/vocabulary/network_topology.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// Words of the tuner's state that no other folder needs. Where sources use different names or
/// value sets for one thing, these are the canonical ones;
/// docs/reference/state-features.md has the others.

DYN_NAMED_ENUM(DeploymentSetting, "setting", '-', datacenter, edge, federated);
DYN_NAMED_ENUM(ClusterClass, "cluster class", '-', specialised, commodity);
/// the seven modes that the two lists have between them.
DYN_NAMED_ENUM(SyncMode, "synchronisation", '-', bsp, ssp, asp, local_sgd, fedavg, decentralised,
               hybrid);
/// who sums. Gossip is state only: no backend of ours gossips.
DYN_NAMED_ENUM(SumArchitecture, "summing architecture", '-', ps, allreduce, gossip);
/// `other` keeps a name we do not know from passing for "none".
DYN_NAMED_ENUM(Compression, "compression", '-', none, fp16, quantised, sign, top_k, random_k,
               low_rank, atomo, other);
/// wait-free backpropagation, its merged form, tensor partitioning.
DYN_NAMED_ENUM(Schedule, "schedule", '-', none, wfbp, mg_wfbp, partitioned);
DYN_NAMED_ENUM(IntraLink, "intra-node link", '-', none, shm, pcie, nvlink);
/// These say the same thing with three value sets: the link and the protocol on it.
DYN_NAMED_ENUM(InterLink, "inter-node link", '-', none, tcp, tcp_10g, tcp_100g, roce, infiniband,
               gpudirect_rdma, nvswitch);
/// Only libraries with an actuator here are ever tuned.
DYN_NAMED_ENUM(CclLibrary, "library", '-', nccl, openmpi, mpich, gloo, own, rccl, msccl, taccl,
               vendor_mpi, other);
DYN_NAMED_ENUM(StageRole, "pipeline stage role", '-', none, intra_stage_allreduce,
               inter_stage_allreduce, activation_send, activation_recv);
DYN_NAMED_ENUM(SharingMode, "GPU sharing", '-', dedicated, mps, mig, time_slice);
enum class ParallelismMode { dp, pp, tp, fsdp, three_d, moe };
DYN_NAMED_ENUM(FaultTolerance, "fault tolerance", '-', none, ftar, swarm, oobleck);

template <>
struct NameTable<ParallelismMode> {
  static constexpr std::string_view what = "parallelism";
  static constexpr std::array entries{
      Named{ParallelismMode::dp, "dp"},      Named{ParallelismMode::pp, "pp"},
      Named{ParallelismMode::tp, "tp"},      Named{ParallelismMode::fsdp, "fsdp"},
      Named{ParallelismMode::three_d, "3d"}, Named{ParallelismMode::moe, "moe"}};
};

}  // namespace dynamiccl
