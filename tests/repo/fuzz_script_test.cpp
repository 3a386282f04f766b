// What scripts/fuzz_run.py counts, keeps and says of a fuzz program that stands in for ours.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "containers/command.hpp"
#include "core/vocabulary/parsed_json.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

/// What `scripts/fuzz.sh --pack` makes, with a program that tells libFuzzer's figures after no
/// time: each slice executes 1,000 inputs and finds two, of which a merge keeps one. Files beside
/// it say what else it does: `crash` finds a crash of the target two, `wait` an input that takes as
/// long as the file says, whatever time it was given, `slow` an input that was too slow once, and
/// takes as long again as the file says.
class FuzzPack {
 public:
  FuzzPack() {
    std::string name = (fs::temp_directory_path() / "fuzz-script-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
    fs::create_directories(path + "/pack/corpus/one");
    std::ofstream(path + "/pack/corpus/one/new-kept") << "kept";
    fs::copy(std::string(DYNAMICCL_SOURCE_DIR) + "/scripts/fuzz_run.py", path + "/pack");
    const std::string program = path + "/pack/fuzz_readers";
    std::ofstream(program) << R"sh(#!/bin/bash
[ -n "$DYNAMICCL_FUZZ_TARGET" ] || { echo one; echo two; exit; }
here=${0%/*}
folders=()
for each; do
  case $each in
    -artifact_prefix=*) finds=${each#*=} ;;
    -max_total_time=*) seconds=${each#*=} ;;
    -merge=1) merge=1 ;;
    -timeout=36000) again=1 ;;
    -*) ;;
    *) folders+=("$each") ;;
  esac
done
if [ -n "$again" ]; then
  sleep "$(cat "$here/slow")"
  touch "$here/waited"
  exit
fi
echo "INFO: Seed: 1"
if [ -n "$merge" ]; then
  cp "${folders[1]}"/new-* "${folders[0]}"
  echo "MERGE-OUTER: done"
  exit
fi
[ "$seconds" -ge 1 ] && [ -d "${folders[1]}" ] || exit 1
echo $$ >"${folders[0]}/new-$$"
echo $$ >"${folders[0]}/same-$$"
printf '#1000\tNEW    cov: 7 ft: 9 corp: 2/9b\n'
if [ -e "$here/wait" ]; then
  sleep "$(cat "$here/wait")" &
  trap 'kill $!; exit 72' TERM
  wait
  touch "$here/waited"
fi
if [ -e "$here/slow" ]; then
  touch "${finds}timeout-1"
  echo "ERROR: libFuzzer: timeout after 20 seconds"
  exit 70
fi
if [ -e "$here/crash" ] && [ "$DYNAMICCL_FUZZ_TARGET" = two ]; then
  echo input >"${finds}crash-1"
  echo "ERROR: AddressSanitizer: heap-buffer-overflow"
  exit 77
fi
echo "stat::number_of_executed_units: 1000"
)sh";
    fs::permissions(program, fs::perms::owner_all);
  }
  ~FuzzPack() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  FuzzPack(const FuzzPack&) = delete;
  FuzzPack& operator=(const FuzzPack&) = delete;

  /// One call, on one core, of the folder's own copy of the script.
  [[nodiscard]] CommandResult run(const std::string& arguments) const {
    CommandOptions options;
    options.timeout = std::chrono::minutes(5);
    return run_command(
        {"bash", "-c", "cd \"$0\" && exec python3 -B pack/fuzz_run.py pack " + arguments, path},
        options);
  }
  /// Does what it does until both targets have had `goal` CPU seconds, which the first slice of
  /// each takes.
  [[nodiscard]] CommandResult once(const std::string& out, const std::string& goal,
                                   const std::string& options = "") const {
    return run("300 1 " + out + " --goal " + goal + " " + options);
  }
  [[nodiscard]] nlohmann::json counts(const std::string& out) const {
    std::ifstream file(path + "/" + out + "/counts.json");
    return parsed_json(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  /// A goal that one slice more reaches, of whichever target.
  [[nodiscard]] std::string next_goal(const std::string& out) const {
    const auto all = counts(out);
    return std::to_string(
        std::max(all["one"]["cpu_s"].get<double>(), all["two"]["cpu_s"].get<double>()) + 0.0001);
  }
  [[nodiscard]] std::string packed(const std::string& archive) const {
    return run_command({"tar", "-tf", path + "/" + archive}).out;
  }
  void with(const std::string& what, const std::string& text = "") const {
    std::ofstream(path + "/pack/" + what) << text;
  }

  std::string path;
};

constexpr const char* kFirstGoal = "0.0001";

}  // namespace

TEST_CASE("counts and corpora of fuzz targets go on from an earlier archive", "[fuzz][long]") {
  const FuzzPack pack;
  const auto first = pack.once("out", kFirstGoal, "--archive state.tar");
  INFO(first.out << first.err);
  REQUIRE(first.exit_code == 0);
  const auto before = pack.counts("out");
  for (const char* name : {"one", "two"}) {
    CHECK(before[name]["slices"].get<int>() >= 1);
    CHECK(before[name]["executions"].get<int>() >= 1000);
    // One that the end of the call has cut off says nothing of what it did.
    CHECK(before[name]["executions"].get<int>() <= 1000 * before[name]["slices"].get<int>());
    CHECK(before[name]["edges"] == 7);
    CHECK(before[name]["features"] == 9);
  }
  // A merge left the half that it does not need; what the pack came with is among the rest.
  const auto corpus_fits = [](const nlohmann::json& counts, int besides) {
    const int corpus = counts["corpus"].get<int>() - besides;
    CHECK(1000 * corpus >= counts["executions"].get<int>());
    CHECK(corpus <= counts["slices"].get<int>());
  };
  corpus_fits(before["two"], 0);
  corpus_fits(before["one"], 1);
  CHECK_THAT(first.out, ContainsSubstring("\"finds\": 0"));

  const auto second = pack.once("later", pack.next_goal("out"), "--from state.tar");
  INFO(second.out << second.err);
  REQUIRE(second.exit_code == 0);
  const auto after = pack.counts("later");
  for (const char* name : {"one", "two"}) {
    CHECK(after[name]["slices"].get<int>() > before[name]["slices"].get<int>());
    CHECK(after[name]["executions"].get<int>() > before[name]["executions"].get<int>());
    CHECK(after[name]["executions"].get<int>() <= 1000 * after[name]["slices"].get<int>());
    CHECK(after[name]["cpu_s"].get<double>() > before[name]["cpu_s"].get<double>());
  }
  corpus_fits(after["two"], 0);
  CHECK_THAT(pack.packed("later/corpus.tar.xz"), ContainsSubstring("one/new-kept"));

  // So do those of a folder; another target's are left as they were.
  const auto alone = pack.once("alone", pack.next_goal("later"), "--from later --targets one");
  INFO(alone.out << alone.err);
  REQUIRE(alone.exit_code == 0);
  CHECK(pack.counts("alone")["two"] == after["two"]);
  CHECK(pack.counts("alone")["one"]["slices"].get<int>() > after["one"]["slices"].get<int>());
  CHECK_THAT(pack.packed("alone/corpus.tar.xz"), ContainsSubstring("two/new-"));
}

TEST_CASE("a fuzz target's find ends with 1 and is kept with its log", "[fuzz][long]") {
  const FuzzPack pack;
  pack.with("crash");
  const auto found = pack.once("out", kFirstGoal, "--archive state.tar");
  INFO(found.out << found.err);
  CHECK(found.exit_code == 1);
  CHECK(pack.counts("out")["one"]["crashes"] == 0);
  const int crashes = pack.counts("out")["two"]["crashes"];
  CHECK(crashes >= 1);
  CHECK(pack.counts("out")["two"]["executions"] == 1000 * crashes);
  CHECK_THAT(pack.packed("out/finds.tar.xz"),
             ContainsSubstring("two/crash-1") && ContainsSubstring("two/crashes-1.log"));
  // It stays one of later calls that find nothing, with its input.
  fs::remove(pack.path + "/pack/crash");
  const auto later = pack.once("later", pack.next_goal("out"), "--from state.tar");
  CHECK(later.exit_code == 1);
  CHECK(pack.counts("later")["two"]["crashes"] == crashes);
  CHECK_THAT(pack.packed("later/finds.tar.xz"), ContainsSubstring("two/crash-1"));
}

TEST_CASE("an input that only waited for its core is no find", "[fuzz][long]") {
  const FuzzPack pack;
  pack.with("slow", "0");
  const auto waited = pack.once("out", kFirstGoal);
  INFO(waited.out << waited.err);
  CHECK(waited.exit_code == 0);
  CHECK(pack.counts("out")["two"]["hangs"] == 0);
  CHECK(!fs::exists(pack.path + "/out/finds.tar.xz"));
}

TEST_CASE("fuzz targets keep their time where a hang takes longer to check", "[fuzz][long]") {
  const FuzzPack pack;
  pack.with("slow", "100");
  const auto ended = pack.run("15 1 out --goal 3600 --minimise 0 --archive state.tar");
  INFO(ended.out << ended.err);
  CHECK(!fs::exists(pack.path + "/pack/waited"));
  // Nobody knows better: its input is there to be looked at.
  CHECK(ended.exit_code == 1);
  CHECK(pack.counts("out")["one"]["hangs"].get<int>() +
            pack.counts("out")["two"]["hangs"].get<int>() >=
        1);
  CHECK_THAT(pack.packed("out/finds.tar.xz"), ContainsSubstring("/timeout-1"));
  CHECK_THAT(pack.packed("state.tar"), ContainsSubstring("counts.json"));
}

TEST_CASE("a torn archive of fuzz targets is refused by its name", "[fuzz][long]") {
  const FuzzPack pack;
  pack.with("crash");
  REQUIRE(pack.once("out", kFirstGoal, "--archive state.tar").exit_code == 1);
  const std::string torn = pack.path + "/torn.tar";
  // In the head and in the middle of the first part, at the head of each other one, in the last.
  std::istringstream cuts(run_command({"python3", "-c",
                                       "import sys, tarfile\n"
                                       "parts = tarfile.open(sys.argv[1]).getmembers()\n"
                                       "print(0, 100, parts[0].offset_data + parts[0].size // 2)\n"
                                       "print(*(part.offset + 200 for part in parts[1:]))\n"
                                       "print(parts[-1].offset_data + 1)",
                                       pack.path + "/state.tar"})
                              .out);
  int cut = 0;
  for (std::uintmax_t bytes = 0; cuts >> bytes; ++cut) {
    fs::copy(pack.path + "/state.tar", torn, fs::copy_options::overwrite_existing);
    fs::resize_file(torn, bytes);
    const auto refused = pack.run("6 1 anew --from torn.tar");
    INFO(bytes << " bytes: " << refused.out << refused.err);
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("torn.tar is torn or no archive"));
    CHECK(!fs::exists(pack.path + "/anew/counts.json"));
  }
  CHECK(cut == 7);
  // What it went on from is whole; a damaged part of it is told by the folder that holds it.
  std::ofstream(pack.path + "/out/corpus.tar.xz") << "no archive";
  const auto damaged = pack.once("out", kFirstGoal);
  CHECK(damaged.exit_code == 2);
  CHECK_THAT(damaged.err, ContainsSubstring("out holds a damaged"));
}

TEST_CASE("fuzz targets keep their time where an input takes longer", "[fuzz][long]") {
  const FuzzPack pack;
  // Far longer than the call is given, and than what a busy machine adds to it.
  pack.with("wait", "100");
  const auto ended = pack.run("15 1 out --goal 3600 --minimise 0 --archive state.tar");
  INFO(ended.out << ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(!fs::exists(pack.path + "/pack/waited"));
  // What was executed until then counts, and the archive is there to go on from.
  CHECK(pack.counts("out")["one"]["executions"] == 1000);
  CHECK_THAT(pack.packed("state.tar"),
             ContainsSubstring("counts.json") && ContainsSubstring("table.jsonl"));
  CHECK_THAT(ended.out, ContainsSubstring("\"left_cpu_s\": 7200"));
}

TEST_CASE("the libFuzzer program is built of every folder whose readers it calls", "[fuzz]") {
  const fs::path folder = fs::path(DYNAMICCL_SOURCE_DIR) / "tests/fuzz";
  const auto text_of = [](const fs::path& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const auto built = text_of(folder / "CMakeLists.txt");
  const std::string begin = "#include \"orchestrator/";
  int readers = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".cpp") continue;
    std::istringstream lines(text_of(entry.path()));
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(begin)) continue;
      const auto header = line.substr(10, line.rfind('"') - 10);
      INFO(entry.path().string() << ": " << header);
      // A folder's sources, or the one of this header.
      CHECK((built.find(fs::path(header).parent_path().string() + "/*.cpp") != std::string::npos ||
             built.find(fs::path(header).replace_extension(".cpp").string()) != std::string::npos));
      ++readers;
    }
  }
  CHECK(readers > 3);
}
