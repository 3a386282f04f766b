// The folder in which isolated ranks' NCCL meets (docs/transport.md), as the ranks see it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/gpu_path.hpp"
#include "profiles/detect/fact_access.hpp"
#include "profiles/detect/probes/meeting_folder.hpp"
#include "profiles/detect/regime_links.hpp"
#include "tuner/export/folder_network.hpp"
#include "tuner/transport/ring.hpp"
#include "tuner/transport/settings.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

/// One thing that is wrong, and what to type.
struct Trouble {
  std::string what;
  std::string fix;
};

void add(std::vector<Trouble>& found, Trouble trouble) {
  const bool known = std::any_of(found.begin(), found.end(),
                                 [&](const auto& other) { return other.what == trouble.what; });
  if (!known) found.push_back(std::move(trouble));
}

/// A communicator's connections that one rank sends by, in each channel: its ring's next rank and
/// at most three neighbours in a tree (NCCL's double binary tree: one up, two down).
int sending_connections(int ranks) { return 1 + std::min(3, ranks - 1); }

transport::Settings settings_of(const json& facts, std::string& problem) {
  return transport::settings_from([&](const char* name) { return variable(facts, name); }, problem);
}

/// Channels of a communicator as the rank sets them: the usual number, or the nearest allowed.
/// Source: NCCL's documentation of NCCL_MIN_CTAS and NCCL_MAX_CTAS, and of the older names.
std::uint64_t channels_of(const json& facts) {
  const auto named = [&](const char* name, const char* older) {
    const std::string text = variable(facts, name);
    return std::strtoul((text.empty() ? variable(facts, older) : text).c_str(), nullptr, 10);
  };
  constexpr std::uint64_t kMostChannels = 64;
  const std::uint64_t least = named("NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS");
  const std::uint64_t most = named("NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS");
  std::uint64_t channels = std::max<std::uint64_t>(std::stoul(kFolderChannels), least);
  if (most != 0) channels = std::min(channels, most);
  return std::min(channels, kMostChannels);
}

/// Of one rank's sending connections, in one communicator.
Bytes ring_memory(const json& facts, int ranks) {
  std::string problem;
  const auto settings = settings_of(facts, problem);
  const std::uint64_t ring = transport::Ring::bytes_for(settings.cells, settings.cell_bytes);
  return Bytes(ring * channels_of(facts) * static_cast<std::uint64_t>(sending_connections(ranks)));
}

void find_wrong_settings(const json& facts, std::vector<Trouble>& found) {
  std::string problem;
  static_cast<void>(settings_of(facts, problem));
  if (!problem.empty())
    add(found, {problem + ": every connection is refused",
                "unset it, or set it as docs/transport.md says, alike on all ranks"});
}

std::string fix_of(FolderTrouble trouble, const std::string& path, const std::string& user) {
  switch (trouble) {
    case FolderTrouble::none:
      return "";
    case FolderTrouble::not_a_folder:
      return fmt::format("rm {}     on the host, if nobody needs what is there; ", path) +
             join(folder_mount(path), "; ");
    case FolderTrouble::missing:
      return join(folder_mount(path), "; ");
    case FolderTrouble::another_users:
      return fmt::format("chown {} {}     on the host", user, path);
    case FolderTrouble::open_to_others:
      return fmt::format("chmod 700 {}", path);
    case FolderTrouble::not_writable:
      return fmt::format("mount it for writing: --volume {0}:{0} without :ro; chmod 700 {0}", path);
    case FolderTrouble::full:
      return fmt::format(
          "df -i {0}; df {0}: remove what fills it (`dynamiccl clean` with "
          "DYNAMICCL_SHARED_FOLDER={0} removes what killed ranks left), or mount -o "
          "remount,nr_inodes=0,size=16m its tmpfs",
          path);
    case FolderTrouble::no_sockets:
      return fmt::format(
          "a folder on a local file system: mkdir -m 700 /dev/shm/job; --volume "
          "/dev/shm/job:{}",
          path);
  }
  return "";
}

void find_folder_trouble(const json& meeting, std::vector<Trouble>& found) {
  const auto text = [&](const char* key) {
    const auto value = meeting.find(key);
    return value != meeting.end() && value->is_string() ? value->get<std::string>() : std::string();
  };
  const auto trouble = find_named<FolderTrouble>(text("trouble")).value_or(FolderTrouble::none);
  if (trouble == FolderTrouble::none) return;
  const json user = meeting.value("user", json());
  add(found, {fmt::format("{}: {}", text("path"), text("why")),
              fix_of(trouble, text("path"), user.is_number() ? user.dump() : "USER")});
}

/// Ranks of one machine that look into different folders reach each other by TCP.
void find_folders_apart(const Symptoms& symptoms, std::vector<Trouble>& found) {
  for (const auto& [host, ranks] : ranks_by_host(symptoms.facts)) {
    std::set<json> seen;
    for (const json* facts : ranks)
      if (const json& folder = fact(*facts, "shm", "folder"); folder.is_object())
        seen.insert(folder);
    if (seen.size() > 1)
      add(found, {fmt::format("{} ranks of one machine see {} different folders: they reach each "
                              "other by TCP",
                              ranks.size(), seen.size()),
                  "mount one folder of the host in every container"});
  }
}

/// Rings lie in memory of the sending rank's container, whatever its /dev/shm holds.
void find_little_memory(const json& facts, int ranks, std::vector<Trouble>& found) {
  const auto limit = whole_number<std::uint64_t>(fact(facts, "cgroup", "memory_limit_bytes"));
  const Bytes needed = ring_memory(facts, ranks);
  if (!limit || *limit >= needed.count()) return;
  add(found,
      {fmt::format("a container's memory limit is {}, and the rings of one communicator take {}",
                   format_bytes(Bytes(*limit)), format_bytes(needed)),
       fmt::format("--memory {}m or more, beside what the program needs", needed.count() >> 20)});
}

/// NCCL itself makes a segment in /dev/shm for each rank, whatever carries its messages.
void find_small_dev_shm(const Symptoms& symptoms, std::vector<Trouble>& found) {
  std::map<json, std::uint64_t> sharing;
  for (const json& facts : symptoms.facts) ++sharing[namespace_identity(facts, "shm")];
  for (const json& facts : symptoms.facts) {
    const auto size = whole_number<std::uint64_t>(fact(facts, "shm", "size_bytes"));
    const std::uint64_t needed = sharing[namespace_identity(facts, "shm")] * kNcclSegmentBytes;
    if (!size || *size >= needed) continue;
    add(found, {fmt::format("/dev/shm holds {}, and NCCL's own segments take {} there",
                            format_bytes(Bytes(*size)), format_bytes(Bytes(needed))),
                "--shm-size 1g (shm_size = \"1GiB\")"});
  }
}

std::vector<Trouble> troubles(const Symptoms& symptoms) {
  std::vector<Trouble> found;
  bool named = false;
  for (const json& facts : symptoms.facts) {
    const json& meeting = fact(facts, "shm", "meeting");
    if (!meeting.is_object()) continue;
    named = true;
    find_folder_trouble(meeting, found);
    find_wrong_settings(facts, found);
    find_little_memory(facts, symptoms.ranks, found);
  }
  if (!named) return {};
  find_folders_apart(symptoms, found);
  find_small_dev_shm(symptoms, found);
  return found;
}

}  // namespace

std::optional<Symptom> look_for_unusable_folder(const Symptoms& symptoms) {
  std::vector<std::string> parts;
  for (const auto& trouble : troubles(symptoms)) parts.push_back(trouble.what);
  if (parts.empty()) return std::nullopt;
  return Symptom{join(parts, "; "), {Backend::nccl}};
}

Fix fix_unusable_folder(const Symptoms& symptoms) {
  std::vector<std::string> parts;
  for (const auto& trouble : troubles(symptoms)) parts.push_back(trouble.fix);
  return {join(parts, "; "), std::nullopt};
}

std::string folder_line(const Symptoms& symptoms) {
  if (!troubles(symptoms).empty()) return "";
  for (const json& facts : symptoms.facts) {
    const json& meeting = fact(facts, "shm", "meeting");
    if (!meeting.is_object() || !meeting.value("path", json()).is_string()) continue;
    const auto mode = whole_number<unsigned>(meeting.value("mode", json()));
    if (!mode) continue;
    const auto limit = whole_number<std::uint64_t>(fact(facts, "cgroup", "memory_limit_bytes"));
    return fmt::format(
        "shared folder {}: {}, mode {:o}, takes sockets, the same for all ranks; rings of {} a "
        "communicator in memory ({}); locks no memory",
        meeting["path"].get<std::string>(), fact_text(facts["shm"], "meeting", "filesystem"), *mode,
        format_bytes(ring_memory(facts, symptoms.ranks)),
        limit ? "limit " + format_bytes(Bytes(*limit)) : "no limit");
  }
  return "";
}

}  // namespace dynamiccl
