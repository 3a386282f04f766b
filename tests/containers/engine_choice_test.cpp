#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

#include "containers/engine_choice.hpp"
#include "containers/private_engine.hpp"
#include "containers/processes.hpp"
#include "core/vocabulary/text.hpp"
#include "support.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

EngineFacts docker_host() {
  EngineFacts facts;
  facts.docker_client = true;
  facts.dockerd = true;
  facts.root = true;
  facts.user = "ada";
  facts.private_socket = "/var/cache/dynamiccl/docker/s.sock";
  return facts;
}

constexpr int kNotAllowed = 77;

/// Is a process that is called dockerd, told to listen on a socket, found?
/// @param apart in a network namespace of its own
bool finds_dockerd(const TempFolder& folder, bool apart) {
  const std::string program = folder.path() + "/dockerd";
  const std::string socket = folder.path() + "/s.sock";
  std::ofstream(program) << "#!/bin/sh\nexec 3>ready\nread -r never <fifo\n";
  std::filesystem::permissions(program, std::filesystem::perms(0755));
  std::ofstream{socket};
  if (mkfifo((folder.path() + "/fifo").c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
  const pid_t child = fork();
  if (child == 0) {
    if (chdir(folder.path().c_str()) != 0 || (apart && unshare(CLONE_NEWNET) != 0))
      _exit(kNotAllowed);
    execl(program.c_str(), program.c_str(), "-H", ("unix://" + socket).c_str(), nullptr);
    _exit(1);
  }
  int status = 0;
  while (!std::filesystem::exists(folder.path() + "/ready") &&
         waitpid(child, &status, WNOHANG) == 0)
    usleep(1000);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotAllowed)
    SKIP("a network namespace needs root");
  const auto sockets = look_at_machine().docker_sockets;
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return std::any_of(sockets.begin(), sockets.end(),
                     [&](const auto& seen) { return seen.path == socket; });
}

}  // namespace

TEST_CASE("a dockerd in another network namespace is not taken for this machine's") {
  CHECK(finds_dockerd(TempFolder(), false));
  CHECK_FALSE(finds_dockerd(TempFolder(), true));
}

TEST_CASE("a running dockerd is used, never doubled") {
  EngineFacts facts = docker_host();
  facts.dockerd_running = true;
  facts.docker_sockets = {{"/var/run/docker.sock", true, true}};
  const auto search = choose_engine(facts);
  REQUIRE(search.engine);
  CHECK_FALSE(search.engine->is_private);
  CHECK(search.engine->socket == "/var/run/docker.sock");
}

TEST_CASE("a dockerd on an unusual socket is found and named in every command") {
  EngineFacts facts = docker_host();
  facts.dockerd_running = true;
  facts.docker_sockets = {{"/run/other.sock", true, true}};
  const auto search = choose_engine(facts);
  REQUIRE(search.engine);
  CHECK(engine_argv(*search.engine, {"ps"}) ==
        std::vector<std::string>{"docker", "--host", "unix:///run/other.sock", "ps"});
}

TEST_CASE("a private engine only where none runs, dockerd is installed and the user is root") {
  EngineFacts facts = docker_host();
  REQUIRE(choose_engine(facts).engine);
  CHECK(choose_engine(facts).engine->is_private);
  CHECK(choose_engine(facts).engine->socket == facts.private_socket);

  EngineFacts user = facts;
  user.root = false;
  CHECK_FALSE(choose_engine(user).engine);
  CHECK_THAT(choose_engine(user).reason, ContainsSubstring("systemctl start docker"));

  EngineFacts hung = facts;
  hung.dockerd_running = true;
  hung.docker_sockets = {{"/var/run/docker.sock", true, false}};
  CHECK_FALSE(choose_engine(hung).engine);
  CHECK(choose_engine(hung).silent);
  CHECK_THAT(choose_engine(hung).reason, ContainsSubstring("does not answer"));
}

TEST_CASE("a dockerd whose socket is not known is not doubled: the reason says how to name it") {
  EngineFacts facts = docker_host();
  facts.dockerd_running = true;  // told its hosts by daemon.json, or on TCP
  auto search = choose_engine(facts);
  CHECK_FALSE(search.engine);
  CHECK_FALSE(search.silent);
  CHECK_THAT(search.reason, ContainsSubstring("at no known place") &&
                                ContainsSubstring("DOCKER_HOST=unix:///PATH") &&
                                ContainsSubstring("/etc/docker/daemon.json"));
  facts.docker_sockets = {{"/var/run/docker.sock", true, false}};
  search = choose_engine(facts);
  CHECK_FALSE(search.engine);
  CHECK_THAT(search.reason, ContainsSubstring("does not answer on /var/run/docker.sock"));
  // A socket that a dead one has left is no running one.
  facts.dockerd_running = false;
  REQUIRE(choose_engine(facts).engine);
  CHECK(choose_engine(facts).engine->is_private);
  // systemd listens for one that starts when it is spoken to: it is waited for, not doubled.
  facts.docker_sockets[0].listens = true;
  CHECK_FALSE(choose_engine(facts).engine);
  CHECK(choose_engine(facts).silent);
  facts.docker_sockets[0].listens = false;
  // Podman is another engine, not a second dockerd.
  facts.dockerd_running = facts.podman = facts.catatonit = true;
  REQUIRE(choose_engine(facts).engine);
  CHECK(choose_engine(facts).engine->kind == EngineKind::podman);
}

TEST_CASE("our private dockerd is told from others by the folder on its command line") {
  const PrivateEngineOptions ours{"/var/cache/dynamiccl/docker", {}};
  const auto process = [](const std::string& root) {
    return ProcessInfo{1, "dockerd", {"dockerd", "--exec-root", root + "/exec"}};
  };
  CHECK(belongs_to_engine(process(ours.folder), ours));
  CHECK_FALSE(belongs_to_engine(process("/var/cache/dynamiccl/docker2"), ours));
  CHECK_FALSE(belongs_to_engine({1, "dockerd", {"/usr/sbin/dockerd", "-H", "fd://"}}, ours));
}

TEST_CASE("a socket the user may not open names the group and sudo") {
  EngineFacts facts = docker_host();
  facts.root = false;
  facts.dockerd_running = true;
  facts.docker_sockets = {{"/var/run/docker.sock", false, false}};
  const auto search = choose_engine(facts);
  CHECK_FALSE(search.engine);
  CHECK_FALSE(search.silent);
  CHECK_THAT(search.reason, ContainsSubstring("usermod -aG docker ada") &&
                                ContainsSubstring("with sudo") && !ContainsSubstring("podman"));
}

TEST_CASE("Podman serves where Docker is absent, with the flags this machine needs") {
  EngineFacts facts;
  facts.podman = true;
  facts.catatonit = true;
  facts.root = true;
  facts.may_raise_limits = false;
  facts.hybrid_cgroups = true;
  const auto search = choose_engine(facts);
  REQUIRE(search.engine);
  CHECK(search.engine->kind == EngineKind::podman);
  CHECK(join(search.engine->run_flags, " ") ==
        "--runtime runc --ulimit nofile=1024:1024 --ulimit nproc=4096:4096");

  facts.may_raise_limits = true;
  facts.hybrid_cgroups = false;
  CHECK(choose_engine(facts).engine->run_flags.empty());

  facts.catatonit = false;
  CHECK_THAT(choose_engine(facts).reason, ContainsSubstring("catatonit"));
  facts.root = false;
  CHECK_THAT(choose_engine(facts).reason, ContainsSubstring("rootless"));
}

TEST_CASE("an engine on nodes is known by the program behind sudo and env, with no flags of ours") {
  const auto kind = [](const std::vector<std::string>& command) {
    const Engine engine = named_engine(command);
    CHECK(engine.run_flags.empty());
    CHECK(engine.command == command);
    return engine.kind;
  };
  for (const std::vector<std::string>& podman : std::vector<std::vector<std::string>>{
           {"podman"},
           {"/usr/bin/podman", "--runtime", "runc"},
           {"sudo", "podman"},
           {"sudo", "-n", "-u", "docker", "env", "A=docker", "podman"}})
    CHECK(kind(podman) == EngineKind::podman);
  for (const std::vector<std::string>& docker :
       std::vector<std::vector<std::string>>{{"docker", "--context", "podman"},
                                             {"sudo", "-u", "podman", "docker"},
                                             {"docker", "--host", "unix:///run/podman"},
                                             {"/opt/wrapper"},
                                             {"sudo"}})
    CHECK(kind(docker) == EngineKind::docker);
}

TEST_CASE("nothing installed gives the exact command, with sudo for an ordinary user") {
  EngineFacts facts;
  CHECK_THAT(choose_engine(facts).reason, ContainsSubstring("sudo apt-get install"));
  facts.root = true;
  CHECK_THAT(choose_engine(facts).reason,
             ContainsSubstring("apt-get install") && !ContainsSubstring("sudo"));
}

TEST_CASE("an engine on another machine is refused: ranks need this machine's folders") {
  EngineFacts facts = docker_host();
  facts.remote_host = "tcp://10.0.0.1:2375";
  CHECK_FALSE(choose_engine(facts).engine);
  CHECK_THAT(choose_engine(facts).reason, ContainsSubstring("tcp://10.0.0.1:2375"));
}

TEST_CASE("a file that is no socket does not answer") {
  CHECK_FALSE(docker_answers("/etc/passwd"));
  CHECK_FALSE(docker_answers("/nowhere"));
  CHECK_FALSE(docker_answers(std::string(200, 'x')));
}
