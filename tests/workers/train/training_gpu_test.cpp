// The trainers on GPUs over NCCL: skipped, with the reason, where that cannot be.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <set>
#include <string>

#include "tests/workers/train/training_job.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

TEST_CASE("every method trains on GPUs what one process would train", "[d-40][d-46]") {
  const int workers = GENERATE(2, 4);
  auto job = job_of(Backend::nccl, workers, kRing, 20);
  INFO(workers << " workers");
  run_to_end(*job);
  for (std::size_t i = 0; i < kRing.size(); ++i) {
    std::set<std::string> digests;
    for (int rank = 0; rank < workers; ++rank) {
      const auto records = job->records_of<CellRecord>(rank);
      REQUIRE(records.size() == kRing.size());
      const CellRecord& record = records[i];
      if (record.status == CellStatus::unsupported) SKIP(record.reason);
      INFO(record.cell_id << " on rank " << rank << ": " << record.reason);
      REQUIRE(record.status == CellStatus::ok);
      CHECK(record.wrong == 0);
      REQUIRE(record.training);
      CHECK(record.training->max_difference >= 0);
      CHECK(record.training->max_difference <= 1e-5);
      // A sum of two does not depend on its order.
      if (workers == 2) CHECK(record.training->max_difference == 0);
      digests.insert(record.training->parameters_sha256);
    }
    CHECK(digests.size() == 1);
  }
}
