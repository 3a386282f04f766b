#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "core/statistics/saturation.hpp"
#include "orchestrator/experiment/tune_reader.hpp"
#include "orchestrator/tune/evaluator.hpp"
#include "orchestrator/tune/tune_output.hpp"
#include "orchestrator/tune/tune_plan.hpp"
#include "tests/orchestrator/experiment/demo_experiment.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

Experiment parsed(const std::string& tune) {
  return testing::parsed(R"(name = "demo"
[axes]
environment = ["bare-metal", "cross-docker"]
backend = ["openmpi", "gloo"]
architecture = "ring"
ranks = 2
[[work]]
collective = ["allreduce", "broadcast"]
size = ["64KiB", "1MiB"]
)" + tune);
}

TunePlan planned(const Experiment& experiment) {
  return make_tune_plan(experiment, make_plan(experiment, {}, nullptr),
                        tune_options_of(experiment));
}

}  // namespace

TEST_CASE("a file says which settings are searched and what is held out") {
  const auto experiment = parsed(R"([tune]
held_out = ["size == 64KiB"]
sweep_launches = 9
confirm_launches = 5
budget_percent = 40
allowed_time = "2ms"
[tune.openmpi]
segments = ["32KiB", "8KiB"]
fanouts = [2]
[tune.openmpi.algorithms]
allreduce = ["ring", "segmented_ring"]
[tune.openmpi.launch]
"mca.btl_vader_eager_limit" = [4096, 65536]
)");
  const TuneOptions options = tune_options_of(experiment);
  CHECK(options.given);
  CHECK(options.sweep_launches == 9);
  CHECK(options.budget == 0.4);
  CHECK(options.allowed_time == Micros{2000});
  const auto& openmpi = options.backends.at(Backend::openmpi);
  CHECK(openmpi.space.segments == std::vector<std::string>{"8192", "32768"});
  const auto plan = planned(experiment);
  REQUIRE(plan.tasks.size() == 16);
  for (const TuneTask& task : plan.tasks) CHECK(task.held_out == (task.cell.size == Bytes{65536}));
  const ActionSpace& space = *plan.tasks[0].search.task.space;
  // (default, ring, segmented_ring with 3 segments) x (default and two limits)
  CHECK(space.arms().size() == 15);
}

TEST_CASE("a search is told whose calls its cells stand for", "[E-174]") {
  const auto tasks = [](const std::string& tune) { return planned(parsed(tune)).tasks; };
  for (const TuneTask& task : tasks("[tune]\nparallelism = \"tp\"\n"))
    CHECK(task.search.task.state.parallelism == ParallelismMode::tp);
  for (const TuneTask& task : tasks("[tune]\n"))
    CHECK_FALSE(task.search.task.state.parallelism.has_value());
  CHECK_THROWS_WITH(parsed("[tune]\nparallelism = \"tensor\"\n"), ContainsSubstring("tp"));
}

TEST_CASE("tasks over several hosts are planned as that") {
  const auto experiment = parsed(R"([cluster]
hosts = ["a", "b"]
[tune.openmpi.launch]
"mca.btl_vader_eager_limit" = [4096]
"mca.btl_tcp_sndbuf" = [65536]
)");
  const auto planned_over = [&](int nodes) {
    Capabilities can;
    can.why_not_placed = [](int) { return std::string(); };
    can.nodes_of = [nodes](int) { return nodes; };
    return make_tune_plan(experiment, make_plan(experiment, can, nullptr),
                          tune_options_of(experiment));
  };
  const auto knob = [](const TuneTask& task, const char* name) {
    return task.search.task.space->knob_index(name).has_value();
  };
  const TunePlan plan = planned_over(2);
  const TunePlan on_one = planned_over(1);
  REQUIRE(plan.tasks.size() == on_one.tasks.size());
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const SearchTask& search = plan.tasks[t].search;
    CHECK(search.task.key.task.nodes == 2);
    CHECK(search.nodes == 2);
    CHECK(search.task.state.nodes == 2);
    CHECK(on_one.tasks[t].search.task.key.task.nodes == 1);
    if (plan.tasks[t].environment != "bare-metal") continue;
    // Slower by the network than by memory that both share.
    CHECK(search.task.prior_log_us.front() > on_one.tasks[t].search.task.prior_log_us.front());
    if (search.task.key.task.backend != Backend::openmpi) continue;
    CHECK(knob(plan.tasks[t], "mca.btl_tcp_sndbuf"));
    CHECK_FALSE(knob(plan.tasks[t], "mca.btl_vader_eager_limit"));
  }
}

TEST_CASE("a search may number ranks host by host where the experiment deals them", "[E-75]") {
  const auto can_renumber = [](const std::string& more) {
    const auto experiment = testing::parsed(R"(name = "demo"
[axes]
environment = "bare-metal"
backend = "openmpi"
architecture = "ring"
ranks = 4
[[work]]
collective = "allreduce"
size = "1MiB"
[cluster]
hosts = ["a:2", "b:2"]
)" + more);
    Capabilities can;
    can.why_not_placed = [](int) { return std::string(); };
    can.nodes_of = [](int) { return 2; };
    const auto plan = make_tune_plan(experiment, make_plan(experiment, can, nullptr),
                                     tune_options_of(experiment));
    return plan.tasks.at(0).search.task.space->knob_index("ranking").has_value();
  };
  CHECK(can_renumber("dealt = true\n"));
  CHECK_FALSE(can_renumber(""));
  // What a knob says goes before.
  CHECK_FALSE(
      can_renumber("dealt = true\n[knobs.openmpi.mca]\nrmaps_base_ranking_policy = \"slot\"\n"));
}

TEST_CASE("where switches are declared to sum, no other setting is ever launched", "[E-144]") {
  const auto most_arms = [](const std::string& machine) {
    std::size_t most = 0;
    for (const TuneTask& task : planned(parsed(machine)).tasks) most = std::max(most, task.arms());
    return most;
  };
  CHECK(most_arms("") > 1);
  CHECK(most_arms("[machine]\ntopology = \"fat-tree\"\n") > 1);
  CHECK(most_arms("[machine]\naggregation = \"sharp\"\n") == 1);
}

TEST_CASE("LL128 is searched where NVLink joins this machine's GPUs, nowhere else",
          "[C-38][E-65][E-23]") {
  const auto protocols = [](bool ll128, const std::string& more) {
    const Experiment experiment = testing::parsed(R"(name = "nvlink"
[axes]
environment = ["bare-metal", "cross-docker"]
backend = "nccl"
architecture = "ring"
ranks = 2
[[work]]
collective = "allreduce"
size = "1MiB"
)" + more);
    TuneOptions options = tune_options_of(experiment);
    options.ll128 = ll128;
    Capabilities two_gpus;
    two_gpus.gpus = 2;
    std::set<std::string> found;
    for (const TuneTask& task :
         make_tune_plan(experiment, make_plan(experiment, two_gpus, nullptr), options).tasks)
      for (const Action& arm : task.search.task.space->arms()) {
        const ActionSettings setting = task.search.task.space->setting(arm);
        const auto protocol = setting.launch_knobs.find("env.NCCL_PROTO");
        if (protocol != setting.launch_knobs.end() &&
            protocol->second.find(":LL128") != std::string::npos)
          found.insert(task.environment + " " + protocol->second);
      }
    return found;
  };
  // Other collectives keep the protocols that are safe everywhere.
  CHECK(protocols(true, "") == std::set<std::string>{"bare-metal LL,Simple;allreduce:LL128"});
  CHECK(protocols(false, "").empty());
  CHECK(protocols(true, "[knobs.nccl.env]\nNCCL_P2P_DISABLE = \"1\"\n").empty());
}

TEST_CASE("mistakes in [tune] are told with their place") {
  CHECK_THROWS_WITH(parsed("[tune]\nsweep_launches = 2\n"), ContainsSubstring("sweep_launches"));
  CHECK_THROWS_WITH(parsed("[tune]\nheld_out = \"siez == 1\"\n"), ContainsSubstring("held_out"));
  CHECK_THROWS_WITH(parsed("[tune]\nunknown = 1\n"), ContainsSubstring("demo.toml:"));
  CHECK_THROWS_WITH(parsed("[tune.openmpi.algorithms]\nallreduce = [\"rign\"]\n"),
                    ContainsSubstring("ring"));
  CHECK_THROWS_WITH(parsed("[tune.openmpi.launch]\nfoo = [1]\n"), ContainsSubstring("env.NAME"));
  CHECK_THROWS_WITH(parsed("[tune.gloo.launch]\n\"malloc.kepp\" = [true]\n"),
                    ContainsSubstring("Did you mean \"keep\"?"));
  CHECK_THROWS_WITH(parsed("[tune.gloo.launch]\n\"malloc.keep\" = [\"64MiB\"]\n"),
                    ContainsSubstring("expected true or false"));
}

TEST_CASE("arms that share launch settings are measured in one launch") {
  const auto experiment = parsed(R"([tune.openmpi.launch]
"mca.btl_vader_eager_limit" = [4096]
)");
  const auto plan = planned(experiment);
  const Plan sweep = plan_for(plan, all_arms(plan), "");
  // Per environment: Open MPI and Gloo; with the limit only where ranks share memory.
  CHECK(sweep.groups.size() == 5);
  CHECK(sweep.cell_count() == plan.arm_count());
  std::set<std::string> cells;
  for (const auto& group : sweep.groups) {
    const bool openmpi = group.backend == Backend::openmpi;
    CHECK(group.knobs.contains("mca.coll_tuned_use_dynamic_rules") == openmpi);
    for (const auto& cell : group.cells) cells.insert(cell.work.id);
  }
  CHECK(cells.size() == plan.arm_count());
  for (std::size_t a = 0; a < plan.tasks[0].arms(); ++a)
    CHECK(cells.contains(place_of(plan, {0, a}, "").cell_id));
}

TEST_CASE("arms of the allocator's settings are groups of their own, for large messages alone") {
  const auto experiment = parsed(R"([tune.openmpi]
scopes = "launch"
[tune.openmpi.launch]
"malloc.keep" = [true]
"malloc.huge_pages" = [true]
[tune.gloo]
scopes = "launch"
[tune.gloo.launch]
"malloc.keep" = [true]
)");
  const auto knobs_of = [&](bool huge_pages) {
    TuneOptions options = tune_options_of(experiment);
    options.huge_pages = huge_pages;
    const auto plan = make_tune_plan(experiment, make_plan(experiment, {}, nullptr), options);
    for (const TuneTask& task : plan.tasks)
      CHECK((task.arms() > 1) == (task.cell.size == Bytes{1 << 20}));
    std::multiset<std::string> sets;
    for (const auto& group : plan_for(plan, all_arms(plan), "").groups) {
      std::string text;
      for (const auto& [name, value] : group.knobs)
        if (name.starts_with("malloc.")) text += name + "=" + value + " ";
      sets.insert(std::string(name_of(group.backend)) + " " + text);
    }
    return sets;
  };
  // Two environments each.
  const auto all = knobs_of(true);
  CHECK(all.size() == 12);
  CHECK(all.count("openmpi malloc.huge_pages=1 malloc.keep=1 ") == 2);
  CHECK(all.count("gloo malloc.keep=1 ") == 2);
  const auto masked = knobs_of(false);
  CHECK(masked.size() == 8);
  CHECK(masked.count("openmpi malloc.keep=1 ") == 2);
}

TEST_CASE("rounds have ids of their own and repeated asks are measured once") {
  const auto experiment = parsed("");
  const auto plan = planned(experiment);
  const std::vector<Ask> asks{{0, 0}, {0, 1}, {0, 0}};
  const Plan first = plan_for(plan, asks, "run|0");
  const Plan second = plan_for(plan, asks, "run|1");
  REQUIRE(first.groups.size() == 1);
  CHECK(first.groups[0].cells.size() == 2);
  CHECK(first.groups[0].id != second.groups[0].id);
  CHECK(place_of(plan, {0, 1}, "run|0").group_id == first.groups[0].id);
}

TEST_CASE("cells that are settings themselves are no tasks") {
  auto experiment = parsed("");
  experiment.work[0].algorithms = {"ring"};
  CHECK_THROWS_WITH(planned(experiment), ContainsSubstring("no cell can be tuned"));
}

TEST_CASE("a search over a server's calls knows what they cost before the first launch",
          "[E-162]") {
  Experiment experiment = testing::parsed(R"(name = "served"
[axes]
environment = "bare-metal"
backend = "gloo"
architecture = "ps"
ranks = 3
[[work]]
collective = "push_pull"
size = ["4KiB", "64MiB"]
[tune.gloo]
segments = ["32KiB"]
depths = [1]
shards = [8]
)");
  TuneOptions options = tune_options_of(experiment);
  // No job can load a setting of our server.
  for (const TuneTask& task :
       make_tune_plan(experiment, make_plan(experiment, {}, nullptr), options).tasks)
    CHECK(task.arms() == 1);
  options.own = true;
  const TunePlan plan = make_tune_plan(experiment, make_plan(experiment, {}, nullptr), options);
  REQUIRE(plan.tasks.size() == 2);
  const auto prior = [&](std::size_t task, const char* knob, const char* value) {
    const ActionSpace& space = *plan.tasks[task].search.task.space;
    Action action(space.knobs().size(), 0);
    const std::size_t k = space.knob_index(knob).value();
    const auto& values = space.knobs()[k].values;
    action[k] =
        static_cast<std::uint8_t>(std::find(values.begin(), values.end(), value) - values.begin());
    return plan.tasks[task].search.task.prior_log_us[space.find(action).value()] -
           plan.tasks[task].search.task.prior_log_us[0];
  };
  // Small values are answered at once, large ones by shards; nothing hides with one under way.
  CHECK(prior(0, "shards", "8") > 0);
  CHECK(prior(1, "shards", "8") < 0);
  CHECK(prior(1, "pipeline_depth", "1") > 0);
  CHECK(prior(1, "segment_bytes", "32768") > 0);
}

TEST_CASE("flags reach the user with advice") {
  TuningResult result;
  result.tasks.resize(2);
  CHECK(flag_advice(result).empty());
  result.tasks[0].entry.flags = {std::string(kNonActionable)};
  result.tasks[1].entry.flags = {std::string(kLosslessSaturated)};
  const auto advice = flag_advice(result);
  REQUIRE(advice.size() == 2);
  CHECK_THAT(advice[0], ContainsSubstring("non_actionable_regime in 1 of 2"));
  CHECK_THAT(advice[1], ContainsSubstring("compression"));
}

TEST_CASE("advice names options that can change the answer, and no others", "[E-146]") {
  TuningResult result;
  result.agent = "ppo";
  result.spent = true;
  result.tasks.resize(2);
  TunedTask& cell = result.tasks[0];
  cell.arms = cell.outcome.tried = 5;
  cell.entry.flags = {std::string(kUndecided)};
  cell.entry.evidence.verdict = "UNCLEAR";
  const auto told = [&] { return flag_advice(result).at(0); };
  // All settings were measured: more measurements of them decide nothing that launches do not.
  CHECK_THAT(told(), ContainsSubstring("the comparison of one is open (a larger "
                                       "tune.confirm_launches)") &&
                         !ContainsSubstring("--evaluations") && !ContainsSubstring("--agent"));
  cell.outcome.tried = 3;
  CHECK_THAT(told(), ContainsSubstring("one cell has settings that were not measured "
                                       "(--evaluations N or --agent exhaustive), the comparison"));
  // The agent saw no more to gain: it ends there again.
  result.spent = false;
  cell.entry.evidence.verdict = "SAME";
  CHECK_THAT(told(), ContainsSubstring("not measured (--agent exhaustive)") &&
                         !ContainsSubstring("--evaluations") &&
                         !ContainsSubstring("confirm_launches"));
  cell.entry.flags = {std::string(kUnexplored)};
  CHECK_THAT(told(), ContainsSubstring("measured there; others are with --agent exhaustive"));
  result.agent = "exhaustive";
  result.spent = true;
  CHECK_THAT(told(),
             ContainsSubstring("others are with --evaluations N") && !ContainsSubstring("--agent"));
  result.spent = false;  // interrupted
  CHECK_THAT(told(), !ContainsSubstring("--"));
}

TEST_CASE("ways that missed the target accuracy are told, and what nothing could be held against",
          "[H-12]") {
  TuningResult result;
  result.tasks.resize(2);
  result.tasks[0].outcome.missed = 1;
  for (TunedTask& tuned : result.tasks) tuned.entry.evidence.default_us = 10;
  auto advice = flag_advice(result);
  REQUIRE(advice.size() == 1);
  CHECK(advice[0] ==
        "1 of the ways that were tried never reached the target accuracy and is no choice");
  result.tasks[1].outcome.missed = 3;
  result.tasks[1].entry.evidence.default_us = 0;
  advice = flag_advice(result);
  REQUIRE(advice.size() == 1);
  CHECK_THAT(advice[0],
             ContainsSubstring("4 of the ways that were tried never reached the target "
                               "accuracy and are no choice; in 1 of 2 cells the default") &&
                 ContainsSubstring("give more epochs, lower the target"));
}

TEST_CASE("a default that alone reaches the target is told without a call for more measurements",
          "[H-12]") {
  TuningResult result;
  result.tasks.resize(1);
  result.tasks[0].outcome.missed = 2;
  result.tasks[0].entry.evidence.default_us = 10;
  result.tasks[0].entry.flags = {std::string(kOnlyDefault)};
  const auto advice = flag_advice(result);
  REQUIRE(advice.size() == 2);
  CHECK_THAT(advice[1], ContainsSubstring("only_default_reaches in 1 of 1 cell: every other way") &&
                            ContainsSubstring("the default stays"));
  for (const std::string& line : advice) CHECK(line.find("--evaluations") == std::string::npos);
}

TEST_CASE("a table that is judged says where it asks for nothing") {
  TuningResult result;
  result.tasks.resize(3);
  CHECK_THAT(applied_advice(result), ContainsSubstring("in 0 of 3 cells"));
  for (TunedTask& tuned : result.tasks) tuned.candidate = 1;
  CHECK(applied_advice(result).empty());
}

TEST_CASE("a training step may take what its slowest rank computes without communication",
          "[E-147]") {
  CellRecord server;
  server.training.emplace();
  CellRecord slow = server;
  slow.training->compute_us = 120;
  CellRecord fast = server;
  fast.training->compute_us = 90;
  CHECK(computing_time({{0, &server}, {1, &slow}, {2, &fast}}) == Micros{120});
  const CellRecord call;
  CHECK(computing_time({{0, &call}}) == Micros{0});
}
