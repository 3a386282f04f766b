#include "orchestrator/run/held_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_text.hpp"
#include "tests/containers/support.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

constexpr uid_t kStranger = 65533;
constexpr const char* kRemedy = "choose another place";

mode_t mode_of(const std::string& path) {
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

}  // namespace

TEST_CASE("what is written into a held folder goes there, whatever takes its name", "[safety]") {
  const TempFolder place;
  const HeldFolder out(place.path() + "/out", kRemedy);
  const HeldFolder launch = out.below("launch", 0700);
  CHECK(mode_of(launch.path()) == 0700);
  out.require_same();
  launch.require_same();
  const std::string victim = place.path() + "/victim";
  fs::create_directories(victim + "/launch");
  fs::rename(out.path(), place.path() + "/moved");
  CHECK_THROWS_WITH(out.require_same(), ContainsSubstring("nothing more is written there"));
  fs::create_symlink(victim, place.path() + "/out");
  CHECK_THROWS_WITH(out.require_same(), ContainsSubstring("a link stands in its place"));
  CHECK_THROWS_WITH(launch.require_same(), ContainsSubstring("a link stands in its place"));
  out.write("conf", "text");
  launch.write("table", "text");
  std::ofstream(launch.held() + "/held") << "text";
  CHECK(file_text(place.path() + "/moved/conf") == "text");
  CHECK(file_text(place.path() + "/moved/launch/table") == "text");
  CHECK(file_text(place.path() + "/moved/launch/held") == "text");
  CHECK(fs::is_empty(victim + "/launch"));
  fs::remove(place.path() + "/out");
  fs::create_directories(place.path() + "/out/launch");
  CHECK_THROWS_WITH(launch.require_same(), ContainsSubstring("another folder stands in its place"));
}

TEST_CASE("links in a held folder are followed neither to folders nor to files", "[safety]") {
  const TempFolder place;
  const HeldFolder out(place.path() + "/out", kRemedy);
  const std::string victim = place.path() + "/victim";
  fs::create_directories(victim);
  std::ofstream(victim + "/file") << "mine";
  fs::create_symlink(victim, out.path() + "/launch");
  CHECK_THROWS_WITH(out.below("launch", 0700), ContainsSubstring("a link is not followed"));
  for (const char* name : {"conf", "conf.new"}) {
    fs::create_symlink(victim + "/file", out.path() + "/" + name);
    out.write("conf", "text");
    CHECK(file_text(victim + "/file") == "mine");
    CHECK(file_text(out.path() + "/conf") == "text");
  }
  fs::create_directories(out.path() + "/taken");
  CHECK_THROWS_WITH(out.write("taken", "text"), ContainsSubstring("taken: cannot be written"));
  CHECK_FALSE(fs::exists(out.path() + "/taken.new"));
  std::ofstream(place.path() + "/file") << "x";
  CHECK_THROWS_AS(HeldFolder(place.path() + "/file", kRemedy), Error);
}

TEST_CASE("a folder that others may change is nobody's own", "[safety]") {
  const TempFolder place;
  const HeldFolder out(place.path() + "/out", kRemedy);
  REQUIRE(chmod(out.path().c_str(), 0777) == 0);
  CHECK_THROWS_WITH(out.require_same(), ContainsSubstring("every user of this machine may"));
  CHECK_THROWS_WITH(HeldFolder(out.path(), kRemedy),
                    ContainsSubstring("may exchange what lies there; choose another place"));
  // With the sticky bit what others make stays beside what is ours.
  REQUIRE(chmod(out.path().c_str(), 01777) == 0);
  out.require_same();
  CHECK(out.is_open_to_all());
  const HeldFolder deep(out.path() + "/deep", kRemedy);
  CHECK_FALSE(deep.is_open_to_all());
  require_no_exchange(deep, kRemedy);
  REQUIRE(chmod(out.path().c_str(), 0777) == 0);
  CHECK_THROWS_WITH(require_no_exchange(deep, kRemedy), ContainsSubstring("`chmod +t "));
  REQUIRE(chmod(out.path().c_str(), 0755) == 0);
  if (geteuid() != 0) SKIP("needs root to give a folder to another user");
  REQUIRE(chown(deep.path().c_str(), kStranger, kStranger) == 0);
  CHECK_THROWS_WITH(deep.require_same(), ContainsSubstring("another user (number 65533; to trust"));
  CHECK_THROWS_WITH(out.below("deep", 0700),
                    ContainsSubstring("another user (number 65533; to trust"));
}

TEST_CASE("folders are not made open to everybody where there is no mask", "[safety]") {
  const TempFolder place;
  const mode_t mask = umask(0);
  const HeldFolder out(place.path() + "/a/b", kRemedy);
  const HeldFolder below = out.below("c", 0);
  umask(mask);
  for (const std::string& path : {place.path() + "/a", out.path(), below.path()})
    CHECK((mode_of(path) & S_IWOTH) == 0);
}
