#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <set>

#include "db/decision_log.hpp"
#include "orchestrator/experiment/tune_reader.hpp"
#include "orchestrator/tune/run_plan.hpp"
#include "orchestrator/tune/work_time.hpp"
#include "reports/model/published.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/orchestrator/experiment/demo_experiment.hpp"
#include "train/spec/training.hpp"
#include "tuner/simulator/tiers.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

Experiment parsed(const std::string& work, const std::string& architectures,
                  const std::string& backends = R"(["openmpi", "gloo"])") {
  return testing::parsed(R"(name = "demo"
[axes]
environment = "bare-metal"
backend = )" + backends +
                         "\narchitecture = " + architectures + "\nranks = 3\n" + work);
}

Experiment training() {
  return parsed(R"([[work]]
training = ["bsp-a2a", "mg-wfbp"]
architecture = "ring"
model = "cnn"
batch = 32
[[work]]
training = ["bsp-ps"]
architecture = "ps"
model = "cnn"
batch = 32
)",
                R"(["ps", "ring"])");
}

TunePlan planned_run(const Experiment& experiment) {
  return make_run_plan(make_plan(experiment, {}, nullptr), tune_options_of(experiment));
}

std::size_t arm_named(const TunePlan& plan, const std::string& text) {
  for (std::size_t a = 0; a < plan.tasks[0].arms(); ++a)
    if (plan.tasks[0].text(plan, a) == text) return a;
  FAIL("no arm " << text);
  return 0;
}

}  // namespace

TEST_CASE("every way to run a workload is an arm of one task, the file's first the default") {
  const Experiment experiment = training();
  const TunePlan plan = planned_run(experiment);
  REQUIRE(plan.tasks.size() == 1);
  const TuneTask& task = plan.tasks[0];
  std::set<std::string> ways;
  for (std::size_t a = 0; a < task.arms(); ++a) ways.insert(task.text(plan, a));
  CHECK(ways == std::set<std::string>{"openmpi ring bsp-a2a", "openmpi ring mg-wfbp",
                                      "openmpi ps bsp-ps", "gloo ring bsp-a2a", "gloo ring mg-wfbp",
                                      "gloo ps bsp-ps"});
  const PlannedGroup first = make_plan(experiment, {}, nullptr).groups.front();
  CHECK(task.text(plan, 0) == "openmpi " + std::string(name_of(first.architecture)) + " " +
                                  first.cells.front().work.algorithm);
}

TEST_CASE("the environment is an arm between runs where it may be chosen", "[E-166]") {
  const std::string text = R"(name = "demo"
[axes]
environment = ["bare-metal", "single-docker", "cross-docker"]
backend = ["openmpi", "gloo"]
architecture = "ring"
ranks = 3
[[work]]
training = "bsp-a2a"
model = "cnn"
batch = 32
)";
  const Experiment experiment = testing::parsed(text);
  const Plan plan = make_plan(experiment, {}, nullptr);
  const TunePlan apart = make_run_plan(plan, tune_options_of(experiment));
  REQUIRE(apart.tasks.size() == 3);
  CHECK(apart.tasks[0].arms() == 2);
  CHECK(apart.tasks[0].text(apart, 1) == "gloo ring bsp-a2a");
  const TunePlan chosen = make_run_plan(plan, tune_options_of(experiment), true);
  REQUIRE(chosen.tasks.size() == 1);
  CHECK(chosen.tasks[0].arms() == 6);
  CHECK(chosen.tasks[0].text(chosen, 0) == "bare-metal openmpi ring bsp-a2a");
  // Each arm runs in its own environment, and the published figures of that one are its prior.
  const auto& prior = chosen.tasks[0].search.task.prior_log_us;
  const std::size_t near = arm_named(chosen, "bare-metal openmpi ring bsp-a2a");
  const std::size_t far = arm_named(chosen, "cross-docker openmpi ring bsp-a2a");
  CHECK(prior[near] < prior[far]);
  CHECK(chosen.base.groups[chosen.tasks[0].runs[far].group].environment == "cross-docker");
  CHECK(plan_for(chosen, {{0, far}}, "x").groups.front().environment == "cross-docker");
}

TEST_CASE("times are compared per unit of work: a server does none") {
  const TunePlan plan = planned_run(training());
  const TuneTask& task = plan.tasks[0];
  CHECK(task.runs[arm_named(plan, "gloo ps bsp-ps")].work_scale == 1.5);
  CHECK(task.runs[arm_named(plan, "gloo ring mg-wfbp")].work_scale == 1);
}

TEST_CASE("ways to wait are arms where there is an accuracy to reach, and no choice without one",
          "[D-27][H-12]") {
  const auto work = [](const std::string& reach) {
    return "[[work]]\ntraining = \"bsp-a2a\"\nmodel = \"cnn-small\"\n" + reach +
           "[[work]]\ntraining = \"bsp-a2a\"\nmodel = \"cnn-small\"\nsynchronisation = "
           "\"local\"\nlocal_steps = 8\n" +
           reach;
  };
  const TunePlan plan = planned_run(parsed(work("epochs = 4\ntarget = 0.6\n"), "\"ring\""));
  REQUIRE(plan.tasks.size() == 1);
  const TuneTask& task = plan.tasks[0];
  std::set<std::string> ways;
  for (std::size_t a = 0; a < task.arms(); ++a) ways.insert(task.text(plan, a));
  CHECK(ways == std::set<std::string>{"openmpi ring bsp-a2a to 0.6",
                                      "openmpi ring bsp-a2a local local_steps=8 to 0.6",
                                      "gloo ring bsp-a2a to 0.6",
                                      "gloo ring bsp-a2a local local_steps=8 to 0.6"});
  for (const RunChoice& run : task.runs) CHECK(run.work_scale == 1);
  // Steps of local SGD say nothing by their time.
  const TunePlan steps = planned_run(parsed(work(""), "\"ring\""));
  REQUIRE(steps.tasks.size() == 1);
  CHECK(steps.tasks[0].arms() == 2);
  CHECK_THROWS_WITH(planned_run(parsed(work(""), "\"ring\"", "\"gloo\"")),
                    ContainsSubstring("1 cells that do not train as one process would"));
  // Times until different accuracies are different work.
  CHECK_THROWS_WITH(planned_run(parsed(work("epochs = 4\ntarget = [0.5, 0.6]\n"), "\"ring\"")),
                    ContainsSubstring("alike"));
}

TEST_CASE("an accuracy is reached when the slowest worker is there, and by all of them") {
  const auto worker = [](double trained_us, bool reached) {
    CellRecord record;
    record.training.emplace();
    record.training->role = "worker";
    record.training->accuracy = 0.61;
    record.training->details = {{"trained_us", trained_us},
                                {"target_reached", reached},
                                {"accuracies", {{50, 0.4}, {100, 0.61}}}};
    return record;
  };
  CellRecord server;
  server.training.emplace();
  server.training->role = "server";
  const CellRecord fast = worker(900, true);
  const CellRecord slow = worker(1000, true);
  const CellRecord never = worker(1000, false);
  const TimeToTarget time = time_to_target({{0, &server}, {1, &fast}, {2, &slow}});
  CHECK(time.reached);
  CHECK(time.trained_us == 1000);
  CHECK(time.steps == 100);
  CHECK_FALSE(time_to_target({{0, &fast}, {1, &never}}).reached);
  CHECK_FALSE(time_to_target({{0, &server}}).reached);
}

TEST_CASE("cells that differ in any setting of training but the task's are choices", "[D-27]") {
  WorkCell cell;
  cell.collective = Collective::training;
  const auto& task = training_task_settings();
  for (const std::string& name : training_settings()) {
    CAPTURE(name);
    cell.knobs = {{name, "1"}};
    const bool is_task = std::find(task.begin(), task.end(), name) != task.end();
    CHECK(configuration_text(cell).empty() == is_task);
  }
  // A name that no setting has would be left out of no configuration.
  const auto settings = training_settings();
  for (const std::string& name : task) {
    CAPTURE(name);
    CHECK(std::find(settings.begin(), settings.end(), name) != settings.end());
  }
  const auto work = [](const std::string& more) {
    return "[[work]]\ntraining = \"bsp-a2a\"\nmodel = \"cnn-small\"\nepochs = 4\ntarget = 0.6\n" +
           more;
  };
  const TunePlan plan =
      planned_run(parsed(work("") + work("lars = 0.01\n") + work("rate_warmup = 100\n") +
                             work("compression = \"qsgd\"\nlayer_bits = \"even\"\n") +
                             work("compression = \"qsgd\"\nlayer_bits = \"size\"\n"),
                         "\"ring\"", "\"gloo\""));
  REQUIRE(plan.tasks.size() == 1);
  CHECK(plan.tasks[0].arms() == 5);
}

TEST_CASE("what goes over the wire is the task's where all ways to run have one codec", "[E-18]") {
  const auto task_of = [](const std::string& codecs) {
    const std::string work =
        "[[work]]\ntraining = \"bsp-a2a\"\nmodel = \"cnn-small\"\nepochs = 4\ntarget = 0.6\n" +
        codecs;
    return planned_run(parsed(work, "\"ring\"")).tasks.at(0).search.task;
  };
  const std::uint64_t plain = 4 * facts_of(TrainingModel::cnn_small, 64).parameters;
  const auto bin = [](const Task& task) { return task.key.task.bin.log2; };
  const Task floats = task_of("");
  CHECK(floats.state.effective_size == Bytes(plain));
  CHECK(bin(floats) == SizeBin::of(Bytes(plain)).log2);
  const Task halves = task_of("compression = \"bf16\"\n");
  CHECK(halves.state.nominal_size == Bytes(plain));
  CHECK(halves.state.effective_size == Bytes(plain / 2));
  CHECK(bin(halves) == bin(floats) - 1);
  // Sizes of these are the ways' own, or nobody's before a step.
  for (const char* codecs : {"compression = [\"none\", \"bf16\"]\n",
                             "compression = \"threshold\"\n", "packing = \"exponents\"\n"}) {
    INFO(codecs);
    const Task open = task_of(codecs);
    CHECK(open.state.nominal_size == Bytes(plain));
    CHECK_FALSE(open.state.effective_size);
    CHECK(bin(open) == bin(floats));
  }
}

TEST_CASE("published figures and the ratio of communication to computation are the prior") {
  const TunePlan plan = planned_run(training());
  const auto& prior = plan.tasks[0].search.task.prior_log_us;
  const auto at = [&](const char* way) { return prior[arm_named(plan, way)]; };
  // 384 s with MPI, 650 s with Gloo; 1095 s through a server.
  CHECK(at("openmpi ring bsp-a2a") < at("gloo ring bsp-a2a"));
  CHECK(at("openmpi ring bsp-a2a") < at("openmpi ps bsp-ps"));
  CHECK(at("openmpi ring mg-wfbp") < at("openmpi ring bsp-a2a"));
  CHECK(std::abs(at("openmpi ring bsp-a2a") - std::log(384.0)) < 1e-9);
}

TEST_CASE("the published winners by intensity are held against models in the same units",
          "[H-23]") {
  const auto standing = [](TrainingModel model, TrainingMethod method, int sequence) {
    TrainingSpec spec;
    spec.model = model;
    spec.method = method;
    spec.sequence = sequence;
    spec.batch = 64;
    return schedule_log_offset(training_cell(spec), 32);
  };
  // BERT computes little per parameter: merging wins, partitioning through servers gains nothing.
  for (const int tokens : {64, 128}) {
    CAPTURE(tokens);
    const auto of = [&](TrainingMethod method) {
      return standing(TrainingModel::bert_base, method, tokens);
    };
    CHECK(of(TrainingMethod::mg_wfbp) < 0);
    CHECK(of(TrainingMethod::bytescheduler_ps) == 0);
  }
  // ResNet-50 computes much: ByteScheduler-PS wins, slightly.
  CHECK(standing(TrainingModel::resnet50, TrainingMethod::bytescheduler_ps, 64) <
        standing(TrainingModel::resnet50, TrainingMethod::mg_wfbp, 64));
}

TEST_CASE("a collective's algorithms over several libraries are ways to run it, too") {
  const TunePlan plan = planned_run(parsed(R"([[work]]
collective = "allreduce"
size = "1MiB"
algorithm = ["library", "own_ring"]
)",
                                           "\"ring\""));
  REQUIRE(plan.tasks.size() == 1);
  CHECK(plan.tasks[0].arms() == 4);
  CHECK(plan.tasks[0].text(plan, 3) == "gloo ring own_ring");
}

TEST_CASE("without a choice the file is refused, and so are workloads that look alike") {
  const Experiment one =
      parsed("[[work]]\ncollective = \"allreduce\"\nsize = \"1MiB\"\n", "\"ring\"", "\"gloo\"");
  CHECK_THROWS_WITH(planned_run(one), ContainsSubstring("nothing to choose between runs"));
  const Experiment twins = parsed(R"([[work]]
training = ["bsp-a2a", "mg-wfbp"]
model = "cnn"
batch = [16, 32]
)",
                                  "\"ring\"");
  CHECK_THROWS_WITH(planned_run(twins), ContainsSubstring("alike"));
}

TEST_CASE("an ordinary run of the file has measured the plan's arms") {
  const Experiment experiment = training();
  const TunePlan plan = planned_run(experiment);
  std::set<std::string> ids;
  for (const auto& group : make_plan(experiment, {}, nullptr).groups)
    for (const auto& cell : group.cells) ids.insert(cell.work.id);
  for (std::size_t a = 0; a < plan.tasks[0].arms(); ++a)
    CHECK(ids.contains(place_of(plan, {0, a}, "").cell_id));
  CHECK_FALSE(ids.contains(place_of(plan, {0, 0}, "round").cell_id));
}

TEST_CASE("what earlier searches logged is known before the first launch") {
  const testing::ScratchFolder folder;
  const std::string path = folder.file("runs.sqlite");
  const TunePlan plan = planned_run(training());
  {
    Store store(path);
    const auto synthetic = testing::make_plan("earlier", {"bare-metal"}, {"allreduce"}, {1024});
    store.begin_run(synthetic.run, synthetic.groups, synthetic.cells);
  }
  CHECK(earlier_runs(Reader(path), plan).empty());
  DecisionLog log(path);
  const auto tuning = log.begin({"earlier", "live", "bandit", "", 1, "{}"});
  std::vector<DecisionInfo> rows;
  for (int step = 0; step < 9; ++step) {
    DecisionInfo row;
    row.task_key = plan.tasks[0].search.task.key.task.text();
    row.environment = "bare-metal";
    row.regime = "abcd";
    row.step = step;
    row.kind = step == 8 ? "final" : "explore";
    row.arm = step == 0 ? "mpich ring dear" : "gloo ring mg-wfbp";
    row.candidates_json = row.asked_json = row.state_json = "{}";
    row.time_us = 100.0 + step;
    rows.push_back(row);
  }
  log.add(tuning, rows);
  const auto known = earlier_runs(Reader(path), plan, 4);
  REQUIRE(known.size() == 4);  // the newest of the seven that name an arm of the plan
  CHECK(known.front().time == Micros{104});
  CHECK(known.back().time == Micros{107});
  CHECK(known.back().regime_id == "abcd");
  CHECK(known.back().arm == arm_named(plan, "gloo ring mg-wfbp"));
}

TEST_CASE("the simulator's factors of containers are what the study published", "[A-15]") {
  int compared = 0;
  for (const auto& row : published_figures().at("compared").at("s000")) {
    const std::string library = row.at("library");
    const std::string operation = row.at("operation");
    if (row.at("kind") != "environment" || row.at("subject") == "single-docker") continue;
    // Of these two harnesses the simulator has neither: training through a server or a ring is no
    // call of NCCL, and Gloo's calls gained where its ring lost.
    if (operation == "training" &&
        (library == "nccl" || (library == "gloo" && row.at("architecture") == "ring")))
      continue;
    const auto architecture = parse_named<Architecture>(row.at("architecture").get<std::string>());
    const auto collective = find_named<Collective>(operation).value_or(Collective::allreduce);
    const auto backend = find_named<Backend>(library).value_or(Backend::openmpi);
    const auto range = container_factor(
        backend, parse_named<EnvironmentKind>(row.at("subject").get<std::string>()),
        operation == "training" ? Collective::allreduce : collective, architecture);
    INFO(row.dump());
    const double value = row.at("value");
    CHECK(value >= range.low - 0.01);
    CHECK(value <= range.high + 0.01);
    ++compared;
  }
  CHECK(compared >= 10);
}
