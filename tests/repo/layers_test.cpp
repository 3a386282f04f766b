#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <regex>

#include "tests/repo/source_tree.hpp"

using namespace dynamiccl;

namespace {

/// What each folder may include besides itself: the table of ARCHITECTURE.md.
const std::map<std::string, std::vector<std::string>>& layers() {
  static const std::map<std::string, std::vector<std::string>> table{
      {"core", {}},
      {"profiles", {"core", "profiles/detect"}},
      {"profiles/detect", {"core"}},
      {"containers", {"core", "profiles", "profiles/detect"}},
      {"db", {"core"}},
      {"reports", {"core", "profiles", "profiles/detect", "db"}},
      {"tuner", {"core", "profiles/detect"}},
      {"tuner/learn", {"core", "profiles/detect", "tuner"}},
      {"workers", {"core", "profiles/detect", "tuner"}},
      {"workers/train", {"core", "profiles/detect", "tuner", "workers"}},
      {"orchestrator",
       {"core", "profiles", "profiles/detect", "containers", "db", "tuner", "reports"}}};
  return table;
}

/// Libraries that only some folders may speak to: header prefix -> folders.
const std::map<std::string, std::vector<std::string>>& library_owners() {
  static const std::map<std::string, std::vector<std::string>> owners{
      {"mpi.h", {"workers", "workers/train"}},
      {"gloo/", {"workers", "workers/train"}},
      {"nccl.h", {"workers", "workers/train", "tuner"}},
      {"cuda", {"workers", "workers/train"}},
      {"torch/", {"workers/train", "tuner/learn"}},
      {"ATen/", {"workers/train", "tuner/learn"}},
      {"sqlite3.h", {"db"}},
      {"SQLiteCpp/", {"db"}},
      {"toml++/", {"profiles", "orchestrator"}},
      {"Eigen/", {"tuner", "tuner/learn"}},
      {"CLI/", {"orchestrator"}},
      {"boost/process", {"orchestrator"}},
      {"boost/asio", {"orchestrator"}}};
  return owners;
}

/// The longest row of the table that the path lies under, "" when none.
std::string layer_of(const std::string& path) {
  std::string best;
  for (const auto& [folder, allowed] : layers()) {
    if (path.starts_with(folder + "/") && folder.size() > best.size()) best = folder;
  }
  return best;
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::vector<std::string> includes_of(const SourceFile& file, const std::string& open,
                                     const std::string& close) {
  const std::regex include("(^|\n)[ \t]*#[ \t]*include[ \t]*" + open + "([^" + close + "]+)");
  std::vector<std::string> found;
  for (std::sregex_iterator match(file.text.begin(), file.text.end(), include), end; match != end;
       ++match)
    found.push_back((*match)[2]);
  return found;
}

/// Complaints about one file's includes.
std::vector<std::string> complaints(const SourceFile& file) {
  std::vector<std::string> result;
  const std::string from = layer_of(file.path);
  if (from.empty()) return {file.path + ": lies in no layer"};
  for (const auto& include : includes_of(file, "\"", "\"")) {
    if (include.starts_with("embedded/") || include.starts_with("generated_")) continue;
    const std::string to = layer_of(include);
    if (to.empty()) {
      result.push_back(file.path + ": \"" + include + "\" is not written from the repository root");
    } else if (to != from && !contains(layers().at(from), to)) {
      result.push_back(file.path + ": " + from + " may not include " + to + " (" + include + ")");
    }
  }
  for (const auto& include : includes_of(file, "<", ">")) {
    for (const auto& [prefix, owners] : library_owners()) {
      if (include.starts_with(prefix) && !contains(owners, from))
        result.push_back(file.path + ": " + from + " may not speak to <" + include + ">");
    }
  }
  return result;
}

}  // namespace

TEST_CASE("includes go down the layers only") {
  std::vector<std::string> all;
  const auto files = source_files(product_folders(), {".hpp", ".cpp", ".h", ".cu"});
  REQUIRE(files.size() > 50);
  for (const auto& file : files) {
    const auto found = complaints(file);
    all.insert(all.end(), found.begin(), found.end());
  }
  CHECK(all == std::vector<std::string>{});
}

TEST_CASE("the layer rule sees what it forbids") {
  CHECK(complaints({"core/a.cpp", "#include \"db/store.hpp\"\n"}).size() == 1);
  CHECK(complaints({"workers/a.cpp", "#include \"orchestrator/plan.hpp\"\n"}).size() == 1);
  CHECK(complaints({"orchestrator/a.cpp", "#include \"workers/worker.hpp\"\n"}).size() == 1);
  CHECK(complaints({"tuner/a.cpp", "#include \"profiles/profile.hpp\"\n"}).size() == 1);
  CHECK(complaints({"tuner/a.cpp", "#include \"profiles/detect/regime.hpp\"\n"}).empty());
  CHECK(complaints({"orchestrator/a.cpp", "#include <mpi.h>\n"}).size() == 1);
  CHECK(complaints({"tuner/a.cpp", "#include <torch/torch.h>\n"}).size() == 1);
  CHECK(complaints({"db/a.cpp", "#include \"../core/text.hpp\"\n"}).size() == 1);
  CHECK(complaints({"db/a.cpp", "#include \"core/text.hpp\"\n#include <sqlite3.h>\n"}).empty());
}

TEST_CASE("no folder of the product includes the tests") {
  for (const auto& file : source_files(product_folders(), {".hpp", ".cpp"}))
    CHECK(file.text.find("#include \"tests/") == std::string::npos);
}
