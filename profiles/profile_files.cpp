#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "profiles/profile_toml.hpp"
#include "profiles/strict_toml.hpp"

namespace dynamiccl {
namespace {

using ProfileMap = std::map<std::string, EnvironmentProfile>;

// Moved, never copied: a copied TOML node forgets its line and column.
struct ProfileFile {
  std::string source;
  toml::table table;
};

/// @throws Error(input) with all mistakes of the file
EnvironmentProfile read_profile(const ProfileFile& file, const EnvironmentProfile* base,
                                std::vector<std::string>* notes) {
  Mistakes mistakes(file.source);
  TableReader keys(file.table, "", mistakes, &profile_file_keys());
  EnvironmentProfile start = base != nullptr ? *base : EnvironmentProfile{};
  if (base == nullptr && !keys.has("kind"))
    keys.complain("kind", fmt::format("the profile needs the key kind or extends; kinds: {}",
                                      join(all_names<ProfileKind>(), ", ")));
  start.name = keys.text("name").value_or("");
  keys.text("extends");
  EnvironmentProfile profile = apply_profile_keys(start, keys);
  mistakes.raise(notes);
  return profile;
}

/// Only what tells files apart, before they are read.
/// @throws Error(input) when it has no name
std::string name_in(const ProfileFile& file) {
  Mistakes mistakes(file.source);
  TableReader keys(file.table, "", mistakes, &profile_file_keys());
  const auto name = keys.text("name");
  if (!keys.has("name"))
    keys.complain("name", "the file needs the key name: what experiments call it");
  mistakes.raise();
  return *name;
}

[[noreturn]] void refuse(const ProfileFile& file, const char* key, const std::string& message) {
  Mistakes mistakes(file.source);
  TableReader(file.table, "", mistakes).complain(key, message);
  mistakes.raise();
  throw Error(ErrorKind::bug, message);
}

/// Resolves `extends` inside one folder; `earlier` holds the folders before it.
class Folder {
 public:
  Folder(std::map<std::string, ProfileFile> files, ProfileMap earlier,
         std::vector<std::string>* notes)
      : files_(std::move(files)), earlier_(std::move(earlier)), notes_(notes) {}

  ProfileMap resolve_all() {
    for (const auto& [name, file] : files_) resolve(name);
    for (auto& [name, profile] : done_) earlier_.insert_or_assign(name, profile);
    return std::move(earlier_);
  }

 private:
  const EnvironmentProfile& resolve(const std::string& name) {
    if (const auto found = done_.find(name); found != done_.end()) return found->second;
    open_.push_back(name);
    const ProfileFile& file = files_.at(name);
    const EnvironmentProfile* base = nullptr;
    if (const auto extends = file.table["extends"].value_exact<std::string>())
      base = &find_base(file, name, *extends);
    const auto& profile = done_.emplace(name, read_profile(file, base, notes_)).first->second;
    open_.pop_back();
    return profile;
  }

  const EnvironmentProfile& find_base(const ProfileFile& file, const std::string& name,
                                      const std::string& extends) {
    const bool here = files_.contains(extends) && extends != name;
    if (here && std::find(open_.begin(), open_.end(), extends) != open_.end())
      refuse(file, "extends",
             fmt::format("profiles extend each other in a circle: {} -> {}", join(open_, " -> "),
                         extends));
    if (here) return resolve(extends);
    // A folder may refine a profile of an earlier folder under the same name.
    if (const auto found = earlier_.find(extends); found != earlier_.end()) return found->second;
    std::vector<std::string> known;
    for (const auto& [other, its] : files_)
      if (other != name) known.push_back(other);
    for (const auto& [other, profile] : earlier_) known.push_back(other);
    refuse(
        file, "extends",
        fmt::format("unknown profile \"{}\" to extend; {}", extends, suggestion(extends, known)));
  }

  std::map<std::string, ProfileFile> files_;
  ProfileMap earlier_;
  ProfileMap done_;
  std::vector<std::string> open_;
  std::vector<std::string>* notes_;
};

std::map<std::string, ProfileFile> read_folder(const std::string& folder) {
  std::error_code code;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code))
    if (entry.path().extension() == ".toml") paths.push_back(entry.path().string());
  if (code)
    throw Error(ErrorKind::input, fmt::format("{}: cannot be read as a folder of profiles: {}",
                                              folder, code.message()));
  std::sort(paths.begin(), paths.end());
  std::map<std::string, ProfileFile> files;
  for (const std::string& path : paths) {
    ProfileFile file{path, parse_toml(read_input_file(path), path)};
    const std::string name = name_in(file);
    if (const auto same = files.find(name); same != files.end())
      refuse(file, "name",
             fmt::format("profile \"{}\" is already defined by {}", name, same->second.source));
    files.emplace(name, std::move(file));
  }
  return files;
}

}  // namespace

EnvironmentProfile parse_profile(const std::string& toml_text, const std::string& source,
                                 const ProfileMap& known, std::vector<std::string>* notes) {
  ProfileFile file{source, parse_toml(toml_text, source)};
  const std::string name = name_in(file);
  std::map<std::string, ProfileFile> files;
  files.emplace(name, std::move(file));
  return Folder(std::move(files), known, notes).resolve_all().at(name);
}

ProfileMap load_profiles(const std::vector<std::string>& folders, std::vector<std::string>* notes) {
  ProfileMap profiles;
  for (const std::string& folder : folders)
    profiles = Folder(read_folder(folder), std::move(profiles), notes).resolve_all();
  for (const auto& [name, profile] : profiles)
    if (!profile.unprivileged_variant.empty()) find_profile(profiles, profile.unprivileged_variant);
  return profiles;
}

}  // namespace dynamiccl
