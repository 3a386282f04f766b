// What the kernel says of a worker's memory while it trains, against what its method says it holds.
#include <catch2/catch_test_macros.hpp>

#include "tests/train/training_job.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

namespace {

void check_memory(bool served) {
  // Larger than what libraries and allocators take: 45 MB of gradients.
  const std::vector<TrainingMethod> methods =
      served ? std::vector{TrainingMethod::bsp_ps, TrainingMethod::wfbp_ps}
             : std::vector{TrainingMethod::mg_wfbp, TrainingMethod::dear};
  auto job = job_of(kBackends.back(), 2, methods, 0);
  edit_specs(*job, [](TrainingSpec& spec) {
    spec.model = TrainingModel::resnet18;
    spec.partition = spec.credit = spec.bucket = Bytes(4U << 20);
    spec.batch = 1;
    spec.samples = 32;
    spec.steps = 2;
  });
  run_to_end(*job);
  for (const CellRecord& record : job->records_of<CellRecord>(job->config.ranks - 1)) {
    INFO(record.cell_id << ": " << record.reason);
    REQUIRE(record.status == CellStatus::ok);
    const auto& memory = record.training->details.at("memory");
    const double copy = memory.at("unit_bytes");
    const double held = memory.at("held_bytes");
    const double grown = memory.at("peak_extra_bytes");
    CHECK(held <= copy);
    // The rest is what libraries keep of messages that came before they were asked for: more of
    // it where the cores are busy, and less than half a copy.
    CHECK(grown <= held + copy / 2);
  }
}

}  // namespace

TEST_CASE("a worker's memory peaks at no more than one extra copy of the gradients",
          "[d-03][d-40]") {
  check_memory(false);
}

TEST_CASE("with a server a worker's memory peaks at no more than one extra copy of the gradients",
          "[d-03][d-40][long]") {
  check_memory(true);
}
