#pragma once

#include <functional>
#include <string>
#include <vector>

#include "db/reader.hpp"
#include "db/store.hpp"

namespace dynamiccl::testing {

/// A folder that is gone when the object is.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// A plan of one group per environment, with the same cells in each.
struct SyntheticPlan {
  RunInfo run;
  std::vector<GroupInfo> groups;
  std::vector<CellInfo> cells;
  std::string container_json{};  ///< of all launches: what their environment was
};

SyntheticPlan make_plan(const std::string& run_id, const std::vector<std::string>& environments,
                        const std::vector<std::string>& collectives,
                        const std::vector<std::uint64_t>& sizes, int ranks = 2);

/// Every rank's records of a launch in which iteration i of rank r takes
/// `time_us(cell, rank, i)`.
using TimeOf = std::function<double(const CellInfo&, int rank, int iteration)>;
std::vector<RecordFile> make_records(const std::vector<CellInfo>& cells,
                                     const std::string& group_id, const std::string& launch_id,
                                     int ranks, int iterations, const TimeOf& time_us);

/// The one text that a query finds.
std::string text(const Reader& reader, const std::string& sql);

LaunchStart make_start(const std::string& group_id, int block, int attempt = 0);
LaunchEnd make_end(LaunchStatus status = LaunchStatus::ok, const std::string& reason = "");

/// begin_launch and finish_launch of a launch in which all cells are ok.
/// @returns the launch's row
std::int64_t store_launch(Store& store, const SyntheticPlan& plan, const GroupInfo& group,
                          int block, const TimeOf& time_us, int iterations = 10);

/// A plan of one training group whose cells are methods with their settings, and its launches: in
/// block b the i-th cell's steps take step_us[i] times (1 + b / 100).
struct SyntheticTraining {
  std::vector<std::pair<std::string, std::string>> methods;  ///< name and settings as JSON
  std::vector<double> step_us;
};
SyntheticPlan store_training(Store& store, const SyntheticTraining& training,
                             const TrainingFigures& figures, int blocks);
/// The same, each cell and block with figures of its own.
using FiguresOf = std::function<TrainingFigures(std::size_t method, int block)>;
SyntheticPlan store_training(Store& store, const SyntheticTraining& training,
                             const FiguresOf& figures, int blocks);

}  // namespace dynamiccl::testing
