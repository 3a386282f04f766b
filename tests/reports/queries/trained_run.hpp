#pragma once

#include <string>
#include <vector>

#include "reports/queries/registry.hpp"
#include "tests/db/synthetic.hpp"

namespace dynamiccl::testing {

/// One training cell in a group of its own: 256 parameters, 1024 bytes of gradients.
struct TrainedCase {
  std::string method;
  std::string model;
  int batch = 8;
  int ranks = 2;
  double step_us = 100;
  TrainingFigures figures = {};
  std::string backend = "openmpi";
  std::string environment = "bare-metal";
  /// Launches take `step_us` times 1 + spread * block.
  double spread = 0.01;
  double server_wire_bytes = 0;  ///< sent by a server, which sums for a quarter of its step
  std::string extra = {};        ///< further settings: `,"target":"0.6"`
  std::string regime_json = "{}";
  double slowest_trained_us = 0;  ///< of the last worker, where it is another
  double wire_growth = 0;         ///< bytes sent: times 1 + wire_growth * block
};

/// How a cell that ends at a target accuracy went: `rounds` in `trained_us`, by as many steps.
inline TrainedCase& reaching(TrainedCase& one, double trained_us, int rounds, int worker_steps,
                             double accuracy, bool reached = true) {
  one.figures.accuracy = accuracy;
  one.figures.details["accuracies"] = {{rounds / 2, 0.3}, {rounds, accuracy}};
  one.figures.details["trained_us"] = trained_us;
  one.figures.details["worker_steps"] = worker_steps;
  one.figures.details["target_reached"] = reached;
  return one;
}

/// I = 100 FLOP per sample and parameter, 60 us of computation, a line of 5 us + 0.01 us per byte.
inline TrainingFigures usual_figures() {
  TrainingFigures figures;
  figures.role = "worker";
  figures.intensity = 100;
  figures.compute_us = 60;
  figures.single_us = 55;
  figures.c2c_predicted = 1.0 / (8 * 100);
  figures.c2c_measured = 1.1 / (8 * 100);
  figures.details["messages"] = 2;
  figures.details["cost_us"] = {{100, 6}, {1000, 15}};
  return figures;
}

class TrainedRun {
 public:
  explicit TrainedRun(const std::vector<TrainedCase>& cells, int blocks = 3)
      : store_(folder_.file("a.sqlite")) {
    add("trained", cells, blocks);
  }

  void add(const std::string& run, const std::vector<TrainedCase>& cells, int blocks) {
    std::vector<std::string> environments;
    for (const auto& cell : cells) environments.push_back(cell.environment);
    auto plan = make_plan(run, environments, {"training"}, {1024});
    for (std::size_t i = 0; i < cells.size(); ++i) {
      plan.groups[i].id = plan.cells[i].group_id = run + "-group-" + std::to_string(i);
      plan.groups[i].ranks = cells[i].ranks;
      plan.groups[i].backend = cells[i].backend;
      plan.groups[i].architecture = is_server(cells[i]) ? "ps" : "ring";
      plan.cells[i].id = run + "-cell-" + std::to_string(i);
      plan.cells[i].algorithm = cells[i].method;
      plan.cells[i].knobs_json = R"({"model":")" + cells[i].model + R"(","batch":")" +
                                 std::to_string(cells[i].batch) + "\"" + cells[i].extra + "}";
    }
    store_.begin_run(plan.run, plan.groups, plan.cells);
    for (std::size_t i = 0; i < cells.size(); ++i)
      for (int block = 0; block < blocks; ++block) {
        const auto start = make_start(plan.groups[i].id, block);
        const auto launch = store_.begin_launch(run, start);
        auto files = make_records({plan.cells[i]}, plan.groups[i].id, start.uuid, cells[i].ranks,
                                  10, [&](const CellInfo&, int, int) {
                                    return cells[i].step_us * (1 + cells[i].spread * block);
                                  });
        for (std::size_t rank = 0; rank < files.size(); ++rank)
          for (auto& record : files[rank].records)
            if (auto* cell = std::get_if<CellRecord>(&record)) {
              cell->training = cells[i].figures;
              const bool server = is_server(cells[i]) && rank == 0;
              cell->training->role = server ? "server" : "worker";
              cell->training->wire_bytes *= 1 + cells[i].wire_growth * block;
              if (cells[i].slowest_trained_us > 0 && rank + 1 == files.size())
                cell->training->details["trained_us"] = cells[i].slowest_trained_us;
              if (auto& details = cell->training->details; details.contains("trained_us"))
                details["trained_us"] =
                    details["trained_us"].get<double>() * (1 + cells[i].spread * block);
              if (!server) continue;
              cell->training->wire_bytes = cells[i].server_wire_bytes;
              for (const double us : cell->measured.total_us)
                cell->measured.compute_us.push_back(us / 4);
            }
        LaunchEnd end = make_end();
        end.regime_json = cells[i].regime_json;
        // What is detected decides a regime's id.
        if (end.regime_json != "{}") end.regime_id = end.regime_name = "of " + cells[i].environment;
        store_.finish_launch(launch, end, files);
      }
    store_.end_run(run, "complete");
  }

  [[nodiscard]] Table query(const char* name, const QueryScope& scope = {}) const {
    return named_query(Reader(file()), name, scope);
  }
  [[nodiscard]] std::string file() const { return folder_.file("a.sqlite"); }

 private:
  static bool is_server(const TrainedCase& one) { return one.method.ends_with("-ps"); }

  ScratchFolder folder_;
  Store store_;
};

}  // namespace dynamiccl::testing
