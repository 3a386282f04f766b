// Forms in which people keep and paste outputs, and what programs print of themselves beside rows:
// each input with the cells that it holds, or with the reason why it is refused.

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "tests/orchestrator/cli/program.hpp"
#include "tests/orchestrator/import/import_outcome.hpp"
#include "tests/orchestrator/import/import_tables.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using dynamiccl::testing::Folder;
using dynamiccl::testing::import_case;
using dynamiccl::testing::import_text;
using dynamiccl::testing::kTables;
using dynamiccl::testing::run;
using Cells = std::set<std::string>;
using Options = std::vector<std::string>;

namespace {

const Options kOfAllReduce{"--operation", "all_reduce"};

std::string replaced(std::string text, const std::string& what, const std::string& instead) {
  const auto at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), instead);
}

/// Rank lines of one process, as nccl-tests prints them, at most `bytes` of them.
std::string rank_lines(int first, int count, std::size_t bytes, bool dots) {
  std::string lines;
  for (int rank = first; rank < first + count; ++rank)
    lines += fmt::format(
        "#  Rank {:2} Group  0 Pid {:6} on {:>10} device {:2} [0000:{:02x}:00] NVIDIA H100 80GB "
        "HBM3 with a name that is long enough to fill a line\n",
        rank, 5100 + first, "node1", rank - first, 16 + rank);
  if (lines.size() > bytes) lines = lines.substr(0, bytes - (dots ? 4 : 0)) + (dots ? "...\n" : "");
  return lines;
}

const std::string kHead =
    "# nccl-tests version 2.18.3 nccl-headers=22809 nccl-library=22809\n"
    "# Collective test starting: all_reduce_perf\n";
const std::string kConfig =
    "# nThread 1 nGpus 2 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: "
    "20 agg iters: 1 validation: 1 graph: 0\n";
const std::string kHeading =
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time "
    " "
    " algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us) "
    " (GB/s)  (GB/s)       \n";
const std::string kRow =
    "     1048576        262144     float     sum      -1   100.50   10.43   10.43      0    99.50 "
    " "
    " 10.54   10.54      0\n";
const std::string kEnd = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 10.4\n#\n";
const std::string kInfo = "node1:5100:5130 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P\n";

std::string table_of_two() {
  return kHead + kConfig + rank_lines(0, 2, 4000, false) + kHeading + kRow + kEnd;
}

const Cells kTableCells{"allreduce 2 1048576 out ok 1 100.5 {}",
                        "allreduce 2 1048576 in ok 1 99.5 {}"};

const std::string kOsu = "# OSU MPI Allreduce Latency Test v7.4\n";
const std::string kOsuSize = "# Size       Avg Latency(us)\n";
const Cells kOsuCells{"allreduce 2 4 out ok 1 1 {}", "allreduce 2 8 out ok 1 2 {}"};
const std::string kOsuRows = "4                       1.00\n8                       2.00\n";
const Options kTwo{"--ranks", "2"};

std::string imb_text(const std::string& version, const std::string& benchmark,
                     const std::string& processes, const std::string& heading,
                     const std::string& rows) {
  return fmt::format(
      "#    {}, MPI-1 part\n# MPI_Datatype                   :   MPI_BYTE\n"
      "# MPI_Datatype for reductions    :   MPI_FLOAT\n# MPI_Op                         :   "
      "MPI_SUM\n#---------\n# Benchmarking {}\n{}#---------\n{}\n{}\n\n"
      "# All processes entering MPI_Finalize\n",
      version, benchmark, processes, heading, rows);
}

const std::string kImb = "Intel(R) MPI Benchmarks 2021.11";
const std::string kImbHeading = "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]";
const std::string kFour = "# #processes = 4 \n";

}  // namespace

TEST_CASE("kept outputs of programs, launchers and collectors hold these cells", "[G-01]") {
  const Cells two_sizes{
      "allreduce 2 1048576 out ok 1 100.5 {}", "allreduce 2 1048576 in ok 1 99.5 {}",
      "allreduce 2 4194304 out ok 1 210 {}", "allreduce 2 4194304 in ok 1 208 {}"};
  for (const char* name :
       {"67-docker-json-file.log", "69-journal.log", "71b-compose-two-services.log",
        "72b-ansible-play.txt", "73-srun-labels.log"}) {
    INFO(name);
    CHECK(import_case(name, {}).cells == two_sizes);
  }
  CHECK(import_case("60-rccl-enroot-two-nodes.txt", {})
            .cells.contains("allreduce 16 4194304 in ok 1 208 {}"));
  CHECK(import_case("100-osu-percentiles-full.txt", kTwo)
            .cells.contains("allreduce 2 4 out ok 1 14.83 {}"));
  CHECK(import_case("75-imb-from-spreadsheet.txt", {}).cells ==
        Cells{"alltoall 4 0 out ok 1 0.18 {}", "alltoall 4 4 out ok 1 5.67 {}",
              "alltoall 4 8 out ok 1 5.75 {}", "alltoall 4 16 out ok 1 5.86 {}"});
  // Lines of ranks below a finished table are the next one's.
  CHECK(import_case("79-two-tables-last-rank-line-only.md", kOfAllReduce).cells ==
        Cells{"allreduce 72 1073741824 out ok 1 3109 {}", "allreduce 72 1073741824 in ok 1 2925 {}",
              "allreduce 144 1073741824 out ok 1 3574 {}",
              "allreduce 144 1073741824 in ok 1 3566 {}"});
  const auto persistent = import_case("105-osu-persistent-latency.txt", kTwo);
  CHECK(persistent.exit_code == 2);
  CHECK_THAT(persistent.err, ContainsSubstring("no equal here: Latency Persistent (line 2)"));
}

TEST_CASE("what is not read is named as what it is", "[G-01]") {
  for (const auto& [file, named] : std::map<std::string, std::string>{
           {"80-ucc-perftest.txt", "is output of ucc_perftest;"},
           {"82-deepspeed-comms-logger.txt", "is output of DeepSpeed's communication logger;"},
           {"86-param-comms.txt", "is output of the PARAM communication benchmark"},
           {"87-ib-write-bw.txt", "is output of perftest (ib_write_bw and its kin): one link"},
           {"89-nccl-info-slow.log", "is output of NCCL's own log, which holds no times"},
           {"90-inspector.log", "is output of the NCCL Inspector: times of single calls"}}) {
    const auto refused = import_case(file, {});
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, ContainsSubstring(named));
  }
}

TEST_CASE("log lines of NCCL within a row are taken out of it", "[G-01]") {
  const auto cut = kRow.find("   100.50");
  const auto second = kRow.find("    99.50");
  const auto log = [&](const std::string& before, const std::string& rows) {
    return import_text(
        kHead + kConfig + rank_lines(0, 2, 4000, false) + before + kHeading + rows + kEnd, {});
  };
  const auto around = [&](const std::string& info) {
    return kRow.substr(0, cut) + info + kRow.substr(cut);
  };
  CHECK(log("", around(kInfo)).cells == kTableCells);
  CHECK(log("", around("[2026-11-20 10:00:00] " + kInfo)).cells == kTableCells);
  CHECK(log("", kRow.substr(0, kRow.size() - 1) + kInfo + "\n").cells == kTableCells);
  CHECK(log(kInfo, kRow.substr(0, cut) + kInfo + kInfo + kRow.substr(cut, second - cut) + kInfo +
                       kRow.substr(second))
            .cells == kTableCells);
  CHECK(log("", around(" " + kInfo)).cells == kTableCells);
  // "-13node" is -1 before 3node, or -13 before node: known where the host wrote elsewhere, too.
  const std::string digit = "3" + kInfo;
  CHECK(log(digit, around(digit)).cells == kTableCells);
  for (const auto& unclear : {digit, "10-0-0-5:51:52 [0] NCCL INFO x\n" + std::string()}) {
    const auto refused = log("", around(unclear));
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("x.txt:8: a row of "));
  }
  std::string tagged;
  for (const auto& line : split(
           kHead + kConfig + rank_lines(0, 2, 4000, false) + kHeading + around(kInfo) + kEnd, '\n'))
    tagged += "  [1,0]<stdout>:" + line + "\n";
  CHECK(import_text(tagged, {}).cells == kTableCells);
  // A row whose end is missing has no time.
  const auto torn = log("", kRow.substr(0, cut) + "\n" + kRow);
  CHECK(torn.exit_code == 2);
  CHECK_THAT(torn.err, ContainsSubstring("x.txt:8: a row without a time"));
  const auto halves = log("", kRow.substr(0, second) + "\n" + kInfo + kRow.substr(second));
  CHECK(halves.exit_code == 2);
  CHECK_THAT(halves.err, ContainsSubstring("x.txt:10: the end of the row above, which breaks off "
                                           "behind 9 of its 13 values"));
}

TEST_CASE("columns and footers that say FAILED fail their rows", "[G-01]") {
  const auto errors = import_case("61-error-column-no-verdict.txt", kOfAllReduce);
  CHECK(errors.cells.size() == 6);
  CHECK(errors.cells.contains("allreduce 8 268435456 in ok 1 2215 {}"));
  CHECK(errors.cells.contains("allreduce 8 536870912 out failed 0 4230 {}"));
  CHECK(errors.cells.contains("allreduce 8 536870912 in failed 0 4215 {}"));
  const auto bits = [&](const std::string& first, const std::string& footer) {
    auto heading = kHeading.substr(0, kHeading.find('\n') + 1);
    for (auto at = heading.find("#wrong"); at != std::string::npos; at = heading.find("#wrong", at))
      heading.replace(at, 6, "#wrong  #bitdiff"), at += 16;
    return import_text(
        kHead + kConfig + rank_lines(0, 2, 4000, false) + heading +
            "     1048576        262144     float     sum      -1   100.50   10.43   "
            "10.43      0         " +
            first + "    99.50   10.54   10.54      0         0\n" +
            "# Out of bounds values : 0 OK\n" + footer + "# Avg bus bandwidth : 1\n",
        {});
  };
  CHECK(bits("57", "# Bitwise mismatches   : 3 FAILED\n").cells ==
        Cells{"allreduce 2 1048576 out failed 0 100.5 {}", "allreduce 2 1048576 in ok 1 99.5 {}"});
  const auto all = bits("N/A", "# Bitwise mismatches   : 3 FAILED\n");
  CHECK(all.cells.contains("allreduce 2 1048576 in failed 0 99.5 {}"));
  CHECK(bits("0", "# Bitwise mismatches   : 0 OK\n").cells == kTableCells);
  // One column behind both directions is of the row.
  auto judged = replaced(table_of_two(), "busbw #wrong\n", "busbw #wrong   golden\n");
  judged = replaced(judged, "10.54      0\n", "10.54      0   FAILED\n");
  CHECK(import_text(judged, {}).cells == Cells{"allreduce 2 1048576 out failed 0 100.5 {}",
                                               "allreduce 2 1048576 in failed 0 99.5 {}"});
  CHECK(import_text(
            kOsu + "# Size       Avg Latency(us)    Golden\n4    1.0   FAIL\n8   2.0   ok\n", kTwo)
            .cells == Cells{"allreduce 2 4 out failed 0 1 {}", "allreduce 2 8 out ok 1 2 {}"});
}

TEST_CASE("a difference is held against the limit of its datatype and ranks", "[G-01]") {
  const auto cells = [&](const std::string& type, const std::string& count,
                         const std::string& error, const std::string& footer) {
    return import_text(
               "# nThread 1 nGpus 2 minBytes 1 maxBytes 2 step: 2(factor) warmup iters: 5 iters: "
               "20 "
               "validation: 1\n" +
                   rank_lines(0, 2, 4000, false) +
                   "#       size         count      type   redop     time   algbw   busbw  error\n"
                   "        1024  " +
                   count + "  " + type + "  sum  10.00  0.10  0.10  " + error + "\n" + footer +
                   "# Avg bus bandwidth : 1\n",
               kOfAllReduce)
        .cells;
  };
  const Cells good{"allreduce 2 1024 out ok 1 10 {}"};
  const Cells failed{"allreduce 2 1024 out failed 0 10 {}"};
  CHECK(cells("float", "256", "1e-05", "") == good);
  CHECK(cells("float", "256", "2e-05", "") == failed);
  CHECK(cells("float", "256", "1e-05", " Out of bounds values : 1 FAILED\n") == failed);
  CHECK(cells("float", "256", "nan", "") == failed);
  CHECK(cells("half", "512", "5e-03", "") == good);
  CHECK(cells("half", "512", "4e-02", "") == failed);
  CHECK(cells("int32", "256", "0e+00", "") == good);
  CHECK(cells("int32", "256", "1e+00", "") == failed);
  CHECK(cells("double", "128", "1e-10", "") == failed);
  CHECK(cells("float", "256", "N/A", "") == good);
  CHECK(cells("float", "256", "2e-07", "# Out of bounds values : 4 FAILED\n") == failed);
}

TEST_CASE("lists of ranks that the program cut off count all ranks", "[G-01]") {
  // 2 (n - 1) / n of the algorithm's bandwidth, as it has to be of so many ranks.
  const auto ranks = [&](int processes, std::size_t bytes, bool dots) {
    std::string lines;
    for (int i = 0; i < processes; ++i) lines += rank_lines(16 * i, 16, bytes, dots);
    const int all = 16 * processes;
    const double busbw = 10.43 * 2 * (all - 1) / all;
    const auto outcome = import_text(
        kHead + replaced(kConfig, "nGpus 2", "nGpus 16") + lines + "#\n" + kHeading +
            fmt::format("     1048576        262144     float     sum      -1   100.50   10.43   "
                        "{:.2f}      0      N/A     N/A     N/A    N/A\n",
                        busbw) +
            kEnd,
        {});
    INFO(outcome.err);
    REQUIRE(outcome.cells.size() == 1);
    return *outcome.cells.begin();
  };
  for (const bool dots : {false, true}) {
    CHECK(ranks(1, 2047, dots) == "allreduce 16 1048576 out ok 1 100.5 {}");
    CHECK(ranks(2, 2047, dots) == "allreduce 32 1048576 out ok 1 100.5 {}");
  }
  CHECK(ranks(2, 20000, false) == "allreduce 32 1048576 out ok 1 100.5 {}");
}

TEST_CASE("rows of 0 bytes are named and left out", "[G-01]") {
  const auto zeros = import_case("63-alltoall-sizes-of-zero.txt", {});
  CHECK(zeros.cells.size() == 8);
  CHECK(zeros.cells.contains("alltoall 8 128 out ok 1 10.59 {}"));
  CHECK_THAT(zeros.err, ContainsSubstring("rows of 0 bytes move nothing and are left out: 4, from "
                                          "line 17 on"));
}

TEST_CASE("units and headings that no nccl-tests prints are refused by their line", "[G-01]") {
  const auto refusal = [](const std::string& text) {
    const auto outcome = import_text(text, {});
    CHECK(outcome.exit_code == 2);
    return outcome.err;
  };
  CHECK_THAT(refusal(replaced(table_of_two(), "(us)", "(ms)")),
             ContainsSubstring("x.txt:7: sizes are in (B), times in (us) and bandwidths in (GB/s); "
                               "found the unit \"(ms)\""));
  CHECK_THAT(refusal(replaced(table_of_two(), "        (B)", "       (KB)")),
             ContainsSubstring("\"(KB)\""));
  CHECK_THAT(refusal(replaced(replaced(table_of_two(), "busbw #wrong\n", "busbw #wrong     time\n"),
                              "10.54      0\n", "10.54      0    55.00\n")),
             ContainsSubstring("x.txt:6: the heading has 3 columns of times"));
}

TEST_CASE("what command lines set tells launches apart", "[G-01]") {
  const auto launches = [](const Options& files) {
    const Folder folder;
    const auto db = folder.path("x.sqlite");
    Options words{"import"};
    for (const auto& file : files)
      words.push_back(file.find('/') == std::string::npos ? kTables + "cases/" + file : file);
    words.insert(words.end(), {"--as-launches", "--db", db});
    const auto result = run(words);
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    const auto knobs =
        run({"query", "SELECT DISTINCT cell_knobs FROM v_cell ORDER BY 1", "--json", "--db", db});
    return std::pair(result.err, knobs.out);
  };
  const auto of_json =
      launches({"65a-json-plain.json", "65b-json-registered.json", "65c-json-blocking.json"});
  CHECK_THAT(of_json.first,
             ContainsSubstring("the files differ in -R (2, unset), so their starts are "
                               "cells of their own, and no launches of one") &&
                 ContainsSubstring("the files differ in blocking_collectives"));
  CHECK_THAT(of_json.second, ContainsSubstring(R"(\"-R\":\"2\",\"-z\":\"unset\")"));
  CHECK_THAT(launches({"64a-blocking-inner.txt", "64c-blocking-none.txt"}).second,
             ContainsSubstring(R"({\"blocking\":\"unset\"})") &&
                 ContainsSubstring(R"({\"blocking\":\"wait and barrier after each inner)"));
  CHECK_THAT(launches({"123-imb-off-cache.txt", "123b-imb-plain-same.txt"}).second,
             ContainsSubstring(R"(\"-imb_barrier\":\"on\",\"-off_cache\":\"8\")"));
  // Options that only choose rows are no knobs, but the commands are not the same.
  const Folder folder;
  const auto iterations = [&](const std::string& count, const std::string& time) {
    return folder.file(
        count + ".txt",
        replaced(imb_text(kImb, "Allreduce", kFour, kImbHeading,
                          "         1024          100        19.00        21.00        " + time),
                 "#---------\n",
                 "# Calling sequence was:\n\n# ./IMB-MPI1 -iter " + count +
                     "\n#            Allreduce\n\n# Message lengths were user defined\n"));
  };
  const auto both = launches({iterations("10", "20.00"), iterations("100", "20.10")});
  CHECK_THAT(both.first,
             ContainsSubstring("launches of one job are what was started as \"./IMB-MPI1 -iter 10 "
                               "Allreduce\" and \"./IMB-MPI1 -iter 100 Allreduce\", which is not"));
  CHECK_THAT(both.second, ContainsSubstring("{}") && !ContainsSubstring("-iter"));
  const auto window = import_text(
      "$ mpirun -np 2 osu_bw -W 64\n# OSU MPI Bandwidth Test v7.2\n# Size      Bandwidth (MB/s)\n"
      "1  4.00\n$ mpirun -np 2 osu_bw -W 8\n# OSU MPI Bandwidth Test v7.2\n# Size      Bandwidth "
      "(MB/s)\n1  2.00\n",
      {});
  CHECK(window.cells == Cells{R"(sendrecv 2 1 out ok 1 0.25 {"-W":"64","test":"Bandwidth"})",
                              R"(sendrecv 2 1 out ok 1 0.5 {"-W":"8","test":"Bandwidth"})"});
}

TEST_CASE("compare says which settings two imported tables differ in", "[G-01]") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  for (const char* file : {"65a-json-plain.json", "65b-json-registered.json"})
    REQUIRE(run({"import", kTables + "cases/" + file, "--db", db}).exit_code == 0);
  CHECK_THAT(run({"compare", "last~1", "last", "--db", db}).out, ContainsSubstring("settings.-R"));
}

TEST_CASE("banners of two process counts are read, and contradict one --ranks", "[G-01]") {
  for (const auto& [first, second] :
       std::map<std::string, std::string>{{"=== np=2 ===", "=== np=8 ==="},
                                          {"--- 2 processes ---", "--- 8 processes ---"},
                                          {"## nprocs: 2", "## nprocs: 8"},
                                          {"SLURM_NTASKS=2", "SLURM_NTASKS=8"}}) {
    INFO(first);
    const auto text = first + "\n" + kOsu + kOsuSize + "4  1.00\n" + second + "\n" + kOsu +
                      kOsuSize + "4  3.00\n";
    CHECK(import_text(text, {}).cells ==
          Cells{"allreduce 2 4 out ok 1 1 {}", "allreduce 8 4 out ok 1 3 {}"});
    const auto refused = import_text(text, kTwo);
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("--ranks 2 contradicts the file, which says 8"));
  }
  // A command of another program says nothing of the table below it.
  CHECK(import_text("srun -n 8 hostname\n" + kOsu + kOsuSize + kOsuRows, {}).exit_code == 2);
  CHECK(import_text("mpirun -np 2 ./all_reduce_perf -g 1\n" +
                        replaced(kConfig, "nGpus 2", "nGpus 1") + kHeading + kRow + kEnd,
                    kOfAllReduce)
            .cells == kTableCells);
}

TEST_CASE("lines of OSU above the rows may stand in any order", "[G-01]") {
  CHECK(import_case("78-osu-datatype-below-heading.txt", {}).cells ==
        Cells{R"(sendrecv 2 1 out ok 1 0.25 {"test":"Bandwidth"})",
              R"(sendrecv 2 2 out ok 1 0.25 {"test":"Bandwidth"})"});
  const auto followed = import_text(kOsu + kOsuSize + "# Datatype: MPI_INT.\n" + kOsuRows +
                                        "# OSU MPI Bcast Latency Test v7.4\n" + kOsuSize +
                                        "# Datatype: MPI_CHAR.\n4  3.00\n",
                                    kTwo);
  CHECK(followed.cells.size() == 3);
  CHECK(followed.cells.contains("broadcast 2 4 out ok 1 3 {}"));
  CHECK(import_text(kOsu + "# Size    Max Latency(us)   Iterations   Avg Latency(us)\n4  9.0  100  "
                           "1.0\n8  9.0  100  2.0\n",
                    kTwo)
            .cells == kOsuCells);
  // Two columns that are the time, whether they differ by a blank or by a word.
  CHECK_THAT(import_text(kOsu + "# Size   Latency (us)   Avg Latency(us)\n4  9.0  5.0\n", kTwo).err,
             ContainsSubstring("x.txt:2: the heading \"Size | Latency (us) | Avg Latency(us)\" has "
                               "two columns of the mean over the ranks"));
  CHECK_THAT(
      import_text(kOsu + "# Size   Avg Latency(us)   Avg Latency (us)\n4  9.0  5.0\n", kTwo).err,
      ContainsSubstring("x.txt:2: the heading names the column \"Avg Latency (us)\" twice"));
  // Rows that no heading stands over are told.
  const auto lost = import_text(
      kOsu + kOsuRows + "# OSU MPI Bcast Latency Test v7.4\n" + kOsuSize + "4  3.00\n", kTwo);
  CHECK(lost.cells == Cells{"broadcast 2 4 out ok 1 3 {}"});
  CHECK_THAT(lost.err, ContainsSubstring("1 test is left out, which has no equal here: rows "
                                         "without a title or heading (line 2)"));
}

TEST_CASE("OSU's error line fails the size that it names", "[G-01]") {
  const auto rows = import_case("110b-osu-validation-row-by-row.txt", kTwo);
  CHECK(rows.cells == Cells{"allreduce 2 4 out ok 1 1 {}", "allreduce 2 8 out failed 0 2 {}",
                            "allreduce 2 16 out ok 1 3 {}"});
  const std::string error = "DATA VALIDATION ERROR: osu_allreduce exited with status 1";
  const std::string at_8 = error + " on message size 8.\n";
  const Cells second{"allreduce 2 4 out ok 1 1 {}", "allreduce 2 8 out failed 0 2 {}"};
  CHECK(import_text(kOsu + kOsuSize + kOsuRows + at_8, kTwo).cells == second);
  CHECK(import_text(kOsu + kOsuSize + "4  1.00\n" + at_8 + "8  2.00\n", kTwo).cells == second);
  CHECK(import_text(kOsu + kOsuSize + kOsuRows + error + "\n", kTwo).cells ==
        Cells{"allreduce 2 4 out failed 0 1 {}", "allreduce 2 8 out failed 0 2 {}"});
  const auto unprinted = import_text(kOsu + kOsuSize + "4  1.00\n" + at_8, kTwo);
  CHECK(unprinted.cells == Cells{"allreduce 2 4 out ok 1 1 {}"});
  CHECK_THAT(unprinted.err, ContainsSubstring("its own validation failed at 8 bytes (line 4)"));
}

TEST_CASE("sizes of IMB's Reduce_scatter are those of its version", "[G-01]") {
  CHECK(import_case("120a-imb-2021-reduce-scatter.txt", {}).cells ==
        Cells{"reduce_scatter 4 4096 out ok 1 20 {}", "reduce_scatter 4 8192 out ok 1 30 {}"});
  const auto size = [](const std::string& version) {
    const auto cells =
        import_text(imb_text(version, "Reduce_scatter", kFour, kImbHeading,
                             "         1024          100        19.00        21.00  20.00"),
                    {})
            .cells;
    REQUIRE(cells.size() == 1);
    return *cells.begin();
  };
  for (const char* whole :
       {"Intel (R) MPI Benchmark Suite V3.2", "Intel (R) MPI Benchmarks 4.1 Update 1",
        "Intel(R) MPI Benchmarks 2018", "Intel (R) MPI Benchmarks 2018 Update 1",
        "Intel(R) MPI Benchmarks 2019"})
    CHECK(size(whole) == "reduce_scatter 4 1024 out ok 1 20 {}");
  for (const char* part : {"Intel(R) MPI Benchmarks 2019 Update 2",
                           "Intel(R) MPI Benchmarks 2019 "
                           "Update 6",
                           "Intel(R) MPI Benchmarks 2021.3"})
    CHECK(size(part) == "reduce_scatter 4 4096 out ok 1 20 {}");
  auto unknown = imb_text("x", "Reduce_scatter", kFour, kImbHeading,
                          "         1024          100        19.00        21.00  20.00");
  unknown.erase(0, unknown.find('\n') + 1);
  CHECK_THAT(import_text(unknown, {}).err,
             ContainsSubstring("without a line that names the version (line 5)"));
}

TEST_CASE("groups, maps and checks of IMB are read", "[G-01]") {
  CHECK(import_case("128-imb-map.txt", {}).cells ==
        Cells{"allgather 4 0 out ok 1 0.15 {}", "allgather 4 256 out ok 1 459.3 {}",
              "allgather 4 512 out ok 1 37.25 {}", "allgather 4 1024 out ok 1 520.9 {}"});
  const std::string groups =
      "# ( 2 groups of 2 processes each running simultaneous ) \n# Group  0:     0    1\n# \n"
      "# Group  1:     2    3\n# \n";
  CHECK(import_text(
            imb_text(kImb, "Multi-Allreduce", groups, "        Group" + kImbHeading,
                     "\n  0  1024  100  1.00  3.00  2.00\n  1  1024  100  1.10  3.10  2.10\n"),
            {})
            .cells == Cells{R"(allreduce 2 1024 out ok 1 2 {"group":"0","groups":"2"})",
                            R"(allreduce 2 1024 out ok 1 2.1 {"group":"1","groups":"2"})"});
  CHECK(import_text(imb_text(kImb, "Multi-Allreduce", groups, kImbHeading,
                             "  1024  100  1.00  3.00  2.00\n"),
                    {})
            .cells == Cells{R"(allreduce 2 1024 out ok 1 2 {"groups":"2"})"});
  // Before version 3 the number of processes stands in brackets.
  CHECK(import_text(
            imb_text("Intel (R) MPI Benchmark Suite V2.3", "PingPong", "# ( #processes = 2 ) \n",
                     "       #bytes #repetitions      t[usec]   Mbytes/sec      defects",
                     "  4  1000  2.00  2.00  0.00\n  8  1000  3.00  2.60  1.00"),
            {})
            .cells == Cells{"sendrecv 2 4 out ok 1 2 {}", "sendrecv 2 8 out failed 0 3 {}"});
  const auto untimed = import_text(
      imb_text(
          kImb, "Allreduce", kFour, kImbHeading,
          "  1024  100  1.00  3.00  2.00\n  4194304 out-of-mem.; needed X=   1.250 GB; use flag "
          "\"-mem X\" or MAX_MEM_USAGE>=X (IMB_mem_info.h)\n  8388608 time-out.; Time limit is "
          "over"),
      {});
  CHECK(untimed.cells == Cells{"allreduce 4 1024 out ok 1 2 {}"});
  CHECK_THAT(untimed.err, ContainsSubstring("Allreduce of 4194304 bytes, which says") &&
                              ContainsSubstring("8388608 bytes, which says \"time-out.;\""));
  for (const std::string heading : {"#bytes #repetitions t_min[msec] t_max[msec] t_avg[msec]",
                                    "#bytes #repetitions t_min[usec] t[usec] t_avg[usec]"})
    CHECK(import_text(imb_text(kImb, "Allreduce", kFour, heading, "  1024  100  1.00  3.00  2.00"),
                      {})
              .exit_code == 2);
}

TEST_CASE("tables within texts of JSON are read", "[G-01]") {
  const auto text = table_of_two();
  CHECK(import_text(nlohmann::json{{"job", 17}, {"stdout", text}}.dump(), {}).cells == kTableCells);
  CHECK(import_text(nlohmann::json{{"job", 17}, {"stdout", text}}.dump(2), {}).cells ==
        kTableCells);
  CHECK(import_text(nlohmann::json{{"job", 17}, {"lines", split(text, '\n')}}.dump(), {}).cells ==
        kTableCells);
  CHECK(import_text(nlohmann::json{{"job", 17}, {"lines", split(text, '\n')}}.dump(1), {}).cells ==
        kTableCells);
  // Ansible has the same output twice, which is no second launch.
  const nlohmann::json twice{{"stdout", text}, {"stdout_lines", split(text, '\n')}};
  for (const int indent : {-1, 4}) {
    const auto once = import_text("ok: [node1] => " + twice.dump(indent), {});
    CHECK(once.cells == kTableCells);
    CHECK(once.err.empty());
  }
  auto python = nlohmann::json(text).dump();
  python = "{'rc': 0, 'stdout': '" + python.substr(1, python.size() - 2) + "'}";
  CHECK(import_text(python, {}).cells == kTableCells);
  CHECK(import_text(nlohmann::json{{"command", "mpirun -np 2 osu_allreduce"},
                                   {"stdout", kOsu + kOsuSize + kOsuRows}}
                        .dump(),
                    {})
            .cells == kOsuCells);
}

TEST_CASE("tables pasted from pages and spreadsheets are read", "[G-01]") {
  for (
      const std::string& form :
      {"## OSU MPI Allreduce Latency Test v7.4\n\n| # Size | Avg Latency(us) |\n|---:|---:|\n| 4 | "
       "1.00 |\n| 8 | 2.00 |\n" +
           std::string(),
       "**OSU MPI Allreduce Latency Test v7.4**\n\n| Size | Avg Latency(us) |\n|------|-----|\n| 4 "
       "   | 1.00            |\n| 8    | 2.00            |\n" +
           std::string(),
       kOsu + "Size,Avg Latency(us)\n4,1.00\n8,2.00\n",
       kOsu + "# Size\tAvg Latency(us)\n4\t1.00\n8\t2.00\n"}) {
    INFO(form);
    CHECK(import_text(form, kTwo).cells == kOsuCells);
  }
  const auto comma = import_text(kOsu + "Size;Avg Latency(us)\n4;1,00\n", kTwo);
  CHECK(comma.exit_code == 2);
  CHECK_THAT(comma.err, ContainsSubstring("x.txt:3: the time in microseconds") &&
                            ContainsSubstring("found \"1,00\""));
  const std::string imb_page =
      "# Benchmarking Allreduce\n# #processes = 4\n| #bytes | #repetitions | t_avg[usec] |\n| --- "
      "| "
      "--- | --- |\n| 64 | 1000 | 2.0 |\n";
  CHECK(import_text(imb_page, {}).cells == Cells{"allreduce 4 64 out ok 1 2 {}"});
  const auto page = [](const std::string& unit, const std::string& rest) {
    return import_text(
        "| size (B) | count (elements) | type | redop | root | time (" + unit +
            ") | algbw (GB/s) | busbw (GB/s) | #wrong | time (us) | algbw (GB/s) | "
            "busbw (GB/s) | #wrong |\n|---|---|---|---|---|---|---|---|---|---|---|---"
            "|---|\n| 1048576 | 262144 | float | sum | -1 | 100.50 | 10.43 | 10.43 | "
            "0 | " +
            rest + " |\n",
        {"--operation", "all_reduce", "--ranks", "2"});
  };
  CHECK(page("us", "99.50 | 10.54 | 10.54 | 0").cells == kTableCells);
  CHECK(page("us", " |  |  | ").cells == Cells{"allreduce 2 1048576 out ok 1 100.5 {}"});
  CHECK(page("ms", "99.50 | 10.54 | 10.54 | 0").exit_code == 2);
}

TEST_CASE("tags may stand behind blanks", "[G-01]") {
  for (const std::string tag :
       {"    [1,0]<stdout>:", "\t[1,0]<stdout>: ", "  [job-1@1,0][node-1:99]<stdout>: ", "  0: ",
        "[1, 0]<stdout>:", "Fri Nov 20 10:00:00 2026[1,0]<stdout>:"}) {
    INFO(tag);
    std::string tagged;
    for (const auto& line : split(table_of_two(), '\n')) tagged += tag + line + "\n";
    CHECK(import_text(tagged, {}).cells == kTableCells);
  }
  std::string ragged;
  for (const auto& line : split(table_of_two(), '\n'))
    ragged += (ragged.size() % 2 == 0 ? "  " : "    ") + ("[1,0]<stdout>:" + line) + "\n";
  CHECK(import_text(ragged, {}).cells == kTableCells);
}
