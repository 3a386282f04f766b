#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>

#include "cluster_rig.hpp"
#include "containers/image.hpp"
#include "core/vocabulary/json.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

/// Two nodes as namespaces of this machine, each with an engine of its own, and a script for a
/// third one where programs are started; $F is their folder, $RUN the program's beginning, $ENGINE
/// the engine's on a node.
CommandResult on_nodes_with_engines(const std::string& name, const std::string& script) {
  if (geteuid() != 0) SKIP("the nodes are namespaces, made by root");
  const bool podman = name == "podman";
  for (const char* program :
       {"nsenter", "slurmd", "munged", podman ? "runc" : "dockerd", podman ? "podman" : "docker"})
    if (find_program(program).empty()) SKIP(std::string(program) + " is not in PATH");
  std::string folder = "/tmp/dyn-ns-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  CommandOptions options;
  options.timeout = std::chrono::minutes(20);
  // What Podman needs on such nodes is part of its command.
  const std::string settings = "CONTAINERS_CONF=" + folder + "/containers.conf";
  const std::string list = podman ? fmt::format(R"(["env","{}","podman"])", settings) : "docker";
  options.environment = {
      {"F", folder},
      {"NODE_ENGINES", name},
      {"TAR", prepare_worker_image({}).folder + "/rootfs.tar"},
      {"ENGINE", podman ? "env " + settings + " podman" : "docker"},
      {"RUN", fmt::format("{} run {} --db {}/nodes.sqlite --set "
                          "axes.environment=[\"cross-docker-host-network\"] --set "
                          "cluster.interface=\"eth0\" --set cluster.engine={} --set "
                          "protocol.launch_timeout=240s",
                          kProgram, kExperiment, folder, list)}};
  auto result = run_command(
      {"unshare", "--mount", "--propagation", "private", "bash",
       DYNAMICCL_SOURCE_DIR "/tests/e2e/namespace_slurm.sh", folder, "bash", "-c", script},
      options);
  CHECK(run_command({"pgrep", "-f", folder}).out.empty());
  CHECK(run_command({"find", "/sys/fs/cgroup", "-path", "*dynamiccl-*docker*"}).out.empty());
  fs::remove_all(folder);
  return result;
}

/// A container for each rank and for each node, by ssh, by job steps and by MPI's launchers; every
/// way ends with no container left.
void check_every_way(const std::string& engine) {
  const auto run = on_nodes_with_engines(
      engine,
      "set -o pipefail; mkdir $F/profiles; printf 'name = \"one-per-node\"\\nextends = "
      "\"cross-docker-host-network\"\\n"
      "ranks_per_container = 64\\n' >$F/profiles/one-per-node.toml; "
      "for way in \"--hosts node1:2,node2:2 --remote-shell $F/into\" \"--slurm --nodes 2\" "
      "\"--slurm=mpirun --nodes 2\"; do $RUN $way --out $F/out --profiles $F/profiles --set '"
      "axes.environment=[\"cross-docker-host-network\",\"one-per-node\"]' || exit; "
      "for node in node1 node2; do $F/into $node $ENGINE ps --all --quiet | sed 's/^/left: /' || "
      "exit; done; done; echo; " +
          std::string(kProgram) +
          " query \"SELECT json_extract(container_json, '$.cluster.start') AS start, backend, "
          "environment, json_extract(container_json, '$.engine') AS engine, count(DISTINCT "
          "json_extract(facts_json, '$.system.hostname')) AS containers FROM launch l JOIN "
          "v_launch v ON v.launch_row = l.id JOIN launch_rank r ON r.launch_id = l.id WHERE "
          "l.status = 'ok' GROUP BY 1, 2, 3\" --json --db $F/nodes.sqlite");
  INFO(run.out << run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.out.find("left: ") == std::string::npos);
  const auto rows = nlohmann::json::parse(run.out.substr(run.out.rfind("\n[") + 1));
  REQUIRE(rows.size() == 18);
  for (const auto& row : rows) {
    CHECK(row["containers"] == (row["environment"] == "one-per-node" ? 2 : 4));
    CHECK(row["engine"] == engine);
  }
}

/// Two ranks in each container, of four and of three on a node: by ssh, by job steps and by MPI's
/// launchers.
void check_two_in_each(const std::string& engine) {
  const auto run = on_nodes_with_engines(
      engine,
      "mkdir $F/profiles; printf 'name = \"two-in-each\"\nextends = "
      "\"cross-docker-host-network\"\nranks_per_container = 2\n' >$F/profiles/two.toml; "
      "for way in \"--hosts node1:4,node2:4 --remote-shell $F/into\" \"--slurm --nodes 2\" "
      "\"--slurm=mpirun --nodes 2\"; do $RUN $way --out $F/out --profiles $F/profiles --set '"
      "axes.environment=[\"two-in-each\"]' --set 'axes.ranks=[6,8]' || exit; "
      "for node in node1 node2; do left=$($F/into $node $ENGINE ps --all --quiet) || exit; "
      "[ -z \"$left\" ] || echo \"left: $left\"; done; done; echo; " +
          std::string(kProgram) +
          " query \"SELECT start, backend, ranks, group_concat(n, ' ') AS held FROM (SELECT "
          "json_extract(container_json, '$.cluster.start') AS start, backend, v.ranks, count(*) AS "
          "n FROM launch l JOIN v_launch v ON v.launch_row = l.id JOIN launch_rank r ON "
          "r.launch_id = l.id WHERE l.status = 'ok' GROUP BY 1, 2, 3, json_extract(facts_json, "
          "'$.system.hostname') ORDER BY 1, 2, 3, 4 DESC) GROUP BY 1, 2, 3\" --json --db "
          "$F/nodes.sqlite");
  INFO(run.out << run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.out.find("left: ") == std::string::npos);
  const auto rows = nlohmann::json::parse(run.out.substr(run.out.rfind("\n[") + 1));
  REQUIRE(rows.size() == 18);
  for (const auto& row : rows) CHECK(row["held"] == (row["ranks"] == 8 ? "2 2 2 2" : "2 2 1 1"));
}

/// The program is killed while its containers run, and they end with it.
void check_killed(const std::string& engine) {
  const auto run = on_nodes_with_engines(
      engine,
      "running() { for node in node1 node2; do $F/into $node $ENGINE ps --all --quiet || echo not "
      "asked; done | wc -l; }; "
      "for way in \"--hosts node1:2,node2:2 --remote-shell $F/into\" \"--slurm --nodes 2\"; do "
      "$RUN $way --only 'backend == gloo' --set protocol.iterations=10000000 --set "
      "protocol.cell_time_cap=60s >$F/held.log 2>&1 & run=$!; "
      "for i in $(seq 1200); do [ \"$(running)\" = 4 ] && break; sleep 0.1; done; sleep 1; "
      "echo \"while it runs: $(running)\"; kill -KILL $run; "
      "for i in $(seq 300); do [ \"$(running)\" = 0 ] && break; sleep 0.2; done; "
      "echo \"after it: $(running)\"; pgrep -f \"^[^ ]*dynamiccl-worker .*$F\"; rm -f "
      "$F/nodes.sqlite*; done");
  INFO(run.out << run.err);
  CHECK(run.out == "while it runs: 4\nafter it: 0\nwhile it runs: 4\nafter it: 0\n");
}

/// While the image is on its way to the nodes the user interrupts, then the connection is cut
/// between two files of it, which engines take for its end: neither leaves an image that a run
/// would use. A program that is killed meanwhile leaves what the next run removes. Then a container
/// is there of a program that is over, and one of another machine's, which stays.
void check_leftovers(const std::string& engine) {
  const auto run =
      on_nodes_with_engines(engine, "bash " DYNAMICCL_SOURCE_DIR "/tests/e2e/node_leftovers.sh");
  INFO(run.out << run.err);
  const std::string no_image = "images: 0\n";
  CHECK(run.out == "interrupted: 130\n" + no_image + "cut: 1\ncannot import the worker image\n" +
                       no_image +
                       "killed: 137\nimages: 2\nremoved on 2 nodes\nwhole: 0\nimages: 2\n" +
                       "node1: 1 containers of runs that are over removed\nelsewhere\n");
}

}  // namespace

TEST_CASE(
    "Docker on nodes: a container for each rank or node, by ssh, by job steps, by MPI's launchers",
    "[long]") {
  check_every_way("docker");
}

TEST_CASE(
    "Podman on nodes: a container for each rank or node, by ssh, by job steps, by MPI's launchers",
    "[long]") {
  check_every_way("podman");
}

TEST_CASE("Docker on nodes: two ranks in each container, of four and of three on a node",
          "[long]") {
  check_two_in_each("docker");
}

TEST_CASE("Podman on nodes: two ranks in each container, of four and of three on a node",
          "[long]") {
  check_two_in_each("podman");
}

TEST_CASE("Docker on nodes: when the program is killed, its containers end with it", "[long]") {
  check_killed("docker");
}

TEST_CASE("Podman on nodes: when the program is killed, its containers end with it", "[long]") {
  check_killed("podman");
}

TEST_CASE("Docker on nodes: a cut image is none, what a run that is over left is removed",
          "[long]") {
  check_leftovers("docker");
}

TEST_CASE("Podman on nodes: a cut image is none, what a run that is over left is removed",
          "[long]") {
  check_leftovers("podman");
}
