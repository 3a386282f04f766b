#include "plugin/agreement/region.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "core/vocabulary/error.hpp"
#include "plugin/agreement/leader.hpp"
#include "plugin/agreement/member.hpp"
#include "tests/plugin/agreement/calls.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
namespace fs = std::filesystem;

namespace {

struct Folder {
  std::string path = fs::temp_directory_path() / "region-XXXXXX";
  Folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~Folder() { fs::remove_all(path); }
};

std::shared_ptr<Region> region(const Folder& folder, unsigned ranks,
                               const CallTable* start = nullptr) {
  std::string problem;
  auto made = Region::open_or_make(folder.path, {7, ranks, 1, start}, problem);
  INFO(problem);
  REQUIRE(made != nullptr);
  return made;
}

}  // namespace

TEST_CASE("ranks start with the table of whoever came first, once all have joined", "[E-118]") {
  const Folder folder;
  const CallTable start = with_channels(3);
  const CallTable other = with_channels(5);
  Member first(region(folder, 2, &start));
  Member second(region(folder, 2, &other));
  CHECK(call(first) == 3);
  CHECK(call(second) == 3);
}

TEST_CASE("a rank that calls before the others have joined holds nobody up", "[E-118]") {
  const Folder folder;
  const CallTable start = with_channels(3);
  Member first(region(folder, 2, &start));
  CHECK(call(first) == 0);
  Member second(region(folder, 2, &start));
  CHECK(call(second) == 0);
  bool tuned = false;
  for (int i = 0; i < 100; ++i) {
    const unsigned one = call(first);
    CHECK(call(second) == one);
    tuned = one == 3;
  }
  CHECK(tuned);
}

TEST_CASE("a committed table holds from the boundary on", "[E-117][E-118]") {
  const Folder folder;
  Member a(region(folder, 2));
  Member b(region(folder, 2));
  Leader leader(region(folder, 2));
  leader.propose(with_channels(8), 3);
  CHECK(leader.poll() == Leader::Progress::open);
  CHECK(call(a) == 0);
  CHECK(leader.poll() == Leader::Progress::open);
  CHECK(call(b) == 0);
  CHECK(leader.poll() == Leader::Progress::settling);
  CHECK(leader.committed());
  for (int i = 1; i < 3; ++i) {
    CHECK(call(a) == 0);
    CHECK(call(b) == 0);
  }
  CHECK(call(a) == 8);
  CHECK(leader.poll() == Leader::Progress::settling);
  CHECK(call(b) == 8);
  CHECK(leader.poll() == Leader::Progress::free);
  CHECK(a.epoch() == 1);
}

TEST_CASE("the first rank at an undecided boundary ends the proposal", "[E-118]") {
  const Folder folder;
  Member a(region(folder, 2));
  Member b(region(folder, 2));
  Leader leader(region(folder, 2));
  leader.propose(with_channels(8), 2);
  for (int i = 0; i < 4; ++i) CHECK(call(a) == 0);
  CHECK(leader.poll() == Leader::Progress::free);
  CHECK_FALSE(leader.committed());
  for (int i = 0; i < 4; ++i) CHECK(call(b) == 0);
}

TEST_CASE("a dead leader leaves the last committed table, and the next one carries on", "[E-118]") {
  const Folder folder;
  Member a(region(folder, 1));
  const auto lead = [&](bool announce) {
    const pid_t child = fork();
    if (child == 0) {
      std::string problem;
      Leader leader(
          std::shared_ptr<Region>(Region::open(Region::path_of(folder.path, 7), problem)));
      const std::uint32_t epoch = leader.write_table(with_channels(9));
      if (announce) leader.announce(epoch, 1000);
      kill(getpid(), SIGKILL);
    }
    waitpid(child, nullptr, 0);
  };
  {
    Leader leader(region(folder, 1));
    leader.propose(with_channels(8), 1);
    for (int i = 0; i < 3; ++i) call(a);
    REQUIRE(call(a) == 8);
  }
  lead(false);
  CHECK(call(a) == 8);
  lead(true);
  Leader next(region(folder, 1));
  CHECK(next.poll() == Leader::Progress::free);
  CHECK(call(a) == 8);
  next.propose(with_channels(4), 1);
  for (int i = 0; i < 3; ++i) call(a);
  CHECK(call(a) == 4);
  CHECK_THROWS_AS(Leader(region(folder, 1)), Error);
}

TEST_CASE("a torn table is turned down", "[E-118]") {
  const Folder folder;
  const auto shared = region(folder, 1);
  Member a(region(folder, 1));
  Leader leader(shared);
  const std::uint32_t epoch = leader.write_table(with_channels(9));
  shared->header().tables[epoch & 1].table.cells[4][20].channels = 7;
  leader.announce(epoch, 5);
  for (int i = 0; i < 10; ++i) CHECK(call(a) == 0);
  CHECK(leader.proposal().state == ProposalState::aborted);
}

TEST_CASE("settings that no table has are turned down", "[E-118]") {
  const std::uint8_t none = CallCell::kAny;
  for (const CallCell cell : {CallCell{none, none, 255, 0}, CallCell{7, none, 0, 0},
                              CallCell{none, 3, 0, 0}, CallCell{none, none, 65, 0}}) {
    const Folder folder;
    Member a(region(folder, 1));
    Leader leader(region(folder, 1));
    CallTable table;
    table.cells[4][20] = cell;
    CHECK_FALSE(is_sound(table));
    leader.announce(leader.write_table(table), 5);
    for (int i = 0; i < 10; ++i) CHECK(call(a) == 0);
    CHECK(leader.proposal().state == ProposalState::aborted);
  }
  CHECK(is_sound(with_channels(64)));
}

TEST_CASE("a number of ranks that is changed later moves no slot", "[E-118]") {
  const Folder folder;
  const auto shared = region(folder, 2);
  shared->header().ranks = 60'000;
  CHECK(shared->ranks() == 2);
  CHECK_FALSE(shared->all_acked(1));
  shared->header().claimed.store(30'000);
  CHECK(shared->claim() == nullptr);
}

TEST_CASE("who may not add files to the folder may not write to a region", "[E-118]") {
  const auto mode = [](mode_t of_folder) {
    const Folder folder;
    REQUIRE(chmod(folder.path.c_str(), of_folder) == 0);
    const auto made = region(folder, 1);
    return static_cast<unsigned>(fs::status(Region::path_of(folder.path, 7)).permissions());
  };
  CHECK(mode(0700) == 0600);
  CHECK(mode(0755) == 0600);
  CHECK(mode(0770) == 0660);
  CHECK(mode(01777) == 0666);
}

TEST_CASE("a link or a pipe is no region, and nobody waits for it", "[E-118]") {
  const Folder folder;
  std::string problem;
  const std::string path = Region::path_of(folder.path, 7);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK(Region::open_or_make(folder.path, {7, 1}, problem) == nullptr);
  CHECK(problem.find("no file") != std::string::npos);
  fs::remove(path);
  std::ofstream(folder.path + "/elsewhere") << std::string(1 << 20, 'x');
  fs::create_symlink(folder.path + "/elsewhere", path);
  CHECK(Region::open_or_make(folder.path, {7, 1}, problem) == nullptr);
  CHECK(problem.find("cannot open") != std::string::npos);
}

TEST_CASE("a file that is no region is refused with a reason", "[E-118]") {
  const Folder folder;
  std::string problem;
  std::ofstream(Region::path_of(folder.path, 7)) << "not a region";
  CHECK(Region::open_or_make(folder.path, {7, 1}, problem) == nullptr);
  CHECK(problem.find("too short") != std::string::npos);
  std::ofstream(Region::path_of(folder.path, 7)) << std::string(1 << 20, 'x');
  CHECK(Region::open_or_make(folder.path, {7, 1}, problem) == nullptr);
  CHECK(problem.find("no region") != std::string::npos);
  CHECK(Region::open_or_make(folder.path + "/none", {7, 1}, problem) == nullptr);
  CHECK(problem.find("cannot make") != std::string::npos);
}

TEST_CASE("the leader sees what the ranks have measured", "[E-115]") {
  const Folder folder;
  Member a(region(folder, 2));
  Member b(region(folder, 2));
  const Leader leader(region(folder, 2));
  a.record(4, 20, 1, 999'000);  // opens the sum
  CHECK(leader.observe(4, 20).calls == 0);
  b.record(4, 20, 1, 999'000);
  for (int i = 0; i < 4; ++i) a.record(4, 20, 1, 10'000);
  for (int i = 0; i < 2; ++i) b.record(4, 20, 1, 20'000);
  const CellObservation seen = leader.observe(4, 20);
  CHECK(seen.calls == 2);
  CHECK(seen.mean == Micros(20));
  CHECK(seen.least == Micros(10));
  a.record(4, 20, 2, 1);
  CHECK(leader.observe(4, 20).calls == 0);
}

TEST_CASE("a new table restarts the sums of the sizes whose setting it changes alone",
          "[E-115][E-108]") {
  const Folder folder;
  Member rank(region(folder, 1));
  Leader leader(region(folder, 1));
  const auto adopt = [&](const CallTable& table) {
    leader.propose(table, 1);
    for (int i = 0; i < 5; ++i) {
      rank.decide(4, 20);
      leader.poll();
    }
    REQUIRE(rank.epoch() == leader.proposal().epoch);
  };
  CallTable table;
  adopt(table);
  for (const std::size_t bin : {20, 26}) rank.record(4, bin, rank.epoch(), 1000);
  table.cells[4][20].channels = 4;
  adopt(table);
  for (const std::size_t bin : {20, 26}) rank.record(4, bin, rank.epoch(), 1000);
  CHECK(leader.observe(4, 20).calls == 0);
  CHECK(leader.observe(4, 26).calls == 1);
  rank.record(4, 20, rank.epoch(), 1000);
  CHECK(leader.observe(4, 20).calls == 1);
}

TEST_CASE("ranks of two hosts, which have folders of their own, keep the library's own choices",
          "[E-118]") {
  const Folder one;
  const Folder other;
  const CallTable start = with_channels(3);
  Member here(region(one, 2, &start));
  Member there(region(other, 2, &start));
  Leader leader(region(one, 2));
  for (int i = 0; i < 2000; ++i) {
    if (leader.poll() == Leader::Progress::free) leader.propose(with_channels(5), 4);
    const unsigned mine = call(here);
    CHECK(call(there) == mine);
    CHECK(mine == 0);
  }
}

TEST_CASE("a rank of another host that sees the folder does not take its file for shared memory",
          "[E-118]") {
  const Folder folder;
  region(folder, 2)->header().host += 1;
  std::string problem;
  CHECK(Region::open_or_make(folder.path, {7, 2}, problem) == nullptr);
  CHECK(problem.find("ranks of another host made it") != std::string::npos);
}
