#include "containers/cluster/hidden_gpus.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

namespace dynamiccl {

std::string why_hides_gpus(const std::string& option) {
  const auto equals = option.find('=');
  const std::string name = option.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : option.substr(equals + 1);
  const bool binds = name == "--gpu-bind" && !value.ends_with("none");
  const bool per_task = name == "--gpus-per-task" ||
                        (name == "--tres-per-task" && value.find("gpu") != std::string::npos);
  if (!binds && !per_task) return "";
  return option +
         " hides the GPUs of a node's other tasks from each task: NVLink between them is lost "
         "without a word; ask by cluster.gpus_per_node (--gpus-per-node), each rank picks its own";
}

std::vector<std::string> hidden_gpus_around() {
  constexpr std::array<std::array<const char*, 2>, 4> kVariables{
      {{"SLURM_GPUS_PER_TASK", "--gpus-per-task"},
       {"SLURM_TRES_PER_TASK", "--tres-per-task"},
       {"SLURM_GPU_BIND", "--gpu-bind"},
       {"SALLOC_GPU_BIND", "--gpu-bind"}}};
  std::vector<std::string> lines;
  for (const auto& [variable, option] : kVariables) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == 0) continue;
    if (const auto why = why_hides_gpus(fmt::format("{}={}", option, value)); !why.empty())
      lines.push_back(fmt::format("{} is set: {}", variable, why));
  }
  return lines;
}

}  // namespace dynamiccl
