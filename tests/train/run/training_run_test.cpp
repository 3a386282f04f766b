// The real trainers under the real launchers: how runs go and end.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "tests/train/training_job.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Accuracies of the methods after so many steps, worker by worker the same samples.
std::vector<double> accuracies_of(int workers, const std::vector<TrainingMethod>& methods,
                                  TrainingModel model, int steps) {
  auto job = job_of(Backend::gloo, workers, methods, 0);
  job->config.protocol.warmup = 0;
  edit_specs(*job, [&](TrainingSpec& spec) {
    spec.model = model;
    spec.steps = steps;
    spec.batch = 32 / workers;
    spec.samples = 512;
    spec.evaluate = 512;
    spec.learning_rate = 0.01;
  });
  run_to_end(*job);
  std::vector<double> accuracies;
  // The last rank is a worker.
  for (const auto& record : job->records_of<CellRecord>(job->config.ranks - 1)) {
    INFO(record.cell_id << ": " << record.reason);
    REQUIRE(record.status == CellStatus::ok);
    REQUIRE(record.training);
    accuracies.push_back(record.training->accuracy);
  }
  CHECK(accuracies.size() == methods.size());
  return accuracies;
}

}  // namespace

TEST_CASE("equal samples give equal accuracy, whatever the method", "[a-12][long]") {
  struct Task {
    TrainingModel model;
    int steps;  // so many that it is learnt in part: a lost gradient would be seen
    std::vector<TrainingMethod> ring;
    std::vector<TrainingMethod> served;
  };
  const auto task = GENERATE(
      Task{TrainingModel::mlp, 70, ring_methods(Backend::gloo), kServer},
      Task{TrainingModel::cnn, 130, {TrainingMethod::dear}, {TrainingMethod::bytescheduler_ps}});
  INFO(name_of(task.model));
  const auto one = accuracies_of(1, {TrainingMethod::bsp_a2a}, task.model, task.steps);
  REQUIRE(one.size() == 1);
  CHECK(one[0] >= 0.60);
  CHECK(one[0] <= 0.95);
  for (const auto& methods : {task.ring, task.served})
    for (const double accuracy : accuracies_of(2, methods, task.model, task.steps))
      CHECK(std::abs(accuracy - one[0]) <= 0.005);
}

namespace {

/// One loss for each step from the weights at the start, which guess among ten kinds.
void check_losses(const TrainingFigures& figures, std::size_t steps) {
  const auto losses = figures.details.at("losses").get<std::vector<double>>();
  REQUIRE(losses.size() == steps);
  CHECK(figures.first_loss == losses.front());
  CHECK(std::abs(losses.front() - std::log(10)) < 0.3);
  CHECK(figures.last_loss < 0.9 * losses.front());
}

}  // namespace

namespace {

/// A cell that ends where it reaches this accuracy.
struct Aim {
  double target = 0;  ///< 0: nothing is asked for
  int looks = 1;      ///< at the accuracy, an epoch
};

/// @returns how many epochs it took
int check_epochs(const CellRecord& record, const Aim& aim) {
  INFO(record.cell_id << ": " << record.reason);
  REQUIRE(record.status == CellStatus::ok);
  REQUIRE(record.training);
  const auto& details = record.training->details;
  const int epochs = details.at("epochs");
  const auto looked = details.at("accuracies").size();
  const auto looks = static_cast<std::size_t>(aim.looks);
  const std::size_t steps = looked * 16 / looks;
  CHECK(record.measured.total_us.size() == steps);
  CHECK((looked + looks - 1) / looks == static_cast<std::size_t>(epochs));
  CHECK(details.at("accuracies").back()[0] == steps);
  CHECK(details.at("accuracies").back()[1] == record.training->accuracy);
  CHECK(details.at("trained_us") > 0);
  check_losses(*record.training, steps);
  if (aim.target > 0)
    CHECK(details.at("target_reached") == (record.training->accuracy >= aim.target));
  return epochs;
}

}  // namespace

TEST_CASE("epochs end at the accuracy that is asked for, with servers and without", "[a-12]") {
  const bool served = GENERATE(false, true);
  constexpr int kMost = 4;
  using enum TrainingMethod;
  const std::vector<TrainingMethod> methods =
      served ? std::vector(4, bsp_ps) : std::vector{dear, dear, ddp, ddp};
  const std::vector<Aim> aims{{1, 1}, {0.3, 1}, {served ? 0.0 : 1.0, 1}, {0.3, served ? 4 : 1}};
  auto job = job_of(Backend::gloo, 2, methods, 0);
  std::size_t next = 0;
  edit_specs(*job, [&](TrainingSpec& spec) {
    spec.batch = 16;
    spec.samples = 512;
    spec.learning_rate = 0.01;
    spec.epochs = kMost;
    spec.target = aims[next].target;
    spec.looks = aims[next++].looks;
  });
  for (std::size_t i = 0; i < aims.size(); ++i) job->config.cells[i].id += std::to_string(i);
  run_to_end(*job);
  const auto records = job->records_of<CellRecord>(job->config.ranks - 1);
  REQUIRE(records.size() == aims.size());
  for (std::size_t i = 0; i < aims.size(); ++i) {
    const int epochs = check_epochs(records[i], aims[i]);
    const bool reachable = aims[i].target > 0 && aims[i].target < 1;
    CHECK((reachable ? epochs < kMost : epochs == kMost));
  }
}

TEST_CASE("a step budget is kept by workers and servers, whatever the time cap", "[a-31]") {
  const auto method = GENERATE(TrainingMethod::bsp_a2a, TrainingMethod::bsp_ps);
  auto job = job_of(Backend::gloo, 2, {method}, 0);
  TrainingSpec spec = parsed_training(job->config.cells[0]);
  spec.steps = 17;
  job->config.cells[0] = training_cell(spec);
  job->config.protocol.cell_time_cap = Micros(1);
  job->start();
  REQUIRE(job->wait(kTimeoutS) == 0);
  for (int rank = 0; rank < job->config.ranks; ++rank) {
    const auto records = job->records_of<CellRecord>(rank);
    REQUIRE(records.size() == 1);
    CHECK(records[0].measured.total_us.size() == 17);
    REQUIRE(records[0].training);
    // 64 samples, two workers of 4.
    if (records[0].training->role == "worker")
      CHECK(records[0].training->details.at("steps_per_epoch") == 8);
  }
}

TEST_CASE("a training that diverges says so, and costs no other cell its record", "[a-12][d-96]") {
  struct Case {
    TrainingMethod method;
    Synchronisation how;
  };
  const auto [method, how] = GENERATE(Case{TrainingMethod::bsp_a2a, Synchronisation::bsp},
                                      Case{TrainingMethod::bsp_ps, Synchronisation::asp},
                                      Case{TrainingMethod::d_psgd, Synchronisation::bsp});
  // Without an oracle and with one; then a cell that is well.
  auto job = job_of(Backend::gloo, 2, std::vector(3, method), 0);
  int cell = 0;
  edit_specs(*job, [&, how = how](TrainingSpec& spec) {
    spec.synchronisation = how;
    spec.oracle = cell == 1 ? 4 : 0;
    spec.steps = 4;
    spec.learning_rate = cell++ == 2 ? 0.01 : 1e30;
  });
  for (std::size_t i = 0; i < 3; ++i) job->config.cells[i].id += std::to_string(i);
  job->config.protocol.warmup = 0;
  job->start();
  job->wait(kTimeoutS);
  for (int rank = 0; rank < job->config.ranks; ++rank) {
    const auto records = job->records_of<CellRecord>(rank);
    REQUIRE(records.size() == 3);
    const bool worker = records[0].training->role == "worker";
    for (std::size_t i = 0; i < 2 && worker; ++i) {
      INFO(i << ": " << records[i].reason);
      CHECK(records[i].status == CellStatus::failed);
      CHECK_THAT(records[i].reason, ContainsSubstring("training diverged"));
    }
    INFO(records[2].reason);
    CHECK(records[2].status == CellStatus::ok);
  }
}

TEST_CASE("what is left open is tried, and training starts anew after that", "[d-49][dear]") {
  auto job =
      job_of(Backend::gloo, 2,
             {TrainingMethod::bsp_a2a, TrainingMethod::dear, TrainingMethod::bytescheduler_a2a}, 0);
  job->config.protocol.warmup = 2;
  job->config.protocol.iterations = job->config.protocol.min_iterations = 6;
  job->config.protocol.cell_time_cap = Micros(30e6);
  edit_specs(*job, [](TrainingSpec& spec) {
    const TrainingMethod method = spec.method;
    spec = {};
    spec.method = method;
    spec.model = TrainingModel::cnn;
    spec.threads = 1;
  });
  run_to_end(*job);
  const auto records = job->records_of<CellRecord>(0);
  REQUIRE(records.size() == 3);
  for (const auto& record : records) {
    INFO(record.cell_id << ": " << record.reason);
    REQUIRE(record.status == CellStatus::ok);
    REQUIRE(record.training);
    // Sums of two are the same bits in any grouping, so only a trial that left traces would differ.
    CHECK(record.training->parameters_sha256 == records[0].training->parameters_sha256);
  }
  CHECK_FALSE(records[0].training->details.contains("trial"));
  for (const std::size_t i : {1, 2}) {
    const auto& details = records[i].training->details;
    REQUIRE(details.contains("trial"));
    int chosen = 0;
    for (const auto& tried : details["trial"]) {
      CHECK(tried["step_us"].size() >= 2);
      if (!tried["chosen"].get<bool>()) continue;
      ++chosen;
      CHECK(tried["messages"] == details["messages"]);
      CHECK(tried["credit_bytes"] == details["credit_bytes"]);
    }
    CHECK(chosen == 1);
    CHECK(details["trial"].size() > 1);
  }
}

namespace {

struct Victim {
  TrainingMethod method;
  int rank;
};

const Victim kServerDies{TrainingMethod::wfbp_ps, 0};
const Victim kWorkerDies{TrainingMethod::wfbp_a2a, 1};

/// On Gloo nobody but the ranks themselves sees a dead one: each role, sums in halves, and an
/// engine that is not ours. An MPI's launcher, which ends the others, meets each role once.
std::vector<Victim> victims_of(Backend backend) {
  if (backend == Backend::openmpi) return {kServerDies};
  if (backend == Backend::mpich) return {kWorkerDies};
  return {kServerDies, kWorkerDies, {TrainingMethod::dear, 1}, {TrainingMethod::ddp, 1}};
}

/// What the short case leaves out.
std::vector<Victim> other_victims_of(Backend backend) {
  if (backend != Backend::gloo) return {kServerDies, kWorkerDies};
  return {{TrainingMethod::wfbp_ps, 1}, {TrainingMethod::bytescheduler_a2a, 1}};
}

/// Starts the launch and waits until its first cell is done: the second one of the same settings
/// has nothing left to measure before its steps.
void start_and_reach_second_cell(Job& job) {
  WorkCell endless = job.config.cells[0];
  edit_specs(job, [](TrainingSpec& spec) { spec.steps = 1; });
  endless.id += " again";
  endless.knobs["steps"] = "1000000";
  job.config.cells.push_back(endless);
  job.start();
  for (int rank = 0; rank < job.config.ranks; ++rank) {
    for (int i = 0; i < 18000 && job.records_of<CellRecord>(rank).empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto records = job.records_of<CellRecord>(rank);
    INFO(job.errors());
    REQUIRE(records.size() == 1);
    REQUIRE(records[0].status == CellStatus::ok);
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
}

}  // namespace

namespace {

void check_death_is_seen(Backend backend, const Victim& victim) {
  auto job = job_of(backend, 2, {victim.method}, 0);
  start_and_reach_second_cell(*job);
  const HelloRecord hello = wait_for_hello(*job, victim.rank);
  REQUIRE(hello.pid > 0);
  kill(static_cast<pid_t>(hello.pid), SIGKILL);
  // Mostly at once; where Gloo does not notice, its call ends after two minutes.
  const int code = job->wait(600);
  INFO(name_of(backend) << ", " << name_of(victim.method) << ", rank " << victim.rank << "\n"
                        << job->errors());
  CHECK(code > 0);
  // The dead rank says nothing: a survivor or the launcher does.
  bool told = !job->errors().empty();
  for (int other = 0; other < job->config.ranks; ++other) {
    told = told || !job->records_of<ErrorRecord>(other).empty();
    CHECK(job->records_of<CellRecord>(other).size() == 1);
  }
  CHECK(told);
}

}  // namespace

TEST_CASE("a dead rank ends the launch with an error, in time", "[d-40]") {
  for (const auto backend : kBackends)
    for (const Victim& victim : victims_of(backend)) check_death_is_seen(backend, victim);
}

TEST_CASE("a dead rank ends the launch over every library, whatever its role", "[d-40][long]") {
  for (const auto backend : kBackends)
    for (const Victim& victim : other_victims_of(backend)) check_death_is_seen(backend, victim);
}

TEST_CASE("methods of the other architecture, without servers or of another library say so",
          "[d-03]") {
  using enum TrainingMethod;
  auto job = job_of(kBackends.front(), 2, {mg_wfbp, bsp_ps, ddp}, 0);
  edit_specs(*job, [](TrainingSpec& spec) {
    if (spec.method == mg_wfbp) spec.optimizer = OptimizerPlace::server;
  });
  run_to_end(*job);
  const auto records = job->records_of<CellRecord>(0);
  REQUIRE(records.size() == 3);
  const char* reasons[] = {"mg-wfbp has no server", "does not belong to the ring architecture",
                           "backend gloo"};
  // Gloo has PyTorch's own engine.
  for (std::size_t i = 0; i < (kBackends.front() == Backend::gloo ? 2 : 3); ++i) {
    CHECK(records[i].status == CellStatus::unsupported);
    CHECK_THAT(records[i].reason, ContainsSubstring(reasons[i]));
  }
}

TEST_CASE("the baseline is PyTorch's engine with the buckets that were asked for", "[d-40]") {
  auto job = job_of(Backend::gloo, 2, {TrainingMethod::ddp}, 2);
  TrainingSpec spec = parsed_training(job->config.cells[0]);
  spec.model = TrainingModel::resnet18;
  spec.batch = 1;
  spec.bucket = Bytes(4U << 20);
  job->config.cells[0] = training_cell(spec);
  run_to_end(*job);
  for (const int rank : {0, 1}) {
    const auto records = job->records_of<CellRecord>(rank);
    REQUIRE(records.size() == 1);
    INFO(records[0].reason);
    REQUIRE(records[0].status == CellStatus::ok);
    REQUIRE(records[0].training);
    CHECK(records[0].training->max_difference == 0);
    // The engine tells nothing of how long its communication was busy: no zero stands for that.
    CHECK(records[0].measured.collective_us.empty());
    const auto& details = records[0].training->details;
    std::vector<std::uint64_t> planned;
    for (const auto& piece : details.at("pieces"))
      planned.push_back(4 * piece[1].get<std::uint64_t>());
    CHECK(planned.size() > 3);
    CHECK(details.at("engine_buckets").get<std::vector<std::uint64_t>>() == planned);
  }
}

TEST_CASE("the large models train a step", "[d-40][long]") {
  const auto& [model, batch] =
      GENERATE(std::pair{TrainingModel::resnet50, 1}, std::pair{TrainingModel::bert_base, 1});
  auto job = job_of(Backend::gloo, 2, {TrainingMethod::mg_wfbp}, 1);
  TrainingSpec spec = parsed_training(job->config.cells[0]);
  spec.model = model;
  spec.batch = batch;
  spec.sequence = 8;
  spec.samples = 8;
  job->config.cells[0] = training_cell(spec);
  job->config.protocol.iterations = job->config.protocol.min_iterations = 1;
  job->start();
  // Hundreds of megabytes of weights per rank on perhaps one core.
  const int code = job->wait(3 * kTimeoutS);
  INFO(name_of(model) << "\n" << job->errors());
  REQUIRE(code == 0);
  const auto records = job->records_of<CellRecord>(0);
  REQUIRE(records.size() == 1);
  INFO(records[0].reason);
  if (records[0].reason.find("need OpenBLAS") != std::string::npos) SKIP(records[0].reason);
  REQUIRE(records[0].status == CellStatus::ok);
  REQUIRE(records[0].training);
  CHECK(records[0].training->max_difference == 0);
  CHECK(records[0].checked >= facts_of(model, 8).parameters);
}
