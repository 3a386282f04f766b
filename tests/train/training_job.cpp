#include "tests/train/training_job.hpp"

#include <catch2/catch_test_macros.hpp>

namespace dynamiccl::testing {

namespace {

/// Of the trainer's own exchanges: a new method is held against the oracle from its row on.
std::vector<TrainingMethod> methods_that_sum(SumPlace place) {
  std::vector<TrainingMethod> methods;
  for (const TrainingMethodRow& row : kTrainingMethods)
    if (row.sums == place && !row.engine) methods.push_back(row.method);
  return methods;
}

}  // namespace

const std::vector<TrainingMethod> kRing = methods_that_sum(SumPlace::all_reduce);
std::vector<TrainingMethod> ring_methods(Backend backend) {
  std::vector<TrainingMethod> methods = kRing;
  if (backend == Backend::gloo) methods.push_back(TrainingMethod::ddp);
  return methods;
}

const std::vector<TrainingMethod> kServer = methods_that_sum(SumPlace::server);

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

std::unique_ptr<Job> job_of(Backend backend, int workers,
                            const std::vector<TrainingMethod>& methods, int oracle, int servers) {
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
    spec.servers = architecture == Architecture::ps ? servers : 0;
    WorkCell cell = training_cell(spec);
    cell.id = std::string(name_of(method));
    job->config.cells.push_back(cell);
  }
  return job;
}

void run_to_end(Job& job, double timeout_s) {
  job.start();
  const int code = job.wait(timeout_s);
  INFO(job.errors());
  REQUIRE(code == 0);
}

void edit_specs(Job& job, const std::function<void(TrainingSpec&)>& edit) {
  for (WorkCell& cell : job.config.cells) {
    TrainingSpec spec = parsed_training(cell);
    edit(spec);
    const auto id = cell.id;
    cell = training_cell(spec);
    cell.id = id;
  }
}

void add_digest(const CellRecord& record, std::set<std::string>& digests) {
  REQUIRE(record.training);
  const std::string& digest = record.training->parameters_sha256;
  CHECK(digest.size() == (record.training->role == "server" ? 0 : 64));
  if (!digest.empty()) digests.insert(digest);
}

std::uint64_t own_shard(const CellRecord& record) {
  const auto& details = record.training->details;
  std::uint64_t bytes = 0;
  if (details.value("placement", "") != "colocated") return bytes;
  for (const auto& piece : details.at("pieces"))
    if (piece[2] == record.rank) bytes += 4 * piece[1].get<std::uint64_t>();
  return bytes;
}

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

void check_fault_is_seen(Job& job, const std::string& fault, const std::string& seen) {
  job.faulty = true;
  job.environment["DYNAMICCL_TRAINING_FAULT"] = fault;
  run_to_end(job);
  for (int rank = 0; rank < job.config.ranks; ++rank) {
    const auto records = job.records_of<CellRecord>(rank);
    REQUIRE(records.size() == job.config.cells.size());
    for (const CellRecord& record : records) {
      INFO(record.cell_id << " on rank " << rank << ": " << record.reason);
      CHECK(record.status == CellStatus::failed);
      CHECK(record.reason.find(seen) != std::string::npos);
    }
  }
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

}  // namespace dynamiccl::testing
