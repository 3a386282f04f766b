// What NCCL does between two containers goes through the folder, and nothing stays in it.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/onehost/job.hpp"

namespace fs = std::filesystem;
using namespace dynamiccl::onehost;

namespace {

using Names = std::vector<std::string>;

Container with_gpus(const SharedFolder& folder, std::vector<int> gpus, int own) {
  Container container{.folder = folder.path(), .gpus = std::move(gpus)};
  container.variables["DRIVER_GPU"] = std::to_string(own);
  return container;
}
Container all_gpus(const SharedFolder& folder, int own) { return with_gpus(folder, {0, 1}, own); }
Container own_gpu(const SharedFolder& folder, int own) { return with_gpus(folder, {own}, own); }

/// A descriptor of memory goes from one to the other. @return the text in it
std::string passed(Rank& from, Rank& to, const std::string& name, const std::string& kind = "") {
  const std::string at = to.ask("bind 0 " + name + kind);
  const std::string self = from.ask("bind 1 " + name + kind);
  const std::string memory = from.ask("memory text-of-" + name);
  const std::string sent = from.ask("send " + self + " 0 " + name + " " + memory + kind);
  return sent == "1" ? to.ask("receive " + at) : sent;
}

void is_old(const fs::path& file) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::minutes(1));
}

}  // namespace

TEST_CASE("memory goes from one container to the other where both see all GPUs") {
  need_namespaces();
  const SharedFolder folder;
  Rank a(all_gpus(folder, 0));
  Rank b(all_gpus(folder, 1));
  const std::string id = a.ask("getenv NCCL_HOSTID");
  CHECK(id.find("onehost p2p, GPUs 0,1, user 0") == 0);
  CHECK(b.ask("getenv NCCL_HOSTID") == id);
  CHECK(a.ask("getenv NCCL_P2P_DISABLE") == "-");
  CHECK(a.ask("getenv NCCL_CUMEM_HOST_ENABLE") == "0");
  CHECK(a.ask("getenv NCCL_NVLS_ENABLE") == "0");
  CHECK(a.ask("dev") == b.ask("dev"));
  CHECK(passed(a, b, "abc") == "text-of-abc");
  CHECK(passed(b, a, "def") == "text-of-def");
  CHECK(folder.names() == Names{"nccl-gpu-0000:01:00.0", "nccl-gpu-0000:02:00.0",
                                "nccl-socket-0-abc", "nccl-socket-0-def", "nccl-socket-1-abc",
                                "nccl-socket-1-def"});
  CHECK(a.ask("environ") == "-");
  a.end();
  b.end();
  CHECK(folder.names() == Names{});
  CHECK(a.said() + b.said() == "");
}

TEST_CASE("files go from one container to the other where each sees its own GPU") {
  need_namespaces();
  const SharedFolder folder;
  Rank a(own_gpu(folder, 0));
  Rank b(own_gpu(folder, 1));
  const std::string id = a.ask("getenv NCCL_HOSTID");
  CHECK(id.find("onehost shm, GPUs one each, user 0") == 0);
  CHECK(b.ask("getenv NCCL_HOSTID") == id);
  CHECK(a.ask("getenv NCCL_P2P_DISABLE") == "1");
  for (const char* off : {"CUMEM_HOST", "NVLS", "WIN"})
    CHECK(a.ask("getenv NCCL_" + std::string(off) + "_ENABLE") == "0");
  CHECK(a.ask("dev") == b.ask("dev"));
  const std::string file = a.ask("shm hello");
  CHECK(file.find("/dev/shm/nccl-") == 0);
  CHECK(file.find("XXXXXX") == std::string::npos);
  CHECK(b.ask("read " + file) == "hello");
  CHECK(b.ask("unlink " + file) == "0");
  CHECK(b.ask("read " + file) == "errno 2");
  CHECK(b.ask("unlink " + file) == "0");
  a.end();
  b.end();
  CHECK(folder.names() == Names{});
}

TEST_CASE("sockets with names in /tmp go through the folder, too") {
  need_namespaces();
  const SharedFolder folder;
  Rank a(all_gpus(folder, 0));
  Rank b(all_gpus(folder, 1));
  CHECK(a.ask("getenv NCCL_HOSTID") == b.ask("getenv NCCL_HOSTID"));
  CHECK(passed(a, b, "abc", " path") == "text-of-abc");
  CHECK_FALSE(fs::exists("/tmp/nccl-socket-0-abc"));
  CHECK(a.ask("unlink /tmp/nccl-socket-0-abc") == "0");
  CHECK(passed(a, b, "def", " path") == "text-of-def");
  CHECK(fs::exists(folder.path() / "nccl-socket-0-abc"));
}

TEST_CASE("without the library containers are two hosts") {
  need_namespaces();
  const SharedFolder folder;
  Container first = all_gpus(folder, 0);
  Container second = all_gpus(folder, 1);
  first.preload = second.preload = false;
  Rank a(first);
  Rank b(second);
  CHECK(a.ask("getenv NCCL_HOSTID") == "-");
  CHECK(a.ask("dev") != b.ask("dev"));
  CHECK(passed(a, b, "abc") == "errno 111");
  CHECK(b.ask("read " + a.ask("shm hello")) == "errno 2");
}

TEST_CASE("a living socket outlives what children do with their copies") {
  need_namespaces();
  const SharedFolder folder;
  Rank a(all_gpus(folder, 0));
  Rank b(all_gpus(folder, 1));
  REQUIRE(a.ask("getenv NCCL_HOSTID") == b.ask("getenv NCCL_HOSTID"));
  const std::string at = a.ask("bind 0 abc");
  CHECK(a.ask("child fork " + at) == "0");
  CHECK(a.ask("child vfork " + at) == "0");
  CHECK(a.ask("child _exit " + at) == "0");
  CHECK(a.ask("system python3 -c 'import os, subprocess; os.closerange(3, 99); "
              "subprocess.run([\"true\"])'") == "0");
  CHECK(a.ask("system printf 'all:\\n\\t@true\\n\\t@sh -c true\\n' | make -s -f -") == "0");
  CHECK(a.ask("dup2 " + at + " 77") == "77");
  CHECK(a.ask("close " + at) == "0");
  const std::string self = b.ask("bind 1 abc");
  CHECK(b.ask("send " + self + " 0 abc " + b.ask("memory alive")) == "1");
  CHECK(a.ask("receive 77") == "alive");
}

TEST_CASE("a name in use is refused, and one whose process is gone is taken") {
  need_namespaces();
  const SharedFolder folder;
  Rank a(all_gpus(folder, 0));
  Rank b(all_gpus(folder, 1));
  REQUIRE(a.ask("getenv NCCL_HOSTID") == b.ask("getenv NCCL_HOSTID"));
  const std::string at = a.ask("bind 0 abc");
  CHECK(b.ask("bind 0 abc") == "errno 98");
  CHECK(b.ask("bind 0 abc path") == "errno 98");
  const std::string self = b.ask("bind 1 abc");
  CHECK(b.ask("send " + self + " 0 abc " + b.ask("memory still-there")) == "1");
  CHECK(a.ask("receive " + at) == "still-there");
  a.kill();
  CHECK(fs::exists(folder.path() / "nccl-socket-0-abc"));
  CHECK(b.ask("send " + self + " 0 abc 1") == "errno 111");
  CHECK(b.ask("bind 0 abc").find("errno") == std::string::npos);
}

TEST_CASE("the name of a closed socket goes with the next one or with the process") {
  need_namespaces();
  const SharedFolder folder;
  Rank a(all_gpus(folder, 0));
  REQUIRE(a.ask("getenv NCCL_HOSTID") != "-");
  for (int i = 0; i < 20; ++i) {
    const std::string at = a.ask("bind 0 " + std::to_string(i));
    CHECK(a.ask("close " + at) == "0");
  }
  CHECK(folder.names() == Names{"nccl-gpu-0000:01:00.0", "nccl-socket-0-19"});
  // The name is now another's: it stays.
  Rank b(all_gpus(folder, 1));
  REQUIRE(b.ask("getenv NCCL_HOSTID") != "-");
  REQUIRE(b.ask("bind 0 19") != "errno 98");
  const std::string how = GENERATE(as<std::string>{}, "exit", "_exit");
  a.end(how);
  CHECK(folder.names() == Names{"nccl-gpu-0000:02:00.0", "nccl-socket-0-19"});
  b.end(how);
  CHECK(folder.names() == Names{});
}

TEST_CASE("what killed ranks left goes with the next start, what lives stays") {
  need_namespaces();
  const SharedFolder folder;
  const auto killed = std::make_unique<Rank>(own_gpu(folder, 0));
  Rank living(own_gpu(folder, 1));
  REQUIRE(killed->ask("getenv NCCL_HOSTID") == living.ask("getenv NCCL_HOSTID"));
  CHECK(killed->ask("bind 0 abc") != "errno 98");
  CHECK(living.ask("bind 1 abc") != "errno 98");
  for (Rank* rank : {killed.get(), &living}) {
    const std::string file = rank->ask("shm text").substr(14);
    is_old(folder.path() / ("nccl-shm-" + file));
  }
  killed->kill();
  std::ofstream(folder.path() / "another-program") << "its own";
  std::ofstream(folder.path() / "nccl-AbCdEf") << "of a process without the library";
  CHECK(folder.names().size() == 8);
  Rank next(own_gpu(folder, 0));
  REQUIRE(next.ask("getenv NCCL_HOSTID") == living.ask("getenv NCCL_HOSTID"));
  CHECK(folder.names().size() == 6);
  CHECK_FALSE(fs::exists(folder.path() / "nccl-socket-0-abc"));
  CHECK(fs::exists(folder.path() / "nccl-socket-1-abc"));
  living.kill();
  next.end();
  Rank last(own_gpu(folder, 1));
  REQUIRE(last.ask("getenv NCCL_HOSTID") != "-");
  last.end();
  CHECK(folder.names() == Names{"another-program", "nccl-AbCdEf"});
}
