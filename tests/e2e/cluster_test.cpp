#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cluster_rig.hpp"
#include "core/vocabulary/text.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

TEST_CASE("hosts by ssh: planned, measured and verified over two nodes") {
  const Rig& rig = Rig::get();
  const std::vector<std::string> where{kExperiment, "--hosts", "node1:2,node2:2"};
  auto plan = where;
  plan.insert(plan.begin(), {"plan", "-v"});
  const auto planned = rig.program("ssh.sqlite", plan);
  INFO(planned.err);
  CHECK(planned.exit_code == 0);
  CHECK(planned.out.find("2 nodes by ssh: node1 (2 ranks), node2 (2 ranks)") != std::string::npos);
  CHECK(planned.out.find("ssh -o BatchMode=yes") != std::string::npos);
  plan.insert(plan.end(), {"--set", "axes.ranks=5"});
  CHECK(rig.program("ssh.sqlite", plan).out.find("5 ranks cannot be placed: 2 nodes take 4") !=
        std::string::npos);
  auto run = where;
  run.insert(run.begin(), "run");
  const auto measured = rig.program("ssh.sqlite", run);
  INFO(measured.err);
  CHECK(measured.exit_code == 0);
  check_measured(rig, "ssh.sqlite", "ssh");
}

TEST_CASE("a host that cannot be reached is named before anything is started") {
  const Rig& rig = Rig::get();
  const auto run = rig.program("gone.sqlite", {"run", kExperiment, "--hosts", "node1:2,gone:2"});
  CHECK(run.exit_code != 0);
  CHECK((run.out + run.err).find("gone cannot be reached") != std::string::npos);
  CHECK((run.out + run.err).find("is the name right?") != std::string::npos);
}

TEST_CASE("a node that is named twice or has no room for temporary files is told before a launch") {
  const Rig& rig = Rig::get();
  const auto refused = [&](const std::string& hosts) {
    const auto run = rig.program("told.sqlite", {"run", kExperiment, "--hosts", hosts});
    CHECK(run.exit_code == 1);
    CHECK(rig.rows("told.sqlite",
                   "SELECT count(*) AS n FROM launch WHERE status <> 'failed'")[0]["n"] == 0);
    return run.err;
  };
  const auto address = trim(rig.on("node1", {"hostname", "-i"}).out);
  const auto twice = refused("node1:2," + std::string(address) + ":2");
  INFO(twice);
  CHECK(twice.find("is the same machine as node1") != std::string::npos);
  // The folder for temporary files is a file of no room.
  REQUIRE(rig.on("node2", {"sh", "-c",
                           "echo TMPDIR=/dev/full >/root/.ssh/environment; sed -i "
                           "'$a PermitUserEnvironment yes' /etc/ssh/sshd_config; "
                           "pkill -HUP -o sshd"})
              .exit_code == 0);
  const auto full = refused("node1:2,node2:2");
  CHECK(rig.on("node2", {"rm", "/root/.ssh/environment"}).exit_code == 0);
  INFO(full);
  CHECK(full.find("node2 cannot write a temporary file of 64 KiB (/dev/full: ") !=
        std::string::npos);
}

TEST_CASE("ranks by ssh end with the program that has started them, however it ends") {
  const Rig& rig = Rig::get();
  for (const char* out : {"", " --out /tmp/held"}) {
    INFO(out);
    const std::string line =
        std::string(kProgram) + " run " + kExperiment +
        " --db held.sqlite --only 'backend == gloo' --hosts node1:2,node2:2 --set "
        "protocol.iterations=10000000 --set protocol.cell_time_cap=60s" +
        out +
        " >held.log 2>&1 & run=$!; for i in $(seq 1200); do ssh node2 pgrep -f dynamiccl-worker "
        ">/dev/null && break; sleep 0.1; done; sleep 0.5; kill -KILL $run; "
        "for i in $(seq 300); do left=$(for node in node1 node2; do ssh $node pgrep -xc "
        "dynamiccl-worke; done); [ \"$left\" = $'0\\n0' ] && break; sleep 0.2; done; "
        "echo \"$left\"";
    CHECK(trim(rig.on("head", {"bash", "-c", line}).out) == "0\n0");
  }
}

TEST_CASE("records come by connections where nodes do not see the folder of launches") {
  const Rig& rig = Rig::get();
  // Every node has a /tmp of its own.
  const auto run = rig.program("/tmp/apart.sqlite", {"run", kExperiment, "--hosts",
                                                     "node1:2,node2:2", "--out", "/tmp/apart"});
  INFO(run.err);
  CHECK(run.exit_code == 0);
  check_measured(rig, "/tmp/apart.sqlite", "ssh");
  const auto started =
      rig.rows("/tmp/apart.sqlite", "SELECT argv_json || environment_json AS text FROM launch");
  for (const auto& row : started) {
    const auto text = row["text"].get<std::string>();
    CHECK(text.find("tcp://") != std::string::npos);
    CHECK(text.find("DYNAMICCL_RECORDS_TOKEN=") == std::string::npos);
  }
  for (const char* node : {"node1", "node2"})
    CHECK(rig.on(node, {"sh", "-c", "ls -d /tmp/dynamiccl-rank-* /tmp/apart"}).out.empty());
  const auto told =
      rig.program("/tmp/apart.sqlite", {"run", kExperiment, "--hosts", "node1:2,node2:2", "--out",
                                        "/tmp/apart", "--set", "cluster.records=\"folder\""});
  CHECK(told.exit_code != 0);
  CHECK((told.out + told.err).find("does not see this machine's /tmp/apart") != std::string::npos);
}

namespace {

/// The program with these words, where hosts are network namespaces. @param shell login shell there
std::vector<std::string> on_namespaces(const std::string& folder, const std::string& shell,
                                       const std::vector<std::string>& words) {
  std::vector<std::string> argv{
      "unshare", "--mount", "--propagation",
      "private", "bash",    DYNAMICCL_SOURCE_DIR "/tests/e2e/namespace_hosts.sh",
      folder,    shell,     kProgram};
  argv.insert(argv.end(), words.begin(), words.end());
  return argv;
}

}  // namespace

TEST_CASE("Apptainer on hosts, records by connections, whatever the login shell there", "[long]") {
  if (geteuid() != 0 || find_program("ip").empty() || find_program("nsenter").empty())
    SKIP("the hosts are network namespaces, made by root with ip and nsenter");
  std::string folder = "/tmp/dyn-hosts-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  const std::string db = folder + "/hosts.sqlite";
  for (const char* shell : {"sh", "csh", "fish"}) {
    if (find_program(shell).empty()) continue;
    INFO(shell);
    fs::remove(db);
    CommandOptions options;
    options.timeout = std::chrono::minutes(4);
    const auto run = run_command(
        on_namespaces(folder, shell,
                      {"run", kExperiment, "--db", db, "--hosts", "node1:2,node2:2",
                       "--remote-shell", folder + "/into", "--only", "backend == gloo", "--set",
                       R"(axes.environment=["bare-metal","singularity"])", "--set",
                       "cluster.records=tcp", "--set", "cluster.interface=eth0"}),
        options);
    INFO(run.out << run.err);
    CHECK(run.exit_code == 0);
    const auto answer = run_command(
        {kProgram, "query",
         "SELECT environment, launch_status, count(*) AS n FROM v_launch GROUP BY 1, 2 ORDER BY 1",
         "--json", "--db", db});
    const auto rows = nlohmann::json::parse(answer.out);
    REQUIRE_FALSE(rows.empty());
    CHECK(rows[0] ==
          nlohmann::json{{"environment", "bare-metal"}, {"launch_status", "ok"}, {"n", 1}});
    if (rows.size() == 1 && run.out.find("unsupported") != std::string::npos) {
      WARN("no Apptainer here: bare metal alone");
      continue;
    }
    REQUIRE(rows.size() == 2);
    CHECK(rows[1] ==
          nlohmann::json{{"environment", "singularity"}, {"launch_status", "ok"}, {"n", 1}});
    const auto hosts = run_command(
        {kProgram, "query",
         "SELECT DISTINCT json_extract(facts_json, '$.system.hostname') AS host FROM launch_rank",
         "--json", "--db", db});
    CHECK(hosts.out.find("node1") != std::string::npos);
    CHECK(hosts.out.find("node2") != std::string::npos);
  }
  fs::remove_all(folder);
}

TEST_CASE("Apptainer under srun: a container for each rank, on both nodes", "[long]") {
  if (geteuid() != 0 || find_program("nsenter").empty() || find_program("slurmd").empty() ||
      find_program("munged").empty())
    SKIP("the nodes are network namespaces with slurmd and munged, made by root");
  std::string folder = "/tmp/dyn-ns-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  const std::string db = folder + "/nodes.sqlite";
  CommandOptions options;
  options.timeout = std::chrono::minutes(8);
  const auto run = run_command(
      {"unshare", "--mount", "--propagation", "private", "bash",
       DYNAMICCL_SOURCE_DIR "/tests/e2e/namespace_slurm.sh", folder, kProgram, "run", kExperiment,
       "--db", db, "--slurm", "--nodes", "2", "--set",
       R"(axes.environment=["bare-metal","singularity"])", "--set", "cluster.interface=eth0",
       // By their boot id UCX takes these nodes for one, whose shared memory containers have not.
       "--set", R"(knobs.mpich.env.UCX_TLS=["tcp,self"])"},
      options);
  INFO(run.out << run.err);
  CHECK(run.exit_code == 0);
  const auto answer = run_command(
      {kProgram, "query",
       "SELECT environment, backend, count(DISTINCT json_extract(facts_json, "
       "'$.system.hostname')) AS nodes FROM v_launch v JOIN launch_rank r ON r.launch_id = "
       "v.launch_row WHERE launch_status = 'ok' GROUP BY 1, 2 ORDER BY 1, 2",
       "--json", "--db", db});
  INFO(answer.out << answer.err);
  const auto rows = nlohmann::json::parse(answer.out);
  if (run.out.find("unsupported") != std::string::npos && rows.size() == 3) {
    WARN("no Apptainer here: bare metal alone");
  } else {
    REQUIRE(rows.size() == 6);
    for (const auto& row : rows) CHECK(row["nodes"] == 2);
  }
  fs::remove_all(folder);
}

TEST_CASE("Slurm: records come by connections to job steps too", "[long]") {
  const Rig& rig = Rig::get();
  for (const char* start : {"srun", "mpirun"}) {
    const std::string db = "/tmp/apart-" + std::string(start) + ".sqlite";
    const auto run = rig.program(db, {"run", kExperiment, "--slurm=" + std::string(start),
                                      "--nodes", "2", "--out", "/tmp/apart"});
    INFO(run.err);
    CHECK(run.exit_code == 0);
    check_measured(rig, db, start);
    CHECK(rig.queue() == "");
  }
}

TEST_CASE("Slurm: job steps and MPI's launchers of an allocation that is given back", "[long]") {
  const Rig& rig = Rig::get();
  for (const char* start : {"srun", "mpirun"}) {
    const std::string db = std::string(start) + ".sqlite";
    const auto run =
        rig.program(db, {"run", kExperiment, "--slurm=" + std::string(start), "--nodes", "2"});
    INFO(run.err);
    CHECK(run.exit_code == 0);
    check_measured(rig, db, start);
    CHECK(rig.queue() == "");
  }
}

TEST_CASE("Slurm: a batch script runs the experiment in its own allocation", "[long]") {
  const Rig& rig = Rig::get();
  rig.file("job.sh",
           "#!/bin/sh\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n"
           "exec " +
               std::string(kProgram) + " run " + kExperiment + " --slurm --db batch.sqlite\n");
  const auto job = rig.on("head", {"sbatch", "--wait", "job.sh"});
  INFO(job.err);
  CHECK(job.exit_code == 0);
  check_measured(rig, "batch.sqlite", "srun");
}

TEST_CASE("the quickstart's matrix over nodes: each library by each way to start it", "[long]") {
  const Rig& rig = Rig::get();
  const int nodes = GENERATE(2, 4);
  const std::string hosts = nodes == 2 ? "node1:2,node2:2" : "node1,node2,node3,node4";
  const std::vector<std::vector<std::string>> ways{
      {"--slurm=srun"}, {"--slurm=mpirun"}, {"--hosts", hosts}};
  for (const auto& way : ways) {
    INFO(way.front());
    const std::string db = "matrix-" + std::to_string(nodes) + way.front().substr(2) + ".sqlite";
    std::vector<std::string> words{"run",     DYNAMICCL_SOURCE_DIR "/experiments/quickstart.toml",
                                   "--nodes", std::to_string(nodes),
                                   "--only",  "environment == bare-metal and size <= 1MiB",
                                   "--set",   "axes.ranks=4",
                                   "--set",   "protocol.launches=1",
                                   "--set",   "protocol.warmup=2",
                                   "--set",   "protocol.iterations=5",
                                   "--set",   "protocol.launch_timeout=180s",
                                   "--set",   R"(axes.backend=["openmpi","mpich","gloo"])"};
    words.insert(words.end(), way.begin(), way.end());
    const auto run = rig.program(db, words);
    INFO(run.err);
    CHECK(run.exit_code == 0);
    const auto cells =
        rig.rows(db,
                 "SELECT backend, count(*) AS n, sum(status = 'ok' AND checked > 0 AND "
                 "wrong = 0) AS verified FROM "
                 "v_measurement GROUP BY backend ORDER BY backend");
    REQUIRE(cells.size() == 3);
    for (const auto& row : cells) {
      std::printf("%d nodes, %s, %s: %d cells, %d verified\n", nodes, way.front().c_str(),
                  row["backend"].get<std::string>().c_str(), row["n"].get<int>(),
                  row["verified"].get<int>());
      CHECK(row["n"] == row["verified"]);
    }
    const auto seen =
        rig.rows(db,
                 "SELECT count(DISTINCT json_extract(facts_json, '$.system.hostname')) AS n "
                 "FROM launch_rank");
    CHECK(seen[0]["n"] == nodes);
    CHECK(rig.queue() == "");
  }
}

TEST_CASE("without Slurm or ssh the plan says which command would have been used") {
  CommandOptions bare;
  // So wide that no line ends within what is looked for.
  bare.environment = {{"PATH", "/nowhere"}, {"SLURM_JOB_ID", ""}, {"COLUMNS", "2000"}};
  const auto planned = [&](std::vector<std::string> where) {
    where.insert(where.begin(), {kProgram, "plan", kExperiment});
    return run_command(where, bare).out;
  };
  const auto slurm = planned({"--slurm", "--nodes", "2"});
  CHECK(slurm.find("salloc is not in PATH") != std::string::npos);
  CHECK(slurm.find("asked for by: salloc --no-shell --nodes=2") != std::string::npos);
  const auto ssh = planned({"--hosts", "a:2,b:2"});
  CHECK(ssh.find("ssh is not in PATH") != std::string::npos);
  CHECK(ssh.find("start by: ssh -o BatchMode=yes") != std::string::npos);
}

TEST_CASE("runs on other numbers of nodes are compared, and told apart", "[long]") {
  const Rig& rig = Rig::get();
  for (const char* nodes : {"2", "4"}) {
    const auto run =
        rig.program("compared.sqlite", {"run", kExperiment, "--only", "backend == gloo", "--set",
                                        "protocol.launches=3", "--hosts",
                                        "node1:2,node2:2,node3:2,node4:2", "--nodes", nodes});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
  }
  const auto compared = rig.program("compared.sqlite", {"compare", "last~1", "last"});
  INFO(compared.err << compared.out);
  CHECK(compared.out.find("A ssh on 2 nodes | B ssh on 4 nodes") != std::string::npos);
  CHECK(compared.out.find("64 KiB") != std::string::npos);
  CHECK(compared.out.find("on 2 nodes: node1, node2") != std::string::npos);
  const auto scaled =
      rig.program("compared.sqlite", {"query", "node_scaling", "--where", "nodes=4"});
  INFO(scaled.err << scaled.out);
  CHECK(scaled.out.find("4 ranks on 2 nodes: node1, node2") != std::string::npos);
}
