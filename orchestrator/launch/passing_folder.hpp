#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {

/// A new folder of the user's alone for short-lived files (a capsule that is unpacked, SimGrid's
/// input), which goes with this object: where something throws, too.
class PassingFolder {
 public:
  /// @param purpose part of its name: "capsule"
  /// @throws Error(environment) where none can be made
  explicit PassingFolder(const std::string& purpose) {
    const auto above = std::filesystem::temp_directory_path();
    std::string name = (above / ("dynamiccl-" + purpose + "-XXXXXX")).string();
    if (mkdtemp(name.data()) == nullptr)
      throw Error(ErrorKind::environment, "no folder can be made in " + above.string() +
                                              ": set TMPDIR to one that can be written");
    path_ = name;
  }
  ~PassingFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  PassingFolder(const PassingFolder&) = delete;
  PassingFolder& operator=(const PassingFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace dynamiccl
