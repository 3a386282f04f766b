// What a command line asks for and nothing would do is refused with exit code 2.
#include <SQLiteCpp/SQLiteCpp.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "core/vocabulary/text.hpp"
#include "db/store.hpp"
#include "orchestrator/cli/cli.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/orchestrator/cli/program.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using testing::Folder;
using testing::kProgram;
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

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
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

TEST_CASE("an option before the verb is named, with the place where it belongs") {
  const auto told = [](const std::vector<std::string>& words) {
    const auto refused = run(words);
    INFO(join(words, " ") << "\n" << refused.out);
    CHECK(refused.exit_code == 2);
    CHECK(refused.out.empty());
    return refused.err;
  };
  CHECK_THAT(
      told({"--db", "x.sqlite", "run", "e.toml"}),
      ContainsSubstring("--db stands before the verb; it goes behind it: dynamiccl run --db"));
  CHECK_THAT(told({"--db=run", "list"}), ContainsSubstring("dynamiccl list --db"));
  // A value that is a verb's name is none.
  CHECK_THAT(told({"--db", "run", "list"}), ContainsSubstring("dynamiccl list --db"));
  CHECK_THAT(told({"-q", "list"}), ContainsSubstring("dynamiccl list -q"));
  CHECK_THAT(told({"--prove", "list"}), ContainsSubstring("list has no such option"));
  CHECK_THAT(told({"--nothing"}), ContainsSubstring("there is no option --nothing"));
  CHECK_THAT(told({"--json"}), ContainsSubstring("--json stands before the verb"));
  CHECK(run({"--json", "--version"}).exit_code == 0);
}

TEST_CASE("an error of the file system names all places that it is about") {
  const auto full = std::make_error_code(std::errc::no_space_on_device);
  const auto told = [&](auto... places) {
    return of_places(std::filesystem::filesystem_error("cannot rename", places..., full));
  };
  using Path = std::filesystem::path;
  CHECK_THAT(told(Path("a.part"), Path("/b/a")),
             ContainsSubstring("dynamiccl: a.part and /b/a: " + full.message()));
  CHECK_THAT(told(Path("a")), ContainsSubstring("dynamiccl: a: " + full.message()));
  CHECK_THAT(told(), ContainsSubstring("dynamiccl: " + full.message()));
}

TEST_CASE("a policy that is not there is wrong input, by its name") {
  const Folder folder;
  const auto experiment = folder.file("e.toml", testing::kOneCell);
  const auto policy = folder.path("no such.policy");
  const auto db = folder.path("x.sqlite");
  CHECK_THAT(refusal({"tune", experiment, "--agent", "ppo", "--policy", policy, "--table",
                      folder.path("t.json")},
                     db),
             ContainsSubstring(policy + ": the policy cannot be read"));
  CHECK_FALSE(std::filesystem::exists(db));
  const auto damaged = folder.file("damaged.policy", "nothing");
  CHECK_THAT(refusal({"tune", experiment, "--agent", "ppo", "--policy", damaged, "--table",
                      folder.path("t.json")},
                     db),
             ContainsSubstring(damaged + ": is no policy file"));
}

TEST_CASE("import names the file that it cannot take, not the database it would go to") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  CHECK_THAT(refusal({"import", ""}, db), ContainsSubstring("an empty name is no file"));
  const auto text = refusal({"import", kTable, "--format", "dynamiccl"}, db);
  CHECK_THAT(text, ContainsSubstring(kTable + ": is no DynamICCL database"));
  CHECK_THAT(text, !ContainsSubstring("--db"));
  CHECK_FALSE(std::filesystem::exists(db));
  // Blank lines before a leader's first choice.
  const auto choices = folder.file("d.jsonl", "\n\n{\"agent\": \"a\", \"propensity\": 1}\n");
  CHECK_THAT(refusal({"import", choices}, db),
             ContainsSubstring("d.jsonl:3: the line is no decision"));
  const auto torn = folder.file("torn.json", "{\"version\": 1,\n\"results\": [");
  const auto said = refusal({"import", torn}, db);
  CHECK_THAT(said, ContainsSubstring("torn.json: ") && ContainsSubstring("no JSON from line 2"));
  CHECK_THAT(said, !ContainsSubstring("parse error"));
}

TEST_CASE("export refuses what it would leave aside, by its name") {
  const Folder folder;
  const auto db = imported(folder);
  const auto table = folder.path("t.json");
  const auto out = folder.path("out");
  REQUIRE(run({"export", table, "--measured", "last", "--format", "toml", "--out", out, "--db", db})
              .exit_code == 0);
  CHECK_THAT(refusal({"export", table, "--backend", "gloo", "--format", "toml", "--out", out}, db),
             ContainsSubstring("--backend") && ContainsSubstring("goes with --measured"));
  CHECK_THAT(refusal({"export", table, "--ranks", "-3", "--format", "toml", "--out", out}, db),
             ContainsSubstring("--ranks"));
  CHECK_THAT(refusal({"export", table, "--ranks", "99", "--format", "toml", "--out", out}, db),
             ContainsSubstring("no rows of this regime with 99 ranks"));
  CHECK_THAT(refusal({"export", "--anonymous", ""}, db),
             ContainsSubstring("--anonymous: is empty"));
  const auto copy = folder.path("copy.sqlite");
  CHECK_THAT(refusal({"export", "--capsule", copy, "1cca004f"}, db),
             ContainsSubstring("a run is named by --run"));
  // What was imported has no experiment.
  CHECK_THAT(
      refusal({"export", "--capsule", copy}, db),
      ContainsSubstring("has no experiment that could be repeated: it is another tool's table"));
  CHECK_THAT(refusal({"export", "--anonymous", copy, "--hide", ""}, db),
             ContainsSubstring("--hide: is empty"));
  CHECK_THAT(refusal({"export", "--anonymous", copy, "--out", out}, db),
             ContainsSubstring("--measured and --out"));
  CHECK_THAT(refusal({"export", "--anonymous", folder.path("none/copy.sqlite")}, db),
             ContainsSubstring("choose another place with --anonymous"));
  CHECK_FALSE(std::filesystem::exists(copy));
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
             ContainsSubstring("choose another place with --junit"));
  CHECK_THAT(refusal({"report", "--out", nowhere}, db),
             ContainsSubstring("choose another place with --out"));
}

TEST_CASE("a database is never written over, and a file is replaced whole") {
  const Folder folder;
  const auto db = imported(folder);
  const auto other = folder.path("other.html");  // whatever its name
  std::filesystem::copy_file(db, other);
  for (const auto& file : {db, other}) {
    CHECK_THAT(refusal({"report", "--format", "html", "--out", file}, db),
               ContainsSubstring("is a database, which would be lost; name another file with "
                                 "--out"));
    CHECK_THAT(refusal({"compare", "last~1", "last", "--junit", file}, db),
               ContainsSubstring("name another file with --junit"));
    CHECK(run({"list", "--db", file}).out.find("two") != std::string::npos);
  }
  const auto page = folder.file("page.html", "old");
  const auto link = folder.path("link.html");
  std::filesystem::create_symlink(page, link);
  CHECK(run({"report", "--out", link, "--db", db}).exit_code == 0);
  CHECK(std::filesystem::is_symlink(link));
  CHECK(std::filesystem::file_size(page) > 1000);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("")))
    CHECK(entry.path().extension() != ".part");
  CHECK(run({"report", "--format", "csv", "--out", "/dev/null", "--db", db}).exit_code == 0);
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("an empty answer says which condition nothing meets") {
  const Folder folder;
  const auto empty =
      run({"query", "latency", "--where", "size_bytes=3MiB", "--db", imported(folder)});
  CHECK(empty.exit_code == 0);
  CHECK_THAT(empty.err, ContainsSubstring("query latency: no row meets --where size_bytes=3MiB; "
                                          "without it there are 22;") &&
                            ContainsSubstring("what was measured:\n  ") &&
                            ContainsSubstring("dynamiccl query coverage --db "));
  // What was found is a table's lines or nothing, never the heads of columns alone.
  CHECK(empty.out == "(no rows)\n");
  CHECK(run({"query", "latency", "--where", "size_bytes=3MiB", "--quiet", "--db",
             folder.path("x.sqlite")})
            .err.empty());
}

TEST_CASE("a table that reports wrong values says so when it is imported", "[G-01]") {
  const Folder folder;
  const auto db = imported(folder);
  CHECK_THAT(run({"show", "last", "--db", db}).out, !ContainsSubstring("NOT VERIFIED"));
  std::ifstream file(kTable);
  std::string text(std::istreambuf_iterator<char>(file), {});
  const std::string row = "19.06    0.05    0.09       0";
  REQUIRE(text.find(row) != std::string::npos);
  text.replace(text.find(row), row.size(), "19.06    0.05    0.09       7");
  const auto wrong = run({"import", folder.file("wrong.txt", text), "--db", db});
  CHECK_THAT(wrong.err, ContainsSubstring("reports wrong results in 1 of 22 cells"));
  for (std::size_t at = 0; (at = text.find("  0  ", at)) != std::string::npos;)
    text.replace(at, 5, "N/A  ");
  for (std::size_t at = 0; (at = text.find("  0\n", at)) != std::string::npos;)
    text.replace(at, 4, "N/A\n");
  text.replace(text.find("       7"), 8, "     N/A");
  REQUIRE(run({"import", folder.file("unchecked.txt", text), "--db", db}).exit_code == 0);
  CHECK_THAT(run({"show", "last", "--db", db}).out, ContainsSubstring("NOT VERIFIED in 22 of 22"));
}

TEST_CASE("the help of help is the program's") {
  const auto help = run({"help", "help"});
  CHECK(help.exit_code == 0);
  CHECK(help.out == run({"--help"}).out);
  CHECK(run({"help", "help", "run"}).out == run({"run", "--help"}).out);
}

TEST_CASE("what a query would not look at is refused") {
  const Folder folder;
  const auto db = imported(folder);
  CHECK_THAT(refusal({"query", "runs", "--run", "last", "--all"}, db),
             ContainsSubstring("--run names runs and --all takes every run; give one of the two"));
  CHECK_THAT(refusal({"query", ""}, db), ContainsSubstring("\"\" names no query"));
  CHECK_THAT(refusal({"query", "--run", "last"}, db), ContainsSubstring("name one, as in query"));
  CHECK_THAT(refusal({"query", "SELECT 1 AS a, 2 AS a", "--json"}, db),
             ContainsSubstring("two columns are called \"a\""));
  CHECK(run({"query", "SELECT 1 AS a, 2 AS a", "--format", "csv", "--db", db}).out ==
        "a,a\r\n1,2\r\n");
  CHECK(run({"query"}).exit_code == 0);
}

TEST_CASE("an empty name of a file and a count below 0 are refused by every verb") {
  const Folder folder;
  const auto file = folder.file("e.toml", testing::kOneCell);
  const auto db = folder.path("x.sqlite");
  for (const std::string words :
       {"tune F --table", "tune F --apply", "tune F --check", "tune F --policy", "tune F --from",
        "tune F --out", "run F --out", "run F --machine-file", "export T --out",
        "export T --plugin", "report --out", "compare a b --junit"}) {
    auto argv = split(words, ' ');
    for (auto& word : argv) word = word == "F" ? file : word;
    argv.emplace_back();
    CHECK_THAT(refusal(argv, db),
               ContainsSubstring(argv[argv.size() - 2] + ": an empty name is no file"));
  }
  CHECK_THAT(refusal({"tune", file, "--seed", "-1"}, db),
             ContainsSubstring("--seed: -1 is less than 0"));
  CHECK_FALSE(std::filesystem::exists(db));
}

TEST_CASE("a misspelled verb behind an option is told with the option's place") {
  const auto told = [](const std::vector<std::string>& words) {
    const auto refused = run(words);
    CHECK(refused.exit_code == 2);
    return refused.err;
  };
  CHECK_THAT(told({"--db", "x", "lst"}),
             ContainsSubstring("--db stands before the verb; it goes behind it; \"lst\" is no "
                               "verb: did you mean list?"));
  CHECK_THAT(told({"--nothing", "lst"}), ContainsSubstring("did you mean list?"));
  const auto dashes = told({"--", "list"});
  CHECK_THAT(dashes, ContainsSubstring("-- stands before the verb; a verb comes first"));
  CHECK(dashes.find("no such option") == std::string::npos);
}

TEST_CASE("commands that an error names work on the database that was asked") {
  const Folder folder;
  const auto db = imported(folder);
  const auto ends = " --db " + db + "`";
  CHECK_THAT(refusal({"show", "zzz"}, db), ContainsSubstring("`dynamiccl list" + ends));
  CHECK_THAT(refusal({"query", "latency", "--run", "zzz"}, db),
             ContainsSubstring("`dynamiccl list" + ends));
  CHECK_THAT(refusal({"compare", "zzz", "last"}, db), ContainsSubstring("`dynamiccl list" + ends));
  CHECK_THAT(refusal({"compare", "last", "last"}, db), ContainsSubstring("`dynamiccl list" + ends));
  CHECK_THAT(refusal({"query", "SELECT nothing"}, db),
             ContainsSubstring("`dynamiccl query schema" + ends));
  CHECK_THAT(refusal({"export", "--measured", "last", "--format", "mpich", "--out", "o"}, db),
             ContainsSubstring(ends));
  const auto none = folder.path("no/none.sqlite");
  CHECK_THAT(refusal({"list"}, none), ContainsSubstring("nor does its folder; `dynamiccl run FILE"
                                                        " --db " +
                                                        none + "`"));
  // A side of its own database, whatever the others are looked for in.
  CHECK_THAT(run({"compare", db, db + ":last"}).err, ContainsSubstring("`dynamiccl list" + ends));
}

TEST_CASE("export --measured refuses a library beside the one whose settings are chosen") {
  const Folder folder;
  const auto db = imported(folder);
  CHECK_THAT(
      refusal({"export", "--measured", "last", "--format", "openmpi,mpich", "--out", "o"}, db),
      ContainsSubstring("of openmpi (the first format's), which has none for --format "
                        "mpich; export those by a command of their own: --measured last "
                        "--format mpich"));
  CHECK_FALSE(std::filesystem::exists("o"));
}

TEST_CASE("a resume with other settings names the unfinished run and what it was started with") {
  const Folder folder;
  const auto file = folder.file("e.toml", testing::kOneCell);
  const auto db = folder.path("x.sqlite");
  {
    Store store(db);
    RunInfo info;
    info.id = "0123abcd-run";
    info.name = "e";
    info.spec_path = file;
    info.spec_text = testing::kOneCell;
    info.overrides = {"protocol.launches=3", "only=ranks == 2"};
    store.begin_run(info, {}, {});
    store.end_run(info.id, "interrupted");
  }
  CHECK_THAT(refusal({"run", file, "--resume"}, db),
             ContainsSubstring("run 0123abcd-run of it is unfinished, which was started with "
                               "--set protocol.launches=3 --only 'ranks == 2'"));
  const auto other = folder.file("f.toml", testing::kOneCell + std::string("# another\n"));
  CHECK_THAT(refusal({"run", other, "--resume"}, db), !ContainsSubstring("0123abcd"));
}

TEST_CASE("a sweep's resume with other settings names the unfinished sweep, and no run") {
  const Folder folder;
  const std::string text = testing::kOneCell;
  const auto file = folder.file("e.toml", text);
  const auto db = folder.path("x.sqlite");
  {
    Store store(db);
    RunInfo info;
    info.name = "e";
    info.spec_path = file;
    info.spec_text = text;
    for (const auto& [id, overrides] :
         std::vector<std::pair<std::string, std::vector<std::string>>>{
             {"0-sweep", {"protocol.warmup=3", "only=ranks == 2", "tune=sweep", "tune=own"}},
             {"1-search", {"protocol.warmup=4", "tune=live"}},
             {"2-run", {"protocol.warmup=5"}}}) {
      info.id = id;
      info.overrides = overrides;
      store.begin_run(info, {}, {});
      store.end_run(id, "interrupted");
    }
  }
  const auto resumed = refusal({"tune", file, "--sweep", "--resume"}, db);
  CHECK_THAT(resumed, ContainsSubstring("run 0-sweep of it is unfinished, which was started with "
                                        "--set protocol.warmup=3 --only 'ranks == 2' --own; give"));
  // With the same words, but for --own, it is another sweep: launches would lack its settings.
  CHECK_THAT(refusal({"tune", file, "--sweep", "--resume", "--set", "protocol.warmup=3", "--only",
                      "ranks == 2"},
                     db),
             ContainsSubstring("nothing to resume"));
  CHECK_THAT(refusal({"run", file, "--resume"}, db),
             ContainsSubstring("run 2-run of it is unfinished, which was started with --set "
                               "protocol.warmup=5;"));
}

TEST_CASE("a long condition that is refused is told by its beginning") {
  const Folder folder;
  const auto file = folder.file("e.toml", testing::kOneCell);
  const auto only = [&](const std::string& condition) {
    return refusal({"plan", file, "--only", condition}, folder.path("x.sqlite"));
  };
  std::string long_one = "backend == nix";
  while (long_one.size() < 5000) long_one += " or backend == gloo";
  CHECK(only(long_one).size() < 500);
  CHECK_THAT(only(long_one), ContainsSubstring("unknown backend \"nix\""));
  CHECK_THAT(only(long_one), ContainsSubstring("... (5011 bytes)'"));
  CHECK(only("backend == " + std::string(5000, 'x')).size() < 500);
  CHECK(only("environment == '" + std::string(5000, 'x') + "'").size() < 500);
}

TEST_CASE(
    "a database that may not be written is wrong input, whether a run in it was killed or not") {
  if (geteuid() != 0 || find_program("setpriv").empty()) SKIP("takes root, and setpriv");
  const std::vector<std::string> nobody{"setpriv", "--reuid=65534", "--regid=65534",
                                        "--clear-groups", kProgram};
  const auto as_nobody = [&](const std::vector<std::string>& words) {
    auto argv = nobody;
    argv.insert(argv.end(), words.begin(), words.end());
    return run_command(argv);
  };
  if (as_nobody({"--version"}).exit_code != 0) SKIP("the program is no other user's to read");
  const Folder folder;
  const auto table = folder.file("t.txt", read_text(kTable));
  std::filesystem::permissions(folder.path(""), std::filesystem::perms::all);
  for (const bool killed : {false, true}) {
    INFO(killed);
    const auto db = folder.path(killed ? "killed.sqlite" : "whole.sqlite");
    {
      Store store(db);
      RunInfo info;
      info.id = "0123abcd-run";
      store.begin_run(info, {}, {});
      if (!killed) store.end_run(info.id, "complete");
    }
    // A process that there cannot be.
    if (killed)
      SQLite::Database(db, SQLite::OPEN_READWRITE).exec("UPDATE run SET owner_pid = 999999999");
    std::filesystem::permissions(db, std::filesystem::perms::owner_read |
                                         std::filesystem::perms::group_read |
                                         std::filesystem::perms::others_read);
    const auto refused = as_nobody({"import", table, "--db", db});
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("may not be written by this user"));
  }
}

TEST_CASE("export --measured says what lacks the library's own choice, and of a search its table") {
  const Folder folder;
  for (const bool searched : {false, true}) {
    const auto db = folder.path(searched ? "tune.sqlite" : "run.sqlite");
    {
      Store store(db);
      auto plan = testing::make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
      plan.groups[0].knobs_json = R"({"mca.coll_tuned_use_dynamic_rules":"1"})";
      for (auto& cell : plan.cells) cell.knobs_json = "{}";
      if (searched) plan.run.overrides = {"tune=sweep"};
      store.begin_run(plan.run, plan.groups, plan.cells);
      testing::store_launch(store, plan, plan.groups[0], 0,
                            [](const CellInfo&, int, int) { return 10.0; });
      store.end_run("run-1", "complete");
    }
    const auto told =
        refusal({"export", "--measured", "last", "--format", "openmpi", "--out", "o"}, db);
    CHECK_THAT(told, ContainsSubstring(searched ? "run run-1 is one of `dynamiccl tune`"
                                                : "no size of openmpi was measured with the "
                                                  "library as it is"));
    CHECK((told.find("[knobs]") == std::string::npos) == searched);
  }
}
