#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <set>

#include "reports/model/table_view.hpp"
#include "tests/reports/queries/trained_run.hpp"

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
          "[D-10][E-165]") {
  // Four ranks: three workers and a server, or four workers; and as many workers on five ranks.
  TrainedCase staged = trained("bsp-ps", "nccl", 4, 100'000);
  staged.figures.details["carried_by"] = "Gloo 0.5.0";
  TrainedCase direct = trained("bsp-ps", "nccl", 5, 110'000);
  direct.figures.details["carried_by"] = "NCCL 2.27.3";
  const TrainedRun run({staged, trained("bsp-a2a", "nccl", 4, 50'000), direct,
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
  CHECK_THAT(*rows.real(equal_ranks, "deviation"),
             WithinRel(2 * 5210.0 / 3910 / (503.0 / 186.0), 1e-9));
  CHECK_THAT(rows.text(equal_ranks, "note"),
             ContainsSubstring("carried by Gloo 0.5.0, not by NCCL") &&
                 ContainsSubstring("non_actionable_regime"));
  const auto equal_workers = row.at("nccl bare-metal equal workers");
  CHECK(rows.integer(equal_workers, "server_steps") == 3910);
  CHECK_THAT(*rows.real(equal_workers, "ratio"), WithinRel(2.2, 1e-9));
  CHECK(rows.text(equal_workers, "note") == "server's gradients carried by NCCL 2.27.3");
  // Gloo's server has no ring beside it: only what was published is there, and says so.
  const auto gloo = row.at("gloo cross-docker ");
  CHECK(rows.text(gloo, "note") == "not measured in this run");
  CHECK_THAT(*rows.real(gloo, "published_ratio"), WithinRel(1386.0 / 750, 1e-9));
  CHECK_FALSE(rows.real(gloo, "deviation"));
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

TEST_CASE("server and ring of launches taken in several runs are compared as one run's", "[D-10]") {
  // One launch a run: neither has an interval of its own.
  auto server = trained("bsp-ps", "mpich", 4, 100'000);
  server.figures.details["carried_by"] = "MPICH 4.0.2";
  TrainedRun run({server, trained("bsp-a2a", "mpich", 4, 50'000)}, 1);
  server.step_us = 104'000;
  run.add("trained-2", {server, trained("bsp-a2a", "mpich", 4, 50'000)}, 1);
  server.step_us = 102'000;
  run.add("trained-3", {server, trained("bsp-a2a", "mpich", 4, 50'000)}, 2);
  QueryScope scope;
  scope.all_runs = true;
  const Table apart = run.query("ps_against_ring", scope);
  CHECK(apart.rows.size() > 6);
  CHECK_FALSE(TableView(apart).real(apart.rows.size() - 1, "ratio_low"));
  scope.pool = true;
  const Table table = run.query("ps_against_ring", scope);
  const TableView rows(table);
  REQUIRE(rows.text(0, "basis") == "equal ranks");
  CHECK(rows.text(1, "note") == "not measured in this run");
  CHECK(rows.integer(0, "launches") == 4);
  // Each launch against the ring's of its own run.
  CHECK_THAT(*rows.real(0, "ratio"), WithinRel(2.04 * 5210.0 / 3910, 0.01));
  REQUIRE(rows.real(0, "ratio_low"));
  CHECK(*rows.real(0, "ratio_low") > 1.9 * 5210.0 / 3910);
  CHECK(rows.text(0, "server_is") == "SLOWER");
  CHECK(rows.text(0, "note") == "server's gradients carried by MPICH 4.0.2");
}

TEST_CASE("a server with a slowed worker is not held against a ring without one", "[D-10]") {
  auto server = trained("bsp-ps", "mpich", 4, 90'000);
  server.extra = R"(,"slow_factor":"3","slow_worker":"1")";
  auto ring = trained("bsp-a2a", "mpich", 4, 60'000);
  ring.extra = server.extra;
  const TrainedRun run({server, trained("bsp-a2a", "mpich", 4, 20'000), ring});
  const Table table = run.query("ps_against_ring");
  const TableView rows(table);
  REQUIRE(rows.text(0, "basis") == "equal ranks");
  CHECK_THAT(*rows.real(0, "ring_s"), WithinRel(0.0606 * 3910, 1e-9));
}

TEST_CASE("speed-ups stand beside the survey's of the same model, method and workers", "[E-170]") {
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
  CHECK_THAT(*rows.real(merged, "deviation"), WithinRel(3.2 / 1.01 / 3.10, 1e-9));
  CHECK_FALSE(rows.real(merged, "published_10gbe_tcp"));
  // Four workers behind a server are four workers.
  CHECK(rows.real(row.at("resnet50 wfbp-ps 4"), "published_100gb_ib_rdma") == 3.99);
  // A method that the survey does not have is there without a partner, a model is not.
  CHECK_FALSE(rows.real(row.at("bert-base dear 4"), "published_100gb_ib_rdma"));
  CHECK_FALSE(rows.real(row.at("bert-base dear 4"), "deviation"));
  CHECK_FALSE(row.contains("mlp mg-wfbp 4"));
  const auto best = row.at("bert-base best of all 4");
  CHECK_THAT(rows.text(best, "note"), ContainsSubstring("here: dear"));
  CHECK(rows.real(best, "published_100gb_ib_rdma") == 3.1);
  // What merges wins but there.
  CHECK_THAT(rows.text(row.at("bert-base mg-wfbp 8"), "note"),
             ContainsSubstring("BERT-Base at 8 workers"));
  CHECK(rows.text(row.at("bert-base mg-wfbp 16"), "note").find("exception") == std::string::npos);
  CHECK(rows.text(row.at("bert-base wfbp-a2a 8"), "note").find("exception") == std::string::npos);
  const auto missing = row.at("bert-large bsp-a2a 32");
  CHECK_FALSE(rows.real(missing, "speedup"));
  CHECK_THAT(rows.text(missing, "note"),
             ContainsSubstring("not measured") && ContainsSubstring("one range for all methods"));
  CHECK_THAT(rows.text(row.at("resnet50 wfbp-ps 32"), "note"),
             ContainsSubstring("equals the slower link's row"));
}

TEST_CASE("the survey's order of methods is held against steps of equal workers", "[A-58]") {
  auto unsure = trained("wfbp-ps", "gloo", 5, 100);
  unsure.spread = 0.5;
  auto bert = [](const char* method, int ranks, double step_us) {
    auto one = trained(method, "gloo", ranks, step_us);
    one.model = "bert-base";
    return one;
  };
  const TrainedRun run(
      {// Four workers each, with and without a server.
       trained("bsp-a2a", "gloo", 4, 100), trained("bsp-ps", "gloo", 5, 200),
       trained("wfbp-a2a", "gloo", 4, 90), unsure, trained("bytescheduler-a2a", "gloo", 4, 50),
       trained("bsp-ps", "gloo", 4, 10), trained("dear", "gloo", 4, 1), bert("mg-wfbp", 4, 80),
       bert("bsp-a2a", 4, 100), bert("mg-wfbp", 8, 80), bert("wfbp-a2a", 8, 100)});
  const Table table = run.query("method_order");
  const TableView rows(table);
  std::map<std::string, std::size_t> row;
  for (std::size_t i = 0; i < rows.size(); ++i)
    row[rows.text(i, "model") + " " + rows.text(i, "workers") + " " + rows.text(i, "faster") + " " +
        rows.text(i, "slower")] = i;
  const auto plain = row.at("resnet18 4 bsp-a2a bsp-ps");
  CHECK(rows.text(plain, "claim") == "BSP-A2A over BSP-PS");
  CHECK_THAT(*rows.real(plain, "ratio"), WithinRel(2.0, 1e-9));
  REQUIRE(rows.real(plain, "ratio_low"));
  CHECK(rows.text(plain, "order") == "AGREES");
  CHECK(rows.text(row.at("resnet18 4 wfbp-ps wfbp-a2a"), "order") == "UNCLEAR");
  // Said to be weak, and the fastest of all here.
  const auto weak = row.at("resnet18 4 bsp-a2a bytescheduler-a2a");
  CHECK(rows.text(weak, "claim") == "ByteScheduler-A2A weak");
  CHECK(rows.text(weak, "order") == "DIFFERS");
  // Three workers behind a server are another task; dear is none of the survey's.
  CHECK_FALSE(row.contains("resnet18 3 bsp-a2a bsp-ps"));
  CHECK(std::none_of(row.begin(), row.end(),
                     [](const auto& one) { return one.first.find("dear") != std::string::npos; }));
  // Intensity is published of the survey's own models.
  CHECK_FALSE(row.contains("resnet18 4 mg-wfbp bsp-a2a"));
  const auto merged = row.at("bert-base 4 mg-wfbp bsp-a2a");
  CHECK(rows.text(merged, "claim") == "MG-WFBP at low intensity");
  CHECK(rows.text(merged, "order") == "AGREES");
  CHECK(rows.text(merged, "note").empty());
  CHECK_THAT(rows.text(row.at("bert-base 8 mg-wfbp wfbp-a2a"), "note"),
             ContainsSubstring("published exception: BERT-Base at 8 workers"));
}

TEST_CASE("training steps are ranked by library beside the study's whole trainings",
          "[C-12][C-13]") {
  // The study: NCCL 186 s, MPI 384 s, Gloo 650 s.
  const TrainedRun run({trained("bsp-a2a", "nccl", 4, 50'000),
                        trained("bsp-a2a", "gloo", 4, 200'000),
                        trained("bsp-a2a", "mpich", 4, 100'000)});
  const Table table = run.query("rankings");
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.text(0, "collective") == "training");
  CHECK(rows.text(0, "algorithm") == "bsp-a2a");
  CHECK(rows.text(0, "published_in") == "whole training of resnet18");
  CHECK_THAT(rows.text(0, "published"), ContainsSubstring("nccl 186 s"));
  CHECK(rows.text(0, "ranking") == "AGREES");
  // Gloo takes twice MPI's time here; MPI twice NCCL's, which is nearer to the published 2.06.
  CHECK_THAT(*rows.real(0, "deviation"), WithinRel(2 / (650.0 / 384), 1e-6));
  CHECK(rows.text(0, "deviation_of") == "gloo / mpich");
  // Another model than the study's is ranked, too: whose training was published stands beside it.
  auto other_model = trained("bsp-a2a", "gloo", 4, 100'000);
  other_model.model = "cnn";
  auto beside = trained("bsp-a2a", "mpich", 4, 200'000);
  beside.model = "cnn";
  const TrainedRun unlike({other_model, beside});
  const Table ranked = unlike.query("rankings");
  REQUIRE(ranked.rows.size() == 1);
  const TableView cnn(ranked);
  CHECK_THAT(cnn.text(0, "cell_knobs"), ContainsSubstring("\"model\":\"cnn\""));
  CHECK(cnn.text(0, "published_in") == "whole training of resnet18");
  CHECK(cnn.text(0, "ranking") == "DIFFERS");
  CHECK(cnn.text(0, "surely_other") == "gloo before mpich");
}

TEST_CASE("a payload says how much travels, when, and what a survey says of it over such links",
          "[D-89][D-100][F-10]") {
  const auto coded = [](const char* method, const char* settings, const char* environment) {
    auto one = trained(method, "gloo", 4, 50'000, environment);
    one.extra = settings;
    one.regime_json = R"({"ingredients":{"intra_link":"shm"}})";
    return one;
  };
  const TrainedRun run(
      {coded("bsp-a2a", "", "bare-metal"),
       coded("bsp-a2a", R"(,"compression":"topk")", "bare-metal"),
       coded("bsp-a2a", R"(,"synchronisation":"local","local_steps":"4","compression":"bf16")",
             "bare-metal"),
       coded("bsp-ps", R"(,"synchronisation":"asp","compression":"powersgd")", "bare-metal"),
       coded("wfbp-a2a", R"(,"compression":"topk","density":"0.001")", "bare-metal"),
       coded("bsp-a2a", R"(,"compression":"onebit")", "bare-metal"),
       coded("wfbp-a2a", R"(,"compression":"onebit","error_feedback":"off")", "bare-metal"),
       coded("bsp-a2a", R"(,"compression":"qsgd","bits":"2","error_feedback":"on")",
             "bare-metal")});
  const Table table = run.query("payloads");
  const TableView rows(table);
  REQUIRE(rows.size() == 8);
  std::map<std::string, std::size_t> row;
  for (std::size_t i = 0; i < rows.size(); ++i)
    row[(rows.text(i, "method") == "wfbp-a2a" ? "wfbp " : "") + rows.text(i, "compression")] = i;
  const std::size_t plain = row.at("none");
  CHECK(rows.integer(plain, "nominal_bytes") == 4 * 11'173'962);
  CHECK(rows.integer(plain, "effective_bytes") == 4 * 11'173'962);
  CHECK(rows.text(plain, "fires") == "every step");
  CHECK(rows.integer(plain, "tier") == 1);
  CHECK(rows.text(plain, "plausible") == "optimal");
  CHECK(rows.text(plain, "note").empty());
  CHECK(rows.real(plain, "c2c_effective") == rows.real(plain, "c2c_predicted"));
  const std::size_t sparse = row.at("topk");
  CHECK(rows.integer(sparse, "effective_bytes") == 8 * 111'740);
  CHECK_THAT(*rows.real(sparse, "c2c_effective") / *rows.real(sparse, "c2c_predicted"),
             WithinRel(0.04, 1e-3));
  // The survey speaks of a thousandth of the values, and of one bit with error feedback.
  CHECK(rows.text(sparse, "plausible").empty());
  const std::size_t sparser = row.at("wfbp topk");
  CHECK(rows.text(sparser, "plausible") == "wasted");
  CHECK_THAT(rows.text(sparser, "note"), ContainsSubstring("none-fp32 optimal"));
  CHECK(rows.text(row.at("onebit"), "plausible") == "wasted");
  CHECK(rows.text(row.at("wfbp onebit"), "plausible").empty());
  CHECK(rows.text(row.at("qsgd"), "plausible").empty());
  CHECK(rows.text(row.at("bf16"), "fires") == "every round");
  CHECK(rows.real(row.at("bf16"), "exchanges") == 0.25);
  const std::size_t factors = row.at("powersgd");
  CHECK(rows.text(factors, "fires") == "push and pull");
  CHECK_FALSE(rows.real(factors, "c2c_effective"));
  CHECK(rows.text(factors, "plausible").empty());
}

TEST_CASE("payloads are told apart by how workers wait, as all other queries do", "[D-89][d-34]") {
  const auto waiting = [](const char* method, const char* settings) {
    auto one = trained(method, "gloo", 4, 50'000, "bare-metal");
    one.extra = settings;
    return one;
  };
  const TrainedRun run(
      {waiting("bsp-a2a", ""), waiting("d-psgd", R"(,"synchronisation":"local","local_steps":"2")"),
       waiting("bsp-a2a", R"(,"switch_to":"local","local_steps":"2","epochs":"2")"),
       waiting("bsp-ps", R"(,"synchronisation":"asp","group_size":"2")")});
  const auto words = [&](const char* query) {
    const Table table = run.query(query);
    const TableView rows(table);
    std::multiset<std::string> found;
    for (std::size_t i = 0; i < rows.size(); ++i) found.insert(rows.text(i, "synchronisation"));
    return found;
  };
  CHECK(words("payloads") ==
        std::multiset<std::string>{"bsp", "gossip local", "bsp, then local", "grouped asp"});
  CHECK(words("payloads") == words("training"));
}
