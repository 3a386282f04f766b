#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// Why an option of salloc or srun hides GPUs from tasks of a node, "" = it hides none.
std::string why_hides_gpus(const std::string& option);

/// The same of the variables that Slurm and users set around this process: one line each.
std::vector<std::string> hidden_gpus_around();

}  // namespace dynamiccl
