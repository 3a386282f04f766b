#include "profiles/detect/probes/settings_files.hpp"

#include <algorithm>
#include <string_view>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kMostSettings = 256;

std::string value_of(const std::vector<std::pair<std::string, std::string>>& variables,
                     std::string_view name) {
  const auto found = std::find_if(variables.begin(), variables.end(),
                                  [&](const auto& variable) { return variable.first == name; });
  return found == variables.end() ? "" : found->second;
}

/// Lines "NAME = VALUE"; "#" begins a comment, and sections of UCX's format are of some machines.
/// @param prefix of the variable that would set the same: "OMPI_MCA_"; "" = the names have it
void read_settings(const ProbeRoot& root, const std::string& file, std::string_view prefix,
                   std::string_view begins_with, std::map<std::string, FiledSetting>& settings) {
  const auto text = root.text(file);
  if (!text) return;
  for (const std::string& whole : split(*text.value, '\n')) {
    const std::string line(trim(std::string_view(whole).substr(0, whole.find('#'))));
    if (line.starts_with('[')) return;
    const auto equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string name(trim(std::string_view(line).substr(0, equals)));
    if (name.empty() || !name.starts_with(begins_with) || settings.size() >= kMostSettings)
      continue;
    settings[std::string(prefix) + name] = {
        std::string(trim(std::string_view(line).substr(equals + 1))), file};
  }
}

}  // namespace

std::map<std::string, FiledSetting> filed_settings(
    const ProbeRoot& root, const std::vector<std::pair<std::string, std::string>>& variables) {
  std::map<std::string, FiledSetting> settings;
  const std::string home = value_of(variables, "HOME");
  const std::string folder = value_of(variables, "UCX_CONFIG_DIR");
  // A later file outweighs those before it.
  read_settings(root, "/etc/openmpi/openmpi-mca-params.conf", "OMPI_MCA_", "", settings);
  if (!home.empty())
    read_settings(root, home + "/.openmpi/mca-params.conf", "OMPI_MCA_", "", settings);
  read_settings(root, "/etc/ucx/ucx.conf", "", "UCX_", settings);
  if (!home.empty()) read_settings(root, home + "/ucx.conf", "", "UCX_", settings);
  if (!folder.empty()) read_settings(root, folder + "/ucx.conf", "", "UCX_", settings);
  read_settings(root, "/proc/self/cwd/ucx.conf", "", "UCX_", settings);
  return settings;
}

}  // namespace dynamiccl
