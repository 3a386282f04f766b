#include "orchestrator/launch/integrity.hpp"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/vocabulary/error.hpp"
#include "orchestrator/launch/identity.hpp"

using namespace dynamiccl;

namespace {

RunConfig two_rank_config() {
  RunConfig config;
  config.launch_id = "launch-1";
  config.ranks = 2;
  WorkCell cell;
  cell.id = "cell-a";
  cell.collective = Collective::allreduce;
  cell.size = Bytes(1024);
  config.cells.push_back(cell);
  cell.id = "cell-b";
  cell.collective = Collective::broadcast;
  config.cells.push_back(cell);
  return config;
}

CellRecord good_cell(const std::string& id, int rank) {
  CellRecord cell;
  cell.cell_id = id;
  cell.rank = rank;
  cell.checked = 256;
  cell.measured.total_us = {1.0, 2.0, 3.0};
  return cell;
}

std::vector<RecordFile> good_files() {
  std::vector<RecordFile> files(2);
  for (int rank = 0; rank < 2; ++rank) {
    HelloRecord hello;
    hello.rank = rank;
    hello.world_size = 2;
    hello.launch_id = "launch-1";
    files[static_cast<std::size_t>(rank)].records = {
        hello, good_cell("cell-a", rank), good_cell("cell-b", rank), DoneRecord{rank, 1.0, 1.0}};
  }
  return files;
}

template <class T>
T& part(RecordFile& file, std::size_t index) {
  return std::get<T>(file.records.at(index));
}

}  // namespace

TEST_CASE("a launch that left what was asked for passes") {
  const auto check = check_records(two_rank_config(), good_files());
  CHECK(check.problems.empty());
  CHECK(check.failed_cells == 0);
}

TEST_CASE("N jobs of one rank are no job of N ranks") {
  auto files = good_files();
  part<HelloRecord>(files[0], 0).world_size = 1;
  part<HelloRecord>(files[1], 0).world_size = 1;
  CHECK(check_records(two_rank_config(), files).problems ==
        std::vector<std::string>{"ranks 0, 1: world of 1 rank instead of 2"});
}

TEST_CASE("each way of missing something is told with the rank") {
  using Problems = std::vector<std::string>;
  const auto problems = [](const std::vector<RecordFile>& files) {
    return check_records(two_rank_config(), files).problems;
  };
  auto files = good_files();
  files[1].records.clear();
  CHECK(problems(files) ==
        Problems{"rank 1: left no record: the process did not start, or lies in another world"});
  files = good_files();
  files[1].records.pop_back();
  CHECK(problems(files) == Problems{"rank 1: ended without its last record"});
  files = good_files();
  files[0].records.erase(files[0].records.begin() + 2);
  CHECK(problems(files) == Problems{"rank 0: 1 of 2 cells missing"});
  files = good_files();
  part<HelloRecord>(files[1], 0).rank = 0;
  CHECK(problems(files) == Problems{"rank 1: calls itself rank 0"});
  files = good_files();
  part<HelloRecord>(files[0], 0).launch_id = "launch-0";
  CHECK(problems(files) == Problems{"rank 0: belongs to launch launch-0"});
  files = good_files();
  files[0].records.back() = ErrorRecord{0, "out of memory"};
  CHECK(problems(files) == Problems{"rank 0: out of memory"});
  files = good_files();
  files.pop_back();
  CHECK(problems(files).size() == 1);
}

TEST_CASE("times that are no times fail the launch") {
  auto files = good_files();
  part<CellRecord>(files[1], 1).measured.total_us[1] = std::numeric_limits<double>::quiet_NaN();
  CHECK(check_records(two_rank_config(), files).problems ==
        std::vector<std::string>{"allreduce 1 KiB: rank 1 recorded a time that is no time"});
  files = good_files();
  part<CellRecord>(files[1], 1).measured.total_us.pop_back();
  CHECK(
      check_records(two_rank_config(), files).problems ==
      std::vector<std::string>{"allreduce 1 KiB: the ranks recorded different numbers of samples"});
  files = good_files();
  part<CellRecord>(files[0], 2).measured.total_us.clear();
  part<CellRecord>(files[1], 2).measured.total_us.clear();
  CHECK(check_records(two_rank_config(), files).problems ==
        std::vector<std::string>{"broadcast 1 KiB: no samples were recorded"});
}

TEST_CASE("a wrong byte on one rank fails its cell, not the launch") {
  auto files = good_files();
  part<CellRecord>(files[1], 1).wrong = 1;
  const auto check = check_records(two_rank_config(), files);
  CHECK(check.problems.empty());
  CHECK(check.failed_cells == 1);
}

TEST_CASE("a training that diverged is not told as a wrong result") {
  auto files = good_files();
  CHECK(failed_cells_text(files).empty());
  part<CellRecord>(files[1], 1).wrong = 1;
  CHECK(failed_cells_text(files) == "1 cell with a wrong result");
  auto& diverged = part<CellRecord>(files[0], 2);
  diverged.status = CellStatus::failed;
  diverged.wrong = 7;
  diverged.reason = "training diverged: the loss of step 3 is no finite number; take a smaller ...";
  part<CellRecord>(files[1], 2).wrong = 7;
  CHECK(failed_cells_text(files) == "1 cell with a wrong result, 1 cell whose training diverged");
  files = good_files();
  part<CellRecord>(files[0], 1).status = CellStatus::failed;
  CHECK(failed_cells_text(files) == "1 cell that failed");
}

TEST_CASE("a cell of which a rank that receives compared nothing is no verified result") {
  auto files = good_files();
  part<CellRecord>(files[1], 1).checked = 0;
  CHECK(check_records(two_rank_config(), files).problems ==
        std::vector<std::string>{
            "allreduce 1 KiB: rank 1 compared no element, although protocol.verify is on"});
  part<CellRecord>(files[0], 1).checked = 0;
  CHECK(check_records(two_rank_config(), files).problems ==
        std::vector<std::string>{
            "allreduce 1 KiB: no rank compared an element, although protocol.verify is on"});
  auto config = two_rank_config();
  config.protocol.verify = false;
  CHECK(check_records(config, files).problems.empty());
}

TEST_CASE("of a call of nothing nothing is compared, of a barrier that nobody left early") {
  auto files = good_files();
  for (auto& file : files) part<CellRecord>(file, 1).checked = 0;
  auto config = two_rank_config();
  config.cells[0].size = Bytes(0);
  CHECK(check_records(config, files).problems.empty());
  config.cells[0].collective = Collective::barrier;
  CHECK(check_records(config, files).problems.size() == 1);
  // A list of parts may leave a rank nothing, not all of them.
  config.cells[0].collective = Collective::alltoallv;
  config.cells[0].size = Bytes(64);
  config.cells[0].knobs = {{"parts", "1:0"}};
  CHECK(check_records(config, files).problems.size() == 1);
  part<CellRecord>(files[0], 1).checked = 32;
  CHECK(check_records(config, files).problems.empty());
  // Of an allgatherv each rank gets all parts.
  config.cells[0].collective = Collective::allgatherv;
  CHECK(check_records(config, files).problems.size() == 1);
}

TEST_CASE("ranks that only send have nothing to compare") {
  auto files = good_files();
  part<CellRecord>(files[1], 1).checked = 0;
  auto config = two_rank_config();
  config.cells[0].collective = Collective::reduce;  // to rank 0
  CHECK(check_records(config, files).problems.empty());
  config = two_rank_config();
  config.architecture = Architecture::ps;
  config.cells[0].collective = Collective::push;  // to the server
  config.cells[1].collective = Collective::push;
  CHECK(check_records(config, files).problems.empty());
}

TEST_CASE("unsupported counts only when the ranks agree") {
  auto files = good_files();
  for (auto& file : files) {
    part<CellRecord>(file, 1).status = CellStatus::unsupported;
    part<CellRecord>(file, 1).measured.total_us.clear();
  }
  auto check = check_records(two_rank_config(), files);
  CHECK(check.problems.empty());
  CHECK(check.unsupported_cells == 1);
  part<CellRecord>(files[0], 1) = good_cell("cell-a", 0);
  check = check_records(two_rank_config(), files);
  CHECK(check.problems ==
        std::vector<std::string>{"allreduce 1 KiB: the ranks disagree whether it is supported"});
}

TEST_CASE("missing and damaged record files are read as far as they go") {
  auto config = two_rank_config();
  config.output_dir = (std::filesystem::temp_directory_path() / random_uuid()).string();
  std::filesystem::create_directories(config.output_dir);
  std::ofstream(config.output_dir + "/" + record_file_name(0))
      << to_json_line(DoneRecord{0, 1.0, 1.0}) << "\nnot json\n"
      << to_json_line(DoneRecord{0, 1.0, 1.0}) << "\n";
  std::vector<std::string> problems;
  const auto files = read_launch_records(config, problems);
  std::filesystem::remove_all(config.output_dir);
  REQUIRE(files.size() == 2);
  CHECK(files[1].records.empty());
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].find("rank0.jsonl:2") != std::string::npos);
}
