#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "containers/command.hpp"
#include "core/vocabulary/text.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

constexpr const char* kProgram = DYNAMICCL_BINARY_DIR "/dynamiccl";

const std::string kExperiment = DYNAMICCL_SOURCE_DIR "/experiments/two_nodes.toml";

/// Containers as nodes with Slurm and sshd, started by the first test that needs them.
class Rig {
 public:
  static Rig& get() {
    static Rig rig;
    if (!rig.why_.empty()) SKIP(rig.why_);
    return rig;
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  /// A command on a host of the cluster, in the folder that all of them share.
  [[nodiscard]] CommandResult on(const std::string& host, std::vector<std::string> command) const {
    command.insert(command.begin(), {"exec", folder_, host});
    return script(command);
  }
  /// The program on the head, with a database of that name.
  [[nodiscard]] CommandResult program(const std::string& db,
                                      std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), kProgram);
    arguments.insert(arguments.begin() + 2, {"--db", db});
    return on("head", arguments);
  }
  [[nodiscard]] nlohmann::json rows(const std::string& db, const std::string& sql) const {
    const auto answer = program(db, {"query", sql, "--json"});
    INFO(answer.err);
    REQUIRE(answer.exit_code == 0);
    return nlohmann::json::parse(answer.out);
  }
  [[nodiscard]] std::string queue() const {
    return std::string(trim(on("head", {"squeue", "--noheader", "--states=PENDING,RUNNING"}).out));
  }
  /// Caps the links of nodes at a rate, "1gbit"; "off" lifts it.
  void cap(const std::vector<std::string>& nodes, const std::string& rate) const {
    for (const auto& node : nodes) {
      const auto done = script({"cut", folder_, node, rate});
      INFO(done.err);
      REQUIRE(done.exit_code == 0);
    }
  }
  /// Makes packets of a node's link wait, "1mbit"; "off" lifts it.
  void delay(const std::string& node, const std::string& rate) const {
    const auto done = script({"delay", folder_, node, rate});
    INFO(done.err);
    REQUIRE(done.exit_code == 0);
  }
  /// Takes away ("add") and gives back ("del") a node's way to another.
  CommandResult route(const std::string& node, const std::string& verb,
                      const std::string& to) const {
    return script({"blackhole", folder_, node, verb, to});
  }
  void file(const std::string& name, const std::string& text) const {
    std::ofstream(shared() + "/" + name) << text;
  }
  [[nodiscard]] std::string shared() const { return folder_ + "/shared"; }

 private:
  Rig() {
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
  ~Rig() {
    if (folder_.empty()) return;
    try {
      static_cast<void>(script({"down", folder_}));
    } catch (const std::exception&) {
      // The tests have ended; nobody is left to be told.
    }
  }

  static CommandResult script(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"bash", DYNAMICCL_SOURCE_DIR "/tests/e2e/cluster_rig.sh"});
    CommandOptions options;
    options.timeout = std::chrono::minutes(15);
    return run_command(arguments, options);
  }

  static constexpr std::array<std::pair<const char*, const char*>, 9> kNeeds{
      {{"dockerd", "docker.io"},
       {"docker", "docker.io"},
       {"slurmctld", "slurmctld"},
       {"slurmd", "slurmd"},
       {"srun", "slurm-client"},
       {"munged", "munge"},
       {"sshd", "openssh-server"},
       {"mpirun.openmpi", "openmpi-bin"},
       {"mpirun.mpich", "mpich"}}};

  std::string folder_;
  std::string why_;  ///< there is no cluster, "" = there is
};

/// All cells measured and verified, ranks on both nodes, nothing left.
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

/// What the doctor says is to be drained; what it suspected by chance and cleared is not.
std::vector<std::string> drained(const nlohmann::json& said) {
  std::vector<std::string> nodes;
  for (const auto& suspect : said["suspects"])
    if (suspect["confirmed"] == true) nodes.push_back(suspect["node"]);
  return nodes;
}

}  // namespace

TEST_CASE("hosts by ssh: planned, measured and verified over two nodes") {
  const Rig& rig = Rig::get();
  const std::vector<std::string> where{kExperiment, "--hosts", "node1:2,node2:2"};
  auto plan = where;
  plan.insert(plan.begin(), "plan");
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
        " >held.log 2>&1 & run=$!; for i in $(seq 200); do ssh node2 pgrep -f dynamiccl-worker "
        ">/dev/null && break; sleep 0.1; done; sleep 0.5; kill -KILL $run; "
        "for i in $(seq 25); do left=$(for node in node1 node2; do ssh $node pgrep -xc "
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

TEST_CASE("Slurm: a resumed run waits for a job of its own that still waits", "[long]") {
  const Rig& rig = Rig::get();
  // All nodes are taken for a while.
  const std::string run = std::string(kProgram) + " run " + kExperiment +
                          " --db waiting.sqlite --only 'backend == gloo' --slurm --nodes 4 --set "
                          "axes.ranks=4";
  const std::string start =
      "salloc --no-shell --nodes=4 --exclusive 2>/dev/null; "
      "job=$(squeue -h -t RUNNING -o %i | head -1); " +
      run +
      " >waiting.log 2>&1 & run=$!; for i in $(seq 200); do "
      "squeue -h -t PENDING | grep -q . && break; sleep 0.1; done; "
      "sleep 1; kill -KILL $run; squeue -h -t PENDING -o %i";
  const std::string waiting(trim(rig.on("head", {"bash", "-c", start}).out));
  CHECK_FALSE(waiting.empty());
  const auto resumed = rig.on(
      "head",
      {"bash", "-c", "(sleep 3; scancel $(squeue -h -t RUNNING -o %i)) & " + run + " --resume"});
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK((resumed.out + resumed.err).find("takes over Slurm job " + waiting) != std::string::npos);
  CHECK(rig.rows("waiting.sqlite",
                 "SELECT count(*) AS n FROM launch WHERE status = 'ok'")[0]["n"] == 1);
  CHECK(rig.queue() == "");
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

TEST_CASE("the quickstart's matrix over four nodes: each library by each way to start it",
          "[long]") {
  const Rig& rig = Rig::get();
  const std::vector<std::vector<std::string>> ways{
      {"--slurm=srun"}, {"--slurm=mpirun"}, {"--hosts", "node1,node2,node3,node4"}};
  for (const auto& way : ways) {
    INFO(way.front());
    const std::string db = "matrix" + way.front().substr(2) + ".sqlite";
    std::vector<std::string> words{"run",     DYNAMICCL_SOURCE_DIR "/experiments/quickstart.toml",
                                   "--nodes", "4",
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
      std::printf("%s, %s: %d cells, %d verified\n", way.front().c_str(),
                  row["backend"].get<std::string>().c_str(), row["n"].get<int>(),
                  row["verified"].get<int>());
      CHECK(row["n"] == row["verified"]);
    }
    const auto nodes =
        rig.rows(db,
                 "SELECT count(DISTINCT json_extract(facts_json, '$.system.hostname')) AS n "
                 "FROM launch_rank");
    CHECK(nodes[0]["n"] == 4);
    CHECK(rig.queue() == "");
  }
}

TEST_CASE("Slurm: a job for each launch, one at a time, in whichever way they are put in order") {
  const Rig& rig = Rig::get();
  for (const std::string jobs : {"array", "afterany", "singleton"}) {
    INFO(jobs);
    const std::string db = jobs + ".sqlite";
    const auto run =
        rig.program(db, {"run", kExperiment, "--slurm", "--nodes", "2", "--only", "backend == gloo",
                         "--set", "protocol.launches=3", "--set", "cluster.jobs=" + jobs});
    INFO(run.err);
    CHECK(run.exit_code == 0);
    const auto rows =
        rig.rows(db,
                 "SELECT block, json_extract(container_json, '$.cluster.slurm.job') AS job, "
                 "json_extract(container_json, '$.cluster.jobs') AS jobs FROM launch "
                 "WHERE status = 'ok' ORDER BY id");
    REQUIRE(rows.size() == 3);
    std::set<std::string> numbers;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      CHECK(rows[i]["block"] == i);
      CHECK(rows[i]["jobs"] == jobs);
      numbers.insert(rows[i]["job"].get<std::string>());
    }
    CHECK(numbers.size() == 3);
    CHECK(rig.queue() == "");
  }
}

TEST_CASE("Slurm: jobs that a killed run has left in the queue are taken over, or cancelled",
          "[long]") {
  const Rig& rig = Rig::get();
  const std::string run = std::string(kProgram) + " run " + kExperiment +
                          " --db queued.sqlite --only 'backend == gloo' --slurm --nodes 2 --set "
                          "cluster.jobs=array --set protocol.launches=5";
  const std::string kill = run +
                           " >queued.log 2>&1 & run=$!; for i in $(seq 200); do "
                           "squeue -h -t RUNNING | grep -q . && break; sleep 0.1; done; "
                           "sleep 1; kill -KILL $run; squeue -h -r | wc -l";
  CHECK(trim(rig.on("head", {"bash", "-c", kill}).out) != "0");
  const auto resumed = rig.on("head", {"bash", "-c", run + " --resume"});
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK((resumed.out + resumed.err).find("takes over ") != std::string::npos);
  CHECK(rig.rows("queued.sqlite",
                 "SELECT count(*) AS n, count(DISTINCT block) AS blocks FROM "
                 "launch WHERE status = 'ok'")[0] == nlohmann::json{{"n", 5}, {"blocks", 5}});
  CHECK(rig.queue() == "");
  const std::string again = run + " --set seed=2" + kill.substr(run.size());
  static_cast<void>(rig.on("head", {"bash", "-c", again}));
  const auto cleaned = rig.on("head", {kProgram, "clean"});
  CHECK(cleaned.out.find("Slurm job") != std::string::npos);
  CHECK(rig.queue() == "");
}

TEST_CASE("Slurm: a batch job that is put back into the queue goes on where it was", "[long]") {
  const Rig& rig = Rig::get();
  rig.file("requeued.sh",
           "#!/bin/sh\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n#SBATCH --requeue\n"
           "#SBATCH --open-mode=append\n#SBATCH --output=requeued.log\n"
           "exec " +
               std::string(kProgram) + " run " + kExperiment +
               " --slurm --db requeued.sqlite --only 'backend == gloo' --set protocol.launches=12 "
               "--set cluster.records=folder\n");
  const std::string line =
      "job=$(sbatch --parsable requeued.sh); for i in $(seq 300); do grep -q 'block 2: ok' "
      "requeued.log && break; sleep 0.1; done; scontrol requeue $job; for i in $(seq 1200); do "
      "squeue -h -j $job 2>/dev/null | grep -q . || break; sleep 0.2; done; cat requeued.log";
  const auto job = rig.on("head", {"bash", "-c", line});
  INFO(job.out << job.err);
  CHECK(job.out.find(" again: run ") != std::string::npos);
  CHECK(rig.rows("requeued.sqlite", "SELECT count(*) AS n FROM run")[0]["n"] == 1);
  CHECK(rig.rows("requeued.sqlite",
                 "SELECT count(*) AS n, count(DISTINCT block) AS blocks FROM "
                 "launch WHERE status = 'ok'")[0] == nlohmann::json{{"n", 12}, {"blocks", 12}});
}

TEST_CASE("Slurm: a job that goes before and missing nodes are named", "[long]") {
  const Rig& rig = Rig::get();
  const std::string words =
      " --only 'backend == gloo' --slurm --nodes 2 --set protocol.iterations=1000000 --set "
      "protocol.retries=0 --set protocol.launches=1";
  const std::string run = std::string(kProgram) + " run " + kExperiment + words;
  const auto reason = [&](const std::string& db) {
    return rig
        .rows(db,
              "SELECT coalesce(max(reason), '') AS text FROM launch "
              "WHERE status <> 'ok'")[0]["text"]
        .get<std::string>();
  };
  const auto check_resumed = [&](const std::string& db, const std::string& more, int launches) {
    const auto resumed = rig.on("head", {"bash", "-c", run + " --db " + db + more + " --resume"});
    INFO(resumed.out << resumed.err);
    CHECK(rig.rows(db,
                   "SELECT count(*) AS n, count(DISTINCT block) AS blocks FROM launch WHERE "
                   "status = 'ok'")[0] == nlohmann::json{{"n", launches}, {"blocks", launches}});
    CHECK(rig.rows(db, "SELECT count(*) AS n FROM run")[0]["n"] == 1);
    CHECK(rig.queue() == "");
  };
  SECTION("preempted") {
    const auto broken = rig.on(
        "head", {"bash", "-c",
                 run + " --db before.sqlite --set cluster.partition=low --set "
                       "protocol.cell_time_cap=20s & run=$!; for i in $(seq 300); do "
                       "squeue -h -s | grep -q dyn-[0-9a-f] && break; sleep 0.1; done; sleep 1; "
                       "srun --partition=high --nodes=4 --exclusive true; wait $run"});
    INFO(broken.out << broken.err);
    CHECK(reason("before.sqlite").find("was preempted") != std::string::npos);
    check_resumed("before.sqlite", " --set cluster.partition=low --set protocol.cell_time_cap=20s",
                  1);
  }
  SECTION("the time limit of a job") {
    // Launches of about 16 s in jobs of a minute: one is cut, the next ones have another job.
    const std::string limited =
        " --set cluster.partition=short --set 'cluster.time_limit=\"1\"' --set "
        "protocol.cell_time_cap=8s --set protocol.launches=6";
    const auto broken = rig.on("head", {"bash", "-c", run + " --db limit.sqlite" + limited});
    INFO(broken.out << broken.err);
    CHECK(reason("limit.sqlite").find("has reached its time limit") != std::string::npos);
    check_resumed("limit.sqlite", limited, 6);
  }
  SECTION("more nodes than the job around it has") {
    const auto refused =
        rig.on("head", {"bash", "-c", "salloc --nodes=1 " + run + " --db few.sqlite"});
    CHECK(refused.err.find("2 nodes are asked for") != std::string::npos);
    CHECK(refused.err.find("has 1: node") != std::string::npos);
    CHECK_FALSE(fs::exists(rig.shared() + "/few.sqlite"));
  }
  SECTION("a range of nodes of which Slurm gives fewer") {
    const auto few =
        rig.on("head", {"bash", "-c",
                        "salloc --no-shell --nodes=3 --exclusive; " + run +
                            " --db range.sqlite --set 'cluster.options=[\"--nodes=1-2\"]'; scancel "
                            "$(squeue -h -o %i)"});
    CHECK((few.out + few.err).find("1 of the 2 nodes") != std::string::npos);
  }
}

TEST_CASE("Slurm: what a killed run leaves in the queue is cancelled by clean") {
  const Rig& rig = Rig::get();
  const std::string start =
      std::string(kProgram) + " run " + kExperiment +
      " --db killed.sqlite --set protocol.iterations=1000000 --set protocol.cell_time_cap=20s "
      "--slurm --nodes 2 >slow.log 2>&1 & run=$!; "
      "for i in $(seq 200); do "
      "squeue -h -t RUNNING | grep -q . && break; sleep 0.1; done; "
      "sleep 1; kill -KILL $run; squeue -h -t RUNNING | wc -l";
  CHECK(trim(rig.on("head", {"bash", "-c", start}).out) == "1");
  const auto cleaned = rig.on("head", {kProgram, "clean"});
  INFO(cleaned.err);
  CHECK(cleaned.out.find("Slurm job") != std::string::npos);
  CHECK(rig.queue() == "");
}

TEST_CASE("without Slurm or ssh the plan says which command would have been used") {
  CommandOptions bare;
  bare.environment = {{"PATH", "/nowhere"}, {"SLURM_JOB_ID", ""}};
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

TEST_CASE("Slurm: a resumed run takes over what a killed one has left in the queue", "[long]") {
  const Rig& rig = Rig::get();
  const std::string run = std::string(kProgram) + " run " + kExperiment +
                          " --db resumed.sqlite --set protocol.iterations=1000000 --set "
                          "protocol.cell_time_cap=2s --slurm --nodes 2";
  const std::string start = run +
                            " >resumed.log 2>&1 & run=$!; for i in $(seq 200); do "
                            "squeue -h -t RUNNING | grep -q . && break; sleep 0.1; done; "
                            "sleep 1; kill -KILL $run";
  static_cast<void>(rig.on("head", {"bash", "-c", start}));
  const auto resumed = rig.on("head", {"bash", "-c", run + " --resume"});
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK((resumed.out + resumed.err).find("takes over Slurm job") != std::string::npos);
  check_measured(rig, "resumed.sqlite", "srun");
  CHECK(rig.queue() == "");
}

TEST_CASE("doctor: of four nodes the one with the slow link is to be drained, by ssh and by Slurm",
          "[long]") {
  const Rig& rig = Rig::get();
  rig.cap({"node1", "node2", "node4"}, "1gbit");
  rig.cap({"node3"}, "500mbit");
  const std::vector<std::vector<std::string>> ways{{"--hosts", "node1,node2,node3,node4"},
                                                   {"--slurm", "--nodes", "4"}};
  for (auto where : ways) {
    where.insert(where.begin(), {"doctor", "--json"});
    const auto looked = rig.program("doctor.sqlite", where);
    INFO(looked.err << looked.out);
    CHECK(looked.exit_code == 4);
    const auto said = nlohmann::json::parse(looked.out);
    CHECK(said["launches"].size() <= 10);
    CHECK(said["pairs"]["worst"] == (where[2] == "--slurm" ? "rack" : "network"));
    CHECK(drained(said) == std::vector<std::string>{"node3"});
    CHECK(said["suspects"][0]["time_ratio"]["low"] > 1.1);
    CHECK(rig.queue() == "");
  }
  rig.cap({"node3"}, "1gbit");
  const auto well = rig.program("doctor.sqlite", {"doctor", "--hosts", "node1,node2,node3,node4"});
  INFO(well.out);
  CHECK(well.out.find("no node is slower than the others") != std::string::npos);
  CHECK(well.exit_code == 0);
  rig.cap({"node1", "node2", "node3", "node4"}, "off");
}

TEST_CASE("doctor: a node that others have no route to is named, one that is gone too", "[long]") {
  const Rig& rig = Rig::get();
  // The head still reaches it by ssh; ranks on the other nodes do not.
  for (const char* node : {"node1", "node3", "node4"})
    REQUIRE(rig.route(node, "add", "node2").exit_code == 0);
  const auto looked =
      rig.program("wall.sqlite", {"doctor", "--hosts", "node1,node2,node3,node4", "--json"});
  for (const char* node : {"node1", "node3", "node4"}) rig.route(node, "del", "node2");
  INFO(looked.err << looked.out);
  CHECK(looked.exit_code == 4);
  CHECK(drained(nlohmann::json::parse(looked.out)) == std::vector<std::string>{"node2"});
  const auto gone = rig.program("wall.sqlite", {"doctor", "--hosts", "node1,node2,gone"});
  CHECK(gone.exit_code == 4);
  CHECK(gone.out.find("gone cannot be reached") != std::string::npos);
}

TEST_CASE("pairs of ranks stand at Slurm's switches, or where a file declares them",
          "[F-06][F-07]") {
  const Rig& rig = Rig::get();
  const auto pairs_of = [&](std::vector<std::string> where) {
    where.insert(where.begin(), {"run", kExperiment, "--only", "backend == gloo"});
    const auto run = rig.program("places.sqlite", where);
    INFO(run.err);
    CHECK(run.exit_code == 0);
    const auto regimes = rig.program("places.sqlite", {"query", "regimes", "--json"});
    INFO(regimes.out << regimes.err);
    const auto row = nlohmann::json::parse(regimes.out)[0];
    CHECK(run.err.find(row["pairs"].get<std::string>().substr(0, 6)) != std::string::npos);
    return row;
  };
  // A rank on each node: of six pairs two are at one leaf switch.
  auto row = pairs_of({"--slurm", "--nodes", "4"});
  CHECK(row["worst_pair"] == "rack");
  CHECK(row["pairs"] == "66.7 % rack + 33.3 % switch");
  CHECK(row["declared"].is_null());
  rig.file("lab.toml", "deployment = \"edge\"\n[zones]\neast = \"node1\"\nwest = \"node2\"\n");
  row = pairs_of({"--hosts", "node1:2,node2:2", "--machine-file", "lab.toml"});
  CHECK(row["worst_pair"] == "apart");
  CHECK(row["pairs"].get<std::string>().starts_with("66.7 % apart"));
  CHECK(row["declared"] == R"({"deployment":"edge"})");
}

TEST_CASE("where nobody says how nodes stand, their latency does", "[long][F-06][F-07]") {
  const Rig& rig = Rig::get();
  const std::vector<std::string> run{"run",     kExperiment,
                                     "--only",  "backend == gloo",
                                     "--set",   R"(work.0.size=["1KiB"])",
                                     "--hosts", "node1:1,node2:1,node3:1,node4:1"};
  const auto pairs = [&](const std::string& db) {
    const auto done = rig.program(db, run);
    INFO(done.err);
    CHECK(done.exit_code == 0);
    return nlohmann::json::parse(rig.program(db, {"query", "regimes", "--json"}).out)[0];
  };
  // All on one bridge: nothing is told of them.
  CHECK(pairs("alike.sqlite")["pairs"] == "100 % network");
  // Two whose packets wait, also those for each other.
  for (const char* node : {"node3", "node4"}) rig.delay(node, "2mbit");
  const auto row = pairs("apart.sqlite");
  for (const char* node : {"node3", "node4"}) rig.delay(node, "off");
  CHECK(row["worst_pair"] == "rack");
  CHECK(row["pairs"] == "83.3 % rack + 16.7 % switch");
  const auto how = rig.rows("apart.sqlite",
                            "SELECT json_extract(regime_json, '$.pairs.how') AS how FROM launch "
                            "WHERE status = 'ok'")[0]["how"];
  CHECK(how.get<std::string>().find("nodes: measured latency") != std::string::npos);
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

TEST_CASE("doctor: nodes and this machine's environments are not looked at together") {
  const auto refused = [](std::vector<std::string> words) {
    words.insert(words.begin(), {kProgram, "doctor"});
    const auto result = run_command(words);
    CHECK(result.exit_code == 2);
    return result.err;
  };
  CHECK(refused({"--hosts", "a,b", "bare-metal"}).find("looks into this machine") !=
        std::string::npos);
  CHECK(refused({"--hosts", "a,b", "--slurm"}).find("exclude each other") != std::string::npos);
  CHECK(refused({"--slurm"}).find("Add --nodes N") != std::string::npos);
  CHECK(refused({"--nodes", "2"}).find("goes with --hosts or --slurm") != std::string::npos);
  CHECK(refused({"--hosts", "a"}).find("nobody to be compared with") != std::string::npos);
  CHECK(refused({"--hosts", "/nowhere/hosts"}).find("no such file of hosts") != std::string::npos);
}
