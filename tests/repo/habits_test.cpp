#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/known_variables.hpp"
#include "tests/repo/source_tree.hpp"
#include "train/spec/compression.hpp"

using namespace dynamiccl;

namespace {

/// A file holds one concept whole; at this many lines it holds more than one.
constexpr long kMaxLines = 600;
constexpr long kMaxTestLines = 800;

std::vector<std::string> too_long(const std::vector<SourceFile>& files, long limit) {
  std::vector<std::string> result;
  for (const auto& file : files) {
    const auto lines = std::count(file.text.begin(), file.text.end(), '\n');
    if (lines > limit) result.push_back(file.path + ": " + std::to_string(lines) + " lines");
  }
  return result;
}

/// A function that is longer than a screen does more than one thing.
constexpr std::size_t kMaxFunction = 60;

/// What opens a block that is no statement: a namespace, C linkage.
bool holds_declarations(const std::string& line) {
  return line.starts_with("namespace") || line.starts_with("extern ");
}

/// Functions over the limit, from their first line to their last, as clang-format lays them out: a
/// block ends in a line of its own, begins in the last line before of the same indentation, and
/// what lies between is indented more.
std::vector<std::string> long_functions(const std::vector<SourceFile>& files) {
  std::vector<std::string> result;
  for (const auto& file : files) {
    std::map<std::size_t, std::pair<std::size_t, std::string>> last;  // indentation -> its line
    std::istringstream lines(file.text);
    std::size_t number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      const auto indent = line.find_first_not_of(' ');
      if (indent == std::string::npos || line[indent] == '#') continue;
      if (line == std::string(indent, ' ') + "}" && last.contains(indent)) {
        const auto& [first, opens] = last[indent];
        if (number - first + 1 > kMaxFunction && !holds_declarations(opens))
          result.push_back(file.path + ":" + std::to_string(first) + ": " +
                           std::to_string(number - first + 1) + " lines");
      }
      last[indent] = {number, line};
    }
  }
  return result;
}

}  // namespace

TEST_CASE("no function is longer than a screen") {
  CHECK(long_functions(source_files(product_folders(), {".hpp", ".cpp", ".h", ".cu"})) ==
        std::vector<std::string>{});
}

TEST_CASE("the count of a function's lines is from its head to its end") {
  const auto of = [](std::size_t statements) {
    std::string text = "namespace a {\n\nint f(int x,\n      int y) {\n";
    for (std::size_t i = 0; i < statements; ++i) text += "  ++x;\n";
    return std::vector<SourceFile>{{"db/a.cpp", text + "}\n\n}  // namespace a\n"}};
  };
  CHECK(long_functions(of(kMaxFunction - 3)) == std::vector<std::string>{});
  CHECK(long_functions(of(kMaxFunction - 2)) == std::vector<std::string>{"db/a.cpp:3: 61 lines"});
}

TEST_CASE("no file holds more than one concept would fill") {
  CHECK(too_long(source_files(product_folders(), {".hpp", ".cpp", ".cu", ".sh"}), kMaxLines) ==
        std::vector<std::string>{});
  CHECK(too_long(source_files({"tests"}, {".hpp", ".cpp"}), kMaxTestLines) ==
        std::vector<std::string>{});
}

TEST_CASE("the README is short enough to be read") {
  CHECK(std::filesystem::file_size(DYNAMICCL_SOURCE_DIR "/README.md") <= 9000);
}

TEST_CASE("headers guard themselves and open no namespace for others") {
  for (const auto& file : source_files(product_folders(), {".hpp"})) {
    INFO(file.path);
    CHECK(file.text.starts_with("#pragma once\n"));
    CHECK(file.text.find("using namespace") == std::string::npos);
  }
}

TEST_CASE("no work is left for later in the sources") {
  const std::regex unfinished(
      "\\b(TO"
      "DO|FIX"
      "ME|XX"
      "X|HA"
      "CK)\\b");
  for (const auto& file : source_files(product_folders(), {".hpp", ".cpp", ".cu", ".sql", ".sh"})) {
    INFO(file.path);
    CHECK_FALSE(std::regex_search(file.text, unfinished));
  }
}

namespace {

/// Files outside train/spec that name a training method in C++.
std::vector<std::string> that_name_methods(const std::vector<SourceFile>& files) {
  std::vector<std::string> result;
  for (const auto& file : files)
    if (!file.path.starts_with("train/spec/") &&
        file.text.find("TrainingMethod::") != std::string::npos)
      result.push_back(file.path);
  return result;
}

/// Names of rows as they stand in SQL between quotes, or a method's in C++: "FILE: NAME". A codec
/// of no bits is no name.
std::vector<std::string> that_spell_rows(const std::vector<SourceFile>& files) {
  std::vector<std::string> methods = all_names<TrainingMethod>();
  auto names = methods;
  for (const auto& more : {all_names<Synchronisation>(), all_names<Codec>(), all_names<Backend>()})
    names.insert(names.end(), more.begin(), more.end());
  std::erase(names, name_of(Codec::none));
  std::vector<std::string> result;
  for (const auto& file : files) {
    if (file.path.starts_with("train/spec/") || file.path.starts_with("db/migrations/")) continue;
    const bool sql = file.path.ends_with(".sql");
    for (const auto& name : sql ? names : methods)
      if (file.text.find("'" + name + "'") != std::string::npos ||
          (!sql && file.text.find('"' + name + '"') != std::string::npos))
        result.push_back(file.path + ": " + name);
  }
  return result;
}

/// Where a backend may be named: its tables, and code that is about one library alone.
constexpr std::array kNamesBackends{
    "core/vocabulary/backend.hpp", "workers/run/backend_table.cpp",
    "orchestrator/launch/launcher.cpp",
    // By whom a method, a cause or a pair of nodes is measured, in order of preference.
    "train/spec/training_method.hpp", "orchestrator/doctor/causes.cpp",
    "orchestrator/doctor/preflight.hpp", "orchestrator/doctor/preflight.cpp",
    // The files that one library's jobs load.
    "tuner/export/mpi_export.cpp", "tuner/export/nccl_export.cpp", "tuner/export/export.cpp",
    "orchestrator/cli/verbs/export_verb.cpp",
    // NCCL's variables, paths, plugin and jobs.
    "orchestrator/doctor/examine.cpp", "orchestrator/doctor/folder_causes.cpp",
    "orchestrator/doctor/gpu_causes.cpp", "orchestrator/doctor/gpu_path.cpp",
    "orchestrator/doctor/network_causes.cpp", "orchestrator/tune/job/job_files.cpp",
    "orchestrator/tune/job/job_tuning.cpp", "profiles/detect/regime_links.cpp",
    "orchestrator/tune/job/job_start.cpp", "orchestrator/tune/job/job_trial.cpp",
    "orchestrator/tune/job/job_trial.hpp", "orchestrator/tune/job/job_words.cpp",
    "orchestrator/tune/job/library_watch.cpp", "orchestrator/cli/verbs/tune_job.cpp",
    "tuner/job/job_facts.hpp", "reports/queries/choices/floor.cpp", "tuner/job/job_facts.cpp",
    "tuner/online/call_driver.cpp",
    // MPICH's way to give up.
    "orchestrator/doctor/memory_causes.cpp",
    // What the simulator knows of each.
    "tuner/simulator/tiers.cpp", "tuner/learn/world.cpp"};

/// Files that name a backend although its row could be asked.
std::vector<std::string> that_name_backends(const std::vector<SourceFile>& files) {
  std::vector<std::string> result;
  for (const auto& file : files)
    if (file.text.find("Backend::") != std::string::npos &&
        std::ranges::find(kNamesBackends, file.path) == kNamesBackends.end())
      result.push_back(file.path);
  return result;
}

/// Files that compare a value with several backends in one condition.
std::vector<std::string> that_list_backends(const std::vector<SourceFile>& files) {
  const std::regex list(
      R"([=!]=\s*(name_of\()?Backend::\w+\)?\s*(&&|\|\|)\s*[\w.>()\[\]-]+\s*[=!]=\s*(name_of\()?Backend::)");
  std::vector<std::string> result;
  for (const auto& file : files)
    if (std::regex_search(file.text, list)) result.push_back(file.path);
  return result;
}

/// Files that glue or cut a setting's scope, or have its first spelling. Whole names may stand
/// anywhere.
std::vector<std::string> that_spell_scopes(const std::vector<SourceFile>& files) {
  const std::regex scope(R"("(mca|malloc):|"(env|mca|malloc|call)\.")");
  std::vector<std::string> result;
  for (const auto& file : files)
    if (std::regex_search(file.text, scope)) result.push_back(file.path);
  return result;
}

/// Files that read JSON by the library itself, which has no limit of depth.
std::vector<std::string> that_read_json(const std::vector<SourceFile>& files) {
  // job_facts.cpp has a limit of its own. What is kept in order is what this program printed.
  constexpr std::array kMay{"core/vocabulary/parsed_json.cpp", "tuner/job/job_facts.cpp"};
  const std::regex call(R"((^|[^_\w])(json::parse|json::from_\w+)\()");
  std::vector<std::string> result;
  for (const auto& file : files)
    if (std::regex_search(file.text, call) && std::ranges::find(kMay, file.path) == kMay.end())
      result.push_back(file.path);
  return result;
}

/// Types defined twice under one name of one namespace: "NAMESPACE::NAME: FILE, FILE". The linker
/// keeps one of two such types' functions without a word, and the other's objects break. Types of
/// unnamed namespaces and those within others are not meant. Reads what clang-format has laid out:
/// namespaces and their types stand in the first column.
std::vector<std::string> types_defined_twice(const std::vector<SourceFile>& files) {
  static const std::regex type(
      "^(?:struct|class|enum class|enum|union) (?:alignas\\([^)]*\\) )?(\\w+)(?: final)?"
      "(?: : [^;]*)?(?: \\{.*)?$");
  std::map<std::string, std::string> places;
  std::vector<std::string> result;
  for (const auto& file : files) {
    std::vector<std::string> inside;
    std::istringstream lines(file.text);
    for (std::string line; std::getline(lines, line);) {
      std::smatch found;
      if (line.starts_with("namespace ") && line.ends_with("{")) inside.push_back(line);
      if (line.starts_with("}  // namespace") && !inside.empty()) inside.pop_back();
      const bool unnamed = std::find(inside.begin(), inside.end(), "namespace {") != inside.end();
      if (unnamed || !std::regex_match(line, found, type)) continue;
      std::string name;
      for (const auto& each : inside) name += each.substr(10, each.size() - 12) + "::";
      const auto [place, is_new] = places.emplace(name + found[1].str(), file.path);
      if (!is_new) result.push_back(place->first + ": " + place->second + ", " + file.path);
    }
  }
  return result;
}

}  // namespace

TEST_CASE("only the one reader and writer of settings' names knows how they are spelled") {
  const auto files = source_files(product_folders(), {".hpp", ".cpp", ".cu", ".sql"});
  CHECK(that_spell_scopes(files) == std::vector<std::string>{});
  CHECK(that_spell_scopes(source_files({"profiles", "experiments", "docs"},
                                       {".toml", ".json", ".md"})) == std::vector<std::string>{});
  CHECK(that_spell_scopes({{"a.cpp", "name.starts_with(\"env.\")"}}).size() == 1);
  CHECK(that_spell_scopes({{"a.cpp", "put({\"malloc:keep\", value})"}}).size() == 1);
  CHECK(that_spell_scopes({{"a.cpp", "knobs.erase(\"mca.btl\")"}}).empty());
}

TEST_CASE("JSON is read with a limit of its depth", "[safety]") {
  const auto files = source_files(product_folders(), {".hpp", ".cpp", ".cu"});
  CHECK(that_read_json(files) == std::vector<std::string>{});
  CHECK(that_read_json({{"a.cpp", "auto o = nlohmann::json::parse(text, nullptr, false);\n"}})
            .size() == 1);
  CHECK(that_read_json({{"a.cpp", "parsed_json(text); ordered_json::parse(shown);\n"}}).empty());
}

TEST_CASE("a training method's row is asked, not its name") {
  const auto files = source_files(product_folders(), {".hpp", ".cpp", ".cu"});
  CHECK(that_name_methods(files) == std::vector<std::string>{});
  CHECK(that_name_methods({{"workers/a.cpp", "if (m == TrainingMethod::dear) {}\n"}}).size() == 1);
  CHECK(that_name_methods({{"workers/a.cpp", "parse_named<TrainingMethod>(text)\n"}}).empty());
}

TEST_CASE("no query and no source spells a method where its row can be asked") {
  CHECK(that_spell_rows(source_files(product_folders(), {".hpp", ".cpp", ".cu", ".sql"})) ==
        std::vector<std::string>{});
  CHECK(that_spell_rows({{"db/a.sql", "WHERE codec = 'topk' AND method = 'dear'\n"}}).size() == 2);
  CHECK(that_spell_rows({{"reports/a.cpp", "if (method == \"dear\") {}\n"}}).size() == 1);
  CHECK(that_spell_rows({{"reports/a.cpp", "if (codec == \"none\") {}\n"}}).empty());
}

TEST_CASE("a backend's row is asked, not its name, but where a file is about one library") {
  const auto files = source_files(product_folders(), {".hpp", ".cpp", ".cu"});
  CHECK(that_name_backends(files) == std::vector<std::string>{});
  CHECK(that_name_backends({{"tuner/a.cpp", "if (b == Backend::gloo) {}\n"}}).size() == 1);
  CHECK(that_name_backends({{"tuner/a.cpp", "parse_named<Backend>(text)\n"}}).empty());
  // None that would allow what is no longer so.
  for (const char* path : kNamesBackends) {
    INFO(path);
    CHECK(std::ranges::any_of(files, [&](const SourceFile& file) {
      return file.path == path && file.text.find("Backend::") != std::string::npos;
    }));
  }
}

TEST_CASE("no file holds what a merge left to be decided") {
  std::vector<std::string> found;
  for (const auto& file : source_files(
           {"benchmarks", "cmake", "containers", "core", "db", "docs", "experiments",
            "orchestrator", "plugin", "profiles", "reports", "scripts", "tests", "train", "tuner",
            "workers"},
           {".cpp", ".hpp", ".cu", ".cmake", ".txt", ".md", ".sh", ".py", ".sql", ".toml"}))
    for (const char* marker : {"\n<<<<<<< ", "\n>>>>>>> "})
      if (file.text.find(marker) != std::string::npos) found.push_back(file.path);
  CHECK(found == std::vector<std::string>{});
}

TEST_CASE("no two types share a name in one namespace") {
  CHECK(types_defined_twice(source_files(product_folders(), {".hpp", ".cpp", ".cu"})) ==
        std::vector<std::string>{});
  const std::string one = "namespace a {\n\nstruct B {\n};\n\n}  // namespace a\n";
  CHECK(types_defined_twice({{"1.hpp", one}, {"2.hpp", one}}) ==
        std::vector<std::string>{"a::B: 1.hpp, 2.hpp"});
  CHECK(types_defined_twice({{"1.hpp", one}, {"2.hpp", "namespace c {\nclass B : public D {\n"}})
            .empty());
  CHECK(types_defined_twice({{"1.hpp", one},
                             {"2.cpp",
                              "namespace a {\nnamespace {\nstruct B {\n};\n"
                              "}  // namespace\nstruct B;\nstruct B::Inner {\n"}})
            .empty());
}

TEST_CASE("a backend's row is asked where several would be compared") {
  const auto files = source_files(product_folders(), {".hpp", ".cpp", ".cu"});
  CHECK(that_list_backends(files) == std::vector<std::string>{});
  CHECK(that_list_backends({{"a.cpp", "x = b == Backend::nccl || b == Backend::gloo;\n"}}).size() ==
        1);
  CHECK(that_list_backends({{"a.cpp",
                             "if (g.backend != Backend::openmpi &&\n    g.backend != "
                             "Backend::mpich) {}\n"}})
            .size() == 1);
  CHECK(that_list_backends({{"a.cpp", "if (b == Backend::nccl || size > 3) {}\n"}}).empty());
}

TEST_CASE(
    "settings that causes, regimes and spaces go by are variables whose values are recorded") {
  // A name that ends in "_" is how several begin.
  const std::regex literal(
      "\"(?:env\\.)?((?:NCCL|UCX|OMPI_MCA|MPIR_CVAR|GLOO|CUDA|OMP|FI)_[A-Z0-9a-z_]*[A-Z0-9a-z])\"");
  std::set<std::string> found;
  for (const auto& file :
       source_files({"profiles/detect", "profiles/environments", "orchestrator/doctor",
                     "tuner/action", "tuner/job", "tuner/export"},
                    {".cpp", ".hpp", ".toml"})) {
    if (file.path.find("known_variables") != std::string::npos) continue;
    for (std::sregex_iterator at(file.text.begin(), file.text.end(), literal), end; at != end;
         ++at) {
      CAPTURE(file.path, at->str(1));
      CHECK(is_known_variable(at->str(1)));
      found.insert(at->str(1));
    }
  }
  CHECK(found.contains("NCCL_HOSTID"));
  CHECK(found.contains("NCCL_SOCKET_NTHREADS"));
}

TEST_CASE("what reports read of a training record is a column that workers fill") {
  const auto reports = source_files({"reports", "orchestrator"}, {".cpp", ".sql"});
  for (const auto& file : reports) {
    // Those files read what ranks noted of their transport.
    if (file.path == "reports/queries/environments/page_faults.cpp" ||
        file.path == "reports/queries/environments/interfaces.sql")
      continue;
    INFO(file.path << ": v_training_rank of db/views.sql has columns");
    CHECK(file.text.find("details_json") == std::string::npos);
  }
  std::string written;
  for (const auto& file : source_files({"train"}, {".cpp", ".hpp"})) written += file.text;
  const auto views = source_files({"db"}, {".sql"});
  const auto file = std::ranges::find(views, "db/views.sql", &SourceFile::path);
  REQUIRE(file != views.end());
  const std::regex key(R"(details_json, '\$\.([a-z_.]+))");
  std::size_t keys = 0;
  for (std::sregex_iterator at(file->text.begin(), file->text.end(), key), end; at != end; ++at)
    for (const auto& name : split(at->str(1), '.')) {
      INFO(name);
      CHECK(written.find('"' + name + '"') != std::string::npos);
      ++keys;
    }
  CHECK(keys > 40);
}
