#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <map>

#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using TimeOfBackend = std::function<double(int block)>;

TimeOfBackend steady(double time_us) {
  return [=](int block) { return time_us * (1 + 1e-4 * block); };
}

/// Four launches of each backend on bare metal, at these times per call.
Table rankings_of(const std::map<std::string, TimeOfBackend>& backends,
                  const std::string& collective) {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  std::vector<std::string> names;
  for (const auto& [backend, time] : backends) names.push_back(backend);
  auto plan = make_plan("run-1", names, {collective}, {1024});
  for (auto& group : plan.groups) {
    group.backend = group.environment;
    group.environment = "bare-metal";
  }
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < 4; ++block)
    for (const auto& group : plan.groups)
      store_launch(store, plan, group, block,
                   [&](const CellInfo&, int, int) { return backends.at(group.backend)(block); });
  store.end_run("run-1", "complete");
  return named_query(Reader(folder.file("a.sqlite")), "rankings", {});
}

}  // namespace

TEST_CASE("a measured order is held against the published one, for each harness", "[C-12][C-13]") {
  const Table table = rankings_of(
      {{"nccl", steady(10)}, {"gloo", steady(40)}, {"openmpi", steady(20)}, {"mpich", steady(30)}},
      "allreduce");
  const TableView rows(table);
  REQUIRE(rows.size() == 2);
  CHECK(rows.text(0, "published_in") == "micro-benchmark");
  CHECK_THAT(rows.text(0, "published"), ContainsSubstring("nccl 2.285 s, cuda-aware-mpi 3.226 s"));
  CHECK(rows.text(0, "measured") == "nccl 10.0 us, openmpi 20.0 us, mpich 30.0 us");
  CHECK(rows.text(0, "ranking") == "AGREES");
  CHECK(rows.text(0, "surely_other").empty());
  // Twice Open MPI's time over NCCL's, where 1.44 was published, is further off than MPICH's 1.5.
  CHECK(rows.text(0, "deviation_of") == "openmpi / nccl");
  // Of the family, the faster one stands for "mpi": it is before Gloo here, not after it.
  CHECK(rows.text(1, "published_in") == "training");
  CHECK(rows.text(1, "ranking") == "DIFFERS");
  CHECK(rows.text(1, "surely_other") == "openmpi before gloo");
}

TEST_CASE("gather to a server is the operation in which NCCL is published as the slower",
          "[C-14]") {
  const Table agrees =
      rankings_of({{"cuda-aware-mpi", steady(20)}, {"nccl", steady(31)}}, "gather");
  REQUIRE(agrees.rows.size() == 1);
  CHECK(TableView(agrees).text(0, "ranking") == "AGREES");
  const Table differs =
      rankings_of({{"cuda-aware-mpi", steady(31)}, {"nccl", steady(20)}}, "gather");
  REQUIRE(differs.rows.size() == 1);
  CHECK(TableView(differs).text(0, "ranking") == "DIFFERS");
  CHECK(TableView(differs).text(0, "surely_other") == "nccl before cuda-aware-mpi");
}

TEST_CASE("an order within the noise is unclear, and one backend alone is no order") {
  const Table near = rankings_of({{"openmpi", [](int block) { return 10.0 + block; }},
                                  {"nccl", [](int block) { return 10.5 + block * 3 % 4; }}},
                                 "allreduce");
  REQUIRE(near.rows.size() == 2);
  CHECK(TableView(near).text(0, "ranking") == "UNCLEAR");
  CHECK(rankings_of({{"gloo", steady(20)}}, "allreduce").rows.empty());
  CHECK(rankings_of({{"openmpi", steady(20)}, {"gloo", steady(30)}}, "reduce").rows.empty());
}
