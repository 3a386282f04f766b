#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// The folder of one started environment: launch agent, script that ends the ranks, owner. It is
/// bound into containers under the same path. Removed by the destructor.
class RunFolder {
 public:
  /// Takes the first free number for this run.
  /// @throws Error(environment) when the folder cannot be made
  explicit RunFolder(const std::string& run_id);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Short name of the environment, usable as container, network and host name: "dyn-3fa9c1d2-0".
  [[nodiscard]] const std::string& name() const { return name_; }
  /// @throws Error(environment)
  void write_script(const std::string& file, const std::string& text) const;
  /// Makes tmpfs_of(name()), where every rank may write.
  /// @throws Error(environment)
  void make_tmpfs() const;
  /// Also of its tmpfs folder, and of what ranks that were killed have left in /dev/shm since it
  /// was made.
  void remove();

  /// The name the next folder of this run would get, for `plan`.
  static std::string planned_name(const std::string& run_id);
  static std::string path_of(const std::string& name);
  /// What containers that share nothing else may share: a folder in /dev/shm.
  static std::string tmpfs_of(const std::string& name);

 private:
  std::string name_;
  std::string path_;
};

/// Folders whose owners are dead, by name.
std::vector<std::string> abandoned_run_folders();

/// Removes a folder by its name, as RunFolder::remove does. @returns the paths that went
std::vector<std::string> remove_run_folder(const std::string& name);

}  // namespace dynamiccl
