// What the user says of foreign tables against what they say themselves.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

#include "core/vocabulary/json.hpp"
#include "db/reader.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "reports/model/table_view.hpp"
#include "tests/orchestrator/cli/program.hpp"
#include "tests/orchestrator/import/import_tables.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using dynamiccl::testing::Folder;
using dynamiccl::testing::kTables;
using dynamiccl::testing::run;
using dynamiccl::testing::text_of;

namespace {

/// Names all_reduce_perf and eight ranks.
const std::string kNamed = "all_reduce_h200x8.txt";
const std::string kTable = kTables + kNamed;

CommandResult import(const Folder& folder, std::vector<std::string> words) {
  words.insert(words.begin(), "import");
  words.insert(words.end(), {"--db", folder.path("x.sqlite")});
  return run(std::move(words));
}

std::string refusal(std::vector<std::string> words) {
  const Folder folder;
  const auto refused = import(folder, std::move(words));
  CHECK(refused.exit_code == 2);
  CHECK_FALSE(std::filesystem::exists(folder.path("x.sqlite")));
  return refused.err;
}

/// "backend ranks collective" of all that was imported.
std::string imported(std::vector<std::string> words) {
  const Folder folder;
  const auto result = import(folder, std::move(words));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const Table table =
      Reader(folder.path("x.sqlite"))
          .query("SELECT DISTINCT backend || ' ' || ranks || ' ' || collective AS it FROM v_cell");
  return TableView(table).text(0, "it");
}

}  // namespace

TEST_CASE("an option of import that contradicts the file is refused", "[G-01]") {
  CHECK_THAT(refusal({kTable, "--ranks", "3"}),
             ContainsSubstring("all_reduce_h200x8.txt: --ranks 3 contradicts the file, which says "
                               "8; leave it out, or import this file by itself"));
  CHECK_THAT(refusal({kTable, "--operation", "all_gather"}),
             ContainsSubstring("all_reduce_h200x8.txt:18: --operation all_gather contradicts the "
                               "table, which is of all_reduce_perf"));
  CHECK_THAT(refusal({kTables + "all_gather.json", "--operation", "all_reduce"}),
             ContainsSubstring("results[0]: --operation all_reduce contradicts the table, which is "
                               "of build/all_gather_perf"));
  CHECK_THAT(refusal({kTables + "all_gather.json", "--ranks", "7"}),
             ContainsSubstring("--ranks 7 contradicts the file, which says 2"));
  CHECK_THAT(refusal({kTables + "osu.txt", "--ranks", "4", "--operation", "broadcast"}),
             ContainsSubstring("--operation broadcast contradicts the table, which is of "));
  CHECK_THAT(refusal({kTable, "--backend", "openmpi"}),
             ContainsSubstring("--backend openmpi contradicts the file, whose program calls NCCL: "
                               "nccl, rccl"));
  CHECK_THAT(refusal({kTables + "osu.txt", "--ranks", "4", "--backend", "nccl"}),
             ContainsSubstring("contradicts the file, whose program calls MPI: openmpi, mpich"));
}

TEST_CASE("an option of import that says what the file says is taken", "[G-01]") {
  CHECK(imported({kTable, "--ranks", "8", "--operation", "all_reduce", "--backend", "nccl"}) ==
        "nccl 8 allreduce");
  CHECK(imported({kTables + "osu.txt", "--ranks", "4", "--backend", "mvapich2"})
            .starts_with("mvapich2 "));
  const Folder folder;
  // Without its lines of ranks a table tells those of one process; a renamed program tells nothing.
  auto text = text_of(kNamed);
  for (auto at = text.find("#  Rank"); at != std::string::npos; at = text.find("#  Rank"))
    text.erase(at, text.find('\n', at) + 1 - at);
  // Its bandwidths are those of 8 ranks and of an all-reduce: options that say otherwise are
  // refused.
  CHECK_THAT(refusal({folder.file("eight.txt", text), "--ranks", "16"}),
             ContainsSubstring("the table's figures contradict the options --ranks 16: busbw / "
                               "algbw is 1.75"));
  const auto large = text.find("        1024  ");
  text.erase(large, text.find("# Out of bounds") - large);
  CHECK(imported({folder.file("unlisted.txt", text), "--ranks", "16"}) == "nccl 16 allreduce");
  CHECK_THAT(refusal({folder.file("unlisted.txt", text), "--ranks", "12"}),
             ContainsSubstring("--ranks 12 contradicts the file, which says 8 per process"));
  const auto named = text.find("all_reduce_perf");
  text.replace(named, 15, "our_own_test");
  CHECK(imported({folder.file("renamed.txt", text), "--operation", "all_reduce"}) ==
        "nccl 8 allreduce");
  CHECK_THAT(refusal({folder.file("other.txt", text), "--operation", "broadcast"}),
             ContainsSubstring("redop says sum, and broadcast reduces nothing"));
  CHECK(imported({folder.file("osu_nccl.txt",
                              "# OSU NCCL Allreduce Latency Test v7.5\n"
                              "# Size       Avg Latency(us)\n8  12.5\n"),
                  "--ranks", "2"}) == "nccl 2 allreduce");
}

TEST_CASE("names that import does not know are refused with the nearest one", "[G-01]") {
  for (const auto& [word, meant] : std::map<std::string, std::string>{
           {"alltoal", "alltoall"}, {"AllReduce", "all_reduce"}, {"broadcats", "broadcast"}}) {
    CHECK_THAT(refusal({kTable, "--operation", word}),
               ContainsSubstring("unknown operation \"" + word + "\"; known: all_reduce, ") &&
                   ContainsSubstring("Did you mean \"" + meant + "\"?"));
  }
  CHECK_THAT(refusal({kTable, "--operation", "foo"}), ContainsSubstring("unknown operation"));
  CHECK_THAT(refusal({kTable, "--backend", "opnmpi"}),
             ContainsSubstring("unknown backend \"opnmpi\"; known: nccl, rccl, ") &&
                 ContainsSubstring("Did you mean \"openmpi\"?"));
  CHECK_THAT(refusal({kTable, "--environment", " "}),
             ContainsSubstring("--environment is empty; say where it was measured"));
  CHECK_THAT(refusal({kTable, "--environment", "simulated-dgx"}),
             ContainsSubstring("names that begin with \"simulated-\" are of ranks that SimGrid "
                               "simulates"));
  // Machines elsewhere have names of their own: those are kept, and a slip is pointed out.
  const Folder folder;
  const auto near = import(folder, {kTable, "--environment", "bare-metl"});
  CHECK(near.exit_code == 0);
  CHECK_THAT(near.err, ContainsSubstring("did you mean \"bare-metal\"?"));
  CHECK(import(folder, {kTable, "--environment", "dgx"}).err.empty());
}

TEST_CASE("a table that is cut off is imported as interrupted, and said to be", "[G-01]") {
  const auto text = text_of(kNamed);
  const auto cut = text.substr(0, text.find("65536"));
  const auto starts = read_nccl_tests_text(cut + text, "x.txt", {});
  REQUIRE(starts.size() == 2);
  CHECK(starts[0].cut_off ==
        "after its row of 8192 bytes, of 4294967296 asked for, there is no \"# Avg bus bandwidth\" "
        "line, with which nccl-tests ends");
  CHECK(starts[1].cut_off.empty());

  const Folder folder;
  const auto path = folder.file("five.txt", cut.substr(0, cut.rfind('\n') + 1));
  const auto result = import(folder, {path, kTable, "--json"});
  REQUIRE(result.exit_code == 0);
  CHECK_THAT(result.err, ContainsSubstring("five.txt: cut off: after its row of 8192 bytes") &&
                             ContainsSubstring("the run is stored as interrupted"));
  const auto rows = nlohmann::json::parse(result.out);
  CHECK(rows[0]["outcome"] == "imported, cut off");
  CHECK(rows[1]["outcome"] == "imported");
  const auto list =
      nlohmann::json::parse(run({"list", "--json", "--db", folder.path("x.sqlite")}).out);
  REQUIRE(list.size() == 2);
  CHECK(list[0]["status"] == "complete");
  CHECK(list[1]["status"] == "interrupted");
  const auto about = run(
      {"query", "SELECT source_json FROM imported_run", "--json", "--db", folder.path("x.sqlite")});
  CHECK_THAT(about.out, ContainsSubstring("cut_off"));
}

TEST_CASE("an imported run's name takes no password", "[safety]") {
  const std::string told = refusal({kTable, "--name", "https://me:hush@host/x"});
  CHECK_THAT(told, ContainsSubstring("--name: the URL in it gives a password or token") &&
                       !ContainsSubstring("hush"));
}
