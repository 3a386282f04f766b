#pragma once

#include "core/vocabulary/network_topology.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// Words of the tuner's state that no other folder needs. Where sources use different names or
/// value sets for one thing, these are the canonical ones;
/// docs/reference/state-features.md has the others.

enum class DeploymentSetting { datacenter, edge, federated };
enum class ClusterClass { specialised, commodity };
/// the seven modes that the two lists have between them.
enum class SyncMode { bsp, ssp, asp, local_sgd, fedavg, decentralised, hybrid };
/// who sums. Gossip is state only: no backend of ours gossips.
enum class SumArchitecture { ps, allreduce, gossip };
/// `other` keeps a name we do not know from passing for "none".
enum class Compression { none, fp16, quantised, sign, top_k, random_k, low_rank, atomo, other };
/// wait-free backpropagation, its merged form, tensor partitioning.
enum class Schedule { none, wfbp, mg_wfbp, partitioned };
enum class IntraLink { none, shm, pcie, nvlink };
/// These say the same thing with three value sets: the link and the protocol on it.
enum class InterLink { none, tcp, tcp_10g, tcp_100g, roce, infiniband, gpudirect_rdma, nvswitch };
/// Only libraries with an actuator here are ever tuned.
enum class CclLibrary { nccl, openmpi, mpich, gloo, own, rccl, msccl, taccl, vendor_mpi, other };
enum class StageRole {
  none,
  intra_stage_allreduce,
  inter_stage_allreduce,
  activation_send,
  activation_recv
};
enum class SharingMode { dedicated, mps, mig, time_slice };
enum class ParallelismMode { dp, pp, tp, fsdp, three_d, moe };
enum class FaultTolerance { none, ftar, swarm, oobleck };

#define DYN_NAMES(Enum, text, ...)                    \
  template <>                                         \
  struct NameTable<Enum> {                            \
    static constexpr std::string_view what = text;    \
    static constexpr std::array entries{__VA_ARGS__}; \
  }

DYN_NAMES(DeploymentSetting, "setting", Named{DeploymentSetting::datacenter, "datacenter"},
          Named{DeploymentSetting::edge, "edge"}, Named{DeploymentSetting::federated, "federated"});
DYN_NAMES(ClusterClass, "cluster class", Named{ClusterClass::specialised, "specialised"},
          Named{ClusterClass::commodity, "commodity"});
DYN_NAMES(SyncMode, "synchronisation", Named{SyncMode::bsp, "bsp"}, Named{SyncMode::ssp, "ssp"},
          Named{SyncMode::asp, "asp"}, Named{SyncMode::local_sgd, "local-sgd"},
          Named{SyncMode::fedavg, "fedavg"}, Named{SyncMode::decentralised, "decentralised"},
          Named{SyncMode::hybrid, "hybrid"});
DYN_NAMES(SumArchitecture, "summing architecture", Named{SumArchitecture::ps, "ps"},
          Named{SumArchitecture::allreduce, "allreduce"}, Named{SumArchitecture::gossip, "gossip"});
DYN_NAMES(Compression, "compression", Named{Compression::none, "none"},
          Named{Compression::fp16, "fp16"}, Named{Compression::quantised, "quantised"},
          Named{Compression::sign, "sign"}, Named{Compression::top_k, "top-k"},
          Named{Compression::random_k, "random-k"}, Named{Compression::low_rank, "low-rank"},
          Named{Compression::atomo, "atomo"}, Named{Compression::other, "other"});
DYN_NAMES(Schedule, "schedule", Named{Schedule::none, "none"}, Named{Schedule::wfbp, "wfbp"},
          Named{Schedule::mg_wfbp, "mg-wfbp"}, Named{Schedule::partitioned, "partitioned"});
DYN_NAMES(IntraLink, "intra-node link", Named{IntraLink::none, "none"},
          Named{IntraLink::shm, "shm"}, Named{IntraLink::pcie, "pcie"},
          Named{IntraLink::nvlink, "nvlink"});
DYN_NAMES(InterLink, "inter-node link", Named{InterLink::none, "none"},
          Named{InterLink::tcp, "tcp"}, Named{InterLink::tcp_10g, "tcp-10g"},
          Named{InterLink::tcp_100g, "tcp-100g"}, Named{InterLink::roce, "roce"},
          Named{InterLink::infiniband, "infiniband"},
          Named{InterLink::gpudirect_rdma, "gpudirect-rdma"},
          Named{InterLink::nvswitch, "nvswitch"});
DYN_NAMES(CclLibrary, "library", Named{CclLibrary::nccl, "nccl"},
          Named{CclLibrary::openmpi, "openmpi"}, Named{CclLibrary::mpich, "mpich"},
          Named{CclLibrary::gloo, "gloo"}, Named{CclLibrary::own, "own"},
          Named{CclLibrary::rccl, "rccl"}, Named{CclLibrary::msccl, "msccl"},
          Named{CclLibrary::taccl, "taccl"}, Named{CclLibrary::vendor_mpi, "vendor-mpi"},
          Named{CclLibrary::other, "other"});
DYN_NAMES(StageRole, "pipeline stage role", Named{StageRole::none, "none"},
          Named{StageRole::intra_stage_allreduce, "intra-stage-allreduce"},
          Named{StageRole::inter_stage_allreduce, "inter-stage-allreduce"},
          Named{StageRole::activation_send, "activation-send"},
          Named{StageRole::activation_recv, "activation-recv"});
DYN_NAMES(SharingMode, "GPU sharing", Named{SharingMode::dedicated, "dedicated"},
          Named{SharingMode::mps, "mps"}, Named{SharingMode::mig, "mig"},
          Named{SharingMode::time_slice, "time-slice"});
DYN_NAMES(ParallelismMode, "parallelism", Named{ParallelismMode::dp, "dp"},
          Named{ParallelismMode::pp, "pp"}, Named{ParallelismMode::tp, "tp"},
          Named{ParallelismMode::fsdp, "fsdp"}, Named{ParallelismMode::three_d, "3d"},
          Named{ParallelismMode::moe, "moe"});
DYN_NAMES(FaultTolerance, "fault tolerance", Named{FaultTolerance::none, "none"},
          Named{FaultTolerance::ftar, "ftar"}, Named{FaultTolerance::swarm, "swarm"},
          Named{FaultTolerance::oobleck, "oobleck"});
#undef DYN_NAMES

}  // namespace dynamiccl
