#include "orchestrator/doctor/gpu_path.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>

using namespace dynamiccl;
using nlohmann::json;

namespace {

/// Four H200, every pair joined by 18 NVLinks over NVSwitches.
json h200x4(const char* path = "nvlink") {
  json p2p = json::array();
  for (int i = 0; i < 4; ++i) {
    json row = json::array();
    for (int j = 0; j < 4; ++j) row.push_back(i == j ? "self" : path);
    p2p.push_back(row);
  }
  return {{"system", {{"hostname", "gpu1"}, {"boot_id", "b"}}},
          {"gpu",
           {{"usable", 4},
            {"on_bus_nvidia", 4},
            {"nvlink", std::string_view(path) == "nvlink"},
            {"nvml", {{"count", 4}, {"p2p", p2p}}}}}};
}

const EnvironmentProfile& profile(const std::string& name) {
  static const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  return profiles.at(name);
}

GpuPath path_of(const std::string& name, int ranks = 4) {
  return predict_gpu_path(profile(name), h200x4(), ranks).path;
}

std::vector<std::string> obstacles(const std::string& name) {
  std::vector<std::string> found;
  for (const auto& obstacle : predict_gpu_path(profile(name), h200x4(), 4).obstacles)
    found.push_back(obstacle.what);
  return found;
}

}  // namespace

TEST_CASE("the foretold transport is the one that was measured on 4x H200") {
  // reports/measured/h200x4-2026-11: 324 us over NVLink against 37 ms and more at 64 MiB.
  const std::map<std::string, GpuPath> measured{{"bare-metal", GpuPath::p2p},
                                                {"single-docker", GpuPath::p2p},
                                                {"singularity", GpuPath::p2p},
                                                {"cross-docker-shared", GpuPath::p2p},
                                                {"cross-docker", GpuPath::net},
                                                {"cross-docker-all-gpus", GpuPath::net},
                                                {"cross-docker-shared-ipc", GpuPath::net},
                                                {"cross-docker-host-uts", GpuPath::net},
                                                {"cross-docker-host-network", GpuPath::net}};
  for (const auto& [name, path] : measured) {
    CAPTURE(name);
    CHECK(path_of(name) == path);
  }
}

TEST_CASE("one host id over containers fails with cuMem handles and works with legacy ones") {
  CHECK(path_of("cross-docker-one-hostid") == GpuPath::impossible);
  CHECK(obstacles("cross-docker-one-hostid") == std::vector<std::string>{"network namespace"});
  CHECK(path_of("cross-docker-one-hostid-no-cumem") == GpuPath::p2p);
}

TEST_CASE("every obstacle is named, for only all their flags together help") {
  CHECK(obstacles("cross-docker") == std::vector<std::string>{"host hash", "/dev/shm device",
                                                              "GPU visibility",
                                                              "network namespace"});
  CHECK(obstacles("cross-docker-host-uts") ==
        std::vector<std::string>{"/dev/shm device", "GPU visibility", "network namespace"});
  CHECK(obstacles("cross-docker-host-network") ==
        std::vector<std::string>{"host hash", "/dev/shm device", "GPU visibility"});
  CHECK(obstacles("cross-docker-shared").empty());
  for (const auto& obstacle : predict_gpu_path(profile("cross-docker"), h200x4(), 4).obstacles)
    CHECK_FALSE(obstacle.flag.empty());
}

TEST_CASE("the fixed profile is foretold to reach the GPUs' own links") {
  for (const char* name : {"cross-docker", "cross-docker-all-gpus", "cross-docker-one-hostid"}) {
    CAPTURE(name);
    const auto after = predict_gpu_path(with_gpu_path(profile(name)), h200x4(), 4);
    CHECK(after.path == GpuPath::p2p);
    CHECK(after.link == "nvlink");
  }
}

TEST_CASE("a shared folder is foretold where ranks stay apart, and offered for it") {
  CHECK(path_of("cross-docker-folder") == GpuPath::folder);
  CHECK_FALSE(obstacles("cross-docker-folder").empty());
  const auto offered = with_shared_folder(profile("cross-docker"));
  CHECK(predict_gpu_path(offered, h200x4(), 4).path == GpuPath::folder);
  CHECK(predict_gpu_path(with_gpu_path(offered), h200x4(), 4).path == GpuPath::p2p);
  // Ranks that NCCL takes for one host need no network.
  CHECK(predict_gpu_path(with_shared_folder(profile("bare-metal")), h200x4(), 4).path ==
        GpuPath::p2p);
}

TEST_CASE("what hides a peer leads to host memory, and so do settings and missing peer access") {
  auto hidden = profile("cross-docker-shared");
  hidden.gpus = GpuVisibility::one_per_rank;
  CHECK(predict_gpu_path(hidden, h200x4(), 4).path == GpuPath::shm);
  auto forbidden = profile("bare-metal");
  forbidden.environment["NCCL_P2P_DISABLE"] = "1";
  CHECK(predict_gpu_path(forbidden, h200x4(), 4).path == GpuPath::shm);
  forbidden.environment["NCCL_SHM_DISABLE"] = "1";
  CHECK(predict_gpu_path(forbidden, h200x4(), 4).path == GpuPath::net);
  CHECK(predict_gpu_path(profile("bare-metal"), h200x4("none"), 4).path == GpuPath::shm);
  CHECK(predict_gpu_path(profile("bare-metal"), h200x4("pcie"), 4).link == "pcie");
}

TEST_CASE("too many ranks, one rank and no GPU are told apart") {
  const auto crowded = predict_gpu_path(profile("bare-metal"), h200x4(), 5);
  CHECK(crowded.path == GpuPath::impossible);
  CHECK(crowded.obstacles.front().why.find("Duplicate GPU") != std::string::npos);
  CHECK(path_of("bare-metal", 1) == GpuPath::none);
  CHECK(predict_gpu_path(profile("bare-metal"), json::object(), 2).path == GpuPath::none);
  CHECK(predict_gpu_path(profile("bare-metal"), nullptr, 2).path == GpuPath::none);
}
