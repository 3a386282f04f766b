#include "orchestrator/cli/verbs/completion.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <stdexcept>

#include "orchestrator/cli/verbs/verbs.hpp"

using namespace dynamiccl;

namespace {

/// A command table with a verb of every kind of argument.
class Table {
 public:
  Table() {
    auto* run = app.add_subcommand("run", "measure an experiment");
    run->add_option("FILE", text_, "experiment file");
    run->add_option("--db", text_, "database");
    run->add_flag("--resume", flag_, "go on");
    run->add_flag("-q,--quiet", flag_, "errors only");
    run->add_option("--hidden", text_, "for the program itself")->group("");
    auto* show = app.add_subcommand("show", "one run");
    show->add_option("RUN", text_, "run id");
    add_choice_option(*show, "--format", text_, {"table", "csv"}, "how it is written");
    auto* query = app.add_subcommand("query", "ask");
    query->add_option("NAME", text_, "query");
    query->add_option("--run", texts_, "run id")->take_all()->allow_extra_args(false);
    query->add_option("--vary", text_, "axis");
    query->add_option("--where", text_, "condition");
    auto* import = app.add_subcommand("import", "other programs' tables");
    import->add_option("FILE", texts_, "tables");
    add_choice_option(*import, "--format", text_, {"auto", "nccl-tests", "nccl-tests-json"},
                      "what the files are");
    auto* write = app.add_subcommand("export", "files for jobs");
    add_choice_option(*write, "--format", texts_, {"nccl", "gloo"}, "what for");
    auto* compare = app.add_subcommand("compare", "two sides");
    compare->add_option("A", text_, "the base");
    auto* doctor = app.add_subcommand("doctor", "look");
    doctor->add_option("ENVIRONMENT", texts_, "profiles");
    doctor->add_option("--cause", texts_, "causes");
    doctor->add_option("--band", text_, "share");
    doctor->add_option("--out", text_, "a file");
    doctor->add_option("--launches", number_, "how many")->check(CLI::PositiveNumber);
  }

  std::vector<std::string> at(std::vector<std::string> words) const {
    words.insert(words.begin(), "dynamiccl");
    CompletionSources sources;
    sources.runs = [] { return std::vector<Candidate>{{"3fa9", "smoke"}, {"77aa", "quickstart"}}; };
    sources.queries = [] { return std::vector<Candidate>{{"latency", ""}, {"noise", ""}}; };
    sources.environments = []() -> std::vector<Candidate> {
      throw std::runtime_error("no profiles here");
    };
    std::vector<std::string> found;
    for (const auto& candidate : complete(app, words, words.size() - 1, sources))
      found.push_back(candidate.word);
    std::sort(found.begin(), found.end());
    return found;
  }

  CLI::App app{"test", "dynamiccl"};

 private:
  int number_ = 0;
  std::string text_;
  std::vector<std::string> texts_;
  bool flag_ = false;
};

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("verbs and their options come from the command table") {
  const Table table;
  CHECK(table.at({""}) == Words{"compare", "doctor", "export", "import", "query", "run", "show"});
  CHECK(table.at({"r"}) == Words{"run"});
  CHECK(table.at({"run", "--"}) == Words{"--db", "--help", "--quiet", "--resume"});
  CHECK(table.at({"run", "--re"}) == Words{"--resume"});
  CHECK(table.at({"nothing", ""}).empty());
}

TEST_CASE("arguments are completed by what they are") {
  const Table table;
  CHECK(table.at({"show", ""}) == Words{"3fa9", "77aa", "last", "last~1"});
  CHECK(table.at({"show", "3"}) == Words{"3fa9"});
  CHECK(table.at({"query", ""}) == Words{"latency", "noise"});
  CHECK(table.at({"query", "latency", "--run", "7"}) == Words{"77aa"});
  CHECK(table.at({"show", "--format", "c"}) == Words{"csv"});
  CHECK(table.at({"show", "--format", "=", "t"}) == Words{"table"});
  CHECK(table.at({"show", "--format", "="}) == Words{"csv", "table"});
  CHECK(table.at({"show", "--format", "csv", "7"}) == Words{"77aa"});
  // A second RUN does not exist; what is left are options.
  CHECK(table.at({"show", "3fa9", ""}) == Words{"--format", "--help"});
}

TEST_CASE("an option that takes some words is completed with those of its own verb") {
  const Table table;
  CHECK(table.at({"show", "--format", ""}) == Words{"csv", "table"});
  CHECK(table.at({"export", "--format", ""}) == Words{"gloo", "nccl"});
}

TEST_CASE("a shell that leaves --format=csv in one piece gets the whole of it back") {
  const Table table;
  CHECK(table.at({"show", "--format="}) == Words{"--format=csv", "--format=table"});
  CHECK(table.at({"show", "--format=c"}) == Words{"--format=csv"});
  CHECK(table.at({"show", "--nothing=c"}).empty());
  CHECK(table.at({"query", "x", "--where=back"}) == Words{"--where=backend="});
}

TEST_CASE("the values of an axis are completed behind its equals sign") {
  const Table table;
  const Words backends{"cuda-aware-mpi", "gloo", "mpich", "nccl", "openmpi"};
  // bash splits at "=" and takes what follows it.
  CHECK(table.at({"query", "x", "--where", "backend", "="}) == backends);
  CHECK(table.at({"query", "x", "--where", "backend", "=", "g"}) == Words{"gloo"});
  CHECK(table.at({"query", "x", "--where", "=", "backend", "=", "g"}) == Words{"gloo"});
  CHECK(table.at({"query", "x", "--where", "=", "back"}) == Words{"backend="});
  CHECK(table.at({"query", "x", "--where", "in_place", "="}) == Words{"0", "1"});
  CHECK(table.at({"query", "x", "--where", "collective", "=", "allre"}) == Words{"allreduce"});
  CHECK(table.at({"compare", "backend", "=", "m"}) == Words{"mpich"});
  // zsh and fish leave the word whole.
  CHECK(table.at({"query", "x", "--where", "backend=g"}) == Words{"backend=gloo"});
  CHECK(table.at({"query", "x", "--where=backend=g"}) == Words{"--where=backend=gloo"});
  CHECK(table.at({"compare", "backend=m"}) == Words{"backend=mpich"});
  // An axis without names, one that no list has, and one whose source fails.
  for (const char* axis : {"ranks", "nothing", "environment"}) {
    CAPTURE(axis);
    CHECK(table.at({"query", "x", "--where", axis, "="}).empty());
    CHECK(table.at({"query", "x", "--where", axis, "=", "g"}).empty());
    CHECK(table.at({"query", "x", "--where", std::string(axis) + "=g"}).empty());
  }
  // What was typed before is one word, and the next one begins behind a blank.
  CHECK(table.at({"compare", "backend", "=", "mpich", ""}) == Words{"--help"});
  CHECK(table.at({"query", "--where", "backend", "=", "mpich", "lat"}) == Words{"latency"});
  CHECK(table.at({"query", "x", "--where", "backend", "=", "mpich", "--va"}) == Words{"--vary"});
}

TEST_CASE("one name may mean something else in another verb") {
  const Table table;
  CHECK(table.at({"import", "--format", "nccl"}) == Words{"nccl-tests", "nccl-tests-json"});
  const std::string root = DYNAMICCL_SOURCE_DIR "/";
  CHECK(table.at({"import", root + "READ"}) == Words{root + "README.md"});
  CHECK(table.at({"query", "x", "--vary", "back"}) == Words{"backend"});
  CHECK(table.at({"query", "x", "--where", "back"}) == Words{"backend="});
  CHECK(table.at({"doctor", "--cause", "cma"}) == Words{"cma-blocked"});
}

TEST_CASE("a side of a comparison may be a run, an axis or a database") {
  const Table table;
  CHECK(table.at({"compare", "3"}) == Words{"3fa9"});
  CHECK(table.at({"compare", "ba"}) == Words{"backend="});
  CHECK(table.at({"compare", "last"}) == Words{"last", "last~1"});
}

TEST_CASE("a source that fails offers nothing instead of a message") {
  CHECK(Table().at({"doctor", "b"}).empty());
}

TEST_CASE("files are those that the argument takes") {
  const Table table;
  const std::string folder = DYNAMICCL_SOURCE_DIR "/experiments/";
  CHECK(table.at({"run", folder + "quick"}) == Words{folder + "quickstart.toml"});
  CHECK(table.at({"run", "--resume", folder + "smo"}) == Words{folder + "smoke.toml"});
  const std::string root = DYNAMICCL_SOURCE_DIR "/";
  CHECK(table.at({"run", root + "exper"}) == Words{root + "experiments/"});
  CHECK(table.at({"run", "--db", root + "CMakeL"}).empty());
}

TEST_CASE("no file is offered where a number is meant") {
  const Table table;
  const std::string root = DYNAMICCL_SOURCE_DIR "/";
  CHECK(table.at({"doctor", "--out=" + root + "READ"}) == Words{"--out=" + root + "README.md"});
  for (const char* option : {"--band", "--launches"}) {
    CAPTURE(option);
    CHECK(table.at({"doctor", option, root}).empty());
    CHECK(table.at({"doctor", option + ("=" + root)}).empty());
  }
}

TEST_CASE("scripts are there for three shells and ask the program") {
  for (const char* shell : {"bash", "zsh", "fish"})
    CHECK(completion_script(shell).find(" completion ") != std::string::npos);
}
