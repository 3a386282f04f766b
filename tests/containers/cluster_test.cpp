#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "containers/cluster/cluster_environment.hpp"
#include "containers/cluster/hidden_gpus.hpp"
#include "containers/cluster/node_containers.hpp"
#include "containers/cluster/node_links.hpp"
#include "containers/cluster/slurm_topology.hpp"
#include "containers/command.hpp"
#include "containers/held_command.hpp"
#include "containers/start/environment.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "tests/containers/near_hosts.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using dynamiccl::test::NearHosts;

namespace fs = std::filesystem;

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

/// A queue that holds one job of a run that was killed, which stays as it is until scancel ends it;
/// further ones end at once. The real one is in tests/e2e.
class WaitingQueue {
 public:
  explicit WaitingQueue(const std::string& run, const std::string& state = "PENDING|Resources",
                        const std::string& run_time = "0:00") {
    REQUIRE(mkdtemp(folder_.data()) != nullptr);
    SlurmMark mark = own_mark(run);
    mark.owner = "1.1.0.0";
    std::ofstream(folder_ + "/mark") << mark_text(mark);
    program("squeue",
            "[ -e " + folder_ + "/says ] && cat " + folder_ + "/says >&2 && exit 1\n[ -e " +
                folder_ + "/cancelled ] && exit 0\ncase \"$*\" in\n*--me*) echo " +
                "\"7|PENDING|dynamiccl|Resources|$(cat " + folder_ + "/mark)\";;\n*%M*) echo " +
                run_time + ";;\n*) echo '" + state + "';;\nesac");
    program("sbatch", "echo 9");
    program("scontrol", "case \"$*\" in *show*) echo NumNodes=2-2;; esac");
    program("scancel", "echo \"$1\" >>" + folder_ + "/cancelled");
    program("salloc", "exit 1");
    program("srun", "exit 1");
    setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
  }
  ~WaitingQueue() {
    setenv("PATH", path_.c_str(), 1);
    fs::remove_all(folder_);
  }
  WaitingQueue(const WaitingQueue&) = delete;
  WaitingQueue& operator=(const WaitingQueue&) = delete;
  [[nodiscard]] std::string cancelled() const {
    std::ifstream file(folder_ + "/cancelled");
    std::string job;
    std::getline(file, job);
    return job;
  }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  /// From now on squeue fails with these words.
  void fail(const std::string& words) const { std::ofstream(folder_ + "/says") << words << "\n"; }
  void program(const std::string& name, const std::string& script) const {
    std::ofstream(folder_ + "/" + name) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(folder_ + "/" + name, fs::perms::owner_all);
  }

 private:
  std::string folder_ = fs::temp_directory_path() / "waiting-queue-XXXXXX";
  std::string path_ = std::getenv("PATH");
};

}  // namespace

TEST_CASE("a Slurm job that was taken over and does not start is given back") {
  const WaitingQueue queue("run-7");
  ClusterOptions options;
  options.start = ClusterStart::srun;
  options.nodes = 2;
  Progress progress;
  std::string expected;
  SECTION("after cluster.wait") {
    options.wait_s = 0;
    expected = "did not start within 0 s (cluster.wait): Resources";
  }
  SECTION("when the user interrupts") {
    progress.interrupted = [] { return true; };
    expected = "interrupted while waiting for Slurm job 7";
  }
  ClusterSession session(options, 1);
  CHECK_THROWS_WITH(session.hold("run-7", {queue.folder()}, {}, progress),
                    ContainsSubstring(expected));
  CHECK(queue.cancelled() == "7");
}

TEST_CASE("an allocation that Slurm does not give in time stays in no queue") {
  const WaitingQueue queue("run-7");
  queue.program("salloc", "echo salloc: Pending job allocation 12 >&2; exec sleep 60");
  queue.program("squeue", "[ -e " + queue.folder() + "/cancelled ] || echo PartitionNodeLimit");
  ClusterOptions options;
  options.start = ClusterStart::srun;
  options.nodes = 2;
  options.wait_s = 5;
  CHECK_THROWS_WITH(allocate(options, 1, own_mark("run-7"), {}),
                    ContainsSubstring("gave no 2 nodes within 5 s (cluster.wait): job 12 is "
                                      "cancelled; it waited for PartitionNodeLimit"));
  CHECK(queue.cancelled() == "12");
}

TEST_CASE("an allocation of a salloc that was ended before it named it stays in no queue") {
  const WaitingQueue queue("run-7");
  const SlurmMark mark = own_mark("run-7");
  queue.program("salloc", "exec sleep 60");
  queue.program("squeue", "[ -e " + queue.folder() +
                              "/cancelled ] && exit\ncase \"$*\" in\n*--me*) "
                              "echo '7|PENDING|dynamiccl|Resources|" +
                              mark_text(own_mark("run-6")) +
                              "'; echo '12|PENDING|dynamiccl|Resources|" + mark_text(mark) +
                              "';;\n*) echo Resources;; esac");
  ClusterOptions options;
  options.start = ClusterStart::srun;
  options.nodes = 2;
  options.wait_s = 1;
  CHECK_THROWS_WITH(allocate(options, 1, mark, {}),
                    ContainsSubstring("job 12 is cancelled; it waited for Resources"));
  CHECK(queue.cancelled() == "12");
}

TEST_CASE("a Slurm that does not answer has neither ended a job nor cancelled it") {
  const WaitingQueue queue("run-7", "RUNNING");
  using std::chrono::seconds;
  CHECK(job_runs("7", seconds(0), {}));
  queue.fail("slurm_load_jobs error: Unable to contact slurm controller (connect failure)");
  CHECK_THROWS_WITH(job_runs("7", seconds(0), {}), ContainsSubstring("does not answer"));
  CHECK_THROWS_WITH(cancel_job("7", seconds(0)),
                    ContainsSubstring("job 7 is not cancelled, as Slurm does not answer: `scancel "
                                      "7`, or `dynamiccl clean`"));
  CHECK_THROWS_WITH(clean_jobs(), ContainsSubstring("Unable to contact slurm controller"));
  queue.fail("slurm_load_jobs error: Invalid job id specified");
  CHECK_FALSE(job_runs("7", seconds(0), {}));
  cancel_job("7", seconds(0));
  queue.fail("squeue: fatal: Could not establish a configuration source");
  CHECK(clean_jobs().empty());
}

TEST_CASE("an allocation that Slurm keeps, as it does not answer, is given back later") {
  const WaitingQueue queue("run-7", "RUNNING|None");
  queue.program("scontrol",
                "case \"$*\" in *details*) echo NodeList=n1 Nodes=n1 CPU_IDs=0-1;; "
                "*hostnames*) echo n1;; *) echo NumNodes=1;; esac");
  queue.program("salloc", "echo salloc: Granted job allocation 7 >&2");
  ClusterOptions options;
  options.start = ClusterStart::srun;
  options.nodes = 1;
  {
    ClusterSession session(options, 1);
    // srun of the survey fails, but the allocation is there by then.
    CHECK_THROWS(session.hold("run-8", {queue.folder()}, {}, {}));
    CHECK(session.job() == "7");
    queue.fail("Unable to contact slurm controller");
    Progress impatient;
    impatient.interrupted = [] { return true; };
    CHECK_THROWS_WITH(session.hold("run-8", {queue.folder()}, {}, impatient),
                      ContainsSubstring("Slurm does not answer"));
    CHECK(session.job() == "7");
    CHECK(queue.cancelled().empty());
    fs::remove(queue.folder() + "/says");
  }
  CHECK(queue.cancelled() == "7");
}

TEST_CASE("where srun puts ranks is said by the program alone, on nodes of one kind") {
  for (const char* name : {"SLURM_DISTRIBUTION", "SLURM_LABELIO"}) setenv(name, "1", 1);
  ClusterOptions options;
  options.start = ClusterStart::srun;
  options.nodes = 2;
  ClusterSession(options, 1);
  for (const char* name : {"SLURM_DISTRIBUTION", "SLURM_LABELIO"})
    CHECK(std::getenv(name) == nullptr);
  for (const char* name : {"SLURM_JOB_ID", "SLURM_HET_SIZE"}) setenv(name, "2", 1);
  CHECK_THROWS_WITH(ClusterSession(options, 1),
                    ContainsSubstring("Slurm job 2 is heterogeneous, of 2 components"));
  for (const char* name : {"SLURM_JOB_ID", "SLURM_HET_SIZE"}) unsetenv(name);
}

TEST_CASE("a Slurm job that is left out of a run's jobs is cancelled") {
  const bool suspended = GENERATE(true, false);
  CAPTURE(suspended);
  const WaitingQueue queue("run-7", suspended ? "SUSPENDED|None" : "RUNNING|None", "1-00:05:00");
  ClusterOptions options;
  options.start = ClusterStart::srun;
  options.nodes = 2;
  options.jobs = ClusterJobs::array;
  SlurmQueue jobs(options, 1);
  CHECK_THROWS_WITH(jobs.next(own_mark("run-7"), {}),
                    StartsWith("5 jobs have ended before a launch came to them"));
  CHECK(queue.cancelled() == "7");
}

TEST_CASE("a file of hosts is read or refused whatever is in it", "[safety]") {
  CHECK(parse_hosts("\xef\xbb\xbfnode1:4\r\nnode2\r\n", "x") ==
        std::vector<ClusterNode>{{"node1", 4}, {"node2", 1}});
  CHECK_THAT(refusal(std::string("a\0b", 3)),
             StartsWith("hosts:1: \"a\\x00b\" is no name of a host; a line is"));
  CHECK_THAT(refusal("root@-oProxyCommand=x"), ContainsSubstring("is no name of a host"));
  CHECK_THAT(refusal("root@"), ContainsSubstring("is no name of a host"));
  std::string often;
  for (int i = 0; i < 40'000; ++i) often += "a:65536\n";
  CHECK_THAT(refusal(often), StartsWith("hosts:2: \"a\" has more than 65536 slots"));
}

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
  CHECK_THAT(refusal("a\n2001:db8::1"), StartsWith("hosts:2: \"2001:db8::1\" looks like an IPv6"));
  CHECK_THAT(refusal("[fe80::1]:2"), ContainsSubstring("give it a name"));
  CHECK_THAT(refusal("node[1-4]:2"), ContainsSubstring("scontrol show hostnames"));
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

TEST_CASE("ranks are dealt to the hosts in turn, one to each that has room", "[E-75]") {
  const auto text = [](const std::vector<ClusterNode>& placed) {
    std::string names;
    for (const auto& node : dealt_in_turn(placed)) names += node.name + std::to_string(node.slots);
    return names;
  };
  CHECK(text({{"a", 2}, {"b", 2}}) == "a1b1a1b1");
  CHECK(text({{"a", 1}, {"b", 3}}) == "a1b1b1b1");
  CHECK(text({}).empty());

  ClusterOptions options = by_ssh();
  options.hosts = {{"node1", 2}, {"node2", 2}};
  options.dealt = true;
  const auto session = std::make_shared<ClusterSession>(options, 1);
  const auto plan = plan_environment(bare(), {"run-7", 4, {}, session});
  for (int rank = 0; rank < 4; ++rank) {
    const auto argv = plan.rank_command(rank, {"/b/worker"}, {});
    CHECK(argv[argv.size() - 2] == (rank % 2 == 0 ? "node1" : "node2"));
  }
  CHECK(plan.shape.dealt);
  CHECK(plan.shape.hosts.size() == 2);
  // Another order is another thing to measure.
  CHECK_THAT(placement_key(options, 2), EndsWith("on 2 nodes, dealt in turn"));
  EnvironmentProfile docker = bare();
  docker.kind = EnvironmentKind::cross_docker;
  docker.network = Sharing::host;
  if (!find_program("ssh").empty())
    CHECK_THAT(cluster_unavailable_reason(docker, *session).value_or(""),
               ContainsSubstring("cluster.dealt numbers ranks on bare metal or in Apptainer"));
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

TEST_CASE("why a job has ended is read from what Slurm says of it") {
  const auto ending = [](const std::string& words) {
    return ending_of(
        "7", "JobId=7 JobName=dynamiccl Restarts=2 " + words + " TimeLimit=00:01:00 NumNodes=2\n");
  };
  CHECK(ending("JobState=RUNNING Reason=None PreemptTime=None") == "");
  CHECK(ending("JobState=TIMEOUT Reason=TimeLimit") ==
        "Slurm job 7 has reached its time limit of 00:01:00 (cluster.time_limit)");
  CHECK(ending("JobState=RUNNING Reason=None RunTime=00:00:59") == "");
  CHECK(ending("JobState=RUNNING Reason=None RunTime=00:01:00") ==
        ending("JobState=TIMEOUT Reason=None"));
  CHECK(ending_of("7", "JobState=RUNNING RunTime=00:01:00 TimeLimit=UNLIMITED") == "");
  CHECK(ending("JobState=COMPLETING Reason=TimeLimit") == ending("JobState=TIMEOUT Reason=None"));
  CHECK(ending("JobState=PREEMPTED Reason=None") ==
        "Slurm job 7 was preempted: another job goes before it");
  // While it has its grace.
  CHECK(ending("JobState=RUNNING Reason=None PreemptTime=2026-11-26T03:00:00") ==
        ending("JobState=PREEMPTED Reason=None"));
  CHECK(ending("JobState=NODE_FAIL Reason=NodeDown") == "Slurm job 7 has lost a node");
  CHECK(ending("JobState=PENDING Reason=BeginTime") ==
        "Slurm has put job 7 back into its queue (2 restarts)");
  CHECK(ending("JobState=CANCELLED Reason=None") == "Slurm job 7 was cancelled");
  CHECK(ending("JobState=COMPLETED Reason=None") == "Slurm job 7 is over (COMPLETED)");
  CHECK(ending_of("7", "") == "Slurm job 7 is over (unknown by now)");
}

TEST_CASE("Slurm's lists of names are expanded, and what is none is refused") {
  CHECK(
      expand_names("n[08-10,2],login,a[1-2]b[1-2]") ==
      std::vector<std::string>{"n08", "n09", "n10", "n2", "login", "a1b1", "a1b2", "a2b1", "a2b2"});
  for (const char* bad : {"", ",", "n[1-", "n[a]", "n[1-999999999]", "n 1", "n]1[", "n[1--2]"})
    CHECK_THROWS_AS(expand_names(bad), Error);
}

TEST_CASE("nodes stand at the switches of Slurm's topology", "[F-06]") {
  const auto places = places_of_topology(
      "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=node[1-2]\n"
      "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=node3\n"
      "SwitchName=spine Level=1 LinkSpeed=1 Nodes=node[1-3] Switches=leaf[1-2]\n"
      "SwitchName=core Level=2 LinkSpeed=1 Nodes=node[1-4] Switches=spine\n"
      "SwitchName=odd Level=0 LinkSpeed=1 Nodes=node[9\nnothing of the kind\n");
  REQUIRE(places.size() == 4);
  CHECK(places.at("node1").leaf_switch == "leaf1");
  CHECK(places.at("node3").leaf_switch == "leaf2");
  CHECK(places.at("node2").rack == "spine");
  CHECK(places.at("node4").leaf_switch.empty());
  CHECK(places.at("node4").zone == "core");
  CHECK(places.at("node1").how == "Slurm's topology");
  CHECK(places_of_topology("").empty());
  CHECK(places_of_topology("No topology information available\n").empty());
}

TEST_CASE("an option that hides GPUs from tasks is known by its name and value") {
  for (const char* option : {"--gpus-per-task=1", "--gpu-bind=single:1", "--gpu-bind=closest",
                             "--tres-per-task=gres/gpu:1"})
    CHECK_THAT(why_hides_gpus(option), ContainsSubstring("NVLink"));
  for (const char* option : {"--gpus-per-node=4", "--gpu-bind=none", "--gpu-bind=verbose,none",
                             "--tres-per-task=cpu:2", "--account=a", ""})
    CHECK(why_hides_gpus(option).empty());
  setenv("SLURM_GPUS_PER_TASK", "1", 1);
  const auto around = hidden_gpus_around();
  unsetenv("SLURM_GPUS_PER_TASK");
  REQUIRE(around.size() == 1);
  CHECK_THAT(around[0], StartsWith("SLURM_GPUS_PER_TASK is set: --gpus-per-task=1 hides"));
  CHECK(hidden_gpus_around().empty());
}

TEST_CASE("a node without the ranks' network interface is named with those that it has") {
  const auto facts = nlohmann::json::parse(R"({"network": {"interfaces": [
    {"name": "lo", "kind": "loopback", "up": true},
    {"name": "eth0", "kind": "ethernet", "up": true, "tier": "10GbE", "mtu_bytes": 9000},
    {"name": "ib0", "kind": "ipoib", "up": false},
    {"name": "veth1", "kind": "veth", "up": true, "tier": "virtual"}, 3]}})");
  CHECK(why_no_interface(facts, "eth0").empty());
  CHECK(why_no_interface(facts, "ib0") ==
        "has no network interface ib0 that is up (cluster.interface), but eth0, veth1");
  CHECK_FALSE(why_no_interface(facts, "eth0,ib0").empty());
  CHECK(links_of_node(facts) == std::vector<std::string>{"eth0 10GbE, mtu 9000"});
  const auto container = nlohmann::json::parse(R"({"network": {"interfaces": [
    {"name": "eth0", "kind": "veth", "up": true, "tier": "virtual", "mtu_bytes": 1500,
     "addresses": ["172.29.0.4/24"]},
    {"name": "veth7", "kind": "veth", "up": true, "tier": "virtual", "addresses": []},
    {"name": "docker0", "kind": "bridge", "up": true, "addresses": ["172.17.0.1/16"]}]}})");
  CHECK(links_of_node(container) == std::vector<std::string>{"eth0 virtual, mtu 1500"});
  for (const char* damaged :
       {"null", "[]", R"({"network": 1})", R"({"network": {"interfaces": {"a": 1}}})"}) {
    CHECK(why_no_interface(nlohmann::json::parse(damaged), "ib0").empty());
    CHECK(links_of_node(nlohmann::json::parse(damaged)).empty());
  }
}

TEST_CASE("a step names its nodes, uneven shares rank by rank") {
  ClusterOptions options;
  options.start = ClusterStart::srun;
  const auto even = cluster_shape(options, {{"n1", 2}, {"n2", 2}}, "7", "dyn-0", {});
  CHECK_FALSE(even.slurm_daemons);
  CHECK(join(even.step_prefix, " ") ==
        "srun --jobid=7 --overlap --nodes=2 --ntasks=4 --ntasks-per-node=2 "
        "--distribution=block --nodelist=n1,n2 "
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
  REQUIRE(argv.size() > 2);
  CHECK(argv[argv.size() - 2] == "node2");
  // The other machine's shell gives the words back as they were.
  const auto words = run_command({"sh", "-c", "printf '[%s]' " + argv.back()}).out;
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

TEST_CASE("jobs of their own are put in order as Slurm knows it") {
  ClusterOptions options;
  options.start = ClusterStart::srun;
  options.nodes = 2;
  options.time_limit = "5";
  const auto line = [&](ClusterJobs jobs, const std::string& after) {
    options.jobs = jobs;
    return join(submission_argv(options, 2, {"run-7", "login", "1.2"}, 30, after, "900"), " ");
  };
  CHECK(line(ClusterJobs::array, "") ==
        "sbatch --parsable --no-requeue --array=0-29%1 --output=/dev/null --error=/dev/null "
        "--nodes=2 --ntasks-per-node=2 --job-name=dynamiccl --comment=dynamiccl run=run-7 "
        "host=login owner=1.2 --time=5 --wrap=exec sleep 900");
  CHECK_THAT(line(ClusterJobs::afterany, "12"), ContainsSubstring(" --dependency=afterany:12 "));
  CHECK(line(ClusterJobs::afterany, "").find("--dependency") == std::string::npos);
  CHECK_THAT(line(ClusterJobs::singleton, "12"), ContainsSubstring(" --dependency=singleton "));
  CHECK(slurm_seconds("5:07") == 307);
  CHECK(slurm_seconds("02:05:07") == 7507);
  CHECK(slurm_seconds("1-02:05:07") == 93907);
  CHECK(slurm_seconds("INVALID") == 0);
  CHECK(array_of("12_3") == "12");
  CHECK(array_of("12_[4-9%1]") == "12");
  CHECK(array_of("12") == "12");
  CHECK(submitted_job("12\n") == "12");
  CHECK(submitted_job("12;east\n") == "12");
  CHECK_THROWS_WITH(submitted_job("sbatch: queued"),
                    ContainsSubstring("instead of a job's number"));
  // Whoever measures in jobs of their own measures something else, in whatever order they come.
  CHECK(placement_key(options, 2) == "srun on 2 nodes, a job each");
}

TEST_CASE("what cannot go onto nodes is refused with the command that would have been used") {
  EnvironmentProfile docker = bare();
  docker.kind = EnvironmentKind::cross_docker;
  docker.ranks_per_container = 1;
  docker.network = Sharing::private_;
  const ClusterSession session(by_ssh(), 1);
  const auto reason = cluster_unavailable_reason(docker, session);
  REQUIRE(reason);
  if (find_program("ssh").empty()) {
    CHECK_THAT(*reason, ContainsSubstring("ssh -o BatchMode=yes"));
    return;
  }
  CHECK_THAT(*reason, ContainsSubstring("docker network create --driver overlay --attachable"));
  docker.network = Sharing::host;
  CHECK_FALSE(cluster_unavailable_reason(docker, session));
  docker.launcher = LauncherPlace::inside;
  CHECK(cluster_unavailable_reason(docker, session));
  CHECK_FALSE(cluster_unavailable_reason(bare(), session));
  EnvironmentProfile inside = bare();
  inside.kind = EnvironmentKind::singularity;
  inside.launcher = LauncherPlace::inside;
  CHECK(cluster_unavailable_reason(inside, session));
}

TEST_CASE("pyxis with and without boundaries is planned by its command alone") {
  ClusterOptions options;
  options.start = ClusterStart::srun;
  options.nodes = 2;
  options.engine = {"pyxis"};
  EnvironmentProfile profile = bare();
  profile.kind = EnvironmentKind::cross_docker;
  profile.ranks_per_container = 1;
  const auto shared = node_containers_reason(profile, options);
  REQUIRE(shared);
  CHECK_THAT(*shared, ContainsSubstring("srun --nodes=2 --container-image=dynamiccl-worker"));
  CHECK_THAT(*shared, !ContainsSubstring("--container-unshare"));
  profile.network = profile.ipc = profile.uts = Sharing::private_;
  CHECK_THAT(*node_containers_reason(profile, options),
             ContainsSubstring("--container-unshare=net,ipc,uts WORKER"));
}

TEST_CASE("a container for each rank stands on its node, held by a connection") {
  EnvironmentProfile docker = bare();
  docker.name = "cross-docker-host-network";
  docker.kind = EnvironmentKind::cross_docker;
  docker.ranks_per_container = 1;
  docker.ipc = docker.uts = docker.pid = Sharing::private_;
  const auto session = std::make_shared<ClusterSession>(by_ssh(), 1);
  const auto plan = plan_environment(docker, {"run-7", 4, {"/results"}, session, {"/build"}});
  REQUIRE(plan.containers.size() == 4);
  CHECK_THAT(plan.containers[2].name, StartsWith(plan.name + "-node2-"));
  const auto line = join(plan.containers[2].run_argv, " ");
  CHECK_THAT(line,
             StartsWith("ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15 -o "
                        "ServerAliveCountMax=4 node2 "));
  CHECK_THAT(line, ContainsSubstring("docker run --interactive --rm"));
  CHECK_THAT(line, ContainsSubstring("--network host"));
  CHECK_THAT(line, ContainsSubstring("--volume /build:/build:ro"));
  // Another machine's process ids would be taken for dead owners there.
  CHECK_THAT(line, !ContainsSubstring("dynamiccl.owner"));
  REQUIRE(plan.shape.hosts.size() == 4);
  CHECK(plan.shape.hosts[2].node == "node2");
  const auto rank = plan.rank_command(2, {"/build/worker", "it's"}, {{"A", "1 2"}});
  const auto words = run_command({"sh", "-c", "printf '[%s]' " + rank.back()}).out;
  CHECK_THAT(words, StartsWith("[docker][exec][--env][DYNAMICCL_RECORDS_TOKEN][--env][A=1 2]"));
  CHECK_THAT(words, ContainsSubstring("[" + plan.containers[2].name + "][/build/worker][it's]"));
  // No container reaches over nodes.
  docker.ranks_per_container = 3;
  const auto shared = plan_environment(docker, {"run-7", 4, {}, session});
  REQUIRE(shared.containers.size() == 2);
  CHECK(shared.containers[1].ranks == 2);
  if (!find_program("ssh").empty()) CHECK_FALSE(cluster_unavailable_reason(docker, *session));
}

TEST_CASE("the agent of containers on nodes hands a command on as it is") {
  const NearHosts hosts;
  ClusterOptions options = hosts.options();
  options.engine = {hosts.folder() + "/engine"};
  std::ofstream(options.engine.front()) << "#!/bin/sh\nprintf '[%s]' \"$@\"\n";
  fs::permissions(options.engine.front(), fs::perms::owner_all);
  EnvironmentProfile docker = bare();
  docker.kind = EnvironmentKind::cross_docker;
  docker.ranks_per_container = 1;
  const auto session = std::make_shared<ClusterSession>(options, 1);
  const auto plan = plan_environment(docker, {"run-7", 3, {}, session});
  const std::string agent = hosts.folder() + "/agent";
  std::ofstream(agent) << plan.scripts.front().text;
  const std::string& container = plan.containers[1].name;
  const auto said = run_command({"sh", agent, "-x", container, "orted", "'a b'", "$HOME\\"});
  CHECK(said.out == "[exec][--interactive][" + container + "][sh][-c][orted 'a b' $HOME\\]");
  CHECK(hosts.asked() == std::set<std::string>{"b"});
  CHECK(run_command({"sh", agent, "nobody", "true"}).exit_code == 255);
}

TEST_CASE("a held command ends when nobody holds it") {
  const std::string errors = fs::temp_directory_path() / "held-errors";
  HeldCommand held({"sh", "-c", "echo up; cat; echo over >&2"}, errors);
  CHECK(held.read_line("up", std::chrono::seconds(10), nullptr) == "up");
  CHECK_FALSE(held.read_line("never", std::chrono::milliseconds(50), nullptr));
  held.end(std::chrono::seconds(10));
  std::ifstream file(errors);
  std::string line;
  std::getline(file, line);
  CHECK(line == "over");
  fs::remove(errors);
  HeldCommand brief({"false"}, "/dev/null");
  CHECK_FALSE(brief.read_line("up", std::chrono::seconds(10), nullptr));
  CHECK_THROWS_AS(HeldCommand({"/nowhere/program"}, "/dev/null"), Error);
}

TEST_CASE("a launch asks its own hosts alone, and those only that it doubts") {
  const NearHosts hosts;
  ClusterSession session(hosts.options(), 1);
  CHECK(hosts.hold(session).empty());
  CHECK(hosts.asked() == std::set<std::string>{"a", "b", "c"});
  CHECK(session.reports().size() == 3);
  CHECK(hosts.hold(session).empty());
  CHECK(hosts.asked().empty());
  session.narrow_to({"b", "a"});
  // As launchers fill them, whoever is named first.
  CHECK(session.nodes().front().name == "a");
  hosts.kill("c");
  session.doubt();
  CHECK(hosts.hold(session).empty());
  CHECK(hosts.asked() == std::set<std::string>{"a", "b"});
  CHECK(session.reports().size() == 2);
}

TEST_CASE("what start-up files print on a node is no answer of the node") {
  const NearHosts hosts;
  hosts.greet("b", "missing you all\ntemporary maintenance on Friday\napart from that: welcome");
  ClusterSession session(hosts.options(), 1);
  CHECK(hosts.hold(session).empty());
  CHECK_FALSE(session.records_over_tcp());
  const auto said = session.on_nodes({{"a", 1}, {"b", 1}}, {"echo", "it's"}, {});
  CHECK(said[0].out == "it's\n");
  CHECK(said[1].out == "it's\n");
}

TEST_CASE("the node is named whose kernel has ended processes for want of memory") {
  const NearHosts hosts;
  ClusterSession session(hosts.options(), 1);
  CHECK(hosts.hold(session).empty());
  CHECK(session.ended_for_memory().empty());
  hosts.exhaust("b");
  CHECK_THAT(session.ended_for_memory(), ContainsSubstring("since the node was asked: b ("));
  // Told once.
  CHECK(session.ended_for_memory().empty());
}

TEST_CASE("who compares nodes by name waits for none and gets no other in its place") {
  const NearHosts hosts;
  ClusterSession session(hosts.options(), 1);
  session.keep_nodes();
  CHECK(hosts.hold(session).empty());
  hosts.kill("b");
  session.doubt();
  const auto begin = std::chrono::steady_clock::now();
  CHECK_THAT(hosts.hold(session), ContainsSubstring("b cannot be reached"));
  // Waiting for another would take a day.
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::minutes(5));
  session.narrow_to({"a", "c"});
  CHECK(hosts.hold(session).empty());
}

TEST_CASE("a remote shell stands in ssh's place for whoever starts something on a host") {
  const NearHosts hosts;
  auto options = hosts.options();
  const auto session = std::make_shared<ClusterSession>(options, 1);
  CHECK_FALSE(cluster_unavailable_reason(bare(), *session));
  const auto plan = plan_environment(bare(), {"run-7", 3, {"/build", "/results"}, session});
  CHECK(plan.shape.launch_agent == hosts.shell());
  const auto rank = run_command(plan.rank_command(1, {"printf", "[%s]", "it's"}, {}));
  CHECK(rank.out == "[it's]");
  CHECK(hosts.asked() == std::set<std::string>{"b"});
  options.remote_shell = "/nowhere/shell";
  const auto reason = cluster_unavailable_reason(bare(), ClusterSession(options, 1));
  REQUIRE(reason);
  CHECK_THAT(*reason, StartsWith("/nowhere/shell (cluster.remote_shell) is no program"));
}

TEST_CASE("records go by connections where they are told to, and the folder is asked for else") {
  const NearHosts hosts;
  auto options = hosts.options();
  ClusterSession by_folder(options, 1);
  CHECK(hosts.hold(by_folder).empty());
  CHECK_FALSE(by_folder.records_over_tcp());
  options.records = RecordsWay::tcp;
  ClusterSession by_tcp(options, 1);
  CHECK(hosts.hold(by_tcp).empty());
  CHECK(by_tcp.records_over_tcp());
}

TEST_CASE("records go by connections as the nodes of this launch need it, not those asked last") {
  const NearHosts hosts;
  hosts.part("b");
  ClusterSession session(hosts.options(), 1);
  const std::vector<std::pair<std::string, bool>> launches{
      {"b", true}, {"a", false}, {"b", true}, {"a", false}};
  for (const auto& [host, over_tcp] : launches) {
    session.narrow_to({host});
    CHECK(hosts.hold(session).empty());
    CHECK(session.records_over_tcp() == over_tcp);
  }
}
