// Which launch settings a job has, and what its user's constraints leave of them.

#include "tuner/job/launch_space.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace dynamiccl;

namespace {

/// Ranks of one machine whose messages go through sockets.
JobFacts over_sockets(int ranks) {
  JobFacts facts;
  facts.ranks = facts.ranks_per_host = ranks;
  facts.cores = 16;
  facts.network = true;
  facts.one_host = OneHostWay::library;
  return facts;
}

struct Offered {
  std::vector<std::string> left_out;
  ActionSpace space;
  Offered(const JobFacts& facts, const JobConstraints& constraints)
      : space(launch_space(facts, constraints, {}, left_out)) {}
  [[nodiscard]] bool has(const char* knob) const { return space.knob_index(knob).has_value(); }
};

}  // namespace

TEST_CASE("sums that keep their order: nothing that moves it is a setting", "[E-64]") {
  JobConstraints same;
  same.same_bits = true;
  const Offered four(over_sockets(4), same);
  CHECK(keeps_order(over_sockets(4), same));
  CHECK(four.has("socket_threads"));
  CHECK(four.has("sockets"));
  // NCCL plans anew for one host.
  CHECK_FALSE(four.has("one_host"));
  CHECK_FALSE(four.has("channels"));
  REQUIRE(four.left_out.size() == 1);
  CHECK(four.left_out.front().starts_with("sums must stay the same bit by bit: channels"));

  JobFacts cards = over_sockets(4);
  cards.rdma = true;
  cards.nics = 4;
  cards.nccl_version = 22809;
  CHECK(Offered(cards, {}).has("nic_stripe"));
  CHECK_FALSE(Offered(cards, same).has("nic_stripe"));
  CHECK(Offered(cards, same).has("queue_pairs"));

  // Two values have one sum.
  CHECK_FALSE(keeps_order(over_sockets(2), same));
  CHECK_FALSE(keeps_order(over_sockets(4), {}));
  const Offered two(over_sockets(2), same);
  for (const char* knob : {"one_host", "channels", "socket_threads"}) CHECK(two.has(knob));
  CHECK(two.left_out.empty());
}

TEST_CASE("memory and cores that are not to be had leave settings out, which is said", "[E-64]") {
  const std::size_t all = Offered(over_sockets(2), {}).space.arms().size();
  JobConstraints little;
  little.gpu_memory_mib = 40;
  const Offered memory(over_sockets(2), little);
  CHECK(memory.space.arms().size() < all);
  REQUIRE(memory.left_out.size() == 1);
  CHECK(memory.left_out.front().ends_with("settings would take more than 40 MiB more of a GPU"));
  JobConstraints few;
  few.host_cores = 4;
  const Offered cores(over_sockets(2), few);
  CHECK(cores.space.arms().size() < all);
  REQUIRE(cores.left_out.size() == 1);
  CHECK(cores.left_out.front().ends_with("settings would have more helper threads than 4 cores"));
}

TEST_CASE("one host is one setting by itself, tried first where GPUs' own links wait", "[E-64]") {
  JobFacts facts = over_sockets(2);
  const auto knob = *Offered(facts, {}).space.knob_index("one_host");
  std::size_t arms = 0;
  std::size_t own = 0;
  const Offered offered(facts, {});
  for (const Action& action : offered.space.arms()) {
    if (action[knob] == 0) continue;
    ++arms;
    for (std::size_t k = 0; k < action.size(); ++k) CHECK((k == knob || action[k] == 0));
    own = static_cast<std::size_t>(&action - offered.space.arms().data());
  }
  CHECK(arms == 1);
  facts.all_gpus = true;
  const auto links = launch_prior(offered.space, facts, Micros(1e5), 0.8);
  facts.all_gpus = false;
  const auto memory = launch_prior(offered.space, facts, Micros(1e5), 0.8);
  CHECK(links[own] < memory[own]);
  for (std::size_t arm = 0; arm < memory.size(); ++arm)
    CHECK((arm == own || memory[own] < memory[arm]));
  facts.one_host = OneHostWay::none;
  CHECK_FALSE(Offered(facts, {}).has("one_host"));
}
