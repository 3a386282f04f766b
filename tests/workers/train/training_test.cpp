// The real trainers under the real launchers: every step is checked.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>

#include "tests/workers/train/training_job.hpp"

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

/// Bytes that a worker sums for all; 0 where it is no server.
std::uint64_t own_shard(const CellRecord& record) {
  const auto& details = record.training->details;
  std::uint64_t bytes = 0;
  if (details.value("placement", "") != "colocated") return bytes;
  for (const auto& piece : details.at("pieces"))
    if (piece[2] == record.rank) bytes += 4 * piece[1].get<std::uint64_t>();
  return bytes;
}

/// A worker holds at most one more copy of the gradients, a server one slot per worker and the
/// answer, a worker that is a server too both.
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
  CHECK(memory.at("limit_bytes") ==
        volume + static_cast<std::uint64_t>(workers + 1) * own_shard(record));
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

TEST_CASE("a step sends every piece once, split or whole", "[d-49][dear]") {
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

TEST_CASE("bytes that the kernel counts stand beside the formula's", "[E-186][a-13]") {
  // A few percent for what sockets and Gloo's messages add, and for the ends of the count.
  constexpr double kAdded = 1.05;
  const double volume = 4.0 * 1'707'274;
  const auto train = [](Backend backend, const std::vector<TrainingMethod>& methods,
                        Packing packing) {
    auto job = job_of(backend, 2, methods, 0);
    job->config.protocol.iterations = job->config.protocol.min_iterations = 10;
    // Nothing but copies through shared memory.
    job->environment["OMPI_MCA_btl_vader_single_copy_mechanism"] = "none";
    edit_specs(*job, [&](TrainingSpec& spec) { spec.packing = packing; });
    run_to_end(*job);
    return job->records_of<CellRecord>(1);
  };
  for (const auto& record :
       train(Backend::gloo, {TrainingMethod::bsp_a2a, TrainingMethod::ddp}, Packing::none)) {
    const TrainingFigures& figures = *record.training;
    INFO(record.cell_id << " " << figures.counted_bytes << " bytes");
    CHECK(figures.wire_bytes == volume);
    CHECK(figures.counted_bytes != figures.wire_bytes);
    CHECK(figures.counted_bytes > volume / kAdded);
    CHECK(figures.counted_bytes < volume * kAdded);
    CHECK_THAT(figures.c2c_measured,
               WithinRel(figures.c2c_predicted * figures.counted_bytes / volume, 1e-9));
  }
  for (const auto& record : train(Backend::gloo, {TrainingMethod::bsp_a2a}, Packing::exponents)) {
    const TrainingFigures& figures = *record.training;
    CHECK(figures.counted_bytes < 0.9 * volume);
    CHECK(figures.counted_bytes > figures.wire_bytes / kAdded);
    CHECK(figures.c2c_measured < 0.9 * figures.c2c_predicted);
  }
  auto alone = job_of(Backend::gloo, 1, {TrainingMethod::bsp_a2a}, 0);
  run_to_end(*alone);
  const auto lone = alone->records_of<CellRecord>(0);
  CHECK(lone.at(0).training->counted_bytes == 0);
  CHECK(lone.at(0).training->c2c_measured == 0);
#ifdef DYNAMICCL_TEST_OPENMPI
  const auto shared =
      train(Backend::openmpi, {TrainingMethod::bsp_a2a, TrainingMethod::dear}, Packing::none);
  CHECK(shared[0].training->counted_bytes < 0);
  CHECK(shared[0].training->c2c_measured < 0);
  // Our own messages say themselves what they carry.
  CHECK(shared[1].training->counted_bytes < 0);
  CHECK_THAT(shared[1].training->c2c_measured, WithinRel(shared[1].training->c2c_predicted, 1e-9));
#endif
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

TEST_CASE("colocated servers train what one process would train, bit for bit", "[d-03][d-40]") {
  const auto backend = GENERATE(from_range(kBackends));
  const auto& [workers, optimizer] =
      GENERATE(std::pair{2, OptimizerPlace::worker}, std::pair{4, OptimizerPlace::worker},
               std::pair{3, OptimizerPlace::server});
  // As many ranks as workers, all of them servers.
  auto job = job_of(backend, workers, kServer, 20, 0);
  edit_specs(*job, [place = optimizer](TrainingSpec& spec) {
    spec.placement = ServerPlacement::colocated;
    spec.optimizer = place;
  });
  job->start();
  const int code = job->wait(kTimeoutS);
  INFO(name_of(backend) << " " << workers << " workers, optimizer on " << name_of(optimizer) << "\n"
                        << job->errors());
  REQUIRE(code == 0);
  REQUIRE(job->config.ranks == workers);
  const std::uint64_t volume = 4 * facts_of(TrainingModel::mlp, 1).parameters;
  const auto others = static_cast<std::uint64_t>(workers - 1);
  std::set<std::string> digests;
  std::vector<std::uint64_t> summed(kServer.size(), 0);
  for (int rank = 0; rank < workers; ++rank) {
    const auto records = job->records_of<CellRecord>(rank);
    REQUIRE(records.size() == kServer.size());
    for (std::size_t i = 0; i < records.size(); ++i) {
      const CellRecord& record = records[i];
      check_cell(record, workers);
      CHECK(record.training->role == "worker");
      CHECK(record.training->max_difference == 0);
      const std::uint64_t shard = own_shard(record);
      CHECK(shard > 0);
      summed[i] += shard;
      // Pushes to the other servers, answers to all other workers.
      CHECK(record.training->wire_bytes == static_cast<double>(volume - shard + others * shard));
      const std::uint64_t slots = others + (optimizer == OptimizerPlace::server ? 1 : 0);
      CHECK(record.training->details.at("memory").at("held_bytes") == volume + slots * shard);
      digests.insert(record.training->parameters_sha256);
    }
  }
  for (const auto bytes : summed) CHECK(bytes == volume);
  // Methods differ in when they send, not in what they train.
  CHECK(digests.size() == 1);
}

TEST_CASE("some of the workers may be servers, and only so many as there are", "[d-03]") {
  auto job = job_of(Backend::gloo, 3, kServer, 3, 0);
  edit_specs(*job, [&](TrainingSpec& spec) {
    spec.placement = ServerPlacement::colocated;
    spec.servers = spec.method == TrainingMethod::bsp_ps ? 4 : 2;
  });
  run_to_end(*job);
  for (const int rank : {0, 1, 2}) {
    const auto records = job->records_of<CellRecord>(rank);
    REQUIRE(records.size() == kServer.size());
    for (const auto& record : records) {
      if (record.cell_id == "bsp-ps") {
        CHECK(record.status == CellStatus::unsupported);
        CHECK(record.reason == "4 colocated servers are more than 3 ranks");
        continue;
      }
      check_cell(record, 3);
      CHECK(record.training->max_difference == 0);
      CHECK((own_shard(record) > 0) == (rank < 2));
      CHECK(record.training->details.at("servers") == 2);
    }
  }
}

TEST_CASE("a dead rank among colocated servers ends the launch, in time", "[d-40]") {
  const auto backend = GENERATE(from_range(kBackends));
  const auto method = GENERATE(TrainingMethod::wfbp_ps, TrainingMethod::bytescheduler_ps);
  auto job = job_of(backend, 2, {method}, 0, 0);
  edit_specs(*job, [](TrainingSpec& spec) { spec.placement = ServerPlacement::colocated; });
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

TEST_CASE("epochs start anew on servers that are the optimizers too", "[d-03]") {
  std::set<std::string> digests;
  const auto train = [&](OptimizerPlace place, ServerPlacement placement) {
    const int servers = placement == ServerPlacement::colocated ? 0 : 1;
    auto job = job_of(Backend::gloo, 2, {TrainingMethod::bytescheduler_ps}, 0, servers);
    edit_specs(*job, [&](TrainingSpec& spec) {
      spec.optimizer = place;
      spec.placement = placement;
      spec.epochs = 2;
    });
    run_to_end(*job);
    const auto records = job->records_of<CellRecord>(1);
    REQUIRE(records.size() == 1);
    INFO(records[0].reason);
    REQUIRE(records[0].status == CellStatus::ok);
    add_digest(records[0], digests);
  };
  for (const auto place : {OptimizerPlace::worker, OptimizerPlace::server}) {
    for (const auto placement : {ServerPlacement::dedicated, ServerPlacement::colocated})
      train(place, placement);
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
