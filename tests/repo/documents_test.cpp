// Links between documents, in the source tree and as they are installed.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "containers/command.hpp"
#include "tests/repo/source_tree.hpp"

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

namespace {

/// Files and folders of the tree, from its root, each with a "/" in front.
std::vector<std::string> paths_of_the_tree() {
  std::vector<std::string> all;
  const fs::path tree = DYNAMICCL_SOURCE_DIR;
  for (auto at = fs::recursive_directory_iterator(tree); at != fs::recursive_directory_iterator();
       ++at) {
    const auto name = at->path().filename().string();
    const bool ours = name == ".ci" || !name.starts_with(".");
    if (at->is_directory() &&
        (!ours || (at.depth() == 0 && (name == "build" || name == "results"))))
      at.disable_recursion_pending();
    all.push_back("/" + at->path().lexically_relative(tree).string());
  }
  return all;
}

/// The sources that a document names between backquotes and that are nowhere; what holds a name to
/// be filled in ("NAME.cpp") or a wildcard is left out.
std::vector<std::string> lost_sources(const std::string& text,
                                      const std::vector<std::string>& paths) {
  static const std::regex named("`([a-z0-9_./-]+\\.(cpp|hpp|cu|sql|py|sh|js|cmake))`");
  std::vector<std::string> lost;
  for (std::sregex_iterator match(text.begin(), text.end(), named), end; match != end; ++match) {
    const std::string end_of_path = "/" + (*match)[1].str();
    if (std::none_of(paths.begin(), paths.end(),
                     [&](const std::string& path) { return path.ends_with(end_of_path); }))
      lost.push_back((*match)[1]);
  }
  return lost;
}

}  // namespace

TEST_CASE("each answer to what people ask is a test that is there") {
  std::string cases;
  for (const auto& file : source_files({"tests"}, {".cpp"}))
    cases += std::regex_replace(file.text, std::regex("\"\\s*\\n\\s*\""), "");
  const std::string asks = text_of(fs::path(DYNAMICCL_SOURCE_DIR) / "docs/reference/asks.md");
  static const std::regex row(R"(\| ("[^"]+") \|\n)");
  int rows = 0;
  for (std::sregex_iterator match(asks.begin(), asks.end(), row), end; match != end; ++match) {
    INFO((*match)[1]);
    CHECK(cases.find((*match)[1].str()) != std::string::npos);
    ++rows;
  }
  CHECK(rows >= 30);
  // Rows whose test sets up the thread's own case.
  static const std::regex neighbour(R"(\n\| [^|]* \* \|)");
  const auto others = std::distance(std::sregex_iterator(asks.begin(), asks.end(), neighbour),
                                    std::sregex_iterator());
  CHECK(rows - others >= 30);
}

TEST_CASE("documents name sources that are there") {
  const auto paths = paths_of_the_tree();
  REQUIRE(paths.size() > 1000);
  CHECK(lost_sources("`a/nowhere.cpp`, `NAME.cpp`, `tests/repo/documents_test.cpp`", paths) ==
        std::vector<std::string>{"a/nowhere.cpp"});
  const fs::path tree = DYNAMICCL_SOURCE_DIR;
  for (const char* name :
       {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "workers/README.md",
        "train/README.md", "profiles/README.md", "reports/README.md", "db/README.md"}) {
    INFO(name);
    CHECK(lost_sources(text_of(tree / name), paths) == std::vector<std::string>{});
  }
  for (const auto& entry : fs::directory_iterator(tree / "docs"))
    if (entry.path().extension() == ".md") {
      INFO(entry.path());
      CHECK(lost_sources(text_of(entry.path()), paths) == std::vector<std::string>{});
    }
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
