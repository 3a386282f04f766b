// Containers on nodes, where an engine of a few lines stands for those of the nodes: what the
// program does when nodes and programs are lost. Real engines are in tests/e2e.
#include "containers/cluster/node_containers.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "containers/cluster/node_latency.hpp"
#include "containers/cluster/slurm.hpp"
#include "containers/held_command.hpp"
#include "containers/start/environment.hpp"
#include "core/vocabulary/text.hpp"
#include "tests/containers/near_hosts.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using dynamiccl::test::NearHosts;

namespace {

double seconds_of(const std::function<void()>& what) {
  const auto began = std::chrono::steady_clock::now();
  what();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// Every host's engine: its containers are files that hold their mark.
class NodeEngine {
 public:
  NodeEngine() {
    std::filesystem::create_directory(folder());
    std::ofstream(program()) << "#!/bin/sh\nS=" << folder() << "\n"
                             << R"sh(case "$1" in
version) echo 1;;
image) echo sha256:1;;
images) cat "$S/../images" 2>/dev/null;;
rmi) shift 2; for name; do grep -vxF "$name" "$S/../images" >"$S/../kept"; mv "$S/../kept" "$S/../images"; done;;
run)
  while [ $# -gt 0 ]; do
    case "$1" in
      --name) name=$2; shift;;
      --label) case "$2" in dynamiccl.holder=*) mark=${2#*=};; esac; shift;;
    esac; shift
  done
  echo begin >>"$S/../log"
  [ ! -e "$S/../together" ] || until [ $(grep -c begin "$S/../log") -gt 1 ]; do sleep 0.02; done
  sleep 0.1
  echo "x $mark" >"$S/$name"
  echo up >>"$S/../log"; echo container-is-up
  cat >/dev/null; rm -f "$S/$name";;
ps) case "$5" in
  name=*) ls "$S" | grep "^${5#name=^/?}";;
  *) ls "$S";; esac; true;;
inspect) shift 3; for id; do echo "$id $(cut -d' ' -f2- "$S/$id")"; done;;
rm) for id; do case "$id" in -*|rm) ;; *) rm -f "$S/$id";; esac; done;;
esac
)sh";
    std::filesystem::permissions(program(), std::filesystem::perms::owner_all);
  }
  [[nodiscard]] std::string program() const { return hosts.folder() + "/engine"; }
  [[nodiscard]] std::string folder() const { return hosts.folder() + "/containers"; }
  void keep(const std::string& name, const SlurmMark& mark) const {
    std::ofstream(folder() + "/" + name) << "x " << mark_text(mark) << "\n";
  }
  [[nodiscard]] std::size_t count() const {
    using Entries = std::filesystem::directory_iterator;
    return static_cast<std::size_t>(std::distance(Entries(folder()), Entries()));
  }
  [[nodiscard]] std::shared_ptr<ClusterSession> session(int slots) const {
    ClusterOptions options = hosts.options();
    options.engine = {program()};
    for (auto& host : options.hosts) host.slots = slots;
    return std::make_shared<ClusterSession>(options, slots);
  }
  [[nodiscard]] EnvironmentPlan plan(const std::shared_ptr<ClusterSession>& session,
                                     int ranks) const {
    EnvironmentProfile docker;
    docker.kind = EnvironmentKind::cross_docker;
    docker.ranks_per_container = 1;
    auto planned = plan_environment(docker, {"run-7", ranks, {}, session});
    planned.folder = hosts.folder();
    return planned;
  }
  /// Most containers that were starting at one time.
  [[nodiscard]] int most_at_once() const {
    std::ifstream log(hosts.folder() + "/log");
    int starting = 0;
    int most = 0;
    for (std::string word; log >> word;) {
      starting += word == "begin" ? 1 : -1;
      most = std::max(most, starting);
    }
    return most;
  }

  NearHosts hosts;
};

}  // namespace

TEST_CASE("a node that cannot be asked for its containers is told, one that answers is not") {
  const NodeEngine engine;
  const auto session = engine.session(1);
  const auto plan = engine.plan(session, 3);
  NodeContainers containers(session, plan, {});
  CHECK(engine.count() == 3);
  engine.hosts.kill("b");
  const std::string left = containers.stop();
  CHECK_THAT(left, ContainsSubstring("could not look at b for containers of " + plan.name));
  CHECK_THAT(left, !ContainsSubstring("at a ") && !ContainsSubstring("could not remove"));
  CHECK(containers.stop() == left);
  CHECK(engine.count() == 0);
}

TEST_CASE("a start removes what runs of this machine that are over have left on the node") {
  const NodeEngine engine;
  SlurmMark mark = own_mark("run-6");
  engine.keep("alive", mark);
  mark.owner = "1.1.0.0";
  engine.keep("dead", mark);
  mark.host = "elsewhere";
  engine.keep("of-another-machine", mark);
  const auto session = engine.session(1);
  const auto plan = engine.plan(session, 3);
  NodeContainers containers(session, plan, {});
  CHECK(engine.count() == 5);
  CHECK_FALSE(std::filesystem::exists(engine.folder() + "/dead"));
  CHECK(containers.stop().empty());
  CHECK(engine.count() == 2);
}

TEST_CASE("a start removes the images that runs of this machine which are over were sending") {
  const NodeEngine engine;
  const SlurmMark mine = own_mark("");
  const std::string arriving = "localhost/dynamiccl-worker:0123-arriving-";
  std::ofstream(engine.hosts.folder() + "/images")
      << "dynamiccl-worker:0123\n<none>:<none>\nother:1-arriving-\n"
      << arriving << mine.owner << "-" << mine.host << "\n"
      << arriving << "1.1.0.0-" << mine.host << "\n"
      << arriving << "1.1.0.0-elsewhere\n";
  const auto session = engine.session(1);
  session->narrow_to({"a"});
  static std::string said;
  said.clear();
  Progress progress;
  progress.say = [](const std::string& line) { said += line + "\n"; };
  const auto plan = engine.plan(session, 1);
  NodeContainers containers(session, plan, progress);
  std::stringstream left;
  left << std::ifstream(engine.hosts.folder() + "/images").rdbuf();
  CHECK(left.str() == "dynamiccl-worker:0123\n<none>:<none>\nother:1-arriving-\n" + arriving +
                          mine.owner + "-" + mine.host + "\n" + arriving + "1.1.0.0-elsewhere\n");
  CHECK(said == "a: 1 images that runs which are over were sending removed\n");
}

TEST_CASE("containers of a node start a few at a time, as sshd takes logins") {
  const NodeEngine engine;
  const auto session = engine.session(9);
  session->narrow_to({"a"});
  // On a busy machine the first would be up before the second begins.
  std::ofstream(engine.hosts.folder() + "/together");
  const auto plan = engine.plan(session, 9);
  NodeContainers containers(session, plan, {});
  CHECK(engine.count() == 9);
  CHECK(engine.most_at_once() <= 4);
  CHECK(engine.most_at_once() > 1);
}

TEST_CASE("a start of containers on nodes ends when the user interrupts, and leaves none") {
  const NodeEngine engine;
  const auto session = engine.session(1);
  const auto plan = engine.plan(session, 3);
  static std::string log;
  log = engine.hosts.folder() + "/log";
  Progress progress;
  SECTION("before any is started") {
    progress.interrupted = [] { return true; };
  }
  SECTION("while they start") {
    progress.interrupted = [] { return std::filesystem::exists(log); };
  }
  CHECK_THROWS_WITH(NodeContainers(session, plan, progress),
                    ContainsSubstring("interrupted while containers start"));
  CHECK(engine.count() == 0);
}

TEST_CASE("a measurement of latency ends when the user interrupts") {
  const NearHosts hosts;
  std::ofstream(hosts.folder() + "/silent") << "#!/bin/sh\ncat >/dev/null\n";
  std::filesystem::permissions(hosts.folder() + "/silent", std::filesystem::perms::owner_all);
  const ClusterSession session(hosts.options(), 1);
  const NodeArgv argv = [&](const std::string& node, const std::vector<std::string>& command,
                            bool takes_input) {
    return session.node_argv(node, command, takes_input);
  };
  Progress progress;
  progress.interrupted = [] { return true; };
  const double took = seconds_of([&] {
    CHECK(measure_latencies({"a", "b", "c"}, argv, hosts.folder() + "/silent", "lo", 2, progress)
              .empty());
  });
  CHECK(took < 30);
}

TEST_CASE("held commands that do not end share the time that they are given") {
  std::vector<HeldCommand> held;
  for (int i = 0; i < 10; ++i)
    held.emplace_back(std::vector<std::string>{"sleep", "600"}, "/dev/null");
  // Three seconds in all, where each on its own would make thirty.
  CHECK(seconds_of([&] { HeldCommand::end_all(held, std::chrono::seconds(3)); }) < 25);
}

TEST_CASE("containers on nodes are given the GPUs that their profile says") {
  const NodeEngine engine;
  auto options = engine.session(2)->options();
  options.gpus_per_node = 2;
  EnvironmentProfile docker;
  docker.kind = EnvironmentKind::cross_docker;
  docker.ranks_per_container = 1;
  const auto lines = [&] {
    const auto session = std::make_shared<ClusterSession>(options, 2);
    std::vector<std::string> all;
    for (const auto& container : plan_environment(docker, {"run-7", 6, {}, session}).containers)
      all.push_back(run_command({"sh", "-c", "echo " + container.run_argv.back()}).out);
    return all;
  };
  for (const auto& line : lines()) CHECK_THAT(line, !ContainsSubstring("--gpus"));
  docker.gpus = GpuVisibility::one_per_rank;
  CHECK_THAT(lines()[0], ContainsSubstring("--gpus \"device=0\""));
  CHECK_THAT(lines()[1], ContainsSubstring("--gpus \"device=1\""));
  CHECK_THAT(lines()[2], ContainsSubstring("--gpus \"device=0\""));
  docker.gpus = GpuVisibility::all;
  CHECK_THAT(lines()[1], ContainsSubstring("--gpus \"device=0,1\""));
  CHECK_FALSE(node_containers_reason(docker, options));
  options.engine = {"sudo", "podman"};
  const auto reason = node_containers_reason(docker, options);
  REQUIRE(reason);
  CHECK_THAT(*reason, ContainsSubstring("Podman on nodes is given no GPUs"));
  docker.gpus = GpuVisibility::none;
  CHECK_FALSE(node_containers_reason(docker, options));
}
