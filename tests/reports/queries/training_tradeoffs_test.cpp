#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>

#include "core/vocabulary/json.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/registry.hpp"
#include "tests/reports/queries/trained_run.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Rows of a trade-off by property and technique.
class Rows {
 public:
  explicit Rows(Table table) : table_(std::move(table)), rows_(table_) {
    for (std::size_t i = 0; i < rows_.size(); ++i)
      row_[rows_.text(i, "property") + ": " + rows_.text(i, "technique")] = i;
  }
  [[nodiscard]] std::string operator()(const std::string& row, const char* column) const {
    return rows_.text(row_.at(row), column);
  }
  [[nodiscard]] std::size_t size() const { return rows_.size(); }

 private:
  Table table_;
  TableView rows_;
  std::map<std::string, std::size_t> row_;
};

nlohmann::json sent(int piece, double start_us, double duration_us) {
  return {{"cat", "communication"},
          {"name", "reduce " + std::to_string(piece)},
          {"ts", start_us},
          {"dur", duration_us}};
}

/// Three tensors of 400, 200 and 800,000 bytes; messages as [offset, elements, server].
TrainedCase scheduled(const char* method, const nlohmann::json& pieces,
                      const nlohmann::json& trace) {
  TrainedCase one{method, "mlp", 8, 2, 100, usual_figures()};
  one.figures.details["gradients"] = {{400, 1}, {200, 2}, {800'000, 3}};
  one.figures.details["pieces"] = pieces;
  one.figures.details["trace"] = trace;
  return one;
}

}  // namespace

TEST_CASE("an architecture's published trade-offs stand beside what its launches left", "[D-11]") {
  TrainedCase ring{"bsp-a2a", "mlp", 8, 3, 100, usual_figures()};
  ring.figures.wire_bytes = 1400;
  TrainedCase server{"bsp-ps", "mlp", 8, 3, 150, usual_figures()};
  server.figures.wire_bytes = 1000;
  server.server_wire_bytes = 2000;
  const TrainedRun run({ring, server});
  const Rows rows(run.query("architecture_tradeoff"));
  CHECK(rows("server bottleneck: ps", "published") == "yes");
  CHECK(rows("server bottleneck: ps", "measured") == "yes");
  CHECK(rows("server bottleneck: ps", "evidence") ==
        "a server sends 2.00 times a worker's bytes, sums 25 % of its step");
  CHECK(rows("server bottleneck: allreduce", "measured") == "none");
  CHECK(rows("GPUs lost to servers: ps", "measured") == "1");
  CHECK(rows("GPUs lost to servers: allreduce", "measured") == "0");
  CHECK(rows("sync compatibility: ps", "measured") == "BSP");
  CHECK(rows("bandwidth-optimal: allreduce", "measured") == "1.10 volumes");
  CHECK_THAT(rows("latency-optimal: allreduce", "measured"),
             ContainsSubstring("5.00 us a message"));
  CHECK(rows("heterogeneity: ps", "measured") == "not measured");
  CHECK(rows("server bottleneck: gossip", "measured") == "not measured");
  CHECK(rows("server bottleneck: gossip", "evidence") ==
        "its steps do not compare: query synchronisation_profile");
}

TEST_CASE("a run without servers says of them that nothing was measured", "[D-11]") {
  const TrainedRun run({{"bsp-a2a", "mlp", 8, 2, 100, usual_figures()}});
  const Rows rows(run.query("architecture_tradeoff"));
  CHECK(rows("server bottleneck: ps", "measured") == "not measured");
  CHECK(rows("server bottleneck: ps", "published") == "yes");
  CHECK(rows("GPUs lost to servers: ps", "measured") == "not measured");
}

TEST_CASE("what scheduling does to messages is told from its plan and one step's trace", "[D-54]") {
  // The first ready gradients are those of the last layer, which the next forward needs last.
  const auto wfbp = scheduled("wfbp-a2a", {{0, 100, 0}, {100, 50, 0}, {150, 200'000, 0}},
                              {sent(0, 10, 4), sent(1, 20, 4), sent(2, 30, 40)});
  const auto merged =
      scheduled("mg-wfbp", {{0, 150, 0}, {150, 200'000, 0}}, {sent(0, 20, 5), sent(1, 30, 40)});
  const auto cut = scheduled("bytescheduler-a2a",
                             {{0, 100, 0}, {100, 50, 0}, {150, 100'000, 0}, {100'150, 100'000, 0}},
                             {sent(0, 10, 4), sent(2, 20, 20), sent(3, 40, 20), sent(1, 60, 4)});
  auto ddp = scheduled("ddp", {{0, 200'150, 0}}, nlohmann::json::array());
  ddp.step_us = 80;
  const TrainedRun run({wfbp, merged, cut, ddp});
  const Rows rows(run.query("scheduling_tradeoff"));
  CHECK(rows("fights small tensors: wfbp", "measured") == "no");
  CHECK(rows("fights small tensors: mg_wfbp", "measured") == "yes");
  CHECK(rows("fights small tensors: mg_wfbp", "evidence") ==
        "2 of 3 tensors, 1 of 2 messages below 64 KiB");
  CHECK(rows("fights large tensors: mg_wfbp", "measured") == "no");
  CHECK(rows("fights large tensors: partition", "measured") == "yes");
  CHECK(rows("fights large tensors: partition", "method") == "bytescheduler-a2a");
  CHECK(rows("per-tensor latency: wfbp", "measured") == "16.0 us a tensor");
  CHECK(rows("critical path aware: wfbp", "measured") == "no");
  CHECK(rows("critical path aware: priority", "measured") == "yes");
  CHECK(rows("critical path aware: priority", "evidence") ==
        "1 of 4 messages in the trace of one step were overtaken");
  CHECK(rows("in PyTorch DDP: wfbp", "measured") == "1.25 times DDP's step");
}

TEST_CASE("a pull after all pushes overtakes none of them, and nor does the next step's first push",
          "[D-54]") {
  const auto event = [](const char* what, double start_us) {
    return nlohmann::json{{"cat", "communication"}, {"name", what}, {"ts", start_us}, {"dur", 2}};
  };
  const auto pushed = scheduled("wfbp-ps", {{0, 150, 0}, {150, 200'000, 0}},
                                {event("push 0", 1), event("push 1", 5), event("pull 0", 8),
                                 event("pull 1", 9), event("push 0", 20)});
  const TrainedRun run({pushed});
  const Rows rows(run.query("scheduling_tradeoff"));
  CHECK(rows("critical path aware: wfbp", "measured") == "no");
  CHECK(rows("critical path aware: wfbp", "evidence") ==
        "0 of 3 messages in the trace of one step were overtaken");
}

TEST_CASE("published trade-offs of scheduling stand alone where nothing was trained", "[D-54]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  const Rows rows(named_query(Reader(folder.file("a.sqlite")), "scheduling_tradeoff", {}));
  CHECK(rows.size() == 20);
  CHECK(rows("critical path aware: priority", "published") == "yes");
  CHECK(rows("critical path aware: priority", "measured") == "not measured");
}

TEST_CASE("where a queue of the library leaves no trace, no latency is made up", "[D-54]") {
  const TrainedRun run({scheduled("wfbp-a2a", {{0, 100, 0}}, nlohmann::json::array())});
  const Rows rows(run.query("scheduling_tradeoff"));
  CHECK(rows("per-tensor latency: wfbp", "measured") == "not measured");
  CHECK(rows("critical path aware: wfbp", "measured") == "not measured");
  CHECK(rows("fights small tensors: wfbp", "evidence") ==
        "2 of 3 tensors, 1 of 1 messages below 64 KiB");
}
