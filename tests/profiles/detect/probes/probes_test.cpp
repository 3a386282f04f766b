#include "profiles/detect/probes/probe.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <set>

#include "tests/profiles/detect/fixture_tree.hpp"

using namespace dynamiccl;
using dynamiccl::test::FixtureTree;
using nlohmann::json;

namespace {

json interface_named(const json& facts, const std::string& name) {
  for (const auto& interface : facts["network"]["interfaces"])
    if (interface["name"] == name) return interface;
  return nullptr;
}

}  // namespace

TEST_CASE("a probe is one row of the table, and names are unique") {
  std::set<std::string_view> names;
  for (const Probe& probe : all_probes()) {
    CHECK(names.insert(probe.name).second);
    CHECK(probe.run != nullptr);
  }
  CHECK(names.size() >= 15);
}

TEST_CASE("the BLAS that programs get is known by where its links lead") {
  CHECK(FixtureTree("docker-container").facts()["libraries"]["blas"] == "reference");
  const auto none = FixtureTree("nothing").facts();
  CHECK(none["libraries"]["blas"].is_null());
}

TEST_CASE("host facts carry no environment and no process libraries") {
  const auto host = FixtureTree("infiniband-sharp").host_facts();
  CHECK_FALSE(host.contains("environment"));
  CHECK_FALSE(host.contains("libraries"));
  CHECK(host.contains("namespaces"));
}

TEST_CASE("InfiniBand with SHARP is found with rate, plugin and GPUDirect", "[B-16][B-18][B-20]") {
  const auto facts = FixtureTree("infiniband-sharp").facts();
  const auto& devices = facts["rdma"]["devices"];
  REQUIRE(devices.size() == 3);
  const auto& port = devices[0]["ports"][0];
  CHECK(port["fabric"] == "infiniband");
  CHECK(port["rate_gbit_per_s"] == 400.0);
  CHECK(port["active"] == true);
  CHECK(devices[0]["driver"] == "mlx5_core");
  CHECK(devices[2]["ports"][0]["active"] == false);
  CHECK(facts["rdma"]["usable_devices"] == 2);
  CHECK(facts["rdma"]["gpudirect_peermem"] == true);
  CHECK(facts["rdma"]["gpudirect_dmabuf_possible"] == true);
  const auto& aggregation = facts["aggregation"];
  CHECK(aggregation["collnet_requested"] == true);
  CHECK(aggregation["collnet_possible"] == true);
  CHECK(aggregation["sharp_libraries"].size() == 2);
  CHECK(aggregation["collnet_plugins"][0] == "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so");
  CHECK(interface_named(facts, "ib0")["kind"] == "ipoib");
  CHECK(facts["gpu"]["nvlink"] == true);
}

TEST_CASE("RoCE is told from InfiniBand and plain Ethernet has its tier", "[B-16][B-18]") {
  const auto facts = FixtureTree("roce").facts();
  const auto& port = facts["rdma"]["devices"][0]["ports"][0];
  CHECK(port["link_layer"] == "Ethernet");
  CHECK(port["fabric"] == "roce-v2");
  CHECK(interface_named(facts, "enp1s0f0")["tier"] == "100GbE");
  CHECK(interface_named(facts, "enp1s0f0")["mtu_bytes"] == 9000);
  CHECK(interface_named(facts, "eno1")["tier"] == "10GbE");
  CHECK(interface_named(facts, "eno1")["driver"] == "ixgbe");
  CHECK(facts["aggregation"]["collnet_possible"] == false);
  CHECK(facts["gpu"]["usable"] == 0);
  CHECK(facts["gpu"]["sharing_mode"].is_null());
}

TEST_CASE("NVSwitch and NVLink are found, NVML's word first", "[B-14][B-27]") {
  const FixtureTree tree("nvswitch");
  const auto gpu = tree.facts()["gpu"];
  CHECK(gpu["on_bus_nvidia"] == 4);
  CHECK(gpu["nvswitches"] == 4);
  CHECK(gpu["nvlink"] == true);
  CHECK(gpu["nvlink_evidence"] == "NVML: 72 active links");
  CHECK(gpu["devices"][0]["pcie_generation"] == 5);
  CHECK(gpu["devices"][0]["pcie_width"] == 16);
  CHECK(gpu["devices"][0]["model"] == "NVIDIA H200");
  CHECK(gpu["sharing_mode"] == "dedicated");
  CHECK(gpu["driver_version"] == "570.86.15");
  // Without NVML the switches on the bus still tell.
  std::filesystem::remove(tree.path() / "live.json");
  const auto bare = tree.facts()["gpu"];
  CHECK(bare["nvml"].is_null());
  CHECK(bare["nvlink"] == true);
  CHECK(bare["nvlink_evidence"] == "4 NVSwitches on the PCI bus");
}

TEST_CASE("PCIe-only GPUs have no NVLink, and without NVML that is not guessed", "[B-13][B-15]") {
  const FixtureTree tree("pcie-only");
  const auto gpu = tree.facts()["gpu"];
  CHECK(gpu["nvlink"] == false);
  CHECK(gpu["devices"][0]["pcie_generation"] == 3);
  std::filesystem::remove(tree.path() / "live.json");
  const auto bare = tree.facts()["gpu"];
  CHECK(bare["nvlink"].is_null());
  CHECK(bare["unknown"]["nvlink"].get<std::string>().starts_with("NVML tells it, but: "));
}

TEST_CASE("MIG instances and an MPS server are found", "[B-23]") {
  const FixtureTree tree("pcie-only");
  std::filesystem::create_directories(tree.path() / "proc/driver/nvidia/capabilities/gpu0/mig/gi1");
  CHECK(tree.facts()["gpu"]["sharing_mode"] == "mig");
  std::filesystem::remove_all(tree.path() / "proc/driver/nvidia/capabilities");
  std::filesystem::create_directories(tree.path() / "tmp/nvidia-mps/control");
  CHECK(tree.facts()["gpu"]["sharing_mode"] == "mps");
}

TEST_CASE("of a machine of which nothing can be read, everything is null with a reason") {
  const auto facts = FixtureTree("nothing").facts();
  CHECK(facts["container"]["runtime"] == "none");
  CHECK(facts["rdma"]["devices"].empty());
  CHECK(facts["network"]["interfaces"].empty());
  for (const auto& [section, key] : {std::pair{"system", "hostname"},
                                     {"system", "boot_id"},
                                     {"namespaces", "net"},
                                     {"process", "affinity"},
                                     {"cpu", "model"},
                                     {"cpu", "cores"},
                                     {"memory", "total_bytes"},
                                     {"shm", "device"},
                                     {"cma", "allowed"},
                                     {"process", "nice"},
                                     {"process", "autogroup"},
                                     {"cgroup", "version"},
                                     {"cgroup", "cpu_weight"},
                                     {"cgroup", "nr_throttled"},
                                     {"gpu", "on_bus_nvidia"},
                                     {"gpu", "nvlink"},
                                     {"libraries", "loaded"},
                                     {"environment", "variables"}}) {
    CAPTURE(section, key);
    REQUIRE(facts[section].contains(key));
    CHECK(facts[section][key].is_null());
    CHECK_FALSE(facts[section]["unknown"][key].get<std::string>().empty());
  }
}

TEST_CASE("system, CPU, memory and cgroup facts are read from their files", "[B-27]") {
  const auto facts = FixtureTree("infiniband-sharp").facts();
  CHECK(facts["system"]["hostname"] == "ib-node-1");
  CHECK(facts["system"]["distribution"] == "Ubuntu 22.04.5 LTS");
  CHECK(facts["system"]["virtualization"] == "none");
  // The id itself is confidential.
  CHECK(facts["system"]["machine_id_hash"].get<std::string>().size() == 16);
  CHECK(facts.dump().find("0123456789abcdef0123456789abcdef") == std::string::npos);
  CHECK(facts["cpu"]["model"] == "Intel(R) Xeon(R) Platinum 8480C");
  CHECK(facts["cpu"]["cores"] == 4);
  CHECK(facts["cpu"]["core_cpus"][1] == json::array({1, 5}));
  CHECK(facts["cpu"]["socket_cpus"] == json::array({{0, 1, 4, 5}, {2, 3, 6, 7}}));
  CHECK(facts["cpu"]["die_cpus"] == facts["cpu"]["socket_cpus"]);
  CHECK(facts["cpu"]["numa_nodes"]["node1"] == "4-7");
  CHECK(facts["cpu"]["transparent_huge_pages"] == "madvise");
  CHECK(facts["memory"]["total_bytes"] == 2113454080ULL * 1024);
  CHECK(facts["process"]["affinity"] == json::array({0, 1, 2, 3, 4, 5, 6, 7}));
  CHECK(facts["process"]["cpu"] == 3);
  CHECK(facts["process"]["uid"] == 1000);
  CHECK(facts["process"]["capabilities"]["sys_ptrace"] == false);
  CHECK(facts["cma"]["yama_ptrace_scope"] == 1);
  // The tightest limit of the cgroup and its ancestors.
  CHECK(facts["cgroup"]["version"] == 2);
  CHECK(facts["cgroup"]["cpu_limit_cores"] == 16.0);
  CHECK(facts["cgroup"]["memory_limit_bytes"] == 68719476736ULL);
  CHECK(facts["cgroup"]["nr_throttled"] == 7);
  CHECK(facts["namespaces"]["net"] == 4026531840ULL);
  CHECK(facts["namespaces"]["initial"]["uts"] == true);
}

TEST_CASE("what a rank gets beside others is told: nice value, autogroup and group's weight") {
  const auto v2 = FixtureTree("infiniband-sharp").facts();
  CHECK(v2["process"]["nice"] == 0);
  CHECK(v2["cgroup"]["cpu_weight"] == 0.5);
  const FixtureTree tree("docker-container");
  CHECK(tree.facts()["process"]["nice"] == -10);
  CHECK(tree.facts()["process"]["autogroup"] == "/autogroup-16 nice 0");
  // No group above shares out CPUs.
  CHECK(tree.facts()["cgroup"]["cpu_weight"].is_null());
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((tree.path() / path).parent_path());
    std::ofstream(tree.path() / path) << text;
  };
  write("proc/self/cgroup", "1:cpu:/a/b\n");
  write("sys/fs/cgroup/cpu/a/cpu.shares", "2048\n");
  CHECK(tree.facts()["cgroup"]["cpu_weight"] == 2.0);
}

TEST_CASE("a Docker container is recognised by what the engine leaves", "[B-11]") {
  const auto facts = FixtureTree("docker-container").facts();
  CHECK(facts["container"]["runtime"] == "docker");
  CHECK(facts["container"]["id"] == "aaaaaaaaaaaa");
  CHECK(facts["container"]["evidence"].size() == 2);
  CHECK(facts["namespaces"]["initial"]["uts"] == false);
  // A veth claims 10 Gbit/s, which says nothing.
  CHECK(interface_named(facts, "eth0")["kind"] == "veth");
  CHECK(interface_named(facts, "eth0")["tier"] == "virtual");
}

TEST_CASE("Singularity and Podman are recognised, also inside images of another engine",
          "[B-09][B-12]") {
  const FixtureTree tree("docker-container");
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((tree.path() / path).parent_path());
    std::ofstream(tree.path() / path) << text;
  };
  write("proc/self/mountinfo",
        "9 8 0:5 / / rw - overlay overlay "
        "rw,lowerdir=/var/lib/apptainer/mnt/session/overlay-lowerdir\n");
  CHECK(tree.facts()["container"]["runtime"] == "singularity");
  write("proc/self/mountinfo", "9 8 0:5 / / rw - overlay overlay rw\n");
  write("live.json", R"({"environment": {"APPTAINER_CONTAINER": "/x.sif"}})");
  CHECK(tree.facts()["container"]["runtime"] == "singularity");
  std::filesystem::remove(tree.path() / "live.json");
  write("run/.containerenv", "engine=\"podman\"\n");
  CHECK(tree.facts()["container"]["runtime"] == "podman");
}

TEST_CASE("a marker file on a machine's own disk does not make it a container", "[B-10]") {
  const FixtureTree tree("roce");
  std::ofstream(tree.path() / ".dockerenv") << "";
  const auto container = tree.facts()["container"];
  CHECK(container["runtime"] == "none");
  REQUIRE(container["evidence"].size() == 1);
  CHECK(container["evidence"][0]["counts"] == false);
}

TEST_CASE("declarations are marked as declared, and absent ones say so", "[B-20][B-21][B-31]") {
  const FixtureTree tree("roce");
  const auto aggregation = tree.facts({"switchml", "fat-tree", ""})["aggregation"];
  CHECK(aggregation["declared_aggregation"]["value"] == "switchml");
  CHECK(aggregation["declared_aggregation"]["how"] == "declared");
  CHECK(aggregation["declared_topology"]["value"] == "fat-tree");
  CHECK(aggregation["declared_setting"].is_null());
}
