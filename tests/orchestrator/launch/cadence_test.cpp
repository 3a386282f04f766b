#include "orchestrator/launch/cadence.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace dynamiccl;

namespace {

PlannedGroup group_in(const std::string& environment, Collective collective, std::uint64_t bytes) {
  PlannedGroup group;
  group.id = environment;
  group.environment = environment;
  group.ranks = 2;
  PlannedCell cell;
  cell.work.id = environment + " cell";
  cell.work.collective = collective;
  cell.work.size = Bytes(bytes);
  group.cells.push_back(cell);
  return group;
}

std::vector<RecordFile> records_of(const PlannedGroup& group, int batch, CellStatus status) {
  CellRecord record;
  record.cell_id = group.cells.front().work.id;
  record.batch = batch;
  record.status = status;
  RecordFile file;
  file.records.emplace_back(record);
  return {file};
}

int batch_for(const CadenceBook& book, const PlannedGroup& group) {
  std::vector<WorkCell> cells{group.cells.front().work};
  book.apply(group, cells);
  return cells.front().batch;
}

}  // namespace

TEST_CASE("the first good launch settles the calls of a sample for every environment", "[A-20]") {
  const auto here = group_in("bare-metal", Collective::allreduce, 1024);
  const auto there = group_in("cross-docker", Collective::allreduce, 1024);
  const auto larger = group_in("bare-metal", Collective::allreduce, 65536);
  CadenceBook book;
  CHECK(batch_for(book, here) == 0);
  book.note(here, records_of(here, 9, CellStatus::failed));
  CHECK(batch_for(book, here) == 0);
  book.note(there, records_of(there, 3, CellStatus::ok));
  book.note(here, records_of(here, 9, CellStatus::ok));
  CHECK(batch_for(book, here) == 3);
  CHECK(batch_for(book, there) == 3);
  CHECK(batch_for(book, larger) == 0);
}

TEST_CASE("a resumed run goes on with the calls it had settled", "[A-20]") {
  Plan plan;
  plan.groups = {group_in("bare-metal", Collective::allreduce, 1024),
                 group_in("cross-docker", Collective::allreduce, 1024)};
  CadenceBook book;
  book.note(plan, {{"gone", "gone cell", 8}, {"bare-metal", "bare-metal cell", 5}});
  CHECK(batch_for(book, plan.groups[1]) == 5);
}

TEST_CASE("training steps are never counted in batches", "[A-20]") {
  auto group = group_in("bare-metal", Collective::training, 1024);
  CadenceBook book;
  CellRecord record;
  record.cell_id = group.cells.front().work.id;
  record.status = CellStatus::ok;
  record.batch = 4;
  record.training.emplace();
  RecordFile file;
  file.records.emplace_back(record);
  book.note(group, {file});
  CHECK(batch_for(book, group) == 0);
}
