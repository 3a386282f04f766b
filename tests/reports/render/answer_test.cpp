#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/text.hpp"
#include "reports/render/answer.hpp"
#include "reports/render/render.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Many environments, each slower than the one before.
/// @param regime of all but bare metal
/// @param of_launches what a run is to have that goes on; 0 = it is over
std::string answer_of(const std::vector<std::string>& environments, const std::string& page = "",
                      const std::string& regime = "{}", int launches = 4, std::size_t columns = 100,
                      int of_launches = 0) {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", environments, {"allreduce", "broadcast"}, {1024, 1 << 20});
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < launches; ++block)
    for (std::size_t g = 0; g < plan.groups.size(); ++g) {
      const auto start = make_start(plan.groups[g].id, block);
      const auto row = store.begin_launch("run-1", start);
      auto end = make_end();
      if (plan.groups[g].environment != "bare-metal") end.regime_json = regime;
      store.finish_launch(row, end,
                          make_records(plan.cells, plan.groups[g].id, start.uuid,
                                       plan.groups[g].ranks, 20, [&](const CellInfo&, int, int) {
                                         return (10.0 + 0.01 * block) *
                                                (1 + static_cast<double>(g));
                                       }));
    }
  const Reader reader(folder.file("a.sqlite"));
  if (of_launches > 0) return render_first_answer(reader, "last", launches, of_launches, columns);
  store.end_run("run-1", "complete");
  return render_answer(reader, "last", page, columns);
}

}  // namespace

TEST_CASE("the answer of a run fits a screen and says what environments cost") {
  const auto text = answer_of({"bare-metal", "single-docker"}, "results/r.html");
  CHECK_THAT(text, ContainsSubstring("single-docker  openmpi") && ContainsSubstring("2.00") &&
                       ContainsSubstring("4 of 4") && !ContainsSubstring(" .. "));
  CHECK_THAT(text, ContainsSubstring("worst: 2.00") && !ContainsSubstring("best: "));
  CHECK_THAT(text, ContainsSubstring("page: results/r.html") &&
                       ContainsSubstring("next: dynamiccl query overhead --run run-1 --db "));
}

TEST_CASE("a first answer of two launches has each environment's factor, no interval, no verdict") {
  const auto text = answer_of({"bare-metal", "single-docker"}, "", "{}", 2, 100, 5);
  INFO(text);
  CHECK(text.starts_with("after 2 of 5 launches of each group: medians, without intervals\n"));
  CHECK_THAT(text, ContainsSubstring("single-docker  openmpi") && ContainsSubstring("2.00"));
  CHECK_THAT(text, ContainsSubstring("not judged") && !ContainsSubstring("[") &&
                       !ContainsSubstring("of 4") && !ContainsSubstring("next: "));
  CHECK(answer_of({"bare-metal"}, "", "{}", 0, 100, 5) ==
        "after 0 of 5 launches of each group: nothing was measured\n");
}

TEST_CASE("the answer has at most 30 lines of 100 columns, however many environments there are") {
  std::vector<std::string> environments{"bare-metal"};
  for (int i = 0; i < 12; ++i)
    environments.push_back("an-environment-with-a-name-that-is-rather-long-" + std::to_string(i));
  const auto lines = split(answer_of(environments), '\n');
  CHECK(lines.size() <= 31);  // the last one is empty
  for (const auto& line : lines) CHECK(line.size() <= 100);
}

TEST_CASE("the answer keeps to a narrower terminal, but for commands, which stay whole") {
  for (const std::size_t columns : {60, 80}) {
    const auto text =
        answer_of({"bare-metal", "single-docker", "cross-docker-one-hostid"}, "",
                  R"({"ingredients":{"library":"nccl-2.28","intra_link":"none"}})", 4, columns);
    INFO(text);
    CHECK_THAT(text, ContainsSubstring("2.00") && ContainsSubstring("4 of 4"));
    for (const auto& line : split(text, '\n'))
      if (line.find("dynamiccl ") == std::string::npos && !line.starts_with("  fix: "))
        CHECK(line.size() <= columns);
  }
}

TEST_CASE("of a run that measured nothing the answer has the reason whole and points to it") {
  const std::string reason =
      "2 ranks of this cell hold 48.0 GiB of gradients, weights, momentum, residuals and what is "
      "in flight between them at the same time, more than the 23.5 GiB that this machine has";
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  const auto answer = [&](std::size_t columns) {
    return render_answer(Reader(folder.file("a.sqlite")), "last", "", columns);
  };
  CHECK_THAT(answer(100), ContainsSubstring("next: dynamiccl query coverage --run run-1"));
  store.mark_unsupported("run-1", plan.groups[0].id, reason);
  store.end_run("run-1", "complete");
  CHECK_THAT(answer(100), ContainsSubstring("next: dynamiccl query failures --run run-1"));
  for (const std::size_t columns : {60, 80, 100}) {
    INFO(columns);
    std::string text = answer(columns);
    std::replace(text.begin(), text.end(), '\n', ' ');
    CHECK_THAT(text, ContainsSubstring("machine has"));
  }
}

TEST_CASE("a reason stands whole in the answer, however long it is") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal", "other"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  store_launch(store, plan, plan.groups[0], 0, [](const CellInfo&, int, int) { return 10.0; });
  std::string reason = "it takes";
  for (int i = 0; i < 40; ++i) reason += fmt::format(" {} GiB", i);
  store.mark_unsupported("run-1", plan.groups[1].id, reason);
  const auto answer = render_answer(Reader(folder.file("a.sqlite")), "last", "", 100);
  CHECK_THAT(answer, ContainsSubstring("39 GiB") && !ContainsSubstring("..."));
}

TEST_CASE("a run of one environment answers with times and compares its libraries") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  auto plan = make_plan("run-1", {"bare-metal", "other"}, {"allreduce"}, {1024, 1 << 20});
  // The same environment with a second library.
  plan.groups[1].environment = "bare-metal";
  plan.groups[1].profile_json = plan.groups[0].profile_json;
  plan.groups[1].backend = "gloo";
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < 4; ++block)
    for (std::size_t g = 0; g < 2; ++g)
      store_launch(store, plan, plan.groups[g], block, [&](const CellInfo&, int, int) {
        return (10.0 + 0.01 * block) * (1 + static_cast<double>(g));
      });
  const auto answer = render_answer(Reader(folder.file("a.sqlite")), "last", "", 100);
  INFO(answer);
  CHECK_THAT(answer, ContainsSubstring("1 MiB") && ContainsSubstring("x fastest") &&
                         ContainsSubstring("2.00 [") && ContainsSubstring("SLOWER") &&
                         ContainsSubstring("openmpi") && ContainsSubstring("query latency"));
  for (const auto& line : split(answer, '\n')) CHECK(line.size() <= 100);
}

TEST_CASE("one launch of each environment judges none of them") {
  const auto text = answer_of({"bare-metal", "single-docker"}, "", "{}", 1);
  CHECK_THAT(text, ContainsSubstring("not judged") && !ContainsSubstring("0 of 4"));
}

TEST_CASE("no evidence cuts a cause's fix, which stands on a line of its own") {
  const std::string long_evidence(120, 'x');
  const auto regime = [&](const std::string& ingredients, const std::string& intra,
                          const std::string& copies = "") {
    return R"({"ingredients":)" + ingredients + R"(,"evidence":{"intra_link":")" + intra +
           R"(","single_copy":")" + copies + long_evidence + R"(","small_shm":")" + long_evidence +
           R"("}})";
  };
  const std::string nccl = R"({"library":"nccl-2.28","intra_link":"none"})";
  const std::vector<std::pair<std::string, std::string>> fix_of{
      {regime(R"({"library":"openmpi-4.1","intra_link":"none"})", "the ranks' /dev/shm differ"),
       "environment = \"single-docker\""},
      {regime(R"({"library":"mpich-4.0","intra_link":"none"})", "the ranks' /dev/shm differ"),
       "environment = \"cross-docker-pod\""},
      {regime(nccl, "the ranks' host names differ: NCCL takes them for different machines"),
       "environment = \"cross-docker-shared\" or \"cross-docker-one-host\""},
      {regime(nccl, "NCCL_P2P_DISABLE=1; NCCL_SHM_DISABLE=1"),
       "unset NCCL_P2P_DISABLE NCCL_SHM_DISABLE"},
      {regime(R"({"intra_link":"shm","single_copy":false})", ""),
       "dynamiccl doctor cross-docker --prove --cause cma-blocked"},
      {regime(R"({"library":"mpich-4.0","intra_link":"shm","single_copy":false})", "",
              "separate PID namespaces: "),
       "dynamiccl doctor cross-docker --prove --cause pid-apart"},
      {regime(R"({"library":"mpich-4.0","intra_link":"shm","single_copy":false})", "",
              "separate user namespaces"),
       "dynamiccl doctor cross-docker --prove --cause user-apart"},
      {regime(R"({"library":"mpich-4.0","intra_link":"shm","single_copy":false,"apart":["pid"]})",
              "", "separate PID namespaces: "),
       "dynamiccl doctor cross-docker --prove --cause pid-apart"},
      {regime(R"({"small_shm":true})", ""),
       "dynamiccl doctor cross-docker --prove --cause small-shm"},
      {regime(R"({"inter_tier":"shaped-1000Mbit/s"})", ""), "environment = \"cross-docker\""}};
  for (const auto& [found, fix] : fix_of) {
    const auto text = answer_of({"bare-metal", "cross-docker"}, "", found);
    CHECK_THAT(text, ContainsSubstring("why cross-docker: ") &&
                         ContainsSubstring("\n  fix: " + fix + "\n"));
    for (const auto& line : split(text, '\n')) CHECK(line.size() <= 100);
  }
  // Where no profile changes what the library does, none is named.
  for (const char* without :
       {R"({"library":"openmpi-4.1","intra_link":"shm","single_copy":false,"apart":["pid"]})",
        R"({"library":"mpich-4.0","intra_link":"shm","single_copy":false,"apart":["ipc","pid"]})"})
    CHECK_THAT(answer_of({"bare-metal", "cross-docker"}, "",
                         regime(without, "", "separate PID namespaces: ")),
               !ContainsSubstring("why cross-docker: "));
}

TEST_CASE("libraries of one environment get each its own fix of one cause") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  auto plan =
      make_plan("run-1", {"bare-metal", "apart", "apart-2", "apart-3"}, {"allreduce"}, {1024});
  const std::vector<std::string> libraries{"openmpi", "gloo", "mpich", "openmpi"};
  for (std::size_t g = 1; g < plan.groups.size(); ++g) {
    plan.groups[g].environment = "cross-docker";
    plan.groups[g].profile_json = plan.groups[1].profile_json;
    plan.groups[g].backend = libraries[g];
  }
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const auto start = make_start(plan.groups[g].id, 0);
    const auto row = store.begin_launch("run-1", start);
    auto end = make_end();
    if (g > 0)
      end.regime_json = R"({"ingredients":{"library":")" + libraries[g] +
                        R"(-1.0","intra_link":"none"},"evidence":{"intra_link":"apart"}})";
    end.regime_id = std::to_string(g);
    store.finish_launch(
        row, end,
        make_records(plan.cells, plan.groups[g].id, start.uuid, plan.groups[g].ranks, 20,
                     [](const CellInfo&, int, int) { return 10.0; }));
  }
  store.end_run("run-1", "complete");
  const auto text = render_answer(Reader(folder.file("a.sqlite")), "last", "", 100);
  CHECK_THAT(text, ContainsSubstring("why cross-docker: no memory shared between ranks (apart)\n"
                                     "  fix for mpich: environment = \"cross-docker-pod\"\n"
                                     "  fix for gloo, openmpi: environment = \"single-docker\"\n"));
}

TEST_CASE("the answer keeps to its lines with causes of every environment, too") {
  std::vector<std::string> environments{"bare-metal"};
  for (int i = 0; i < 12; ++i) environments.push_back("environment-" + std::to_string(i));
  const auto text = answer_of(environments, "results/r.html",
                              R"({"ingredients":{"library":"nccl-2.28","intra_link":"none"}})");
  CHECK_THAT(text, ContainsSubstring("  and 10 more: dynamiccl doctor\n") &&
                       ContainsSubstring(" more: query overhead\n"));
  CHECK(split(text, '\n').size() <= 31);  // the last one is empty
}

TEST_CASE("of a run with bare metal alone the answer has the times") {
  CHECK_THAT(answer_of({"bare-metal"}),
             ContainsSubstring("median [interval]") && !ContainsSubstring("x bare-metal"));
}

TEST_CASE("without bare metal the answer says so and points to the times") {
  const auto text = answer_of({"single-docker"});
  CHECK_THAT(text, ContainsSubstring("10.0 us [") && ContainsSubstring("dynamiccl query latency"));
}

TEST_CASE("a table wider than the terminal names regimes shortly and breaks its cells") {
  const std::string regime =
      "bare-metal / apart: ipc net pid user uts / shm+cma / tcp eth-virtual / no GPU / openmpi-4.1";
  const Table table{{"environment", "regime", "median_us", "reason"},
                    {{std::string("a"), regime, 1.5, std::string(90, 'x') + " " + "end"},
                     {std::string("b"), regime + "/2", 2.5, std::string("short")}}};
  const auto text = render_table(table, OutputFormat::text, {}, 60);
  for (const auto& line : split(text, '\n')) CHECK(line.size() <= 60);
  std::string legend;
  for (const auto& line : split(text.substr(text.find("regime r1: ")), '\n'))
    legend += (legend.empty() ? "" : " ") + std::string(trim(line));
  CHECK_THAT(legend, ContainsSubstring("regime r1: " + regime + " regime r2: " + regime + "/2"));
  CHECK(render_table(table, OutputFormat::text).find("regime r1") == std::string::npos);
}

namespace {

/// As wide as the longest line of the text that has no name to be copied.
std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  for (const auto& line : split(text, '\n'))
    if (!line.starts_with("regime r")) widest = std::max(widest, line.size());
  return widest;
}

}  // namespace

TEST_CASE("a table wider than the terminal has moments to the second, broken behind the day") {
  const Table table{{"started_utc", "reason"},
                    {{std::string("2026-11-27T08:36:25.191Z"), std::string("long enough")},
                     {std::string("2026-11-27T08:36:25.191"), std::string("cut")}}};
  CHECK_THAT(render_table(table, OutputFormat::text, {}, 36),
             ContainsSubstring("2026-11-27 08:36:25 ") && !ContainsSubstring("25.191Z"));
  const Table day{{"started_utc", "reason"},
                  {{std::string("2026-11-27T08:36:25.191Z"), std::string("long enough")}}};
  CHECK_THAT(render_table(day, OutputFormat::text, {}, 24),
             ContainsSubstring("2026-11-27   long") && ContainsSubstring("\n08:36:25\n"));
  for (const std::string& whole :
       {render_table(table, OutputFormat::text), render_table(table, OutputFormat::csv, {}, 36)})
    CHECK_THAT(whole, ContainsSubstring("2026-11-27T08:36:25.191Z"));
}

TEST_CASE("a table wider than the terminal has the beginnings of runs' ids, where they differ") {
  const std::string one = "1eb6dfb8-6296-4585-823d-d2558269c0ce";
  const std::string other = "37335652-6296-4585-823d-d2558269c0ce";
  const auto text_of = [](const std::string& a, const std::string& b, std::size_t width) {
    const Table table{{"run_id", "reason"},
                      {{a, std::string("long enough")}, {b, std::string("short")}}};
    return render_table(table, OutputFormat::text, {}, width);
  };
  CHECK(text_of(one, other, 40) ==
        "run_id    reason\n"
        "--------  -----------\n"
        "1eb6dfb8  long enough\n"
        "37335652  short\n");
  CHECK_THAT(text_of(one, other, 100), ContainsSubstring(one));
  CHECK_THAT(text_of(one, "1eb6dfb8-7777-4585-823d-d2558269c0ce", 40),
             ContainsSubstring("6296-") && ContainsSubstring("7777-"));
}

TEST_CASE("a narrow table breaks at words' ends") {
  const Table table{
      {"environment", "backend", "operation", "reason"},
      {{std::string("singularity"), std::string("cuda-aware-mpi"), std::string("reduce_scatter"),
        std::string("configuration unimplementable without acceleration")}}};
  const auto text = render_table(table, OutputFormat::text, {}, 60);
  INFO(text);
  CHECK(widest_line(text) <= 60);
  for (const char* word :
       {"singularity", "aware-", "reduce_", "scatter", "configuration", "unimplementable"})
    CHECK_THAT(text, ContainsSubstring(word));
}

TEST_CASE("headings of numbers break before the table does") {
  const Table table{{"launches_of_the_first_side", "launches_of_the_other_side"},
                    {{std::int64_t{1}, std::int64_t{2}}}};
  const auto columns = parse_columns(
      "launches_of_the_first_side | integer | launches of the first side\n"
      "launches_of_the_other_side | integer | launches of the other side",
      "test");
  const auto text = render_table(table, OutputFormat::text, columns, 30);
  INFO(text);
  CHECK(widest_line(text) <= 30);
  CHECK(text.find("row") == std::string::npos);
}

TEST_CASE("columns that a line has no room for stand below the row's first ones") {
  Table table;
  std::vector<Value> row;
  for (int i = 0; i < 12; ++i) {
    table.columns.push_back("figure" + std::to_string(i));
    row.emplace_back(1000000 + i + 0.25);
  }
  for (int i = 0; i < 11; ++i) table.rows.push_back(row);
  const auto text = render_table(table, OutputFormat::text, {}, 40);
  INFO(text);
  CHECK(widest_line(text) <= 40);
  for (const auto& column : table.columns) CHECK_THAT(text, ContainsSubstring(column));
  const auto lines = split(text, '\n');
  const auto rule = std::find_if(lines.begin(), lines.end(),
                                 [](const std::string& line) { return line.starts_with("---"); });
  const auto folds = rule - lines.begin();
  CHECK(folds > 1);
  // Each row as the heading: its first columns, then the others, further in.
  CHECK(std::count_if(rule + 1, lines.end(), [](const std::string& line) {
          return !line.empty() && !line.starts_with("    ");
        }) == 11);
  CHECK(lines.end() - rule - 2 == 11 * folds);
}

TEST_CASE("a row stays on a line where leaving out columns that matter less does it") {
  const auto columns = parse_columns(
      "alpha | integer | first\nbeta | integer, if_room | second\ngamma | integer, if_room | "
      "third\n"
      "delta | integer | fourth",
      "test");
  const Value wide = std::int64_t{1234567890};
  const Table table{{"alpha", "beta", "gamma", "delta"}, {{wide, wide, wide, wide}}};
  const auto text_at = [&](std::size_t width) {
    return render_table(table, OutputFormat::text, columns, width);
  };
  CHECK_THAT(text_at(46), ContainsSubstring("gamma") && !ContainsSubstring("no room"));
  CHECK_THAT(text_at(40), ContainsSubstring("beta") && ContainsSubstring("delta") &&
                              ContainsSubstring("no room at 40 columns for gamma;"));
  CHECK_THAT(text_at(30), ContainsSubstring("beta, gamma;") && !ContainsSubstring("    beta"));
  // A row that folds anyway has room for all.
  CHECK_THAT(text_at(18), ContainsSubstring("gamma") && !ContainsSubstring("no room"));
  CHECK(render_table(table, OutputFormat::csv, columns, 30).starts_with("alpha,beta,gamma,delta"));
}

TEST_CASE("the answer calls fastest what trains as one process would, however short others' rounds",
          "[d-13]") {
  const auto said = [](const std::string& method, const std::string& settings,
                       bool of_epochs = true) {
    const ScratchFolder folder;
    Store store(folder.file("a.sqlite"));
    TrainingFigures figures;
    figures.role = "worker";
    if (of_epochs) figures.details["epochs"] = 2;
    SyntheticTraining training{
        {{"d-psgd", R"({"model":"mlp","batch":"8"})"},
         {"bsp-a2a", R"({"model":"mlp","batch":"8","synchronisation":"local",)"
                     R"("local_steps":"2"})"},
         {"bsp-a2a", R"({"model":"mlp","batch":"8","switch_to":"local",)"
                     R"("epochs":"2","local_steps":"2"})"},
         {"ddp", R"({"model":"mlp","batch":"8"})"}},
        {10, 20, 30, 200}};
    training.methods.emplace_back(method, settings);
    training.step_us.push_back(100);
    if (method == "d-psgd") training.methods.erase(training.methods.begin() + 3);
    if (method == "d-psgd") training.step_us.erase(training.step_us.begin() + 3);
    store_training(store, training, figures, 2);
    return render_answer(Reader(folder.file("a.sqlite")), "last", "");
  };
  CHECK_THAT(said("bsp-a2a", R"({"model":"mlp","batch":"8"})"),
             ContainsSubstring("2 workers: bsp-a2a at 100 us a step, 0.500 x the best"));
  CHECK_THAT(said("d-psgd", R"({"model":"mlp","batch":"8","topology":"exponential"})"),
             ContainsSubstring("2 workers: lossy: query time_to_target\n") &&
                 !ContainsSubstring(" a step,"));
  // That query has rows of epochs alone.
  CHECK_THAT(said("d-psgd", R"({"model":"mlp","batch":"8","topology":"exponential"})", false),
             ContainsSubstring("2 workers: lossy, without epochs: query training\n"));
}
