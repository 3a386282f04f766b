#include "profiles/detect/probes/probe.hpp"

#include <array>
#include <chrono>
#include <exception>

namespace dynamiccl {
namespace {

constexpr std::array kProbes{
    Probe{"system", probe_system, true},
    Probe{"process", probe_process, true},
    Probe{"namespaces", probe_namespaces, true},
    Probe{"container", probe_container, true},
    Probe{"cgroup", probe_cgroup, true},
    Probe{"shm", probe_shared_memory, true},
    Probe{"cma", probe_cma, true},
    Probe{"cpu", probe_cpu, true},
    Probe{"memory", probe_memory, true},
    Probe{"network", probe_network, true},
    Probe{"rdma", probe_rdma, true},
    Probe{"gpu", probe_gpu, true},
    Probe{"aggregation", probe_aggregation, false},
    Probe{"libraries", probe_libraries, false},
    Probe{"environment", probe_environment, false},
};

}  // namespace

std::span<const Probe> all_probes() { return kProbes; }

nlohmann::json run_probes(const ProbeContext& context, bool host_only) {
  const auto start = std::chrono::steady_clock::now();
  nlohmann::json facts = {{"schema", 1}};
  for (const Probe& probe : kProbes) {
    if (host_only && !probe.of_host) continue;
    const std::string name(probe.name);
    try {
      facts[name] = probe.run(context);
    } catch (const std::exception& error) {
      facts[name] = {{"unknown", {{"*", clean_text(error.what())}}}};
    }
  }
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  facts["probe_us"] = taken.count();
  return facts;
}

}  // namespace dynamiccl
