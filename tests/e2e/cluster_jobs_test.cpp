// `dynamiccl doctor --job --hosts` by real ssh, on jobs that ssh and Slurm have started.
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
