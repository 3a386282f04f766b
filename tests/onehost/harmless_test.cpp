// Programs other than NCCL, and NCCL's other calls, do not notice the library.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/onehost/job.hpp"

namespace fs = std::filesystem;
using namespace dynamiccl::onehost;

namespace {
const std::string kPreload = "LD_PRELOAD=" ONEHOST_LIBRARY " ";
}  // namespace

TEST_CASE("a process whose NCCL has not asked is as without the library") {
  need_namespaces();
  const SharedFolder folder;
  Rank a({.folder = folder.path()});
  Rank b({.folder = folder.path()});
  const std::string file = a.ask("shm text");
  CHECK(a.ask("read " + file) == "text");
  CHECK(b.ask("read " + file) == "errno 2");
  CHECK(a.ask("bind 0 abc") != "errno 98");
  CHECK(b.ask("bind 0 abc") != "errno 98");
  CHECK(a.ask("dev") != b.ask("dev"));
  CHECK(a.ask("getenv HOME") != "-");
  CHECK(a.ask("getenv NCCL_DEBUG") == "-");
  a.end();
  CHECK(folder.names().empty());
  CHECK(a.said().empty());
}

TEST_CASE("other names stay where they are in a process that is one host with others") {
  need_namespaces();
  const SharedFolder folder;
  Rank rank({.folder = folder.path()});
  REQUIRE(rank.ask("getenv NCCL_HOSTID") != "-");
  CHECK(rank.ask("dev /usr") + "\n" == output_of("stat -c %d /usr"));
  CHECK(rank.ask("dev /none") == "errno 2");
  CHECK(rank.ask("read /dev/shm/none") == "errno 2");
  CHECK(rank.ask("unlink /dev/shm/none") == "errno 2");
  CHECK(rank.ask("read /dev/shm/nccl-sub/none") == "errno 2");
  CHECK(rank.ask("system test $(stat -c %d /dev/shm) != $(stat -c %d /mnt)") == "0");
  CHECK(folder.names() == std::vector<std::string>{"nccl-gpu-0000:01:00.0"});
}

TEST_CASE("another program makes the same calls with the library and without") {
  const std::string trace = "strace -f -e trace=file,network -o /dev/stdout ";
  if (output_of(trace + "true").find("execve") == std::string::npos)
    SKIP("strace is not allowed here");
  const SharedFolder folder;
  const auto calls = [&](const std::string& preload) {
    const std::string program =
        "sh -c 'ls /dev/shm >/dev/null; cat /etc/hostname; test -e /dev/nvidia0; rm -f "
        "/dev/shm/nccl-onehost-none'";
    std::istringstream lines(output_of("env LC_ALL=C DYNAMICCL_SHARED_FOLDER=" +
                                       folder.path().string() + " " + trace + preload + program));
    std::vector<std::string> kept;
    for (std::string line; std::getline(lines, line);) {
      // The loader's own, and what differs from start to start.
      for (const char* own : {"LD_PRELOAD", "ld.so", "libdynamiccl-onehost", "libdl.so", "execve",
                              "+++", "---", "/proc/", "\"\", {st_mode"})
        if (line.find(own) != std::string::npos) line.clear();
      line = std::regex_replace(line, std::regex("^[0-9 ]+|0x[0-9a-f]+"), "");
      if (!line.empty()) kept.push_back(line);
    }
    return kept;
  };
  const auto without = calls("");
  CHECK(without.size() > 10);
  CHECK(calls("-E " + kPreload) == without);
  CHECK(folder.names().empty());
}

TEST_CASE("a program with gcc's address sanitizer runs with the option that the document names") {
  const SharedFolder folder;
  const std::string program = (folder.path() / "program").string();
  if (!output_of("echo 'int main(void) { return 0; }' | gcc -fsanitize=address -x c - -o " +
                 program)
           .empty())
    SKIP("gcc has no address sanitizer here");
  CHECK(output_of(kPreload + program + "; echo $?").find("does not come first") !=
        std::string::npos);
  CHECK(output_of("ASAN_OPTIONS=verify_asan_link_order=0 " + kPreload + program + "; echo $?") ==
        "0\n");
}

TEST_CASE("setuid programs do not load the library") {
  need_namespaces();
  // Seen as another user, who may not read the build's folders.
  const std::string place = "mount -t tmpfs tmpfs /srv; cp /bin/cat " ONEHOST_LIBRARY " /srv; ";
  const auto maps = [&](const std::string& rights) {
    return output_of(
        "unshare --mount sh -c '" + place + "chmod " + rights +
        " /srv/cat; LD_PRELOAD=/srv/libdynamiccl-onehost.so setpriv --reuid 1234 --regid 1234 "
        "--clear-groups /srv/cat /proc/self/maps'");
  };
  CHECK(maps("0755").find("libdynamiccl-onehost") != std::string::npos);
  const std::string setuid = maps("4755");
  CHECK(setuid.find("libc.so") != std::string::npos);
  CHECK(setuid.find("libdynamiccl-onehost") == std::string::npos);
}

TEST_CASE("what the library costs other calls") {
  const std::string folder = ONEHOST_FOLDER;
  const std::string with = output_of("LD_PRELOAD=" ONEHOST_LIBRARY ":" + folder +
                                     "/onehost_stub.so " + folder + "/onehost_cost");
  const std::string without =
      output_of("LD_PRELOAD=" + folder + "/onehost_stub.so " + folder + "/onehost_cost");
  std::istringstream lines(with + without);
  std::string name;
  double nanoseconds = 0;
  std::vector<double> all;
  while (lines >> name >> nanoseconds) all.push_back(nanoseconds);
  REQUIRE(all.size() == 12);
  // How long a busy machine takes is no reason to fail: the figures are for who reads them.
  WARN("nanoseconds of a stubbed call with the library\n" << with << "and without\n" << without);
}
