#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <thread>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "db/store.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/orchestrator/cli/program.hpp"

using namespace dynamiccl;
using testing::Folder;
using testing::kProgram;
using testing::run;

namespace {

const std::string kExperiment = R"(name = "x"
[axes]
environment = "bare-metal"
backend = ["gloo", "nccl"]
architecture = "ring"
ranks = 2
[[work]]
collective = "allreduce"
size = "1KiB"
)";

/// What the program prints on a terminal of so many columns.
std::string on_terminal(unsigned short columns, const std::string& arguments) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(terminal >= 0);
  REQUIRE(grantpt(terminal) == 0);
  REQUIRE(unlockpt(terminal) == 0);
  winsize size{};
  size.ws_col = columns;
  REQUIRE(ioctl(terminal, TIOCSWINSZ, &size) == 0);
  // A terminal holds a few KiB: a program whose terminal nobody reads stands still. Reading ends in
  // an error when the program has gone.
  const std::string name = ptsname(terminal);
  const int held = open(name.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  REQUIRE(held >= 0);
  std::string text;
  std::thread reader([&] {
    std::array<char, 4096> piece{};
    for (ssize_t got = 0; (got = read(terminal, piece.data(), piece.size())) > 0;)
      text.append(piece.data(), static_cast<std::size_t>(got));
  });
  const auto finished =
      run_command({"sh", "-c", "'" + testing::kProgram + "' " + arguments + " > " + name});
  close(held);
  reader.join();
  close(terminal);
  REQUIRE(finished.exit_code == 0);
  std::erase(text, '\r');
  return text;
}

/// What the program prints into a pipe whose reader has so many columns.
std::string wide(int columns, std::vector<std::string> words) {
  words.insert(words.begin(), {"env", "COLUMNS=" + std::to_string(columns), testing::kProgram});
  return run_command(words).out;
}

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  for (const auto& line : split(text, '\n')) widest = std::max(widest, line.size());
  return widest;
}

}  // namespace

TEST_CASE("help shows every verb with examples on stdout") {
  const auto help = run({"--help"});
  CHECK(help.exit_code == 0);
  CHECK(help.err.empty());
  for (const char* word :
       {"run", "plan", "doctor", "query", "list", "show", "report", "clean", "compare", "import",
        "Examples:", "dynamiccl run experiments/quickstart.toml"})
    CHECK(help.out.find(word) != std::string::npos);
  for (const char* verb :
       {"run", "plan", "doctor", "query", "list", "show", "report", "clean", "compare", "import"}) {
    const auto of_verb = run({verb, "--help"});
    CHECK(of_verb.exit_code == 0);
    CHECK(of_verb.out.find("Example") != std::string::npos);
  }
}

TEST_CASE("the help of every verb fits 100 columns, or the terminal") {
  std::vector<std::string> verbs{""};
  for (const auto& line : split(run({"help", "--markdown"}).out, '\n'))
    if (line.starts_with("## ")) verbs.push_back(line.substr(3));
  CHECK(verbs.size() >= 16);
  for (const auto& verb : verbs) {
    std::vector<std::string> words{"--help"};
    if (!verb.empty()) words.insert(words.begin(), verb);
    INFO(verb);
    CHECK(widest_line(run(words).out) <= 100);
    CHECK(widest_line(on_terminal(80, verb + " --help")) <= 80);
  }
  CHECK(widest_line(on_terminal(140, "run --help")) > 100);
}

TEST_CASE("the printed page of commands has every verb and option") {
  const auto page = run({"help", "--markdown"});
  CHECK(page.exit_code == 0);
  // What a shell is offered comes from the same command table by another way.
  std::map<std::string, std::vector<std::string>> offered;
  for (const auto& line : split(run({"completion", "fish"}).out, '\n')) {
    const auto words = split(line, ' ');
    const auto after = [&](const char* word) {
      const auto at = std::find(words.begin(), words.end(), word);
      return at == words.end() || at + 1 == words.end() ? "" : *(at + 1);
    };
    if (line.find("__fish_use_subcommand") != std::string::npos) offered[after("-xa")];
    if (const auto name = after("-l"); !name.empty())
      offered[split(after("'__fish_seen_subcommand_from"), '\'').front()].push_back("--" + name);
  }
  CHECK(offered.size() >= 16);
  for (const auto& [verb, options] : offered) {
    INFO(verb);
    const auto head = page.out.find("\n## " + verb + "\n");
    REQUIRE(head != std::string::npos);
    const auto section = page.out.substr(head, page.out.find("\n## ", head + 1) - head);
    CHECK_FALSE(options.empty());
    for (const auto& option : options) CHECK(section.find(option) != std::string::npos);
  }
}

TEST_CASE("the index of experiments names every file with its question and what it needs") {
  const auto page = run({"experiments", "--markdown"});
  CHECK(page.exit_code == 0);
  INFO("make it anew: dynamiccl experiments --markdown > experiments/README.md");
  std::ifstream file(DYNAMICCL_SOURCE_DIR "/experiments/README.md");
  CHECK(std::string{std::istreambuf_iterator<char>(file), {}} == page.out);
  const auto text = run({"experiments"});
  CHECK(text.exit_code == 0);
  CHECK(widest_line(text.out) <= 100);
  for (const auto& entry :
       std::filesystem::directory_iterator(DYNAMICCL_SOURCE_DIR "/experiments")) {
    const auto name = entry.path().filename().string();
    if (entry.path().extension() != ".toml") continue;
    INFO(name);
    const auto line = page.out.find("| [" + name + "](");
    REQUIRE(line != std::string::npos);
    CHECK(page.out.find("| [" + name + "](" + name + ") |  |") == std::string::npos);
    CHECK(text.out.find(name) != std::string::npos);
  }
  CHECK(text.out.find("quickstart.toml  (") != std::string::npos);
  CHECK(text.out.find("needs libtorch") != std::string::npos);
  CHECK(text.out.find("GPUs for up to 2 ranks") != std::string::npos);
}

TEST_CASE("the version says what lies beside the program") {
  const auto version = run({"--version"});
  CHECK(version.exit_code == 0);
  CHECK(version.out.starts_with("dynamiccl "));
  const std::string folder = DYNAMICCL_BINARY_DIR;
  for (const auto& [name, file] : {std::pair{"worker for Gloo", "/dynamiccl-worker"},
                                   {"leader", "/dynamiccl-leader"},
                                   {"trainer for MPICH", "/dynamiccl-trainer-mpich"}}) {
    const auto absent = version.out.find("not there:");
    const auto at = version.out.find(name);
    REQUIRE(at != std::string::npos);
    CHECK((at < absent) == std::filesystem::exists(folder + file));
  }
}

TEST_CASE("help is a verb too, alone and before another one") {
  const auto help = run({"help"});
  CHECK(help.exit_code == 0);
  CHECK(help.out == run({"--help"}).out);
  const auto of_verb = run({"help", "plan"});
  CHECK(of_verb.exit_code == 0);
  CHECK(of_verb.out == run({"plan", "--help"}).out);
  const auto unknown = run({"help", "pln"});
  CHECK(unknown.exit_code == 2);
  CHECK(unknown.err.find("Did you mean \"plan\"?") != std::string::npos);
}

TEST_CASE("wrong usage ends with 2 and says what to do") {
  const auto verb = run({"runn"});
  CHECK(verb.exit_code == 2);
  CHECK(verb.out.empty());
  CHECK(verb.err.find("unknown verb \"runn\"") != std::string::npos);
  CHECK(verb.err.find("Did you mean \"run\"?") != std::string::npos);
  const auto nothing = run({});
  CHECK(nothing.exit_code == 2);
  CHECK(nothing.err.find("Try: dynamiccl --help") != std::string::npos);
  const auto flag = run({"list", "--jsn"});
  CHECK(flag.exit_code == 2);
  CHECK(flag.err.find("Try: dynamiccl list --help") != std::string::npos);
  CHECK(flag.err.find("list: there is no option --jsn; did you mean --json?") != std::string::npos);
  const auto key = run({"run", "x.toml", "--launches", "3"});
  CHECK(key.exit_code == 2);
  CHECK(key.err.find("run: there is no option --launches") != std::string::npos);
  CHECK(key.err.find("--set protocol.launches=10") != std::string::npos);
  const auto more = run({"list", "everything"});
  CHECK(more.exit_code == 2);
  CHECK(more.err.find("list: \"everything\" is one argument too many") != std::string::npos);
}

TEST_CASE("a missing file or database is input, not a crash") {
  const auto file = run({"plan", "no-such.toml"});
  CHECK(file.exit_code == 2);
  CHECK(file.err.starts_with("dynamiccl: no-such.toml: cannot be read"));
  CHECK(file.err.find("`dynamiccl experiments` lists") != std::string::npos);
  const auto db = run({"list", "--db", "/no/such.sqlite"});
  CHECK(db.exit_code == 2);
  CHECK(db.err.find("database /no/such.sqlite: does not exist yet, nor does its folder") !=
        std::string::npos);
  const Folder folder;
  const auto none = run({"list", "--db", folder.path("none.sqlite")});
  CHECK(none.exit_code == 2);
  CHECK(none.err.find("`dynamiccl run FILE --db " + folder.path("none.sqlite") + "` creates it") !=
        std::string::npos);
}

TEST_CASE("a folder that cannot be made ends a run before anything is stored, with the remedy") {
  const Folder folder;
  const auto path = folder.file("x.toml", kExperiment);
  const auto db = folder.path("x.sqlite");
  const auto in_a_file = run({"run", path, "--db", db, "--out", path + "/below"});
  CHECK(in_a_file.exit_code == 2);
  CHECK(in_a_file.err.find(path + "/below: cannot be made: Not a directory; choose another place "
                                  "with --out") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(db));
  const auto no_db = run({"run", path, "--db", path + "/below/x.sqlite"});
  CHECK(no_db.exit_code == 2);
  CHECK(no_db.err.find("choose another place with --db") != std::string::npos);
}

TEST_CASE("mistakes of an experiment go to stderr with their places") {
  const Folder folder;
  const auto path = folder.file("bad.toml", "sed = 1\n" + kExperiment);
  const auto plan = run({"plan", path});
  CHECK(plan.exit_code == 2);
  CHECK(plan.out.empty());
  CHECK(plan.err.find(path + ":1:1: unknown key \"sed\"") != std::string::npos);
}

TEST_CASE("an old spelling is noted on stderr with its place, and the answer stays") {
  const Folder folder;
  const auto file = [&](const std::string& name, const std::string& setting) {
    return folder.file(name, kExperiment + "[profile.bare-metal]\nbackend.gloo = [{ name = \"" +
                                 setting + "\", value = \"true\", reason = \"r\" }]\n");
  };
  const auto old_path = file("old.toml", "malloc:keep");
  const auto first = run({"plan", old_path, "--json", "--only", "malloc:keep == default"});
  CHECK(first.exit_code == 0);
  CHECK(first.err.find("note: " + old_path + ":") == 0);
  CHECK(first.err.find("\"malloc:keep\" is an old spelling that still reads: write "
                       "\"malloc.keep\"\n") != std::string::npos);
  CHECK(first.err.find("note: --only 'malloc:keep == default': column 1: ") != std::string::npos);
  const auto today = run({"plan", file("new.toml", "malloc.keep"), "--json"});
  CHECK(today.exit_code == 0);
  CHECK(today.err.empty());
  const auto ids = [](const CommandResult& plan) {
    std::vector<std::string> all;
    const auto groups = nlohmann::json::parse(plan.out)["groups"];
    for (const auto& group : groups) {
      all.push_back(group["id"]);
      for (const auto& cell : group["cells"]) all.push_back(cell["id"]);
    }
    return all;
  };
  CHECK(ids(first).size() == 4);
  CHECK(ids(first) == ids(today));
  for (const auto& plan : {first, today})
    CHECK(plan.out.find("GLIBC_TUNABLES=glibc.malloc.mmap_threshold") != std::string::npos);
}

TEST_CASE("the doctor foretells that a /dev/shm of 16 MiB is too small for eight ranks of NCCL") {
  const Folder folder;
  const auto machine = folder.file("gpu.json", R"({"gpu": {"usable": 8, "nvlink": true}})");
  const std::string cases = DYNAMICCL_SOURCE_DIR "/tests/orchestrator/doctor/cases";
  const auto small =
      run({"doctor", "--profile", cases + "/shm16.toml", "--ranks", "8", "--machine", machine});
  CHECK(small.exit_code == 4);
  INFO(small.out);
  CHECK(small.out.find("8 ranks share a /dev/shm of 16") != std::string::npos);
  CHECK(run({"doctor", "single-docker", "--ranks", "8", "--machine", machine})
            .out.find("8 ranks share a /dev/shm") == std::string::npos);
}

TEST_CASE("the doctor foretells what profiles do on a machine that is only described") {
  const Folder folder;
  const auto machine = folder.file(
      "gpu.json",
      R"({"gpu": {"usable": 4, "nvlink": true, "nvml": {"p2p": [["self", "nvlink"]]}}})");
  const auto text =
      run({"doctor", "cross-docker", "cross-docker-shared", "--ranks", "4", "--machine", machine});
  CHECK(text.exit_code == 4);
  CHECK(text.out.find("cross-docker\n  nccl, foretold: NET") != std::string::npos);
  CHECK(text.out.find("fix: --ipc=host") != std::string::npos);
  CHECK(text.out.find("cross-docker-shared\n  nccl, foretold: P2P (4 ranks reach each other's GPU "
                      "memory (nvlink))") != std::string::npos);
  const auto json = run({"doctor", "bare-metal", "--machine", machine, "--json"});
  CHECK(json.exit_code == 0);
  CHECK(nlohmann::json::parse(json.out)["environments"][0]["gpu_prediction"]["transport"] == "P2P");
  const auto mine = folder.file("mine.toml",
                                "name = \"mine\"\nextends = \"cross-docker-shared\"\n"
                                "gpus = \"one-per-rank\"\n");
  const auto own = run({"doctor", "--profile", mine, "--machine", machine});
  CHECK(own.exit_code == 4);
  CHECK(own.out.find("mine\n  nccl, foretold: impossible") != std::string::npos);
  CHECK(own.out.find("bare-metal") == std::string::npos);
  const auto odd = run({"doctor", "--machine", folder.file("odd.json", "[1]")});
  CHECK(odd.exit_code == 2);
  CHECK(odd.err.find("no facts of a machine") != std::string::npos);
  const auto none = run({"doctor", "--machine", folder.path("none.json")});
  CHECK(none.exit_code == 2);
  CHECK(none.err.find("none.json: cannot be read: No such file or directory; give --profile") !=
        std::string::npos);
}

TEST_CASE("a report is a page in a file, text on stdout, and nothing else") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  const std::string table = DYNAMICCL_SOURCE_DIR "/tests/orchestrator/import/all_reduce_bridge.txt";
  REQUIRE(run({"import", table, "--environment", "bare-metal", "--db", db}).exit_code == 0);
  const auto page = run({"report", "--html", "--out", folder.path("r.html"), "--db", db});
  CHECK(page.exit_code == 0);
  CHECK(page.out.empty());
  CHECK(page.err.find("r.html: ") != std::string::npos);
  CHECK(std::filesystem::file_size(folder.path("r.html")) > 100000);
  CHECK(run({"report", "--html", "--out", "-", "--db", db}).out.starts_with("<!DOCTYPE html>"));
  CHECK(run({"report", "--db", db}).out.starts_with("# all_reduce_bridge"));
  CHECK(run({"report", "--format", "csv", "--db", db}).out.starts_with("run_id,"));
  const auto figures = run({"report", "--json", "--db", db});
  CHECK(nlohmann::json::parse(figures.out).at(0).at("environment") == "bare-metal");
  CHECK(run({"report", "--html", "--json", "--db", db}).exit_code == 2);
  const auto written = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(), {"report", "--db", db, "--out", folder.path(name)});
    CHECK(run(more).exit_code == 0);
    std::ifstream file(folder.path(name));
    return std::string(std::istreambuf_iterator<char>(file), {}).substr(0, 15);
  };
  CHECK(written("by-name.html", {}) == "<!DOCTYPE html>");
  CHECK(written("by-name.htm", {}) == "<!DOCTYPE html>");
  CHECK(written("by-name.md", {}).starts_with("# all_reduce"));
  CHECK(written("by-name.csv", {}).starts_with("run_id,"));
  CHECK(written("by-name.json", {}).starts_with("["));
  CHECK(written("report", {}).starts_with("# all_reduce"));
  // What is asked for goes before what the name says.
  CHECK(written("other.html", {"--format", "csv"}).starts_with("run_id,"));
  CHECK(written("other.md", {"--html"}) == "<!DOCTYPE html>");
  const auto unknown = run({"report", "--format", "htm", "--db", db});
  CHECK(unknown.exit_code == 2);
  CHECK(unknown.err.find("unknown report format \"htm\"") != std::string::npos);
  CHECK(unknown.err.find("Did you mean \"html\"?") != std::string::npos);
  const auto nowhere = run({"report", "--html", "--out", folder.path("no/r.html"), "--db", db});
  CHECK(nowhere.exit_code == 2);
  CHECK(nowhere.err.find("no/r.html: cannot be written: No such file or directory; choose another "
                         "place with --out") != std::string::npos);
}

TEST_CASE("the doctor refuses backends and causes that it does not know") {
  const Folder folder;
  const auto cause = run({"doctor", "--cause", "cma-blokced", "--db", folder.path("x.sqlite")});
  CHECK(cause.exit_code == 2);
  CHECK(cause.err.find("Did you mean \"cma-blocked\"?") != std::string::npos);
  const auto backend = run({"doctor", "--backend", "gluo", "--db", folder.path("x.sqlite")});
  CHECK(backend.exit_code == 2);
  CHECK(backend.err.find("unknown backend \"gluo\"") != std::string::npos);
}

TEST_CASE("plan tells groups, impossible cells with reasons, commands and time") {
  const Folder folder;
  const auto path = folder.file("x.toml", kExperiment);
  const auto text = run({"plan", path, "-v", "--db", folder.path("x.sqlite")});
  REQUIRE(text.exit_code == 0);
  const auto brief = run({"plan", path, "--db", folder.path("x.sqlite")});
  CHECK(brief.out.find("DYNAMICCL_RANK") == std::string::npos);
  // What it comes to stands first and last.
  const std::string summary = brief.out.substr(0, brief.out.find('\n') + 1);
  CHECK(brief.out.ends_with("\n" + summary + "plan -v shows the commands\n"));
  const auto nothing = run({"plan", path, "--only", "backend == nccl"});
  CHECK(nothing.exit_code == 2);
  CHECK(nothing.out.ends_with("nothing of it can run here\n"));
  CHECK(text.out.find("x: 2 groups, 2 cells, 1 of them impossible") == 0);
  CHECK(text.out.find("allreduce: 1 KiB") != std::string::npos);
  CHECK(text.out.find("1 cell impossible: nccl") != std::string::npos);
  // Where nothing is launched there is no time of a launch.
  CHECK(text.out.find("0 cells to measure\n") != std::string::npos);
  CHECK(text.out.find("1 cell to measure, about ") != std::string::npos);
  CHECK(text.out.find("DYNAMICCL_RANK=1") != std::string::npos);
  const auto json = run({"plan", path, "--json", "--only", "backend == gloo"});
  REQUIRE(json.exit_code == 0);
  const auto plan = nlohmann::json::parse(json.out);
  CHECK(plan["groups"].size() == 1);
  CHECK(plan["groups"][0]["launch_commands"].size() == 2);
  CHECK(plan["estimated_s"].get<double>() > 0);
  // A plan starts nothing and writes nothing.
  CHECK_FALSE(std::filesystem::exists(folder.path("x.sqlite")));
}

TEST_CASE("an expression that leaves nothing, or is wrong, is refused") {
  const Folder folder;
  const auto path = folder.file("x.toml", kExperiment);
  const auto none = run({"plan", path, "--only", "size > 1GiB"});
  CHECK(none.exit_code == 2);
  CHECK(none.err.find("no cell is left: dropped by --only\n") != std::string::npos);
  // A method that needs another architecture than the file has leaves nothing, too.
  const auto misfit = run({"plan", path, "--set", R"(axes.architecture="ring")", "--set",
                           R"(work=[{training="bsp-ps", model="mlp", batch=8, steps=4}])"});
  CHECK(misfit.err.find(R"(dropped by bsp-ps, which runs with architecture "ps")") !=
        std::string::npos);
  const auto wrong = run({"plan", path, "--only", "backend = gloo"});
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err.find("--only 'backend = gloo': column 9: found \"=\"; did you mean \"==\"?") !=
        std::string::npos);
}

TEST_CASE("an option that would be ignored is refused") {
  const Folder folder;
  const auto path = folder.file("x.toml", kExperiment);
  for (const char* only : {"", " "}) {
    const auto refused = run({"plan", path, "--only", only});
    CHECK(refused.exit_code == 2);
    CHECK(refused.err.find("the condition is empty; leave --only out") != std::string::npos);
  }
  for (const char* most : {"soon", "0s"}) {
    const auto refused = run({"run", path, "--wait-quiet", most});
    CHECK(refused.exit_code == 2);
    CHECK(refused.err.find("--wait-quiet: ") != std::string::npos);
  }
  const auto db = folder.path("x.sqlite");
  const Store empty(db);
  const auto vary = run({"query", "latency", "--vary", "nope", "--db", db});
  CHECK(vary.exit_code == 2);
  CHECK(vary.err.find("query latency: --vary goes with the queries axis, crossover and "
                      "tradeoffs") != std::string::npos);
  for (const char* verb : {"query", "list", "show"}) {
    std::vector<std::string> words{verb, "--json", "--format", "csv", "--db", db};
    if (words.front() == "query") words.insert(words.begin() + 1, "runs");
    const auto two = run(words);
    CHECK(two.exit_code == 2);
    CHECK(two.err.find("--json and --format csv are two formats; give one") != std::string::npos);
  }
  CHECK(run({"query", "runs", "--json", "--format", "json", "--db", db}).exit_code == 0);
}

TEST_CASE("list and show fit their tables to the terminal") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  Store store(db);
  auto plan = testing::make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  plan.run.name = "a name in many words, " + std::string(60, 'x');
  store.begin_run(plan.run, plan.groups, plan.cells);
  store.finish_launch(
      store.begin_launch("run-1", testing::make_start(plan.groups[0].id, 0)),
      testing::make_end(LaunchStatus::failed, "a reason in many words, " + std::string(60, 'x')),
      {});
  store.end_run("run-1", "complete");
  const auto launches = [](const std::string& shown) {
    const auto begin = shown.find("\nlaunches\n");
    REQUIRE(begin != std::string::npos);
    return shown.substr(begin, shown.find("\n\n", begin + 1) - begin);
  };
  // A pipe has no width of its own: it is read like a screen. Programs take CSV and JSON.
  const auto listed = run({"list", "--db", db}).out;
  CHECK(widest_line(listed) <= 100);
  CHECK(listed.starts_with("run_id"));
  const auto heading = listed.substr(0, listed.find('\n'));
  for (const char* word : {"status", "started_utc", "cells", "launches", "ok"})
    CHECK(heading.find(word) != std::string::npos);
  CHECK(widest_line(wide(150, {"list", "--db", db})) > 130);
  CHECK(widest_line(on_terminal(130, "list --db " + db)) <= 130);
  CHECK(widest_line(launches(wide(200, {"show", "--db", db}))) > 150);
  CHECK(widest_line(launches(on_terminal(150, "show --db " + db))) <= 150);
  // The experiment's own text stays as it is.
  const auto page = run({"show", "--db", db}).out;
  CHECK(widest_line(page.substr(0, page.find("\nexperiment\n"))) <= 100);
}

TEST_CASE("a plan fits 100 columns or the terminal, and its commands stay what they are") {
  const Folder folder;
  const auto path = folder.file("x.toml", kExperiment);
  const auto whole = wide(5000, {"plan", "-v", path});
  REQUIRE(whole.find("launch$ ") != std::string::npos);
  const std::regex goes_on(R"( \\\n +)");
  const auto check_fits = [&](const std::string& text, std::size_t columns) {
    for (const auto& line : split(text, '\n')) {
      INFO(line);
      std::string_view words = trim(line);
      if (words.starts_with("launch$ ")) words.remove_prefix(8);
      if (words.ends_with(" \\")) words.remove_suffix(2);
      // A word of a command stays whole, however long its paths are.
      CHECK((line.size() <= columns || words.find(' ') == std::string_view::npos));
    }
    // A command names its process.
    const auto commands = [](const std::string& of) {
      return std::regex_replace(of.substr(of.find("launch$ ")), std::regex("OWNER=[^ ]+"), "OWNER");
    };
    const auto joined = std::regex_replace(text, goes_on, " ");
    CHECK(commands(joined).substr(0, commands(joined).find('\n')) ==
          commands(whole).substr(0, commands(whole).find('\n')));
  };
  check_fits(run({"plan", "-v", path}).out, 100);
  check_fits(on_terminal(80, "plan -v " + path), 80);
}

TEST_CASE("a database that cannot be made is wrong usage") {
  const Folder folder;
  const auto path = folder.file("x.toml", kExperiment);
  const auto refused = run({"run", path, "--db", "/proc/x", "--out", folder.path("runs")});
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("database /proc/x") != std::string::npos);
  CHECK(refused.err.find("name another database with --db") != std::string::npos);
}

TEST_CASE("without a name, query lists the queries for programs, too") {
  const auto list = nlohmann::json::parse(run({"query", "--json"}).out);
  REQUIRE(list.size() > 50);
  CHECK(list[0].at("name") == "latency");
  CHECK(list[0].at("theme") == "times");
  CHECK(run({"query", "--format", "csv"}).out.starts_with("name,theme,title,row\r\n"));
}

TEST_CASE("commands to be pasted begin as this program was started") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  const Store empty(db);
  const auto told = [&](std::vector<std::string> environment) {
    environment.insert(environment.begin(), "/usr/bin/env");
    for (const auto& word :
         {testing::kProgram, std::string("query"), std::string("latency"), std::string("--db"), db})
      environment.push_back(word);
    return run_command(environment).err;
  };
  const std::string command = " run experiments/quickstart.toml --db " + db;
  const std::string bare = "PATH=" + folder.path("nothing");
  CHECK(told({bare, "DYNAMICCL_STARTED_AS=./dynamiccl"}).find("\n  ./dynamiccl" + command) !=
        std::string::npos);
  CHECK(told({bare, "DYNAMICCL_STARTED_AS="}).find("\n  " + testing::kProgram + command) !=
        std::string::npos);
  // Another program of that name is not this one.
  const auto installed = folder.file("dynamiccl", "#!/bin/sh\n");
  std::filesystem::permissions(installed, std::filesystem::perms::owner_all);
  const auto path = "PATH=" + std::filesystem::path(installed).parent_path().string();
  CHECK(told({path, "DYNAMICCL_STARTED_AS="}).find("\n  " + testing::kProgram + command) !=
        std::string::npos);
  std::filesystem::remove(installed);
  std::filesystem::create_symlink(testing::kProgram, installed);
  CHECK(told({path, "DYNAMICCL_STARTED_AS="}).find("\n  dynamiccl" + command) != std::string::npos);
}

TEST_CASE("a query's columns are explained without a database") {
  const auto text = run({"query", "overhead", "--explain", "--db", "/no/such.sqlite"});
  CHECK(text.exit_code == 0);
  CHECK(text.out.starts_with("overhead: "));
  CHECK(text.out.find("A row is one cell outside bare metal") != std::string::npos);
  CHECK(widest_line(text.out) <= 100);
  const auto list = nlohmann::json::parse(run({"query", "latency", "--explain", "--json"}).out);
  const auto median = std::find_if(list.begin(), list.end(), [](const auto& column) {
    return column.at("column") == "median_us";
  });
  REQUIRE(median != list.end());
  CHECK(median->at("unit") == "us");
  CHECK(run({"query", "latenci", "--explain"}).err.find("Did you mean \"latency\"?") !=
        std::string::npos);
}

TEST_CASE("a step's trace is of one run and has one format") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  const Store empty(db);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"last~1", "--diff"}, {"--format", "csv"}}) {
    std::vector<std::string> words{"show", "last", "--trace", "dear", "--db", db};
    words.insert(words.begin() + 2, more.begin(), more.end());
    const auto refused = run(words);
    CHECK(refused.exit_code == 2);
    CHECK(refused.err.find("leave out --diff and --format") != std::string::npos);
  }
}

TEST_CASE("export looks at its formats before its input, and a missing table is input") {
  const Folder folder;
  const auto out = folder.path("out");
  const auto format = run({"export", "--measured", "last", "--format", "zzz", "--out", out, "--db",
                           folder.path("none.sqlite")});
  CHECK(format.exit_code == 2);
  CHECK(format.err.find("\"zzz\"") != std::string::npos);
  const auto table = run({"export", folder.path("no.json"), "--format", "nccl", "--out", out});
  CHECK(table.exit_code == 2);
  CHECK(table.err.find("no.json: cannot be read") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("export writes all formats or none") {
  const Folder folder;
  const auto out = folder.path("out");
  const auto db = folder.path("x.sqlite");
  REQUIRE(run({"import", DYNAMICCL_SOURCE_DIR "/tests/orchestrator/import/all_reduce_h200x8.txt",
               "--db", db})
              .exit_code == 0);
  // The settings are NCCL's: Gloo has none.
  const auto both = [&](const std::string& formats, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"export", "--measured", "last",  "--backend", "nccl", "--db",
                                   db,       "--format",   formats, "--out",     out};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const auto table = folder.path("t.json");
  const auto refused = both("toml,gloo", {table});
  INFO(refused.err << refused.out);
  CHECK(refused.exit_code == 2);
  CHECK(refused.out.empty());
  CHECK_FALSE(std::filesystem::exists(out));
  CHECK_FALSE(std::filesystem::exists(table));
  // One that is named twice is written once.
  const auto twice = both("toml,toml", {"--json", table});
  INFO(twice.err);
  REQUIRE(twice.exit_code == 0);
  CHECK(nlohmann::json::parse(twice.out).at("files").size() == 1);
  CHECK(std::filesystem::exists(table));
}

TEST_CASE("a path that is no UTF-8 leaves the plan's JSON readable, and no run begins there") {
  const Folder folder;
  const auto path = folder.file("x.toml", kExperiment);
  const auto plan = run({"plan", path, "--json", "--db", folder.path("\xe9/x.sqlite")});
  CHECK(plan.exit_code == 0);
  CHECK(nlohmann::json::parse(plan.out).at("groups").size() == 2);
  const auto measured = run({"run", path, "--db", folder.path("\xe9/x.sqlite")});
  CHECK(measured.exit_code == 2);
  CHECK(measured.err.find("is no UTF-8") != std::string::npos);
  CHECK(measured.err.find("choose another place with --out") != std::string::npos);
}

TEST_CASE("resuming nothing is refused before anything starts") {
  const Folder folder;
  const auto path = folder.file("x.toml", kExperiment);
  const auto resumed = run({"run", path, "--resume", "--db", folder.path("x.sqlite")});
  CHECK(resumed.exit_code == 2);
  CHECK(resumed.err.find("nothing to resume") != std::string::npos);
}

TEST_CASE("a reader that closes early ends the program quietly") {
  const auto piped = run_command({"/bin/sh", "-c", kProgram + " --help | head -1"});
  CHECK(piped.err.empty());
  const Folder folder;
  const auto path = folder.file("x.toml", kExperiment);
  const auto plan = run_command({"/bin/sh", "-c", kProgram + " plan " + path + " | true"});
  CHECK(plan.err.empty());
}

TEST_CASE("the list of queries tells each to its end") {
  CHECK(widest_line(run({"query"}).out) <= 100);
  CHECK(widest_line(run({"query", "--all"}).out) <= 100);
  CHECK(wide(5000, {"query", "--all"})
            .find("highest from what links and model were measured to cost") != std::string::npos);
}

TEST_CASE("a job that Slurm starts again comes to its runs in their order, then to new ones") {
  const Folder folder;
  // Without a GPU nothing of it is measured: it is all about which run it is.
  const auto path = folder.file("x.toml", kExperiment);
  const auto db = folder.path("x.sqlite");
  const auto run_in_job = [&](const std::string& restarts) {
    CommandOptions job;
    job.environment = {{"SLURM_JOB_ID", "7"}, {"SLURM_RESTART_COUNT", restarts}};
    const auto done = run_command({kProgram, "run", path, "--set", "axes.backend=nccl", "--set",
                                   "protocol.launches=1", "--no-report", "--json", "--db", db},
                                  job);
    INFO(done.err);
    return nlohmann::json::parse(done.out)["run_id"].get<std::string>();
  };
  std::vector<std::string> first;
  for (int call = 0; call < 3; ++call) first.push_back(run_in_job("0"));
  CHECK(std::set<std::string>(first.begin(), first.end()).size() == 3);
  for (const char* restarts : {"1", "2"})
    for (const auto& known : first) CHECK(run_in_job(restarts) == known);
  const auto further = run_in_job("2");
  CHECK(std::find(first.begin(), first.end(), further) == first.end());
}
