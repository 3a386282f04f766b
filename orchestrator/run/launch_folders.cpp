#include "orchestrator/run/launch_folders.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

#include "core/vocabulary/others_files.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;
constexpr const char* kNotStored = "not-stored";

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_directory(ignored) && !at->is_symlink(ignored)) found.push_back(at->path());
  }
  return found;
}

/// Folders of ours are named by random ids. A database of somebody else must not make any other
/// look like one of them, which would be removed.
bool is_id(const fs::path& folder) {
  constexpr std::string_view kForm = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  const std::string name = folder.filename().string();
  return std::equal(name.begin(), name.end(), kForm.begin(), kForm.end(), [](char c, char form) {
    return form == '-' ? c == '-' : std::isxdigit(static_cast<unsigned char>(c)) != 0;
  });
}

}  // namespace

std::vector<std::string> runs_folders(const std::string& db) {
  const auto usual = (fs::absolute(db).parent_path() / "runs").string();
  return {usual, fmt::format("{}-{}", usual, geteuid())};
}

std::string runs_folder(const std::string& db) {
  const auto folders = runs_folders(db);
  const std::string& usual = folders.front();
  struct stat status {};
  const bool strangers = is_strangers(usual, status);
  const bool others = lstat(usual.c_str(), &status) == 0 && status.st_uid != geteuid();
  const bool closed = faccessat(AT_FDCWD, usual.c_str(), W_OK | X_OK, AT_EACCESS) != 0;
  return strangers || (others && closed) ? folders.back() : usual;
}

void keep_launch_folder(const std::string& folder) {
  std::ofstream(folder + "/" + kNotStored)
      << "the outcome of this launch could not be stored: these records are all there is of it\n";
}

std::vector<std::string> remove_rowless_folders(const Reader& reader,
                                                const std::string& runs_folder) {
  std::vector<std::string> removed;
  for (const auto& run : folders_in(runs_folder)) {
    if (!is_id(run)) continue;
    const Table known = reader.query("SELECT 1 FROM run WHERE uuid = ?1 AND status <> 'running'",
                                     {run.filename().string()});
    if (known.rows.empty()) continue;
    std::set<std::string> launches;
    const Table rows = reader.query(
        "SELECT l.uuid FROM launch l JOIN plan_group g ON g.id = l.group_id JOIN run r ON r.id = "
        "g.run_id WHERE r.uuid = ?1",
        {run.filename().string()});
    for (const auto& row : rows.rows) launches.insert(std::get<std::string>(row[0]));
    std::error_code ignored;
    for (const auto& launch : folders_in(run)) {
      if (!is_id(launch) || launches.contains(launch.filename().string()) ||
          fs::exists(launch / kNotStored, ignored))
        continue;
      if (fs::remove_all(launch, ignored) > 0) removed.push_back(launch.string());
    }
    fs::remove(run, ignored);  // only when nothing was kept in it
  }
  return removed;
}

}  // namespace dynamiccl
