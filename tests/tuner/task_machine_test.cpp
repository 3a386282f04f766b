// All orders of events up to a depth: what the machine promises holds in each of them.
#include "tuner/search/task_machine.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

using namespace dynamiccl;

namespace {

constexpr double kFast = 75, kSlow = 150, kDefault = 100;

/// What the walk itself has seen of a search, apart from the machine's own notes.
struct Book {
  std::size_t tried = 0;            ///< since the search began
  std::vector<PairedTime> pairs{};  ///< of `candidate`
  std::optional<double> first{};    ///< of a pair, and the arm that it was measured under
  std::size_t first_arm = 0;
  std::size_t candidate = 0;
  std::vector<double> us[3]{};  ///< by arm, since the search began
};

/// Walks through what may happen after `state`; counts what it has met.
struct Walk {
  TaskRules rules;
  long orders = 0;
  long kept = 0;        ///< searches that ended with another setting than the default
  long taken_back = 0;  ///< candidates that were measured and did not stay
  long reverts = 0;
  std::size_t most_tried = 0;
  std::set<std::string> broken{};  ///< promises

  void expect(bool holds, const char* promise) {
    if (!holds) broken.insert(promise);
  }

  [[nodiscard]] std::vector<TaskEvent> possible(const TaskState& state,
                                                const TaskAction& action) const {
    switch (action.kind) {
      case TaskAction::choose:
        return {{TaskEvent::chosen, 1},   {TaskEvent::chosen, 2}, {TaskEvent::finished, 0},
                {TaskEvent::finished, 1}, {TaskEvent::stop},      {TaskEvent::revert, 0}};
      case TaskAction::conclude:
        return {{TaskEvent::finished, 0}, {TaskEvent::finished, 2}, {TaskEvent::stop}};
      case TaskAction::settle:
        return {{TaskEvent::search},
                {TaskEvent::measured, state.kept, kDefault},
                {TaskEvent::revert, 0},
                {TaskEvent::close, 0}};
      case TaskAction::run:
        break;
    }
    const std::size_t other = action.arm == 0 ? 1 : 0;
    std::vector<TaskEvent> events{{TaskEvent::measured, action.arm, kSlow},
                                  {TaskEvent::measured, action.arm, NAN},
                                  {TaskEvent::measured, other, kFast},
                                  {TaskEvent::stop},
                                  {TaskEvent::close, 0}};
    events.push_back({TaskEvent::measured, action.arm, action.arm == 0 ? kDefault : kFast});
    return events;
  }

  void note(Book& book, const TaskState& before, const TaskEvent& event) {
    switch (event.kind) {
      case TaskEvent::search:
        book = {};
        break;
      case TaskEvent::chosen:
        ++book.tried;
        break;
      case TaskEvent::finished:
        book.candidate = event.arm;
        break;
      case TaskEvent::measured:
        if (event.us > 0) book.us[event.arm].push_back(event.us);
        if (before.stage != TaskStage::confirming || rules.at_once || event.arm != before.running)
          break;
        if (!book.first) {
          book.first = event.us;
          book.first_arm = event.arm;
        } else {
          expect(event.arm != book.first_arm, "a pair has two sides");
          book.pairs.push_back(event.arm == 0 ? PairedTime{*book.first, event.us}
                                              : PairedTime{event.us, *book.first});
          book.first.reset();
        }
        break;
      default:
        break;
    }
  }

  /// A setting takes the place of another: by whose word?
  void check_kept(const Book& book, const TaskState& before, const TaskState& after,
                  const TaskEvent& event) {
    if (after.kept == before.kept || after.kept == 0) return;
    if (event.kind == TaskEvent::revert || event.kind == TaskEvent::close) return;
    ++kept;
    if (rules.at_once) {
      const auto least = [](const std::vector<double>& us) {
        return us.empty() ? INFINITY : *std::min_element(us.begin(), us.end());
      };
      const auto& mine = book.us[after.kept];
      expect(mine.size() >= 2, "one lucky burst is no gain");
      expect(least(mine) < kDefault, "what is kept was faster");
    } else {
      expect(after.kept == book.candidate, "only the candidate is kept");
      expect(confirmed_verdict(book.pairs, rules.pairs, event.kind == TaskEvent::stop) ==
                 Verdict::faster,
             "what is kept was surely faster by its pairs");
    }
  }

  void check(const Book& book, const TaskState& before, const TaskState& after,
             const TaskEvent& event, const TaskAction& action) {
    expect(action.arm == after.running, "one setting is in force");
    if (rules.most > 0) expect(after.tried <= rules.most, "the budget holds");
    expect((action.kind == TaskAction::settle) == (after.stage == TaskStage::settled),
           "settled is said when it is so");
    expect((action.kind == TaskAction::choose || action.kind == TaskAction::conclude) ==
               (after.stage == TaskStage::asking),
           "the agent is asked when it is its turn");
    if (after.stage == TaskStage::settled)
      expect(after.running == after.kept, "settled on what is kept");
    // What is tried is tried alone, and what it is compared with runs before and after it.
    if (after.stage == TaskStage::reference)
      expect(after.running == (rules.at_once ? after.kept : 0), "trials are compared with this");
    if (after.stage == TaskStage::trying && event.kind != TaskEvent::chosen)
      expect(after.running == before.running, "one setting at a time is tried");
    if (event.kind == TaskEvent::search)
      expect(after.running == (rules.at_once ? before.kept : 0), "a search goes back");
    if (event.kind == TaskEvent::revert)
      expect(after.running == (rules.at_once ? event.arm : 0), "a guard goes back");
    if (event.kind == TaskEvent::close)
      expect(action == TaskAction{TaskAction::settle, event.arm}, "closed is closed");
    check_kept(book, before, after, event);
    if (before.stage == TaskStage::confirming && after.stage != TaskStage::confirming &&
        after.kept != before.candidate)
      ++taken_back;
  }

  void go(const TaskState& state, const TaskAction& action, const Book& book, int depth) {
    ++orders;
    if (depth == 0) return check_end(state, action);
    for (const TaskEvent& event : possible(state, action)) {
      Book noted = book;
      note(noted, state, event);
      const auto [after, said] = next(state, event);
      reverts += event.kind == TaskEvent::revert ? 1 : 0;
      most_tried = std::max(most_tried, after.tried);
      check(noted, state, after, event, said);
      go(after, said, noted, depth - 1);
    }
  }

  /// From wherever it is left, a search ends when measurements come and the agent goes on asking.
  void check_end(TaskState state, TaskAction action) {
    int events = 0;
    std::size_t asked = 0;
    for (; action.kind != TaskAction::settle && events < 100; ++events) {
      TaskEvent event{TaskEvent::measured, action.arm, kDefault};
      if (action.kind == TaskAction::conclude) event = {TaskEvent::finished, 1};
      if (action.kind == TaskAction::choose)
        event = rules.most > 0 ? TaskEvent{TaskEvent::chosen, 1 + asked++ % 2}
                               : TaskEvent{TaskEvent::finished, 1};
      std::tie(state, action) = next(std::move(state), event);
    }
    expect(action.kind == TaskAction::settle, "each search ends");
  }

  void from(const TaskState& state, const TaskEvent& event, int depth) {
    Book book;
    note(book, state, event);
    const auto [after, action] = next(state, event);
    check(book, state, after, event, action);
    go(after, action, book, depth);
  }
};

TaskState fresh(const TaskRules& rules) {
  TaskState state;
  state.rules = rules;
  return state;
}

}  // namespace

TEST_CASE("a search whose choice is confirmed in pairs keeps its promises in all orders") {
  Walk walk{{.references = 2, .most = 2, .pairs = {3, 2, 0.9, 0.02}}};
  walk.from(fresh(walk.rules), {TaskEvent::search}, 5);
  CHECK(walk.broken == std::set<std::string>{});
  CHECK(walk.orders > 3'000);
  CHECK(walk.most_tried == 2);
  CHECK(walk.reverts > 0);

  // Pairs are many: they are walked through from where they begin, with what comes after them.
  Walk pairs{walk.rules};
  TaskState asked = fresh(walk.rules);
  asked.stage = TaskStage::asking;
  pairs.from(asked, {TaskEvent::finished, 1}, 6);
  CHECK(pairs.broken == std::set<std::string>{});
  CHECK(pairs.kept > 0);
  CHECK(pairs.taken_back > 0);
}

TEST_CASE("a search that judges trials at once keeps its promises in all orders") {
  Walk walk{{.references = 2, .most = 2, .again = 2, .at_once = TrialRules{}}};
  walk.from(fresh(walk.rules), {TaskEvent::search}, 7);
  CHECK(walk.broken == std::set<std::string>{});
  CHECK(walk.orders > 20'000);
  CHECK(walk.kept > 0);
  CHECK(walk.taken_back > 0);
  CHECK(walk.reverts > 0);
}

TEST_CASE("an agent that asks for ever is asked no more when enough was tried") {
  for (const bool at_once : {false, true}) {
    TaskRules rules{.references = 1, .most = 3, .pairs = {3, 1, 0.9, 0.02}};
    if (at_once) rules.at_once = TrialRules{};
    auto [state, action] = next(fresh(rules), {TaskEvent::search});
    std::size_t asked = 0;
    for (int events = 0; events < 1000 && action.kind != TaskAction::settle; ++events) {
      TaskEvent event{TaskEvent::measured, action.arm, kDefault};
      if (action.kind == TaskAction::choose) event = {TaskEvent::chosen, 1 + asked++ % 2};
      if (action.kind == TaskAction::conclude) event = {TaskEvent::finished, 1};
      std::tie(state, action) = next(std::move(state), event);
    }
    CHECK(action == TaskAction{TaskAction::settle, 0});
    CHECK(asked == 3);
  }
}

TEST_CASE("the first of a pair takes turns, and a drift is no gain") {
  TaskRules rules{.references = 1, .pairs = {6, 3, 0.982, 0.02}};
  TaskState state = fresh(rules);
  state.stage = TaskStage::asking;
  auto [now, action] = next(state, {TaskEvent::finished, 2});
  std::vector<std::size_t> arms;
  double us = kDefault;
  while (action.kind == TaskAction::run) {
    arms.push_back(action.arm);
    // The machine becomes faster with every measurement, whatever runs.
    us *= 0.98;
    std::tie(now, action) = next(std::move(now), {TaskEvent::measured, action.arm, us});
  }
  REQUIRE(arms.size() >= 12);
  for (std::size_t pair = 0; pair < arms.size() / 2; ++pair) {
    CHECK(arms[2 * pair] == (pair % 2 == 0 ? 0 : 2));
    CHECK(arms[2 * pair + 1] == (pair % 2 == 0 ? 2 : 0));
  }
  CHECK(action == TaskAction{TaskAction::settle, 0});
}
