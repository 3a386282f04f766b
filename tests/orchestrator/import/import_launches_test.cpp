#include <fmt/format.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/error.hpp"
#include "db/reader.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/orchestrator/cli/program.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using dynamiccl::testing::run;
using dynamiccl::testing::ScratchFolder;

namespace {

/// One test's output: sizes 4, 8, 16, ... whose times the factor tells apart.
std::string osu_test(const std::string& title, int sizes, double factor) {
  std::string text = fmt::format(
      "# OSU MPI {} Test v7.5\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)\n", title);
  for (int i = 0; i < sizes; ++i) text += fmt::format("{}   {:.4f}\n", 4 << i, (10 + i) * factor);
  return text;
}

/// A database with the files imported into it as launches of one run.
class ImportedLaunches {
 public:
  explicit ImportedLaunches(const std::vector<std::string>& texts) {
    std::vector<std::string> words{"import"};
    for (std::size_t i = 0; i < texts.size(); ++i) {
      words.push_back(folder_.file(fmt::format("launch{}.txt", i)));
      std::ofstream(words.back()) << texts[i];
    }
    words.insert(words.end(), {"--as-launches", "--ranks", "4", "--db", db(), "--json"});
    const auto result = run(words);
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    printed_ = nlohmann::json::parse(result.out)[0];
    said_ = result.err;
  }

  [[nodiscard]] std::string db() const { return folder_.file("x.sqlite"); }
  [[nodiscard]] const nlohmann::json& printed() const { return printed_; }
  [[nodiscard]] const std::string& said() const { return said_; }

  /// "status launches reason" of a cell.
  [[nodiscard]] std::string cell(const std::string& collective, int size) const {
    const Table table = Reader(db()).query(
        "SELECT status, launches, reason FROM v_cell WHERE collective = ?1 AND size_bytes = ?2",
        {collective, std::int64_t{size}});
    const TableView rows(table);
    REQUIRE(rows.size() == 1);
    return fmt::format("{} {} {}", rows.text(0, "status"), rows.integer(0, "launches"),
                       rows.text(0, "reason"));
  }

 private:
  ScratchFolder folder_;
  nlohmann::json printed_;
  std::string said_;
};

/// What eight GPUs take that have a start-up of 17.4 us, and from 1 MiB on another protocol.
double nvlink_us(double bytes) {
  return bytes < (1 << 20) ? 17.4 + 2e-5 * bytes : 25 + bytes / 216e3;
}

/// A table as nccl-tests prints it: every second size from 8 bytes to 4 GiB, and the others.
std::string every_second_size(int first) {
  std::string text =
      "# Collective test starting: all_reduce_perf\n"
      "# nThread 1 nGpus 8 minBytes 8 maxBytes 4294967296 step: 2(factor) warmup iters: 5 iters: "
      "20 agg iters: 1 validation: 1 graph: 0\n# Using devices\n";
  for (int rank = 0; rank < 8; ++rank)
    text += fmt::format("#  Rank {:2} Group  0 Pid   4121 on  node1 device  {} [0000:1b:00] GPU\n",
                        rank, rank);
  text +=
      "#       size         count      type   redop    root     time   algbw   busbw #wrong     "
      "time   algbw   busbw #wrong\n";
  for (int power = first; power <= 32; power += 2) {
    const double bytes = std::ldexp(1.0, power);
    const double us = nvlink_us(bytes);
    const auto figures = fmt::format("{:8.2f} {:7.2f} {:7.2f}      0", us, bytes / us / 1e3,
                                     bytes / us / 1e3 * 2 * 7 / 8);
    text += fmt::format("{:12.0f} {:12.0f}     float     sum      -1 {} {}\n", bytes, bytes / 4,
                        figures, figures);
  }
  return text;
}

}  // namespace

TEST_CASE("a file of several tests gives each its launches, none of which fails", "[G-01]") {
  const auto file = [](double factor) {
    return osu_test("Allreduce Latency", 3, factor) + osu_test("Broadcast Latency", 2, factor);
  };
  const ImportedLaunches imported({file(1), file(1.01), file(1.02)});
  CHECK(imported.printed()["launches"] == 6);
  CHECK(imported.printed()["cells"] == 5);
  CHECK(imported.printed()["incomplete_cells"] == 0);
  for (const int size : {4, 8, 16}) CHECK(imported.cell("allreduce", size) == "ok 3 ");
  for (const int size : {4, 8}) CHECK(imported.cell("broadcast", size) == "ok 3 ");
  const auto shown = run({"show", "last", "--db", imported.db()});
  CHECK_THAT(shown.out, ContainsSubstring("5 cells: 5 ok"));
}

TEST_CASE("tests of one operation that differ otherwise are jobs of their own", "[G-01]") {
  // Both move data by send and receive; the datatypes make two jobs of one test, too.
  const auto file = [](double factor) {
    auto text = osu_test("Latency", 2, factor);
    text += "# OSU MPI Bandwidth Test v7.5\n# Size      Bandwidth (MB/s)\n4  3841.22\n8 4000.1\n";
    text += osu_test("Allreduce Latency", 2, factor);
    auto floats = osu_test("Allreduce Latency", 2, factor);
    return text + floats.replace(floats.find("MPI_CHAR"), 8, "MPI_FLOAT");
  };
  const ImportedLaunches imported({file(1), file(1.01)});
  const Table cells = Reader(imported.db())
                          .query(
                              "SELECT count(*) AS n, sum(status = 'ok') AS ok, sum(launches) AS "
                              "launches FROM v_cell");
  const TableView rows(cells);
  CHECK(rows.integer(0, "n") == 8);
  CHECK(rows.integer(0, "ok") == 8);
  CHECK(rows.integer(0, "launches") == 16);
  // --ranks 4 is of the collectives: point to point there are always two.
  const Table ranks = Reader(imported.db())
                          .query(
                              "SELECT group_concat(DISTINCT ranks) AS ranks FROM v_cell WHERE "
                              "collective = 'sendrecv'");
  CHECK(TableView(ranks).text(0, "ranks") == "2");
}

TEST_CASE("a size that one file lacks is missing there and counts where it is", "[G-01]") {
  const ImportedLaunches imported({osu_test("Allreduce Latency", 4, 1),
                                   osu_test("Allreduce Latency", 2, 1.01),
                                   osu_test("Allreduce Latency", 4, 1.02)});
  CHECK(imported.printed()["launches"] == 3);
  CHECK(imported.printed()["cells"] == 4);
  CHECK(imported.printed()["incomplete_cells"] == 2);
  for (const int size : {4, 8}) CHECK(imported.cell("allreduce", size) == "ok 3 ");
  for (const int size : {16, 32})
    CHECK(imported.cell("allreduce", size) ==
          "interrupted 2 1 of 3 launches not ok, worst: launch1.txt has no row of it");
  const Table missing = Reader(imported.db())
                            .query(
                                "SELECT block, status, median_us, n FROM v_measurement WHERE NOT "
                                "counts ORDER BY size_bytes");
  const TableView rows(missing);
  REQUIRE(rows.size() == 2);
  CHECK(rows.integer(0, "block") == 1);
  CHECK(rows.text(0, "status") == "interrupted");
  CHECK_FALSE(rows.real(0, "median_us"));
  CHECK(rows.integer(0, "n") == 0);
  const auto latency =
      nlohmann::json::parse(run({"query", "latency", "--db", imported.db(), "--json"}).out);
  CHECK(latency.size() == 4);
  // Such cells are compared like any other.
  const ImportedLaunches slower({osu_test("Allreduce Latency", 4, 2),
                                 osu_test("Allreduce Latency", 4, 2.02),
                                 osu_test("Allreduce Latency", 4, 2.04)});
  const auto compared = run({"compare", imported.db(), slower.db(), "--json"});
  INFO(compared.err);
  const auto cells = nlohmann::json::parse(compared.out)["cells"];
  REQUIRE(cells.size() == 4);
  for (const auto& cell : cells) {
    const bool complete = cell["size_bytes"] < 16;
    CHECK(cell["verdict"] == (complete ? "SLOWER" : "UNCLEAR"));
    CHECK(cell["ratio"].get<double>() > 1.9);
  }
}

TEST_CASE("what one file holds is in one block, also where another lacks a test", "[G-01]") {
  const auto both = [](double factor) {
    return osu_test("Allreduce Latency", 2, factor) + osu_test("Broadcast Latency", 2, factor);
  };
  const ImportedLaunches imported({both(1), osu_test("Allreduce Latency", 2, 1.01), both(1.02)});
  CHECK(imported.cell("broadcast", 4) == "ok 2 ");
  const Table blocks =
      Reader(imported.db())
          .query(
              "SELECT group_concat(block) AS blocks FROM (SELECT block FROM v_measurement WHERE "
              "collective = 'broadcast' AND size_bytes = 4 ORDER BY block)");
  CHECK(TableView(blocks).text(0, "blocks") == "0,2");
}

TEST_CASE("starts whose operations overlap are launches of one job") {
  const auto start = [](std::initializer_list<const char*> types, double time) {
    ForeignStart one;
    one.ranks = 2;
    for (const char* type : types) {
      ForeignRow row;
      row.collective = "allreduce";
      row.size_bytes = 8;
      row.datatype = type;
      row.time_us = time;
      one.rows.push_back(row);
    }
    return one;
  };
  // The third has the first's and the second's datatype: all three are one job.
  const auto made = make_foreign_run(
      {{"x", "x", {start({"float32"}, 1), start({"int32"}, 2), start({"int32", "float32"}, 3)}}},
      "nccl-tests", {});
  CHECK(made.groups.size() == 1);
  REQUIRE(made.launches.size() == 3);
  CHECK(made.launches[2].block == 2);
  REQUIRE(made.launches[0].figures.size() == 2);
  CHECK(made.launches[0].figures[1].status == CellStatus::interrupted);
  const auto apart = make_foreign_run({{"x", "x", {start({"float32"}, 1), start({"int32"}, 2)}}},
                                      "nccl-tests", {});
  CHECK(apart.groups.size() == 2);
  CHECK(apart.groups[0].id != apart.groups[1].id);
  CHECK(apart.launches[1].block == 0);
}

TEST_CASE("of the protocol is kept what all starts agree in") {
  ForeignStart one;
  one.ranks = 2;
  one.warmup = 5;
  one.iterations = 20;
  one.rows.emplace_back();
  ForeignStart other = one;
  other.iterations = 50;
  const auto made = make_foreign_run({{"x", "x", {one, other}}}, "nccl-tests", {});
  const auto protocol = nlohmann::json::parse(made.run.protocol_json);
  CHECK(protocol["warmup"] == 5);
  CHECK_FALSE(protocol.contains("iterations"));
}

TEST_CASE("two files are launches of one cell only where their command lines say the same",
          "[G-01]") {
  const auto knobs_of = [](const std::string& first, const std::string& second) {
    const ImportedLaunches imported({first + "\n" + osu_test("Allreduce Latency", 1, 1),
                                     second + "\n" + osu_test("Allreduce Latency", 1, 2)});
    const Table table =
        Reader(imported.db())
            .query("SELECT DISTINCT cell_knobs AS knobs FROM v_cell ORDER BY 1", {});
    const TableView rows(table);
    std::string knobs;
    for (std::size_t i = 0; i < rows.size(); ++i) knobs += rows.text(i, "knobs");
    return std::pair(knobs, imported.said());
  };
  const std::string program = " ./osu_allreduce -i 10";
  for (const auto& [first, second, knobs] : std::vector<std::array<std::string, 3>>{
           {"mpirun -n 4 -x UCX_TLS=rc,sm", "mpirun -n 4 -x UCX_TLS=rc,self",
            R"({"env.UCX_TLS":"rc,self"}{"env.UCX_TLS":"rc,sm"})"},
           {"mpiexec -genv UCX_TLS rc", "mpiexec -genv UCX_TLS tcp",
            R"({"env.UCX_TLS":"rc"}{"env.UCX_TLS":"tcp"})"},
           {"srun --export=ALL,NCCL_ALGO=Ring", "srun --export=ALL,NCCL_ALGO=Tree,A=1,b",
            R"({"env.NCCL_ALGO":"Ring"}{"env.NCCL_ALGO":"Tree"})"},
           {"docker run -eNCCL_ALGO=Ring i", "docker run --env=NCCL_ALGO=\"Tree\" i",
            R"({"env.NCCL_ALGO":"Ring"}{"env.NCCL_ALGO":"Tree"})"},
           {"+ MPIR_CVAR_CH4_NETMOD=ofi", "+ MPIR_CVAR_CH4_NETMOD=ucx",
            R"({"env.MPIR_CVAR_CH4_NETMOD":"ofi"}{"env.MPIR_CVAR_CH4_NETMOD":"ucx"})"},
           {"mpirun --mca pml ucx", "mpirun -gmca pml ob1",
            R"({"mca.pml":"ob1"}{"mca.pml":"ucx"})"},
           {"mpirun -n 4 \\\n --bind-to core \\\n", "mpirun -n 4 -bind-to none",
            R"({"--bind-to":"core"}{"--bind-to":"none"})"},
           {"srun --cpu_bind=cores", "srun", R"({"--cpu-bind":"cores"}{"--cpu-bind":"unset"})"},
           {"mpirun -x NCCL_OF_NOBODY=hush", "mpirun -x NCCL_OF_NOBODY=hash",
            R"_({"env.NCCL_OF_NOBODY":"value 1 (not stored)"})_"
            R"_({"env.NCCL_OF_NOBODY":"value 2 (not stored)"})_"},
           {"mpirun --mca sec_key hush", "mpirun --mca sec_key hash",
            R"_({"mca.sec_key":"value 1 (not stored)"}{"mca.sec_key":"value 2 (not stored)"})_"}}) {
    INFO(first << "\n" << second);
    const auto told = knobs_of(first + program, second + program);
    CHECK(told.first == knobs);
    CHECK_THAT(told.second, ContainsSubstring("so their starts are cells of their own") &&
                                !ContainsSubstring("hush") && !ContainsSubstring("hash"));
  }
  // What is no setting may make a difference all the same.
  const auto nodes = knobs_of("$ mpirun -H a" + program + " > out.1",
                              "me@a:~$ mpirun -H b" + program + " 2>&1 | tee out.2");
  CHECK(nodes.first == "{}");
  CHECK_THAT(nodes.second,
             ContainsSubstring("launches of one job are what was started as \"mpirun -H a "
                               "./osu_allreduce -i 10\" and \"mpirun -H b ./osu_allreduce -i 10\","
                               " which is not the same command"));
  for (const auto& [first, second] : std::map<std::string, std::string>{
           {"$ mpirun" + program + " > out.1", "+ mpirun" + program + " | tee out.2"},
           {"SLURM_JOB_ID=1", "SLURM_JOB_ID=2"},
           {"monday: osu_allreduce", "tuesday: osu_allreduce"}}) {
    INFO(first);
    const auto same = knobs_of(first, second);
    CHECK(same.first == "{}");
    CHECK_THAT(same.second, !ContainsSubstring("command") && !ContainsSubstring("differ"));
  }
}

TEST_CASE("variables in the JSON of nccl-tests tell launches apart", "[G-01]") {
  const auto started = [](const std::vector<std::string>& variables) {
    nlohmann::json document = {
        {"results",
         {{{"size", 4},
           {"count", 1},
           {"type", "float"},
           {"redop", "sum"},
           {"root", "-1"},
           {"experiment_name", "AllReduce"},
           {"out_of_place", {{"time", 1.0}, {"alg_bw", 0.0}, {"bus_bw", 0.0}, {"nwrong", 0}}}}}},
        {"config", {{"nthreads", 1}, {"ngpus", 2}}},
        {"env", variables}};
    return read_nccl_tests_json(document.dump(), "x.json", {}).at(0);
  };
  const auto start = started({"UCX_TLS=rc,sm", "OMPI_MCA_pml=ucx", "OMPI_MCA_orte_jobid=7",
                              "SLURM_JOB_ID=7", "NCCL_OF_NOBODY=hush", "HOME=/root"});
  CHECK(start.settings == std::map<std::string, std::string>{{"env.UCX_TLS", "rc,sm"},
                                                             {"env.OMPI_MCA_pml", "ucx"},
                                                             {"env.NCCL_OF_NOBODY", "<redacted>"}});
  CHECK(start.hidden.at("env.NCCL_OF_NOBODY") == "hush");
  CHECK(start.environment.dump().find("hush") == std::string::npos);
}

TEST_CASE("a copy is refused as a launch, whatever its name", "[G-01]") {
  const ScratchFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.file(name)) << text;
    return folder.file(name);
  };
  const auto text = osu_test("Allreduce Latency", 8, 1);
  const auto a = write("a.txt", text);
  const auto b = write("b.txt", text);
  const auto windows = write("w.txt", text + "\n \n");
  const auto headed = write("h.txt", "# OSU of today\n" + text);
  const auto twice = write("t.txt", text + text);
  const auto db = folder.file("x.sqlite");
  const auto refused = [&](std::vector<std::string> files) {
    files.insert(files.begin(), "import");
    files.insert(files.end(), {"--as-launches", "--ranks", "4", "--db", db});
    const auto result = run(files);
    CHECK(result.exit_code == 2);
    CHECK_THAT(result.err, ContainsSubstring("a copy is no independent launch"));
    return result.err;
  };
  CHECK_THAT(refused({a, a}), ContainsSubstring(a + " is given twice: "));
  CHECK_THAT(refused({a, b}), ContainsSubstring(a + " and " + b + " hold the same output: "));
  CHECK_THAT(refused({a, windows}), ContainsSubstring("hold the same output: "));
  CHECK_THAT(refused({a, headed}),
             ContainsSubstring(a + " and " + headed + " hold the same start, equal in all 8 rows"));
  CHECK_THAT(refused({twice}), ContainsSubstring(twice + " holds one start twice, equal in all 8"));
  CHECK_FALSE(std::filesystem::exists(db));
  // Few rows can be equal by chance, as the times have few digits.
  const auto few = osu_test("Allreduce Latency", 2, 1);
  CHECK(run({"import", write("f.txt", few + few), "--ranks", "4", "--db", db}).exit_code == 0);
  // Imports of their own are told as known, as before.
  const auto single = run({"import", a, b, "--ranks", "4", "--db", db, "--json"});
  CHECK(nlohmann::json::parse(single.out)[1]["outcome"] == "already there");
}

TEST_CASE("a measured NCCL table gives a simulator floor and slope, which foretell other sizes") {
  const dynamiccl::testing::Folder folder;
  const auto db = folder.path("x.sqlite");
  const auto imported = run({"import", folder.file("half.txt", every_second_size(3)), "--db", db});
  INFO(imported.err);
  REQUIRE(imported.exit_code == 0);
  QueryScope scope;
  scope.where = {{"in_place", "false"}};
  const Table table = named_query(Reader(db), "fit", scope);
  const TableView lines(table);
  const auto foretold = [&](double bytes) {
    double us = 0;
    for (std::size_t i = lines.size(); i-- > 0;)
      if (lines.text(i, "model") != "one line" &&
          bytes <= static_cast<double>(lines.integer(i, "to_bytes")))
        us = *lines.real(i, "alpha_us") + *lines.real(i, "beta_us_per_byte") * bytes;
    return us;
  };
  // The sizes that the table did not have.
  for (int power = 4; power <= 30; power += 2) {
    const double bytes = std::ldexp(1.0, power);
    INFO(bytes);
    CHECK(std::abs(foretold(bytes) / nvlink_us(bytes) - 1) < 0.05);
  }
  // The wire alone would have said a thousandth of what a small message takes.
  CHECK(foretold(16) > 17);
}
