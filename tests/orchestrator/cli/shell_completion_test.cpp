#include <catch2/catch_test_macros.hpp>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "db/store.hpp"
#include "tests/orchestrator/cli/program.hpp"

using namespace dynamiccl;
using testing::Folder;
using testing::kProgram;
using testing::run;

/// What a user typed before the tab key, a line each.
static std::string ask_all(const std::vector<std::string>& typed) {
  std::string script;
  for (const std::string& words : typed) script += "ask " + kProgram + " " + words + "\n";
  return script;
}

TEST_CASE("bash completes verbs, options, files and ids by asking the program") {
  const Folder folder;
  const std::string script = folder.file(
      "complete.sh",
      "source <(" + kProgram +
          " completion bash)\n"
          "ask() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _dynamiccl; "
          "echo \"${COMPREPLY[@]}\"; }\n"
          "compopt() { :; }\n" +
          ask_all({"ru", "run --res", "run " DYNAMICCL_SOURCE_DIR "/experiments/quick", "query lat",
                   "list --format = mark", "compare --where backend = g",
                   "show --db " + folder.path("none.sqlite") + " la"}));
  const auto asked = run_command({"bash", script});
  CHECK(asked.exit_code == 0);
  CHECK(asked.err.empty());
  CHECK(asked.out == "run\n--resume\n" DYNAMICCL_SOURCE_DIR
                     "/experiments/quickstart.toml\nlatency\nmarkdown\ngloo\nlast last~1\n");
}

TEST_CASE("zsh completes verbs, options, files and ids by asking the program") {
  if (find_program("zsh").empty()) SKIP("no zsh here: apt-get install zsh");
  const Folder folder;
  // What the line editor would hand over, and a _describe and compadd that say what they were told.
  const std::string script =
      folder.file("complete.zsh",
                  "compdef() { :; }\n"
                  "_describe() { print -rl -- ${${(P)4}%%:*}; }\n"
                  "compadd() { print -rl -- \"${(@P)4}\"; }\n"
                  "source <(" +
                      kProgram +
                      " completion zsh)\n"
                      "ask() { words=(\"$@\"); CURRENT=$#; _dynamiccl; }\n" +
                      ask_all({"ru", "run --res", "run " DYNAMICCL_SOURCE_DIR "/experi",
                               "query lat", "export --format=gl", "compare --where backend=g",
                               "show --db " + folder.path("none.sqlite") + " la"}));
  const auto asked = run_command({"zsh", "-f", script});
  CHECK(asked.exit_code == 0);
  CHECK(asked.err.empty());
  CHECK(asked.out == "run\n--resume\n" DYNAMICCL_SOURCE_DIR
                     "/experiments/\nlatency\n--format=gloo\nbackend=gloo\nlast\nlast~1\n");
}

TEST_CASE("fish completes verbs, options, files and ids by asking the program") {
  if (find_program("fish").empty()) SKIP("no fish here: apt-get install fish");
  const Folder folder;
  // A command is completed by its name, so the program's folder has to be in the path.
  const std::string script = folder.file(
      "complete.fish",
      "set -x PATH " DYNAMICCL_BINARY_DIR
      " $PATH\n"
      "dynamiccl completion fish | source\n"
      "function ask; complete -C \"dynamiccl $argv\" | string replace -r '\\t.*' ''; end\n"
      "ask ru\n"
      "ask run --res\n"
      "ask run " DYNAMICCL_SOURCE_DIR
      "/experiments/quick\n"
      "ask query lat\n"
      "ask report --format=js\n"
      "ask compare --where backend=g\n"
      "ask show --db " +
          folder.path("none.sqlite") + " la\n");
  const auto asked = run_command({"fish", "--no-config", script});
  CHECK(asked.exit_code == 0);
  CHECK(asked.err.empty());
  CHECK(asked.out ==
        "run\n--resume\n" DYNAMICCL_SOURCE_DIR
        "/experiments/quickstart.toml\nlatency\n--format=json\nbackend=gloo\nlast\nlast~1\n");
}

TEST_CASE("every verb of the table can be completed, the hidden options cannot") {
  const auto verbs = run({"completion", "--index", "1", "--", "dynamiccl", ""});
  CHECK(verbs.exit_code == 0);
  for (const char* verb : {"run", "show", "replay", "completion", "schema"})
    CHECK(verbs.out.find(std::string(verb) + "\n") != std::string::npos);
  const auto options = run({"completion", "--index", "2", "--", "dynamiccl", "completion", "--"});
  CHECK(options.out == "--help\n");
  const auto shell = run({"completion", "tcsh"});
  CHECK(shell.exit_code == 2);
  CHECK(shell.err.find("known: bash, zsh, fish") != std::string::npos);
}

TEST_CASE("ids are those of the database that the line names, however it names it") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  RunInfo info;
  info.id = "e8a4c1d2-0000-4000-8000-000000000000";
  info.name = "named";
  Store(db).begin_run(info, {}, {});
  const std::vector<std::vector<std::string>> lines{{"--db", db, "e8"},
                                                    {"--db=" + db, "e8"},
                                                    {"--db", "=", db, "e8"},  // as bash splits it
                                                    {"e8", "--db=" + db}};
  for (const auto& line : lines) {
    CAPTURE(line);
    const std::size_t at = line.front() == "e8" ? 2 : line.size() + 1;
    std::vector<std::string> words{"completion", "--index",   std::to_string(at),
                                   "--",         "dynamiccl", "show"};
    words.insert(words.end(), line.begin(), line.end());
    CHECK(run(words).out == "e8a4c1d2\n");
  }
}

TEST_CASE("completion offers the words that an option takes, and no other") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  const Store empty(db);
  for (std::vector<std::string> words : {std::vector<std::string>{"query", "runs"},
                                         {"list"},
                                         {"show"},
                                         {"report"},
                                         {"compare", "last"},
                                         {"import", db}}) {
    const auto offered =
        run({"completion", "--index", "3", "--", "dynamiccl", words.front(), "--format", ""});
    words.insert(words.end(), {"--format", "zzz", "--db", db});
    const auto refused = run(words);
    INFO(words.front() << ": " << offered.out << refused.err);
    CHECK(refused.exit_code == 2);
    auto known = split(std::string(trim(offered.out)), '\n');
    CHECK(refused.err.find("known: " + join(known, ", ") + "\n") != std::string::npos);
  }
  const auto traced =
      run({"completion", "--index", "4", "--", "dynamiccl", "show", "last", "--trace", "wfbp"});
  CHECK(traced.out == "wfbp-ps\nwfbp-a2a\n");
  const auto of_export = run({"export", "--help"});
  CHECK(of_export.out.find("nccl|env|openmpi|mpich|gloo|toml") != std::string::npos);
}
