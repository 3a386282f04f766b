#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <random>

#include "profiles/detect/noise.hpp"
#include "profiles/detect/regime.hpp"
#include "tests/profiles/detect/fixture_tree.hpp"

using namespace dynamiccl;
using dynamiccl::test::FixtureTree;
using nlohmann::json;

namespace {

void check_facts(const json& facts) {
  for (const Probe& probe : all_probes()) {
    const std::string name(probe.name);
    CAPTURE(name);
    REQUIRE(facts.contains(name));
    // "*" marks a probe that threw: damage must be met value by value.
    const auto unknown = facts[name].value("unknown", json::object());
    CHECK(unknown.value("*", "") == "");
  }
  const std::string text = facts.dump();  // throws on bytes that are no UTF-8
  CHECK(text.size() < 200000);
  CHECK_FALSE(derive_regime({facts, facts}, {}).id.empty());
}

}  // namespace

TEST_CASE("damaged files are null with a reason, never a crash or a guess") {
  const auto facts = FixtureTree("corrupt").facts();
  check_facts(facts);
  for (const auto& [section, key] : {std::pair{"system", "boot_id"},
                                     {"system", "kernel"},
                                     {"system", "machine_id_hash"},
                                     {"namespaces", "net"},
                                     {"namespaces", "ipc"},
                                     {"namespaces", "uts"},
                                     {"namespaces", "pid"},
                                     {"namespaces", "mnt"},
                                     {"namespaces", "cgroup"},
                                     {"process", "affinity"},
                                     {"process", "capabilities"},
                                     {"process", "cpu"},
                                     {"cpu", "model"},
                                     {"cpu", "online"},
                                     {"cpu", "cores"},
                                     {"cpu", "smt_active"},
                                     {"cpu", "transparent_huge_pages"},
                                     {"memory", "total_bytes"},
                                     {"memory", "available_bytes"},
                                     {"memory", "swap_bytes"},
                                     {"cgroup", "memory_limit_bytes"},
                                     {"cma", "yama_ptrace_scope"}}) {
    CAPTURE(section, key);
    CHECK(facts[section][key].is_null());
    CHECK_FALSE(facts[section]["unknown"][key].get<std::string>().empty());
  }
  CHECK(facts["system"]["hostname"] == "?(bad?");
  const auto& port = facts["rdma"]["devices"][1]["ports"][0];
  CHECK(port["active"].is_null());
  CHECK(port["rate_gbit_per_s"].is_null());
  CHECK(facts["gpu"]["devices"][0]["pcie_generation"].is_null());
  for (const auto& library : facts["libraries"]["loaded"]) CHECK(library["build_id"].is_null());
  CHECK(facts["libraries"]["collective_library"] == "nccl");
}

TEST_CASE("trees with random damage never crash a probe") {
  const char* names[] = {"infiniband-sharp", "roce", "nvswitch", "pcie-only", "docker-container"};
  for (unsigned round = 0; round < 30; ++round) {
    CAPTURE(round);
    std::mt19937 random(round);
    const FixtureTree tree(names[round % std::size(names)]);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(tree.path())) {
      // A link may lead out of the tree, to the machine's own files.
      if (entry.is_symlink() || !entry.is_regular_file() || random() % 3 != 0) continue;
      std::string text(random() % 64, '\0');
      for (char& c : text)
        c = static_cast<char>(random() % 4 == 0 ? random() : "0-9,:/ \n"[random() % 8]);
      std::ofstream(entry.path(), std::ios::binary) << text;
    }
    check_facts(tree.facts());
  }
}

TEST_CASE("a pipe, a folder or a huge file in a file's place does not hold or fill the program") {
  const FixtureTree tree("roce");
  const auto replace = [&](const char* path) {
    std::filesystem::remove_all(tree.path() / path);
    return (tree.path() / path).string();
  };
  REQUIRE(mkfifo(replace("proc/sys/kernel/hostname").c_str(), 0600) == 0);
  std::filesystem::create_directory(replace("proc/cpuinfo"));
  std::ofstream(replace("proc/self/cgroup")) << std::string(10 << 20, 'x');
  std::ofstream(replace("proc/self/mountinfo")) << std::string(10 << 20, '\n');
  const auto facts = tree.facts();
  check_facts(facts);
  CHECK(facts["system"]["unknown"]["hostname"] == "/proc/sys/kernel/hostname: not a regular file");
  CHECK(facts["cpu"]["model"].is_null());
}

TEST_CASE("noise readings of a damaged or empty tree are null with a reason") {
  for (const char* name : {"corrupt", "nothing"}) {
    const FixtureTree tree(name);
    const auto noise = probe_noise(ProbeRoot(tree.path().string()));
    CHECK(noise["load_1min"].is_null());
    CHECK(noise["cpu_jiffies"].is_null());
    CHECK(noise["psi_cpu_some_total_us"].is_null());
    const auto between = noise_between(noise, noise);
    CHECK(between["steal_share"].is_null());
    CHECK_FALSE(between["unknown"]["steal_share"].get<std::string>().empty());
  }
  CHECK(noise_between(nullptr, 7)["seconds"].is_null());
}
