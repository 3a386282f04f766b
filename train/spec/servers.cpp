#include <fmt/format.h>

#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

/// Why no GPU sums what workers push.
std::string server_sums_contradiction(const TrainingSpec& spec) {
  if (spec.server_sums == ServerSums::host) return "";
  const TrainingMethodRow& row = method_row(spec.method);
  const auto refusal = [&](const std::string& why) {
    return fmt::format("server_sums = \"{}\" with {}", name_of(spec.server_sums), why);
  };
  if (row.sums != SumPlace::server)
    return refusal(fmt::format("{}: it has no server; take bsp-ps or wfbp-ps", row.name));
  if (row.order == SendOrder::by_urgency)
    return refusal(fmt::format(
        "{} (partial): each worker sends in an order of its own, and NCCL matches calls by their "
        "order; take bsp-ps or wfbp-ps",
        row.name));
  if (spec.placement == ServerPlacement::colocated)
    return refusal(
        "placement = \"colocated\" (partial): sums of parts on every worker's GPU are NCCL's "
        "reduce-scatter; take dear, or leave out placement");
  const Synchronisation how = spec.synchronisation;
  if ((how != Synchronisation::bsp && !has_local_steps(how)) || spec.switch_to)
    return refusal(
        "a server that answers each worker by itself, or keeps what it sent: NCCL knows no message "
        "from whoever comes first; take bsp or local steps");
  if (spec.compression != Codec::none)
    return refusal("compression (partial): servers decode on their processors; leave one out");
  if (spec.server_sums == ServerSums::chief && spec.servers > 1)
    return refusal(fmt::format("{} servers (partial): a chief feeds one server; leave out servers",
                               spec.servers));
  return "";
}

std::string servers_misfit(const TrainingSpec& spec) {
  if (auto reason = server_sums_contradiction(spec); !reason.empty()) return reason;
  if (method_row(spec.method).sums == SumPlace::server) return "";
  std::string asks_for_servers;
  if (spec.servers > 0) asks_for_servers = fmt::format("servers = {}", spec.servers);
  if (spec.optimizer == OptimizerPlace::server) asks_for_servers = "optimizer = \"server\"";
  if (spec.placement == ServerPlacement::colocated) asks_for_servers = "placement = \"colocated\"";
  if (asks_for_servers.empty()) return "";
  return fmt::format("{}: {} has no server; take one of the -ps methods", asks_for_servers,
                     name_of(spec.method));
}

using Spec = TrainingSpec;
constexpr SettingRow kServerRows[] = {
    setting<&Spec::optimizer>("optimizer",
                              "who applies the gradients; server: methods with servers only"),
    SettingRow{"servers", "methods with servers; 0: one dedicated, or all ranks colocated",
               [](TrainingSpec& spec, const SettingRow& row, const std::string& value) {
                 read_setting(row, value, spec.servers);
               },
               [](const TrainingSpec& spec) {
                 // One dedicated server is what nothing needs to be said for.
                 const bool usual =
                     spec.placement == ServerPlacement::dedicated && spec.servers == 1;
                 return std::to_string(usual ? 0 : spec.servers);
               },
               0, kUnbounded},
    setting<&Spec::placement>("placement",
                              "where servers are: ranks of their own, or the first workers"),
    setting<&Spec::server_sums>(
        "server_sums",
        "dedicated servers over NCCL: who sums: their processors (host), their GPUs, or a chief, "
        "the first worker, for a server without one")};

}  // namespace

SettingPart server_part() { return {kServerRows, servers_misfit}; }

int servers_of(const TrainingSpec& spec, int ranks) {
  if (architecture_of(spec.method) == Architecture::ring) return 0;
  if (spec.servers > 0) return spec.servers;
  return spec.placement == ServerPlacement::colocated ? ranks : 1;
}

int dedicated_servers(const TrainingSpec& spec) {
  return spec.placement == ServerPlacement::colocated ? 0 : servers_of(spec, 0);
}

int workers_of(const TrainingSpec& spec, int ranks) { return ranks - dedicated_servers(spec); }

std::string server_gpu_misfit(const TrainingSpec& spec, bool has_gpu) {
  if (spec.server_sums == ServerSums::gpu && !has_gpu)
    return "server_sums = \"gpu\": the server has no GPU (env.DYNAMICCL_SERVER_GPU = \"none\"); "
           "take server_sums = \"chief\", or leave out that setting";
  if (spec.server_sums == ServerSums::chief && has_gpu)
    return "server_sums = \"chief\": a chief feeds a server without a GPU; say "
           "env.DYNAMICCL_SERVER_GPU = \"none\", or take server_sums = \"gpu\"";
  return "";
}

}  // namespace dynamiccl
