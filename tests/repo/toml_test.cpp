#include <catch2/catch_test_macros.hpp>

#include "orchestrator/plan/plan.hpp"
#include "profiles/strict_toml.hpp"
#include "tests/repo/source_tree.hpp"

using namespace dynamiccl;

TEST_CASE("every TOML file of the tree parses") {
  const auto files = source_files({"profiles", "experiments"}, {".toml"});
  CHECK(files.size() > 5);
  for (const auto& file : files) {
    INFO(file.path);
    CHECK_NOTHROW(parse_toml(file.text, file.path));
  }
}

TEST_CASE("every ready experiment is a plan with something to measure") {
  const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  Capabilities machine;
  machine.gpus = 8;  // else the experiments for GPUs have nothing to measure
  for (const auto& file : source_files({"experiments"}, {".toml"})) {
    INFO(file.path);
    const auto experiment = parse_experiment(file.text, file.path, {}, profiles);
    CHECK_FALSE(experiment.description.empty());
    CHECK(make_plan(experiment, machine, nullptr).possible_cells() > 0);
  }
}

TEST_CASE("the quickstart covers what the first answer needs") {
  const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  const std::string path = DYNAMICCL_SOURCE_DIR "/experiments/quickstart.toml";
  const auto experiment = read_experiment(path, {}, profiles);
  CHECK(experiment.protocol.launches >= 5);
  CHECK(experiment.protocol.cells.verify);
  std::size_t cpu_groups = 0;
  for (const auto& group : make_plan(experiment, {}, nullptr).groups) {
    if (group.backend == Backend::nccl || group.backend == Backend::cuda_aware_mpi) continue;
    ++cpu_groups;
    CHECK(group.possible_cells() >= 20);  // 5 operations x 4 sizes
  }
  CHECK(cpu_groups == 24);  // 4 environments x 3 backends x 2 architectures
}
