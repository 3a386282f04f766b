#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "tests/orchestrator/import/import_tables.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using dynamiccl::testing::text_of;
using nlohmann::json;

namespace {

/// The h200 table with the first `what` replaced; its rows begin in line 18.
std::string h200_with(const std::string& what, const std::string& instead) {
  auto text = text_of("all_reduce_h200x8.txt");
  const auto at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), instead);
}

std::vector<ForeignStart> nccl(const std::string& text) {
  return read_nccl_tests_text(text, "x.txt", {});
}

std::vector<ForeignStart> nccl_json(const json& document) {
  return read_nccl_tests_json(document.dump(), "x.json", {});
}

json all_gather() { return json::parse(text_of("all_gather.json")); }

std::vector<ForeignStart> osu(const std::string& rows) {
  ImportOptions options;
  options.ranks = 4;
  return read_osu_text(
      "# OSU MPI Allgather Latency Test v7.5\n"
      "# Size       Avg Latency(us)   Min Latency(us)   Iterations\n" +
          rows,
      "osu.txt", options);
}

/// A text of nccl-tests whose processes are in the groups given.
std::string split_table(const std::vector<int>& groups) {
  std::string text =
      "# Collective test starting: all_reduce_perf\n"
      "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 1 iters: 20 agg "
      "iters: 1 validation: 1 graph: 0\n"
      "# Using devices\n";
  for (std::size_t rank = 0; rank < groups.size(); ++rank)
    text +=
        fmt::format("#  Rank {:2} Group {:2} Pid   {} on      node device  {} [0000:1b:00] GPU\n",
                    rank, groups[rank], 100 + rank, rank);
  return text +
         "#       size         count      type   redop    root     time   algbw   busbw #wrong     "
         "time   algbw   busbw #wrong\n"
         "        1024           256     float     sum      -1    10.00    0.10    0.10      0    "
         "10.00    0.10    0.10      0\n";
}

}  // namespace

TEST_CASE("a time of nccl-tests that is none is refused by its line", "[G-01]") {
  const std::string row = text_of("all_reduce_h200x8.txt");
  for (const std::string time : {"nan", "-5", "0", "0.00", "inf", "-inf", "1e999", "12ms"}) {
    INFO(time);
    CHECK_THROWS_WITH(nccl(h200_with("17.42", time)),
                      ContainsSubstring("x.txt:18: the time in microseconds has to be a finite "
                                        "number above 0; found \"" +
                                        time + "\""));
  }
  CHECK_THROWS_WITH(nccl(h200_with("      0    17.", "     -1    17.")),
                    ContainsSubstring("x.txt:18: the count of wrong values") &&
                        ContainsSubstring("found \"-1\""));
}

TEST_CASE("sizes and counts of nccl-tests are digits alone", "[G-01]") {
  const auto row_with = [](const std::string& size, const std::string& count) {
    auto text = split_table({0, 0});
    text.replace(text.find("1024"), 4, size);
    return text.replace(text.find(" 256 "), 5, " " + count + " ");
  };
  // An all-gather of few elements moves nothing.
  CHECK_THROWS_WITH(nccl(row_with("0", "0")),
                    ContainsSubstring("x.txt: rows of 0 bytes move nothing and are left out: 1, "
                                      "from line 7 on, and there are no others"));
  for (const std::string size :
       {"1e3", "-4", "+4", "1,024", "0x400", "1024.5", "nan", "99999999999999999999999"}) {
    INFO(size);
    CHECK_THROWS_WITH(nccl(row_with(size, "256")),
                      ContainsSubstring("x.txt:7: the size in bytes has to be a whole number of "
                                        "digits alone, 0 to 9223372036854775807; found \"" +
                                        size + "\""));
  }
  CHECK_THROWS_WITH(
      nccl(row_with("1024", "2.5e2")),
      ContainsSubstring("x.txt:7: the count of elements") && ContainsSubstring("found \"2.5e2\""));
  auto text = split_table({0, 0});
  text.replace(text.find("iters: 20"), 9, "iters: 99999999999");
  CHECK_THROWS_WITH(nccl(text), ContainsSubstring("x.txt:2: the number of calls (iters)") &&
                                    ContainsSubstring("found \"99999999999\""));
}

TEST_CASE("other programs' lines between the rows of nccl-tests are passed over") {
  auto text = split_table({0, 0});
  text +=
      "node:100:100 [0] NCCL INFO comm 0x55 rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n"
      "1 more process has sent help message help-mpi-btl.txt\n"
      "2026-03-02 14:05:11 done\n";
  CHECK(nccl(text)[0].rows.size() == 2);
}

TEST_CASE("values of the JSON of nccl-tests are refused by their place", "[G-01]") {
  for (const json& time : {json(-5), json(0), json(0.0), json("nan"), json()}) {
    auto document = all_gather();
    document["results"][1]["in_place"]["time"] = time;
    INFO(time.dump());
    CHECK_THROWS_WITH(nccl_json(document),
                      ContainsSubstring("x.json: results[1].in_place.time: the time in "
                                        "microseconds has to be a finite number above 0") &&
                          ContainsSubstring(time.dump()));
  }
  for (const json& size : {json(-4), json(1e3), json(1e23), json("1024")}) {
    auto document = all_gather();
    document["results"][0]["size"] = size;
    INFO(size.dump());
    CHECK_THROWS_WITH(nccl_json(document),
                      ContainsSubstring("x.json: results[0].size: the size in bytes has to be a "
                                        "whole number of digits alone") &&
                          ContainsSubstring(size.dump()));
  }
  auto document = all_gather();
  document["results"][0]["count"] = -1;
  CHECK_THROWS_WITH(nccl_json(document), ContainsSubstring("results[0].count: the count of el"));
  document = all_gather();
  document["config"]["ngpus"] = -1;
  CHECK_THROWS_WITH(nccl_json(document), ContainsSubstring("x.json: config.ngpus: the value has"));
  for (const char* number : {"22703.5", "2888888888888888888888888888888888882903", "1e10"}) {
    document = all_gather();
    document["nccl_version"] = json::parse(number);
    CHECK_THROWS_WITH(nccl_json(document),
                      ContainsSubstring("x.json: is no document of nccl-tests -J") &&
                          ContainsSubstring("a whole number from"));
  }
  // The program prints what no JSON number is as it comes.
  CHECK_THROWS_WITH(
      read_nccl_tests_json(R"({"results":[{"size":8,"in_place":{"time":inf}}]})", "x.json", {}),
      ContainsSubstring("x.json: is no document of nccl-tests -J: no JSON from column 42 on"));
}

TEST_CASE("a JSON of nccl-tests that does not name its operation needs to be told it") {
  auto document = all_gather();
  document["args"] = json::array();
  document["results"][0]["experiment_name"] = "";
  CHECK_THROWS_WITH(nccl_json(document), ContainsSubstring("x.json: results[0]: the table does "
                                                           "not name its operation") &&
                                             ContainsSubstring("--operation"));
}

TEST_CASE("values of OSU that are none are refused by their line", "[G-01]") {
  for (const std::string time : {"nan", "-5", "0", "0.00", "inf", "fast"}) {
    INFO(time);
    CHECK_THROWS_WITH(osu("8 1.5 1.2 1000\n16 " + time + " 1.2 1000\n"),
                      ContainsSubstring("osu.txt:4: the time in microseconds") &&
                          ContainsSubstring("found \"" + time + "\""));
  }
  // The last has room as one part, not as four.
  for (const std::string size :
       {"1e3", "-4", "1,024", "nan", "99999999999999999999999", "4611686018427387904"}) {
    INFO(size);
    CHECK_THROWS_WITH(osu(size + " 1.5 1.2 1000\n"),
                      ContainsSubstring("osu.txt:3: the size in bytes") &&
                          ContainsSubstring("found \"" + size + "\""));
  }
  CHECK_THROWS_WITH(osu("8 1.5 1.2 -3\n"),
                    ContainsSubstring("osu.txt:3: the number of iterations"));
  CHECK_THROWS_WITH(osu("8 1.5 1.2 0\n"), ContainsSubstring("osu.txt:3: a time of 0 iterations"));
  CHECK_THROWS_WITH(read_osu_text("# OSU MPI Bandwidth Test v7.5\n# Size      Bandwidth (MB/s)\n"
                                  "8 -1\n",
                                  "osu.txt", {}),
                    ContainsSubstring("osu.txt:3: the bandwidth in MB/s"));
  CHECK_THROWS_WITH(read_osu_text("# OSU MPI Bandwidth Test v7.5\n# Size      Bandwidth (MB/s)\n"
                                  "0 5\n",
                                  "osu.txt", {}),
                    ContainsSubstring("osu.txt:3: a message of 0 bytes has a bandwidth"));
}

TEST_CASE("a heading that names a column twice is refused by its line", "[G-01]") {
  for (const std::string again : {"size", "Size", "Latency (us)", "latency (US)", "Latency(us)"}) {
    INFO(again);
    CHECK_THROWS_WITH(
        read_osu_text("# OSU MPI Latency Test v7.5\n# Size      Latency (us)      " + again +
                          "\n8      1.5      2.5\n16      1.6      2.6\n",
                      "osu.txt", {}),
        ContainsSubstring("osu.txt:2: the heading names the column \"" + again + "\" twice"));
  }
  for (const std::string again : {"#bytes", "t[usec]"}) {
    INFO(again);
    CHECK_THROWS_WITH(
        read_imb_text("# Benchmarking PingPong\n# #processes = 2\n"
                      "  #bytes #repetitions  t[usec]  " +
                          again + "\n  0  1000  0.21  0.30\n",
                      "imb.txt", {}),
        ContainsSubstring("imb.txt:3: the heading names the column \"" + again + "\" twice"));
  }
}

TEST_CASE("times of OSU are those that its headings name, in microseconds, of sizes in bytes",
          "[G-01]") {
  ImportOptions options;
  options.ranks = 4;
  const auto table = [&](const std::string& heading, const std::string& rows) {
    return read_osu_text("# OSU MPI Allreduce Latency Test v7.5\n# " + heading + "\n" + rows,
                         "osu.txt", options);
  };
  // None of them is the mean over the ranks.
  for (const std::string other :
       {"min Latency(us)", "Minimum Latency(us)", "Latency Min(us)", "P50 Latency(us)",
        "Compute Latency(us)", "Avg  Latency(us)   Min Latency(us)"}) {
    INFO(other);
    const bool two = other.find("  ") != std::string::npos;
    const auto heading = "Size       " + other + (two ? "" : "       Avg Latency(us)");
    if (two)
      CHECK_THROWS_WITH(table(heading, "8  1.5  1.0\n"), ContainsSubstring("osu.txt:3: "));
    else
      CHECK(table(heading, "8  1.0  1.5\n")[0].rows[0].time_us == 1.5);
  }
  for (const std::string unit : {"Avg Latency(ms)", "Avg Latency(ns)"})
    CHECK_THROWS_WITH(table("Size       " + unit, "8  1.5\n"),
                      ContainsSubstring("osu.txt:3: no time or bandwidth"));
  CHECK_THROWS_WITH(table("Size (KB)       Avg Latency(us)", "8  1.5\n"),
                    ContainsSubstring("osu.txt:2: sizes are in bytes"));
  CHECK(table("Size (B)       Avg Latency(us)", "8  1.5\n")[0].rows[0].size_bytes == 8);
  CHECK_THROWS_WITH(
      table("Size       Avg Latency(us)       Validation       Status", "8  1.5  Pass  Fail\n"),
      ContainsSubstring("osu.txt:2: the heading") && ContainsSubstring("two columns of verdicts"));
  CHECK_THROWS_WITH(table("Size       Avg Latency(us)", "8  1.5  1.7\n"),
                    ContainsSubstring("osu.txt:3: a row of 3 values under a heading of 2"));
}

TEST_CASE("rows of other suites are imported or refused or told, never passed over", "[G-01]") {
  const auto imb = [](const std::string& heading, const std::string& rows) {
    return read_imb_text("# Benchmarking Allreduce\n# #processes = 4\n" + heading + "\n" + rows,
                         "imb.txt", {});
  };
  const std::string heading = "#bytes #repetitions t_min[usec] t_max[usec] t_avg[usec]";
  CHECK(imb("#bytes\t#repetitions\tt_avg[usec]", "8 1000 1.5\n")[0].rows[0].time_us == 1.5);
  for (const std::string row : {"16 1000 1.2 2.0 1.5x", "16x 1000 1.2 2.0 1.5",
                                "16 1000 1.2 2.0 1.5 error", "16 1000 1.2"}) {
    INFO(row);
    CHECK_THROWS_WITH(imb(heading, "8 1000 1.1 1.9 1.4\n" + row + "\n"),
                      ContainsSubstring("imb.txt:5: "));
  }
  // A launcher's word is none.
  CHECK(imb(heading, "8 1000 1.1 1.9 1.4\n64 total processes killed\n")[0].rows.size() == 1);
  CHECK_THROWS_WITH(imb(heading, "8 1000 1.1 1.9 1.4\n" + heading + "\n8 1000 1.1 1.9 1.4\n"),
                    ContainsSubstring("imb.txt:5: a second heading"));
  CHECK_THROWS_WITH(imb("#bytes t_min[usec] t_avg[usec]", "8 1 2\n"),
                    ContainsSubstring("imb.txt:3: a heading is"));
  for (const std::string each : {"2.7", "nan", "-5", "1e300"})
    CHECK_THROWS_WITH(
        imb("# ( 2 groups of " + each + " processes each running simultaneous )\n" + heading,
            "8 1000 1.1 1.9 1.4\n"),
        ContainsSubstring("imb.txt:3: the number of processes of a group"));
  // Below a note the test goes on, which is told; what may begin another test ends it.
  const std::string osu = "# OSU MPI Latency Test v7.5\n# Size      Latency (us)\n8      1.5\n";
  const auto below = [&](const std::string& note, const std::string& row) {
    return read_osu_text(osu + note + "\n" + row + "\n", "osu.txt", {})[0];
  };
  const auto noted = imb(heading, "8 1000 1.1 1.9 1.4\n# a fan failed\n16 1000 1.2 2.0 1.5\n")[0];
  CHECK(noted.rows.size() == 2);
  CHECK(noted.warnings ==
        std::vector<std::string>{
            "rows below the note \"a fan failed\" (line 5) are taken for the same "
            "test's, as nothing begins another"});
  CHECK(below("# a fan failed", "16  1.6").rows.size() == 2);
  CHECK(below("# Benchmark of another", "16  1.6").rows.size() == 1);
  CHECK(below("# Benchmark of another", "16  1.6").left_out ==
        std::vector<std::string>{"rows below the comment in line 4"});
  CHECK_THROWS_WITH(below("# now with GPUs", "8  1.6"),
                    ContainsSubstring("osu.txt:5: 8 bytes come behind 8: sizes only grow"));
}

TEST_CASE("an OSU row whose validation failed is a failed cell", "[G-01]") {
  ImportOptions options;
  options.ranks = 4;
  const auto table = [&](const std::string& rows) {
    return read_osu_text(
        "# OSU MPI Allreduce Latency Test v7.5\n# Datatype: MPI_CHAR.\n"
        "# Size       Avg Latency(us)        Validation\n" +
            rows,
        "osu.txt", options);
  };
  const auto starts = table("4  2.10  Pass\n8  2.30  Fail\n");
  CHECK(starts[0].verify == true);
  CHECK(starts[0].rows[0].wrong == 0U);
  CHECK(starts[0].rows[1].wrong == 1U);
  CHECK(starts[0].rows[1].reported["Validation"] == "Fail");
  const auto run = make_foreign_run({{"osu.txt", "", starts}}, "osu", options);
  const auto& figures = run.launches[0].figures;
  CHECK(figures[0].status == CellStatus::ok);
  CHECK(figures[1].status == CellStatus::failed);
  CHECK(figures[1].reason == "the program's own validation says Fail");
  for (const std::string word : {"Maybe", ""})
    CHECK_THROWS_WITH(
        table("4  2.10  " + word + "\n"),
        ContainsSubstring("osu.txt:4: the validation has to be Pass or Fail; found \"" + word +
                          "\""));
  // Without -c nothing was checked.
  CHECK_FALSE(osu("8 1.5 1.2 1000\n")[0].rows[0].wrong);
}

TEST_CASE("the time of an OSU row is of the column that --rank-aggregation names", "[G-01]") {
  ImportOptions options;
  options.ranks = 4;
  const auto table = [&](const std::string& columns, RankAggregation aggregation) {
    options.aggregation = aggregation;
    return read_osu_text("# OSU MPI Allreduce Latency Test v7.5\n# Size  " + columns +
                             "\n8   10.00   9.00   30.00   1000\n",
                         "osu.txt", options)[0]
        .rows[0]
        .time_us;
  };
  const std::string full = "Avg Latency(us)  Min Latency(us)  Max Latency(us)  Iterations";
  CHECK(table(full, RankAggregation::mean) == 10);
  CHECK(table(full, RankAggregation::min) == 9);
  CHECK(table(full, RankAggregation::max) == 30);
  CHECK(table("Max Latency(us)  Latency (us)  Min Latency(us)  Iterations",
              RankAggregation::mean) == 9);
  CHECK_THROWS_WITH(table("Avg Latency(us)", RankAggregation::max),
                    ContainsSubstring("osu.txt:3: the heading \"Size | Avg Latency(us)\" has no "
                                      "column of the max over the ranks") &&
                        ContainsSubstring("(OSU: -f)") &&
                        ContainsSubstring("without --rank-aggregation"));
  CHECK_THROWS_WITH(table("Bandwidth (MB/s)", RankAggregation::min),
                    ContainsSubstring("no column of the min over the ranks"));
}

TEST_CASE("every row counts the calls that it says itself", "[G-01]") {
  ImportOptions options;
  options.ranks = 4;
  const auto of_osu = read_osu_text(text_of("osu.txt"), "x", options);
  CHECK(of_osu[2].rows[0].calls == 1000);
  CHECK(of_osu[2].rows[1].calls == 100);
  const auto run = make_foreign_run({{"x", "", {of_osu[2]}}}, "osu", options);
  CHECK(run.launches[0].figures[0].calls == 1000);
  CHECK(run.launches[0].figures[1].calls == 100);

  auto document = all_gather();
  document["results"][1]["actual_iterations"] = 5;
  const auto of_json = nccl_json(document);
  CHECK(of_json[0].rows[0].calls == 40);  // 20 iterations of two calls at once
  CHECK(of_json[0].rows[2].calls == 10);
}

TEST_CASE("the ranks are those of the group that the first process is in", "[G-01]") {
  CHECK(nccl(split_table({0, 0, 0, 0}))[0].ranks == 4);
  CHECK(nccl(split_table({0, 0}))[0].rows[0].knobs.empty());
  const auto split = nccl(split_table({0, 1, 0, 1, 0, 1}));
  CHECK(split[0].ranks == 3);
  // Beside other groups it is another measurement than alone.
  CHECK(split[0].rows[0].knobs.at("groups") == "2");
  CHECK(split[0].source["devices"][1]["group"] == 1);
  // NCCL_TESTS_SPLIT=OR1: the first process's group has the number 1.
  CHECK(nccl(split_table({1, 1, 3, 3}))[0].ranks == 2);

  auto document = all_gather();
  auto& config = document["config"];
  config["nthreads"] = 2;
  config["ngpus"] = 4;
  CHECK(nccl_json(document)[0].ranks == 16);  // two processes of eight GPUs
  config["devices"][1]["group"] = 1;
  CHECK(nccl_json(document)[0].ranks == 8);
  CHECK(nccl_json(document)[0].rows[0].knobs.at("groups") == "2");
  config["devices"][0]["group"] = 1;
  CHECK(nccl_json(document)[0].ranks == 16);
  CHECK(nccl_json(document)[0].rows[0].knobs.empty());
  config["devices"] = json::array();  // no MPI: one process, whose device may not be listed
  CHECK(nccl_json(document)[0].ranks == 8);
}

TEST_CASE("an unknown variable's value is not stored, and that is said by its name", "[G-01]") {
  const auto starts =
      nccl("mpirun -np 8 -x NCCL_OF_NOBODY=1 -x NCCL_ALGO=Ring all_reduce_perf -b 8\n" +
           text_of("all_reduce_h200x8.txt"));
  REQUIRE(starts.size() == 1);
  CHECK(starts[0].settings.at("env.NCCL_OF_NOBODY") == "<redacted>");
  CHECK(starts[0].settings.at("env.NCCL_ALGO") == "Ring");
  REQUIRE(starts[0].warnings.size() == 1);
  CHECK_THAT(starts[0].warnings[0], ContainsSubstring("env.NCCL_OF_NOBODY is no setting that is "
                                                      "known, so its value is not stored"));
}

TEST_CASE("elements that differ bitwise are wrong values of the JSON of nccl-tests", "[G-01]") {
  auto document = all_gather();
  document["out_of_bounds"] = {{"count", 0}, {"okay", "true"}};
  auto& bodies = document["results"];
  bodies[1]["in_place"]["nwrong"] = 0;
  bodies[0]["out_of_place"]["bitwise"] = {{"different_elements", 3}};
  bodies[0]["in_place"]["bitwise"] = {{"different_elements", 0}};
  const auto rows = nccl_json(document).at(0).rows;
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].wrong == 3U);
  CHECK(rows[0].wrong_reason == "bitwise finds 3 elements that differ");
  CHECK(rows[1].wrong == 0U);
  bodies[0]["out_of_place"]["bitwise"]["different_elements"] = -1;
  CHECK_THROWS_WITH(nccl_json(document),
                    ContainsSubstring("results[0].out_of_place.bitwise.different_elements"));
}

TEST_CASE("a verdict of the JSON of nccl-tests that is not okay fails all rows", "[G-01]") {
  auto document = all_gather();
  document["results"][1]["in_place"]["nwrong"] = 0;
  for (const json& no : {json(false), json("false")}) {
    document["out_of_bounds"] = {{"count", 0}, {"okay", no}};
    const auto failed = nccl_json(document);
    for (const auto& row : failed.at(0).rows) {
      CHECK(row.wrong == 1U);
      CHECK(row.wrong_reason == "the program's own verdict out_of_bounds is not okay");
    }
  }
  document["out_of_bounds"]["okay"] = true;
  const auto passed = nccl_json(document);
  for (const auto& row : passed.at(0).rows) CHECK(row.wrong == 0U);
  document["average_bus_bandwidth"]["okay"] = false;
  const auto start = nccl_json(document).at(0);
  CHECK(start.rows[0].wrong == 0U);
  REQUIRE_FALSE(start.warnings.empty());
  CHECK_THAT(start.warnings.back(), ContainsSubstring("its average bus bandwidth failed"));
}
