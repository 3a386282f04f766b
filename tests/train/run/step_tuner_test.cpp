// An agent and a table set the all-reduces of real trainers.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "core/wire/decisions_file.hpp"
#include "tests/train/training_job.hpp"
#include "tuner/job/decision_record.hpp"
#include "tuner/state/features.hpp"
#include "tuner/table/table.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// The same cell twice: with the library's own settings, and tuned.
std::unique_ptr<Job> pair_of(Backend backend, int workers, TrainingMethod method, int steps,
                             const std::string& tuner) {
  auto job = job_of(backend, workers, {method, method}, 3);
  edit_specs(*job, [&](TrainingSpec& spec) { spec.steps = steps; });
  TrainingSpec spec = parsed_training(job->config.cells[1]);
  spec.tuner = tuner;
  job->config.cells[1] = training_cell(spec);
  job->config.cells[1].id = "tuned";
  // What Open MPI needs to take an algorithm from its caller; `run` says it by itself.
  job->environment["OMPI_MCA_coll_tuned_use_dynamic_rules"] = "1";
  return job;
}

/// Every rank's two records; the weights of all are the same bits where sums have one order.
std::vector<CellRecord> tuned_records(const Job& job, bool one_order) {
  std::vector<CellRecord> tuned;
  std::set<std::string> digests;
  for (int rank = 0; rank < job.config.ranks; ++rank) {
    const auto records = job.records_of<CellRecord>(rank);
    REQUIRE(records.size() == 2);
    for (const CellRecord& record : records) {
      INFO(record.cell_id << " on rank " << rank << ": " << record.reason);
      REQUIRE(record.status == CellStatus::ok);
      CHECK(record.wrong == 0);
      if (one_order) CHECK(record.training->max_difference == 0);
      if (one_order || record.cell_id == "tuned") add_digest(record, digests);
    }
    tuned.push_back(records[1]);
  }
  CHECK(digests.size() == 1);
  return tuned;
}

std::vector<DecisionRecord> decisions_of(const Job& job) {
  return read_decisions(job.config.output_dir + "/" + kDecisionsFile);
}

void agent_sets_all_reduces(Backend backend) {
  INFO(name_of(backend));
  constexpr int kSteps = 30;
  const auto job = pair_of(backend, 2, TrainingMethod::bsp_a2a, kSteps, kOnlineTuner);
  run_to_end(*job);
  const auto records = tuned_records(*job, true);
  const auto& tuner = records[0].training->details.at("tuner");
  CHECK(tuner.at("mode") == "online");
  CHECK(tuner.at("steps") == kSteps + 1);  // the warm-up's too
  REQUIRE(tuner.at("keys").size() == 1);
  CHECK(tuner.at("keys")[0].at("settings") > 1);
  CHECK(!records[1].training->details.contains("tuner"));

  const auto decisions = decisions_of(*job);
  CHECK(tuner.at("decisions") == decisions.size());
  REQUIRE(decisions.size() > 10);
  CHECK(decisions.size() <= kSteps + 2);
  std::set<std::string> tried;
  for (const DecisionRecord& decision : decisions) {
    CHECK(decision.task_key == tuner.at("keys")[0].at("task"));
    CHECK_THAT(decision.regime_name, ContainsSubstring("bare-metal"));
    if (decision.kind != "final") CHECK(decision.reward < 0);
    tried.insert(decision.arm);
  }
  CHECK(decisions[0].kind == "reference");
  CHECK(tried.size() > 1);
  // What the table of sources promises of a training cell is what the run knew, no less, no more.
  std::size_t known = 0;
  for (const Feature& feature : feature_table()) {
    INFO(feature.name);
    const bool promised = !feature.source.training.empty();
    CHECK(decisions.back().state.contains(feature.name) == promised);
    known += promised ? 1 : 0;
  }
  CHECK(known >= 35);
}

}  // namespace

TEST_CASE("an agent sets the library's all-reduces step by step, and no weight changes",
          "[e-83][e-91][e-07][e-12][e-15][e-19][e-25][e-33][e-48]") {
  agent_sets_all_reduces(Backend::gloo);
}

TEST_CASE("an agent sets the all-reduces of MPI libraries step by step", "[e-83][long]") {
  agent_sets_all_reduces(GENERATE(Backend::openmpi, Backend::mpich));
}

TEST_CASE("messages of several sizes, order and workers are tuned alike", "[e-83][long]") {
  // Each library, method and number of workers at least once.
  const auto [backend, method, workers] = GENERATE(table<Backend, TrainingMethod, int>(
      {{Backend::openmpi, TrainingMethod::wfbp_a2a, 3},
       {Backend::mpich, TrainingMethod::mg_wfbp, 2},
       {Backend::gloo, TrainingMethod::bytescheduler_a2a, 3},
       {Backend::openmpi, TrainingMethod::bytescheduler_a2a, 2}}));
  INFO(name_of(backend) << ", " << name_of(method) << ", " << workers);
  const auto job = pair_of(backend, workers, method, 200, kOnlineTuner);
  run_to_end(*job);
  const auto records = tuned_records(*job, workers == 2);
  std::set<std::string> keys;
  for (const auto& key : records[0].training->details.at("tuner").at("keys"))
    keys.insert(key.at("task").get<std::string>());
  CHECK(keys.size() > (method == TrainingMethod::mg_wfbp ? 0 : 1));
  for (const DecisionRecord& decision : decisions_of(*job)) CHECK(keys.contains(decision.task_key));
}

TEST_CASE("a table sets the library's all-reduces from the first step on", "[long]") {
  const auto backend = GENERATE(from_range(kBackends));
  INFO(name_of(backend));
  const auto job = pair_of(backend, 2, TrainingMethod::bsp_a2a, 5, "some/where/tuned.json");
  const std::string algorithm = backend == Backend::gloo ? "ring" : "recursive_doubling";
  ConfigurationTable table;
  table.put_regime({"r", "somewhere else", nlohmann::json::object()});
  TableEntry entry;
  entry.key = {"r", {Collective::allreduce, {22}, 2, 1, Architecture::ring, backend}};
  entry.size = Bytes(1U << 22);
  entry.setting.algorithm = algorithm;
  entry.arm = algorithm;
  table.put(entry);
  write_table(table,
              job->config.output_dir + "/" + tuner_file(parsed_training(job->config.cells[1])));
  run_to_end(*job);
  const auto records = tuned_records(*job, true);
  const auto& tuner = records[0].training->details.at("tuner");
  CHECK(tuner.at("mode") == "table");
  CHECK(tuner.at("keys")[0].at("setting") == algorithm);
  // It says that it was made elsewhere.
  CHECK_THAT(tuner.at("notes")[0].get<std::string>(), ContainsSubstring("nearest"));
  const auto decisions = decisions_of(*job);
  REQUIRE(decisions.size() == 1);
  CHECK(decisions[0].kind == "final");
  CHECK(decisions[0].author.agent == "table");
  CHECK(decisions[0].arm == algorithm);
}

TEST_CASE("where switches sum, as declared, a training keeps the library's own settings",
          "[E-144]") {
  // Both ask the guard: an agent, and a table.
  const auto job = pair_of(Backend::gloo, 2, TrainingMethod::bsp_a2a, 12, kOnlineTuner);
  TrainingSpec by_table = parsed_training(job->config.cells[1]);
  by_table.tuner = "some/where/tuned.json";
  job->config.cells[0] = training_cell(by_table);
  job->config.cells[0].id = "by table";
  job->environment["DYNAMICCL_DECLARED"] = R"({"aggregation":"switchml"})";
  ConfigurationTable table;
  table.put_regime({"r", "somewhere else", nlohmann::json::object()});
  TableEntry entry;
  entry.key = {"r", {Collective::allreduce, {22}, 2, 1, Architecture::ring, Backend::gloo}};
  entry.size = Bytes(1U << 22);
  entry.setting.algorithm = entry.arm = "bcube";
  table.put(entry);
  write_table(table, job->config.output_dir + "/" + tuner_file(by_table));
  run_to_end(*job);
  for (const CellRecord& record : job->records_of<CellRecord>(0))
    CHECK(record.training->details.at("tuner").at("keys")[0].at("setting") == "library");
  tuned_records(*job, true);
  const auto decisions = decisions_of(*job);
  REQUIRE(decisions.size() == 2);
  for (const DecisionRecord& decision : decisions) {
    CHECK(decision.kind == "final");
    CHECK(decision.guard == "ina-passthrough");
    CHECK(decision.arm == "library");
  }
}

TEST_CASE("a table that is not there ends the cell before a step", "[long]") {
  const auto job = pair_of(Backend::gloo, 2, TrainingMethod::bsp_a2a, 5, "nowhere.json");
  job->start();
  CHECK(job->wait(kTimeoutS) != 0);
  CHECK_THAT(job->errors(), ContainsSubstring("tuner-"));
}
