#include "profiles/published/training_studies.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"
#include "profiles/strict_toml.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kStudies = DYNAMICCL_SOURCE_DIR "/profiles/published/figures.toml";

TrainingStudies studies() { return parse_training_studies(read_input_file(kStudies), kStudies); }

}  // namespace

TEST_CASE("the taxonomy's techniques have their levels, and the tuner its own between them",
          "[D-56][D-57]") {
  const auto all = studies();
  const auto placed = [&](const std::string& name) {
    return *std::find_if(all.taxonomy.begin(), all.taxonomy.end(),
                         [&](const auto& technique) { return technique.name == name; });
  };
  CHECK(placed("SSP").level == 1);
  CHECK(placed("SSP").dimension == "synchronisation");
  CHECK(placed("SSP").lossy);
  CHECK(placed("sparsification").lossy);
  CHECK(placed("MG-WFBP").level == 2);
  CHECK_FALSE(placed("MG-WFBP").lossy);
  CHECK(placed("fat-tree").level == 3);
  CHECK(placed("fat-tree").dimension == "topology");
  CHECK(all.tuner_level == 2.5);
}

TEST_CASE("published speed-ups are by link, model, method and workers, in our words") {
  const auto all = studies();
  const auto published = [&](const char* link, const char* model, const char* method, int workers) {
    return *std::find_if(all.speedups.begin(), all.speedups.end(), [&](const auto& one) {
      return one.link == link && one.model == model && one.method == method &&
             one.workers == workers;
    });
  };
  CHECK(published("100Gb-IB-RDMA", "bert-base", "mg-wfbp", 32).low == 23.21);
  CHECK(published("100Gb-IB-RDMA", "resnet50", "bytescheduler-ps", 4).high == 4.01);
  CHECK(published("100Gb-IB-RDMA", "bert-large", "", 4).low == 1.2);
  CHECK(published("10GbE-TCP", "bert-large", "wfbp-ps", 32).low == 2.1);
  CHECK(published("10GbE-TCP", "bert-large", "wfbp-ps", 32).high == 2.4);
  // These equal the ones of the slow link.
  CHECK(published("100GbE-TCP", "resnet50", "wfbp-ps", 32).doubtful);
  CHECK_FALSE(published("100GbE-TCP", "bert-base", "wfbp-ps", 32).doubtful);
  // Seven methods and the best of them; three models; 4 to 32 GPUs on the fast link, 32 on the
  // others.
  CHECK(all.speedups.size() == 7 * 3 * (4 + 1 + 1) + 5);
}

TEST_CASE("which of two methods is faster is published pair by pair", "[A-58]") {
  const auto all = studies();
  REQUIRE(all.claims.size() == 5);
  const auto& large = all.claims[1];
  CHECK(large.text == "WFBP-PS over WFBP-A2A, strongest at 32");
  CHECK(large.faster == "wfbp-ps");
  CHECK(large.slower == "wfbp-a2a");
  CHECK(large.models == PublishedClaim::Models::all);
  // Over all others, of its models alone.
  CHECK(all.claims[2].faster == "mg-wfbp");
  CHECK(all.claims[2].slower.empty());
  CHECK(all.claims[2].models == PublishedClaim::Models::low_intensity);
  CHECK(all.claims[3].faster == "bytescheduler-ps");
  CHECK(all.claims[3].models == PublishedClaim::Models::high_intensity);
  CHECK(all.claims[4].faster.empty());
  CHECK(all.claims[4].slower == "bytescheduler-a2a");
}

TEST_CASE("published trade-offs keep a label per property and technique") {
  const auto all = studies();
  const auto label = [](const std::vector<PublishedLabel>& labels, const char* property,
                        const char* technique) {
    return std::find_if(labels.begin(), labels.end(),
                        [&](const auto& one) {
                          return one.property == property && one.technique == technique;
                        })
        ->label;
  };
  CHECK(label(all.architecture, "server bottleneck", "ps") == "yes");
  CHECK(label(all.architecture, "heterogeneity", "gossip") == "high");
  CHECK(label(all.scheduling, "fights small tensors", "mg_wfbp") == "yes");
  CHECK(label(all.scheduling, "critical path aware", "priority") == "yes");
  CHECK(all.budget.ring_steps == 391);
  CHECK(all.budget.server_steps == 521);
}

TEST_CASE("a published method that is none of ours is an error, not a row without a partner") {
  std::string text = read_input_file(kStudies);
  const auto at = text.find("method = \"MG-WFBP\"");
  REQUIRE(at != std::string::npos);
  text.replace(at, 18, "method = \"MG-WFBQ\"");
  try {
    parse_training_studies(text, "mine.toml");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK_THAT(error.what(), ContainsSubstring("training method \"MG-WFBQ\" is none of ours") &&
                                 ContainsSubstring("mg-wfbp"));
  }
}
