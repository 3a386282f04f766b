// What verbs print with --json against docs/reference/output.schema.json.
#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "db/store.hpp"
#include "orchestrator/doctor/least.hpp"
#include "orchestrator/doctor/output.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/orchestrator/cli/program.hpp"
#include "tests/orchestrator/json_schema.hpp"

using namespace dynamiccl;
using nlohmann::json;
using testing::Folder;
using testing::run;

namespace {

/// Why a verb's output is not as the file says; "" = it is.
std::string wrong(const json& output, const std::string& verb) {
  std::ifstream file(DYNAMICCL_SOURCE_DIR "/docs/reference/output.schema.json");
  return testing::invalid(output, json::parse(file).at("$defs").at(verb), verb);
}

json printed(const std::vector<std::string>& words) {
  const auto result = run(words);
  INFO(result.err);
  REQUIRE(json::accept(result.out));
  return json::parse(result.out);
}

/// Two runs of three launches each, the second slower, with a failed launch.
std::string two_runs(const Folder& folder) {
  const auto db = folder.path("x.sqlite");
  Store store(db);
  for (const std::string id : {"run-1", "run-2"}) {
    const auto plan = testing::make_plan(id, {"bare-metal"}, {"allreduce"}, {1024, 4096});
    store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < 3; ++block)
      testing::store_launch(store, plan, plan.groups[0], block, [&](const CellInfo&, int, int) {
        return (id == "run-1" ? 10.0 : 20.0) + block;
      });
    auto start = testing::make_start(plan.groups[0].id, 3);
    start.uuid = id + start.uuid;
    store.finish_launch(store.begin_launch(plan.run.id, start),
                        testing::make_end(LaunchStatus::failed, "a reason"), {});
    store.end_run(plan.run.id, "complete");
  }
  return db;
}

}  // namespace

TEST_CASE("plan --json is as its schema says, cells that cannot run included") {
  const Folder folder;
  const auto path = folder.file("x.toml",
                                "name = \"x\"\n[axes]\nenvironment = [\"bare-metal\", "
                                "\"cross-docker\"]\nbackend = [\"gloo\", \"nccl\"]\narchitecture = "
                                "\"ring\"\nranks = 3\n[[work]]\ncollective = [\"allreduce\", "
                                "\"allgather\"]\nsize = \"1KiB\"\n");
  const auto plan = printed({"plan", path, "--json"});
  CHECK(wrong(plan, "plan") == "");
  CHECK(plan["impossible_cells"].get<int>() > 0);
}

TEST_CASE("show --json and compare --json are as their schemas say") {
  const Folder folder;
  const auto db = two_runs(folder);
  CHECK(wrong(printed({"show", "run-1", "--db", db, "--json"}), "show") == "");
  const auto compared = printed({"compare", "run-1", "run-2", "--db", db, "--json"});
  CHECK(wrong(compared, "compare") == "");
  CHECK(compared["cells"].size() == 2);
}

TEST_CASE("doctor --json is as its schema says") {
  const Folder folder;
  CHECK(wrong(printed({"doctor", "bare-metal", "--backend", "gloo", "--db", folder.path("d.sqlite"),
                       "--json"}),
              "doctor") == "");
}

TEST_CASE("findings, proofs and least flags are as the doctor's schema says") {
  Diagnosis diagnosis;
  diagnosis.symptoms.profile.name = "mine";
  diagnosis.symptoms.regime.name = "a / b / gloo";
  diagnosis.findings.push_back(
      {&all_causes().front(), {"evidence", {Backend::mpich}}, {"fix", {}}});
  ProofResult proof;
  proof.cause = "cma-blocked";
  diagnosis.proofs.push_back(proof);
  proof.impossible = "nothing to compare";
  diagnosis.proofs.push_back(proof);
  LeastResult least;
  least.flags = {{"--ipc host", true, "transport tcp"}, {"--pid host", false, ""}};
  least.with_all = least.with_least = {Micros(10), Micros(1)};
  LeastResult unknown;
  unknown.impossible = "it does not run";
  CHECK(wrong({{"host", json::object()}, {"environments", {to_json(diagnosis)}}}, "doctor") == "");
  CHECK(wrong({{"host", json::object()}, {"least", {to_json(least), to_json(unknown)}}},
              "doctor") == "");
  CHECK(wrong({{"host", json::object()}, {"least", {to_json(diagnosis)}}}, "doctor") != "");
}
