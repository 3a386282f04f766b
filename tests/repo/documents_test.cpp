// Links between documents, in the source tree and as they are installed.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "containers/command.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

/// A folder that is gone when the object is.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "documents-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What the document links to that is not there, seen from where it lies.
std::vector<std::string> dangling(const fs::path& document) {
  static const std::regex link(R"(\]\(([^)\s#]+)(#[^)\s]*)?\))");
  static const std::regex elsewhere("^[a-z]+:.*");
  const std::string text = text_of(document);
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), link), end; match != end; ++match) {
    const std::string to = (*match)[1];
    if (!std::regex_match(to, elsewhere) && !fs::exists(document.parent_path() / to))
      found.push_back(document.filename().string() + ": " + to);
  }
  return found;
}

/// @param documents counts them
std::vector<std::string> dangling_below(const fs::path& folder, int& documents) {
  std::vector<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".md") continue;
    ++documents;
    for (auto& link : dangling(entry.path())) found.push_back(std::move(link));
  }
  return found;
}

}  // namespace

TEST_CASE("the rule of links sees one that leads nowhere") {
  const Scratch scratch;
  std::ofstream(scratch.path() / "a.md")
      << "[b](b.md#head) [web](https://example.org/x) [here](#head) [there](a.md) ![p](p.png)\n";
  CHECK(dangling(scratch.path() / "a.md") == std::vector<std::string>{"a.md: b.md", "a.md: p.png"});
}

TEST_CASE("documents link to what is there") {
  const fs::path tree = DYNAMICCL_SOURCE_DIR;
  int documents = 0;
  for (const char* folder :
       {"docs", "reports", "profiles", "db", "core", "workers", "train", "experiments"})
    CHECK(dangling_below(tree / folder, documents) == std::vector<std::string>{});
  CHECK(documents > 30);
  for (const char* name :
       {"README.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"})
    CHECK(dangling(tree / name) == std::vector<std::string>{});
}

TEST_CASE("installed documents link to what is installed") {
  const Scratch scratch;
  fs::create_directory(scratch.path() / "project");
  std::ofstream(scratch.path() / "project/CMakeLists.txt")
      << "cmake_minimum_required(VERSION 3.25)\nproject(documents NONE)\n"
         "include(" DYNAMICCL_SOURCE_DIR "/cmake/InstallDocuments.cmake)\n";
  const std::string at = scratch.path().string();
  const auto configured =
      run_command({DYNAMICCL_CMAKE, "-S", at + "/project", "-B", at + "/build"});
  INFO(configured.out << configured.err);
  REQUIRE(configured.exit_code == 0);
  const auto installed =
      run_command({DYNAMICCL_CMAKE, "--install", at + "/build", "--prefix", at + "/usr"});
  INFO(installed.out << installed.err);
  REQUIRE(installed.exit_code == 0);
  int documents = 0;
  CHECK(dangling_below(scratch.path() / "usr/share/doc/dynamiccl", documents) ==
        std::vector<std::string>{});
  CHECK(documents > 15);
}
