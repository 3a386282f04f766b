// The real trainers under the real launchers: every step is checked.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <set>
#include <string>

#include "tests/workers/train/training_job.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

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
  // A sum of two does not depend on its order, and servers add in rank order as the one process
  // does.
  const bool served =
      architecture_of(parse_named<TrainingMethod>(record.cell_id)) == Architecture::ps;
  if (workers == 2 || served) CHECK(record.training->max_difference == 0);
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
        add_digest(records[i], digests);
      }
      CHECK(digests.size() == 1);
    }
  }
}

TEST_CASE("every method trains a deep model as one process would", "[d-40][d-46]") {
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

TEST_CASE("packed gradients train the same weights with fewer bytes", "[d-40][d-46]") {
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

TEST_CASE("servers share the load and hold no more than they must", "[d-03]") {
  auto job = job_of(kBackends.back(), 2, kServer, 5, 2);
  run_to_end(*job);
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
  edit_specs(*job, [](TrainingSpec& spec) { spec.optimizer = OptimizerPlace::server; });
  job->start();
  const int code = job->wait(kTimeoutS);
  INFO(name_of(backend) << " " << workers << " workers\n" << job->errors());
  REQUIRE(code == 0);
  for (int rank = 0; rank < job->config.ranks; ++rank) {
    const auto records = job->records_of<CellRecord>(rank);
    REQUIRE(records.size() == kServer.size());
    for (const auto& record : records) check_cell(record, workers);
  }
}

TEST_CASE("epochs start anew on servers that are the optimizers too", "[d-03]") {
  std::set<std::string> digests;
  for (const auto place : {OptimizerPlace::worker, OptimizerPlace::server}) {
    auto job = job_of(Backend::gloo, 2, {TrainingMethod::bytescheduler_ps}, 0);
    edit_specs(*job, [&](TrainingSpec& spec) {
      spec.optimizer = place;
      spec.epochs = 2;
    });
    run_to_end(*job);
    const auto records = job->records_of<CellRecord>(1);
    REQUIRE(records.size() == 1);
    INFO(records[0].reason);
    REQUIRE(records[0].status == CellStatus::ok);
    add_digest(records[0], digests);
  }
  CHECK(digests.size() == 1);
}

TEST_CASE("planted faults fail the cell", "[d-40]") {
  const auto& [fault, method] =
      GENERATE(std::pair{"drop-gradient", TrainingMethod::bsp_a2a},
               std::pair{"drop-gradient", TrainingMethod::ddp},
               std::pair{"drop-gradient", TrainingMethod::wfbp_ps},
               std::pair{"drop-gradient", TrainingMethod::dear},
               std::pair{"skip-last-update", TrainingMethod::bytescheduler_a2a});
  auto job = job_of(Backend::gloo, 2, {method}, 5);
  job->faulty = true;
  job->environment["DYNAMICCL_TRAINING_FAULT"] = fault;
  job->start();
  REQUIRE(job->wait(kTimeoutS) == 0);
  for (int rank = 0; rank < job->config.ranks; ++rank) {
    const auto records = job->records_of<CellRecord>(rank);
    REQUIRE(records.size() == 1);
    CHECK(records[0].status == CellStatus::failed);
    CHECK_THAT(records[0].reason, ContainsSubstring("sequential oracle"));
  }
}

TEST_CASE("one other bit in one rank's weights fails the cell", "[d-40]") {
  // The sequential process allows for rounding, so it cannot be what tells.
  const int oracle = GENERATE(0, 5);
  const auto method = GENERATE(TrainingMethod::wfbp_ps, TrainingMethod::dear);
  auto job = job_of(Backend::gloo, 2, {method}, oracle);
  job->faulty = true;
  job->environment["DYNAMICCL_TRAINING_FAULT"] = "off-by-one-bit";
  run_to_end(*job);
  std::set<std::string> digests;
  for (int rank = 0; rank < job->config.ranks; ++rank) {
    const auto records = job->records_of<CellRecord>(rank);
    REQUIRE(records.size() == 1);
    const CellRecord& record = records[0];
    INFO(record.reason);
    CHECK(record.status == CellStatus::failed);
    CHECK_THAT(record.reason, ContainsSubstring("1 weights are not the same bits"));
    CHECK_THAT(record.reason, ContainsSubstring(oracle > 0 ? "after 5 steps" : "the last step"));
    REQUIRE(record.training);
    CHECK(record.training->max_difference <= 1e-6);
    add_digest(record, digests);
  }
  CHECK(digests.size() == 2);
}
