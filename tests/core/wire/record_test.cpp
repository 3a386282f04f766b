#include "core/wire/record.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/vocabulary/json.hpp"
#include "core/wire/run_config.hpp"
#include "core/wire/standing.hpp"

using namespace dynamiccl;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

namespace {
CellRecord sample_cell() {
  CellRecord cell;
  cell.cell_id = "abc";
  cell.rank = 1;
  cell.cadence = Cadence::batched;
  cell.batch = 8;
  cell.barrier = "mpi_barrier";
  cell.algorithm = "library";
  cell.checked = 1024;
  cell.measured.total_us = {1.5, 2.5};
  cell.measured.collective_us = {1.5, 2.5};
  cell.warmup.total_us = {9.0};
  return cell;
}
}  // namespace

TEST_CASE("a cell record survives its line of JSON") {
  const auto back = std::get<CellRecord>(record_from_json_line(to_json_line(sample_cell())));
  CHECK(back.cell_id == "abc");
  CHECK(back.batch == 8);
  CHECK(back.cadence == Cadence::batched);
  CHECK(back.measured.total_us == std::vector<double>{1.5, 2.5});
  CHECK(back.measured.h2d_us.empty());
  CHECK(back.warmup.total_us == std::vector<double>{9.0});
}

TEST_CASE("a training cell's figures survive their line of JSON", "[a-12]") {
  auto cell = sample_cell();
  cell.training.emplace();
  cell.training->role = "worker";
  cell.training->exposed_us = 12.5;
  cell.training->max_difference = 1e-7;
  cell.training->details["plan"] = {1, 2};
  const auto back = std::get<CellRecord>(record_from_json_line(to_json_line(cell)));
  REQUIRE(back.training);
  CHECK(back.training->role == "worker");
  CHECK(back.training->exposed_us == 12.5);
  CHECK(back.training->max_difference == 1e-7);
  CHECK(back.training->accuracy == -1);
  CHECK(back.training->details["plan"][1] == 2);
}

TEST_CASE("a figure that is no number leaves its record readable", "[a-12]") {
  auto cell = sample_cell();
  cell.training.emplace();
  cell.training->role = "worker";
  cell.training->first_loss = 2.3;
  cell.training->last_loss = std::numeric_limits<double>::quiet_NaN();
  cell.training->max_difference = std::numeric_limits<double>::infinity();
  const auto back = std::get<CellRecord>(record_from_json_line(to_json_line(cell)));
  REQUIRE(back.training);
  CHECK(back.training->first_loss == 2.3);
  CHECK(!std::isfinite(back.training->last_loss));
  CHECK(!std::isfinite(back.training->max_difference));
}

TEST_CASE("component arrays of unequal length are refused") {
  auto cell = sample_cell();
  cell.measured.send_us = {1.0};
  CHECK_THROWS_AS(record_from_json_line(to_json_line(cell)), Error);
}

TEST_CASE("bytes that are no UTF-8 do not stop a record from being written") {
  CHECK_NOTHROW(record_from_json_line(to_json_line(ErrorRecord{0, "bad \xff byte"})));
}

TEST_CASE("a killed rank leaves a readable prefix") {
  const auto path =
      std::filesystem::temp_directory_path() / ("dynamiccl-record-" + std::to_string(getpid()));
  std::ofstream(path) << to_json_line(sample_cell()) << "\n"
                      << R"({"type":"cell","cell_id":"to)";
  const auto file = read_record_file(path.string());
  CHECK(file.records.size() == 1);
  REQUIRE(file.torn_line);
  std::ofstream(path) << "garbage\n" << to_json_line(sample_cell()) << "\n";
  CHECK_THROWS_WITH(read_record_file(path.string()),
                    Catch::Matchers::ContainsSubstring(":1: record:"));
  std::filesystem::remove(path);
}

TEST_CASE("run.json survives the round trip and other versions are refused") {
  RunConfig config;
  config.launch_id = "id";
  config.backend = Backend::gloo;
  config.architecture = Architecture::ps;
  config.ranks = 2;
  config.seed = 0xFFFFFFFFFFFFFFFFULL;
  config.cells.push_back({"c1",
                          Collective::push_pull,
                          Bytes(4),
                          DataType::float16,
                          "library",
                          true,
                          {{"k", "v"}},
                          3,
                          {}});
  const auto back = run_config_from_json(to_json(config));
  CHECK(back.cells.back().batch == 3);
  CHECK(back.seed == config.seed);
  CHECK(back.cells.at(0).collective == Collective::push_pull);
  CHECK(back.cells.at(0).knobs.at("k") == "v");
  config.protocol_version = 99;
  CHECK_THROWS_WITH(run_config_from_json(to_json(config)),
                    Catch::Matchers::ContainsSubstring("version 99"));
  CHECK_THROWS_AS(run_config_from_json("{}"), Error);
}

TEST_CASE("a number that its field cannot hold is refused, not another number") {
  RunConfig config;
  config.cells.emplace_back();
  const auto written = nlohmann::json::parse(to_json(config));
  for (const char* place : {"/seed", "/ranks", "/protocol/warmup", "/cells/0/size_bytes"})
    for (const char* number : {"1.5", "1e30", "129021649070524881561"}) {
      INFO(place << " " << number);
      auto changed = written;
      changed[nlohmann::json::json_pointer(place)] = nlohmann::json::parse(number);
      CHECK_THROWS_WITH(run_config_from_json(changed.dump()),
                        StartsWith("run.json: a whole number from "));
    }
  HelloRecord hello;
  hello.rank = 1;
  auto line = nlohmann::json::parse(to_json_line(hello));
  CHECK_NOTHROW(record_from_json_line(line.dump()));
  line["rank"] = 6795574650.5;
  CHECK_THROWS_WITH(record_from_json_line(line.dump()),
                    StartsWith("record: a whole number from ") && EndsWith(", not 6795574650.5"));
}

TEST_CASE("a clock's comparison survives its line") {
  const ClockRecord clock{1, false, 10.5, -3.25, 0.5, 99.5, -3.5, 0.75, 40};
  const auto back = std::get<ClockRecord>(record_from_json_line(to_json_line(clock)));
  CHECK(back.rank == 1);
  CHECK_FALSE(back.shared);
  CHECK(back.at_us == 10.5);
  CHECK(back.offset_us == -3.25);
  CHECK(back.error_us == 0.5);
  CHECK(back.end_at_us == 99.5);
  CHECK(back.end_offset_us == -3.5);
  CHECK(back.end_error_us == 0.75);
  CHECK(back.rounds == 40);
}

TEST_CASE("where a rank stands is said in words, and of what is no Standing nothing",
          "[d-06][d-13]") {
  Standing standing;
  const auto words = [&] {
    return words_of_standing({reinterpret_cast<const char*>(&standing), sizeof standing});
  };
  CHECK(words().empty());  // it measures something else
  standing.point = Standpoint::exchange;
  standing.round = 17;
  CHECK(words() == "in the exchange of round 17");
  standing.point = Standpoint::step;
  standing.round = 2;
  standing.checked = 1;
  CHECK(words() == "in the computation of round 2 of the check against one process");
  standing.point = Standpoint::evaluation;
  standing.checked = 0;
  standing.round = 0;
  CHECK(words() == "at the accuracy");
  standing.point = static_cast<Standpoint>(77);
  CHECK(words().empty());
  standing.magic = 1;
  standing.point = Standpoint::step;
  CHECK(words().empty());
  CHECK(words_of_standing("").empty());
  CHECK(words_of_standing(std::string(sizeof standing - 1, 'x')).empty());
}
