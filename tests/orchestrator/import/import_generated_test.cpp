// Logs in the forms of four suites by a generator: each is imported exactly, or refused by a line.

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "core/vocabulary/error.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "tests/orchestrator/import/log_generator.hpp"

using namespace dynamiccl;
using dynamiccl::testing::GeneratedLog;
using dynamiccl::testing::LogGenerator;
using dynamiccl::testing::PrintedCell;

namespace {

constexpr std::uint32_t kLogsOfEachForm = 175;

ImportOptions options_of(const GeneratedLog& log) {
  ImportOptions options;
  for (std::size_t i = 0; i + 1 < log.options.size(); i += 2) {
    if (log.options[i] == "--operation") options.operation = log.options[i + 1];
    if (log.options[i] == "--ranks") options.ranks = std::stoi(log.options[i + 1]);
  }
  return options;
}

using Times = std::map<PrintedCell, double>;

/// The cells of the run that came of the log, by status.
std::map<CellStatus, Times> imported(const GeneratedLog& log, const std::string& format) {
  const auto options = options_of(log);
  const auto starts = format == "osu"   ? read_osu_text(log.text, "x.txt", options)
                      : format == "imb" ? read_imb_text(log.text, "x.txt", options)
                                        : read_nccl_tests_text(log.text, "x.txt", options);
  CHECK(starts.back().cut_off.empty() == log.complete);
  const auto run = make_foreign_run({{"x.txt", log.text, starts}}, format, options);
  std::map<std::string, PrintedCell> cells;
  for (const auto& cell : run.cells) {
    const auto group = std::find_if(run.groups.begin(), run.groups.end(),
                                    [&](const GroupInfo& one) { return one.id == cell.group_id; });
    REQUIRE(group != run.groups.end());
    const auto knobs = nlohmann::json::parse(cell.knobs_json);
    cells[cell.id] = {cell.collective, group->ranks, cell.size_bytes, cell.in_place,
                      knobs.value("redop", "")};
  }
  std::map<CellStatus, Times> times;
  for (const auto& launch : run.launches) {
    for (const auto& figure : launch.figures) {
      if (!figure.time_us) continue;
      CHECK(times[figure.status].emplace(cells.at(figure.cell_id), *figure.time_us).second);
      CHECK(std::fabs(figure.resolution_us - 0.005) < 1e-12);
    }
  }
  return times;
}

void check(const GeneratedLog& log, const std::string& format, std::uint32_t seed) {
  INFO("seed " << seed << ": " << log.description << "\n" << log.text);
  try {
    auto times = imported(log, format);
    CHECK(times[CellStatus::ok] == log.times_us);
    CHECK(times[CellStatus::failed] == log.failed_us);
  } catch (const Error& error) {
    FAIL(error.what());
  }
}

}  // namespace

TEST_CASE("generated logs of nccl-tests are imported exactly", "[G-01]") {
  for (std::uint32_t seed = 0; seed < kLogsOfEachForm; ++seed)
    check(LogGenerator(seed).nccl_tests(false), "nccl-tests", seed);
}

TEST_CASE("generated logs of rccl-tests are imported exactly", "[G-01]") {
  for (std::uint32_t seed = 0; seed < kLogsOfEachForm; ++seed)
    check(LogGenerator(seed).nccl_tests(true), "nccl-tests", seed);
}

TEST_CASE("generated logs of OSU are imported exactly", "[G-01]") {
  for (std::uint32_t seed = 0; seed < kLogsOfEachForm; ++seed)
    check(LogGenerator(seed).osu(), "osu", seed);
}

TEST_CASE("generated logs of the Intel MPI Benchmarks are imported exactly", "[G-01]") {
  for (std::uint32_t seed = 0; seed < kLogsOfEachForm; ++seed)
    check(LogGenerator(seed).imb(), "imb", seed);
}

TEST_CASE("a generated log that is damaged is refused by its line or read as it stands", "[G-01]") {
  std::mt19937 random(7);
  for (std::uint32_t seed = 0; seed < kLogsOfEachForm; ++seed) {
    auto log = LogGenerator(seed).nccl_tests(seed % 2 == 0);
    for (int i = 0; i < 3; ++i)
      log.text[random() % log.text.size()] = static_cast<char>(random() % 96 + 32);
    INFO(log.text);
    try {
      const auto options = options_of(log);
      auto starts = read_nccl_tests_text(log.text, "x.txt", options);
      make_foreign_run({{"x.txt", log.text, starts}}, "nccl-tests", options);
    } catch (const Error& error) {
      CHECK(std::string(error.what()).find("x.txt") != std::string::npos);
      CHECK(error.kind() != ErrorKind::bug);
    }
  }
}
