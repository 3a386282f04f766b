#include <grp.h>
#include <pwd.h>
#include <sys/wait.h>

#include <functional>

#include "containers/paths.hpp"
#include "containers/run_folder.hpp"
#include "real_support.hpp"
#include "support.hpp"

using namespace dynamiccl;

namespace {

/// A user account that exists for one test.
class TempUser {
 public:
  TempUser() : name_("dyntest" + std::to_string(getpid())) {
    checked_output("cannot make a user", {"useradd", "--create-home", name_});
    entry_ = *getpwnam(name_.c_str());
    home_ = entry_.pw_dir;
  }
  ~TempUser() { run_command({"userdel", "--remove", name_}); }
  TempUser(const TempUser&) = delete;
  TempUser& operator=(const TempUser&) = delete;

  /// Runs `body` as this user in a child process. @returns what it returned, or its error
  std::string run(const std::function<std::string()>& body) const {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
      std::string answer = "cannot change the user";
      if (initgroups(name_.c_str(), entry_.pw_gid) == 0 && setgid(entry_.pw_gid) == 0 &&
          setuid(entry_.pw_uid) == 0 && chdir(home_.c_str()) == 0) {
        setenv("HOME", home_.c_str(), 1);
        setenv("USER", name_.c_str(), 1);
        unsetenv("DYNAMICCL_CACHE");
        try {
          answer = body();
        } catch (const std::exception& error) {
          answer = std::string("error: ") + error.what();
        }
      }
      const ssize_t written = write(ends[1], answer.data(), answer.size());
      _exit(written < 0 ? 1 : 0);
    }
    close(ends[1]);
    std::string answer;
    char buffer[4096];
    for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(count));
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return answer;
  }

 private:
  std::string name_;
  std::string home_;
  passwd entry_{};
};

std::string in_profile(const std::string& name) {
  const EnvironmentProfile& profile =
      profile_for_user(shipped_profiles(), name, only_user_namespaces());
  if (const auto reason = unavailable_reason(profile)) return profile.name + ": " + *reason;
  prepare(profile, nullptr);
  const auto environment = start_environment(profile, {test_run("user"), 2, {}});
  const CommandResult inside = run_command(environment->wrap_rank(
      1, {"sh", "-c", "id -u; readlink /proc/self/ns/user; grep CapEff /proc/self/status"}, {}));
  environment->stop();
  return profile.name + "\n" + inside.out + inside.err;
}

}  // namespace

TEST_CASE("an ordinary user runs bare metal and Apptainer with the image that root has made") {
  if (!is_root()) SKIP("needs root to make a user");
  started(shipped("singularity"), test_request("user"))->stop();
  const TempUser user;
  const std::string host = std::filesystem::read_symlink("/proc/self/ns/user").string();
  const std::string id = user.run([] { return std::to_string(geteuid()); });

  const auto bare = split(user.run([] { return in_profile("bare-metal"); }), '\n');
  REQUIRE(bare.size() >= 3);
  CHECK(bare[1] == id);
  CHECK(bare[2] == host);

  for (const char* name : {"singularity", "singularity-inside"}) {
    const std::string answer = user.run([name] { return in_profile(name); });
    INFO(answer);
    const auto lines = split(answer, '\n');
    REQUIRE(lines.size() >= 4);
    CHECK(lines[0] == (std::string(name) == "singularity" ? "singularity-userns"
                                                          : "singularity-userns-inside"));
    CHECK(lines[1] == id);
    CHECK(lines[2] != host);
    CHECK(lines[3].find("0000000000000000") != std::string::npos);
  }
}

TEST_CASE("an ordinary user's Apptainer ranks share one user namespace with the launcher inside") {
  if (!is_root()) SKIP("needs root to make a user");
  started(shipped("singularity"), test_request("user"))->stop();
  const TempUser user;
  const std::string answer = user.run([] {
    const auto environment =
        start_environment(shipped("singularity-userns-inside"), {test_run("user-mpi"), 2, {}});
    auto argv = environment->shape().launcher_prefix;
    argv.insert(argv.end(),
                {"mpirun.openmpi", "-n", "2", "--oversubscribe", "readlink", "/proc/self/ns/user"});
    const CommandResult result = run_command(argv);
    environment->stop();
    return result.out + result.err;
  });
  INFO(answer);
  const auto lines = split(answer, '\n');
  REQUIRE(lines.size() >= 2);
  CHECK(lines[0].rfind("user:[", 0) == 0);
  CHECK(lines[0] == lines[1]);
}

TEST_CASE("a user outside the docker group is told what to do") {
  if (!is_root()) SKIP("needs root to make a user");
  if (find_program("docker").empty() || !std::filesystem::exists("/var/run/docker.sock"))
    SKIP("needs a dockerd that runs for all: /var/run/docker.sock (systemctl start docker)");
  const TempUser user;
  const std::string answer =
      user.run([] { return unavailable_reason(shipped("cross-docker")).value_or("available"); });
  INFO(answer);
  CHECK(answer.find("usermod -aG docker") != std::string::npos);
}
