// Which containers are one host, how they send, and what is said where they are not.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/onehost/job.hpp"

namespace fs = std::filesystem;
using namespace dynamiccl::onehost;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

Container container(const SharedFolder& folder, std::vector<int> gpus, Variables variables = {}) {
  return {.folder = folder.path(), .gpus = std::move(gpus), .variables = std::move(variables)};
}

/// How NCCL sends in this container: the host id up to the GPUs.
std::string way_of(const Container& container) {
  Rank rank(container);
  const std::string id = rank.ask("getenv NCCL_HOSTID");
  return id.substr(0, id.find(','));
}

/// The line that a container of this kind says, all of it; nothing is moved there.
std::string refusal(const Container& container) {
  Rank rank(container);
  CHECK(rank.ask("getenv NCCL_HOSTID") == "-");
  CHECK(rank.ask("getenv NCCL_P2P_DISABLE") == "-");
  CHECK(rank.ask("bind 0 abc").find("errno") == std::string::npos);
  const std::string file = rank.ask("shm text");
  CHECK(rank.ask("read " + file) == "text");
  CHECK_FALSE(fs::exists(container.folder / "nccl-socket-0-abc"));
  rank.end();
  return rank.said();
}

}  // namespace

TEST_CASE("containers with other GPUs are other hosts, and the second says so") {
  need_namespaces();
  const SharedFolder folder;
  const auto [first, second] = GENERATE(table<std::vector<int>, std::vector<int>>(
      {{{0, 1}, {0, 1, 2}}, {{0, 1}, {2, 3}}, {{0, 1}, {1}}, {{1}, {0, 2}}}));
  Rank a(container(folder, first, {{"DRIVER_GPU", "1"}}));
  Rank b(container(folder, second, {{"DRIVER_GPU", "2"}}));
  const std::string id = a.ask("getenv NCCL_HOSTID");
  CHECK(b.ask("getenv NCCL_HOSTID") != id);
  b.end();
  a.end();
  CHECK(a.said() == "");
  CHECK_THAT(
      b.said(),
      StartsWith("dynamiccl-onehost: two hosts to NCCL, by TCP, as they differ: this process ("));
}

TEST_CASE("NCCL's memory without handles goes through files") {
  need_namespaces();
  const SharedFolder folder;
  Container all = container(folder, {0, 1});
  const auto with = [&](const std::string& version, const Variables& variables) {
    all.version = version;
    all.variables = variables;
    return way_of(all);
  };
  CHECK(with("2.28.9", {}) == "onehost p2p");
  CHECK(with("2.28.9", {{"NCCL_CUMEM_ENABLE", "0"}}) == "onehost shm");
  CHECK(with("2.28.9", {{"NCCL_CUMEM_ENABLE", "-2"}}) == "onehost p2p");
  CHECK(with("2.28.9", {{"DRIVER_ATTRIBUTE_102", "0"}}) == "onehost shm");
  CHECK(with("2.28.9", {{"DRIVER_ATTRIBUTE_110", "0"}}) == "onehost p2p");
  CHECK(with("2.28.9", {{"DRIVER_FAILS", "1"}}) == "onehost shm");
  CHECK(with("2.21.5", {}) == "onehost p2p");
  CHECK(with("2.21.5", {{"DRIVER_ATTRIBUTE_110", "0"}}) == "onehost shm");
  CHECK(with("2.18.6", {}) == "onehost shm");
  CHECK(with("2.18.6", {{"NCCL_CUMEM_ENABLE", "1"}}) == "onehost p2p");
}

TEST_CASE("one variable overrides the way and switches the library off") {
  need_namespaces();
  const SharedFolder folder;
  CHECK(way_of(container(folder, {0, 1}, {{"DYNAMICCL_ONEHOST", "shm"}})) == "onehost shm");
  CHECK(way_of(container(folder, {0}, {{"DYNAMICCL_ONEHOST", "p2p"}})) == "onehost p2p");
  CHECK(way_of(container(folder, {0, 1}, {{"DYNAMICCL_ONEHOST", "1"}})) == "onehost p2p");
  CHECK(refusal(container(folder, {0, 1}, {{"DYNAMICCL_ONEHOST", "0"}})).empty());
  CHECK(refusal(container(folder, {0, 1}, {{"DYNAMICCL_ONEHOST", "fast"}})) ==
        "dynamiccl-onehost: DYNAMICCL_ONEHOST=fast: write 0 (off), 1 (on), p2p or shm\n");
}

TEST_CASE("all ranks of a job do without windows, whatever else they decide") {
  need_namespaces();
  const SharedFolder folder;
  const auto windows = [](const Container& rank) {
    return Rank(rank).ask("getenv NCCL_WIN_ENABLE");
  };
  CHECK(windows(container(folder, {0, 1})) == "0");
  CHECK(windows(container(folder, {0})) == "0");
  // Refused, it stays a host of its own, in a job with others that are not.
  CHECK(windows(container(folder, {})) == "0");
  CHECK(windows(container(folder, {0, 1}, {{"NCCL_WIN_ENABLE", "1"}})) == "1");
  CHECK(windows(container(folder, {0, 1}, {{"DYNAMICCL_ONEHOST", "0"}})) == "-");
}

TEST_CASE("the user's variables and those of nccl.conf count") {
  need_namespaces();
  const SharedFolder folder;
  Rank user(container(folder, {0, 1}, {{"NCCL_HOSTID", "mine"}, {"NCCL_NVLS_ENABLE", "1"}}));
  CHECK(user.ask("getenv NCCL_HOSTID") == "mine");
  CHECK(user.ask("getenv NCCL_NVLS_ENABLE") == "1");
  CHECK(user.ask("getenv NCCL_CUMEM_HOST_ENABLE") == "0");
  // NCCL puts the file's lines into the environment before it asks for anything.
  Rank file(container(folder, {0, 1}, {{"DRIVER_GPU", "1"}}));
  CHECK(file.ask("getenv NCCL_CONF_FILE") == "-");
  CHECK(file.ask("setenv NCCL_CUMEM_HOST_ENABLE 1") == "-");
  CHECK(file.ask("getenv NCCL_CUMEM_HOST_ENABLE") == "1");
  CHECK_THAT(file.ask("getenv NCCL_HOSTID"), StartsWith("onehost p2p"));
  CHECK(refusal(container(folder, {0}, {{"NCCL_CUMEM_HOST_ENABLE", "1"}})) ==
        "dynamiccl-onehost: NCCL_CUMEM_HOST_ENABLE=1 is set, which fails between these containers: "
        "unset it\n");
  CHECK(way_of(container(folder, {0}, {{"NCCL_P2P_DISABLE", "1"}})) == "onehost shm");
  Rank empty(container(folder, {0}, {{"NCCL_P2P_DISABLE", ""}, {"DRIVER_GPU", "2"}}));
  CHECK(empty.ask("getenv NCCL_P2P_DISABLE") == "1");
}

TEST_CASE("one GPU in two containers stays on two hosts") {
  need_namespaces();
  const SharedFolder folder;
  Rank a(container(folder, {0}));
  Rank b(container(folder, {0}));
  Rank c(container(folder, {1}, {{"DRIVER_GPU", "1"}}));
  const std::string id = a.ask("getenv NCCL_HOSTID");
  const std::string other = b.ask("getenv NCCL_HOSTID");
  CHECK_THAT(other, ContainsSubstring("alone"));
  CHECK(c.ask("getenv NCCL_HOSTID") == id);
  CHECK(b.ask("getenv NCCL_HOSTID") == other);
  b.end();
  CHECK(b.said() ==
        "dynamiccl-onehost: GPU 0000:01:00.0 is also another process's of folder /mnt: by TCP, as "
        "NCCL "
        "wants one a host\n");
  // When its process is gone the GPU is free.
  a.kill();
  Rank d(container(folder, {0}));
  CHECK(d.ask("getenv NCCL_HOSTID") == id);
}

TEST_CASE("users that differ stay on two hosts") {
  need_namespaces();
  const SharedFolder folder;
  fs::permissions(folder.path(), fs::perms::all | fs::perms::sticky_bit);
  Rank root(container(folder, {0}));
  Container other = container(folder, {1}, {{"DRIVER_GPU", "1"}});
  other.prefix = "setpriv --reuid 1234 --regid 1234 --clear-groups";
  Rank user(other);
  const std::string id = root.ask("getenv NCCL_HOSTID");
  CHECK_THAT(id, ContainsSubstring("user 0 of map 0 0 4294967295"));
  CHECK_THAT(user.ask("getenv NCCL_HOSTID"), ContainsSubstring("user 1234 of map 0 0 4294967295"));
  user.end();
  CHECK_THAT(user.said(), ContainsSubstring("another (shm, GPUs one each, user 0 of map"));
  fs::permissions(folder.path(), fs::perms::owner_all);
  CHECK(refusal(other) ==
        "dynamiccl-onehost: folder /mnt: Permission denied: run the containers as its owner\n");
}

TEST_CASE("the mark that another user's killed rank left is named") {
  need_namespaces();
  const SharedFolder folder;
  fs::permissions(folder.path(), fs::perms::all | fs::perms::sticky_bit);
  Container first = container(folder, {0});
  first.prefix = "setpriv --reuid 1234 --regid 1234 --clear-groups";
  Rank killed(first);
  CHECK_THAT(killed.ask("getenv NCCL_HOSTID"), ContainsSubstring("user 1234 of map"));
  // The kernel takes a process that changes its user out of the group that unshare ends.
  output_of("pkill -KILL -u 1234");
  killed.kill();
  Container next = container(folder, {0});
  next.prefix = "setpriv --reuid 1235 --regid 1235 --clear-groups";
  Rank other(next);
  CHECK_THAT(other.ask("getenv NCCL_HOSTID"), ContainsSubstring("alone"));
  other.end();
  CHECK(other.said() ==
        "dynamiccl-onehost: GPU 0000:01:00.0 has another user's mark in folder /mnt: by TCP; if he "
        "has ended, remove the file\n");
}

TEST_CASE("what cannot be is refused in one line") {
  need_namespaces();
  const SharedFolder folder;
  const auto line = [&](const Variables& variables, const std::string& version = "2.28.9",
                        std::vector<int> gpus = {0}) {
    Container refused = container(folder, std::move(gpus), variables);
    refused.version = version;
    const std::string text = refusal(refused);
    CHECK_THAT(text, StartsWith("dynamiccl-onehost: "));
    return text.substr(19);
  };
  const std::string named = "DYNAMICCL_SHARED_FOLDER";
  CHECK(line({{named, ""}}) ==
        "no folder: set DYNAMICCL_SHARED_FOLDER to a tmpfs folder that all containers have\n");
  CHECK(line({{named, "mnt"}}) ==
        "folder mnt: mount it at a path of at most 64 letters that begins with /\n");
  const std::string longest(64, 'a');
  CHECK_THAT(line({{named, "/" + longest}}), ContainsSubstring("at most 64 letters"));
  CHECK(line({{named, "/none"}}) ==
        "folder /none: No such file or directory: mount it in this container\n");
  CHECK(line({{named, "/proc"}}) ==
        "folder /proc is not on a tmpfs: make it below /dev/shm or /run of the machine\n");
  CHECK(line({}, "2.17.1") == "NCCL 2.17 is too old: take 2.18 or later\n");
  CHECK(line({}, "2.21.5") ==
        "NCCL 2.21 needs to see all GPUs: take 2.22 or later, or give the container all\n");
  CHECK(line({}, "2.28.9", {}) ==
        "no /dev/nvidia0, /dev/nvidia1, ... opens: give the container its GPU\n");
  Container small = container(folder, {0});
  small.setup = "mount -t tmpfs -o size=1m tmpfs /mnt";
  CHECK(refusal(small) ==
        "dynamiccl-onehost: folder /mnt has 1 MiB left, NCCL needs 64: make its tmpfs larger\n");
  Container imex = container(folder, {0});
  imex.setup =
      "mkdir /dev/nvidia-caps-imex-channels; touch /dev/nvidia-caps-imex-channels/channel7";
  CHECK(refusal(imex) ==
        "dynamiccl-onehost: nothing to do: with its IMEX channel NCCL reaches other containers "
        "over NVLink\n");
}

TEST_CASE("Kubernetes' own variable names the folder where ours does not") {
  need_namespaces();
  const SharedFolder folder;
  CHECK(way_of(container(folder, {0},
                         {{"DYNAMICCL_SHARED_FOLDER", ""},
                          {"NVIDIA_DRA_LOCAL_IPC_DIR", "/mnt"}})) == "onehost shm");
}
