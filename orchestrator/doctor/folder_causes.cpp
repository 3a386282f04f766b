// The folder that makes isolated ranks one host to NCCL (docs/one-host.md), as the ranks see it.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/gpu_path.hpp"
#include "profiles/detect/fact_access.hpp"
#include "profiles/detect/probes/meeting_folder.hpp"
#include "profiles/detect/regime_links.hpp"
#include "tuner/export/one_host.hpp"

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

std::string fix_of(FolderTrouble trouble, const std::string& path, const std::string& user) {
  const std::string name = shell_quote(path);
  const std::string made = fmt::format(
      "on the host, as the user that the containers run as: mkdir -p -m 700 /dev/shm/job; every "
      "container, as all do "
      "(docs/one-host.md): docker run {} ...",
      volume_option("/dev/shm/job", path));
  switch (trouble) {
    case FolderTrouble::none:
      return "";
    case FolderTrouble::not_a_folder:
      return fmt::format("on the host, if nobody needs what is there: rm {0}; then: {1}", name,
                         made);
    case FolderTrouble::missing:
      return made;
    case FolderTrouble::too_long:
      return "a shorter path in DYNAMICCL_SHARED_FOLDER and where it is mounted";
    case FolderTrouble::forbidden:
      return fmt::format(
          "on the host: chown {} {} (in a user namespace: the number that this user has on the "
          "host, /proc/self/uid_map; under SELinux: --volume with :z)",
          user, name);
    case FolderTrouble::not_writable:
      return fmt::format("mount it for writing, without :ro: docker run {} ...",
                         volume_option(path));
    case FolderTrouble::full:
      return fmt::format(
          "df -i {0}; df {0}: remove what fills it (`dynamiccl clean` with "
          "DYNAMICCL_SHARED_FOLDER={0} removes what killed ranks left), or mount -o "
          "remount,nr_inodes=0,size=1g its tmpfs",
          name);
    case FolderTrouble::no_sockets:
    case FolderTrouble::not_memory:
      return fmt::format(
          "a folder in memory (tmpfs), on the host, as the user that the containers run as: mkdir "
          "-m 700 /dev/shm/job; docker run {} ...",
          volume_option("/dev/shm/job", path));
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

void find_folders_apart(const Symptoms& symptoms, std::vector<Trouble>& found) {
  for (const auto& [host, ranks] : ranks_by_host(symptoms.facts)) {
    std::set<json> seen;
    for (const json* facts : ranks)
      if (const json& folder = fact(*facts, "shm", "folder"); folder.is_object())
        seen.insert(folder);
    if (seen.size() > 1)
      add(found, {fmt::format("{} ranks of one machine see {} different folders: they stay "
                              "different hosts, and NCCL uses sockets",
                              ranks.size(), seen.size()),
                  "mount one folder of the host in every container"});
  }
}

/// A container's GPU that another has not: sets that differ stay different hosts.
void find_unequal_gpus(const Symptoms& symptoms, std::vector<Trouble>& found) {
  for (const auto& [host, ranks] : ranks_by_host(symptoms.facts)) {
    std::set<std::int64_t> counts;
    for (const json* facts : ranks)
      if (const auto gpus = whole_number<std::int64_t>(fact(*facts, "gpu", "usable")))
        counts.insert(*gpus);
    if (counts.size() > 1)
      add(found, {fmt::format("ranks of one machine see {} and {} GPUs: the library leaves them "
                              "different hosts, and NCCL uses sockets",
                              *counts.begin(), *counts.rbegin()),
                  "the same GPUs in every container: " + all_nodes_advice()});
  }
}

/// Socket files are written to by their owner alone.
void find_users_apart(const Symptoms& symptoms, std::vector<Trouble>& found) {
  std::set<std::uint64_t> users;
  for (const json& facts : symptoms.facts)
    if (const json& meeting = fact(facts, "shm", "meeting"); meeting.is_object())
      if (const auto user = whole_number<std::uint64_t>(meeting.value("user", json())))
        users.insert(*user);
  if (users.size() > 1)
    add(found, {fmt::format("the ranks run as {} users: one may not write to another's socket",
                            users.size()),
                "one user for all ranks: docker run --user UID:GID ..."});
}

/// NCCL makes a segment for each rank, in /dev/shm, which the library moves into the folder.
void find_small_folder(const Symptoms& symptoms, std::vector<Trouble>& found) {
  // Below 64 MiB the library leaves NCCL as it is (onehost.c).
  constexpr std::uint64_t kLeast = std::uint64_t{64} << 20;
  const std::uint64_t needed =
      std::max(kLeast, static_cast<std::uint64_t>(std::max(symptoms.ranks, 0)) * kNcclSegmentBytes);
  for (const json& facts : symptoms.facts) {
    const json& meeting = fact(facts, "shm", "meeting");
    if (!meeting.is_object()) continue;
    const auto size = whole_number<std::uint64_t>(meeting.value("size_bytes", json()));
    // A tmpfs without a limit says 0.
    if (!size || *size == 0 || *size >= needed) continue;
    add(found, {fmt::format("{} holds {}, and NCCL's segments take {} there",
                            meeting.value("path", std::string()), format_bytes(Bytes(*size)),
                            format_bytes(Bytes(needed))),
                fmt::format("on the host: mount -o remount,size={}m the tmpfs that it lies in, or "
                            "mkdir -m 700 /dev/shm/job; docker run {} ... (--shm-size counts for "
                            "a container's own /dev/shm alone)",
                            (needed >> 20) + 64,
                            volume_option("/dev/shm/job", meeting.value("path", std::string())))});
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
  }
  if (!named) return {};
  find_folders_apart(symptoms, found);
  find_unequal_gpus(symptoms, found);
  find_users_apart(symptoms, found);
  find_small_folder(symptoms, found);
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
    return fmt::format("shared folder {}: {}, mode {:o}, takes sockets, the same for all ranks",
                       meeting["path"].get<std::string>(),
                       fact_text(facts["shm"], "meeting", "filesystem"), *mode);
  }
  return "";
}

}  // namespace dynamiccl
