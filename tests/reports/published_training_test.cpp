#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>

#include "reports/model/table_view.hpp"
#include "tests/reports/trained_run.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

TrainedCase trained(const char* method, const char* backend, int ranks, double step_us,
                    const char* environment = "bare-metal") {
  TrainedCase one{method, "resnet18", 32, ranks, step_us, usual_figures()};
  one.backend = backend;
  one.environment = environment;
  return one;
}

}  // namespace

TEST_CASE("server and ring are compared by the time of equal samples, as it was published",
          "[D-10]") {
  // Four ranks: three workers and a server, or four workers; and as many workers on five ranks.
  const TrainedRun run({trained("bsp-ps", "nccl", 4, 100'000),
                        trained("bsp-a2a", "nccl", 4, 50'000),
                        trained("bsp-ps", "nccl", 5, 110'000),
                        trained("wfbp-ps", "gloo", 4, 90'000, "cross-docker")});
  const Table table = run.query("ps_against_ring");
  const TableView rows(table);
  std::map<std::string, std::size_t> row;
  for (std::size_t i = 0; i < rows.size(); ++i)
    row[rows.text(i, "backend") + " " + rows.text(i, "environment") + " " + rows.text(i, "basis")] =
        i;
  const auto equal_ranks = row.at("nccl bare-metal equal ranks");
  // The published steps: 521 and 391 of each of 10 epochs.
  CHECK(rows.integer(equal_ranks, "server_steps") == 5210);
  CHECK(rows.integer(equal_ranks, "ring_steps") == 3910);
  CHECK_THAT(*rows.real(equal_ranks, "server_s"), WithinRel(0.101 * 5210, 1e-9));
  CHECK_THAT(*rows.real(equal_ranks, "ratio"), WithinRel(2 * 5210.0 / 3910, 1e-9));
  REQUIRE(rows.real(equal_ranks, "ratio_low"));
  CHECK(rows.text(equal_ranks, "server_is") == "SLOWER");
  CHECK(rows.real(equal_ranks, "published_server_s") == 503.0);
  CHECK(rows.real(equal_ranks, "published_ring_s") == 186.0);
  const auto equal_workers = row.at("nccl bare-metal equal workers");
  CHECK(rows.integer(equal_workers, "server_steps") == 3910);
  CHECK_THAT(*rows.real(equal_workers, "ratio"), WithinRel(2.2, 1e-9));
  // Gloo's server has no ring beside it: only what was published is there, and says so.
  const auto gloo = row.at("gloo cross-docker ");
  CHECK(rows.text(gloo, "note") == "not measured in this run");
  CHECK_THAT(*rows.real(gloo, "published_ratio"), WithinRel(1386.0 / 750, 1e-9));
  CHECK(row.contains("mpi bare-metal "));
  CHECK_FALSE(row.contains("nccl bare-metal "));
}

TEST_CASE("what differs between launches decides whether server and ring surely differ", "[D-10]") {
  auto server = trained("bsp-ps", "mpich", 4, 50'000);
  server.spread = 0.5;
  auto ring = trained("bsp-a2a", "mpich", 4, 66'000);
  const TrainedRun run({server, ring});
  const Table table = run.query("ps_against_ring");
  const TableView rows(table);
  CHECK(rows.text(0, "basis") == "equal ranks");
  CHECK(rows.text(0, "server_is") == "UNCLEAR");
  // Open MPI and MPICH are both what the study calls MPI.
  CHECK(rows.real(0, "published_server_s") == 1095.0);
}

TEST_CASE("speed-ups stand beside the survey's of the same model, method and workers") {
  const auto model = [](const char* method, const char* name, int ranks, double single_us) {
    TrainedCase one{method, name, 64, ranks, 100, usual_figures()};
    one.figures.single_us = single_us;
    return one;
  };
  const TrainedRun run({model("mg-wfbp", "bert-base", 4, 80), model("dear", "bert-base", 4, 90),
                        model("wfbp-ps", "resnet50", 5, 95), model("mg-wfbp", "mlp", 4, 80)});
  const Table table = run.query("published_training");
  const TableView rows(table);
  std::map<std::string, std::size_t> row;
  for (std::size_t i = 0; i < rows.size(); ++i)
    row[rows.text(i, "model") + " " + rows.text(i, "method") + " " + rows.text(i, "workers")] = i;
  const auto merged = row.at("bert-base mg-wfbp 4");
  CHECK_THAT(*rows.real(merged, "speedup"), WithinRel(3.2 / 1.01, 1e-9));
  CHECK(rows.real(merged, "speedup_low"));
  CHECK(rows.real(merged, "published_100gb_ib_rdma") == 3.10);
  CHECK_FALSE(rows.real(merged, "published_10gbe_tcp"));
  // Four workers behind a server are four workers.
  CHECK(rows.real(row.at("resnet50 wfbp-ps 4"), "published_100gb_ib_rdma") == 3.99);
  // A method that the survey does not have is there without a partner, a model is not.
  CHECK_FALSE(rows.real(row.at("bert-base dear 4"), "published_100gb_ib_rdma"));
  CHECK_FALSE(row.contains("mlp mg-wfbp 4"));
  const auto best = row.at("bert-base best of all 4");
  CHECK_THAT(rows.text(best, "note"), ContainsSubstring("here: dear"));
  CHECK(rows.real(best, "published_100gb_ib_rdma") == 3.1);
  const auto missing = row.at("bert-large bsp-a2a 32");
  CHECK_FALSE(rows.real(missing, "speedup"));
  CHECK_THAT(rows.text(missing, "note"),
             ContainsSubstring("not measured") && ContainsSubstring("one range for all methods"));
  CHECK_THAT(rows.text(row.at("resnet50 wfbp-ps 32"), "note"),
             ContainsSubstring("equals the slower link's row"));
}
