// What the package's scripts do, run by the shell that dpkg runs them by, over a cache of their
// own.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "containers/command.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

/// The script with another cache, which has an image in it.
class PurgedCache {
 public:
  PurgedCache() {
    std::string name = (fs::temp_directory_path() / "purge-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder_ = name;
    fs::create_directories(cache() + "/docker/data");
    std::ofstream(image()) << "image";
    std::ifstream packaged(std::string(DYNAMICCL_SOURCE_DIR) + "/cmake/debian/postrm");
    std::ostringstream text;
    text << packaged.rdbuf();
    std::string script = text.str();
    const std::string installed = "cache=/var/cache/dynamiccl\n";
    const auto at = script.find(installed);
    REQUIRE(at != std::string::npos);
    script.replace(at, installed.size(), "cache=" + cache() + "\n");
    std::ofstream(folder_ + "/postrm") << script;
  }
  ~PurgedCache() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  PurgedCache(const PurgedCache&) = delete;
  PurgedCache& operator=(const PurgedCache&) = delete;
  [[nodiscard]] std::string cache() const { return folder_ + "/cache"; }
  [[nodiscard]] std::string image() const { return cache() + "/docker/data/image"; }
  /// Commands see the cache as $1 and the script as $2.
  [[nodiscard]] CommandResult run(const std::string& commands) const {
    return run_command({"sh", "-c", commands, "sh", cache(), folder_ + "/postrm"});
  }

 private:
  std::string folder_;
};

}  // namespace

TEST_CASE("a purge takes a cache along that nothing uses, a removal does not") {
  const PurgedCache purged;
  CHECK(purged.run("sh $2 remove").exit_code == 0);
  CHECK(fs::exists(purged.image()));
  // A note of an earlier boot says nothing of this one.
  std::ofstream(purged.cache() + "/docker/network-before.json") << R"({"boot_id":"another"})";
  const auto result = purged.run("sh $2 purge");
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK_FALSE(fs::exists(purged.cache()));
  CHECK(purged.run("sh $2 purge").exit_code == 0);
}

TEST_CASE("a purge leaves a cache that a process, a network or a mount still needs") {
  const PurgedCache purged;
  const auto stays = [&](const std::string& commands, const std::string& why) {
    const auto result = purged.run(commands);
    INFO(commands << "\n" << result.err);
    CHECK(result.exit_code == 0);
    CHECK_THAT(result.err, ContainsSubstring(why) && ContainsSubstring("dynamiccl clean"));
    CHECK(fs::exists(purged.image()));
  };
  // Not before it has the file open, which takes a busy machine a while.
  stays(
      "tail -f $1/docker/data/image >/dev/null & until ls -l /proc/$!/fd | grep -q data/image; do "
      "sleep 0.05; done; sh $2 purge; e=$?; kill $!; exit $e",
      "(tail)");
  const std::string note = purged.cache() + "/docker/network-before.json";
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::ofstream(note) << R"({"boot_id":")" << boot << R"("})";
  stays("sh $2 purge", "changed of the network");
  fs::remove(note);
  // Namespaces may be closed to us.
  if (run_command({"unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"})
          .exit_code != 0)
    return;
  fs::create_directory(purged.cache() + "/docker/overlay");
  stays(
      "unshare --map-root-user --mount sh -c 'mount -t tmpfs none $0/docker/overlay; sh $1 purge' "
      "$1 $2",
      "/docker/overlay is mounted");
}
