// Trainers whose gradients go through servers: dedicated ones, colocated ones, servers that are the
// optimizers.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <chrono>
#include <csignal>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/train/training_job.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

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

TEST_CASE("servers that are the optimizers train the same weights", "[d-03][d-40][long]") {
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

TEST_CASE("colocated servers train what one process would train, bit for bit",
          "[d-03][d-40][long]") {
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

TEST_CASE("a dead rank among colocated servers ends the launch, in time", "[d-40][long]") {
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
  for (const auto placement : {ServerPlacement::dedicated, ServerPlacement::colocated}) {
    const int servers = placement == ServerPlacement::colocated ? 0 : 1;
    const std::vector<TrainingMethod> twice(2, TrainingMethod::bytescheduler_ps);
    auto job = job_of(Backend::gloo, 2, twice, 0, servers);
    auto place = OptimizerPlace::worker;
    edit_specs(*job, [&](TrainingSpec& spec) {
      spec.optimizer = std::exchange(place, OptimizerPlace::server);
      spec.placement = placement;
      spec.epochs = 2;
    });
    job->config.cells[1].id += " as optimizer";
    run_to_end(*job);
    const auto records = job->records_of<CellRecord>(1);
    REQUIRE(records.size() == 2);
    for (const CellRecord& record : records) {
      INFO(record.cell_id << ": " << record.reason);
      REQUIRE(record.status == CellStatus::ok);
      add_digest(record, digests);
    }
  }
  CHECK(digests.size() == 1);
}
