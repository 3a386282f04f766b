#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "profiles/detect/probes/probe_root.hpp"

namespace dynamiccl {

/// A setting that a library reads from a file of its own, as if a variable had set it.
struct FiledSetting {
  std::string value;
  std::string file;
};

/// What Open MPI reads of mca-params.conf and UCX of ucx.conf, by the variable that would set the
/// same ("OMPI_MCA_btl", "UCX_TLS"). A variable that is set outweighs it. Of several files that
/// give a setting, the one that holds.
/// @param variables of the process: where its home is, and UCX_CONFIG_DIR
std::map<std::string, FiledSetting> filed_settings(
    const ProbeRoot& root, const std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace dynamiccl
