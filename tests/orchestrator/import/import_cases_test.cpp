// What real outputs look like beside the programs' own form: each input with the right outcome.

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <set>

#include "core/vocabulary/text.hpp"
#include "tests/orchestrator/cli/program.hpp"
#include "tests/orchestrator/import/import_outcome.hpp"
#include "tests/orchestrator/import/import_tables.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using dynamiccl::testing::Folder;
using dynamiccl::testing::import_case;
using dynamiccl::testing::import_text;
using dynamiccl::testing::kSmallTable;
using dynamiccl::testing::kTables;
using dynamiccl::testing::run;
using dynamiccl::testing::text_of;

namespace {

using Cells = std::set<std::string>;
const std::vector<std::string> kAllReduce{"--operation", "all_reduce"};

/// Four cells of a table of two sizes.
Cells four(const std::string& collective, int ranks, int small, const std::vector<int>& times) {
  Cells cells;
  for (int i = 0; i < 4; ++i)
    cells.insert(fmt::format("{} {} {} {} ok 1 {} {{}}", collective, ranks,
                             i < 2 ? small : 2 * small, i % 2 == 0 ? "out" : "in",
                             times[static_cast<std::size_t>(i)]));
  return cells;
}

std::string with_each_line(const std::string& text, const std::string& before,
                           const std::string& behind = "") {
  std::string made;
  auto lines = split(text, '\n');
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (const auto& line : lines) made += before + line + behind + "\n";
  return made;
}

const Cells kSmallCells = four("allreduce", 2, 8, {10, 11, 12, 13});

}  // namespace

TEST_CASE("a rank tag may stand within a row", "[G-01]") {
  CHECK(import_case("01-tag-inside-row.txt", kAllReduce).cells ==
        four("allreduce", 2, 8, {80, 60, 81, 61}));
}

TEST_CASE("a blank column is read by its place", "[G-01]") {
  CHECK(import_case("02-blank-columns.txt", {"--operation", "alltoall"}).cells ==
        four("alltoall", 2, 64, {20, 21, 22, 23}));
}

TEST_CASE("more devices than any job has say nothing about a shortened list", "[G-01]") {
  // Wrapped around, the product would fit the two that are listed.
  std::string text = kSmallTable;
  text.replace(text.find("nThread 1 nGpus 2"), 17, "nThread 350909859 nGpus 8");
  const auto first = text.find("#  Rank  0");
  text.erase(first, text.find('\n', first) + 1 - first);
  const auto refused = import_text(text, kAllReduce);
  CHECK(refused.exit_code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("does not say with how many ranks"));
}

TEST_CASE("programs that do not know each other are no job", "[G-01]") {
  const auto refused = import_case("03-two-separate-processes.txt", kAllReduce);
  CHECK(refused.exit_code == 2);
  CHECK(refused.cells.empty());
  CHECK_THAT(refused.err, ContainsSubstring("ran as 2 separate programs"));
  // Told apart by their tags, and by nothing but their rows.
  std::string tagged;
  for (const auto& line : split(kSmallTable, '\n'))
    if (!line.empty()) tagged += "[1,0]<stdout>:" + line + "\n[1,1]<stdout>:" + line + "\n";
  const auto mixed = import_text(tagged, kAllReduce);
  CHECK(mixed.exit_code == 2);
  CHECK_THAT(mixed.err, ContainsSubstring("separate programs"));
  std::string osu;
  for (const char* line : {"# OSU MPI Allreduce Latency Test v5.8", "# Size       Avg Latency(us)",
                           "4                       1.00", "8                       1.10"})
    osu += std::string(line) + "\n" + line + "\n";
  CHECK(import_text(osu, {"--ranks", "2"}).exit_code == 2);
}

TEST_CASE("options that the figures contradict are refused", "[G-01]") {
  const auto refused = import_case("04-operation-contradicts-figures.txt", kAllReduce);
  CHECK(refused.exit_code == 2);
  CHECK(refused.cells.empty());
  CHECK_THAT(refused.err, ContainsSubstring("contradict"));
  CHECK(import_case("04-operation-contradicts-figures.txt", {"--operation", "all_gather"})
            .cells.size() == 4);
}

TEST_CASE("an unknown OSU test is never joined to the one before", "[G-01]") {
  const auto put = import_case("05-osu-onesided-behind-allreduce.txt", {"--ranks", "2"});
  CHECK(put.cells == Cells{"allreduce 2 4 out ok 1 1 {}", "allreduce 2 8 out ok 1 1.1 {}"});
  CHECK_THAT(put.err, ContainsSubstring("MPI_Put Latency (line 5)"));
  const auto suite = import_case("08-osu-suite-with-unsupported.txt", {"--ranks", "2"});
  CHECK(suite.exit_code == 0);
  CHECK(suite.cells.size() == 4);
  CHECK_THAT(suite.err, ContainsSubstring("2 tests are left out") &&
                            ContainsSubstring("Init (line 1), Barrier Latency (line 9)"));
}

TEST_CASE("process counts of command lines are read, and not contradicted", "[G-01]") {
  CHECK(import_case("06-osu-two-process-counts.txt", {"--ranks", "2"}).exit_code == 2);
  CHECK(import_case("06-osu-two-process-counts.txt", {}).cells ==
        Cells{"allreduce 2 4 out ok 1 1 {}", "allreduce 2 8 out ok 1 1.1 {}",
              "allreduce 16 4 out ok 1 20 {}", "allreduce 16 8 out ok 1 21 {}"});
}

TEST_CASE("buffers and settings under banners tell tables apart", "[G-01]") {
  const auto buffers = import_case("07-osu-host-and-device-buffers.txt", {});
  CHECK(buffers.cells.size() == 4);
  CHECK(buffers.cells.contains(R"(sendrecv 2 8 out ok 1 21 {"buffers":"device-device"})"));
  const auto banners = import_text(
      "=== NCCL_ALGO=Ring ===\n" + kSmallTable + "=== NCCL_ALGO=Tree ===\n" + kSmallTable,
      kAllReduce);
  CHECK(banners.cells.size() == 8);
  CHECK(banners.cells.contains(R"(allreduce 2 8 out ok 1 10 {"env.NCCL_ALGO":"Tree"})"));
  // What nothing tells apart is said to be taken for repeats.
  const auto repeats = import_text(
      "=== night one ===\n" + kSmallTable + "=== night two ===\n" + kSmallTable, kAllReduce);
  CHECK(repeats.cells.size() == 4);
  CHECK_THAT(repeats.err, ContainsSubstring("2 starts of allreduce over 2 ranks are taken for "
                                            "repeated launches") &&
                              ContainsSubstring("night two"));
}

TEST_CASE("prefixes of launchers and log collectors are no part of a table", "[G-01]") {
  CHECK(import_case("13-kubectl-timestamps.txt", kAllReduce).cells == kSmallCells);
  for (const std::string prefix :
       {"nccl-test-worker-0 | ", "[pod/nccl-launcher-x7k2p/nccl] ",
        "I0216 10:00:00.000001 77 x.cc:9] ", "2026-02-16 10:00:00,123 INFO worker.py:120 - ",
        "Feb 16 10:00:00 node7 slurm[99]: ", "> ", "    ", "node-3: ", "\x1b[32m",
        "(RayWorker pid=123, ip=10.0.0.1) ", "12.345s | ", "<stdout rank=\"0\">"}) {
    INFO(prefix);
    const auto found = import_text(with_each_line(kSmallTable, prefix), kAllReduce);
    INFO(found.err);
    CHECK(found.cells == kSmallCells);
  }
  CHECK(import_text(with_each_line(kSmallTable, "    \"", "\","), kAllReduce).cells == kSmallCells);
  CHECK(import_text(with_each_line(kSmallTable, R"({"log":")", R"(\n","stream":"stdout"})"),
                    kAllReduce)
            .cells == kSmallCells);
  std::string windows = "\xFF\xFE";
  for (const char letter : kSmallTable) {
    windows += letter;
    windows += '\0';
  }
  CHECK(import_text(windows, kAllReduce).cells == kSmallCells);
  CHECK(import_text("\xEF\xBB\xBF" + with_each_line(kSmallTable, "", "\r"), kAllReduce).cells ==
        kSmallCells);
}

TEST_CASE("a line of JSON before a table is no JSON document", "[G-01]") {
  CHECK(import_case("19-metadata-json-first.txt", kAllReduce).cells == kSmallCells);
  CHECK(import_case("19b-osu-metadata-json-first.txt", {"--ranks", "2"}).cells.size() == 2);
}

TEST_CASE("a program's own verdict is heeded", "[G-01]") {
  // Its column error says which two of the four.
  const auto failed = import_case("36-out-of-bounds-failed.txt", {"--operation", "all_gather"});
  CHECK(failed.cells == Cells{"allgather 2 64 out ok 1 20 {}", "allgather 2 64 in ok 1 21 {}",
                              "allgather 2 128 out failed 0 22 {}",
                              "allgather 2 128 in failed 0 23 {}"});
  CHECK_THAT(failed.err, ContainsSubstring("wrong results in 2 of 4 cells"));
  auto checked = kSmallTable;
  for (auto at = checked.find("#wrong"); at != std::string::npos; at = checked.find("#wrong"))
    checked.replace(at, 6, " check");
  for (auto at = checked.find("      0  "); at != std::string::npos; at = checked.find("      0  "))
    checked.replace(at, 9, "   PASS  ");
  for (auto at = checked.find("      0\n"); at != std::string::npos; at = checked.find("      0\n"))
    checked.replace(at, 8, "   FAIL\n");
  const auto columns = import_text(checked, kAllReduce);
  INFO(columns.err);
  CHECK(columns.cells.contains("allreduce 2 8 out ok 1 10 {}"));
  CHECK(columns.cells.contains("allreduce 2 8 in failed 0 11 {}"));
}

TEST_CASE("a JSON document without its end is an interrupted run", "[G-01]") {
  const auto cut = import_case("42-json-unfinished.json", {});
  CHECK(cut.status == "interrupted");
  CHECK_THAT(cut.err, ContainsSubstring("no end_time") && ContainsSubstring("Test NCCL failure"));
}

TEST_CASE("a shortened list of ranks has as many as its highest number", "[G-01]") {
  CHECK(import_case("46-rank-lines-shortened.txt", kAllReduce).cells ==
        four("allreduce", 16, 8, {10, 11, 12, 13}));
  auto open_end = kSmallTable;
  open_end.insert(open_end.find("#       size"), "#  ...\n");
  const auto refused = import_text(open_end, kAllReduce);
  CHECK(refused.exit_code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("--ranks"));
}

TEST_CASE("a sentence that begins with a number is no row", "[G-01]") {
  CHECK(import_case("49-osu-line-that-begins-with-a-number.txt", {"--ranks", "2"}).cells ==
        Cells{"allreduce 2 4 out ok 1 1 {}", "allreduce 2 8 out ok 1 1.1 {}"});
}

TEST_CASE("lines and bytes that no program prints are refused by their line", "[G-01]") {
  for (const std::string& table : {kSmallTable, text_of("osu.txt")}) {
    const auto behind = static_cast<std::size_t>(std::count(table.begin(), table.end(), '\n')) + 1;
    for (const std::size_t length : {28'000U, 200'000U}) {
      for (const char letter : {'#', '8', 'x', '['}) {
        const auto long_line =
            import_text(table + std::string(length, letter) + "\n", {"--ranks", "2"});
        CHECK(long_line.exit_code == 2);
        CHECK_THAT(long_line.err, ContainsSubstring(fmt::format("x.txt:{}: a line of {} characters",
                                                                behind, length)));
      }
    }
    const auto bytes = import_text(table + "caf\xE9\n", {"--ranks", "2"});
    CHECK(bytes.exit_code == 2);
    CHECK_THAT(bytes.err, ContainsSubstring(fmt::format("x.txt:{}: holds a byte 0xE9", behind)));
    CHECK_THAT(bytes.err, !ContainsSubstring("json.exception"));
  }
  // A long line within what programs print.
  CHECK(import_text(kSmallTable + "# " + std::string(12'000, 'x') + "\n", kAllReduce).cells ==
        kSmallCells);
}

TEST_CASE("figures that are printed with two decimals are known to half of the second", "[G-01]") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  for (const char* side : {"a", "b"}) {
    std::vector<std::string> words{"import"};
    for (int i = 0; i < 8; ++i)
      words.push_back(fmt::format("{}cases/48-rounded-figures/{}{}.txt", kTables, side, i));
    words.insert(words.end(), {"--as-launches", "--db", db});
    const auto result = run(words);
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
  }
  const auto compared = run({"compare", "last~1", "last", "--db", db, "--json"});
  INFO(compared.err);
  const auto result = nlohmann::json::parse(compared.out);
  std::map<int, nlohmann::json> cells;
  for (const auto& cell : result["cells"]) cells[cell["size_bytes"].get<int>()] = cell;
  REQUIRE(cells.size() == 5);
  CHECK(cells[2]["verdict"] == "UNCLEAR");
  CHECK(cells[2]["ratio_low"].get<double>() < 1.001);
  CHECK(cells[2]["ratio_high"].get<double>() > 1.079);
  // What differs by more than its digits leave open is still seen.
  CHECK(cells[4]["verdict"] == "FASTER");
  CHECK(compared.exit_code == 5);
}
