#include "plugin/agreement/call_table.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <limits>

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
  CHECK(call_table_from_text(to_text(some_rows()), problem).rows == some_rows());
  CHECK(problem.empty());
}

TEST_CASE("a torn, edited or foreign table is no table", "[E-125]") {
  const std::string whole = to_text(some_rows());
  std::string problem;
  for (std::size_t bytes = 0; bytes + 1 < whole.size(); ++bytes) {
    CHECK(call_table_from_text(whole.substr(0, bytes), problem).rows.empty());
    CHECK_FALSE(problem.empty());
  }
  std::string edited = whole;
  edited.replace(edited.find(" 16"), 3, " 32");
  CHECK(call_table_from_text(edited, problem).rows.empty());
  CHECK(problem.find("checksum") != std::string::npos);
  CHECK(call_table_from_text("dynamiccl-nccl-table 3\n", problem).rows.empty());
  CHECK(problem.find("first line") != std::string::npos);
  CHECK(call_table_from_text("dynamiccl-nccl-table 1\nrow 4 - allreduce 9 8 - - 1\n", problem)
            .rows.empty());
  CHECK(problem.find("line 2") != std::string::npos);
}

TEST_CASE("where a table was made is read back with it, and damage to it is found", "[E-127]") {
  const CallTableOrigin origin{
      "2.28", "NVIDIA H100 80GB HBM3", {{4, 26, 1, 2, 33882.5F}, {0, 10, 0, 0, 6.61F}}};
  const std::string whole = to_text(some_rows(), origin);
  CHECK(whole.starts_with("dynamiccl-nccl-table 2\n"));
  CHECK(to_text(some_rows()).starts_with("dynamiccl-nccl-table 1\n"));
  std::string problem;
  const CallTableFile file = call_table_from_text(whole, problem);
  CHECK(problem.empty());
  CHECK(file.rows == some_rows());
  CHECK(file.origin == origin);
  for (std::size_t bytes = 0; bytes + 1 < whole.size(); ++bytes)
    CHECK(call_table_from_text(whole.substr(0, bytes), problem).rows.empty());
  for (const char* line :
       {"made cost allreduce 26 ring Simple 0", "made cost allreduce 48 ring LL 1",
        "made cost allreduce 26 ring Simple nan", "made cost alltoall 3 ring LL 1", "made nccl",
        "made time 3", "made"}) {
    INFO(line);
    CHECK(call_table_from_text("dynamiccl-nccl-table 2\n" + std::string(line) + "\n", problem)
              .rows.empty());
    CHECK(problem.find("line 2") != std::string::npos);
  }
  // A name that is no line of its own forges none.
  const CallTableOrigin forged{"2.28\nrow - - allreduce 0 47 ring Simple 1", "", {}};
  const CallTableFile read = call_table_from_text(to_text({}, forged), problem);
  CHECK(problem.empty());
  CHECK(read.rows.empty());
}

TEST_CASE("of what NCCL expects ring and Simple are the witness, else what it has", "[E-127]") {
  std::array<float, 21> predicted{};
  predicted.fill(-1.0F);
  CHECK_FALSE(witness_cost(4, 20, predicted));
  predicted[12] = 7.0F;
  CHECK(witness_cost(4, 20, predicted) == CallCost{4, 20, 4, 0, 7.0F});
  predicted[5] = 9.0F;
  CHECK(witness_cost(4, 20, predicted) == CallCost{4, 20, 1, 2, 9.0F});
  predicted[5] = std::numeric_limits<float>::infinity();
  CHECK(witness_cost(4, 20, predicted)->us == 7.0F);
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
