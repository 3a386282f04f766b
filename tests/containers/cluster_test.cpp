#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "containers/cluster/cluster_environment.hpp"
#include "containers/command.hpp"
#include "containers/environment.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

EnvironmentProfile bare() {
  EnvironmentProfile profile;
  profile.name = "bare-metal";
  profile.kind = EnvironmentKind::bare_metal;
  return profile;
}

ClusterOptions by_ssh() {
  ClusterOptions options;
  options.hosts = {{"node1", 2}, {"node2", 2}};
  return options;
}

std::string refusal(const std::string& hosts) {
  try {
    parse_hosts(hosts, "hosts");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("hosts are read as launchers write them") {
  const std::vector<ClusterNode> expected{{"node1", 4}, {"user@node2.lan", 1}};
  CHECK(parse_hosts("node1:4,user@node2.lan", "x") == expected);
  CHECK(parse_hosts("# two\nnode1 slots=4 max_slots=8\n\nuser@node2.lan # one\n", "x") == expected);
  CHECK(parse_hosts("node1:1\nuser@node2.lan\nnode1 slots=3\n", "x") == expected);
  CHECK_THAT(refusal("a:0"), StartsWith("hosts:1: \"0\" is no number of slots"));
  CHECK_THAT(refusal("a\nb slots=x"), StartsWith("hosts:2: "));
  // It would be an option of ssh.
  CHECK_THAT(refusal("-oProxyCommand=x"), ContainsSubstring("is no name of a host"));
  CHECK_THAT(refusal("a;b"), ContainsSubstring("is no name of a host"));
  CHECK_THAT(refusal("a cpu=3"), ContainsSubstring("\"cpu=3\" is not known here"));
  CHECK_THAT(refusal("# nobody\n"), ContainsSubstring("no host is named"));
}

TEST_CASE("ranks get equal shares of the nodes, none beyond its slots") {
  const std::vector<ClusterNode> nodes{{"a", 4}, {"b", 1}, {"c", 4}};
  CHECK(placement_text(place_ranks(nodes, 5, 0)) == "a (2 ranks), b (1 rank), c (2 ranks)");
  CHECK(placement_text(place_ranks(nodes, 2, 0)) == "a (1 rank), b (1 rank)");
  CHECK(placement_text(place_ranks(nodes, 5, 4)) == "a (4 ranks), b (1 rank)");
  CHECK_THROWS_WITH(place_ranks(nodes, 10, 0), "10 ranks cannot be placed: 3 nodes take 9");
  CHECK_THROWS_WITH(place_ranks(nodes, 6, 2),
                    "6 ranks cannot be placed: 3 nodes take 5 at 2 per node");
}

TEST_CASE("what Slurm prints is read, jobs of others are left out") {
  CHECK(parse_counts("2(x2),1") == std::vector<int>{2, 2, 1});
  CHECK_THROWS_AS(parse_counts("2(x"), Error);
  const SlurmMark mark{"run-7", "login", "1.2.3.4"};
  CHECK(parse_mark(mark_text(mark)) == mark);
  CHECK_FALSE(parse_mark("somebody's job"));
  const auto jobs =
      parse_queue("7|RUNNING|dynamiccl|None|" + mark_text(mark) + "\n8|PENDING|x|Resources|mine\n");
  REQUIRE(jobs.size() == 1);
  CHECK(jobs[0].id == "7");
  CHECK(jobs[0].mark == mark);
}

TEST_CASE("a step names its nodes, uneven shares rank by rank") {
  ClusterOptions options;
  options.start = ClusterStart::srun;
  const auto even = cluster_shape(options, {{"n1", 2}, {"n2", 2}}, "7", "dyn-0", {});
  CHECK_FALSE(even.slurm_daemons);
  CHECK(join(even.step_prefix, " ") ==
        "srun --jobid=7 --overlap --nodes=2 --ntasks=4 --ntasks-per-node=2 --nodelist=n1,n2 "
        "--job-name=dyn-0 --export=ALL --input=none --kill-on-bad-exit=1 --cpu-bind=none");
  options.gpus_per_node = 2;
  const auto uneven =
      join(cluster_shape(options, {{"n1", 2}, {"n2", 1}}, "7", "dyn-0", {}).step_prefix, " ");
  CHECK_THAT(uneven, ContainsSubstring("--distribution=arbitrary --nodelist=n1,n1,n2"));
  CHECK_THAT(uneven, ContainsSubstring("--gpu-bind=none"));
}

TEST_CASE("MPI's launcher in an allocation is told the allocation's nodes") {
  ClusterOptions options;
  options.start = ClusterStart::mpirun;
  const auto shape = cluster_shape(options, {{"n1", 2}, {"n2", 1}}, "7", "dyn-0", {});
  CHECK(shape.slurm_daemons);
  CHECK(shape.launcher_environment.at("SLURM_JOB_ID") == "7");
  CHECK(shape.launcher_environment.at("SLURM_JOB_NODELIST") == "n1,n2");
  CHECK(shape.launcher_environment.at("SLURM_TASKS_PER_NODE") == "2,1");
}

TEST_CASE("a rank by ssh is one line of the host's shell, whatever its words hold") {
  const auto session = std::make_shared<ClusterSession>(by_ssh(), 1);
  const auto plan = plan_environment(bare(), {"run-7", 4, {"/build", "/results"}, session});
  CHECK(plan.commands().empty());
  CHECK(plan.shape.launch_agent == "ssh");
  const auto argv = plan.rank_command(2, {"/b/worker", "it's"}, {{"A", "1 2"}});
  REQUIRE(argv.size() == 7);
  CHECK(argv[5] == "node2");
  // The other machine's shell gives the words back as they were.
  const auto words = run_command({"sh", "-c", "printf '[%s]' " + argv[6]}).out;
  CHECK_THAT(words, StartsWith("[env][A=1 2][DYNAMICCL_ENVIRONMENT="));
  CHECK_THAT(words, ContainsSubstring("[/b/worker][it's]"));
}

TEST_CASE("the plan of an allocation says what Slurm is asked for") {
  ClusterOptions options;
  options.start = ClusterStart::srun;
  options.nodes = 2;
  options.partition = "short";
  options.options = {"--account=physics"};
  const auto session = std::make_shared<ClusterSession>(options, 2);
  if (!session->job().empty()) SKIP("inside of a Slurm job");
  const auto plan = plan_environment(bare(), {"run-7", 4, {}, session});
  REQUIRE(plan.commands().size() == 1);
  const auto line = join(plan.commands()[0], " ");
  CHECK_THAT(line, StartsWith("salloc --no-shell --nodes=2 --ntasks-per-node=2 "));
  CHECK_THAT(line, ContainsSubstring("--partition=short --account=physics"));
}

TEST_CASE("what cannot go onto nodes is refused with the command that would have been used") {
  EnvironmentProfile docker = bare();
  docker.kind = EnvironmentKind::cross_docker;
  docker.network = Sharing::private_;
  const ClusterSession session(by_ssh(), 1);
  const auto reason = cluster_unavailable_reason(docker, session);
  if (find_program("ssh").empty()) {
    REQUIRE(reason);
    CHECK_THAT(*reason, ContainsSubstring("ssh -o BatchMode=yes"));
    return;
  }
  REQUIRE(reason);
  CHECK_THAT(*reason, ContainsSubstring("--container-unshare=net,ipc,uts"));
  CHECK_FALSE(cluster_unavailable_reason(bare(), session));
  EnvironmentProfile inside = bare();
  inside.kind = EnvironmentKind::singularity;
  inside.launcher = LauncherPlace::inside;
  CHECK(cluster_unavailable_reason(inside, session));
}
