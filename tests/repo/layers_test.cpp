#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "tests/repo/source_tree.hpp"

using namespace dynamiccl;

namespace {

/// Rows of `folders`, which lie in `within`: each may use those before it, and `below`.
void add_storeys(std::map<std::string, std::vector<std::string>>& rows, const std::string& within,
                 std::vector<std::string> below, std::initializer_list<const char*> folders) {
  for (const char* folder : folders) {
    rows[within + folder] = below;
    below.push_back(within + folder);
  }
}

/// What each folder may include besides itself: the table of ARCHITECTURE.md. A name stands for all
/// folders within it, except that a folder's own rows must name each other; a header for itself.
const std::map<std::string, std::vector<std::string>>& layers() {
  static const std::map<std::string, std::vector<std::string>> table = [] {
    std::map<std::string, std::vector<std::string>> rows{
        {"core/vocabulary", {}},
        {"core/wire", {"core/vocabulary"}},
        {"core/statistics", {"core/vocabulary", "core/wire"}},
        {"profiles", {"core", "profiles/detect", "train/spec"}},
        {"profiles/detect/probes", {"core"}},
        {"profiles/detect", {"core", "profiles/detect/probes"}},
        {"containers", {"core", "profiles"}},
        {"containers/cluster", {"core", "profiles", "containers"}},
        {"containers/start", {"core", "profiles", "containers"}},
        {"db", {"core", "train/spec"}}};
    // What NCCL loads into the programs of others: these headers of ours and no more.
    add_storeys(rows, "plugin/",
                {"core/vocabulary/error.hpp", "core/vocabulary/file_limit.hpp",
                 "core/vocabulary/file_text.hpp", "core/vocabulary/host_name.hpp",
                 "core/vocabulary/splitmix64.hpp", "core/vocabulary/units.hpp",
                 "profiles/detect/probes/known_variables.hpp",
                 "profiles/detect/probes/one_host.hpp", "profiles/detect/probes/root_mount.hpp"},
                {"agreement", "tuner", "profiler", "watcher"});
    add_storeys(rows, "tuner/", {"core", "profiles/detect", "plugin/agreement", "train/spec"},
                {"action", "state", "reward", "table", "trigger", "guards", "simulator", "agents",
                 "search", "learn", "export", "job", "online"});
    add_storeys(rows, "workers/", {"core", "profiles/detect"}, {"data", "device"});
    rows["workers"] = {"core", "profiles/detect", "workers/device"};
    rows["workers/aggregation"] = {"core"};
    add_storeys(rows, "workers/",
                {"core", "profiles/detect", "train/spec", "workers/data", "workers/device",
                 "workers", "workers/aggregation"},
                {"collectives", "measure", "backends", "run"});
    rows["train/spec"] = {"core"};
    add_storeys(rows, "train/", {"core", "profiles/detect", "tuner", "workers", "train/spec"},
                {"plan", "data", "step", "torch", "codecs", "exchange", "synchronise", "observe",
                 "oracle", "run"});
    // Each theme of the queries may use what they share.
    add_storeys(rows, "reports/", {"core", "profiles", "db", "train/spec"},
                {"model", "queries", "compare", "render", "page"});
    add_storeys(rows, "orchestrator/",
                {"core", "profiles", "containers", "db", "tuner", "plugin/agreement", "train/spec",
                 "reports"},
                {"experiment", "plan", "launch", "run", "tune", "doctor", "import", "cli"});
    return rows;
  }();
  return table;
}

/// Libraries that only some folders may speak to: header prefix -> folders.
const std::map<std::string, std::vector<std::string>>& library_owners() {
  static const std::map<std::string, std::vector<std::string>> owners{
      {"mpi.h", {"workers"}},
      {"gloo/", {"workers"}},
      {"nccl.h", {"workers"}},
      {"cuda", {"workers", "train"}},
      {"torch/", {"train/torch", "tuner/learn"}},
      {"ATen/", {"train/torch", "tuner/learn"}},
      {"sqlite3.h", {"db"}},
      {"SQLiteCpp/", {"db"}},
      {"toml++/", {"profiles", "orchestrator"}},
      {"Eigen/", {"tuner"}},
      {"CLI/", {"orchestrator"}},
      {"boost/process", {"orchestrator"}},
      {"boost/asio", {"orchestrator"}}};
  return owners;
}

/// Whether one of the list is `word` or a folder that holds it.
bool covers(const std::vector<std::string>& list, const std::string& word) {
  return std::any_of(list.begin(), list.end(), [&](const std::string& one) {
    return word == one || word.starts_with(one + "/");
  });
}

/// The longest row of the table that the path lies under, "" when none.
std::string layer_of(const std::string& path) {
  std::string best;
  for (const auto& [folder, allowed] : layers()) {
    if (path.starts_with(folder + "/") && folder.size() > best.size()) best = folder;
  }
  return best;
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
    } else if (to != from && !covers(layers().at(from), include)) {
      result.push_back(file.path + ": " + from + " may not include " + to + " (" + include + ")");
    }
  }
  for (const auto& include : includes_of(file, "<", ">")) {
    for (const auto& [prefix, owners] : library_owners()) {
      if (include.starts_with(prefix) && !covers(owners, from))
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
  CHECK(complaints({"core/wire/a.cpp", "#include \"db/store.hpp\"\n"}).size() == 1);
  CHECK(complaints({"workers/a.cpp", "#include \"orchestrator/plan/plan.hpp\"\n"}).size() == 1);
  CHECK(complaints({"orchestrator/cli/a.cpp", "#include \"workers/run/worker.hpp\"\n"}).size() ==
        1);
  CHECK(complaints({"tuner/job/a.cpp", "#include \"profiles/profile.hpp\"\n"}).size() == 1);
  CHECK(complaints({"tuner/job/a.cpp", "#include \"profiles/detect/regime.hpp\"\n"}).empty());
  CHECK(complaints({"tuner/state/a.cpp", "#include \"tuner/agents/agent.hpp\"\n"}).size() == 1);
  CHECK(complaints({"train/codecs/a.cpp", "#include \"train/oracle/codec_replay.hpp\"\n"}).size() ==
        1);
  CHECK(complaints({"train/spec/a.cpp", "#include \"train/plan/sgd.hpp\"\n"}).size() == 1);
  CHECK(complaints({"plugin/tuner/a.cpp", "#include \"core/vocabulary/json.hpp\"\n"}).size() == 1);
  CHECK(complaints({"plugin/tuner/a.cpp", "#include \"core/vocabulary/units.hpp\"\n"}).empty());
  CHECK(complaints({"profiles/detect/probes/a.cpp", "#include \"profiles/detect/regime.hpp\"\n"})
            .size() == 1);
  CHECK(complaints({"orchestrator/cli/a.cpp", "#include <mpi.h>\n"}).size() == 1);
  CHECK(complaints({"orchestrator/plan/a.cpp", "#include \"orchestrator/run/executor.hpp\"\n"})
            .size() == 1);
  CHECK(
      complaints({"orchestrator/run/a.cpp", "#include \"orchestrator/plan/plan.hpp\"\n"}).empty());
  CHECK(complaints({"core/wire/a.cpp", "#include \"train/spec/training.hpp\"\n"}).size() == 1);
  CHECK(complaints({"reports/model/a.cpp", "#include \"reports/queries/query.hpp\"\n"}).size() ==
        1);
  CHECK(complaints({"reports/compare/a.cpp", "#include \"reports/render/render.hpp\"\n"}).size() ==
        1);
  CHECK(complaints({"reports/page/a.cpp", "#include \"reports/model/figures.hpp\"\n"}).empty());
  CHECK(complaints({"tuner/job/a.cpp", "#include <torch/torch.h>\n"}).size() == 1);
  CHECK(complaints({"db/a.cpp", "#include \"../core/vocabulary/text.hpp\"\n"}).size() == 1);
  CHECK(complaints({"db/a.cpp", "#include \"core/vocabulary/text.hpp\"\n#include <sqlite3.h>\n"})
            .empty());
}

// A unit that reads JSON without it would bring the unchecked reading of integers back, for others
// of its program too.
TEST_CASE("JSON comes by the header that checks its integers") {
  auto folders = product_folders();
  folders.insert(folders.end(), {"benchmarks", "tests"});
  std::vector<std::string> found;
  for (const auto& file : source_files(folders, {".hpp", ".cpp", ".h", ".cu"}))
    for (const auto& include : includes_of(file, "<", ">"))
      if (include == "nlohmann/json.hpp") found.push_back(file.path);
  CHECK(found == std::vector<std::string>{"core/vocabulary/json.hpp"});
}

namespace {

/// A header and its source are one unit; what a unit's files include, by unit.
std::map<std::string, std::set<std::string>> units_of(const std::vector<SourceFile>& files) {
  const auto unit = [](const std::string& path) { return path.substr(0, path.rfind('.')); };
  std::set<std::string> headers;
  for (const auto& file : files)
    if (file.path.ends_with(".hpp") || file.path.ends_with(".h")) headers.insert(unit(file.path));
  std::map<std::string, std::set<std::string>> uses;
  for (const auto& file : files) {
    for (const auto& include : includes_of(file, "\"", "\"")) {
      const std::string to = unit(include);
      if (to != unit(file.path) && headers.contains(to)) uses[unit(file.path)].insert(to);
    }
  }
  return uses;
}

/// Everything that can be reached from `from`.
std::set<std::string> reached(const std::map<std::string, std::set<std::string>>& uses,
                              const std::string& from) {
  std::set<std::string> seen;
  std::vector<std::string> open{from};
  while (!open.empty()) {
    const auto found = uses.find(open.back());
    open.pop_back();
    if (found == uses.end()) continue;
    for (const auto& next : found->second)
      if (seen.insert(next).second) open.push_back(next);
  }
  return seen;
}

/// The units that use themselves by way of others.
std::vector<std::string> in_circles(const std::vector<SourceFile>& files) {
  const auto uses = units_of(files);
  std::vector<std::string> found;
  for (const auto& [unit, others] : uses)
    if (reached(uses, unit).contains(unit)) found.push_back(unit);
  return found;
}

}  // namespace

namespace {

/// Pairs of folders of which each includes a header of the other's.
std::vector<std::string> both_ways(const std::vector<SourceFile>& files) {
  const auto folder = [](const std::string& path) { return path.substr(0, path.rfind('/')); };
  std::set<std::pair<std::string, std::string>> uses;
  for (const auto& file : files)
    for (const auto& include : includes_of(file, "\"", "\""))
      if (include.find('/') != std::string::npos) uses.insert({folder(file.path), folder(include)});
  std::vector<std::string> found;
  for (const auto& [from, to] : uses)
    if (from < to && uses.contains({to, from})) found.push_back(from + " and " + to);
  return found;
}

}  // namespace

TEST_CASE("no two folders include each other's headers") {
  CHECK(both_ways(source_files(product_folders(), {".hpp", ".cpp", ".h", ".cu"})) ==
        std::vector<std::string>{});
  CHECK(both_ways({{"db/a.cpp", "#include \"core/b.hpp\"\n#include \"db/c.hpp\"\n"},
                   {"core/b.hpp", "#include \"db/c.hpp\"\n"}}) ==
        std::vector<std::string>{"core and db"});
}

TEST_CASE("no two sources include each other's headers, however far around") {
  CHECK(in_circles(source_files(product_folders(), {".hpp", ".cpp", ".h", ".cu"})) ==
        std::vector<std::string>{});
}

TEST_CASE("the circle rule sees one through sources") {
  const std::vector<SourceFile> files{
      {"db/a.hpp", ""},
      {"db/b.hpp", "#include \"db/a.hpp\"\n"},
      {"db/a.cpp", "#include \"db/a.hpp\"\n#include \"db/b.hpp\"\n"},
      {"db/c.cpp", "#include \"db/b.hpp\"\n"}};
  CHECK(in_circles(files) == std::vector<std::string>{"db/a", "db/b"});
}

namespace {

/// A folder of sources that one can still survey holds at most this many units.
constexpr std::size_t kMaxUnits = 30;

/// The folders of more units than that, a header and its source counted once.
std::vector<std::string> too_full(const std::vector<SourceFile>& files) {
  std::map<std::string, std::set<std::string>> units;
  for (const auto& file : files) {
    const std::string unit = file.path.substr(0, file.path.rfind('.'));
    units[unit.substr(0, unit.rfind('/'))].insert(unit);
  }
  std::vector<std::string> found;
  for (const auto& [folder, within] : units)
    if (within.size() > kMaxUnits)
      found.push_back(folder + ": " + std::to_string(within.size()) + " units");
  return found;
}

}  // namespace

TEST_CASE("no folder holds more sources than one surveys") {
  std::vector<std::string> folders = product_folders();
  folders.insert(folders.end(), {"benchmarks", "tests"});
  CHECK(too_full(source_files(folders, {".hpp", ".cpp", ".h", ".cu"})) ==
        std::vector<std::string>{});
}

TEST_CASE("the count of a folder's sources takes a header and its source for one") {
  std::vector<SourceFile> files;
  for (std::size_t i = 0; i < kMaxUnits; ++i)
    for (const char* ending : {".hpp", ".cpp"})
      files.push_back({"db/unit" + std::to_string(i) + ending, ""});
  files.push_back({"db/below/other.cpp", ""});
  CHECK(too_full(files) == std::vector<std::string>{});
  files.push_back({"db/one_more.cu", ""});
  CHECK(too_full(files) == std::vector<std::string>{"db: 31 units"});
}

TEST_CASE("no folder of the product includes the tests") {
  for (const auto& file : source_files(product_folders(), {".hpp", ".cpp"}))
    CHECK(file.text.find("#include \"tests/") == std::string::npos);
}
