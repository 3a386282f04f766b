#include "reports/model/waits.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <random>

#include "core/vocabulary/text.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/answer.hpp"
#include "reports/render/run_page.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int kIterations = 20;
constexpr const char* kBusy = R"x(["others used the CPUs meanwhile: 80 % (limit 25 %)"])x";

/// Launches whose iterations take what they take on a quiet machine and what their ranks wait for
/// cores, one after the other.
struct BusyRun {
  /// Microseconds on a quiet machine, by environment.
  std::map<std::string, double> quiet_us;
  /// What a rank waits in an iteration of a block, by environment; nullptr: the kernel did not
  /// tell.
  std::function<double(const std::string&, int block, int rank, int iteration)> waits;
  const char* flags = kBusy;
  int blocks = 4;

  void store_into(const std::string& path, const std::string& run = "run-1") const {
    std::vector<std::string> environments;
    for (const auto& [name, time] : quiet_us) environments.push_back(name);
    Store store(path);
    const auto plan = make_plan(run, environments, {"allreduce"}, {1024});
    store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < blocks; ++block)
      for (const auto& group : plan.groups) store_launch_of(store, plan, group, block);
    store.end_run(run, "complete");
  }

 private:
  void store_launch_of(Store& store, const SyntheticPlan& plan, const GroupInfo& group,
                       int block) const {
    const auto waited = [&](int rank, int iteration) {
      return waits ? waits(group.environment, block, rank, iteration) : 0.0;
    };
    auto start = make_start(group.id, block);
    start.uuid = plan.run.id + start.uuid;
    const auto row = store.begin_launch(plan.run.id, start);
    auto files = make_records(
        plan.cells, group.id, start.uuid, 2, kIterations, [&](const CellInfo&, int, int i) {
          const double noise = 0.002 * ((block * 7 + i * 3) % 5);
          return quiet_us.at(group.environment) * (1 + noise) + waited(0, i) + waited(1, i);
        });
    for (int rank = 0; rank < 2 && waits; ++rank)
      for (auto& record : files[static_cast<std::size_t>(rank)].records)
        if (auto* cell = std::get_if<CellRecord>(&record))
          for (int i = 0; i < kIterations; ++i) cell->measured.waited_us.push_back(waited(rank, i));
    for (auto& file : files)
      for (auto& record : file.records)
        if (auto* facts = std::get_if<FactsRecord>(&record))
          facts->facts = {{"process", {{"nice", -10}, {"autogroup", "/autogroup-7 nice 0"}}},
                          {"cgroup", {{"cpu_weight", 1.0}}}};
    auto end = make_end();
    end.noise_flags_json = flags;
    store.finish_launch(row, end, files);
  }
};

/// What `query overhead` says of each environment but bare metal: its verdict and its note.
std::map<std::string, std::pair<std::string, std::string>> said_of(const BusyRun& run) {
  const ScratchFolder folder;
  run.store_into(folder.file("a.sqlite"));
  const Table table = named_query(Reader(folder.file("a.sqlite")), "overhead", QueryScope{});
  const TableView rows(table);
  std::map<std::string, std::pair<std::string, std::string>> said;
  for (std::size_t i = 0; i < rows.size(); ++i)
    said[rows.text(i, "environment")] = {rows.text(i, "verdict"), rows.text(i, "note")};
  return said;
}

/// Every iteration waits; ranks in containers far more.
double shared_cores(const std::string& environment, int, int rank, int iteration) {
  const double own = environment == "bare-metal" ? 7 : environment == "cross-docker" ? 30 : 120;
  return own + 0.1 * ((rank + iteration) % 3);
}

}  // namespace

TEST_CASE("a difference that waits for cores explain is not judged, with its cause", "[G-04]") {
  BusyRun run{{{"bare-metal", 100}, {"single-docker", 100}}, shared_cores};
  const auto [verdict, note] = said_of(run).at("single-docker");
  CHECK(verdict == "NOT JUDGED");
  CHECK(note == "ranks waited for a core 6 % of the time in bare-metal, 35 % in single-docker");

  SECTION("on a quiet machine ranks wait for their own peers alone, and all is as ever") {
    run.flags = "[]";
    CHECK(said_of(run).at("single-docker") == std::pair<std::string, std::string>{"SLOWER", ""});
  }
  SECTION("where the kernel did not tell of waits, too") {
    run.waits = nullptr;
    run.quiet_us["single-docker"] = 250;
    CHECK(said_of(run).at("single-docker").first == "SLOWER");
  }
  SECTION("that ranks waited more on bare metal makes no environment the faster one") {
    run.waits = [](const std::string& environment, int block, int rank, int iteration) {
      return shared_cores(environment == "bare-metal" ? "single-docker" : "bare-metal", block, rank,
                          iteration);
    };
    CHECK(said_of(run).at("single-docker").first == "NOT JUDGED");
  }
}

TEST_CASE("a difference that waits for cores do not explain is said as a lower bound", "[G-04]") {
  const auto [verdict, note] =
      said_of({{{"bare-metal", 100}, {"cross-docker", 500}}, shared_cores}).at("cross-docker");
  CHECK(verdict == "SLOWER");
  // 500 over the 114 to which waits on bare metal made the 100.
  CHECK_THAT(note, ContainsSubstring("at least 4.3") &&
                       ContainsSubstring(": ranks waited for a core 6 % of the time in bare-metal, "
                                         "5 % in cross-docker"));
}

TEST_CASE("a few long waits change neither a median nor what is said of it", "[G-04]") {
  BusyRun run{{{"bare-metal", 100}, {"cross-docker", 150}, {"single-docker", 100}},
              [](const std::string&, int block, int, int iteration) {
                return iteration % 7 == block ? 4000.0 : 0.0;
              }};
  const auto busy = said_of(run);
  CHECK(busy.at("single-docker").first == "SAME");
  CHECK(busy.at("cross-docker").first == "SLOWER");
  run.flags = "[]";
  CHECK(said_of(run).at("single-docker").first == "SAME");
}

TEST_CASE("a launch that did nothing but wait says nothing, the others do", "[G-04]") {
  BusyRun one{{{"bare-metal", 100}, {"cross-docker", 300}},
              [](const std::string& environment, int block, int, int) {
                return environment == "bare-metal" && block == 1 ? 20000.0 : 0.0;
              },
              kBusy,
              5};
  CHECK(said_of(one).at("cross-docker").first == "SLOWER");
  one.blocks = 3;
  CHECK(said_of(one).at("cross-docker").first != "SLOWER");
  CHECK(said_of({{{"bare-metal", 100}, {"single-docker", 100}},
                 [](const std::string& environment, int, int, int) {
                   return environment == "bare-metal" ? 0.0 : 10000.0;
                 }})
            .at("single-docker")
            .first == "NOT JUDGED");
}

TEST_CASE("twenty runs beside loops say of no environment that it differs when it does not",
          "[G-04]") {
  int said = 0;
  int factors = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    std::exponential_distribution<double> wait(1);
    // In half of the runs the containers' share is smaller than that of bare metal.
    const double containers = seed % 2 == 0 ? 300 : 40;
    BusyRun run{{{"bare-metal", 100}, {"cross-docker", 900}, {"single-docker", 100}},
                [&](const std::string& environment, int, int, int) {
                  return (environment == "bare-metal" ? 20 : containers) * wait(random);
                }};
    // Each wait is asked for twice: by the times and by what is told of them.
    std::map<std::string, double> drawn;
    run.waits = [&, draw = run.waits](const std::string& environment, int block, int rank, int i) {
      auto& value = drawn[environment + std::to_string(block * 1000 + rank * 100 + i)];
      if (value == 0) value = draw(environment, block, rank, i);
      return value;
    };
    const auto verdicts = said_of(run);
    const auto& same = verdicts.at("single-docker").first;
    said += same == "SLOWER" || same == "FASTER" ? 1 : 0;
    factors += verdicts.at("cross-docker").first == "SLOWER" ? 1 : 0;
  }
  CHECK(said == 0);
  CHECK(factors == 20);
}

TEST_CASE("what ranks waited is told before the figures, with what to do", "[G-04]") {
  const ScratchFolder folder;
  BusyRun{{{"bare-metal", 100}, {"cross-docker", 500}, {"single-docker", 100}}, shared_cores}
      .store_into(folder.file("a.sqlite"));
  const Reader reader(folder.file("a.sqlite"));
  const auto lines = split(render_answer(reader, "last", "", 100), '\n');
  std::string first;
  for (std::size_t i = 1; i < 5; ++i) first += std::string(trim(lines[i])) + " ";
  CHECK_THAT(first, ContainsSubstring("busy machine: ranks waited for a core 6 % of the time in "
                                      "bare-metal, 35 % in single-docker, 5 % in cross-docker") &&
                        ContainsSubstring("1 of 2 ratios NOT JUDGED, as that may explain it") &&
                        ContainsSubstring("begin with --wait-quiet 10m") &&
                        ContainsSubstring("surely all the same: cross-docker by at least 4.3"));
  CHECK_THAT(first, !ContainsSubstring(" ..."));
  CHECK_THAT(render_run(reader, "last", OutputFormat::text, 0),
             ContainsSubstring("ranks waited for a core 6 % of the time in bare-metal"));

  const Table noise = named_query(reader, "noise", QueryScope{});
  const TableView rows(noise);
  REQUIRE(rows.size() == 12);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows.text(i, "nice") == "-10");
    CHECK(rows.text(i, "group_weight") == "1.0");
    CHECK(rows.text(i, "autogroup") == "/autogroup-7 nice 0");
    CHECK(rows.real(i, "waited").value() > 0.04);
    CHECK(rows.real(i, "waited").value() == rows.real(i, "waited_most").value());
  }
}

TEST_CASE("on a quiet machine nothing is said of waits", "[G-04]") {
  const ScratchFolder folder;
  BusyRun run{{{"bare-metal", 100}, {"single-docker", 100}}, shared_cores};
  run.flags = "[]";
  run.store_into(folder.file("a.sqlite"));
  CHECK_THAT(render_answer(Reader(folder.file("a.sqlite")), "last", "", 100),
             !ContainsSubstring("busy machine"));
}
