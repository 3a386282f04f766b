#include "cluster_rig.hpp"

#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 9> kNeeds{
    {{"dockerd", "docker.io"},
     {"docker", "docker.io"},
     {"slurmctld", "slurmctld"},
     {"slurmd", "slurmd"},
     {"srun", "slurm-client"},
     {"munged", "munge"},
     {"sshd", "openssh-server"},
     {"mpirun.openmpi", "openmpi-bin"},
     {"mpirun.mpich", "mpich"}}};

CommandResult script(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"bash", DYNAMICCL_SOURCE_DIR "/tests/e2e/cluster_rig.sh"});
  CommandOptions options;
  options.timeout = std::chrono::minutes(15);
  return run_command(arguments, options);
}

}  // namespace

const Rig& Rig::get() {
  static const Rig rig;
  if (!rig.why_.empty()) SKIP(rig.why_);
  return rig;
}

Rig::Rig() {
  if (geteuid() != 0) why_ = "the nodes are containers of an engine that root starts";
  for (const auto& [name, package] : kNeeds)
    if (why_.empty() && find_program(name).empty())
      why_ = std::string(name) + " is not in PATH: apt-get install " + package;
  if (!why_.empty()) return;
  std::string pattern = "/tmp/dyn-rig-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  folder_ = pattern;
  const auto began = std::chrono::steady_clock::now();
  const auto up = script({"up", folder_, "4", DYNAMICCL_SOURCE_DIR, DYNAMICCL_BINARY_DIR});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (up.exit_code == 0)
    std::printf("a head and 4 nodes with munge, slurmctld, slurmd and sshd: up in %.1f s\n",
                took.count());
  if (up.exit_code != 0) why_ = "no cluster of containers comes up here: " + up.err;
}

Rig::~Rig() {
  if (folder_.empty()) return;
  try {
    static_cast<void>(script({"down", folder_}));
  } catch (const std::exception&) {
    // The tests have ended; nobody is left to be told.
  }
}

CommandResult Rig::on(const std::string& host, std::vector<std::string> command) const {
  command.insert(command.begin(), {"exec", folder_, host});
  return script(command);
}

CommandResult Rig::program(const std::string& db, std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), kProgram);
  arguments.insert(arguments.begin() + 2, {"--db", db});
  return on("head", arguments);
}

nlohmann::json Rig::rows(const std::string& db, const std::string& sql) const {
  const auto answer = program(db, {"query", sql, "--json"});
  INFO(answer.err);
  REQUIRE(answer.exit_code == 0);
  return nlohmann::json::parse(answer.out);
}

std::string Rig::queue() const {
  return std::string(trim(on("head", {"squeue", "--noheader", "--states=PENDING,RUNNING"}).out));
}

void Rig::cap(const std::vector<std::string>& nodes, const std::string& rate) const {
  for (const auto& node : nodes) {
    const auto done = script({"cut", folder_, node, rate});
    INFO(done.err);
    REQUIRE(done.exit_code == 0);
  }
}

void Rig::delay(const std::string& node, const std::string& rate) const {
  const auto done = script({"delay", folder_, node, rate});
  INFO(done.err);
  REQUIRE(done.exit_code == 0);
}

CommandResult Rig::route(const std::string& node, const std::string& verb,
                         const std::string& to) const {
  return script({"blackhole", folder_, node, verb, to});
}

void Rig::file(const std::string& name, const std::string& text) const {
  std::ofstream(shared() + "/" + name) << text;
}

void check_measured(const Rig& rig, const std::string& db, const std::string& start) {
  CHECK(rig.rows(db, "SELECT count(*) AS n FROM launch WHERE status = 'ok'")[0]["n"] == 3);
  const auto hosts = rig.rows(
      db,
      "SELECT DISTINCT json_extract(facts_json, '$.system.hostname') AS host FROM launch_rank "
      "ORDER BY host");
  CHECK(hosts == nlohmann::json{{{"host", "node1"}}, {{"host", "node2"}}});
  const auto container = rig.rows(db, "SELECT DISTINCT container_json AS text FROM launch");
  for (const auto& row : container) {
    const auto facts = nlohmann::json::parse(row["text"].get<std::string>());
    CHECK(facts["cluster"]["start"] == start);
    CHECK(facts["cluster"]["placement"] == "node1 (2 ranks), node2 (2 ranks)");
  }
  for (const char* node : {"node1", "node2"})
    CHECK(rig.on(node, {"pgrep", "-f", "dynamiccl-worker"}).out.empty());
}

}  // namespace dynamiccl
