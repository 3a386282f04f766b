#include "db/store.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/error.hpp"
#include "db/reader.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

std::int64_t integer(const Reader& reader, const std::string& sql) {
  return std::get<std::int64_t>(reader.query(sql).rows.at(0).at(0));
}

std::string text(const Reader& reader, const std::string& sql) {
  return std::get<std::string>(reader.query(sql).rows.at(0).at(0));
}

double real(const Reader& reader, const std::string& sql) {
  return std::get<double>(reader.query(sql).rows.at(0).at(0));
}

double ten_and_rank(const CellInfo&, int rank, int iteration) { return 10.0 + rank + iteration; }

}  // namespace

TEST_CASE("a finished launch is stored with every sample and exact statistics", "[G-01][G-02]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  store_launch(store, plan, plan.groups[0], 0, ten_and_rank);

  const Reader reader(folder.file("a.sqlite"));
  CHECK(integer(reader, "SELECT count(*) FROM sample WHERE phase = 1") == 20);
  CHECK(integer(reader, "SELECT count(*) FROM sample WHERE phase = 0") == 4);
  // Rank 1 is the slower one in each iteration: 11, 12, ... 20.
  CHECK(real(reader, "SELECT median_us FROM v_measurement") == 15.5);
  CHECK(real(reader, "SELECT min_us FROM v_measurement") == 11.0);
  CHECK(real(reader, "SELECT max_us FROM v_measurement") == 20.0);
  CHECK(real(reader, "SELECT mean_us FROM v_measurement") == 15.5);
  CHECK(real(reader, "SELECT collective_us FROM v_measurement") == 15.5 * 0.75);
  CHECK(integer(reader, "SELECT n FROM v_measurement") == 10);
  CHECK(integer(reader, "SELECT checked FROM v_measurement") == 512);
  // 2 ranks: busbw = size / time * 2 * (2-1) / 2.
  CHECK(real(reader, "SELECT busbw_bytes_per_s FROM v_measurement") == 1024 / 15.5 * 1e6);
  CHECK(text(reader, "SELECT seed FROM run") == "18446744073709551615");
  CHECK(text(reader, "SELECT status FROM v_cell") == "ok");
  CHECK(integer(reader, "SELECT launches FROM v_cell") == 1);
}

TEST_CASE("resume sees which blocks are measured and never stores one twice", "[B-08]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal", "cross-docker"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  store_launch(store, plan, plan.groups[0], 0, ten_and_rank);
  const auto failed = store.begin_launch("run-1", make_start(plan.groups[1].id, 0));
  store.finish_launch(failed, make_end(LaunchStatus::failed, "rank 1 was killed"), {});

  CHECK(store.finished_launches("run-1") == std::set<LaunchKey>{{plan.groups[0].id, 0}});
  CHECK(store.next_attempt("run-1", plan.groups[1].id, 0) == 1);
  CHECK(store.next_attempt("run-1", plan.groups[1].id, 1) == 0);

  const auto again = store.begin_launch("run-1", make_start(plan.groups[0].id, 0, 1));
  CHECK_THROWS_WITH(store.finish_launch(again, make_end(), {}),
                    ContainsSubstring("already measured this group and block"));
  CHECK_THROWS_WITH(store.finish_launch(failed, make_end(), {}),
                    ContainsSubstring("already stored as failed"));
  CHECK_THROWS_WITH(store.begin_run(plan.run, plan.groups, plan.cells),
                    ContainsSubstring("run run-1 is already stored"));
}
