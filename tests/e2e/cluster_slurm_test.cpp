#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <set>

#include "cluster_rig.hpp"
#include "core/vocabulary/text.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

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
      " >waiting.log 2>&1 & run=$!; for i in $(seq 1200); do "
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
                           " >queued.log 2>&1 & run=$!; for i in $(seq 1200); do "
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
      "job=$(sbatch --parsable requeued.sh); for i in $(seq 1200); do grep -q 'block 2: ok' "
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
              "SELECT coalesce(group_concat(reason), '') AS text FROM launch "
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
                       "protocol.cell_time_cap=20s & run=$!; for i in $(seq 1200); do "
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
      "for i in $(seq 1200); do "
      "squeue -h -t RUNNING | grep -q . && break; sleep 0.1; done; "
      "sleep 1; kill -KILL $run; squeue -h -t RUNNING | wc -l";
  CHECK(trim(rig.on("head", {"bash", "-c", start}).out) == "1");
  const auto cleaned = rig.on("head", {kProgram, "clean"});
  INFO(cleaned.err);
  CHECK(cleaned.out.find("Slurm job") != std::string::npos);
  CHECK(rig.queue() == "");
}

TEST_CASE("Slurm: a resumed run takes over what a killed one has left in the queue", "[long]") {
  const Rig& rig = Rig::get();
  const std::string run = std::string(kProgram) + " run " + kExperiment +
                          " --db resumed.sqlite --set protocol.iterations=1000000 --set "
                          "protocol.cell_time_cap=2s --slurm --nodes 2";
  const std::string start = run +
                            " >resumed.log 2>&1 & run=$!; for i in $(seq 1200); do "
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

TEST_CASE("Slurm: what is not given in time, and nodes of another order, leave nothing wrong") {
  const Rig& rig = Rig::get();
  // A job that no node will ever take would stay in the queue for ever.
  const auto never = rig.program(
      "never.sqlite", {"run", kExperiment, "--slurm", "--nodes", "9", "--only", "backend == gloo",
                       "--set", "axes.ranks=9", "--set", "cluster.wait=5s"});
  CHECK(never.exit_code == 1);
  CHECK(never.err.find("it waited for PartitionNodeLimit") != std::string::npos);
  CHECK(rig.queue() == "");
  // What a user has set for srun in general neither spreads ranks nor spoils what nodes say.
  const std::string run = std::string("SLURM_DISTRIBUTION=cyclic SLURM_LABELIO=1 ") + kProgram +
                          " run " + kExperiment +
                          " --slurm --nodes 2 --db spread.sqlite --only 'backend == gloo'";
  const auto spread = rig.on("head", {"bash", "-c", run});
  INFO(spread.err);
  CHECK(spread.exit_code == 0);
  const auto hosts =
      rig.rows("spread.sqlite",
               "SELECT json_extract(facts_json, '$.system.hostname') AS host FROM launch_rank "
               "ORDER BY rank");
  REQUIRE(hosts.size() == 4);
  CHECK(hosts[0]["host"] == hosts[1]["host"]);
  CHECK(hosts[2]["host"] == hosts[3]["host"]);
  CHECK(hosts[0]["host"] != hosts[2]["host"]);
}

TEST_CASE("Slurm: a job that slurmctld, being down, does not cancel is told, and cleaned",
          "[long]") {
  const Rig& rig = Rig::get();
  const std::string program = kProgram;
  const std::string run = program + " run " + kExperiment +
                          " --db kept.sqlite --only 'backend == gloo' --slurm --nodes 2 --set "
                          "protocol.iterations=10000000 --set protocol.cell_time_cap=3s";
  const auto kept =
      rig.on("head", {"bash", "-c",
                      run + " >kept.log 2>&1 & run=$!; for i in $(seq 1200); do ssh node1 "
                            "pgrep -f dynamiccl-worker >/dev/null && break; sleep 0.1; "
                            "done; pkill slurmctld; wait $run; cat kept.log"});
  INFO(kept.out);
  CHECK(kept.out.find("is not cancelled, as Slurm does not answer: `scancel ") !=
        std::string::npos);
  const auto unasked = rig.on("head", {program, "clean", "--db", "kept.sqlite"});
  CHECK(unasked.exit_code == 1);
  CHECK(unasked.err.find("may be left in Slurm's queue") != std::string::npos);
  REQUIRE(rig.on("head", {"bash", "-c",
                          "slurmctld; for i in $(seq 1200); do squeue >/dev/null 2>&1 "
                          "&& break; sleep 0.1; done; sleep 1"})
              .exit_code == 0);
  const auto cleaned = rig.on("head", {program, "clean", "--db", "kept.sqlite"});
  CHECK(cleaned.out.find("removed Slurm job ") != std::string::npos);
  CHECK(rig.queue() == "");
  // A node whose step ended while nobody heard of it may be drained by Slurm.
  static_cast<void>(
      rig.on("head", {"bash", "-c", "sleep 2; scontrol update nodename=node[1-4] state=resume"}));
}
