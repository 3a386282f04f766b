// What a command line asks for and nothing would do is refused with exit code 2.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>

#include "core/text.hpp"
#include "db/store.hpp"
#include "tests/orchestrator/program.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using testing::Folder;
using testing::run;

namespace {

const std::string kTable = DYNAMICCL_SOURCE_DIR "/tests/orchestrator/import/all_reduce_h200x8.txt";

/// What a refused command line is told.
std::string refusal(std::vector<std::string> words, const std::string& db) {
  words.insert(words.end(), {"--db", db});
  const auto refused = run(words);
  INFO(join(words, " ") << "\n" << refused.out);
  CHECK(refused.exit_code == 2);
  CHECK(refused.out.empty());
  return refused.err;
}

/// A database with two runs to report and compare.
std::string imported(const Folder& folder) {
  auto db = folder.path("x.sqlite");
  for (const char* name : {"one", "two"})
    REQUIRE(run({"import", kTable, "--name", name, "--environment", name, "--db", db}).exit_code ==
            0);
  return db;
}

}  // namespace

TEST_CASE("two formats at once are refused by every verb that has formats") {
  const Folder folder;
  const auto db = imported(folder);
  for (const std::string verb : {"compare last~1", "query runs", "list", "show", "report"}) {
    auto words = split(verb, ' ');
    words.insert(words.end(), {"--json", "--format", "csv"});
    CHECK_THAT(refusal(words, db),
               ContainsSubstring("--json and --format csv are two formats; give one"));
  }
  CHECK_THAT(refusal({"report", "--html", "--format", "csv"}, db),
             ContainsSubstring("report: --html and --format csv are two formats; give one"));
  CHECK(run({"report", "--format", "json", "--json", "--db", db}).exit_code == 0);
}

TEST_CASE("a report is not written under a name of another kind") {
  const Folder folder;
  const auto db = imported(folder);
  const auto pdf = folder.path("x.pdf");
  CHECK_THAT(refusal({"report", "--out", pdf}, db),
             ContainsSubstring("x.pdf: no report is written as .pdf; name it .html, .md, .csv or "
                               ".json, or say with --format how to write it"));
  CHECK_FALSE(std::filesystem::exists(pdf));
  CHECK(run({"report", "--out", pdf, "--format", "markdown", "--db", db}).exit_code == 0);
  CHECK(run({"report", "--out", folder.path("x.txt"), "--db", db}).exit_code == 0);
}

TEST_CASE("options of a proof need --prove, and --machine starts nothing") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  for (const std::string option : {"--cause cma-blocked", "--launches 5"}) {
    auto words = split("doctor bare-metal " + option, ' ');
    CHECK_THAT(refusal(words, db), ContainsSubstring("it goes with --prove"));
  }
  for (const std::string option : {"--backend gloo", "--prove"}) {
    auto words = split("doctor --machine none.json " + option, ' ');
    CHECK_THAT(refusal(words, db), ContainsSubstring("--machine starts nothing"));
  }
}

TEST_CASE("what is said of tables is refused for databases, which say it themselves") {
  const Folder folder;
  const auto db = imported(folder);
  const auto other = folder.path("other.sqlite");
  for (const std::string option : {"--environment x", "--ranks 3", "--backend nccl", "--name x",
                                   "--operation all_reduce", "--as-launches"}) {
    auto words = split("import|" + db, '|');
    for (const auto& word : split(option, ' ')) words.push_back(word);
    CHECK_THAT(refusal(words, other),
               ContainsSubstring(split(option, ' ').front() + " is for tables of other programs"));
  }
  CHECK_FALSE(std::filesystem::exists(other));
  // Beside a table they are of the table.
  CHECK(run({"import", db, kTable, "--name", "x", "--db", other}).exit_code == 0);
}

TEST_CASE("a database that is not there is what compare complains of") {
  const Folder folder;
  const auto db = imported(folder);
  const auto none = folder.path("none.sqlite");
  for (const auto& side : {none, none + ":last"}) {
    for (const auto& words :
         std::vector<std::vector<std::string>>{{"compare", side, db}, {"compare", db, side}})
      CHECK_THAT(refusal(words, folder.path("no/folder/x.sqlite")),
                 ContainsSubstring(none + ": there is no such database file") &&
                     !ContainsSubstring("no/folder"));
  }
  CHECK(run({"compare", db + ":last~1", db, "--db", none}).exit_code == 5);
}

TEST_CASE("a place that cannot be written is wrong input, not a failed cell") {
  const Folder folder;
  const auto db = imported(folder);
  const auto nowhere = folder.path("no/such/file");
  CHECK_THAT(refusal({"compare", "last~1", "last", "--junit", nowhere}, db),
             ContainsSubstring("choose another file with --junit"));
  CHECK_THAT(refusal({"report", "--out", nowhere}, db),
             ContainsSubstring("choose another place with --out"));
}

TEST_CASE("the help of help is the program's") {
  const auto help = run({"help", "help"});
  CHECK(help.exit_code == 0);
  CHECK(help.out == run({"--help"}).out);
  CHECK(run({"help", "help", "run"}).out == run({"run", "--help"}).out);
}
