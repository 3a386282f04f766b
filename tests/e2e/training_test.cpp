#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "containers/start/environment.hpp"
#include "core/vocabulary/text.hpp"
#include "tests/containers/real_support.hpp"
#include "tests/e2e/program.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("an aggregator sums the gradients of a training, as near as fixed point is", "[C-49]") {
  const Program program;
  const std::string file = program.file("training.toml", R"(name = "aggregated"
[axes]
environment = "bare-metal"
backend = "gloo"
architecture = "ring"
ranks = 3
[[work]]
training = "bsp-a2a"
packing = ["none", "aggregated"]
model = "cnn-small"
batch = 4
samples = 64
oracle = 3
[protocol]
warmup = 1
iterations = 3
launches = 1
)");
  const auto run = program.run({"run", file});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const auto rows = program.rows(
      "SELECT json_extract(t.details_json, '$.aggregator.chunks') AS chunks, v.max_difference, "
      "v.wrong, v.wire_bytes FROM v_training v JOIN training t ON t.measurement_id = "
      "v.measurement_row AND t.rank = 0 ORDER BY v.wire_bytes");
  REQUIRE(rows.size() == 2);
  for (const auto& row : rows) {
    INFO(row.dump());
    CHECK(row["wrong"] == 0);
    CHECK(row["max_difference"].get<double>() <= 1e-6);
  }
  CHECK(rows[0]["chunks"].get<int>() > 0);
  CHECK(rows[1]["chunks"].is_null());
  // Each rank sends its gradients once, not 2 (N - 1) / N times.
  CHECK(rows[0]["wire_bytes"].get<double>() < 0.76 * rows[1]["wire_bytes"].get<double>());
}

TEST_CASE("methods and PyTorch's own engine train in every environment, and are bit-equal") {
  const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  for (const char* name : {"singularity", "single-docker", "cross-docker"}) need(profiles.at(name));
  const Program program;
  const std::string file = program.file("training.toml", R"(name = "training"
[axes]
environment = ["bare-metal", "singularity", "single-docker", "cross-docker"]
backend = "gloo"
architecture = "ring"
ranks = 2
[[work]]
training = ["bsp-a2a", "ddp"]
model = "mlp"
batch = 4
samples = 64
oracle = 3
[protocol]
warmup = 1
iterations = 3
launches = 1
)");
  const auto run = program.run({"run", file});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const auto coverage = nlohmann::json::parse(program.run({"query", "coverage", "--json"}).out);
  CHECK(coverage.size() == 4 * 2);
  for (const auto& cell : coverage) {
    INFO(cell.dump());
    CHECK(cell["status"] == "ok");
  }
  const auto rows = program.rows(
      "SELECT environment, method, v.max_difference, wrong, parameters_sha256 FROM v_training v "
      "JOIN training t ON t.measurement_id = v.measurement_row AND t.rank = 0");
  REQUIRE(rows.size() == 4 * 2);
  std::map<std::string, std::set<std::string>> weights;
  for (const auto& row : rows) {
    INFO(row.dump());
    CHECK(row["max_difference"] == 0.0);
    CHECK(row["wrong"] == 0);
    weights[row["environment"].get<std::string>()].insert(
        row["parameters_sha256"].get<std::string>());
  }
  // Both methods average two gradients, which no order changes; every launch has data of its own.
  CHECK(weights.size() == 4);
  for (const auto& [environment, digests] : weights) {
    INFO(environment);
    CHECK(digests.size() == 1);
  }
  for (const char* query : {"prediction", "training_memory"})
    CHECK(nlohmann::json::parse(program.run({"query", query, "--json"}).out).size() == 8);
  // Every query of the whole program answers of such a run: libraries alone do not show what its
  // parts do to each other.
  std::size_t asked = 0;
  for (const auto& line : split(program.run({"query", "--all"}).out, '\n')) {
    if (!line.starts_with("  ") || line[2] == ' ') continue;
    const std::string name(line.substr(2, line.find(' ', 2) - 2));
    const auto answer = program.run({"query", name, "--json"});
    INFO(name << ": " << answer.err);
    CHECK(answer.exit_code == 0);
    ++asked;
  }
  CHECK(asked > 50);
}

namespace {

/// The MPI library that this build trains over; empty when there is none.
std::string mpi_backend() {
  for (const char* name : {"openmpi", "mpich"})
    if (std::filesystem::exists(std::string(DYNAMICCL_BINARY_DIR "/dynamiccl-trainer-") + name))
      return name;
  return "";
}

/// Two configurations that train until an accuracy of 0.3, and more settings of either.
std::string plain_or_local(const std::string& of_plain, const std::string& of_local) {
  const std::string common = R"(model = "cnn-small"
batch = 8
samples = 512
threads = 1
epochs = 4
looks = 4
target = 0.3
)";
  return R"(name = "plain-or-local"
[axes]
environment = "bare-metal"
backend = "gloo"
architecture = "ring"
ranks = 2
[[work]]
training = "bsp-a2a"
)" + common +
         of_plain + R"([[work]]
training = "bsp-a2a"
synchronisation = "local"
local_steps = 8
)" + common +
         of_local + R"([protocol]
warmup = 1
launches = 1
[tune]
confirm_launches = 3
)";
}

}  // namespace

TEST_CASE("ways to train are chosen between runs by the time until an accuracy",
          "[D-27][H-12][long]") {
  const Program program;
  const std::string file = program.file("ways.toml", plain_or_local("", ""));
  const auto tuned = program.run({"tune", file, "--between-runs", "--evaluations", "2"});
  INFO(tuned.err);
  REQUIRE(tuned.exit_code == 0);
  const auto chosen = program.rows("SELECT arm, time_us FROM decision WHERE kind = 'final'");
  REQUIRE(chosen.size() == 1);
  CHECK(chosen[0]["arm"].get<std::string>().ends_with(" to 0.3"));
  // The time until the target, not of a step: many steps were needed.
  const auto slowest =
      program.value("SELECT max(json_extract(details_json, '$.trained_us')) FROM training")
          .get<double>();
  const auto step = program.value("SELECT min(step_us) FROM v_training").get<double>();
  CHECK(chosen[0]["time_us"].get<double>() > 3 * step);
  CHECK(chosen[0]["time_us"].get<double>() <= slowest);
}

TEST_CASE("a configuration that misses the accuracy is no choice, and it is said why",
          "[D-27][H-12][long]") {
  const Program program;
  // Weights that hardly move guess: 0.1 of ten classes.
  const std::string still = "learning_rate = 0.0000001\n";
  const bool none = GENERATE(false, true);
  CAPTURE(none);
  const std::string file = program.file("missed.toml", plain_or_local(none ? still : "", still));
  const auto tuned = program.run({"tune", file, "--between-runs", "--evaluations", "2"});
  INFO(tuned.out << tuned.err);
  CHECK(tuned.exit_code == 0);
  CHECK_THAT(tuned.out + tuned.err,
             ContainsSubstring("to 0.3: the target was not reached: accuracy 0."));
  CHECK_THAT(tuned.out + tuned.err,
             ContainsSubstring("of the ways that were tried never reached the target accuracy"));
  const bool compared =
      (tuned.out + tuned.err).find("the default, the first way of the file") == std::string::npos;
  CHECK(compared != none);
  const auto rows = program.rows("SELECT kind, arm, guard, time_us FROM decision ORDER BY id");
  REQUIRE(rows.size() >= 2);
  bool missed = false;
  for (const auto& row : rows) {
    INFO(row.dump());
    const bool moves = row["arm"].get<std::string>().find("learning_rate") == std::string::npos;
    CHECK(row["time_us"].is_null() != moves);
    if (row["kind"] == "final" || moves) continue;
    CHECK(row["guard"] == "failed");
    missed = true;
  }
  CHECK(missed);
  CHECK(rows.back()["kind"] == "final");
  CHECK(rows.back()["arm"].get<std::string>().find("local") == std::string::npos);
  CHECK(program.processes().empty());
}

TEST_CASE("parameter servers train in every environment, across containers in one of their own") {
  const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  need(profiles.at("cross-docker"));
  std::vector<std::string> environments;
  for (const char* name : {"bare-metal", "singularity", "single-docker", "cross-docker"})
    if (!unavailable_reason(profiles.at(name))) environments.emplace_back(name);
  std::vector<std::string> backends{"gloo"};
  if (const auto mpi = mpi_backend(); !mpi.empty()) backends.push_back(mpi);
  const Program program;
  // Across containers over every library, elsewhere over one.
  const std::string file = program.file("servers.toml", R"(name = "servers"
exclude = "environment != cross-docker and backend != gloo"
[axes]
architecture = "ps"
ranks = 3
environment = )" + nlohmann::json(environments).dump() + "\nbackend = " +
                                                            nlohmann::json(backends).dump() + R"(
[[work]]
training = ["bsp-ps"]
model = "mlp"
batch = 4
samples = 64
oracle = 3
[protocol]
warmup = 1
iterations = 3
launches = 1
)");
  const auto run = program.run({"run", file});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const auto ranks = program.rows(
      "SELECT m.environment || ' ' || m.backend AS place, m.environment, m.status, m.wrong, "
      "t.role, t.max_difference, json_extract(r.facts_json, '$.namespaces.mnt') AS mnt, "
      "json_extract(r.facts_json, '$.namespaces.net') AS net, "
      "json_extract(r.facts_json, '$.namespaces.pid') AS pid FROM v_measurement m "
      "JOIN launch_rank r ON r.launch_id = m.launch_row "
      "JOIN training t ON t.measurement_id = m.measurement_row AND t.rank = r.rank "
      "ORDER BY place, r.rank");
  REQUIRE(ranks.size() == 3 * (environments.size() + backends.size() - 1));
  for (std::size_t server = 0; server < ranks.size(); server += 3) {
    INFO(ranks[server].dump());
    CHECK(ranks[server]["status"] == "ok");
    CHECK(ranks[server]["wrong"] == 0);
    CHECK(ranks[server]["role"] == "server");
    for (const std::size_t worker : {server + 1, server + 2}) {
      INFO(ranks[worker].dump());
      CHECK(ranks[worker]["role"] == "worker");
      CHECK(ranks[worker]["max_difference"] == 0.0);
      const bool across = ranks[worker]["environment"] == "cross-docker";
      for (const char* space : {"mnt", "net", "pid"}) {
        INFO(space);
        REQUIRE(ranks[server][space].is_number());
        REQUIRE(ranks[worker][space].is_number());
        if (across || std::string(space) == "net")
          CHECK((ranks[server][space] != ranks[worker][space]) == across);
      }
    }
  }
}
