#include "tuner/control/call_table.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace dynamiccl;

namespace {

std::vector<CallRow> some_rows() {
  return {{4, 0, 4, 0, 19, {CallCell::kAny, CallCell::kAny, 1, 0}},
          {4, 0, 4, 20, 30, {1, 2, 16, 0}},
          {0, 0, 0, 0, 47, {1, CallCell::kAny, 0, 0}},
          {4, 2, 4, 22, 22, {0, 0, 0, 0}}};
}

}  // namespace

TEST_CASE("a table's text is read back as it was", "[E-125]") {
  std::string problem;
  CHECK(rows_from_text(to_text(some_rows()), problem) == some_rows());
  CHECK(problem.empty());
}

TEST_CASE("a torn, edited or foreign table is no table", "[E-125]") {
  const std::string whole = to_text(some_rows());
  std::string problem;
  for (std::size_t bytes = 0; bytes + 1 < whole.size(); ++bytes) {
    CHECK(rows_from_text(whole.substr(0, bytes), problem).empty());
    CHECK_FALSE(problem.empty());
  }
  std::string edited = whole;
  edited.replace(edited.find(" 16"), 3, " 32");
  CHECK(rows_from_text(edited, problem).empty());
  CHECK(problem.find("checksum") != std::string::npos);
  CHECK(rows_from_text("dynamiccl-nccl-table 2\n", problem).empty());
  CHECK(problem.find("first line") != std::string::npos);
  CHECK(rows_from_text("dynamiccl-nccl-table 1\nrow 4 - allreduce 9 8 - - 1\n", problem).empty());
  CHECK(problem.find("line 2") != std::string::npos);
}

TEST_CASE("the most specific row counts", "[E-125]") {
  const CallTable two = table_for(some_rows(), 4, 2);
  CHECK(two.cells[4][22] == CallCell{0, 0, 0, 0});
  CHECK(two.cells[4][23] == CallCell{1, 2, 16, 0});
  const CallTable one = table_for(some_rows(), 4, 1);
  CHECK(one.cells[4][22] == CallCell{1, 2, 16, 0});
  CHECK(one.cells[4][0].channels == 1);
  CHECK(one.cells[4][31].leaves_all());
  const CallTable other = table_for(some_rows(), 8, 1);
  CHECK(other.cells[4][22].leaves_all());
  CHECK(other.cells[0][47].algorithm == 1);
}

TEST_CASE("sizes fall into the bin of their binary logarithm", "[E-125]") {
  CHECK(CallTable::bin(0) == 0);
  CHECK(CallTable::bin(1) == 0);
  CHECK(CallTable::bin(65536) == 16);
  CHECK(CallTable::bin(131071) == 16);
  CHECK(CallTable::bin(UINT64_MAX) == kCallBins - 1);
}

TEST_CASE("one changed bit changes a table's checksum", "[E-125]") {
  const CallTable table = table_for(some_rows(), 4, 1);
  const std::uint64_t sum = checksum_of(table);
  CHECK(sum != 0);
  for (std::size_t function = 0; function < kCallFunctions; ++function)
    for (std::size_t bin = 0; bin < kCallBins; ++bin) {
      CallTable changed = table;
      changed.cells[function][bin].channels ^= 1;
      CHECK(checksum_of(changed) != sum);
    }
}
