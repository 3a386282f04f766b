#include "tests/repo/source_tree.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace dynamiccl {

namespace fs = std::filesystem;

std::vector<SourceFile> source_files(const std::vector<std::string>& folders,
                                     const std::vector<std::string>& endings) {
  const fs::path root = DYNAMICCL_SOURCE_DIR;
  std::vector<SourceFile> files;
  for (const auto& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const auto extension = entry.path().extension().string();
      const bool wanted = std::find(endings.begin(), endings.end(), extension) != endings.end();
      if (!entry.is_regular_file() || !wanted) continue;
      std::ifstream file(entry.path());
      std::ostringstream text;
      text << file.rdbuf();
      files.push_back({fs::relative(entry.path(), root).string(), text.str()});
    }
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

const std::vector<std::string>& product_folders() {
  static const std::vector<std::string> folders{"core",    "profiles", "containers", "db",
                                                "reports", "plugin",   "tuner",      "orchestrator",
                                                "workers", "train"};
  return folders;
}

}  // namespace dynamiccl
