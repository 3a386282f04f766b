#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <optional>
#include <set>

#include "reports/model/published.hpp"
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
  one.figures.predicted_us = step_us;
  one.backend = backend;
  one.environment = environment;
  return one;
}

/// Rows of query published by their quantity.
class PublishedRows {
 public:
  explicit PublishedRows(Table table) : table_(std::move(table)), rows_(table_) {
    for (std::size_t i = 0; i < rows_.size(); ++i) row_[rows_.text(i, "quantity")] = i;
  }
  [[nodiscard]] std::optional<double> real(const std::string& quantity, const char* column) const {
    return rows_.real(row_.at(quantity), column);
  }
  [[nodiscard]] std::string text(const std::string& quantity, const char* column) const {
    return rows_.text(row_.at(quantity), column);
  }
  [[nodiscard]] bool measured(const std::string& quantity) const {
    return real(quantity, "measured").has_value();
  }
  [[nodiscard]] const TableView& all() const { return rows_; }

 private:
  Table table_;
  TableView rows_;
  std::map<std::string, std::size_t> row_;
};

/// Where an operation is called, and what it takes at 1 KiB and, there ten times as long, 4 MiB.
struct Called {
  const char* environment;
  const char* backend;
  double time_us;
};

PublishedRows published_of(const char* collective, const char* architecture,
                           const std::vector<Called>& places) {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  std::vector<std::string> names;
  for (const Called& place : places)
    names.push_back(std::string(place.environment) + " " + place.backend);
  auto plan = make_plan("run-1", names, {collective}, {1024, 4 << 20});
  for (std::size_t i = 0; i < places.size(); ++i) {
    plan.groups[i].environment = places[i].environment;
    plan.groups[i].backend = places[i].backend;
    plan.groups[i].architecture = architecture;
  }
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < 3; ++block)
    for (std::size_t i = 0; i < places.size(); ++i)
      store_launch(store, plan, plan.groups[i], block, [&](const CellInfo& cell, int, int) {
        return places[i].time_us * (cell.size_bytes > 1024 ? 10 : 1) * (1 + 0.01 * block);
      });
  store.end_run("run-1", "complete");
  return PublishedRows(named_query(Reader(folder.file("a.sqlite")), "published", {}));
}

}  // namespace

TEST_CASE("an environment's and a library's published factors stand beside those of the run",
          "[C-12][C-13][G-25]") {
  const PublishedRows rows = published_of("allreduce", "ring",
                                          {{"bare-metal", "nccl", 10},
                                           {"cross-docker", "nccl", 30},
                                           {"bare-metal", "mpich", 15},
                                           {"singularity", "mpich", 12},
                                           {"bare-metal", "openmpi", 13},
                                           {"bare-metal", "gloo", 40}});
  const char* apart = "allreduce by NCCL, cross-docker over bare metal";
  CHECK(rows.text(apart, "study") == "containers and libraries");
  CHECK(rows.real(apart, "published") == 0.9628);
  CHECK_THAT(*rows.real(apart, "measured"), WithinRel(3.0, 1e-9));
  CHECK_THAT(*rows.real(apart, "deviation"), WithinRel(3 / 0.9628, 1e-9));
  CHECK(rows.text(apart, "here") == "nccl, library, 4 MiB, 2 ranks");
  // The same call is what was published of calls in a training, too.
  CHECK(rows.measured("allreduce by NCCL while it trains, cross-docker over bare metal"));
  CHECK_THAT(*rows.real("allreduce by MPICH, singularity over bare metal", "measured"),
             WithinRel(0.8, 1e-9));
  CHECK_THAT(*rows.real("allreduce, Open MPI over NCCL", "measured"), WithinRel(1.3, 1e-9));
  CHECK_THAT(*rows.real("allreduce, MPICH over NCCL", "measured"), WithinRel(1.5, 1e-9));
  CHECK_FALSE(rows.measured("allreduce, CUDA-aware MPI over NCCL"));
  // Of the libraries that a study calls MPI the faster one stands for it.
  const char* family = "allreduce while it trains, MPI over NCCL";
  CHECK_THAT(*rows.real(family, "measured"), WithinRel(1.3, 1e-9));
  CHECK(rows.text(family, "here") == "openmpi over nccl, 4 MiB, 2 ranks");
  CHECK_THAT(
      *rows.real("allreduce by MPICH, percent of copies between host and device", "measured"),
      WithinRel(25.0, 1e-9));
  // The furthest from what was published comes first, what the run has nothing of later.
  CHECK(rows.all().text(0, "quantity") == family);
  CHECK_FALSE(rows.all().real(rows.all().size() - 1, "measured"));
}

TEST_CASE("a server's operations are other work than a ring's", "[C-14][G-25]") {
  const std::vector<Called> places{{"bare-metal", "cuda-aware-mpi", 20},
                                   {"bare-metal", "nccl", 32},
                                   {"cross-docker", "nccl", 64}};
  const char* factor = "gather, CUDA-aware MPI over NCCL";
  CHECK_THAT(*published_of("gather", "ps", places).real(factor, "measured"),
             WithinRel(0.625, 1e-9));
  CHECK_FALSE(published_of("gather", "ring", places).measured(factor));
  const char* broadcast = "broadcast by NCCL, cross-docker over bare metal";
  CHECK_THAT(*published_of("broadcast", "ps", places).real(broadcast, "measured"),
             WithinRel(2.0, 1e-9));
  CHECK_FALSE(published_of("broadcast", "ring", places).measured(broadcast));
}

TEST_CASE("trainings are compared by the time of equal samples, as they were published",
          "[D-10][D-11][C-13][E-165]") {
  // Four ranks: three workers and a server, or four workers.
  TrainedCase staged = trained("wfbp-ps", "nccl", 4, 90'000);
  staged.figures.details["carried_by"] = "Gloo 0.5.0";
  const TrainedRun run(
      {trained("bsp-ps", "nccl", 4, 100'000), staged, trained("bsp-a2a", "nccl", 4, 60'000),
       trained("bsp-a2a", "nccl", 4, 66'000, "cross-docker"),
       trained("bsp-a2a", "gloo", 4, 120'000), trained("bsp-a2a", "openmpi", 4, 240'000)});
  const PublishedRows rows(run.query("published"));
  const char* server = "training by NCCL, server over ring at equal samples and ranks, bare-metal";
  CHECK(rows.real(server, "published") == 2.704);
  CHECK_THAT(*rows.real(server, "measured"), WithinRel(90.0 / 60 * 4 / 3, 1e-9));
  CHECK(rows.text(server, "here") ==
        "nccl, wfbp-ps, resnet18, batch 32, 3 workers over bsp-a2a, resnet18, batch 32, 4 workers");
  CHECK_FALSE(
      rows.measured("training by NCCL, server over ring at equal samples and ranks, cross-docker"));
  // One worker less takes more steps for as many samples: how many were measured does not matter.
  TrainedCase longer = trained("bsp-ps", "nccl", 2, 100'000);
  longer.extra = R"(,"steps":"400")";
  TrainedCase shorter = trained("bsp-a2a", "nccl", 2, 60'000);
  shorter.extra = R"(,"steps":"200")";
  const TrainedRun unlike({longer, shorter});
  CHECK_THAT(*PublishedRows(unlike.query("published")).real(server, "measured"),
             WithinRel(100.0 / 60 * 2, 1e-9));
  CHECK_THAT(*rows.real("training in a ring by NCCL, cross-docker over bare metal", "measured"),
             WithinRel(1.1, 1e-9));
  CHECK_THAT(*rows.real("training in a ring, Gloo over NCCL", "measured"), WithinRel(2.0, 1e-9));
  CHECK_THAT(*rows.real("training in a ring, MPI over NCCL", "measured"), WithinRel(4.0, 1e-9));
  // How they compare here is told without a study, too.
  const Table chosen = run.query("architecture");
  const TableView architectures(chosen);
  REQUIRE(architectures.size() == 4);
  for (std::size_t i = 0; i < architectures.size(); ++i) {
    const bool both = architectures.text(i, "backend") == "nccl" &&
                      architectures.text(i, "environment") == "bare-metal";
    CHECK(architectures.text(i, "best_architecture") == "ring");
    CHECK(architectures.real(i, "other_measured").has_value() == both);
    if (both) CHECK_THAT(*architectures.real(i, "other_measured"), WithinRel(0.5, 1e-9));
  }
  // NCCL's server moves gradients by another library: no setting of NCCL's acts on them.
  const Table steps = run.query("training");
  const TableView cells(steps);
  for (std::size_t i = 0; i < cells.size(); ++i)
    CHECK((cells.text(i, "carried_by") == "Gloo 0.5.0") == (cells.text(i, "method") == "wfbp-ps"));
}

TEST_CASE("training that loses something is compared with no published training", "[G-25]") {
  TrainedCase coded = trained("bsp-ps", "nccl", 4, 10'000);
  coded.extra = R"(,"compression":"topk")";
  const TrainedRun run({coded, trained("bsp-a2a", "nccl", 4, 60'000)});
  CHECK_FALSE(
      PublishedRows(run.query("published"))
          .measured("training by NCCL, server over ring at equal samples and ranks, bare-metal"));
}

TEST_CASE("speed-ups stand beside the survey's of the same model, batch, method and workers",
          "[A-58][E-170][E-189]") {
  const auto model = [](const char* method, const char* name, int ranks, int batch) {
    TrainedCase one{method, name, batch, ranks, 100, usual_figures()};
    one.figures.single_us = 80;
    return one;
  };
  const TrainedRun run({model("mg-wfbp", "bert-base", 4, 64), model("wfbp-ps", "resnet50", 5, 64),
                        model("mg-wfbp", "resnet50", 4, 32), model("mg-wfbp", "mlp", 4, 64)});
  const PublishedRows rows(run.query("published"));
  const auto speedup = [](const char* what) {
    return std::string(what) + " workers over 100Gb-IB-RDMA: speed-up over one";
  };
  const std::string merged = speedup("BERT-Base, MG-WFBP, 4");
  CHECK(rows.real(merged, "published") == 3.1);
  CHECK_THAT(*rows.real(merged, "measured"), WithinRel(3.2 / 1.01, 1e-9));
  CHECK_THAT(*rows.real(merged, "deviation"), WithinRel(3.2 / 1.01 / 3.1, 1e-9));
  CHECK(rows.text(merged, "here") == "bare-metal, openmpi");
  // Four workers behind a server are four workers; another batch is another workload.
  CHECK(rows.measured(speedup("ResNet-50, WFBP-PS, 4")));
  CHECK_FALSE(rows.measured(speedup("ResNet-50, MG-WFBP, 4")));
  CHECK(
      rows.real("BERT-Large, BSP-A2A, 32 workers over 10GbE-TCP: speed-up over one, middle of one "
                "range for all methods",
                "published") == 2.25);
  CHECK(rows.real("ResNet-50, WFBP-PS, 32 workers over 100GbE-TCP: speed-up over one, probably "
                  "measured over the slower link",
                  "published") == 27.4);
}

TEST_CASE("an accuracy that a synchronisation costs stands beside the published loss", "[D-38]") {
  const auto reached = [](const char* settings, double accuracy) {
    TrainedCase one{"bsp-a2a", "mlp", 8, 2, 100, usual_figures()};
    one.extra = std::string(R"(,"epochs":"4")") + settings;
    return reaching(one, 1000, 20, 100, accuracy);
  };
  const TrainedRun run(
      {reached("", 0.62), reached(R"(,"synchronisation":"local","local_steps":"8")", 0.6)});
  const PublishedRows rows(run.query("published"));
  const char* worst = "Local-SGD, change of the accuracy at 32 workers in points, at worst";
  CHECK(rows.text(worst, "study") == "four axes of training");
  CHECK(rows.real(worst, "published") == -3.0);
  CHECK_THAT(*rows.real(worst, "measured"), WithinRel(-2.0, 1e-9));
  CHECK_THAT(*rows.real(worst, "deviation"), WithinRel(2.0 / 3, 1e-9));
  CHECK_FALSE(rows.measured("SSP, change of the accuracy at 32 workers in points, at least"));
}

TEST_CASE("whatever the studies publish is listed, also where nothing was measured",
          "[B-33][B-42][D-37][D-54][D-99][F-08][F-09][F-21][F-22][G-22]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "published", {});
  const TableView rows(table);
  std::map<std::string, std::string> published;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    published[rows.text(i, "study") + ": " + rows.text(i, "quantity")] +=
        rows.text(i, "published") + "\n";
    CHECK_FALSE(rows.real(i, "measured"));
  }
  const auto lists = [&](const char* quantity, const std::vector<const char*>& texts) {
    INFO(quantity);
    for (const char* text : texts) CHECK_THAT(published[quantity], ContainsSubstring(text));
  };
  lists("six axes of communication: interconnect",
        {"\"PCIe v7\"", "242.0", "\"NVLink v4\"", "900.0", "57.6", "GPUDirect-RDMA"});
  lists("six axes of communication: llm_sync", {"100000000000", "1600.0", "0.22"});
  lists("six axes of communication: llm_other",
        {"\"layer_slicing_over_tensor_parallel_volume_reduction\":300"});
  lists("six axes of communication: sync_by_tier", {"\"mandatory\"", "\"infeasible\""});
  lists("seven training methods: bert_large_hardware", {"1.2", "3.82", "V100 32GB"});
  lists("containers and libraries: testbed", {"RTX 3080", "Gen3 x16"});
  lists("containers and libraries: nccl_cross_docker_training", {"89", "54", "131"});
  lists("four axes of training: arch_sync_profile", {"\"PS\"", "\"gossip\"", "\"unstable\""});
  lists("four axes of training: scheduling_tradeoff", {"critical path aware", "small tensors"});
  lists("four axes of training: convergence", {"1/sqrt(T)", "CHOCO-SGD"});
}

TEST_CASE("what query published compares is derived of the studies' own tables", "[G-25]") {
  const auto& figures = published_figures();
  const auto time = [&](const char* architecture, const char* backend, const char* place) {
    for (const auto& row : figures["s000"]["training_time"]["rows"])
      if (row["architecture"] == architecture && row["backend"] == backend)
        return row[place].get<double>();
    return 0.0;
  };
  for (const auto& row : figures["compared"]["s000"]) {
    const std::string kind = row["kind"];
    const std::string library = row["library"];
    const std::string architecture = row["architecture"];
    if (row["operation"] != "training") continue;
    INFO(row.dump());
    const std::string place = row["subject"] == "cross-docker" ? "cross_docker" : "bare_metal";
    const double other = kind == "environment"
                             ? time(architecture.c_str(), library.c_str(), "bare_metal")
                         : kind == "library" ? time(architecture.c_str(), "nccl", "bare_metal")
                                             : time("ring", library.c_str(), place.c_str());
    CHECK_THAT(row["value"].get<double>(),
               WithinRel(time(architecture.c_str(), library.c_str(), place.c_str()) / other, 1e-3));
  }
}

TEST_CASE("a payload says how much travels, when, and what a survey says of it over such links",
          "[D-89][D-100][F-09][F-10]") {
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
  CHECK(rows.text(plain, "waiting_plausible") == "optimal");
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
  CHECK(rows.text(row.at("bf16"), "waiting_plausible") == "barely");
  CHECK(rows.real(row.at("bf16"), "exchanges") == 0.25);
  const std::size_t factors = row.at("powersgd");
  CHECK(rows.text(factors, "fires") == "push and pull");
  CHECK_FALSE(rows.real(factors, "c2c_effective"));
  CHECK(rows.text(factors, "plausible").empty());
  CHECK(rows.text(factors, "waiting_plausible") == "unused");
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
       waiting("bsp-ps", R"(,"synchronisation":"asp","group_size":"2","elastic":"0.5")")});
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
