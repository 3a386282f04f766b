// What `dynamiccl doctor` says of nodes, and of jobs on them: by `--job --hosts`, which ssh and
// Slurm have started.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cluster_rig.hpp"
#include "core/vocabulary/text.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

/// What the doctor says is to be drained; what it suspected by chance and cleared is not.
std::vector<std::string> drained(const nlohmann::json& said) {
  std::vector<std::string> nodes;
  for (const auto& suspect : said["suspects"])
    if (suspect["confirmed"] == true) nodes.push_back(suspect["node"]);
  return nodes;
}

}  // namespace

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
  for (const char* node : {"node1", "node3", "node4"})
    CHECK(rig.route(node, "del", "node2").exit_code == 0);
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
  // Two whose packets wait, also those for each other. On a busy machine the two rounds may differ,
  // of which nothing is told.
  for (const char* node : {"node3", "node4"}) rig.delay(node, "1mbit");
  std::string db;
  auto row = nlohmann::json::object();
  for (int attempt = 0; attempt < 4 && row.value("worst_pair", "") != "rack"; ++attempt) {
    db = "apart-" + std::to_string(attempt) + ".sqlite";
    row = pairs(db);
  }
  for (const char* node : {"node3", "node4"}) rig.delay(node, "off");
  CHECK(row["worst_pair"] == "rack");
  CHECK(row["pairs"] == "83.3 % rack + 16.7 % switch");
  const auto how = rig.rows(db,
                            "SELECT json_extract(regime_json, '$.pairs.how') AS how FROM launch "
                            "WHERE status = 'ok'")[0]["how"];
  CHECK(how.get<std::string>().find("nodes: measured latency") != std::string::npos);
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
  CHECK(refused({"--hosts", ""}).find("no host is named") != std::string::npos);
  CHECK(refused({"--hosts", "/nowhere/hosts"}).find("no such file of hosts") != std::string::npos);
}

TEST_CASE("one to 32 ranks over four nodes, eight on each at most", "[long][A-52]") {
  const Rig& rig = Rig::get();
  const auto run = rig.program(
      "ranks.sqlite", {"run", kExperiment, "--hosts", "node1:8,node2:8,node3:8,node4:8", "--only",
                       "backend == gloo", "--set", "axes.ranks=[1,2,4,8,16,32]", "--set",
                       "protocol.launch_timeout=180s"});
  INFO(run.err);
  CHECK(run.exit_code == 0);
  const auto cells = rig.rows("ranks.sqlite",
                              "SELECT ranks, sum(wrong) AS wrong, min(checked) > 0 AS checked FROM "
                              "v_measurement WHERE status = 'ok' GROUP BY ranks ORDER BY ranks");
  REQUIRE(cells.size() == 6);
  for (std::size_t i = 0; i < cells.size(); ++i)
    CHECK(cells[i] == nlohmann::json{{"ranks", 1 << i}, {"wrong", 0}, {"checked", 1}});
  const auto nodes = rig.rows("ranks.sqlite",
                              "SELECT count(DISTINCT json_extract(facts_json, "
                              "'$.system.hostname')) AS n FROM launch_rank r JOIN v_launch l ON "
                              "l.launch_row = r.launch_id WHERE l.ranks = 32");
  CHECK(nodes[0]["n"] == 4);
}

namespace {

/// Two ranks of Open MPI, on node1 and node2, whose second one meets a fault
/// (scripts/live_jobs/rank.c).
class JobOfNodes {
 public:
  /// @param fault "plain" = none
  /// @param by_slurm its launcher is Slurm's job, else it starts by ssh from the head
  JobOfNodes(const Rig& rig, const std::string& fault, bool by_slurm)
      : rig_(rig), name_(fault + (by_slurm ? "-slurm" : "-ssh")) {
    const std::string folder = rig.shared() + "/" + name_;
    fs::create_directory(folder);
    const std::string line = std::string("mpirun.openmpi ") +
                             (by_slurm ? "-n 2 " : "-n 2 --host node1:1,node2:1 ") +
                             "--bind-to none --mca mpi_yield_when_idle 1 -x LIVE_JOB=" + name_ +
                             " " + DYNAMICCL_LIVE_RANK " " + fault + " 1 " + folder;
    std::string start = "setsid " + line + " >" + folder + "/log 2>&1 </dev/null & ";
    if (by_slurm)
      start = "sbatch --parsable --nodes=2 --ntasks-per-node=1 --nodelist=node1,node2 --output=" +
              folder + "/log --wrap '" + line + "'; ";
    const auto begun = rig.on(
        "head", {"bash", "-c",
                 start + "for i in $(seq 600); do [ -e " + folder + "/ready.0 ] && [ -e " + folder +
                     "/ready.1 ] && exit 0; sleep 0.1; done; cat " + folder + "/log >&2; exit 1"});
    number_ = trim(begun.out);
    if (begun.exit_code != 0) end();  // no destructor comes
    INFO(begun.err);
    REQUIRE(begun.exit_code == 0);
    rig.file(name_ + "/go", "");
  }
  ~JobOfNodes() { end(); }
  JobOfNodes(const JobOfNodes&) = delete;
  JobOfNodes& operator=(const JobOfNodes&) = delete;

  /// Slurm's number of the job.
  [[nodiscard]] const std::string& number() const { return number_; }
  [[nodiscard]] std::string variable() const { return "LIVE_JOB=" + name_; }
  /// The process id of its rank on a node.
  [[nodiscard]] std::string pid_on(const std::string& host) const {
    return std::string(
        trim(rig_.on(host, {"pgrep", "-f", "^" DYNAMICCL_LIVE_RANK ".*" + name_}).out));
  }

 private:
  void end() const {
    if (!number_.empty()) static_cast<void>(rig_.on("head", {"scancel", number_}));
    for (const char* host : {"head", "node1", "node2"})
      static_cast<void>(rig_.on(host, {"pkill", "-KILL", "-f", name_}));
  }

  const Rig& rig_;
  std::string name_;
  std::string number_;
};

std::pair<int, nlohmann::json> look(const Rig& rig, const std::vector<std::string>& named) {
  std::vector<std::string> words{kProgram, "doctor", "--json", "--hosts", "node1,node2"};
  for (const auto& name : named) words.insert(words.end(), {"--job", name});
  const auto said = rig.on("head", words);
  INFO(said.out << said.err);
  REQUIRE((said.exit_code == 0 || said.exit_code == 4));
  return {said.exit_code, nlohmann::json::parse(said.out)};
}

/// The same up to three times, until it is the verdict: a busy machine may show another once.
std::pair<int, nlohmann::json> look_for(const Rig& rig, const std::vector<std::string>& named,
                                        const std::string& verdict) {
  std::pair<int, nlohmann::json> seen;
  for (int i = 0; i < 3; ++i) {
    seen = look(rig, named);
    if (seen.second["verdict"] == verdict) return seen;
  }
  if (seen.second["verdict"] == "starved" || seen.second["verdict"] == "throttled")
    SKIP("this machine has no cores left for the job: " << seen.second["says"]);
  return seen;
}

}  // namespace

TEST_CASE("doctor --job --hosts by ssh: a healthy, a hung and a slow job over two nodes") {
  const Rig& rig = Rig::get();
  if (find_program("eu-stack").empty()) SKIP("eu-stack is not here: apt-get install elfutils");
  {
    const JobOfNodes job(rig, "plain", false);
    const auto [code, said] = look_for(rig, {job.variable()}, "moving");
    INFO(said.dump(1));
    CHECK(code == 0);
    CHECK(said["processes"].size() == 2);
    CHECK(said["world"] == 2);
  }
  {
    const JobOfNodes job(rig, "stuck-sleep", false);
    const auto [code, said] = look(rig, {job.variable()});
    INFO(said.dump(1));
    CHECK(code == 4);
    CHECK(said["state"] == "hung");
    CHECK(said["verdict"] == "held");
    CHECK(said["ranks"] == nlohmann::json{1});
    CHECK(said["next"].dump().find("eu-stack -p " + job.pid_on("node2") + "` on node2") !=
          std::string::npos);
  }
  const JobOfNodes job(rig, "slow-loader", false);
  const auto [code, said] =
      look_for(rig, {"node1:" + job.pid_on("node1"), "node2:" + job.pid_on("node2")}, "late");
  INFO(said.dump(1));
  CHECK(code == 4);
  CHECK(said["state"] == "slow");
  CHECK(said["verdict"] == "late");
  CHECK(said["ranks"] == nlohmann::json{1});
}

TEST_CASE("doctor --job slurm:JOB --hosts: a hung job of Slurm, and no other's ranks with it") {
  const Rig& rig = Rig::get();
  if (find_program("eu-stack").empty()) SKIP("eu-stack is not here: apt-get install elfutils");
  const JobOfNodes other(rig, "plain", false);
  const JobOfNodes job(rig, "stuck-sleep", true);
  const auto [code, said] = look(rig, {"slurm:" + job.number()});
  INFO(said.dump(1));
  CHECK(code == 4);
  CHECK(said["verdict"] == "held");
  CHECK(said["ranks"] == nlohmann::json{1});
  CHECK(said["processes"].size() == 2);
  const auto mixed =
      rig.on("head", {kProgram, "doctor", "--hosts", "node1,node2", "--job",
                      "node1:" + other.pid_on("node1"), "--job", "node2:" + job.pid_on("node2")});
  INFO(mixed.out << mixed.err);
  CHECK(mixed.exit_code == 2);
  CHECK(mixed.err.find("these are two jobs") != std::string::npos);
}
