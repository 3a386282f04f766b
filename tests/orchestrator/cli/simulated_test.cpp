// Experiments on machines that SimGrid simulates: run, stored, shown and refused.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <set>

#include "containers/command.hpp"
#include "core/vocabulary/json.hpp"
#include "orchestrator/launch/smpi.hpp"
#include "profiles/machine_model_file.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/orchestrator/cli/program.hpp"

using namespace dynamiccl;
using testing::run;

namespace {

const std::string kProfile = R"(
[profile.simulated-star]
extends = "bare-metal"
kind = "simulated"
machine = "star-1024"
)";

std::string experiment(const std::string& environment, const std::string& profile,
                       const std::string& rest = "") {
  return "name = \"simulated\"\n[axes]\nenvironment = " + environment + R"(
backend = ["openmpi", "mpich", "gloo"]
architecture = ["ring", "ps"]
ranks = 8
)" + profile +
         R"(
[[work]]
architecture = "ring"
collective = "allreduce"
size = ["1KiB", "1MiB"]
algorithm = ["library", "recursive_doubling", "tree"]
[[work]]
architecture = "ring"
collective = ["allgather", "broadcast", "barrier"]
size = "64KiB"
[[work]]
architecture = "ps"
collective = "push"
size = "64KiB"
[[work]]
training = "wfbp-a2a"
model = "mlp"
[protocol]
launches = 3
)" + rest;
}

/// However busy the machine is.
CommandResult run_long(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), testing::kProgram);
  CommandOptions options;
  options.timeout = std::chrono::minutes(10);
  return run_command(arguments, options);
}

std::string refused(const testing::Folder& folder, const std::string& text) {
  const auto result = run({"plan", folder.file("e.toml", text)});
  CHECK(result.exit_code == 2);
  return result.err;
}

nlohmann::json rows(const std::string& db, const std::string& sql) {
  const auto result = run({"query", sql, "--db", db, "--json"});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return nlohmann::json::parse(result.out);
}

}  // namespace

TEST_CASE("a simulated environment needs a machine, a name that says so, and no measured one",
          "[A-14]") {
  const testing::Folder folder;
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(refused(folder, experiment("\"simulated-x\"",
                                 "[profile.simulated-x]\nextends = "
                                 "\"bare-metal\"\nkind = \"simulated\"\n")),
      "e.toml:9:8: profile \"simulated-x\": \"simulated\" needs machine = \"NAME\"");
  has(refused(folder, experiment("\"x\"",
                                 "[profile.x]\nextends = \"bare-metal\"\nkind = "
                                 "\"simulated\"\nmachine = \"star-1024\"\n")),
      "\"machine\" needs a name that says so: [profile.simulated-x]");
  has(refused(folder, experiment("\"simulated-x\"",
                                 "[profile.simulated-x]\nextends = "
                                 "\"bare-metal\"\nkind = \"bare-metal\"\n")),
      "names that begin with \"simulated-\" are of profiles with kind = \"simulated\"");
  has(refused(folder, experiment("\"x\"",
                                 "[profile.x]\nextends = \"bare-metal\"\nkind = "
                                 "\"bare-metal\"\nmachine = \"star-1024\"\n")),
      "\"machine\" goes with kind = \"simulated\"");
  has(refused(folder, experiment("\"simulated-star\"", kProfile + "environment.A = \"1\"\n")),
      "sets variables of ranks that run");
  has(refused(folder, experiment("\"simulated-star\"",
                                 kProfile + "unprivileged_variant = \"singularity-userns\"\n")),
      "\"unprivileged_variant\" is for ranks that run");
  has(refused(folder, experiment("\"simulated-x\"",
                                 "[profile.simulated-x]\nextends = \"bare-metal\"\nmachine = "
                                 "\"star-1024\"\n")),
      "\"machine\" goes with kind = \"simulated\"");
  has(refused(folder, experiment("[\"bare-metal\", \"simulated-star\"]", kProfile)),
      "simulated-star is simulated and bare-metal is measured: give each an experiment of its own");
  has(refused(folder,
              experiment("\"simulated-star\"", kProfile, "[cluster]\nhosts = [\"a\", \"b\"]\n")),
      "[cluster] is about ranks that run");
  has(refused(folder, experiment("\"simulated-x\"",
                                 "[profile.simulated-x]\nextends = \"bare-metal\"\nkind = "
                                 "\"simulated\"\nmachine = \"star-1025\"\n")),
      "unknown machine \"star-1025\"");
}

TEST_CASE("what is simulated is for no job, is not examined, and its plan starts no rank",
          "[A-14]") {
  const testing::Folder folder;
  const std::string db = folder.path("a.sqlite");
  const std::string file = folder.file("e.toml", experiment("\"simulated-star\"", kProfile));
  const std::vector<std::vector<std::string>> ways{{"search", file, "--between-runs"},
                                                   {"sweep", file},
                                                   {"apply", file, folder.path("t.json")},
                                                   {"check", file, folder.path("t.json")}};
  for (auto way : ways) {
    way.insert(way.begin(), "tune");
    way.insert(way.end(), {"--db", db});
    const auto refusal = run(way);
    INFO(refusal.err);
    CHECK(refusal.exit_code == 2);
    CHECK(refusal.err.find("tune: simulated-star is simulated: nothing is measured there") !=
          std::string::npos);
  }
  const std::vector<std::pair<std::string, std::string>> idle{{"--table", folder.path("t.json")},
                                                              {"--places", "shipped"}};
  for (const auto& [option, value] : idle) {
    const auto refusal = run({"tune", "search", file, option, value, "--db", db});
    INFO(refusal.err);
    CHECK(refusal.exit_code == 2);
    CHECK(refusal.err.find("tune search: " + option + ": ") != std::string::npos);
  }
  const auto profile = folder.file("p.toml",
                                   "name = \"simulated-star\"\nkind = \"simulated\"\n"
                                   "machine = \"star-1024\"\n");
  const auto examined = run({"doctor", "--profile", profile, "--db", db});
  INFO(examined.err);
  CHECK(examined.exit_code == 2);
  CHECK(examined.err.find("doctor: simulated-star: simulated ranks have nothing to examine") !=
        std::string::npos);
  const auto plan = run({"plan", "-v", file});
  INFO(plan.out << plan.err);
  CHECK(plan.out.find("all launches: simulated on this machine by SimGrid's SMPI: no rank runs") !=
        std::string::npos);
  CHECK(plan.out.find("launch$ ") == std::string::npos);
  CHECK(plan.out.find("how ranks wait for a core") == std::string::npos);
}

TEST_CASE("a simulation's script finds its folder, whatever that is called", "[A-14]") {
  const testing::Folder folder;
  const std::string named = folder.path("one's own \"runs\"");
  std::filesystem::create_directories(named);
  const auto machine =
      read_machine_model("star-1024", DYNAMICCL_SOURCE_DIR "/profiles/machines", {});
  const std::string script = smpi_script(machine, 2, {}, named) + "pwd\n";
  const auto result = run_command({"sh", "-c", script});
  INFO(script << result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.out == named + "\n");
}

TEST_CASE("a simulator of many nodes copies its own lists", "[A-14]") {
  const testing::Folder folder;
  auto machine = read_machine_model("star-1024", DYNAMICCL_SOURCE_DIR "/profiles/machines", {});
  const SmpiCall call{.collective = Collective::allreduce,
                      .bytes = 1024,
                      .algorithm = "lr",
                      .calls = 1,
                      .output = "out"};
  const auto script = [&] { return smpi_script(machine, 2, {call}, folder.path("")); };
  CHECK(script().find("LD_PRELOAD") != std::string::npos);
  machine.nodes = 2048;
  CHECK(script().find("LD_PRELOAD") == std::string::npos);
}

TEST_CASE("without SimGrid every simulated cell is unsupported, with what to install", "[A-14]") {
  const testing::Folder folder;
  const auto file = folder.file("e.toml", experiment("\"simulated-star\"", kProfile));
  const auto result =
      run_command({"/usr/bin/env", "PATH=" + folder.path("nothing"), testing::kProgram, "run", file,
                   "--db", folder.path("a.sqlite")});
  INFO(result.err);
  const auto reasons =
      rows(folder.path("a.sqlite"), "SELECT DISTINCT unsupported_reason AS reason FROM run_cell");
  REQUIRE(reasons.size() == 1);
  CHECK(reasons[0].at("reason").get<std::string>().find("install libsimgrid-dev") !=
        std::string::npos);
}

TEST_CASE("an experiment on a simulated machine is run, stored and shown as simulated", "[A-14]") {
  if (find_program("smpirun").empty() || find_program("smpicc").empty())
    SKIP("smpirun is not here: libsimgrid-dev brings it");
  const testing::Folder folder;
  const std::string db = folder.path("a.sqlite");
  const std::string file = folder.file("e.toml", experiment("\"simulated-star\"", kProfile));
  const auto result = run_long({"run", file, "--db", db});
  INFO(result.err << result.out);
  REQUIRE(result.exit_code == 0);
  CHECK(result.out.find("simulated by SimGrid's SMPI on star-1024") != std::string::npos);
  CHECK(result.out.find("nothing was measured, how far off is not known") != std::string::npos);

  // What cannot be simulated says why, and nothing else is missing.
  std::map<std::string, int> reasons;
  for (const auto& row : rows(db,
                              "SELECT unsupported_reason AS reason, count(*) AS cells FROM "
                              "run_cell WHERE unsupported_reason IS NOT NULL GROUP BY 1"))
    reasons[row.at("reason")] = row.at("cells");
  CHECK(reasons["training is not simulated: SMPI simulates calls of MPI alone"] == 2);
  for (const std::string call : {"push", "barrier"})
    CHECK(reasons[call + " is not simulated: of MPI's calls allreduce, broadcast, reduce, "
                         "allgather, reduce_scatter, gather, alltoall are"] == 2);
  CHECK(reasons["SMPI has no counterpart of the algorithm \"tree\" of allreduce"] == 4);
  int gloo = 0;
  for (const auto& [reason, cells] : reasons)
    if (reason.starts_with("gloo is not simulated")) gloo += cells;
  CHECK(gloo > 0);
  const auto measured =
      rows(db,
           "SELECT environment, backend, collective, size_bytes, algorithm, count(*) AS "
           "launches, min(median_us) AS low, max(median_us) AS high, max(n) AS n "
           "FROM v_measurement WHERE counts GROUP BY 1, 2, 3, 4, 5");
  CHECK(measured.size() == 12);
  for (const auto& row : measured) {
    INFO(row.dump());
    CHECK(row.at("environment") == "simulated-star");
    // Bit for bit, in every launch.
    CHECK(row.at("launches") == 3);
    CHECK(row.at("low") == row.at("high"));
    CHECK(row.at("n") == 1);
    // Three rounds of 2 us and the whole message, at one switch of 12.5 GB/s.
    if (row.at("algorithm") != "recursive_doubling") continue;
    const double bytes = row.at("size_bytes");
    const double exact = 3 * (2 + bytes / 12500);
    CHECK(row.at("low").get<double>() > 0.97 * exact);
    CHECK(row.at("low").get<double>() < 1.1 * exact);
  }
  CHECK(rows(db, "SELECT 1 FROM launch WHERE regime_id IS NOT NULL").empty());

  // A second run is the same to the last digit, and comparable with the first.
  REQUIRE(run_long({"run", file, "--db", db}).exit_code == 0);
  const auto compared = run({"compare", "last~1", "last", "--db", db});
  INFO(compared.out << compared.err);
  CHECK(compared.exit_code == 0);
  CHECK(compared.out.find("simulated by SimGrid's SMPI") != std::string::npos);

  // Never next to what was measured.
  {
    Store store(db);
    const auto plan =
        testing::make_plan("0f1e2d3c", {"bare-metal"}, {"allreduce"}, {1024, 1048576}, 8);
    store.begin_run(plan.run, plan.groups, plan.cells);
    testing::store_launch(store, plan, plan.groups[0], 0,
                          [](const CellInfo&, int, int) { return 10.0; });
  }
  for (const auto& [a, b] : {std::pair("last~1", "last"), {"last", "last~1"}}) {
    const auto mixed = run({"compare", a, b, "--db", db, "--anyway"});
    CHECK(mixed.exit_code == 2);
    CHECK(mixed.err.find("simulated-star was simulated and bare-metal was measured: no ratio") !=
          std::string::npos);
  }
  const auto latency = run({"query", "latency", "--run", "last~1", "--db", db});
  CHECK(latency.out.find("simulated-star") != std::string::npos);
  CHECK(latency.err.find("nothing was measured") != std::string::npos);
  const auto of_all = run({"query", "latency", "--all", "--db", db});
  CHECK(of_all.err.find("simulated-star: simulated by SimGrid's SMPI") != std::string::npos);
  const auto exported = run({"export", "--measured", "last~1", "--format", "openmpi", "--out",
                             folder.path("out"), "--db", db});
  CHECK(exported.exit_code == 2);
  CHECK(exported.err.find("is simulated (simulated-star): nothing was measured") !=
        std::string::npos);
  const auto page = run({"report", "last~1", "--out", folder.path("page.html"), "--db", db});
  INFO(page.err);
  REQUIRE(page.exit_code == 0);
  const auto found = run_command({"grep", "-c", "simulated by SimGrid", folder.path("page.html")});
  CHECK(found.exit_code == 0);
}

TEST_CASE("a simulated run is repeated from a capsule, which carries the machine's file",
          "[A-14]") {
  if (find_program("smpirun").empty() || find_program("smpicc").empty())
    SKIP("smpirun is not here: libsimgrid-dev brings it");
  const testing::Folder folder;
  const std::string db = folder.path("a.sqlite");
  const auto machine = folder.file("mine.toml",
                                   "description = \"4 nodes of mine\"\nsource = \"assumed\"\n"
                                   "nodes = 4\n[links.network]\nlatency = \"3us\"\n"
                                   "gbytes_per_s = 5.0\nsource = \"assumed\"\n");
  const auto file = folder.file("e.toml", R"(name = "mine"
[axes]
environment = "simulated-mine"
backend = ["openmpi", "mpich"]
architecture = "ring"
ranks = 4
[profile.simulated-mine]
extends = "bare-metal"
kind = "simulated"
machine = ")" + machine + R"("
[[work]]
collective = "allreduce"
size = "64KiB"
[protocol]
launches = 2
)");
  const auto simulated = run_long({"run", file, "--db", db});
  INFO(simulated.err);
  REQUIRE(simulated.exit_code == 0);
  const std::string capsule = folder.path("c.tar");
  REQUIRE(run({"export", "--capsule", capsule, "--db", db}).exit_code == 0);
  std::filesystem::remove(machine);
  std::filesystem::remove(file);
  const std::string there = folder.path("b.sqlite");
  const auto repeated = run_long({"replay", capsule, "--db", there});
  INFO(repeated.err << repeated.out);
  CHECK((repeated.exit_code == 0 || repeated.exit_code == 5));
  const std::string times =
      "SELECT environment, backend, median_us FROM v_measurement WHERE counts ORDER BY 1, 2";
  const auto again = rows(there, times);
  CHECK(again.size() == 4);
  CHECK(again == rows(db, times));
}

TEST_CASE("a search on a simulated machine finds SMPI's faster algorithms, and writes no file",
          "[A-14][F-18]") {
  if (find_program("smpirun").empty() || find_program("smpicc").empty())
    SKIP("smpirun is not here: libsimgrid-dev brings it");
  const testing::Folder folder;
  const std::string db = folder.path("a.sqlite");
  const std::string file = folder.file("e.toml", R"(name = "simulated"
[axes]
environment = "simulated-torus"
backend = "openmpi"
architecture = "ring"
ranks = 16
[profile.simulated-torus]
extends = "bare-metal"
kind = "simulated"
machine = "torus-1024"
[[work]]
collective = "allreduce"
size = ["1KiB", "64KiB"]
[protocol]
launches = 1
)");
  const auto search = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"tune", "search", file, "--db", db, "--json"});
    const auto result = run_long(more);
    INFO(result.err << result.out);
    REQUIRE(result.exit_code == 0);
    CHECK(result.err.find("simulated-torus: simulated by SimGrid's SMPI on torus-1024") !=
          std::string::npos);
    CHECK(result.err.find("no file is written, as no job runs there") != std::string::npos);
    return nlohmann::json::parse(result.out);
  };
  const auto all = search({"--agent", "exhaustive"});
  const auto few = search({});
  REQUIRE(all.size() == 2);
  REQUIRE(few.size() == 2);
  for (std::size_t i = 0; i < few.size(); ++i) {
    INFO(all[i].dump() << few[i].dump());
    CHECK(all[i].at("evaluations") == all[i].at("arms"));
    CHECK(few[i].at("loaded_by") == "nobody");
    CHECK(few[i].at("default_us") == all[i].at("default_us"));
    // Nothing is slower than the default, nor faster than the fastest of all.
    CHECK(few[i].at("tuned_us").get<double>() <= few[i].at("default_us").get<double>());
    CHECK(few[i].at("tuned_us").get<double>() >= all[i].at("tuned_us").get<double>());
  }
  // Where Open MPI's rules miss it, an all-reduce of 64 KiB is faster by another algorithm.
  CHECK(all[1].at("verdict") == "FASTER");
  CHECK(all[1].at("setting") != "library");
  CHECK(few[0].at("evaluations").get<int>() + few[1].at("evaluations").get<int>() <=
        (all[0].at("arms").get<int>() + all[1].at("arms").get<int>()) / 4);
  CHECK(rows(db, "SELECT DISTINCT environment FROM v_measurement")[0].at("environment") ==
        "simulated-torus");
  const auto exported = run({"export", "--measured", "last", "--format", "openmpi", "--out",
                             folder.path("out"), "--db", db});
  CHECK(exported.exit_code == 2);
  CHECK(exported.err.find("is simulated (simulated-torus)") != std::string::npos);
}

TEST_CASE("a language model's step is measured call by call, in groups of its ranks",
          "[A-44][D-103][H-10]") {
  const testing::Folder folder;
  const auto text = [](const std::string& work) {
    return R"(name = "step"
[axes]
environment = "simulated-star"
backend = "openmpi"
architecture = "ring"
ranks = 16
)" + kProfile +
           "[[work]]\n" + work + "[protocol]\nlaunches = 1\n";
  };
  CHECK(refused(folder, text("traffic = \"llama-8b\"\n")).find("e.toml:13:11: unknown language") !=
        std::string::npos);
  CHECK(refused(folder, text("traffic = \"llama-7b\"\nparallel = \"tensor=3\"\n"))
            .find("e.toml:14:12: --parallel tensor=3: does not divide 32 heads") !=
        std::string::npos);
  const auto file = folder.file(
      "e.toml", text("traffic = \"llama-7b\"\nparallel = \"tensor=2,pipeline=2,fsdp,sequence=64\"\n"
                     "shrink = 64\n"));
  // The plan has what `predict` lists of as many ranks: kinds of calls, groups, sizes and counts.
  const auto predicted =
      nlohmann::json::parse(run({"predict", "star-1024", "--ranks", "16", "--traffic", "llama-7b",
                                 "--parallel", "tensor=2,pipeline=2,fsdp,sequence=64", "--json"})
                                .out);
  std::multiset<std::string> expected;
  std::set<int> groups;
  for (const auto& call : predicted) {
    const int group = call.at("group");
    const std::int64_t shrunk = call.at("size_bytes").get<std::int64_t>() / 64;
    const std::string operation = call.at("operation");
    const bool parts = operation == "allgather" || operation == "reduce_scatter";
    const std::int64_t unit = 4 * (parts ? group : 1);
    groups.insert(group);
    expected.insert(operation + " " + std::to_string(group) + " " +
                    std::to_string(shrunk / unit * unit) + " " +
                    std::to_string(call.at("calls").get<std::int64_t>()));
  }
  CHECK(groups == std::set<int>{2, 4});
  if (find_program("smpirun").empty() || find_program("smpicc").empty())
    SKIP("smpirun is not here: libsimgrid-dev brings it");
  const std::string db = folder.path("a.sqlite");
  const auto result = run_long({"run", file, "--db", db});
  INFO(result.err << result.out);
  REQUIRE(result.exit_code == 0);
  std::multiset<std::string> planned;
  for (const auto& row :
       rows(db,
            "SELECT c.collective, g.ranks, c.size_bytes, c.knobs_json ->> '$.step_calls' AS "
            "calls FROM run_cell c JOIN plan_group g ON g.id = c.group_id"))
    planned.insert(row.at("collective").get<std::string>() + " " +
                   std::to_string(row.at("ranks").get<int>()) + " " +
                   std::to_string(row.at("size_bytes").get<std::int64_t>()) + " " +
                   row.at("calls").get<std::string>());
  CHECK(planned == expected);
  // The sum over a step, by times and counts of the calls that SMPI simulates.
  const auto step = rows(db,
                         "SELECT count(*) AS kinds, sum(median_us * (cell_knobs ->> "
                         "'$.step_calls')) AS us FROM v_measurement WHERE counts");
  CHECK(step[0].at("kinds").get<int>() > 4);
  CHECK(step[0].at("us").get<double>() > 0);
}

TEST_CASE("a predicted step has the calls that PyTorch's profiler saw on two GPUs", "[A-44]") {
  // reports/measured/simulated-2026-11/llm_step_calls.jsonl: operation, bytes and calls.
  using Calls = std::map<std::pair<std::string, std::int64_t>, int>;
  const auto predicted = [](const std::string& parallel) {
    const auto result = run({"predict", "gpus-100k", "--ranks", "2", "--traffic", "llama-7b",
                             "--parallel", parallel + ",sequence=512", "--json"});
    REQUIRE(result.exit_code == 0);
    Calls calls;
    for (const auto& row : nlohmann::json::parse(result.out))
      calls[{row.at("operation"), row.at("size_bytes")}] += row.at("calls").get<int>();
    return calls;
  };
  CHECK(predicted("tensor=2") == Calls{{{"allreduce", 4194304}, 130}});
  CHECK(predicted("fsdp") == Calls{{{"allgather", 404766720}, 64},
                                   {{"allgather", 524296192}, 1},
                                   {{"reduce_scatter", 404766720}, 32},
                                   {{"reduce_scatter", 524296192}, 1}});
}
