#include "workers/measure/barrier_check.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/train/idle_communicator.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A barrier that lets everybody through.
class OpenBarrier final : public dynamiccl::testing::IdleCommunicator {
 public:
  using IdleCommunicator::IdleCommunicator;
  void library_barrier() override {}
};

}  // namespace

TEST_CASE("a barrier that waits for nobody is wrong data, and names the rank that had not come") {
  OpenBarrier second(1, 2);
  auto verdict = check_barrier(second);
  // On a busy machine this rank may itself be away for as long as it should have waited.
  for (int again = 0; again < 20 && verdict.wrong == 0; ++again) verdict = check_barrier(second);
  CHECK(verdict.checked == 2);
  CHECK(verdict.wrong == 1);
  CHECK_THAT(verdict.first_wrong, ContainsSubstring("but must be at least 1000 us in it: rank 0 "
                                                    "had not come"));
}

TEST_CASE("a library without a collective refuses the call") {
  dynamiccl::testing::IdleCommunicator none(0, 1);
  CHECK_THROWS_WITH(none.library_barrier(), ContainsSubstring("algorithms() does not offer"));
}
