#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <fstream>

#include "containers/command.hpp"
#include "containers/paths.hpp"
#include "support.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

/// A repository that holds the real wrapper and, on request, a build of one shell script.
class Repository {
 public:
  Repository() {
    fs::create_directories(root() + "/containers");
    fs::copy_file(std::string(DYNAMICCL_SOURCE_DIR) + "/dynamiccl", root() + "/dynamiccl");
    packages("build bash\nrun coreutils\n");
  }
  [[nodiscard]] std::string root() const { return folder_.path(); }
  void packages(const std::string& text) const {
    std::ofstream(root() + "/containers/packages.txt") << text;
  }
  /// A ninja build that copies source.sh to the program and logs that it did.
  void configured() const {
    const std::string build = root() + "/build/release";
    fs::create_directories(build);
    std::ofstream(root() + "/source.sh") << "#!/bin/sh\nfor a in \"$@\"; do echo \"<$a>\"; done\n";
    std::ofstream(build + "/build.ninja")
        << "rule copy\n  command = install -m 755 $in $out && echo built >> log\n"
           "build dynamiccl: copy ../../source.sh\n";
  }
  [[nodiscard]] CommandResult run(
      std::vector<std::string> arguments,
      const std::map<std::string, std::string>& environment = {}) const {
    arguments.insert(arguments.begin(), root() + "/dynamiccl");
    CommandOptions options;
    options.environment = environment;
    return run_command(arguments, options);
  }
  [[nodiscard]] int builds() const {
    std::ifstream log(root() + "/build/release/log");
    int count = 0;
    for (std::string line; std::getline(log, line);) ++count;
    return count;
  }

 private:
  TempFolder folder_;
};

constexpr const char* kMissing = "build no-such-package-dyn\nrun coreutils\n";

}  // namespace

TEST_CASE("help needs no build and installs nothing") {
  const Repository repository;
  repository.packages(kMissing);
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{}, {"--help"}, {"run", "--help"}, {"query", "-h"}}) {
    const CommandResult result = repository.run(arguments);
    CHECK(result.exit_code == 0);
    CHECK_THAT(result.out, ContainsSubstring("./dynamiccl run"));
  }
  CHECK_FALSE(fs::exists(repository.root() + "/build"));
}

TEST_CASE("verbs that only read never build: they say which command does") {
  const Repository repository;
  repository.packages(kMissing);
  for (const char* verb : {"query", "show", "list", "report", "compare"}) {
    const CommandResult result = repository.run({verb});
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK_THAT(result.err, ContainsSubstring("not built yet") && ContainsSubstring("./dynamiccl"));
  }
  CHECK_FALSE(fs::exists(repository.root() + "/build"));
}

TEST_CASE("arguments reach the program as they are, --yes stays with the wrapper") {
  const Repository repository;
  repository.configured();
  const CommandResult result =
      repository.run({"plan", "a b", "--yes", "", "*"}, {{"DYNAMICCL_NO_INSTALL", "1"}});
  CHECK(result.out == "<plan>\n<a b>\n<>\n<*>\n");
  CHECK(result.exit_code == 0);
}

TEST_CASE("only changed sources are built again") {
  const Repository repository;
  repository.configured();
  const std::map<std::string, std::string> quiet{{"DYNAMICCL_NO_INSTALL", "1"}};
  CHECK(repository.run({"plan"}, quiet).exit_code == 0);
  CHECK(repository.builds() == 1);
  const CommandResult again = repository.run({"plan"}, quiet);
  CHECK(repository.builds() == 1);
  CHECK(again.err.empty());
  fs::last_write_time(repository.root() + "/source.sh",
                      fs::file_time_type::clock::now() + std::chrono::seconds(2));
  CHECK(repository.run({"plan"}, quiet).exit_code == 0);
  CHECK(repository.builds() == 2);
}

TEST_CASE(
    "a build that takes long says how far it is where a terminal is, and is silent otherwise") {
  const Repository repository;
  repository.configured();
  std::ofstream(repository.root() + "/build/release/build.ninja")
      << "rule step\n  command = sleep 1.2 && touch $out\n"
         "rule copy\n  command = install -m 755 ../../source.sh $out\n"
         "build a: step\nbuild b: step | a\nbuild dynamiccl: copy | b\n";
  const CommandResult seen =
      run_command({"sh", "-c", "script -qec \"$0 plan\" /dev/null </dev/null",
                   repository.root() + "/dynamiccl"});
  CHECK(seen.exit_code == 0);
  CHECK_THAT(seen.out, ContainsSubstring("of 3 parts built, about 0:0"));
  CHECK_THAT(seen.out, !ContainsSubstring("[1/3]"));
  fs::remove(repository.root() + "/build/release/a");
  const CommandResult piped = repository.run({"plan"});
  CHECK(piped.out == "<plan>\n");
  CHECK_THAT(piped.err, !ContainsSubstring("[1/3]"));
}

TEST_CASE("a failed build stops before the old program runs") {
  const Repository repository;
  repository.configured();
  REQUIRE(repository.run({"plan"}, {{"DYNAMICCL_NO_INSTALL", "1"}}).exit_code == 0);
  fs::remove(repository.root() + "/source.sh");
  const CommandResult result = repository.run({"plan"}, {{"DYNAMICCL_NO_INSTALL", "1"}});
  CHECK(result.exit_code == 1);
  CHECK(result.out.empty());
  CHECK_THAT(result.err, ContainsSubstring("the build failed"));
}

TEST_CASE("missing packages are named with the exact command and nothing is installed on request") {
  const Repository repository;
  repository.packages(kMissing);
  repository.configured();
  const CommandResult result = repository.run({"plan"}, {{"DYNAMICCL_NO_INSTALL", "1"}});
  CHECK(result.exit_code == 2);
  CHECK_THAT(result.err,
             ContainsSubstring("apt-get install -y --no-install-recommends no-such-package-dyn"));
  CHECK(repository.builds() == 0);
}

TEST_CASE("an ordinary user is given the sudo command") {
  if (!is_root()) SKIP("needs root to become somebody else");
  const Repository repository;
  repository.packages(kMissing);
  const CommandResult result =
      run_command({"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                   repository.root() + "/dynamiccl", "plan"});
  CHECK(result.exit_code == 2);
  CHECK_THAT(result.err, ContainsSubstring("sudo apt-get install"));
}

TEST_CASE("in somebody else's checkout the program is used as it was built, and nothing is built") {
  if (!is_root()) SKIP("needs root to become somebody else");
  const Repository repository;
  repository.configured();
  const auto as_other = [&](const std::string& verb) {
    CommandOptions options;
    options.environment = {{"DYNAMICCL_NO_INSTALL", "1"}};
    return run_command({"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                        repository.root() + "/dynamiccl", verb},
                       options);
  };
  const CommandResult without = as_other("plan");
  CHECK(without.exit_code == 2);
  CHECK_THAT(without.err, ContainsSubstring("/build/release cannot be written by") &&
                              ContainsSubstring("build as its owner, or copy the repository"));
  REQUIRE(repository.run({"plan"}, {{"DYNAMICCL_NO_INSTALL", "1"}}).exit_code == 0);
  const CommandResult with = as_other("plan");
  CHECK(with.exit_code == 0);
  CHECK(with.out == "<plan>\n");
  CHECK(repository.builds() == 1);
}

TEST_CASE("an ordinary user who lacks what only some environments need measures the others") {
  if (!is_root()) SKIP("needs root to become somebody else");
  const Repository repository;
  repository.configured();
  REQUIRE(repository.run({"plan"}, {{"DYNAMICCL_NO_INSTALL", "1"}}).exit_code == 0);
  repository.packages("build coreutils\nrun no-such-package-dyn\n");
  const CommandResult result =
      run_command({"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                   repository.root() + "/dynamiccl", "run", "x.toml"});
  CHECK(result.exit_code == 0);
  CHECK(result.out == "<run>\n<x.toml>\n");
  CHECK_THAT(result.err,
             ContainsSubstring("recorded as unsupported; to have it: sudo apt-get install -y "
                               "--no-install-recommends no-such-package-dyn"));
}

TEST_CASE("root declines what only some environments need, and measures the others") {
  if (!is_root()) SKIP("only root is asked whether to install");
  const Repository repository;
  repository.configured();
  repository.packages("build coreutils\nrun no-such-package-dyn\n");
  const TempFolder tools;
  const std::string asked = tools.path() + "/asked";
  for (const char* tool : {"apt-get", "apt-cache"}) {
    const fs::path script = fs::path(tools.path()) / tool;
    std::ofstream(script) << "#!/bin/sh\necho \"$0 $*\" >> " << asked << "\nexit 1\n";
    fs::permissions(script, fs::perms::owner_all);
  }
  const std::map<std::string, std::string> offline{
      {"PATH", tools.path() + ":/usr/sbin:/usr/bin:/sbin:/bin"}};
  const auto unsupported = ContainsSubstring(
      "recorded as unsupported; to have it: apt-get install -y "
      "--no-install-recommends no-such-package-dyn");

  auto never = offline;
  never["DYNAMICCL_NO_INSTALL"] = "1";
  const CommandResult told = repository.run({"run", "x.toml"}, never);
  CHECK(told.exit_code == 0);
  CHECK(told.out == "<run>\n<x.toml>\n");
  CHECK_THAT(told.err, unsupported);
  CHECK_FALSE(fs::exists(asked));

  const CommandResult nobody_asked = repository.run({"run", "x.toml"}, offline);
  CHECK(nobody_asked.exit_code == 0);
  CHECK_THAT(nobody_asked.err,
             ContainsSubstring("no terminal to ask at, and no --yes") && unsupported);

  const CommandResult failed = repository.run({"run", "x.toml", "--yes"}, offline);
  CHECK(failed.exit_code == 0);
  CHECK(failed.out == "<run>\n<x.toml>\n");
  CHECK_THAT(failed.err, ContainsSubstring("apt-get failed") && unsupported);
  CHECK(fs::exists(asked));

  // A terminal of its own, in which the answer is typed.
  CommandOptions options;
  options.environment = offline;
  const CommandResult answered =
      run_command({"sh", "-c", "echo n | script -qec \"$0 run x.toml\" /dev/null",
                   repository.root() + "/dynamiccl"},
                  options);
  CHECK(answered.exit_code == 0);
  CHECK_THAT(answered.out, ContainsSubstring("not installed, as you answered") && unsupported &&
                               ContainsSubstring("<x.toml>"));

  repository.packages(kMissing);
  CHECK(repository.run({"run", "x.toml", "--yes"}, offline).exit_code == 1);
  CHECK(repository.run({"run", "x.toml"}, never).exit_code == 2);
}

TEST_CASE("the suite needs a build and MPI's launchers; what else is missing, its tests skip") {
  if (!is_root()) SKIP("only root is asked whether to install");
  const Repository repository;
  const std::map<std::string, std::string> never{{"DYNAMICCL_NO_INSTALL", "1"}};
  repository.packages("build coreutils\nrun no-such-package-dyn\n");
  const CommandResult launcher = repository.run({"test"}, never);
  CHECK(launcher.exit_code == 2);
  CHECK_THAT(launcher.err, !ContainsSubstring("skipped by the tests"));
  repository.packages("build coreutils\ntest no-such-package-dyn\n");
  CHECK_THAT(repository.run({"test"}, never).err, ContainsSubstring("skipped by the tests"));
}

TEST_CASE("the wrapper works through a link and from any folder") {
  const Repository repository;
  repository.configured();
  fs::create_symlink(repository.root() + "/dynamiccl", repository.root() + "/link");
  CommandOptions options;
  options.environment = {{"DYNAMICCL_NO_INSTALL", "1"}};
  CHECK(run_command({"sh", "-c", "cd / && exec \"$0\" plan", repository.root() + "/link"}, options)
            .out == "<plan>\n");
}
