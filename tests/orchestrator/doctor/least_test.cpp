#include "orchestrator/doctor/least.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <set>

#include "tests/orchestrator/doctor/symptoms.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

bool holds_all(const KeptSet& kept, const KeptSet& needed) {
  return std::includes(kept.begin(), kept.end(), needed.begin(), needed.end());
}

/// A machine made by hand: what a container needs is a function of its profile.
class Machine {
 public:
  using Needs = bool (*)(const EnvironmentProfile&);
  explicit Machine(Needs needs) : needs_(needs) {}

  LeastResult least(const EnvironmentProfile& profile, int launches = 25) {
    Console console(Verbosity::quiet);
    return find_least(
        profile, container_flags(profile, false),
        [this](const EnvironmentProfile& changed) {
          ++launches_;
          FlagLaunch launch;
          launch.transport = needs_(changed) ? "cma" : "tcp";
          launch.times = {Micros(2000), Micros(launches_ == slow_ ? 90 : 8)};
          return launch;
        },
        {launches}, console);
  }
  void slow_at(int launch) { slow_ = launch; }

 private:
  Needs needs_;
  int launches_ = 0;
  int slow_ = 0;
};

std::set<std::string> needed_of(const LeastResult& result) {
  std::set<std::string> flags;
  for (const auto& need : result.flags)
    if (need.needed) flags.insert(need.flag);
  return flags;
}

bool shares_all(const EnvironmentProfile& profile) {
  return profile.ipc == Sharing::host && profile.pid == Sharing::host;
}

EnvironmentProfile open_profile() {
  auto profile = profiles().at("cross-docker");
  profile.ipc = profile.pid = profile.network = profile.uts = Sharing::host;
  profile.shm_size = Bytes(0);
  profile.security_options = {"seccomp=unconfined", "no-new-privileges"};
  return profile;
}

}  // namespace

TEST_CASE("the smallest set breaks without any one of its members, each of which was asked for") {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t count = 1 + random() % 12;
    // Any of up to three sets will do, so that members stand in for each other.
    std::vector<KeptSet> ways(1 + random() % 3);
    for (auto& way : ways)
      for (std::size_t i = 0; i < count; ++i)
        if (random() % 3 == 0) way.push_back(i);
    const auto truth = [&](const KeptSet& kept) {
      return std::any_of(ways.begin(), ways.end(),
                         [&](const KeptSet& way) { return holds_all(kept, way); });
    };
    std::set<KeptSet> asked;
    const auto found = smallest_set(count, [&](const KeptSet& kept) {
      CHECK(asked.insert(kept).second);
      return std::optional(truth(kept));
    });
    REQUIRE(found);
    CHECK((found->size() == count || asked.contains(*found)));
    CHECK(truth(*found));
    for (const std::size_t member : *found) {
      KeptSet rest = *found;
      std::erase(rest, member);
      CHECK(asked.contains(rest));
      CHECK_FALSE(truth(rest));
    }
  }
}

TEST_CASE("one needed flag of forty is found in fifteen questions, two in twenty-five") {
  constexpr std::size_t kCount = 40;
  for (std::size_t first = 0; first < kCount; ++first) {
    for (std::size_t second = first; second < kCount; ++second) {
      KeptSet needed{first};
      if (second != first) needed.push_back(second);
      std::size_t questions = 0;
      const auto found = smallest_set(kCount, [&](const KeptSet& kept) {
        ++questions;
        return std::optional(holds_all(kept, needed));
      });
      REQUIRE(found == needed);
      CHECK(questions <= (needed.size() == 1 ? 15U : 25U));
    }
  }
}

TEST_CASE("a search whose questions end has no answer") {
  int questions = 0;
  CHECK_FALSE(smallest_set(9, [&](const KeptSet& kept) -> std::optional<bool> {
    if (++questions > 3) return std::nullopt;
    return holds_all(kept, {2, 7});
  }));
  CHECK(questions == 4);
}

TEST_CASE("the flags of a profile are what its containers have beyond the engine's default") {
  std::set<std::string> texts;
  for (const auto& flag : container_flags(open_profile(), false)) texts.insert(flag.text);
  CHECK(texts == std::set<std::string>{"--ipc host", "--network host", "--pid host", "--uts host",
                                       "--cap-add SYS_PTRACE",
                                       "--security-opt seccomp=unconfined"});
  CHECK(container_flags(profiles().at("single-docker-default-shm"), false).size() == 1);
}

TEST_CASE("without a flag the profile is as if it had never been given") {
  const auto profile = open_profile();
  const auto flags = container_flags(profile, false);
  const auto bare = with_flags(profile, flags, {});
  CHECK(container_flags(bare, false).empty());
  CHECK(bare.security_options == std::vector<std::string>{"no-new-privileges"});
  KeptSet all;
  for (std::size_t i = 0; i < flags.size(); ++i) all.push_back(i);
  CHECK(to_json(with_flags(profile, flags, all)) == to_json(profile));
}

TEST_CASE("flags without which the transport differs are needed, and the others are not") {
  const auto result = Machine(shares_all).least(open_profile());
  REQUIRE(result.known());
  CHECK(needed_of(result) == std::set<std::string>{"--ipc host", "--pid host"});
  CHECK(result.launches <= 15);
  CHECK(result.profile.network == Sharing::private_);
  const auto text = to_text(result);
  CHECK_THAT(text, ContainsSubstring("docker run --ipc host --pid host ..."));
  CHECK_THAT(text, ContainsSubstring("(without it transport tcp, with all flags cma)"));
}

TEST_CASE("a launch that is slow once does not make a flag needed") {
  Machine machine([](const EnvironmentProfile&) { return true; });
  machine.slow_at(3);
  const auto result = machine.least(open_profile());
  CHECK(needed_of(result).empty());
  CHECK(result.launches == 5);
}

TEST_CASE("what starts by luck is worse however its launch ended, and is not tried again") {
  const auto shares_pids = [](const EnvironmentProfile& profile) {
    return profile.pid == Sharing::host;
  };
  const LaunchWith launch = [&](const EnvironmentProfile& profile) {
    return FlagLaunch{"", "shm", {Micros(1000), Micros(10)}, !shares_pids(profile)};
  };
  Console console(Verbosity::quiet);
  const auto profile = open_profile();
  const auto found = find_least(profile, container_flags(profile, false), launch, {}, console);
  REQUIRE(found.known());
  CHECK(needed_of(found) == std::set<std::string>{"--pid host"});
  CHECK_THAT(to_text(found), ContainsSubstring("luck"));

  auto apart = profile;
  apart.pid = Sharing::private_;
  const auto none = find_least(apart, container_flags(apart, false), launch, {}, console);
  CHECK_FALSE(none.known());
  CHECK_THAT(none.impossible, ContainsSubstring("pid = \"host\""));
  CHECK(none.launches == 1);
  const LaunchWith failing = [](const EnvironmentProfile&) {
    return FlagLaunch{"/dev/shm is full", "", {}, true};
  };
  const auto full = find_least(apart, container_flags(apart, false), failing, {}, console);
  CHECK_THAT(full.impossible, ContainsSubstring("/dev/shm is full"));
}

TEST_CASE("slower is what is beyond every launch with all flags and a quarter of their median") {
  const auto launch = [](double large, double small) {
    return FlagLaunch{"", "shm", {Micros(large), Micros(small)}};
  };
  const std::vector<FlagLaunch> steady{launch(1000, 10), launch(1000, 10)};
  CHECK(why_worse(launch(1240, 12), steady).empty());
  CHECK_THAT(why_worse(launch(1260, 12), steady), ContainsSubstring("4 MiB take 1.26 ms"));
  CHECK_THAT(why_worse(launch(1000, 13), steady), ContainsSubstring("1 KiB"));
  const std::vector<FlagLaunch> restless{launch(1000, 10), launch(1000, 40)};
  CHECK(why_worse(launch(1000, 39), restless).empty());
}

TEST_CASE("a search that needs more launches than allowed says so") {
  const auto result = Machine(shares_all).least(open_profile(), 4);
  CHECK(result.launches == 4);
  CHECK_THAT(to_text(result), ContainsSubstring("allow more by --launches"));
}

TEST_CASE("a profile that does not run has no least flags") {
  Console console(Verbosity::quiet);
  const auto result = find_least(
      open_profile(), container_flags(open_profile(), false),
      [](const EnvironmentProfile&) {
        return FlagLaunch{"MPI_Init failed", "", {}};
      },
      {}, console);
  CHECK(result.launches == 2);
  CHECK_THAT(result.impossible, ContainsSubstring("MPI_Init failed"));
}
