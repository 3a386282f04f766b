#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <regex>
#include <set>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "db/reader.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "orchestrator/import/log_lines.hpp"
#include "tests/orchestrator/cli/program.hpp"
#include "tests/orchestrator/import/import_tables.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using dynamiccl::testing::Folder;
using dynamiccl::testing::kTables;
using dynamiccl::testing::run;
using dynamiccl::testing::text_of;

namespace {

std::vector<std::string> bare_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (const auto& line : log_lines(text, "x")) lines.emplace_back(trim(line.text));
  return lines;
}

/// The rows of numbers of a table, as words: read here in another way than by the program.
std::vector<std::vector<std::string>> rows_of(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& line : bare_lines(text)) {
    if (!line.empty() && !line.starts_with('#')) rows.push_back(words_of(line));
  }
  return rows;
}

/// A table as another launch would print it: times by size times what `factor` says.
std::string launch_table(const std::string& name,
                         const std::function<double(std::uint64_t)>& factor) {
  std::string text;
  for (const auto& line : bare_lines(text_of(name))) {
    auto words = words_of(line);
    if (line.empty() || line.starts_with('#') || words.size() != 13) {
      text += line + "\n";
      continue;
    }
    for (const std::size_t time : {5U, 9U})
      words[time] = fmt::format("{:.4f}", std::stod(words[time]) * factor(std::stoull(words[0])));
    text += "  " + join(words, "  ") + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("an nccl-tests table of eleven sizes is read with every number", "[G-01]") {
  const auto text = text_of("all_reduce_h200x8.txt");
  const auto starts = read_nccl_tests_text(text, "x.txt", {});
  REQUIRE(starts.size() == 1);
  const auto& start = starts[0];
  CHECK(start.ranks == 8);
  CHECK(start.calls == 20);
  CHECK(start.warmup == 1);
  CHECK(start.verify == true);
  CHECK(start.source["nccl_library"] == "22703");
  CHECK(start.source["devices"].size() == 8);
  const auto rows = rows_of(text);
  REQUIRE(rows.size() == 11);
  REQUIRE(start.rows.size() == 22);
  for (std::size_t i = 0; i < 11; ++i) {
    for (const std::size_t side : {0U, 1U}) {
      const auto& row = start.rows[2 * i + side];
      const auto word = [&](std::size_t at) { return std::stod(rows[i][at + 4 * side]); };
      CHECK(row.collective == "allreduce");
      CHECK(row.size_bytes == std::stoull(rows[i][0]));
      CHECK(row.reported["count"].get<std::uint64_t>() == std::stoull(rows[i][1]));
      CHECK(row.datatype == "float32");
      CHECK(row.in_place == (side == 1));
      CHECK(row.knobs.empty());
      CHECK(row.time_us == word(5));
      CHECK(row.reported["time"] == word(5));
      CHECK(row.reported["algbw"] == word(6));
      CHECK(row.reported["busbw"] == word(7));
      CHECK(row.reported["#wrong"] == word(8));
      CHECK(row.wrong == 0U);
      // What is computed from size and time is what was printed, to its last digit.
      const double algbw = static_cast<double>(row.size_bytes) / row.time_us / 1e3;
      CHECK(std::fabs(algbw - word(6)) <= 0.006 + 1e-3 * word(6));
    }
  }
}

TEST_CASE("tables come repeated, one-sided and unchecked") {
  const std::string text = text_of("all_reduce_bridge.txt");
  CHECK(read_nccl_tests_text(text + text, "x", {}).size() == 2);

  const std::string old =
      "#       size         count      type     time   algbw   busbw  error     time   algbw   "
      "busbw  error\n"
      "        1024           256     float    10.00    0.10    0.10  0e+00      N/A     N/A     "
      "N/A    N/A\n";
  ImportOptions options;
  CHECK_THROWS_WITH(read_nccl_tests_text(old, "x", options),
                    ContainsSubstring("x:2") && ContainsSubstring("--operation"));
  options.operation = "alltoall";
  const auto one = read_nccl_tests_text(old, "x", options);
  REQUIRE(one[0].rows.size() == 1);
  CHECK(one[0].rows[0].collective == "alltoall");
  CHECK_FALSE(one[0].rows[0].wrong);
  CHECK_THROWS_WITH(make_foreign_run({{"x", old, one}}, "nccl-tests", options),
                    ContainsSubstring("--ranks"));
}

TEST_CASE("the ranks that launchers put before every line are no part of a table", "[G-01]") {
  const auto with = [](const std::string& prefix, const std::string& name) {
    std::string text = "srun: job 7 queued and waiting for resources\n1: a word of another rank\n";
    for (const auto& line : split(text_of(name), '\n')) text += prefix + line + "\n";
    return text + "1: 8 16 32\n";
  };
  ImportOptions options;
  options.ranks = 4;
  for (const std::string prefix :
       {"[1,0]<stdout>:", "[1,0]<stdout>: ", "[prterun-h-1@1,0]<stdout>: ",
        "[prterun-node-7-1234@1,12][node-7:99]<stdout>: ", "0: ", " 0: ", "12:  ", "[0] "}) {
    INFO(prefix);
    CHECK(read_nccl_tests_text(with(prefix, "all_reduce_bridge.txt"), "x", {})[0].rows.size() ==
          22);
    const auto osu = read_osu_text(with(prefix, "osu.txt"), "x", options);
    REQUIRE(osu.size() == 4);
    CHECK(osu[0].rows.size() == 3);
    CHECK(osu[2].rows[1].time_us == 16.93);
  }
  // A number is a label where the heading has it too; others are data.
  CHECK(bare_lines("# size\n0: 8 16\n") == std::vector<std::string>{"# size", "0: 8 16", ""});
  CHECK(bare_lines("1: # hi\n0: # size count\n0: 8 2\n0:9\n1: 7\n8 0: 1") ==
        std::vector<std::string>{"1: # hi", "# size count", "8 2", "0:9", "1: 7", "8 0: 1"});
}

TEST_CASE("a row that does not fit its heading is named by its line") {
  auto text = text_of("all_reduce_h200x8.txt");
  const auto at = text.find("17.42");
  text.erase(at, 5);
  CHECK_THROWS_WITH(read_nccl_tests_text(text, "x.txt", {}),
                    ContainsSubstring("x.txt:18: a row of 12 values under a heading of 13"));
  CHECK_THROWS_WITH(read_nccl_tests_text("hello", "x.txt", {}),
                    ContainsSubstring("holds no table"));
}

TEST_CASE("the JSON of nccl-tests is read, its secrets are not", "[G-01]") {
  const auto starts = read_nccl_tests_json(text_of("all_gather.json"), "x.json", {});
  REQUIRE(starts.size() == 1);
  const auto& start = starts[0];
  CHECK(start.ranks == 2);
  CHECK(start.calls == 40);
  CHECK(start.source["nccl_library"] == "2.27.3");
  CHECK(start.environment.dump() ==
        R"({"CUDA_VISIBLE_DEVICES":"0,1","NCCL_DEBUG":"WARN","NCCL_SECRET_KEY":"<redacted>"})");
  REQUIRE(start.rows.size() == 4);
  CHECK(start.rows[0].collective == "allgather");
  CHECK(start.rows[0].size_bytes == 1048576);
  CHECK(start.rows[0].time_us == 21.4784);
  CHECK(start.rows[1].reported["bus_bw"] == 24.975966);
  CHECK(start.rows[3].wrong == 2U);
  CHECK(start.rows[3].in_place);
  CHECK_THROWS_WITH(read_nccl_tests_json("{}", "x.json", {}), ContainsSubstring("\"results\""));
  CHECK_THROWS_WITH(read_nccl_tests_json("{", "x.json", {}), ContainsSubstring("no JSON"));
}

TEST_CASE("OSU tables of latency, bandwidth and collectives are read", "[G-01]") {
  ImportOptions options;
  CHECK_THROWS_WITH(read_osu_text(text_of("osu.txt"), "x", options), ContainsSubstring("--ranks"));
  options.ranks = 4;
  const auto starts = read_osu_text(text_of("osu.txt"), "x", options);
  REQUIRE(starts.size() == 4);
  CHECK(starts[0].rows[2].time_us == 112.47);
  CHECK(starts[0].rows[0].collective == "sendrecv");
  CHECK(starts[0].rows[0].datatype == "char");
  CHECK(starts[1].rows[0].reported["Bandwidth (MB/s)"] == 3841.22);
  CHECK(starts[1].rows[0].time_us == 1024 / 3841.22);
  CHECK(starts[1].rows[0].knobs.at("test") == "Bandwidth");
  CHECK(starts[2].rows[1].time_us == 16.93);
  CHECK(starts[2].rows[1].datatype == "float32");
  CHECK(starts[2].rows[1].reported["Max Latency(us)"] == 18.84);
  // OSU counts one rank's part of an allgather, we count all.
  CHECK(starts[3].rows[0].size_bytes == 4096);
  CHECK(starts[3].rows[0].reported["size"] == 1024);
  CHECK_THROWS_WITH(read_osu_text("# OSU MPI Iallreduce Latency Test v7.5\n", "x", options),
                    ContainsSubstring("no equal here"));
}

TEST_CASE("repeated starts are launches, and the same import has the same id") {
  const auto text = text_of("all_reduce_h200x8.txt");
  const auto file = [&](const std::string& content) {
    return ImportedFile{"x.txt", content, read_nccl_tests_text(content, "x.txt", {})};
  };
  const auto once = make_foreign_run({file(text)}, "nccl-tests", {});
  CHECK(once.launches.size() == 1);
  CHECK(once.cells.size() == 22);
  const auto again = [&](double factor) {
    return file(launch_table("all_reduce_h200x8.txt", [=](std::uint64_t) { return factor; }));
  };
  const auto thrice = make_foreign_run({file(text), again(1.01), again(1.02)}, "nccl-tests", {});
  REQUIRE(thrice.launches.size() == 3);
  CHECK(thrice.launches[2].block == 2);
  CHECK(thrice.cells.size() == 22);
  CHECK(once.run.id == make_foreign_run({file(text)}, "nccl-tests", {}).run.id);
  CHECK(once.run.id != thrice.run.id);
  ImportOptions other;
  other.environment = "cross-docker";
  CHECK(once.run.id != make_foreign_run({file(text)}, "nccl-tests", other).run.id);
}

TEST_CASE("two imported tables are compared: ratios, no interval, UNCLEAR, code 5", "[G-01]") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  const auto imported = run({"import", kTables + "all_reduce_h200x8.txt",
                             kTables + "all_reduce_bridge.txt", "--db", db, "--json"});
  INFO(imported.err);
  REQUIRE(imported.exit_code == 0);
  const auto rows = nlohmann::json::parse(imported.out);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["outcome"] == "imported");
  CHECK(rows[0]["cells"] == 22);
  const auto again = run({"import", kTables + "all_reduce_h200x8.txt", "--db", db, "--json"});
  CHECK(nlohmann::json::parse(again.out)[0]["outcome"] == "already there");
  const auto compared = run({"compare", "last~1", "last", "--db", db, "--json"});
  INFO(compared.err);
  CHECK(compared.exit_code == 5);
  const auto result = nlohmann::json::parse(compared.out);
  REQUIRE(result["cells"].size() == 22);
  for (const auto& cell : result["cells"]) {
    CHECK(cell["verdict"] == "UNCLEAR");
    CHECK(cell["ratio_low"].is_null());
    CHECK(cell["ratio"].get<double>() > 1.2);
    CHECK(cell["note"].get<std::string>().find("no interval: 1 launch in A") == 0);
  }
  const auto text = run({"compare", "last~1", "last", "--db", db});
  CHECK(text.out.find("imported: a foreign table") != std::string::npos);
  CHECK(text.out.find("without interval") != std::string::npos);
  // Nothing of ours was measured like a mean over ranks.
  CHECK(run({"list", "--db", db}).out.find("nccl-tests") != std::string::npos);
}

/// Every element of a document by name, with its attributes as written. Fails on what is left open.
std::vector<std::pair<std::string, std::string>> elements_of(const std::string& xml) {
  std::vector<std::pair<std::string, std::string>> elements;
  std::vector<std::string> open;
  const std::regex tag(R"(<([?/]?)([A-Za-z-]+)((?:\s+[A-Za-z]+="[^"<>]*")*)\s*([?/]?)>)");
  std::string rest;
  auto end = xml.begin();
  for (std::sregex_iterator at(xml.begin(), xml.end(), tag), none; at != none; ++at) {
    rest.append(end, (*at)[0].first);
    end = (*at)[0].second;
    const std::string name = (*at)[2].str();
    if ((*at)[1] == "?") continue;
    if ((*at)[1] == "/") {
      REQUIRE_FALSE(open.empty());
      CHECK(open.back() == name);
      open.pop_back();
      continue;
    }
    elements.emplace_back(name, (*at)[3].str());
    if ((*at)[4] != "/") open.push_back(name);
  }
  rest.append(end, xml.end());
  CHECK(open.empty());
  CHECK(rest.find_first_of("<>") == std::string::npos);
  return elements;
}

TEST_CASE("a cell that is slower ends compare with 3, and JUnit tells it from what is open") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  constexpr std::uint64_t kSlow = 1024;
  constexpr std::uint64_t kOpen = 8192;
  for (const bool after : {false, true}) {
    std::vector<std::string> words{"import"};
    for (int launch = 0; launch < 6; ++launch) {
      const auto path = folder.path(fmt::format("{}-{}.txt", after ? "after" : "before", launch));
      std::ofstream(path) << launch_table("all_reduce_bridge.txt", [&](std::uint64_t size) {
        const double little = 1 + 0.001 * (launch % 3) + 1e-4 * launch;
        if (after && size == kOpen) return (launch % 2 == 0 ? 0.5 : 2.0) * little;
        return after && size == kSlow ? 1.5 * little : little;
      });
      words.push_back(path);
    }
    words.insert(words.end(), {"--as-launches", "--name", after ? "after" : "before", "--db", db});
    const auto imported = run(words);
    INFO(imported.err);
    REQUIRE(imported.exit_code == 0);
  }
  const auto xml = folder.path("compare.xml");
  const auto compared = run({"compare", "last~1", "last", "--junit", xml, "--json", "--db", db});
  INFO(compared.err);
  CHECK(compared.exit_code == 3);
  const auto result = nlohmann::json::parse(compared.out);
  CHECK(result["exit_code"] == 3);
  CHECK(result["counts"]["SLOWER"] == 2);  // in place and out of place
  CHECK(result["counts"]["UNCLEAR"] == 2);
  CHECK(result["counts"]["FASTER"] == 0);
  std::ifstream file(xml);
  const auto elements = elements_of({std::istreambuf_iterator<char>(file), {}});
  std::map<std::string, int> count;
  for (const auto& [name, attributes] : elements) ++count[name];
  CHECK(count["testcase"] == 22);
  CHECK(count["failure"] == 2);
  CHECK(count["skipped"] == 2);
  CHECK(count["error"] == 0);
  CHECK(count["system-out"] == 18);
  REQUIRE(elements.front().first == "testsuites");
  CHECK(elements.front().second == " tests=\"22\" failures=\"2\" errors=\"0\" skipped=\"2\"");
  for (std::size_t i = 1; i < elements.size(); ++i) {
    const auto& [name, attributes] = elements[i];
    const bool slow = elements[i - 1].second.find("allreduce 1 KiB,") != std::string::npos;
    const bool unclear = elements[i - 1].second.find("allreduce 8 KiB,") != std::string::npos;
    if (elements[i - 1].first == "testcase")
      CHECK(name == (slow ? "failure" : unclear ? "skipped" : "system-out"));
  }
  // The other way round nothing is slower, and what is open stays open.
  CHECK(run({"compare", "last", "last~1", "--db", db}).exit_code == 5);
  const auto equal = run({"compare", "last", "last~1", "--where", "size_bytes=64KiB", "--db", db});
  CHECK(equal.exit_code == 0);
  const auto nowhere =
      run({"compare", "last", "last~1", "--junit", folder.path("no/x.xml"), "--db", db});
  CHECK(nowhere.exit_code == 2);
  CHECK(nowhere.err.find("no/x.xml: cannot be written: No such file or directory") !=
        std::string::npos);
}

TEST_CASE("what cannot be imported is refused before anything is stored") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  std::ofstream(folder.path("notes.txt")) << "nothing to see\n";
  const auto refused =
      run({"import", kTables + "all_reduce_h200x8.txt", folder.path("notes.txt"), "--db", db});
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("is none of what can be imported") != std::string::npos);
  CHECK(refused.err.find("--format nccl-tests, nccl-tests-json, osu, imb, dynamiccl, decisions") !=
        std::string::npos);
  CHECK_FALSE(std::filesystem::exists(db));
  CHECK(run({"import", "/no/such/file", "--db", db}).exit_code == 2);
}
