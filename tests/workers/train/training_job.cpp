#include "tests/workers/train/training_job.hpp"

#include <catch2/catch_test_macros.hpp>

namespace dynamiccl::testing {

const std::vector<TrainingMethod> kRing{TrainingMethod::bsp_a2a, TrainingMethod::wfbp_a2a,
                                        TrainingMethod::mg_wfbp, TrainingMethod::bytescheduler_a2a,
                                        TrainingMethod::dear};
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
    spec.servers = servers;
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
    TrainingSpec spec = training_spec(cell);
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

}  // namespace dynamiccl::testing
