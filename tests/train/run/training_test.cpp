// The real trainers under the real launchers: every step is checked.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <set>
#include <string>

#include "tests/train/training_job.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

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

}  // namespace

namespace {

/// Held against one process: a launch of the methods with servers, or of those without.
void train_every_method(Backend backend, int workers, bool served) {
  const auto methods = served ? kServer : ring_methods(backend);
  auto job = job_of(backend, workers, methods, 4);
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
      add_digest(records[i], digests);
    }
    CHECK(digests.size() == 1);
  }
}

}  // namespace

TEST_CASE("every method trains what one process would train", "[d-40][d-46][a-12]") {
  // Both architectures over Gloo, one over each MPI library, whose ranks spin while they wait: no
  // more of them than there may be cores. Every worker replays all of them: three are more than
  // two.
  const auto backend = GENERATE(from_range(kBackends));
  const bool served = GENERATE(false, true);
  if (backend != Backend::gloo && served != (backend == Backend::openmpi)) return;
  train_every_method(backend, backend == Backend::gloo && !served ? 3 : 2, served);
}

TEST_CASE("every method trains over every library with two workers and with four",
          "[d-40][d-46][a-12][long]") {
  const auto backend = GENERATE(from_range(kBackends));
  const int workers = GENERATE(2, 4);
  const bool served = GENERATE(false, true);
  train_every_method(backend, workers, served);
}

TEST_CASE("every method trains a deep model as one process would", "[d-40][d-46][long]") {
  for (const auto& methods : {kRing, kServer}) {
    auto job = job_of(Backend::gloo, 2, methods, 2);
    job->config.protocol.warmup = 0;
    job->config.protocol.iterations = job->config.protocol.min_iterations = 1;
    edit_specs(*job, [](TrainingSpec& spec) {
      spec.model = TrainingModel::resnet18;
      spec.batch = 1;
      spec.samples = 16;
      spec.partition = spec.credit = spec.bucket = Bytes(8U << 20);
    });
    run_to_end(*job, 3 * kTimeoutS);
    for (std::size_t i = 0; i < methods.size(); ++i) {
      std::set<std::string> digests;
      for (int rank = 0; rank < job->config.ranks; ++rank) {
        const auto records = job->records_of<CellRecord>(rank);
        REQUIRE(records.size() == methods.size());
        const CellRecord& record = records[i];
        INFO(record.cell_id << " on rank " << rank << ": " << record.reason);
        REQUIRE(record.status == CellStatus::ok);
        CHECK(record.wrong == 0);
        CHECK(record.training->max_difference == 0);
        add_digest(record, digests);
      }
      CHECK(digests.size() == 1);
    }
  }
}

namespace {

/// Every measured step has its calls, not only the traced one; what crosses the barrier is told
/// with the step in which it ended.
void check_calls(const CellRecord& record, const std::string& what, std::size_t pieces) {
  const auto& calls = record.training->details.at("calls");
  const std::size_t steps = record.measured.total_us.size();
  REQUIRE(steps > 1);
  CHECK(calls.at("steps").size() == steps);
  CHECK(calls.at("left_out") == 0);
  const auto kinds = calls.at("kinds").get<std::vector<std::string>>();
  std::size_t begun = 0;
  for (const auto& call : calls.at("each")) {
    CHECK(call[0] < steps);
    CHECK(call[2] < pieces);
    CHECK(call[4] >= 0);
    begun += kinds.at(call[1]) == what ? 1 : 0;
  }
  CHECK(begun + pieces >= steps * pieces);
  CHECK(begun <= (steps + 1) * pieces);
}

}  // namespace

TEST_CASE("a step sends every piece once, split or whole", "[A-17][d-49][dear]") {
  auto job = job_of(kBackends.back(), 2, kRing, 0);
  job->start();
  REQUIRE(job->wait(kTimeoutS) == 0);
  for (const auto& record : job->records_of<CellRecord>(0)) {
    INFO(record.cell_id);
    REQUIRE(record.training);
    const auto pieces = record.training->details.at("pieces").size();
    const bool split = method_row(parse_named<TrainingMethod>(record.cell_id)).split;
    const auto first = spans_of(record, split ? "reduce-scatter" : "reduce");
    CHECK(std::set<std::string>(first.begin(), first.end()).size() == first.size());
    CHECK(first.size() == pieces);
    if (split) CHECK(spans_of(record, "all-gather").size() == pieces);
    check_calls(record, split ? "reduce-scatter" : "reduce", pieces);
    if (record.cell_id == "bsp-a2a") CHECK(pieces == 1);
    if (record.cell_id == "wfbp-a2a") CHECK(pieces == 6);
    if (record.cell_id == "bytescheduler-a2a") CHECK(pieces > 6);
    // Ring all-reduce of N ranks: 2 (N-1)/N of the volume from each.
    CHECK(record.training->wire_bytes == 4.0 * 1'707'274);
  }
}

TEST_CASE("packed gradients train the same weights with fewer bytes", "[d-40][d-46][long]") {
  const auto backend = GENERATE(from_range(kBackends));
  // Two swap whole pieces; among three, parts differ in length.
  const int workers = backend == Backend::gloo ? 2 : 3;
  // Whole sums and split ones; ByteScheduler's parts go the same way as the groups.
  const std::vector<TrainingMethod> methods{TrainingMethod::mg_wfbp, TrainingMethod::dear};
  auto job = job_of(backend, workers, methods, 4);
  edit_specs(*job, [](TrainingSpec& spec) { spec.packing = Packing::exponents; });
  run_to_end(*job);
  const double volume = 4.0 * 1'707'274 * 2 * (workers - 1) / workers;
  for (std::size_t i = 0; i < methods.size(); ++i) {
    std::set<std::string> digests;
    for (int rank = 0; rank < workers; ++rank) {
      const auto records = job->records_of<CellRecord>(rank);
      REQUIRE(records.size() == methods.size());
      const CellRecord& record = records[i];
      INFO(record.cell_id << " on rank " << rank << ": " << record.reason);
      REQUIRE(record.status == CellStatus::ok);
      CHECK(record.wrong == 0);
      CHECK(record.training->max_difference <= 1e-6);
      if (workers == 2) CHECK(record.training->max_difference == 0);
      CHECK(record.training->wire_bytes < 0.9 * volume);
      CHECK(record.training->wire_bytes > 0.8 * volume);
      const auto& memory = record.training->details.at("memory");
      CHECK(memory.at("held_bytes") <= memory.at("limit_bytes"));
      add_digest(record, digests);
    }
    CHECK(digests.size() == 1);
  }
}

TEST_CASE("bytes that the kernel counts stand beside the formula's", "[E-186][a-13]") {
  // For headers of Gloo's messages, and for the ends of the count.
  constexpr double kAdded = 1.01;
  const double volume = 4.0 * 1'707'274;
  const auto train = [](Backend backend, const std::vector<TrainingMethod>& methods) {
    auto job = job_of(backend, 2, methods, 0);
    job->config.protocol.iterations = job->config.protocol.min_iterations = 5;
    // Nothing but copies through shared memory, of which no byte is counted: few say so too.
    job->environment["OMPI_MCA_btl_vader_single_copy_mechanism"] = "none";
    if (backend != Backend::gloo)
      edit_specs(*job, [](TrainingSpec& spec) { spec.model = TrainingModel::cnn_small; });
    if (backend == Backend::gloo) {
      TrainingSpec packed = parsed_training(job->config.cells[0]);
      packed.packing = Packing::exponents;
      job->config.cells.push_back(training_cell(packed));
      job->config.cells.back().id = "packed";
    }
    run_to_end(*job);
    return job->records_of<CellRecord>(1);
  };
  for (const auto& record : train(Backend::gloo, {TrainingMethod::bsp_a2a, TrainingMethod::ddp})) {
    const TrainingFigures& figures = *record.training;
    INFO(record.cell_id << " " << figures.counted_bytes << " bytes");
    if (record.cell_id == "packed") {
      CHECK(figures.counted_bytes < 0.9 * volume);
      CHECK(figures.counted_bytes > figures.wire_bytes / kAdded);
      CHECK(figures.c2c_measured < 0.9 * figures.c2c_predicted);
      continue;
    }
    CHECK(figures.wire_bytes == volume);
    CHECK(figures.counted_bytes != figures.wire_bytes);
    CHECK(figures.counted_bytes > volume / kAdded);
    CHECK(figures.counted_bytes < volume * kAdded);
    CHECK_THAT(figures.c2c_measured,
               WithinRel(figures.c2c_predicted * figures.counted_bytes / volume, 1e-9));
  }
  auto alone = job_of(Backend::gloo, 1, {TrainingMethod::bsp_a2a}, 0);
  run_to_end(*alone);
  const auto lone = alone->records_of<CellRecord>(0);
  CHECK(lone.at(0).training->counted_bytes == 0);
  CHECK(lone.at(0).training->c2c_measured == 0);
#ifdef DYNAMICCL_TEST_OPENMPI
  const auto shared = train(Backend::openmpi, {TrainingMethod::bsp_a2a, TrainingMethod::dear});
  CHECK(shared[0].training->counted_bytes < 0);
  CHECK(shared[0].training->c2c_measured < 0);
  // Our own messages say themselves what they carry.
  CHECK(shared[1].training->counted_bytes < 0);
  CHECK_THAT(shared[1].training->c2c_measured, WithinRel(shared[1].training->c2c_predicted, 1e-9));
#endif
}

TEST_CASE("planted faults fail the cell", "[d-40]") {
  struct Planted {
    const char* fault;
    std::vector<TrainingMethod> methods;  ///< a cell each
  };
  const auto planted =
      GENERATE(Planted{"drop-gradient",
                       {TrainingMethod::bsp_a2a, TrainingMethod::ddp, TrainingMethod::dear}},
               Planted{"drop-gradient", {TrainingMethod::wfbp_ps}},
               Planted{"skip-last-update", {TrainingMethod::bytescheduler_a2a}});
  auto job = job_of(Backend::gloo, 2, planted.methods, 5);
  check_fault_is_seen(*job, planted.fault, "sequential oracle");
}

namespace {

void train_with_lars(const std::vector<TrainingMethod>& methods, bool served) {
  auto job = job_of(Backend::gloo, 2, methods, 4);
  edit_specs(*job, [](TrainingSpec& spec) {
    spec.lars = 0.01;
    spec.rate_warmup = 6;
  });
  run_to_end(*job);
  for (int rank = served ? 1 : 0; rank < job->config.ranks; ++rank)
    for (const auto& record : job->records_of<CellRecord>(rank)) {
      INFO(record.cell_id << ": " << record.reason);
      CHECK(record.status == CellStatus::ok);
      CHECK(record.wrong == 0);
    }
}

}  // namespace

TEST_CASE("LARS and a rate that rises train what one process would", "[d-81]") {
  const bool served = GENERATE(false, true);
  train_with_lars(served ? std::vector{TrainingMethod::bsp_ps}
                         : std::vector{TrainingMethod::bsp_a2a, TrainingMethod::mg_wfbp},
                  served);
}

TEST_CASE("LARS and a rate that rises go with every method", "[d-81][long]") {
  const bool served = GENERATE(false, true);
  train_with_lars(served ? kServer : ring_methods(Backend::gloo), served);
}

TEST_CASE("planted faults of the rate fail the cell", "[d-81][long]") {
  const auto [fault, synchronisation] =
      GENERATE(std::pair<std::string, Synchronisation>{"other-layer", Synchronisation::bsp},
               std::pair<std::string, Synchronisation>{"other-layer", Synchronisation::local},
               std::pair<std::string, Synchronisation>{"early-rate", Synchronisation::bsp});
  const bool locally = synchronisation == Synchronisation::local;
  auto job = job_of(Backend::gloo, 2, {TrainingMethod::bsp_a2a}, 4);
  edit_specs(*job, [locally](TrainingSpec& spec) {
    spec.lars = 0.01;
    spec.rate_warmup = 6;
    if (!locally) return;
    spec.synchronisation = Synchronisation::local;
    spec.local_steps = 2;
  });
  INFO(fault << (locally ? " with local steps" : ""));
  check_fault_is_seen(*job, fault, locally ? "replay in one process" : "sequential oracle");
}

TEST_CASE("one other bit in one rank's weights fails the cell", "[d-40]") {
  const auto method = GENERATE(TrainingMethod::wfbp_ps, TrainingMethod::dear);
  // The sequential process allows for rounding, so it cannot be what tells: without it, and with.
  auto job = job_of(Backend::gloo, 2, {method, method}, 0);
  TrainingSpec with_oracle = parsed_training(job->config.cells[1]);
  with_oracle.oracle = 5;
  job->config.cells[1] = training_cell(with_oracle);
  job->config.cells[1].id = "with oracle";
  job->faulty = true;
  job->environment["DYNAMICCL_TRAINING_FAULT"] = "off-by-one-bit";
  run_to_end(*job);
  for (const std::size_t cell : {0, 1}) {
    std::set<std::string> digests;
    for (int rank = 0; rank < job->config.ranks; ++rank) {
      const auto records = job->records_of<CellRecord>(rank);
      REQUIRE(records.size() == 2);
      const CellRecord& record = records[cell];
      INFO(record.reason);
      CHECK(record.status == CellStatus::failed);
      CHECK_THAT(record.reason, ContainsSubstring("1 weights are not the same bits"));
      CHECK_THAT(record.reason, ContainsSubstring(cell == 1 ? "after 5 steps" : "the last step"));
      REQUIRE(record.training);
      CHECK(record.training->max_difference <= 1e-6);
      add_digest(record, digests);
    }
    CHECK(digests.size() == 2);
  }
}
