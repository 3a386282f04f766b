#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "containers/engine_choice.hpp"
#include "containers/paths.hpp"
#include "containers/run_folder.hpp"
#include "core/vocabulary/file_descriptor.hpp"
#include "real_support.hpp"
#include "support.hpp"
#include "tests/containers/temp_user.hpp"

using namespace dynamiccl;

namespace {

std::string in_profile(const std::string& name) {
  const EnvironmentProfile& profile =
      profile_for_user(shipped_profiles(), name, only_user_namespaces());
  if (const auto reason = unavailable_reason(profile)) return profile.name + ": " + *reason;
  prepare(profile, {});
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
  // As a dockerd that runs for all makes it: for root and a group that the user is not in.
  const TempFolder open;
  std::filesystem::permissions(open.path(), std::filesystem::perms{0755});
  sockaddr_un address{AF_UNIX, {}};
  const std::string path = open.path() + "/docker.sock";
  REQUIRE(path.size() < sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  const FileDescriptor listens(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(listens.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(listen(listens.get(), 1) == 0);
  REQUIRE(chmod(path.c_str(), 0660) == 0);
  const ScopedVariable host("DOCKER_HOST", "unix://" + path);
  const TempUser user;
  const std::string answer =
      user.run([] { return unavailable_reason(shipped("cross-docker")).value_or("available"); });
  INFO(answer);
  CHECK(answer.find("may not open the Docker socket " + path) != std::string::npos);
  CHECK(answer.find("usermod -aG docker") != std::string::npos);
}

TEST_CASE("a socket in a folder that is closed to the user ends nothing") {
  if (!is_root()) SKIP("needs root to make a user");
  const TempFolder closed;
  std::filesystem::permissions(closed.path(), std::filesystem::perms::owner_all);
  const ScopedVariable host("DOCKER_HOST", "unix://" + closed.path() + "/s.sock");
  const TempUser user;
  const std::string answer = user.run([&] {
    for (const auto& socket : look_at_machine().docker_sockets)
      if (socket.path == closed.path() + "/s.sock")
        return std::string(socket.permitted ? "permitted" : "refused");
    return std::string("not looked at");
  });
  CHECK(answer == "refused");
}
