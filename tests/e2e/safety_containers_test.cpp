// Container runs of one machine at the same time, with caches of their own.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <memory>

#include "containers/run_folder.hpp"
#include "tests/containers/real_support.hpp"
#include "tests/containers/support.hpp"
#include "tests/e2e/program.hpp"

using namespace dynamiccl;
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

}  // namespace

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
