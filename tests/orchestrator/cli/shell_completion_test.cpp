#include <catch2/catch_test_macros.hpp>

#include "core/vocabulary/text.hpp"
#include "db/store.hpp"
#include "tests/orchestrator/cli/program.hpp"

using namespace dynamiccl;
using testing::Folder;
using testing::kProgram;
using testing::run;

namespace {

/// What a user typed before the tab key, a line each.
std::string ask_all(const std::vector<std::string>& typed) {
  std::string script;
  for (const std::string& words : typed) script += "ask " + kProgram + " " + words + "\n";
  return script;
}

/// @param begin what makes a shell behave as where a line is typed
/// @param offered what the shell shows of the answer
std::string asked(const std::string& shell, const std::string& begin, const std::string& offered) {
  const Folder folder;
  const std::string script = folder.file(
      "complete", begin + "source <(" + kProgram + " completion " + shell +
                      ")\n"
                      "ask() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); "
                      "_dynamiccl; echo \"" +
                      offered + "\"; }\n" +
                      ask_all({"ru", "run --res", "run experi", "query lat", "list --format mark",
                               "list --format = mark", "list --format =", "completion z"}));
  const auto answer =
      run_command(shell == "zsh" ? std::vector<std::string>{"zsh", "-f", script}
                                 : std::vector<std::string>{"bash", "--norc", script});
  CHECK(answer.exit_code == 0);
  CHECK(answer.err.empty());
  return answer.out;
}

constexpr const char* kAnswers =
    "run\n--resume\n\nlatency\nmarkdown\nmarkdown\ntable markdown csv json\nzsh\n";

}  // namespace

TEST_CASE("bash completes verbs, options and the words that they take") {
  CHECK(asked("bash", "", "${COMPREPLY[@]}") == kAnswers);
}

TEST_CASE("zsh completes the same by its bashcompinit") {
  if (find_program("zsh").empty()) SKIP("no zsh here: apt-get install zsh");
  // The line editor keeps what begins as the word does; here that is done by hand.
  CHECK(asked("zsh", "autoload -U compinit && compinit -u -D\nsetopt ksharrays\n",
              "${(@M)COMPREPLY[@]:#${COMP_WORDS[COMP_CWORD]#=}*}") == kAnswers);
}

TEST_CASE("fish completes verbs, options and files") {
  if (find_program("fish").empty()) SKIP("no fish here: apt-get install fish");
  const Folder folder;
  const std::string script = folder.file(
      "complete.fish", kProgram +
                           " completion fish | source\n"
                           "function ask; complete -C \"dynamiccl $argv\" | string replace -r "
                           "'\\t.*' ''; end\n"
                           "ask ru\n"
                           "ask run --res\n"
                           "ask run " DYNAMICCL_SOURCE_DIR
                           "/experiments/quick\n"
                           "ask query lat\n"
                           "ask report --format=js\n");
  const auto answer = run_command({"fish", "--no-config", script});
  CHECK(answer.exit_code == 0);
  CHECK(answer.err.empty());
  CHECK(answer.out == "run\n--resume\n" DYNAMICCL_SOURCE_DIR
                      "/experiments/quickstart.toml\nlatency\n--format=json\n");
}

TEST_CASE("every verb of the table can be completed, the hidden options cannot") {
  const auto script = run({"completion", "bash"});
  CHECK(script.exit_code == 0);
  for (const char* verb : {"run", "show", "replay", "completion", "schema"})
    CHECK(script.out.find(std::string("*\" ") + verb + " \"*") != std::string::npos);
  CHECK(script.out.find("*\" completion \"*) [[ $word == -* ]] && words='--help -h' ||") !=
        std::string::npos);
  CHECK(run({"completion"}).exit_code == 2);
  const auto shell = run({"completion", "tcsh"});
  CHECK(shell.exit_code == 2);
  CHECK(shell.err.find("known: bash, zsh, fish") != std::string::npos);
}

TEST_CASE("completion offers the words that an option takes, and no other") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  const Store empty(db);
  const auto script = run({"completion", "bash"}).out;
  for (std::vector<std::string> words : {std::vector<std::string>{"query", "runs"},
                                         {"list"},
                                         {"show"},
                                         {"report"},
                                         {"compare", "last"}}) {
    const std::string head = "*\" " + words.front() + " --format\") words='";
    const auto begin = script.find(head);
    REQUIRE(begin != std::string::npos);
    const auto offered = script.substr(
        begin + head.size(), script.find('\'', begin + head.size()) - begin - head.size());
    words.insert(words.end(), {"--format", "zzz", "--db", db});
    const auto refused = run(words);
    INFO(words.front() << ": " << offered << refused.err);
    CHECK(refused.exit_code == 2);
    CHECK(refused.err.find("known: " + join(split(offered, ' '), ", ") + "\n") !=
          std::string::npos);
  }
}
