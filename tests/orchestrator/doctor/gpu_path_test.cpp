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

TEST_CASE("one host id over containers fails, with cuMem handles and without") {
  // reports/measured/h200x4-2026-11 and h200x2-2026-11: neither came up.
  CHECK(path_of("cross-docker-one-hostid") == GpuPath::impossible);
  CHECK(obstacles("cross-docker-one-hostid") == std::vector<std::string>{"network namespace"});
  CHECK(path_of("cross-docker-one-hostid-no-cumem") == GpuPath::impossible);
  CHECK(obstacles("cross-docker-one-hostid-no-cumem") == std::vector<std::string>{"CUDA IPC"});
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

TEST_CASE("containers that stay apart are one host by settings or by a library") {
  CHECK(path_of("cross-docker-folder") == GpuPath::shm);
  CHECK(path_of("cross-docker-one-host") == GpuPath::shm);
  CHECK(path_of("cross-docker-one-host-all-gpus") == GpuPath::p2p);
  CHECK(obstacles("cross-docker-one-host-all-gpus").empty());
  CHECK(path_of("singularity-apart") == GpuPath::net);
  CHECK(path_of("singularity-apart-folder") == GpuPath::p2p);
  CHECK(path_of("singularity-apart-one-host") == GpuPath::p2p);
}

TEST_CASE("one host is offered as the containers see their GPUs") {
  const auto own = with_one_host(profile("cross-docker"));
  CHECK(one_host_way(profile("cross-docker")) == OneHostWay::settings);
  CHECK(own.shared_tmpfs == "/dev/shm");
  CHECK(own.network == Sharing::private_);
  CHECK(predict_gpu_path(own, h200x4(), 4).path == GpuPath::shm);
  const auto all = with_one_host(profile("cross-docker-all-gpus"));
  CHECK(one_host_way(profile("cross-docker-all-gpus")) == OneHostWay::library);
  CHECK(predict_gpu_path(all, h200x4(), 4).path == GpuPath::p2p);
  // What is offered leaves nothing behind where the namespaces may be shared after all.
  for (const auto& offered : {own, all}) {
    const auto shared = with_gpu_path(offered);
    CHECK(predict_gpu_path(shared, h200x4(), 4).path == GpuPath::p2p);
    CHECK(shared.shared_tmpfs.empty());
  }
  auto other = profile("cross-docker");
  other.environment["LD_PRELOAD"] = "/lib/libother.so";
  CHECK(with_gpu_path(other).environment.at("LD_PRELOAD") == "/lib/libother.so");
}

TEST_CASE("settings and missing peer access lead to host memory; a hidden peer needs them") {
  auto hidden = profile("cross-docker-shared");
  hidden.gpus = GpuVisibility::one_per_rank;
  // CUDA error 101: NCCL tries the peer's memory although its GPU is not visible.
  CHECK(predict_gpu_path(hidden, h200x4(), 4).path == GpuPath::impossible);
  hidden.environment["NCCL_P2P_DISABLE"] = "1";
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
