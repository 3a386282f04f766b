#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "tuner/action/algorithm_rows.hpp"
#include "workers/backends/nccl_settings.hpp"

using namespace dynamiccl;

TEST_CASE("a forced algorithm is forced for its function alone", "[C-37][C-38]") {
  CallShape shape;
  shape.algorithm = "tree/ll128";
  const auto settings = nccl_settings(shape);
  CHECK(settings.algorithm == "allreduce:tree");
  CHECK(settings.protocol == "allreduce:ll128");
  CHECK(describe(settings) == "tree/ll128");
  shape.algorithm = "library";
  CHECK(nccl_settings(shape) == NcclSettings{});
  CHECK(describe(NcclSettings{}) == "library");
}

TEST_CASE("cells with different knobs get different communicators", "[C-05]") {
  CallShape shape;
  shape.knobs = {{"max_ctas", "16"}};
  const auto settings = nccl_settings(shape);
  CHECK(settings.max_ctas == 16);
  CHECK_FALSE(settings.min_ctas);
  CHECK(settings != NcclSettings{});
  CHECK(describe(settings) == "16 CTAs at most");
}

TEST_CASE("knobs that NCCL does not have, and values out of range, are refused", "[C-05]") {
  CallShape shape;
  shape.knobs = {{"max_cta", "16"}};
  REQUIRE(nccl_unsupported(shape));
  CHECK(nccl_unsupported(shape)->find("max_ctas") != std::string::npos);
  for (const char* value : {"0", "65", "x", "", "4 "}) {
    shape.knobs = {{"max_ctas", value}};
    CHECK(nccl_unsupported(shape));
  }
  shape.knobs = {{"max_ctas", "64"}};
  CHECK_FALSE(nccl_unsupported(shape));
  shape.collective = Collective::alltoall;
  shape.in_place = true;
  CHECK(nccl_unsupported(shape));
}

TEST_CASE("plans know what a cell of NCCL may name") {
  for (const auto& entry : NameTable<Collective>::entries) {
    const auto planned = offered_algorithms(Backend::nccl, entry.value);
    // Of pull and push our own algorithms run, which read none of these.
    if (!has_library_call(entry.value)) continue;
    for (const auto& name : nccl_algorithms(entry.value))
      CHECK(std::find(planned.begin(), planned.end(), name) != planned.end());
  }
}

TEST_CASE("trees are offered where one host has them", "[C-37]") {
  const auto has_tree = [](Collective collective) {
    const auto names = nccl_algorithms(collective);
    return std::find(names.begin(), names.end(), "tree") != names.end();
  };
  CHECK(has_tree(Collective::allreduce));
  CHECK_FALSE(has_tree(Collective::broadcast));
  CHECK(nccl_algorithms(Collective::alltoall) == std::vector<std::string>{"library"});
}
