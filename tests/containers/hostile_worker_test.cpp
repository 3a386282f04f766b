// What a worker that means harm finds inside the containers of every profile.

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <set>

#include "real_support.hpp"
#include "support.hpp"
#include "temp_user.hpp"

using namespace dynamiccl;

namespace {

/// Docker's own set, which every container has, by capability number.
constexpr std::uint64_t kDefaultCapabilities = 0xa80425fb;

std::uint64_t capability_bit(const std::string& name) {
  static const std::map<std::string, int> numbers{
      {"SYS_PTRACE", 19}, {"IPC_LOCK", 14}, {"SYS_NICE", 23}, {"NET_ADMIN", 12}};
  return std::uint64_t{1} << numbers.at(name);
}

std::uint64_t effective_capabilities(const Environment& environment, int rank) {
  const std::string line =
      output_in(environment, rank, {"sh", "-c", "grep CapEff /proc/self/status | cut -f2"});
  return std::stoull(line, nullptr, 16);
}

/// Mount points that are folders or files of the machine: no file system of the kernel's own.
std::set<std::string> mounted_from_machine(const Environment& environment, int rank) {
  const std::string text = output_in(
      environment, rank,
      {"sh", "-c",
       "awk '{for (i = 7; i <= NF; i++) if ($i == \"-\") print $5, $(i+1)}' /proc/self/mountinfo"});
  static const std::set<std::string> kernels{"proc",   "sysfs",  "tmpfs",   "devpts",
                                             "mqueue", "cgroup", "cgroup2", "overlay"};
  std::set<std::string> points;
  for (const auto& line : split(text, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() == 2 && !kernels.contains(words[1])) points.insert(words[0]);
  }
  return points;
}

/// Commands that must fail, each with what it is for.
using Attempts = std::vector<std::pair<std::string, std::string>>;

/// Those that do not fail in a rank, one line each; "" where all do. One entry of the container
/// for all of them: it takes longer than what is tried.
std::string successes(const Environment& environment, int rank, const Attempts& attempts) {
  std::string script;
  for (const auto& [command, what] : attempts)
    script += "sh -c " + shell_quote(command) + " >/dev/null 2>&1 </dev/null && echo " +
              shell_quote(what + ": " + command) + "\n";
  script += "echo all were tried";
  const auto tried = run_command(environment.wrap_rank(rank, {"sh", "-c", script}, {}));
  const std::string end = "all were tried\n";
  if (tried.exit_code != 0 || !tried.out.ends_with(end))
    return "not all were tried: " + tried.out + tried.err;
  return tried.out.substr(0, tried.out.size() - end.size());
}

/// What changes the programs that ranks run.
Attempts writes_into(const std::string& programs) {
  return {{"echo x > " + programs + "/worker", "writes into the programs"},
          {"rm " + programs + "/worker", "removes a program"},
          {"touch " + programs + "/y", "adds a program"}};
}

const Attempts& attempts() {
  static const Attempts list{
      {"mount -t tmpfs none /mnt", "mounts"},
      {"mount -o remount,rw /proc/sys", "makes the kernel's settings writable"},
      {"echo 1 > /proc/sys/kernel/core_pattern", "sets what the machine runs on a crash"},
      {"echo c > /proc/sysrq-trigger", "crashes the machine"},
      {"test -S /var/run/docker.sock || test -S /run/docker.sock", "finds the engine's socket"},
      {"mknod /tmp/disk b 254 0 && head -c 1 /tmp/disk", "reads the machine's disk"},
      {"mknod /tmp/mem c 1 1 && head -c 1 /tmp/mem", "reads the machine's memory"},
      {"insmod /tmp/none.ko 2>&1 | grep -v -i 'permitted\\|not found\\|no such\\|could not'",
       "loads a module"},
      {"nsenter --target 1 --mount true && test \"$(readlink /proc/1/ns/mnt)\" != \"$(readlink "
       "/proc/self/ns/mnt)\"",
       "enters the machine's mounts"}};
  return list;
}

/// Ways to a file that the machine has and no container was given. The first process may be another
/// rank's where a profile shares process ids, and its root that rank's alone: what tells the
/// machine's is the file.
Attempts ways_to_machine(const std::string& file) {
  return {{"cat " + file, "reads the machine's files"},
          {"cat /proc/1/root" + file, "leaves by the first process's root"},
          {"for root in /proc/[0-9]*/root; do cat $root" + file + " && exit 0; done; exit 1",
           "leaves by a process's root"}};
}

void check_from_inside(const EnvironmentProfile& profile) {
  INFO(profile.name);
  const TempFolder machine;
  std::ofstream(machine.path() + "/file") << "of the machine\n";
  const TempFolder programs;
  std::ofstream(programs.path() + "/worker") << "program\n";
  const TempFolder run;
  StartRequest request{test_run("hostile"), 2, {run.path()}};
  request.programs = {programs.path()};
  const auto environment = started(profile, request);
  std::uint64_t allowed = kDefaultCapabilities;
  for (const auto& capability : profile.capabilities) {
    CHECK_FALSE(capability.reason.empty());
    allowed |= capability_bit(capability.name);
  }
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(effective_capabilities(*environment, rank) == allowed);
    auto points = mounted_from_machine(*environment, rank);
    CHECK(points.erase(programs.path()) == 1);
    CHECK(points.erase(run.path()) == 1);
    for (const char* of_engine : {"/etc/resolv.conf", "/etc/hostname", "/etc/hosts",
                                  "/sbin/docker-init", "/usr/sbin/docker-init"})
      points.erase(of_engine);
    std::erase_if(points, [](const std::string& point) {
      return point.starts_with(run_folder_root() + "/dyn-");
    });
    CHECK(points == std::set<std::string>{});
    CHECK(successes(*environment, rank, attempts()) == "");
    CHECK(successes(*environment, rank, ways_to_machine(machine.path() + "/file")) == "");
    CHECK(successes(*environment, rank, writes_into(programs.path())) == "");
  }
  std::string kept;
  std::getline(std::ifstream(programs.path() + "/worker"), kept);
  CHECK(kept == "program");
}

bool in_docker(const EnvironmentProfile& profile) {
  return profile.kind == EnvironmentKind::single_docker ||
         profile.kind == EnvironmentKind::cross_docker;
}

}  // namespace

TEST_CASE("a hostile worker gets no more than its profile says", "[safety]") {
  need(shipped("cross-docker"));
  const auto lease = held_engine();
  check_from_inside(shipped("cross-docker"));
}

TEST_CASE("a hostile worker gets no more than its profile says, in every profile of Docker",
          "[safety][long]") {
  need(shipped("cross-docker"));
  const auto lease = held_engine();
  for (const auto& [name, profile] : shipped_profiles())
    if (in_docker(profile) && name != "cross-docker" && !unavailable_reason(profile))
      check_from_inside(profile);
}

namespace {

/// Beside attempts(), which an ordinary user may try without harm where they succeed: opened, not
/// written.
const Attempts& harmless_attempts() {
  static const Attempts list{
      {"mount -t tmpfs none /mnt", "mounts"},
      {"mount -o remount,rw /proc/sys", "makes the kernel's settings writable"},
      {": >> /proc/sys/kernel/core_pattern", "sets what the machine runs on a crash"},
      {": >> /proc/sysrq-trigger", "crashes the machine"},
      {"test -w /var/run/docker.sock || test -w /run/docker.sock", "uses the engine's socket"},
      {"for disk in /dev/vda /dev/sda /dev/nvme0n1; do head -c 1 $disk >/dev/null && exit 0; done; "
       "exit 1",
       "reads the machine's disk"},
      {"mknod /tmp/dyn-hostile-mem c 1 1", "makes a device"},
      {"head -c 1 /dev/mem", "reads the machine's memory"},
      {"cat /etc/shadow", "reads passwords"},
      {"ls /root", "reads root's files"},
      {"ls /proc/1/root/", "leaves by the first process's root"},
      {"nsenter --target 1 --mount true", "enters the machine's mounts"},
      {"setpriv --reuid 0 true", "becomes root"}};
  return list;
}

/// What a rank in Apptainer finds, one line a finding; "" where all is as promised.
std::string found_in_apptainer(const EnvironmentProfile& profile, const std::string& programs,
                               bool ways_out) {
  StartRequest request{test_run("hostile"), 2, {}};
  request.programs = {programs};
  prepare(profile, {});
  const auto environment = start_environment(profile, request);
  std::string found;
  for (int rank = 0; rank < 2; ++rank) {
    const auto status = run_command(environment->wrap_rank(
        rank, {"sh", "-c", "grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status"}, {}));
    if (status.exit_code != 0) return "no rank: " + status.err;
    // In a user namespace of their own capabilities say nothing of the machine.
    for (const char* line :
         {"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"})
      if (status.out.find(line) == std::string::npos)
        found += std::string("not ") + line + ": " + status.out + "\n";
    found += successes(*environment, rank, writes_into(programs));
    if (ways_out) found += successes(*environment, rank, harmless_attempts());
  }
  environment->stop();
  return found;
}

bool in_apptainer(const EnvironmentProfile& profile) {
  return profile.kind == EnvironmentKind::singularity;
}

}  // namespace

TEST_CASE("a hostile worker of root in Apptainer has no capability and cannot change the programs",
          "[safety]") {
  need(shipped("singularity"));
  const TempFolder programs;
  std::ofstream(programs.path() + "/worker") << "program\n";
  for (const auto& [name, profile] : shipped_profiles()) {
    if (!in_apptainer(profile) || unavailable_reason(profile)) continue;
    INFO(name);
    CHECK(found_in_apptainer(profile, programs.path(), false) == "");
  }
}

TEST_CASE("a hostile worker of an ordinary user in Apptainer finds no way out", "[safety]") {
  if (!is_root()) SKIP("needs root to make a user");
  started(shipped("singularity"), test_request("hostile"))->stop();
  const TempFolder programs;
  std::ofstream(programs.path() + "/worker") << "program\n";
  const TempUser user;
  int looked_at = 0;
  for (const auto& [name, profile] : shipped_profiles()) {
    if (!in_apptainer(profile)) continue;
    INFO(name);
    const std::string found = user.run([&, &one = profile]() -> std::string {
      if (const auto reason = unavailable_reason(one)) return "unavailable";
      return found_in_apptainer(one, programs.path(), true);
    });
    if (found == "unavailable") continue;
    ++looked_at;
    CHECK(found == "");
  }
  CHECK(looked_at >= 2);
}
