#include <algorithm>
#include <array>

#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/probe.hpp"
#include "profiles/detect/probes/root_mount.hpp"

namespace dynamiccl {
namespace {

struct Evidence {
  std::string runtime;
  std::string what;
  bool stale = false;  ///< a file left over from the image that the machine was made of
};

/// A word in a path or cgroup text that only one runtime writes.
struct Mark {
  std::string_view word;
  std::string_view runtime;
};
// Podman before Docker: both keep "overlay" and "containers" in their paths.
constexpr std::array kRootMarks{
    Mark{"apptainer", "singularity"},     Mark{"singularity", "singularity"},
    Mark{"containers/storage", "podman"}, Mark{"/docker/", "docker"},
    Mark{"io.containerd", "containerd"},  Mark{"/lxc/", "lxc"}};
constexpr std::array kCgroupMarks{
    Mark{"libpod", "podman"},  Mark{"kubepods", "kubernetes"},       Mark{"/docker", "docker"},
    Mark{"docker-", "docker"}, Mark{"cri-containerd", "containerd"}, Mark{"/lxc", "lxc"}};

constexpr std::array kMarkerFiles{Mark{"/run/.containerenv", "podman"},
                                  Mark{"/.dockerenv", "docker"},
                                  Mark{"/.singularity.d", "singularity"}};

template <std::size_t N>
void find_marks(const std::string& text, const std::array<Mark, N>& marks, const char* source,
                std::vector<Evidence>& evidence) {
  for (const Mark& mark : marks) {
    if (text.find(mark.word) == std::string::npos) continue;
    evidence.push_back(
        {std::string(mark.runtime), std::string(source) + " names " + std::string(mark.word)});
    return;
  }
}

void from_environment(const LiveSystem& live, std::vector<Evidence>& evidence) {
  const auto variables = live.environment();
  if (!variables) return;
  for (const auto& [name, value] : *variables) {
    if (name == "APPTAINER_CONTAINER" || name == "SINGULARITY_CONTAINER")
      evidence.push_back({"singularity", "environment variable " + name});
    // systemd's container interface: set by podman, lxc and systemd-nspawn.
    if (name == "container" && !value.empty() && value != "oci")
      evidence.push_back({clean_text(value, 40), "environment variable container=" + value});
  }
}

/// The first 64 hexadecimal digits after `before`: how Docker and Podman name a container in paths.
std::string container_id(const std::string& text, std::string_view before) {
  constexpr std::size_t kDigits = 64;
  for (std::size_t at = text.find(before); at != std::string::npos;
       at = text.find(before, at + 1)) {
    const std::string_view id =
        std::string_view(text).substr(at + before.size()).substr(0, kDigits);
    const bool hexadecimal = std::all_of(id.begin(), id.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    });
    if (id.size() == kDigits && hexadecimal) return std::string(id.substr(0, 12));
  }
  return "";
}

Known<std::string> find_container_id(const std::string& cgroup, const std::string& mounts) {
  for (const char* before : {"/docker/", "docker-", "libpod-", "cri-containerd-"})
    if (auto id = container_id(cgroup, before); !id.empty()) return {id, ""};
  // The engine binds its copy of /etc/hostname: .../containers/ID/hostname.
  if (auto id = container_id(mounts, "containers/"); !id.empty()) return {id, ""};
  return Known<std::string>::unknown("no container id in the cgroup or mount paths");
}

}  // namespace

nlohmann::json probe_container(const ProbeContext& context) {
  const ProbeRoot& root = context.root;
  // In this order: what an engine sets for the process itself, before files that an image built
  // from another engine's image carries along (/.dockerenv, /.singularity.d).
  std::vector<Evidence> evidence;
  from_environment(context.live, evidence);
  const std::string mounts =
      root.text("/proc/self/mountinfo", std::size_t{1} << 20).value.value_or("");
  const std::string mount(root_mount(mounts));
  find_marks(mount, kRootMarks, "the root mount", evidence);
  const std::string cgroup = root.text("/proc/self/cgroup").value.value_or("");
  find_marks(cgroup, kCgroupMarks, "/proc/self/cgroup", evidence);
  const bool stale = evidence.empty() && is_whole_disk(mount);
  for (const Mark& file : kMarkerFiles)
    if (root.exists(std::string(file.word)))
      evidence.push_back({std::string(file.runtime), std::string(file.word), stale});
  Section section;
  const bool found = !evidence.empty() && !stale;
  section.set("runtime", found ? evidence.front().runtime : std::string("none"));
  nlohmann::json list = nlohmann::json::array();
  for (const Evidence& item : evidence)
    list.push_back({{"runtime", item.runtime},
                    {"evidence", clean_text(item.what, 200)},
                    {"counts", !item.stale}});
  section.set("evidence", list);
  if (found)
    section.set("id", find_container_id(cgroup, mounts));
  else
    section.unknown("id", "not in a container");
  return std::move(section).take();
}

}  // namespace dynamiccl
