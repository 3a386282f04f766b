#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "profiles/profile_toml.hpp"

namespace dynamiccl {
namespace {

using ProfileMap = std::map<std::string, EnvironmentProfile>;

// Moved, never copied: a copied TOML node forgets its line and column.
struct ProfileFile {
  std::string source;
  toml::table table;
};

EnvironmentProfile read_profile(const ProfileFile& file, const EnvironmentProfile* base) {
  StrictTable keys(file.table, file.source, "the profile");
  const std::string name = keys.required_text("name");
  keys.text("extends");
  EnvironmentProfile start = base != nullptr ? *base : EnvironmentProfile{};
  if (base == nullptr && !keys.has("kind"))
    keys.fail("kind", fmt::format("the profile needs the key \"kind\" or \"extends\"; kinds: {}",
                                  join(all_names<EnvironmentKind>(), ", ")));
  start.name = name;
  return apply_profile_keys(start, keys);
}

/// Resolves `extends` inside one folder; `earlier` holds the folders before it.
class Folder {
 public:
  Folder(std::map<std::string, ProfileFile> files, ProfileMap earlier)
      : files_(std::move(files)), earlier_(std::move(earlier)) {}

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
    StrictTable keys(file.table, file.source, "the profile");
    const EnvironmentProfile* base = nullptr;
    if (const auto extends = keys.text("extends")) base = &find_base(keys, name, *extends);
    const auto& profile = done_.emplace(name, read_profile(file, base)).first->second;
    open_.pop_back();
    return profile;
  }

  const EnvironmentProfile& find_base(const StrictTable& keys, const std::string& name,
                                      const std::string& extends) {
    const bool here = files_.contains(extends) && extends != name;
    if (here && std::find(open_.begin(), open_.end(), extends) != open_.end())
      keys.fail("extends", fmt::format("profiles extend each other in a circle: {} -> {}",
                                       join(open_, " -> "), extends));
    if (here) return resolve(extends);
    // A folder may refine a profile of an earlier folder under the same name.
    if (const auto found = earlier_.find(extends); found != earlier_.end()) return found->second;
    std::vector<std::string> known;
    for (const auto& [other, file] : files_)
      if (other != name) known.push_back(other);
    for (const auto& [other, profile] : earlier_) known.push_back(other);
    keys.fail("extends", fmt::format("unknown profile \"{}\" to extend; {}", extends,
                                     suggestion(extends, known)));
  }

  std::map<std::string, ProfileFile> files_;
  ProfileMap earlier_;
  ProfileMap done_;
  std::vector<std::string> open_;
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
    StrictTable keys(file.table, path, "the profile");
    const std::string name = keys.required_text("name");
    if (const auto same = files.find(name); same != files.end())
      keys.fail("name",
                fmt::format("profile \"{}\" is already defined by {}", name, same->second.source));
    files.emplace(name, std::move(file));
  }
  return files;
}

}  // namespace

EnvironmentProfile parse_profile(const std::string& toml_text, const std::string& source,
                                 const ProfileMap& known) {
  ProfileFile file{source, parse_toml(toml_text, source)};
  const std::string name = StrictTable(file.table, source, "the profile").required_text("name");
  std::map<std::string, ProfileFile> files;
  files.emplace(name, std::move(file));
  return Folder(std::move(files), known).resolve_all().at(name);
}

EnvironmentProfile parse_profile(const std::string& toml_text, const std::string& source) {
  return parse_profile(toml_text, source, {});
}

ProfileMap load_profiles(const std::vector<std::string>& folders) {
  ProfileMap profiles;
  for (const std::string& folder : folders)
    profiles = Folder(read_folder(folder), std::move(profiles)).resolve_all();
  for (const auto& [name, profile] : profiles)
    if (!profile.unprivileged_variant.empty()) find_profile(profiles, profile.unprivileged_variant);
  return profiles;
}

}  // namespace dynamiccl
