#include "tuner/state/feature_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace dynamiccl {
namespace {

constexpr std::array kMappings{
    FeatureMapping{"E-01", "is_cross_container", "cross_container", "same"},
    FeatureMapping{"E-02", "is_singularity", "container_runtime", "category singularity"},
    FeatureMapping{"E-03", "is_bare_metal", "container_runtime", "category bare-metal"},
    FeatureMapping{"E-04", "is_pcie_only_intra", "intra_link", "category pcie"},
    FeatureMapping{"E-05", "container_runtime", "container_runtime", "place in the one-hot block"},
    FeatureMapping{"E-06", "parallelism_arch", "architecture", "PS is ps, Ring is allreduce"},
    FeatureMapping{"E-07", "cudamemcpy_observed_s", "copy_time", "in microseconds"},
    FeatureMapping{"E-08", "prev_allreduce_lat_s", "latency_history", "relative to the baseline"},
    FeatureMapping{"E-09", "collective_type", "collective", "AlltoAllv counts as alltoall"},
    FeatureMapping{"E-10", "s_environment", "setting", "FL is federated"},
    FeatureMapping{"E-11", "cluster_class", "cluster_class", "same"},
    FeatureMapping{"E-12", "model_intensity_I", "model_intensity", "same"},
    FeatureMapping{"E-13", "D and C of each model", "model_intensity", "model_intensity(C, D)"},
    FeatureMapping{"E-14", "local_batch_size_M", "local_batch", "same"},
    FeatureMapping{"E-15", "c2c_ratio_estimate", "c2c_ratio", "c2c_ratio(f, M, I)"},
    FeatureMapping{"E-16", "msg_size_bin", "nominal_size", "bins are log2, see SizeBin"},
    FeatureMapping{"E-17", "msg_size_bytes_log2", "nominal_size", "same"},
    FeatureMapping{"E-18", "effective_msg_size_bytes", "effective_size", "after compression"},
    FeatureMapping{"E-19", "nGPU_total", "gpus_total", "same"},
    FeatureMapping{"E-20", "is_PS_deployment", "architecture", "category ps"},
    FeatureMapping{"E-21", "is_pipelined_layer", "schedule", "category wfbp"},
    FeatureMapping{"E-22", "is_fused_call", "schedule", "category mg-wfbp"},
    FeatureMapping{"E-23", "has_nvlink", "intra_link", "category nvlink"},
    FeatureMapping{"E-24", "transport_protocol", "inter_link", "TCP10G, TCP100G, IB"},
    FeatureMapping{"E-25", "size bin x ranks x C2C", "joint_size_ranks_c2c",
                   "product of the three"},
    FeatureMapping{"E-26", "s_sync", "sync", "same"},
    FeatureMapping{"E-27", "sync_mode", "sync", "Async is asp, Stale is ssp, Local is local-sgd"},
    FeatureMapping{"E-28", "sync_local_tau", "local_steps", "0 under BSP"},
    FeatureMapping{"E-29", "s_arch", "architecture", "same"},
    FeatureMapping{"E-30", "compression_method", "compression", "unknown names are other"},
    FeatureMapping{"E-31", "compression_rate", "wire_fraction", "wire_fraction(method, rate)"},
    FeatureMapping{"E-32", "s_pipeline_fanout", "schedule", "same"},
    FeatureMapping{"E-33", "s_priority_critical", "critical", "same"},
    FeatureMapping{"E-34", "group_size", "group_size", "same"},
    FeatureMapping{"E-35", "cluster_size_log2_N", "ranks_total", "same"},
    FeatureMapping{"E-36", "topology_class", "topology", "same"},
    FeatureMapping{"E-37", "s_topology", "topology", "2D-Torus is torus"},
    FeatureMapping{"E-38", "interconnect_intra", "intra_link", "PCIe-only is pcie"},
    FeatureMapping{"E-39", "interconnect_inter", "inter_link", "commodity-eth is tcp"},
    FeatureMapping{"E-40", "s_protocol", "inter_link", "TCP/IP is tcp, IB is infiniband"},
    FeatureMapping{"E-41", "communicator_tier_max", "tier_max", "same"},
    FeatureMapping{"E-42", "communicator_tier_mix", "tier_mix", "same"},
    FeatureMapping{"E-43", "is_INA_active", "ina_active", "same"},
    FeatureMapping{"E-44", "s_switch_aggregation", "ina_active", "merged"},
    FeatureMapping{"E-45", "ccl_library", "library", "MPI splits by implementation"},
    FeatureMapping{"E-46", "pipeline_stage_id", "pipeline_stage", "same"},
    FeatureMapping{"E-47", "pipeline_stage_role", "stage_role", "four roles and none (X-39)"},
    FeatureMapping{"E-48", "coflow_priority_class", "coflow_class", "same"},
    FeatureMapping{"E-49", "gpu_sharing_mode", "gpu_sharing", "same"},
    FeatureMapping{"E-50", "pipeline_template_active", "pipeline_template", "same"},
    FeatureMapping{"E-51", "parallelism_mode", "parallelism", "same"},
    FeatureMapping{"E-52", "model_size_params_log10", "parameters", "same"},
    FeatureMapping{"E-53", "fault_tolerance_mode", "fault_tolerance", "same"},
    FeatureMapping{"E-54", "is_3D_parallel", "parallelism", "category 3d"},
    FeatureMapping{"E-55", "last tuple", "last_choice", "algorithm, protocol, channels, threads"},
    FeatureMapping{"E-56", "h_t", "", "the policy's recurrent state, kept by the agent"},
    FeatureMapping{"E-57", "cusum_score", "cusum_score", "1 is the alarm level"},
    FeatureMapping{"E-58", "recon_error", "reconstruction_error", "in standard deviations"},
    FeatureMapping{"E-59", "congestion_signal", "congestion", "same"},
    FeatureMapping{"E-60", "interference level", "interference", "continuous"},
    FeatureMapping{"E-61", "precedence", "", "Feature::drop_rank, keep_features()"},
    FeatureMapping{"E-62", "one-hot blocks", "", "Feature::encode, Feature::refresh"},
    FeatureMapping{"E-63", "mapping", "", "this table"},
};

struct Alias {
  std::string_view feature;
  std::string_view spelling;
  std::string_view value;
};
constexpr std::array kAliases{
    Alias{"setting", "FL", "federated"},
    Alias{"architecture", "Ring", "allreduce"},
    Alias{"architecture", "All-Reduce", "allreduce"},
    Alias{"architecture", "AR", "allreduce"},
    Alias{"architecture", "A2A", "allreduce"},
    Alias{"collective", "AR", "allreduce"},
    Alias{"collective", "AG", "allgather"},
    Alias{"collective", "RS", "reduce_scatter"},
    Alias{"collective", "bcast", "broadcast"},
    Alias{"collective", "AlltoAllv", "alltoall"},
    Alias{"sync", "Async", "asp"},
    Alias{"sync", "Stale", "ssp"},
    Alias{"sync", "Local", "local-sgd"},
    Alias{"sync", "gossip", "decentralised"},
    Alias{"compression", "quant_b", "quantised"},
    Alias{"compression", "int8", "quantised"},
    Alias{"compression", "qsgd", "quantised"},
    Alias{"compression", "top_k", "top-k"},
    Alias{"compression", "random_k", "random-k"},
    Alias{"compression", "1bit", "sign"},
    Alias{"compression", "powersgd", "low-rank"},
    Alias{"schedule", "ByteScheduler", "partitioned"},
    Alias{"topology", "2D-Torus", "torus"},
    Alias{"topology", "BML", "bcube"},
    Alias{"intra_link", "PCIe-only", "pcie"},
    Alias{"inter_link", "TCP10G", "tcp-10g"},
    Alias{"inter_link", "TCP100G", "tcp-100g"},
    Alias{"inter_link", "IB", "infiniband"},
    Alias{"inter_link", "TCP/IP", "tcp"},
    Alias{"inter_link", "RoCEv2", "roce"},
    Alias{"inter_link", "commodity-eth", "tcp"},
    Alias{"inter_link", "NVSwitch-256", "nvswitch"},
    Alias{"inter_link", "GPUDirect-RDMA", "gpudirect-rdma"},
    Alias{"library", "cuda-aware-mpi", "openmpi"},
    Alias{"library", "MSCCLang", "msccl"},
    Alias{"library", "SCCL", "msccl"},
    Alias{"parallelism", "3D", "3d"},
};

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

}  // namespace

std::span<const FeatureMapping> feature_mappings() { return kMappings; }

std::optional<std::string_view> find_alias(std::string_view feature, std::string_view spelling) {
  for (const Alias& alias : kAliases)
    if (alias.feature == feature && same_word(alias.spelling, spelling)) return alias.value;
  return std::nullopt;
}

}  // namespace dynamiccl
