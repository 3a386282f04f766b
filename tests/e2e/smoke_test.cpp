#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <filesystem>

#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/text.hpp"
#include "tests/e2e/program.hpp"

using namespace dynamiccl;

namespace {

/// Where `run` writes the page of the newest run: beside the database.
std::string page_of_newest(const Program& program) {
  const auto uuid =
      program.value("SELECT uuid FROM run ORDER BY id DESC LIMIT 1").get<std::string>();
  return program.folder() + "/" + uuid.substr(0, 8) + ".html";
}

}  // namespace

TEST_CASE("the smoke experiment is measured, verified, stored, answered and queried") {
  const Program program;
  const auto run = program.run({"run", DYNAMICCL_SOURCE_DIR "/experiments/smoke.toml"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.out.find("bare-metal") != std::string::npos);
  CHECK(run.out.find("16 ok") != std::string::npos);
  const auto lines = split(trim(run.out), '\n');
  CHECK(lines.size() >= 5);
  CHECK(lines.size() <= 30);
  const std::string page = page_of_newest(program);
  // What is to be copied is never broken, however long the paths of program, database and page.
  for (std::string line : lines) {
    for (const std::string& path : {program.path(), program.db(), page})
      if (const auto at = line.find(path); at != std::string::npos) line.erase(at, path.size());
    CHECK(line.size() <= 100);
  }
  CHECK(run.out.find(page) != std::string::npos);
  CHECK(std::filesystem::exists(page));

  const auto coverage = nlohmann::json::parse(program.run({"query", "coverage", "--json"}).out);
  REQUIRE(coverage.size() == 16);
  for (const auto& cell : coverage) {
    CHECK(cell["status"] == "ok");
    CHECK(cell["launches"] == 2);
    CHECK(cell["environment"] == "bare-metal");
    CHECK(cell["ranks"] == 2);
  }
  // Both ranks of every launch checked every element, and kept every sample.
  CHECK(program.value("SELECT count(*) FROM sample") >= 16 * 2 * 2 * 5);
  CHECK(program.value("SELECT count(*) FROM v_launch WHERE launch_status = 'ok' AND regime_name "
                      "LIKE 'bare-metal%'") == 8);
  // What was stored needs no files any more.
  CHECK_FALSE(std::filesystem::exists(program.folder() + "/runs/" +
                                      program.value("SELECT uuid FROM run").get<std::string>()));
  CHECK(program.processes().empty());
  for (const char* verb : {"list", "show", "report"}) {
    const auto answer = program.run({verb});
    INFO(answer.err);
    CHECK(answer.exit_code == 0);
    CHECK(answer.out.find("smoke") != std::string::npos);
  }
}

TEST_CASE("each launch gets fresh data and a random order, the same seed gives the same plan") {
  const Program program;
  const std::vector<std::string> arguments{"run", DYNAMICCL_SOURCE_DIR "/experiments/smoke.toml",
                                           "--only", "backend == gloo and architecture == ring"};
  auto without_page = arguments;
  without_page.emplace_back("--no-report");
  const auto brief = program.run(without_page);
  REQUIRE(brief.exit_code == 0);
  CHECK_FALSE(std::filesystem::exists(page_of_newest(program)));
  CHECK(brief.out.find(".html") == std::string::npos);
  auto with_tables = arguments;
  with_tables.emplace_back("--full");
  const auto full = program.run(with_tables);
  REQUIRE(full.exit_code == 0);
  CHECK(std::filesystem::exists(page_of_newest(program)));
  // A table per operation, and then the answer.
  for (const char* table : {"ring allreduce, 2 ranks", "ring broadcast, 2 ranks"}) {
    CHECK(brief.out.find(table) == std::string::npos);
    CHECK(full.out.find(table) < full.out.find("next: "));
  }
  CHECK(split(full.out, '\n').size() > split(brief.out, '\n').size());
  const auto seeds = program.rows(
      "SELECT l.block, count(DISTINCT json_extract(run_config_json, '$.seed')) AS seeds, "
      "count(*) AS launches FROM launch l GROUP BY l.block");
  REQUIRE(seeds.size() == 2);
  for (const auto& block : seeds) {
    CHECK(block["launches"] == 2);
    CHECK(block["seeds"] == 1);
  }
  CHECK(program.value("SELECT count(DISTINCT json_extract(run_config_json, '$.seed')) FROM "
                      "launch") == 2);
}

TEST_CASE("an algorithm that nothing has is told, and the run does not count as fine") {
  const Program program;
  const auto path = program.file("slip.toml", one_cell("\"bare-metal\"", "gloo") +
                                                  "[protocol]\nwarmup = 1\niterations = 3\n"
                                                  "launches = 1\n");
  const auto result =
      program.run({"run", path, "--set", "axes.algorithm=[\"library\", \"own_rng\"]"});
  INFO(result.err);
  CHECK(result.exit_code == 1);
  CHECK(result.err.find("no algorithm \"own_rng\"") != std::string::npos);
  CHECK(result.err.find("own_ring") != std::string::npos);
  CHECK(program.value("SELECT count(*) FROM v_cell WHERE status = 'ok'") == 1);
}

namespace {

/// Of this program's launches: tests run in a process namespace of their own.
std::vector<pid_t> aggregators() {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (file_text(entry.path().string() + "/cmdline").find("dynamiccl-aggregator") !=
        std::string::npos)
      found.push_back(std::stoi(name));
  }
  return found;
}

std::string aggregated(const std::string& iterations) {
  return "name = \"aggregated\"\n[axes]\nenvironment = \"bare-metal\"\nbackend = \"gloo\"\n"
         "architecture = \"ring\"\nranks = 3\n[[work]]\ncollective = \"allreduce\"\n"
         "size = [\"4KiB\", \"1MiB\"]\nalgorithm = \"aggregator\"\n[protocol]\nlaunches = 1\n"
         "retries = 0\nwarmup = 1\niterations = " +
         iterations + "\ncell_time_cap = \"60s\"\n";
}

}  // namespace

TEST_CASE("an aggregator sums for a launch and ends with it; killed, the launch says so",
          "[C-49]") {
  const Program program;
  const auto run = program.run({"run", program.file("a.toml", aggregated("5"))});
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(run.out.find("2 ok") != std::string::npos);
  CHECK(aggregators().empty());
  const pid_t started = program.start({"run", program.file("b.toml", aggregated("1000000"))});
  while (aggregators().empty() && !Program::has_ended(started)) usleep(10'000);
  usleep(1'000'000);
  for (const pid_t aggregator : aggregators()) kill(aggregator, SIGKILL);
  CHECK(Program::wait(started) == 1);
  INFO(program.said());
  CHECK(program.said().find("the aggregator that summed for the ranks ended before they did") !=
        std::string::npos);
  CHECK(aggregators().empty());
  CHECK(program.processes().empty());
}

TEST_CASE("a gate measures its reference's experiment, and fails on what has no result any more") {
  Program program;
  const auto run = program.run(
      {"run", program.file("good.toml", one_cell("\"bare-metal\"", "gloo") +
                                            "[protocol]\nlaunches = 2\nretries = 0\n"
                                            "iterations = 5\nbatch_target = 0\n[protocol.noise]\n"
                                            "wait = 0\n")});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const auto unmade = program.run({"gate", "none.sqlite"});
  CHECK(unmade.exit_code == 2);
  CHECK(unmade.err.find("run FILE --db none.sqlite") != std::string::npos);
  // Two launches give no interval.
  const auto open = program.run({"gate", program.db()});
  INFO(open.err << open.out);
  CHECK(open.exit_code == 5);
  CHECK(open.out.find("not judged: bare-metal gloo ring allreduce 1 KiB") != std::string::npos);
  CHECK(open.out.find("1 cell compared with run ") != std::string::npos);
  CHECK(open.out.find(": nothing could be judged\n") != std::string::npos);
  for (const auto& file : std::filesystem::directory_iterator(program.folder()))
    CHECK(file.path().filename().string().find("gate-") == std::string::npos);

  const std::string faulty = DYNAMICCL_BINARY_DIR "/tests/dynamiccl-worker-faulty";
  if (!std::filesystem::exists(faulty)) return;
  program.replace_worker("dynamiccl-worker", faulty);
  const std::string first = program.value("SELECT uuid FROM run ORDER BY id LIMIT 1");
  const auto wrong = program.run({"gate", program.db() + ":" + first, "--json"});
  INFO(wrong.err << wrong.out);
  CHECK(wrong.exit_code == 3);
  const auto said = nlohmann::json::parse(wrong.out);
  CHECK(said.at("exit_code") == 3);
  REQUIRE(said.at("findings").size() == 1);
  CHECK(said.at("findings")[0].at("what") == "failed");
  CHECK(said.at("findings")[0].at("text").get<std::string>().find("wrong data on rank") !=
        std::string::npos);
}
