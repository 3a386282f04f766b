#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <ctime>
#include <fstream>

#include "profiles/detect/facts.hpp"
#include "profiles/detect/noise.hpp"
#include "profiles/detect/probes/cma_test.hpp"
#include "profiles/detect/probes/elf.hpp"
#include "profiles/detect/promise_check.hpp"

using namespace dynamiccl;
using nlohmann::json;

TEST_CASE("this process is described as the system describes it", "[B-27]") {
  const auto facts = probe_facts();
  char name[256] = {};
  REQUIRE(gethostname(name, sizeof name - 1) == 0);
  CHECK(facts["system"]["hostname"] == name);
  CHECK(facts["process"]["uid"] == getuid());
  cpu_set_t set;
  REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
  CHECK(facts["process"]["affinity"].size() == static_cast<std::size_t>(CPU_COUNT(&set)));
  CHECK(facts["namespaces"]["net"].is_number());
  CHECK(facts["memory"]["total_bytes"].get<std::uint64_t>() > (1U << 20));
  CHECK(facts["cpu"]["cores"].get<int>() >= 1);
  CHECK(facts["shm"]["device"].is_number());
  bool loopback = false;
  for (const auto& interface : facts["network"]["interfaces"])
    loopback = loopback || interface["kind"] == "loopback";
  CHECK(loopback);
}

TEST_CASE("the loaded libraries carry their build-ids", "[B-22]") {
  const auto libraries = probe_facts()["libraries"];
  bool libc = false;
  for (const auto& library : libraries["loaded"]) {
    if (library["name"] != "libc") continue;
    libc = true;
    CHECK(library["build_id"].get<std::string>().size() == 40);
  }
  CHECK(libc);
  CHECK(elf_build_id(ProbeRoot(), "/etc/passwd").reason == "no 64-bit ELF file");
}

TEST_CASE("probing takes a launch's ranks little processor time") {
  // Processor time, not the clock's: the machine may be busy with something else.
  const std::clock_t before = std::clock();
  for (int i = 0; i < 10; ++i) probe_facts({{}, false});
  const double seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  CHECK(seconds / 10 < 0.1);
}

TEST_CASE("the CMA test leaves no child, no zombie and no signal behind") {
  static volatile sig_atomic_t signals = 0;
  struct sigaction old {};
  struct sigaction handler {};
  handler.sa_handler = [](int) { signals = signals + 1; };
  REQUIRE(sigaction(SIGCHLD, &handler, &old) == 0);
  const auto result = test_cma();
  sigaction(SIGCHLD, &old, nullptr);
  REQUIRE(result);
  CHECK_FALSE(result->outcome.empty());
  CHECK(signals == 0);
  CHECK(waitpid(-1, nullptr, __WALL | WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

TEST_CASE("a process of this machine keeps the promise of bare metal") {
  ProfilePromise promise;
  promise.environment = "bare-metal";
  promise.runtimes = {"none"};
  for (const char* name : {"net", "ipc", "uts", "pid", "mnt", "shm", "user"})
    promise.namespaces.push_back({name, true, true});
  HelloRecord hello;
  hello.world_size = 1;
  CHECK(to_text(check_promise({promise, 1, 1}, probe_host(), {hello}, {{0, probe_facts()}})) == "");
}

TEST_CASE("a process in namespaces of its own breaks the promise of bare metal") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUTS | CLONE_NEWIPC) != 0) _exit(77);
    const std::string text = probe_facts({{}, false}).dump();
    const bool written =
        write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[65536];
  for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WEXITSTATUS(status) == 77) SKIP("this user may not make namespaces");
  REQUIRE(WEXITSTATUS(status) == 0);
  ProfilePromise promise;
  promise.environment = "bare-metal";
  promise.runtimes = {"none"};
  promise.namespaces = {{"uts", true, true}, {"ipc", true, true}, {"net", true, true}};
  HelloRecord hello;
  hello.world_size = 1;
  const auto found =
      check_promise({promise, 1, 1}, probe_host(), {hello}, {{0, json::parse(text)}});
  REQUIRE(found.size() == 2);
  CHECK(found[0].message.find("left the host's \"uts\"") != std::string::npos);
  CHECK(found[1].message.find("left the host's \"ipc\"") != std::string::npos);
}

TEST_CASE("noise is measured on the running machine") {
  const auto before = probe_noise();
  usleep(20000);
  const auto between = noise_between(before, probe_noise());
  CHECK(between["seconds"].get<double>() >= 0.02);
  CHECK(between["context_switches_per_s"].get<double>() > 0);
}
