// Container runs of one machine at the same time, with caches of their own.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "containers/run_folder.hpp"
#include "tests/containers/real_support.hpp"
#include "tests/containers/support.hpp"
#include "tests/e2e/program.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

/// A cache with an engine of its own, and the images of the usual one.
struct Cache {
  TempFolder folder;
  Cache() { fs::create_symlink(cache_folder() + "/images", folder.path() + "/images"); }
};

std::string experiment(const std::string& environments) {
  return one_cell(environments, "gloo") +
         "[protocol]\nwarmup = 0\niterations = 5\nlaunches = 2\nretries = 0\n";
}

// Each launch takes seconds, so that something can meet one under way.
const std::string kSlowRun = one_cell("\"cross-docker\"", "gloo") +
                             "[protocol]\nwarmup = 0\niterations = 1000000\n"
                             "cell_time_cap = \"4s\"\nlaunches = 3\n";

PrivateEngineOptions engine_of(const Cache& cache) { return {cache.folder.path() + "/docker", {}}; }

/// Has the program start an engine of its own, which alone a test may end: in another network than
/// this machine's engines, which would be shared.
void use_own_engine(Program& program) {
  need(shipped("cross-docker"));
  prepare(shipped("cross-docker"), {});
  if (!is_root()) SKIP("a network of its own needs root");
  program.start_behind({"unshare", "--net"});
}

/// Process id of the engine that runs in the cache; 0 where none does.
pid_t engine_in(const Cache& cache) {
  pid_t engine = 0;
  std::ifstream(engine_of(cache).folder + "/pid") >> engine;
  return engine;
}

/// A socket that takes connections and never answers.
class SilentSocket {
 public:
  explicit SilentSocket(std::string path) : path_(std::move(path)) {
    file_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    REQUIRE(path_.size() < sizeof(address.sun_path));
    path_.copy(address.sun_path, path_.size());
    REQUIRE(bind(file_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(file_, 64) == 0);
  }
  ~SilentSocket() { close(file_); }
  SilentSocket(const SilentSocket&) = delete;
  SilentSocket& operator=(const SilentSocket&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  int file_ = -1;
};

/// A PATH of one folder that has all programs of today's but this one.
std::string programs_without(const std::string& name, const std::string& folder) {
  fs::create_directory(folder);
  for (const auto& part : split(std::getenv("PATH"), ':')) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(part, none))
      if (entry.path().filename() != name)
        fs::create_symlink(entry.path(), fs::path(folder) / entry.path().filename(), none);
  }
  return folder;
}

void check_undone(const Program& program, const Cache& cache) {
  CHECK(program.processes().empty());
  CHECK_FALSE(engine_running(engine_of(cache)));
  CHECK(mounts_below(cache.folder.path()).empty());
}

}  // namespace

TEST_CASE("a container run whose terminal closes takes its engine down", "[safety]") {
  Program program;
  use_own_engine(program);
  const Cache own;
  const ScopedVariable cache("DYNAMICCL_CACHE", own.folder.path());
  program.hold_launches(1);
  int terminal = -1;
  const pid_t pid = program.start_in_terminal({"run", program.file("x.toml", kSlowRun)}, terminal);
  const bool under_way = program.wait_until(kOkLaunches, 1) && program.wait_until(kRunning, 1);
  CHECK(engine_in(own) > 1);
  close(terminal);
  CHECK(Program::wait(pid) == 128 + SIGHUP);
  REQUIRE(under_way);
  CHECK(program.value("SELECT status FROM run") == "interrupted");
  check_undone(program, own);
}

TEST_CASE("an engine of ours that dies in a run is started again", "[safety][long]") {
  Program program;
  use_own_engine(program);
  const Cache own;
  const ScopedVariable cache("DYNAMICCL_CACHE", own.folder.path());
  const pid_t pid = program.start({"run", program.file("x.toml", kSlowRun)});
  const bool under_way = program.wait_until(kOkLaunches, 1);
  const pid_t first = engine_in(own);
  if (first > 1) kill(first, SIGKILL);
  // Another one runs before the run's end.
  bool again = false;
  for (int i = 0; i < 1200 && !again && kill(pid, 0) == 0; ++i) {
    const pid_t now = engine_in(own);
    again = now > 1 && now != first;
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  const int code = Program::wait(pid);
  REQUIRE(under_way);
  REQUIRE(first > 1);
  CHECK(again);
  INFO(program.rows("SELECT status, reason FROM launch").dump(1));
  CHECK(code == 0);
  CHECK(program.value(kOkLaunches) == 3);
  check_undone(program, own);
}

TEST_CASE("a resume while another dockerd starts fails, and can be resumed again",
          "[safety][long]") {
  Program program;
  use_own_engine(program);
  const Cache own;
  const ScopedVariable cache("DYNAMICCL_CACHE", own.folder.path());
  const auto path = program.file("x.toml", kSlowRun);
  program.hold_launches(1);
  const pid_t pid = program.start({"run", path});
  const bool under_way = program.wait_until(kOkLaunches, 1) && program.wait_until(kRunning, 1);
  kill(pid, SIGINT);
  CHECK(Program::wait(pid) == 128 + SIGINT);
  REQUIRE(under_way);
  program.let_go();
  {
    // As of a dockerd between its start and its first answer.
    const SilentSocket socket(program.folder() + "/silent.sock");
    const ScopedVariable host("DOCKER_HOST", "unix://" + socket.path());
    // It would be used in a silent dockerd's place.
    const ScopedVariable programs("PATH", programs_without("podman", program.folder() + "/bin"));
    const auto resumed = program.run({"run", path, "--resume"});
    INFO(resumed.err);
    CHECK(resumed.exit_code == 1);
    CHECK_THAT(resumed.err, ContainsSubstring("does not answer on " + socket.path()));
  }
  CHECK(program.value("SELECT status FROM run") == "failed");
  CHECK(program.value(kOkLaunches) < 3);
  const auto resumed = program.run({"run", path, "--resume"});
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(program.value("SELECT status FROM run") == "complete");
  CHECK(program.value(kOkLaunches) == 3);
  check_undone(program, own);
}

TEST_CASE("container runs with two caches and two databases end well beside each other",
          "[safety]") {
  need(shipped("cross-docker"));
  prepare(shipped("cross-docker"), {});
  if (!find_engine().engine->is_private) SKIP("an engine of somebody else would be used by both");
  const Cache cache_one;
  const Cache cache_other;
  const Program one;
  const Program other;
  const std::string environments = "[\"cross-docker\", \"single-docker\"]";
  pid_t first = 0;
  pid_t second = 0;
  {
    const ScopedVariable cache("DYNAMICCL_CACHE", cache_one.folder.path());
    first = one.start({"run", one.file("x.toml", experiment(environments))});
  }
  {
    const ScopedVariable cache("DYNAMICCL_CACHE", cache_other.folder.path());
    second = other.start({"run", other.file("x.toml", experiment(environments))});
  }
  CHECK(Program::wait(first) == 0);
  CHECK(Program::wait(second) == 0);
  for (const Program* program : {&one, &other}) {
    CHECK(program->value(kOkLaunches) == 4);
    CHECK(program->value("SELECT count(*) FROM launch") == 4);
    CHECK(program->processes().empty());
  }
  for (const Cache* cache : {&cache_one, &cache_other}) {
    const PrivateEngineOptions engine{cache->folder.path() + "/docker", {}};
    CHECK_FALSE(engine_running(engine));
    CHECK(mounts_below(cache->folder.path()).empty());
  }
}

TEST_CASE("everything that a container run makes carries the run's label", "[safety]") {
  const auto lease = held_engine();
  const std::string named = "name=" + RunFolder::planned_name(test_run("labels"));
  const auto environment = started(shipped("cross-docker"), test_request("labels"));
  const Engine engine = *find_engine().engine;
  const std::string label = "label=dynamiccl.run=" + test_run("labels");
  const auto count = [&](std::vector<std::string> listing, const std::string& filter) {
    listing.insert(listing.end(), {"--quiet", "--filter", named});
    if (!filter.empty()) listing.insert(listing.end(), {"--filter", filter});
    const auto lines = trim(run_command(engine_argv(engine, listing)).out);
    return lines.empty() ? 0 : static_cast<int>(split(std::string(lines), '\n').size());
  };
  for (const auto& listing :
       std::vector<std::vector<std::string>>{{"ps", "--all"}, {"network", "ls"}}) {
    CHECK(count(listing, "") > 0);
    CHECK(count(listing, "") == count(listing, label));
  }
}
