// The real trainers under the real launchers, judged by what they leave.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <set>
#include <thread>

#include "core/training.hpp"
#include "tests/workers/job.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Two cores may be shared with other tests.
constexpr double kTimeoutS = 240;

const std::vector<TrainingMethod> kRing{TrainingMethod::bsp_a2a, TrainingMethod::wfbp_a2a,
                                        TrainingMethod::mg_wfbp, TrainingMethod::bytescheduler_a2a,
                                        TrainingMethod::dear};
/// Gloo's ranks can run PyTorch's engine beside our methods.
std::vector<TrainingMethod> ring_methods(Backend backend) {
  std::vector<TrainingMethod> methods = kRing;
  if (backend == Backend::gloo) methods.push_back(TrainingMethod::ddp);
  return methods;
}

const std::vector<TrainingMethod> kServer{TrainingMethod::bsp_ps, TrainingMethod::wfbp_ps,
                                          TrainingMethod::bytescheduler_ps};

TrainingSpec small_spec(TrainingMethod method) {
  TrainingSpec spec;
  spec.method = method;
  spec.model = TrainingModel::mlp;
  spec.batch = 4;
  spec.samples = 64;
  spec.threads = 1;
  // Several parts of the largest tensor, and several rounds of credit.
  spec.partition = Bytes(1U << 20);
  spec.credit = Bytes(2U << 20);
  spec.bucket = Bytes(1U << 20);
  return spec;
}

/// A launch whose cells are `methods`; PS gets `servers` ranks beside the workers.
std::unique_ptr<Job> job_of(Backend backend, int workers,
                            const std::vector<TrainingMethod>& methods, int oracle,
                            int servers = 1) {
  const auto architecture = architecture_of(methods.front());
  const int ranks = architecture == Architecture::ps ? workers + servers : workers;
  auto job = std::make_unique<Job>(backend, ranks);
  job->trains = true;
  job->config.architecture = architecture;
  job->config.protocol.warmup = 1;
  job->config.protocol.iterations = 3;
  job->environment["MPIR_CVAR_YIELD_DURING_PROGRESS"] = "1";
  job->environment["OMPI_MCA_mpi_yield_when_idle"] = "1";
  for (const auto method : methods) {
    TrainingSpec spec = small_spec(method);
    spec.oracle = oracle;
    spec.servers = servers;
    WorkCell cell = training_cell(spec);
    cell.id = std::string(name_of(method));
    job->config.cells.push_back(cell);
  }
  return job;
}

/// The pieces of the recorded step's spans of one kind; what began before its backward pass belongs
/// to the step before.
std::multiset<std::string> spans_of(const CellRecord& record, const std::string& what) {
  std::multiset<std::string> names;
  const auto& trace = record.training->details.at("trace");
  double backward_us = 0;
  for (const auto& event : trace) {
    if (event.at("name") == "backward 0") backward_us = event.at("ts");
  }
  for (const auto& event : trace) {
    const auto name = event.at("name").get<std::string>();
    if (name.starts_with(what + " ") && event.at("ts") >= backward_us) names.insert(name);
  }
  return names;
}

/// A worker holds at most one more copy of the gradients, a server one slot per worker and the
/// answer.
void check_memory(const CellRecord& record, int workers) {
  const auto& memory = record.training->details.at("memory");
  const std::uint64_t volume = 4 * facts_of(TrainingModel::mlp, 1).parameters;
  const std::uint64_t unit = memory.at("unit_bytes");
  CHECK(memory.at("held_bytes") <= memory.at("limit_bytes"));
  if (record.training->role == "server") {
    CHECK(unit <= volume);
    CHECK(memory.at("held_bytes") == static_cast<std::uint64_t>(workers + 1) * unit);
    CHECK(memory.at("limit_bytes") == static_cast<std::uint64_t>(workers + 1) * unit);
    return;
  }
  CHECK(unit == volume);
  CHECK(memory.at("limit_bytes") == volume);
  // The kernel's own figure, with what library and allocator take.
  CHECK(memory.contains("peak_extra_bytes"));
  const std::set<std::string> in_place{"bsp-a2a", "wfbp-a2a", "mg-wfbp", "bytescheduler-a2a",
                                       "ddp"};
  if (in_place.count(record.cell_id) > 0) CHECK(memory.at("held_bytes") == 0);
}

void check_cell(const CellRecord& record, int workers) {
  INFO(record.cell_id << " on rank " << record.rank << ": " << record.reason);
  REQUIRE(record.status == CellStatus::ok);
  CHECK(record.wrong == 0);
  REQUIRE(record.training);
  CHECK(record.measured.total_us.size() == 3);
  CHECK(record.training->max_difference >= 0);
  CHECK(record.training->max_difference <= 1e-6);
  // A sum of two does not depend on its order.
  if (workers == 2) CHECK(record.training->max_difference == 0);
  CHECK(record.training->predicted_us > 0);
  check_memory(record, workers);
  if (record.training->role == "server") return;
  const std::uint64_t volume = 4 * facts_of(TrainingModel::mlp, 1).parameters;
  std::uint64_t elements = 0;
  for (const auto& piece : record.training->details.at("pieces"))
    elements += piece[1].get<std::uint64_t>();
  CHECK(elements == volume / 4);
}

}  // namespace

TEST_CASE("every method trains what one process would train", "[d-40][d-46][a-12]") {
  const auto backend = GENERATE(from_range(kBackends));
  const int workers = GENERATE(2, 4);
  for (const auto& methods : {ring_methods(backend), kServer}) {
    auto job = job_of(backend, workers, methods, 20);
    job->start();
    const int code = job->wait(kTimeoutS);
    INFO(name_of(backend) << " " << workers << " workers\n" << job->errors());
    REQUIRE(code == 0);
    for (std::size_t i = 0; i < methods.size(); ++i) {
      std::set<std::string> digests;
      for (int rank = 0; rank < job->config.ranks; ++rank) {
        const auto records = job->records_of<CellRecord>(rank);
        REQUIRE(records.size() == methods.size());
        check_cell(records[i], workers);
        digests.insert(records[i].training->parameters_sha256);
      }
      CHECK(digests.size() == 1);
    }
  }
}

TEST_CASE("a step sends every piece once, split or whole", "[d-49][d-53]") {
  auto job = job_of(kBackends.back(), 2, kRing, 0);
  job->start();
  REQUIRE(job->wait(kTimeoutS) == 0);
  for (const auto& record : job->records_of<CellRecord>(0)) {
    INFO(record.cell_id);
    REQUIRE(record.training);
    const auto pieces = record.training->details.at("pieces").size();
    const bool split = record.cell_id == "dear";
    const auto first = spans_of(record, split ? "reduce-scatter" : "reduce");
    CHECK(std::set<std::string>(first.begin(), first.end()).size() == first.size());
    CHECK(first.size() == pieces);
    if (split) CHECK(spans_of(record, "all-gather").size() == pieces);
    if (record.cell_id == "bsp-a2a") CHECK(pieces == 1);
    if (record.cell_id == "wfbp-a2a") CHECK(pieces == 6);
    if (record.cell_id == "bytescheduler-a2a") CHECK(pieces > 6);
    // Ring all-reduce of N ranks: 2 (N-1)/N of the volume from each.
    CHECK(record.training->wire_bytes == 4.0 * 1'707'274);
  }
}

TEST_CASE("servers share the load and hold no more than they must", "[d-03]") {
  auto job = job_of(kBackends.back(), 2, kServer, 5, 2);
  job->start();
  const int code = job->wait(kTimeoutS);
  INFO(job->errors());
  REQUIRE(code == 0);
  const std::uint64_t volume = 4 * facts_of(TrainingModel::mlp, 1).parameters;
  std::vector<std::uint64_t> held(kServer.size(), 0);
  for (const int server : {0, 1}) {
    const auto records = job->records_of<CellRecord>(server);
    REQUIRE(records.size() == kServer.size());
    for (std::size_t i = 0; i < records.size(); ++i) {
      REQUIRE(records[i].training);
      CHECK(records[i].training->role == "server");
      CHECK(records[i].training->wire_bytes > 0);
      held[i] += records[i].training->details.at("memory").at("held_bytes").get<std::uint64_t>();
    }
  }
  for (const auto bytes : held) CHECK(bytes == 3 * volume);
}

TEST_CASE("servers that are the optimizers train the same weights", "[d-03][d-40]") {
  const auto backend = GENERATE(from_range(kBackends));
  const int workers = GENERATE(2, 4);
  auto job = job_of(backend, workers, kServer, 20, 2);
  for (auto& cell : job->config.cells) {
    TrainingSpec spec = training_spec(cell);
    spec.optimizer = OptimizerPlace::server;
    const auto id = cell.id;
    cell = training_cell(spec);
    cell.id = id;
  }
  job->start();
  const int code = job->wait(kTimeoutS);
  INFO(name_of(backend) << " " << workers << " workers\n" << job->errors());
  REQUIRE(code == 0);
  for (int rank = 0; rank < job->config.ranks; ++rank) {
    const auto records = job->records_of<CellRecord>(rank);
    REQUIRE(records.size() == kServer.size());
    for (const auto& record : records) {
      check_cell(record, workers);
      // Servers add in rank order, as the oracle does.
      CHECK(record.training->max_difference == 0);
    }
  }
}

TEST_CASE("epochs start anew on servers that are the optimizers too", "[d-03]") {
  std::set<std::string> digests;
  for (const auto place : {OptimizerPlace::worker, OptimizerPlace::server}) {
    auto job = job_of(Backend::gloo, 2, {TrainingMethod::bytescheduler_ps}, 0);
    TrainingSpec spec = training_spec(job->config.cells[0]);
    spec.optimizer = place;
    spec.epochs = 2;
    job->config.cells[0] = training_cell(spec);
    job->start();
    const int code = job->wait(kTimeoutS);
    INFO(job->errors());
    REQUIRE(code == 0);
    const auto records = job->records_of<CellRecord>(1);
    REQUIRE(records.size() == 1);
    INFO(records[0].reason);
    REQUIRE(records[0].status == CellStatus::ok);
    digests.insert(records[0].training->parameters_sha256);
  }
  CHECK(digests.size() == 1);
}

TEST_CASE("planted faults fail the cell", "[d-40]") {
  const auto& [fault, method] =
      GENERATE(std::pair{"drop-gradient", TrainingMethod::bsp_a2a},
               std::pair{"drop-gradient", TrainingMethod::ddp},
               std::pair{"skip-last-update", TrainingMethod::bytescheduler_a2a});
  auto job = job_of(Backend::gloo, 2, {method}, 5);
  job->faulty = true;
  job->environment["DYNAMICCL_TRAINING_FAULT"] = fault;
  job->start();
  REQUIRE(job->wait(kTimeoutS) == 0);
  for (const int rank : {0, 1}) {
    const auto records = job->records_of<CellRecord>(rank);
    REQUIRE(records.size() == 1);
    CHECK(records[0].status == CellStatus::failed);
    CHECK_THAT(records[0].reason, ContainsSubstring("sequential oracle"));
  }
}

TEST_CASE("equal samples give equal accuracy, whatever the method", "[d-56]") {
  const auto train = [](int ranks, int batch, std::vector<TrainingMethod> methods) {
    auto job = job_of(Backend::gloo, ranks, methods, 0);
    job->config.protocol.warmup = 0;
    job->config.protocol.iterations = job->config.protocol.min_iterations = 120;
    for (auto& cell : job->config.cells) {
      TrainingSpec spec = training_spec(cell);
      spec.batch = batch;
      spec.samples = 512;
      spec.evaluate = 512;
      spec.learning_rate = 0.01;
      const auto id = cell.id;
      cell = training_cell(spec);
      cell.id = id;
    }
    job->start();
    const int code = job->wait(kTimeoutS);
    INFO(job->errors());
    CHECK(code == 0);
    std::vector<double> accuracies;
    for (const auto& record : job->records_of<CellRecord>(0))
      accuracies.push_back(record.training ? record.training->accuracy : -1);
    return accuracies;
  };
  const auto one = train(1, 32, {TrainingMethod::bsp_a2a});
  REQUIRE(one.size() == 1);
  CHECK(one[0] > 0.6);
  CHECK(one[0] < 0.98);
  for (const double accuracy : train(2, 16, ring_methods(Backend::gloo)))
    CHECK(std::abs(accuracy - one[0]) <= 0.005);
}

TEST_CASE("epochs end at the accuracy that is asked for, with servers and without", "[a-12]") {
  const auto method = GENERATE(TrainingMethod::dear, TrainingMethod::bsp_ps, TrainingMethod::ddp);
  const auto train = [&](double target) {
    auto job = job_of(Backend::gloo, 2, {method}, 0);
    TrainingSpec spec = training_spec(job->config.cells[0]);
    spec.batch = 16;
    spec.samples = 512;
    spec.learning_rate = 0.01;
    spec.epochs = 6;
    spec.target = target;
    job->config.cells[0] = training_cell(spec);
    job->start();
    const int code = job->wait(kTimeoutS);
    INFO(job->errors());
    REQUIRE(code == 0);
    const auto records = job->records_of<CellRecord>(job->config.ranks - 1);
    REQUIRE(records.size() == 1);
    INFO(records[0].reason);
    REQUIRE(records[0].status == CellStatus::ok);
    REQUIRE(records[0].training);
    const auto& details = records[0].training->details;
    const int epochs = details.at("epochs");
    CHECK(records[0].measured.total_us.size() == static_cast<std::size_t>(epochs) * 16);
    CHECK(details.at("accuracies").size() == static_cast<std::size_t>(epochs));
    CHECK(details.at("accuracies").back()[0] == epochs * 16);
    CHECK(details.at("accuracies").back()[1] == records[0].training->accuracy);
    CHECK(details.at("trained_us") > 0);
    if (target > 0)
      CHECK(details.at("target_reached") == (records[0].training->accuracy >= target));
    return epochs;
  };
  CHECK(train(0) == 6);
  CHECK(train(1) == 6);
  CHECK(train(0.3) < 6);
}

TEST_CASE("a step budget is kept, whatever the time cap") {
  auto job = job_of(Backend::gloo, 2, {TrainingMethod::bsp_a2a}, 0);
  TrainingSpec spec = training_spec(job->config.cells[0]);
  spec.steps = 17;
  job->config.cells[0] = training_cell(spec);
  job->config.protocol.cell_time_cap = Micros(1);
  job->start();
  REQUIRE(job->wait(kTimeoutS) == 0);
  const auto records = job->records_of<CellRecord>(0);
  REQUIRE(records.size() == 1);
  CHECK(records[0].measured.total_us.size() == 17);
}

TEST_CASE("a dead rank ends the launch with an error, in time", "[d-40]") {
  const auto backend = GENERATE(from_range(kBackends));
  const auto method = GENERATE(TrainingMethod::wfbp_a2a, TrainingMethod::ddp);
  if (method == TrainingMethod::ddp && backend != Backend::gloo) return;
  auto job = job_of(backend, 2, {method}, 0);
  job->config.protocol.iterations = job->config.protocol.min_iterations = 1'000'000;
  job->config.protocol.cell_time_cap = Micros(1e9);
  job->start();
  const HelloRecord hello = wait_for_hello(*job, 1);
  REQUIRE(hello.pid > 0);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  kill(static_cast<pid_t>(hello.pid), SIGKILL);
  const int code = job->wait(60);
  INFO(name_of(backend) << "\n" << job->errors());
  CHECK(code > 0);
}

TEST_CASE("a method of the other architecture says so", "[d-35]") {
  auto job = job_of(Backend::gloo, 2, {TrainingMethod::mg_wfbp}, 0);
  job->config.architecture = Architecture::ps;
  job->start();
  REQUIRE(job->wait(kTimeoutS) == 0);
  const auto records = job->records_of<CellRecord>(0);
  REQUIRE(records.size() == 1);
  CHECK(records[0].status == CellStatus::unsupported);
  CHECK_THAT(records[0].reason, ContainsSubstring("does not belong to the ps architecture"));
}

TEST_CASE("an optimizer on servers needs some", "[d-03]") {
  auto job = job_of(Backend::gloo, 2, {TrainingMethod::mg_wfbp}, 0);
  TrainingSpec spec = training_spec(job->config.cells[0]);
  spec.optimizer = OptimizerPlace::server;
  job->config.cells[0] = training_cell(spec);
  job->start();
  REQUIRE(job->wait(kTimeoutS) == 0);
  const auto records = job->records_of<CellRecord>(0);
  REQUIRE(records.size() == 1);
  CHECK(records[0].status == CellStatus::unsupported);
  CHECK_THAT(records[0].reason, ContainsSubstring("mg-wfbp has no server"));
}

TEST_CASE("the baseline is PyTorch's engine with the buckets that were asked for", "[d-40]") {
  auto job = job_of(Backend::gloo, 2, {TrainingMethod::ddp}, 2);
  TrainingSpec spec = training_spec(job->config.cells[0]);
  spec.model = TrainingModel::resnet18;
  spec.bucket = Bytes(4U << 20);
  job->config.cells[0] = training_cell(spec);
  job->start();
  const int code = job->wait(kTimeoutS);
  INFO(job->errors());
  REQUIRE(code == 0);
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

TEST_CASE("the baseline says which backend it runs with") {
  if (kBackends.front() == Backend::gloo) SKIP("no MPI in this build");
  auto job = job_of(kBackends.front(), 2, {TrainingMethod::ddp}, 0);
  job->start();
  REQUIRE(job->wait(kTimeoutS) == 0);
  const auto records = job->records_of<CellRecord>(0);
  REQUIRE(records.size() == 1);
  CHECK(records[0].status == CellStatus::unsupported);
  CHECK_THAT(records[0].reason, ContainsSubstring("backend gloo"));
}

TEST_CASE("the large models train a step", "[d-40]") {
  const auto& [model, batch] =
      GENERATE(std::pair{TrainingModel::resnet50, 1}, std::pair{TrainingModel::bert_base, 1});
  auto job = job_of(Backend::gloo, 2, {TrainingMethod::mg_wfbp}, 1);
  TrainingSpec spec = training_spec(job->config.cells[0]);
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
  if (records[0].status == CellStatus::unsupported) SKIP(records[0].reason);
  REQUIRE(records[0].status == CellStatus::ok);
  REQUIRE(records[0].training);
  CHECK(records[0].training->max_difference == 0);
  CHECK(records[0].checked >= facts_of(model, 8).parameters);
}
