#include "profiles/published/reference.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"
#include "profiles/strict_toml.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;

namespace {

const std::string kFigures = DYNAMICCL_SOURCE_DIR "/profiles/published/figures.toml";

ReferenceFigures published() {
  return parse_reference_figures(read_input_file(kFigures), kFigures);
}

}  // namespace

TEST_CASE("published ratios are times over bare metal's, in our words") {
  const auto figures = published();
  const auto broadcast =
      std::find_if(figures.ratios.begin(), figures.ratios.end(), [](const PublishedRatio& ratio) {
        return ratio.backend == "nccl" && ratio.collective == "broadcast" &&
               ratio.where == "micro-benchmark";
      });
  REQUIRE(broadcast != figures.ratios.end());
  CHECK(broadcast->environment == "cross-docker");
  CHECK(broadcast->architecture == "ps");
  CHECK_THAT(broadcast->ratio, WithinAbs(2.384 / 1.008, 1e-9));
  for (const auto& ratio : figures.ratios) {
    INFO(ratio.table << " " << ratio.collective << " " << ratio.environment);
    CHECK(ratio.architecture == (ratio.collective == "broadcast" ? "ps" : "ring"));
    CHECK(ratio.ratio > 0.5);
    CHECK(ratio.ratio < 5);
  }
}

TEST_CASE("published best and worst choices come in pairs") {
  const auto figures = published();
  for (const char* collective : {"broadcast", "gather", "allreduce"}) {
    INFO(collective);
    double best = 0;
    double worst = 0;
    for (const auto& extreme : figures.extremes) {
      if (extreme.collective == collective) (extreme.is_best ? best : worst) = extreme.seconds;
    }
    CHECK(best > 0);
    CHECK(worst > best);
  }
  CHECK_THAT(figures.testbed, ContainsSubstring("RTX 3080"));
  CHECK(figures.copy_shares.size() == 2);
}

TEST_CASE("published rankings list backends by their times, of one harness each",
          "[C-12][C-13][C-14]") {
  std::vector<std::string> lines;
  for (const auto& ranking : published().rankings) {
    std::string line = ranking.collective + ", " + ranking.where + ":";
    for (const auto& place : ranking.fastest_first) line += " " + place.backend;
    lines.push_back(line);
  }
  CHECK(lines ==
        std::vector<std::string>{"allreduce, micro-benchmark: nccl cuda-aware-mpi openmpi mpich",
                                 "allreduce, training: nccl gloo mpi",
                                 "broadcast, micro-benchmark: nccl cuda-aware-mpi",
                                 "gather, micro-benchmark: cuda-aware-mpi nccl"});
}

TEST_CASE("a missing table is named with its file") {
  CHECK_THROWS_AS(parse_reference_figures("schema_version = 1", "mine.toml"), Error);
  try {
    parse_reference_figures("schema_version = 1", "mine.toml");
  } catch (const Error& error) {
    CHECK_THAT(error.what(), ContainsSubstring("mine.toml:1:1: s000.testbed is missing"));
  }
}
