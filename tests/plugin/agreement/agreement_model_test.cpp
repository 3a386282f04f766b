// Walks through every interleaving of ranks and a leader that may die, at the grain of single
// loads, stores and compare-and-swaps, with the very function that ranks decide by.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <deque>
#include <string>
#include <unordered_set>

#include "plugin/agreement/agreement.hpp"

using namespace dynamiccl;

namespace {

constexpr std::size_t kMostRanks = 3;
constexpr std::size_t kMostCalls = 6;

struct RankState {
  std::uint32_t acked = 0;    // view
  std::uint32_t settled = 0;  // view
  std::uint32_t table = 0;    // epoch of the table in use
  std::uint32_t public_acked = 0;
  std::uint32_t public_settled = 0;
  std::int32_t call = -1;
  std::uint64_t word = 0;   // last read
  std::uint32_t stage = 0;  // 0 read, 1 act, 2.. scan acknowledgements, 100 swap commit, 101 abort
  std::uint32_t padding = 0;
};
struct State {
  std::uint64_t word = 0;
  std::array<RankState, kMostRanks> ranks{};
  std::array<std::int32_t, kMostCalls> used{};  // epoch + 1 that the first rank decided by; 0 none
  std::uint32_t leader = 0;   // 0 idle, 1 about to announce, 2.. scan acks, 100 swap, 200.. settle
  std::int32_t boundary = 0;  // chosen, not yet announced
  std::uint32_t proposals = 0;
  std::uint32_t dead = 0;
};
static_assert(std::has_unique_object_representations_v<State>);

struct Model {
  std::size_t ranks = 2;
  std::int32_t calls = 4;
  std::uint32_t proposals = 2;
  bool start = false;
  bool careless = false;  // ranks look at no acknowledgement: the check must notice

  std::unordered_set<std::string> seen{};
  std::deque<State> open{};
  std::uint64_t differing = 0;
  std::uint64_t committed = 0;

  void add(const State& state) {
    const std::string key(reinterpret_cast<const char*>(&state), sizeof(state));
    if (seen.insert(key).second) open.push_back(state);
  }
  void decide(State& state, RankState& rank) {
    if (rank.call >= 0) {
      auto& used = state.used[static_cast<std::size_t>(rank.call)];
      const auto mine = static_cast<std::int32_t>(rank.table) + 1;
      if (used != 0 && used != mine) ++differing;
      if (mine > 1) ++committed;
      used = mine;
    }
    ++rank.call;
    rank.stage = 0;
  }
  void act(State& state, RankState& rank) {
    const Proposal p = unpack(rank.word);
    rank.stage = 0;  // most steps read again
    switch (next_step(p, {rank.acked, rank.settled}, rank.call)) {
      case RankStep::carry_on:
        return decide(state, rank);
      case RankStep::acknowledge:
        rank.acked = rank.public_acked = p.epoch;
        return;
      case RankStep::abort:
        rank.stage = careless ? 100 : 101;
        return;
      case RankStep::judge:
        rank.stage = careless ? 100 : 2;
        return;
      case RankStep::adopt:
        rank.table = rank.settled = rank.public_settled = p.epoch;
        rank.acked = 0;
        return;
      case RankStep::drop:
        rank.settled = rank.public_settled = rank.acked;
        rank.acked = 0;
        return;
    }
  }
  void step_rank(State state, std::size_t index) {
    RankState& rank = state.ranks[index];
    if (rank.call >= calls) return;
    const Proposal p = unpack(rank.word);
    if (rank.stage == 0) {
      rank.word = state.word;
      rank.stage = 1;
    } else if (rank.stage == 1) {
      act(state, rank);
    } else if (rank.stage >= 100) {
      const Proposal verdict =
          rank.stage == 100 ? decided(p, ProposalState::committed) : after_failure(p, rank.call);
      if (state.word == rank.word) state.word = pack(verdict);
      rank.stage = 0;
    } else {
      const std::size_t other = rank.stage - 2;
      if (state.ranks[other].public_acked != p.epoch)
        rank.stage = 101;
      else
        rank.stage = other + 1 == ranks ? 100 : rank.stage + 1;
    }
    add(state);
  }
  void step_leader(State state) {
    const Proposal p = unpack(state.word);
    if (state.leader == 1) {
      state.word = pack({p.epoch + 1, ProposalState::prepared, false, state.boundary});
      state.leader = 2;
      return add(state);
    }
    if (state.leader >= 200) {
      const std::size_t rank = state.leader - 200;
      if (rank == ranks) {
        state.leader = 0;
        return add(state);
      }
      if (state.ranks[rank].public_settled != p.epoch) return;  // looks again
      ++state.leader;
      return add(state);
    }
    if (state.leader == 100) {
      if (p.state == ProposalState::prepared)
        state.word = pack(decided(p, ProposalState::committed));
      state.leader = 2;
      return add(state);
    }
    if (p.state == ProposalState::prepared) {
      const std::size_t rank = state.leader < 2 ? 0 : state.leader - 2;
      if (state.ranks[rank].public_acked != p.epoch) return;
      state.leader = rank + 1 == ranks ? 100 : static_cast<std::uint32_t>(rank + 3);
      return add(state);
    }
    if (p.state == ProposalState::committed && state.leader != 0) {
      state.leader = 200;
      return add(state);
    }
    if (state.proposals == proposals) return;
    // Any boundary, also ones that ranks have passed already.
    ++state.proposals;
    state.leader = 1;
    for (state.boundary = 0; state.boundary < calls; ++state.boundary) add(state);
  }
  void run() {
    State first;
    for (std::size_t i = ranks; i < kMostRanks; ++i) first.ranks[i].call = calls;
    if (start) first.word = pack({1, ProposalState::prepared, true, 0});
    first.leader = start ? 2 : 0;
    add(first);
    while (!open.empty()) {
      const State state = open.front();
      open.pop_front();
      for (std::size_t i = 0; i < ranks; ++i) step_rank(state, i);
      if (state.dead == 0) {
        step_leader(state);
        State died = state;
        died.dead = 1;
        add(died);
      }
    }
  }
};

}  // namespace

TEST_CASE("no interleaving of two ranks and a mortal leader lets a call differ", "[E-118]") {
  Model model{.ranks = 2, .calls = 4, .proposals = 2};
  model.run();
  INFO(model.seen.size() << " states");
  CHECK(model.differing == 0);
  CHECK(model.committed > 0);
}

TEST_CASE("no interleaving of three ranks lets a call differ", "[E-118]") {
  Model model{.ranks = 3, .calls = 2, .proposals = 1};
  model.run();
  INFO(model.seen.size() << " states");
  CHECK(model.differing == 0);
  CHECK(model.committed > 0);
}

TEST_CASE("ranks that propose to start with a table agree on it, whoever comes late", "[E-118]") {
  Model model{.ranks = 3, .calls = 3, .proposals = 0, .start = true};
  model.run();
  CHECK(model.differing == 0);
  CHECK(model.committed > 0);
}

TEST_CASE("the check sees ranks that commit without looking at acknowledgements", "[E-118]") {
  Model model{.ranks = 2, .calls = 3, .proposals = 1, .careless = true};
  model.run();
  CHECK(model.differing > 0);
}
