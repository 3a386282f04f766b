// The trainers on GPUs over NCCL: skipped, with the reason, where that cannot be.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/train/training_job.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

int gpu_count() {
  std::error_code error;
  int count = 0;
  for (const auto& gpu : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error))
    count += gpu.is_directory() ? 1 : 0;
  return count;
}

/// Skips where no GPU is here, or the trainer was built without; whatever else is refused is a
/// failure of the test.
void skip_without_gpu(const CellRecord& record) {
  if (record.status != CellStatus::unsupported) return;
  const bool built_without = record.reason.find("built without CUDA") != std::string::npos ||
                             record.reason.find("computes on no GPU here") != std::string::npos;
  if (gpu_count() == 0 || built_without) SKIP(record.reason);
}

/// Gives every rank a GPU. Fewer GPUs than ranks: they share them, which NCCL allows between hosts
/// alone.
void share_gpus(Job& job) {
  const int gpus = gpu_count();
  job.hosts_apart = gpus < job.config.ranks;
  for (int rank = 0; rank < job.config.ranks; ++rank)
    job.config.gpu_of_rank.push_back(rank % std::max(gpus, 1));
}

/// Trains the job's cells and requires that every rank ends with the same weights, those of one
/// process.
/// @param of_two how far two workers may be off: by nothing, as a sum of two does not depend on its
/// order
/// @param server_gpu whether the first rank has one
void check_against_one_process(Job& job, int workers, double of_two = 0, bool server_gpu = true) {
  share_gpus(job);
  if (!server_gpu) job.config.gpu_of_rank.front() = -1;
  INFO(workers << " workers, " << gpu_count() << " GPUs");
  run_to_end(job);
  for (std::size_t i = 0; i < job.config.cells.size(); ++i) {
    std::set<std::string> digests;
    for (int rank = 0; rank < job.config.ranks; ++rank) {
      const auto records = job.records_of<CellRecord>(rank);
      REQUIRE(records.size() == job.config.cells.size());
      const CellRecord& record = records[i];
      skip_without_gpu(record);
      INFO(record.cell_id << " on rank " << rank << ": " << record.reason);
      REQUIRE(record.status == CellStatus::ok);
      CHECK(record.wrong == 0);
      REQUIRE(record.training);
      CHECK(record.training->max_difference >= 0);
      CHECK(record.training->max_difference <= (workers == 2 ? of_two : 1e-5));
      add_digest(record, digests);
    }
    CHECK(digests.size() == 1);
  }
}

}  // namespace

TEST_CASE("every method trains on GPUs what one process would train", "[d-40][d-46]") {
  const int workers = GENERATE(2, 4);
  const bool served = GENERATE(false, true);
  auto job = job_of(Backend::nccl, workers, served ? kServer : kRing, 20);
  check_against_one_process(*job, workers);
}

TEST_CASE("packed gradients train the same on GPUs", "[packing]") {
  auto packed = job_of(Backend::nccl, 2, kRing, 5);
  edit_specs(*packed, [](TrainingSpec& spec) { spec.packing = Packing::exponents; });
  check_against_one_process(*packed, 2);
}

TEST_CASE("servers that are the optimizers train the same on GPUs", "[d-03]") {
  auto served = job_of(Backend::nccl, 2, kServer, 5, 2);
  edit_specs(*served, [](TrainingSpec& spec) { spec.optimizer = OptimizerPlace::server; });
  // The server's processor rounds a product and a sum apart, a GPU's fused update does not.
  check_against_one_process(*served, 2, 1e-5);
}

TEST_CASE("a server's GPU sums, and a chief's for a server without one", "[d-04][d-05]") {
  const int workers = GENERATE(2, 4);
  const auto sums = GENERATE(ServerSums::gpu, ServerSums::chief);
  const auto place = GENERATE(OptimizerPlace::worker, OptimizerPlace::server);
  auto job = job_of(Backend::nccl, workers, {TrainingMethod::bsp_ps, TrainingMethod::wfbp_ps}, 5);
  edit_specs(*job, [&](TrainingSpec& spec) {
    spec.server_sums = sums;
    spec.optimizer = place;
  });
  // A worker's fused update rounds elsewhere than a server's.
  check_against_one_process(*job, workers, place == OptimizerPlace::server ? 1e-5 : 0,
                            sums == ServerSums::gpu);
}

namespace {

/// Trains one cell and requires that it ends as its replay does.
void check_replayed(Job& job) {
  share_gpus(job);
  run_to_end(job);
  for (int rank = 0; rank < job.config.ranks; ++rank) {
    for (const CellRecord& record : job.records_of<CellRecord>(rank)) {
      skip_without_gpu(record);
      INFO(record.cell_id << " on rank " << rank << ": " << record.reason);
      CHECK(record.status == CellStatus::ok);
      CHECK(record.wrong == 0);
      REQUIRE(record.training);
      CHECK(record.training->max_difference >= 0);
    }
  }
}

}  // namespace

TEST_CASE("rounds and neighbours on GPUs train what their replay does",
          "[d-15][d-17][d-28][d-30]") {
  const bool neighbours = GENERATE(false, true);
  const auto how = GENERATE(Synchronisation::local, Synchronisation::post_local,
                            Synchronisation::adacomm, Synchronisation::easgd);
  if (neighbours && how != Synchronisation::local) return;
  const auto method = neighbours ? TrainingMethod::d_psgd : TrainingMethod::wfbp_a2a;
  auto job = job_of(Backend::nccl, 2, {method}, 5);
  edit_specs(*job, [&](TrainingSpec& spec) {
    spec.synchronisation = how;
    spec.local_steps = 3;
    if (how == Synchronisation::post_local) spec.local_after = 4;
    if (how == Synchronisation::adacomm) spec.adapt_every = 3;
  });
  check_replayed(*job);
}

TEST_CASE("encoded gradients on GPUs are what the host's codecs make of them",
          "[d-58][d-64][d-69]") {
  const auto codec = GENERATE(Codec::fp16, Codec::bf16, Codec::int8, Codec::onebit, Codec::ef_sign,
                              Codec::signsgd, Codec::terngrad, Codec::qsgd, Codec::natural,
                              Codec::topk, Codec::randomk, Codec::dgc, Codec::powersgd);
  INFO(name_of(codec));
  auto job = job_of(Backend::nccl, 2, {TrainingMethod::bsp_a2a, TrainingMethod::wfbp_a2a}, 5);
  edit_specs(*job, [&](TrainingSpec& spec) { spec.compression = codec; });
  check_replayed(*job);
}

TEST_CASE("servers answer workers on GPUs each by itself", "[d-13][d-14][d-21]") {
  const auto how = GENERATE(Synchronisation::ssp, Synchronisation::asp, Synchronisation::backup,
                            Synchronisation::staggered, Synchronisation::lag);
  INFO(name_of(how));
  auto job = job_of(Backend::nccl, 2, {TrainingMethod::bsp_ps}, 5);
  edit_specs(*job, [&](TrainingSpec& spec) { spec.synchronisation = how; });
  check_replayed(*job);
}

// As experiments/gpu_training_check.toml, which says why few steps are compared.
TEST_CASE("deep models train on GPUs what one process would train", "[d-40][d-46]") {
  const int workers = GENERATE(2, 4);
  const auto model = GENERATE(TrainingModel::resnet18, TrainingModel::bert_base);
  const bool transformer = model == TrainingModel::bert_base;
  const std::vector<TrainingMethod> methods =
      transformer ? std::vector{TrainingMethod::mg_wfbp, TrainingMethod::dear} : kRing;
  auto job = job_of(Backend::nccl, workers, methods, transformer ? 3 : 2);
  edit_specs(*job, [&](TrainingSpec& spec) {
    spec.model = model;
    spec.batch = transformer ? 8 : 32;
    spec.samples = 512;
    spec.sequence = 128;
    spec.learning_rate = 0.001;
    spec.partition = spec.credit = spec.bucket = Bytes(4U << 20);
  });
  check_against_one_process(*job, workers);
}

TEST_CASE("a dead rank ends training over NCCL with its error, in time", "[d-40]") {
  if (gpu_count() == 0) SKIP("no GPU");
  const auto method = GENERATE(TrainingMethod::mg_wfbp, TrainingMethod::dear);
  auto job = job_of(Backend::nccl, 2, {method}, 0);
  share_gpus(*job);
  // Connections break, which NCCL sees; memory that two GPUs share does not.
  job->hosts_apart = true;
  job->config.protocol.iterations = job->config.protocol.min_iterations = 10'000'000;
  job->config.protocol.cell_time_cap = Micros(1e9);
  job->start();
  const HelloRecord hello = wait_for_hello(*job, 1);
  REQUIRE(hello.pid > 0);
  // In the middle of steps, long after the model, its profile and the cost table.
  std::this_thread::sleep_for(std::chrono::seconds(25));
  kill(static_cast<pid_t>(hello.pid), SIGKILL);
  const int code = job->wait(60);
  INFO(job->errors());
  CHECK(code > 0);
  CHECK_THAT(job->errors(), ContainsSubstring("nccl", Catch::CaseSensitive::No));
}

TEST_CASE("lower precisions train the same on all GPUs, and much as fp32 does", "[d-40]") {
  auto job = job_of(Backend::nccl, 2, std::vector(3, TrainingMethod::wfbp_a2a), 5);
  job->config.protocol.iterations = job->config.protocol.min_iterations = 40;
  const std::vector<Precision> precisions{Precision::fp32, Precision::tf32, Precision::bf16};
  for (std::size_t i = 0; i < precisions.size(); ++i) {
    WorkCell& cell = job->config.cells[i];
    cell.id = std::string(name_of(precisions[i]));
    cell.knobs["precision"] = cell.id;
    cell.knobs["batch"] = "32";
    cell.knobs["samples"] = "512";
    cell.knobs["learning_rate"] = "0.01";
  }
  // Bits on all ranks, and what one process trains in the same precision.
  check_against_one_process(*job, 2);
  const auto records = job->records_of<CellRecord>(0);
  std::set<std::string> digests;
  for (const auto& record : records) {
    INFO(record.cell_id);
    digests.insert(record.training->parameters_sha256);
    const auto losses = record.training->details.at("losses").get<std::vector<double>>();
    // Each step has its own loss; the first one guesses among ten kinds.
    REQUIRE(losses.size() == 41);
    CHECK(std::abs(losses.front() - std::log(10)) < 0.3);
    CHECK(record.training->last_loss < 0.9 * losses.front());
    // A loss is that of the weights so far, so weights near those of fp32 give a curve near its.
    const auto of_fp32 = records[0].training->details.at("losses").get<std::vector<double>>();
    for (std::size_t i = 0; i < losses.size(); ++i)
      CHECK(std::abs(losses[i] - of_fp32[i]) < 0.05 * losses.front());
  }
  // Otherwise a precision was not used at all.
  CHECK(digests.size() == precisions.size());
}
