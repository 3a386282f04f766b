// What must not go wrong silently when streams, files and inputs are not as they should be.

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <filesystem>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/run/run_setup.hpp"
#include "tests/orchestrator/cli/program.hpp"
#include "tests/sanitizers.hpp"
#include "tuner/job/decision_record.hpp"
#include "tuner/table/table.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A ceiling of address space in place of a look at the memory used. The sanitizers of addresses
/// and threads, which map terabytes, go without.
std::string ceiling(int kilobytes) {
  using namespace dynamiccl::testing;
  return kAddressSanitizer || kThreadSanitizer ? "" : fmt::format("ulimit -v {}; ", kilobytes);
}

}  // namespace

TEST_CASE("a stderr that takes nothing ends no command", "[safety]") {
  const Folder folder;
  for (const char* stderr_is : {"2>/dev/full", "2>&-"}) {
    INFO(stderr_is);
    CHECK(shell(kProgram + " list --db /nowhere/x.sqlite " + stderr_is).exit_code == 2);
    CHECK(shell(kProgram + " nonsense " + stderr_is).exit_code == 2);
  }
  // What is closed is not taken by the database, whose file would get the messages.
  const auto db = folder.path("y.sqlite");
  const auto table = folder.file("t.txt", kSmallOsuTable);
  CHECK(shell(fmt::format("{} import {} --ranks 2 --db {} <&- 2>&-", kProgram, table, db))
            .exit_code == 0);
  CHECK(shell(fmt::format("{} import {} --ranks 2 --db {} >&-", kProgram, table, db)).exit_code ==
        1);
  CHECK(run({"list", "--db", db}).exit_code == 0);
}

TEST_CASE("a limit of the process ends no command without a word", "[safety]") {
  const Folder folder;
  const auto table = folder.file("t.txt", kSmallOsuTable);
  const auto db = folder.path("y.sqlite");
  const auto import = fmt::format("{} import {} --ranks 2 --db {}", kProgram, table, db);
  // A file at its limit is sent a signal.
  const auto cut = shell("ulimit -f 10; " + import);
  CHECK(cut.exit_code == 1);
  CHECK_THAT(cut.err, ContainsSubstring("disk I/O error"));
  for (const char* files : {"6", "10", "20", "31"}) {
    INFO(files);
    const auto few = shell(fmt::format("ulimit -n {}; {}", files, import));
    CHECK(few.exit_code == 1);
    CHECK_THAT(few.err, ContainsSubstring(fmt::format("may have {} files open", files)) &&
                            ContainsSubstring("ulimit -n"));
  }
  CHECK(shell("ulimit -n 32; " + import).exit_code == 0);
}

TEST_CASE("a log without an end is not read without end", "[safety]") {
  const Folder folder;
  REQUIRE(shell("truncate -s 300M " + folder.path("sparse.txt")).exit_code == 0);
  for (const std::string& log : {std::string("/dev/zero"), folder.path("sparse.txt")}) {
    INFO(log);
    const auto refused = shell(ceiling(2000000) + fmt::format("{} import {} --db {}", kProgram, log,
                                                              folder.path("y.sqlite")));
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("more than the 256 MiB"));
  }
  const auto profile =
      shell(ceiling(2000000) + "timeout 20 " + kProgram + " doctor --profile /dev/zero");
  CHECK(profile.exit_code == 2);
  CHECK_THAT(profile.err, ContainsSubstring("/dev/zero: cannot be read"));
  // What another program writes may come through a pipe.
  const auto piped =
      shell(fmt::format("{} import <(cat {}) --ranks 2 --db {}", kProgram,
                        folder.file("t.txt", kSmallOsuTable), folder.path("z.sqlite")));
  INFO(piped.err);
  CHECK(piped.exit_code == 0);
}

TEST_CASE("a database is a file, whatever its name", "[safety]") {
  const Folder folder;
  const auto table = folder.file("t.txt", kSmallOsuTable);
  const auto there = "cd " + folder.path("") + " && ";
  for (const std::string name : {":memory:", "file:x?mode=memory", "a?b#c%41"}) {
    INFO(name);
    CHECK(shell(fmt::format("{}{} import {} --ranks 2 --db '{}'", there, kProgram, table, name))
              .exit_code == 0);
    const auto listed = shell(fmt::format("{}{} list --db '{}'", there, kProgram, name));
    CHECK(listed.exit_code == 0);
    CHECK_THAT(listed.out, ContainsSubstring("complete"));
    CHECK(std::filesystem::is_regular_file(folder.path(name)));
  }
  REQUIRE(shell("mkfifo " + folder.path("pipe")).exit_code == 0);
  for (const std::string& name : {folder.path("pipe"), std::string("/dev/null"), std::string()})
    for (const std::string& verb :
         {std::string("list"), std::string("clean"), "import " + table + " --ranks 2"}) {
      INFO(verb << " " << name);
      const auto refused = shell(fmt::format("timeout 20 {} {} --db '{}'", kProgram, verb, name));
      CHECK(refused.exit_code == 2);
      CHECK_THAT(refused.err,
                 ContainsSubstring(name.empty() ? "names no file" : "is no regular file"));
    }
}

TEST_CASE("output that cannot be written is no success", "[safety]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  for (const std::string verb : {"list", "show last", "query coverage", "query", "--help"}) {
    INFO(verb);
    const auto options = verb == "query" || verb == "--help" ? "" : " --db " + db;
    const auto full = shell(kProgram + " " + verb + options + " >/dev/full");
    CHECK(full.exit_code == 1);
    CHECK_THAT(full.err, ContainsSubstring("the output cannot be written"));
  }
  // A reader that has enough of an answer is none of it.
  CHECK(shell(kProgram + " list --db " + db + " | true").err.empty());
}

TEST_CASE("a query without an end ends with a sentence", "[safety]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  const auto endless = run({"query",
                            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
                            "SELECT x, hex(zeroblob(2000)) FROM c",
                            "--db", db});
  CHECK(endless.exit_code == 2);
  CHECK_THAT(endless.err, ContainsSubstring("add LIMIT"));
}

TEST_CASE("a query that never has a row ends in its time, with little memory", "[safety]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  const std::string sql =
      "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c";
  const auto endless =
      shell(ceiling(1000000) +
            fmt::format("timeout 60 {} query '{}' --within 2 --db {}", kProgram, sql, db));
  INFO(endless.err);
  CHECK(endless.exit_code == 2);
  CHECK_THAT(endless.err,
             ContainsSubstring("did not end in the time") && ContainsSubstring("--within"));
  CHECK(run({"query", sql, "--within", "0", "--db", db}).exit_code == 2);
}

TEST_CASE("a plan that no machine could hold is refused", "[safety]") {
  if (dynamiccl::testing::kThreadSanitizer)
    SKIP("a million cells take the thread sanitizer longer than a command is waited for");
  const Folder folder;
  std::string sizes;
  for (int i = 1; i <= 4000; ++i) sizes += fmt::format("{}{}", i > 1 ? ", " : "", 8 * i);
  std::string values;
  for (int i = 1; i <= 400; ++i) values += fmt::format("{}\"{}\"", i > 1 ? ", " : "", i);
  const auto path = folder.file(
      "x.toml",
      fmt::format("name = \"x\"\nseed = 1\n[axes]\nenvironment = \"bare-metal\"\nbackend = "
                  "\"openmpi\"\narchitecture = \"ring\"\nranks = 2\n[[work]]\ncollective = "
                  "\"allreduce\"\nsize = [{}]\n[knobs.openmpi]\nmca.x = [{}]\n",
                  sizes, values));
  const auto refused = run({"plan", path});
  CHECK(refused.exit_code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("more than 1000000 cells"));
}

TEST_CASE("a cell of CSV is never a formula", "[safety]") {
  const Folder folder;
  for (const std::string start : {"=", "+", "-", "@", "\t"}) {
    INFO(start);
    const auto name = start + "cmd|' /C calc'!A0";
    const Folder own;
    const auto db = own.path("x.sqlite");
    REQUIRE(run({"import", own.file("t.txt", kSmallOsuTable), "--ranks", "2", "--name=" + name,
                 "--db", db})
                .exit_code == 0);
    const auto csv = run({"list", "--format", "csv", "--db", db});
    CHECK(csv.out.find("," + start + "cmd") == std::string::npos);
    CHECK(csv.out.find("\"" + start + "cmd") == std::string::npos);
    CHECK_THAT(csv.out, ContainsSubstring("'" + start + "cmd"));
  }
  // Numbers stay numbers.
  const auto db = database_with(folder, kSmallOsuTable);
  CHECK(run({"query", "SELECT -5 AS a, '-5' AS b", "--format", "csv", "--db", db}).out ==
        "a,b\r\n-5,-5\r\n");
}

TEST_CASE("imported text steers no terminal", "[safety]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable, "x\x1b]0;owned\x07\x1b[2J\xC2\x9B\u202e");
  for (const std::string verb : {"show", "list"}) {
    const auto shown =
        verb == "show" ? run({"show", "last", "--db", db}) : run({"list", "--db", db});
    CHECK(shown.exit_code == 0);
    CHECK(shown.out.find('\x1b') == std::string::npos);
    CHECK(shown.out.find('\x07') == std::string::npos);
    CHECK(shown.out.find("\xC2\x9B") == std::string::npos);
    CHECK(shown.out.find("\u202e") == std::string::npos);
  }
  const auto refused = run({"show", "\x1b[2J", "--db", db});
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find('\x1b') == std::string::npos);
  CHECK(printable("a\tb\nc\x1b\x7f") == "a\tb\nc\\x1b\\x7f");
  CHECK(printable("\xC2\x9b") == "\\x9b");
  // From right to left a verdict reads as another one; other letters stay.
  CHECK(printable("\u202eREWOLS\u202c \u2067x\u2069 \u200f") ==
        "\\u202eREWOLS\\u202c \\u2067x\\u2069 \\u200f");
  CHECK(printable("\u00e9\u2030\u20ac\u2500\U0001f600") == "\u00e9\u2030\u20ac\u2500\U0001f600");
}

TEST_CASE("a schema version that nobody writes is named as such", "[safety]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  execute(db, "PRAGMA user_version = -5");
  const auto list = run({"list", "--db", db});
  CHECK(list.exit_code == 2);
  CHECK_THAT(list.err, ContainsSubstring("version -5, which no DynamICCL writes"));
  const auto imported =
      run({"import", folder.file("t.txt", kSmallOsuTable), "--ranks", "2", "--db", db});
  CHECK(imported.exit_code == 2);
  CHECK_THAT(imported.err, !ContainsSubstring("bug"));
}

TEST_CASE("what another program changed in a database is told in words", "[safety]") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  REQUIRE(run({"import", folder.file("t.txt", kSmallOsuTable), "--ranks", "2", "--operation",
               "all_reduce", "--backend", "openmpi", "--db", db})
              .exit_code == 0);
  execute(db, "UPDATE plan_group SET knobs_json = '1970'");
  const auto form = run({"export", "--measured", "last", "--format", "openmpi", "--out",
                         folder.path("tuned"), "--db", db});
  CHECK(form.exit_code == 2);
  CHECK_THAT(form.err, ContainsSubstring("another form than DynamICCL writes") &&
                           !ContainsSubstring("json.exception"));
  execute(db, "PRAGMA foreign_keys = 0; DELETE FROM experiment");
  for (const char* verb : {"show", "report"}) {
    INFO(verb);
    const auto lost = run({verb, "last", "--db", db});
    CHECK(lost.exit_code == 2);
    CHECK_THAT(lost.err, ContainsSubstring("lacks a row that belongs to what was asked for"));
  }
}

TEST_CASE("regimes of a table name no folder outside of the one that was asked for", "[safety]") {
  const Folder folder;
  for (const std::string id : {"../../elsewhere", "/tmp/elsewhere", "..", "", "a/b"}) {
    INFO(id);
    ConfigurationTable table;
    for (const std::string& regime : {std::string("r1"), id}) {
      table.put_regime({regime, "name of " + regime, {}});
      TableEntry entry;
      entry.key = {regime,
                   {Collective::allreduce, SizeBin::of(Bytes(1024)), 2, 1, Architecture::ring,
                    Backend::gloo}};
      entry.size = Bytes(1024);
      entry.setting = {"library", {}, {{"env.SOME", "1"}}};
      entry.evidence.default_us = 2;
      entry.evidence.tuned_us = 1;
      table.put(entry);
    }
    const auto file = folder.file("t.json", to_json(table));
    const auto refused = run({"export", file, "--format", "gloo", "--out", folder.path("a/b/out")});
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("is no id"));
    CHECK_FALSE(std::filesystem::exists(folder.path("a/b/out")));
  }
}

TEST_CASE("what NCCL would read is read with an end, before a job is started", "[safety]") {
  const Folder folder;
  const auto pipe = folder.path("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto tune = [&](const std::string& conf) {
    return shell(fmt::format(
        "{}export NCCL_CONF_FILE={}; timeout -s KILL 60 {} tune --db {} --out {} "
        "--plugin {} -- true",
        ceiling(8000000), conf, kProgram, folder.path("x.sqlite"), folder.path("tuned"), kProgram));
  };
  for (const std::string& named : {pipe, std::string("/dev/zero")}) {
    INFO(named);
    const auto refused = tune(named);
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, ContainsSubstring(named + ": is no regular file"));
  }
  CHECK_THAT(tune("/dev/null").err, ContainsSubstring("no rank of it loaded the plugin"));
  // As long as a file may be, of settings that stand in settings.
  std::string nested;
  for (int i = 0; i < 200000; ++i)
    nested += "# Written by dynamiccl\n# What NCCL would have read without it:\n";
  CHECK_THAT(tune(folder.file("nested.conf", nested)).err,
             ContainsSubstring("no rank of it loaded the plugin"));
}

TEST_CASE("a number that is none is refused", "[safety]") {
  for (const char* option :
       {"--trial-seconds", "--learn-seconds", "--learn-cost", "--check-seconds"})
    for (const char* text : {"nan", "-nan", "inf"}) {
      INFO(option << " " << text);
      const Folder folder;
      const auto refused =
          run({"tune", "--db", folder.path("x.sqlite"), "--out", folder.path("tuned"),
               std::string(option) + "=" + text, "--", "true"});
      CHECK(refused.exit_code == 2);
      CHECK_THAT(refused.err, ContainsSubstring(std::string(option) + ": "));
    }
}

TEST_CASE("a wait that is no number of seconds is no shorter one", "[safety]") {
  const Folder folder;
  for (const char* text : {"5m", "abc", "-1", "0", "nan", "1e-9", "1e300"}) {
    INFO(text);
    const auto refused = shell(
        fmt::format("DYNAMICCL_STOPPED_S={} {} run {} --db {}", text, kProgram,
                    DYNAMICCL_SOURCE_DIR "/experiments/tune_smoke.toml", folder.path("x.sqlite")));
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, ContainsSubstring(fmt::format("DYNAMICCL_STOPPED_S is \"{}\"", text)));
  }
}

TEST_CASE("a path that breaks the file of a job's settings is refused", "[safety]") {
  const Folder folder;
  const auto tune = [&](const std::string& out, const std::string& plugin) {
    return run(
        {"tune", "--db", folder.path("x.sqlite"), "--out", out, "--plugin", plugin, "--", "true"});
  };
  const auto line = tune(folder.path("a\nNCCL_ALGO=Ring"), kProgram);
  CHECK(line.exit_code == 2);
  CHECK_THAT(line.err, ContainsSubstring("--out: a path with a line break"));
  for (const std::string& none : {folder.path(""), std::string("/dev/null")}) {
    INFO(none);
    const auto refused = tune(folder.path("tuned"), none);
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("is no file that NCCL could load"));
  }
}

TEST_CASE("stored settings of another form are compared with the default all the same",
          "[safety]") {
  const Folder folder;
  const auto tuned = folder.path("tuned");
  std::filesystem::create_directories(tuned);
  static_cast<void>(folder.file("tuned/nccl.conf", "# Written by dynamiccl\nNCCL_ALGO=Ring\n"));
  for (const nlohmann::json& provenance :
       {nlohmann::json{{"driver", 5}, {"nccl", nlohmann::json::array()}}, nlohmann::json("text"),
        nlohmann::json()}) {
    INFO(provenance);
    ConfigurationTable table;
    table.provenance = provenance;
    write_table(table, tuned + "/table.json");
    const auto again = run({"tune", "--recheck", "--db", folder.path("x.sqlite"), "--out", tuned,
                            "--plugin", kProgram, "--", "true"});
    CHECK(again.exit_code == 5);
    CHECK_THAT(again.err, ContainsSubstring("stored with NCCL unknown, driver unknown"));
  }
}

TEST_CASE("a name that no file can have is wrong input in every place", "[safety]") {
  const std::string name(5000, 'a');
  const std::string experiment = DYNAMICCL_SOURCE_DIR "/experiments/quickstart.toml";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"plan", experiment, "--hosts", name},
        {"clean", "--db", name},
        {"train", "--out", name},
        {"plan", name}}) {
    const auto result = run(words);
    INFO(words.front() << ": " << result.err.substr(0, 200));
    CHECK(result.exit_code == 2);
    CHECK_THAT(result.err, ContainsSubstring("File name too long"));
    CHECK_THAT(result.err, !ContainsSubstring("filesystem error"));
  }
}

TEST_CASE("a leader's choices are imported whole, or can be imported again", "[safety]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  // Too large for what is left of the disk once the run itself is stored.
  const std::string arm(900'000, 'x');
  const auto line = [&](int seed, int step) {
    DecisionRecord record;
    record.arm = arm;
    record.author = {"bandit", "", static_cast<std::uint64_t>(seed)};
    record.task_key = "nccl/ring/allreduce/2^20/r2n1";
    record.step = step;
    record.kind = "explore";
    return decision_line(record) + "\n";
  };
  const auto file = folder.file("decisions.jsonl", line(1, 1) + line(1, 2) + line(2, 1));
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handled = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{1'000'000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &full) == 0);
  const auto failed = run({"import", file, "--db", db});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handled);
  INFO(failed.err);
  CHECK(failed.exit_code != 0);
  const auto again = run({"import", file, "--db", db});
  INFO(again.out << again.err);
  CHECK_THAT(again.out, ContainsSubstring("3 choices"));
  CHECK_THAT(run({"import", file, "--db", db}).out, ContainsSubstring("already there"));
  // No time tells these choices from another job's; the file as a whole does.
  const auto copy = folder.file("copy.jsonl", line(1, 1) + line(1, 2) + line(2, 1));
  CHECK_THAT(run({"import", copy, "--db", db}).out, ContainsSubstring("already there"));
  // Two leaders followed each other: each has its seed.
  const auto seeds = run({"query",
                          "SELECT seed, count(*) AS choices FROM tuning JOIN decision ON "
                          "tuning_id = tuning.id GROUP BY seed ORDER BY seed",
                          "--json", "--db", db});
  INFO(seeds.out << seeds.err);
  const auto rows = nlohmann::json::parse(seeds.out);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].at("choices") == 2);
  CHECK(rows[1].at("choices") == 1);
}

TEST_CASE("of a leader's file that has grown, import adds what is new, once", "[safety][E-124]") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  const auto line = [](int seed, int step, double time_us) {
    DecisionRecord record;
    record.author = {"bandit", "", static_cast<std::uint64_t>(seed)};
    record.task_key = "nccl/ring/allreduce/2^20/r2n1";
    record.step = step;
    record.kind = step == 0 ? "reference" : "explore";
    record.time_us = time_us;
    return decision_line(record) + "\n";
  };
  const auto import = [&](const std::string& text, const std::string& name, const std::string& to) {
    const auto result = run({"import", folder.file(name, text), "--db", to, "--json"});
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return nlohmann::json::parse(result.out)[0].at("outcome").get<std::string>();
  };
  const auto count = [&](const std::string& to, const std::string& table) {
    const auto rows = run({"query", "SELECT count(*) AS n FROM " + table, "--json", "--db", to});
    INFO(rows.err);
    return nlohmann::json::parse(rows.out)[0].at("n").get<int>();
  };
  const std::string begin = line(1, 0, 7.25) + line(1, 1, 6.5);
  // The second leader in the folder has another seed.
  const std::string grown = begin + line(1, 2, 6.125) + line(2, 0, 7.5);
  CHECK(import(begin, "decisions.jsonl", db) == "imported, 2 choices");
  CHECK(import(grown, "decisions.jsonl", db) == "2 choices new, 2 already there");
  CHECK(import(grown, "decisions.jsonl", db) == "already there");
  // A copy that was made before, and one elsewhere.
  CHECK(import(begin, "decisions.jsonl", db) == "already there");
  CHECK(import(grown + line(2, 1, 5.5), "copy.jsonl", db) == "1 choice new, 4 already there");
  CHECK(count(db, "run") == 1);
  CHECK(count(db, "tuning") == 2);
  CHECK(count(db, "decision") == 5);
  CHECK(count(db, "imported_run WHERE source_json->>'$.decisions' = 5") == 1);

  SECTION("another job that began alike is another one") {
    CHECK(import(line(1, 0, 7.25) + line(1, 1, 6.75), "other.jsonl", db) == "imported, 2 choices");
    CHECK(import(line(1, 0, 7.25) + line(1, 1, 6.75) + line(1, 2, 1.5), "other.jsonl", db) ==
          "1 choice new, 2 already there");
    CHECK(count(db, "run") == 2);
    CHECK(count(db, "decision") == 8);
  }
  SECTION("a database that holds more of it brings the rest") {
    const auto elsewhere = folder.path("y.sqlite");
    CHECK(import(begin, "decisions.jsonl", elsewhere) == "imported, 2 choices");
    for (const char* outcome : {"has more by now", "already there"}) {
      const auto merged = run({"import", db, "--db", elsewhere, "--json"});
      INFO(merged.out << merged.err);
      CHECK_THAT(merged.out, ContainsSubstring(outcome));
    }
    CHECK(count(elsewhere, "run") == 1);
    CHECK(count(elsewhere, "decision") == 5);
    // The other way there is less, which takes nothing away.
    const auto less = folder.path("z.sqlite");
    CHECK(import(begin, "decisions.jsonl", less) == "imported, 2 choices");
    CHECK_THAT(run({"import", less, "--db", db}).out, ContainsSubstring("already there"));
    CHECK(count(db, "decision") == 5);
  }
}

TEST_CASE("a search begins only where its table can be written", "[safety]") {
  const Folder folder;
  const auto experiment = folder.file("e.toml", testing::kOneCell);
  const auto db = folder.path("none.sqlite");
  std::filesystem::create_directories(folder.path("taken"));
  for (const auto& place : {folder.path("taken"), folder.file("file", "") + "/t.json"}) {
    const auto result = run({"tune", experiment, "--agent", "random", "--evaluations", "1",
                             "--table", place, "--db", db});
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK_THAT(result.err, ContainsSubstring("--table"));
    CHECK_FALSE(std::filesystem::exists(db));
  }
}

TEST_CASE("a document nested without an end ends no command", "[safety]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  constexpr std::size_t kDepth = 1'000'000;
  std::string deep;
  for (std::size_t i = 0; i < kDepth; ++i) deep += "{\"a\":";
  deep += "1" + std::string(kDepth, '}');
  DecisionRecord record;
  record.author = {"bandit", "", 1};
  record.task_key = "nccl/ring/allreduce/2^20/r2n1";
  record.kind = "explore";
  auto choice = decision_line(record);
  const std::string_view state = "\"state\":{}";
  choice.replace(choice.find(state), state.size(), "\"state\":" + deep);
  const auto choices = folder.file("decisions.jsonl", choice + "\n");
  const auto figures = folder.file("nccl.json", "{\"version\":1,\"config\":" + deep + "}");
  const auto table = folder.file("table.json", "{\"format\":" + deep + "}");
  const auto facts = folder.file("facts.json", "{\"gpu\":{},\"deep\":" + deep + "}");
  const std::vector<std::vector<std::string>> commands{
      {"import", choices, "--db", db},
      {"import", figures, "--db", db},
      {"export", table, "--format", "nccl", "--out", folder.path("out")},
      {"doctor", "--machine", facts, "--db", db}};
  for (const auto& command : commands) {
    const auto result = run(command);
    INFO(command[0] << " " << command[1] << ": " << result.err);
    CHECK(result.exit_code == 2);
    CHECK_FALSE(result.err.empty());
  }
  CHECK_THAT(run(commands[0]).err, ContainsSubstring("nested deeper than 256 levels"));
  CHECK_THAT(run(commands[1]).err, ContainsSubstring("nested deeper than 256 levels"));
}

TEST_CASE("a log that is still compressed is told as such", "[safety]") {
  const Folder folder;
  const auto packed = folder.file("a b.txt.gz", "\x1f\x8b\x08 and so on");
  const auto result = run({"import", packed, "--db", folder.path("x.sqlite")});
  CHECK(result.exit_code == 2);
  CHECK_THAT(result.err, ContainsSubstring("is compressed; unpack it first: gunzip '"));
}
