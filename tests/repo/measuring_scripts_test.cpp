// What scripts that measure leave behind, and what they say of it with their exit code.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "containers/command.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

const std::string kScripts = std::string(DYNAMICCL_SOURCE_DIR) + "/scripts/";

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "measuring-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream file(path + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string path;
};

/// scripts/loadable_gains.sh in a tree of its own, whose program ends as `$TUNE`, `$CHECK` and
/// `$EXPORT` say.
CommandResult gains(const std::string& ends) {
  const Folder tree;
  fs::create_directories(tree.path + "/scripts");
  fs::create_directories(tree.path + "/build/release");
  for (const char* name : {"loadable_gains.sh", "gpu_setup.sh", "plain_gains.py"})
    fs::copy(kScripts + name, tree.path + "/scripts/" + name);
  const std::string program = tree.path + "/build/release/dynamiccl";
  std::ofstream(program) << R"(#!/bin/bash
case $* in
  *--check*) exit ${CHECK:-0} ;;
  tune*) while [ $# -gt 0 ]; do [ "$1" != --table ] || echo {} >"$2"; shift; done; exit ${TUNE:-0} ;;
  export*) echo "${SAYS:-}"; exit ${EXPORT:-0} ;;
esac
)";
  fs::permissions(program, fs::perms::owner_all);
  return run_command(
      {"bash", "-c",
       "export DYNAMICCL_NCCL_LIBRARY=/none ENVIRONMENTS=bare-metal BACKENDS=openmpi " + ends +
           "; exec bash \"$0/scripts/loadable_gains.sh\" \"$0/out\" 60 2 4",
       tree.path});
}

/// The part `hooks` of scripts/gpu_train.sh, its programs replaced by what prints what they see.
CommandResult hooks(const Folder& out, const std::string& experiment, const std::string& after) {
  return run_command(
      {"bash", "-c",
       "out=$0 failed=0 program=true db= given=() LINK=1gbit\n"
       "say() { :; }\n"
       "tc() { echo \"tc $2\" >>\"$out/seen\"; }\n"
       "timeout() { echo \"rank over ${NCCL_SOCKET_IFNAME:-any}\" >>\"$out/seen\"; }\n"
       "experiment() { env | grep ^NCCL_ >>\"$out/seen\"; " +
           experiment +
           "; }\n"
           "eval \"$(sed -n '/^hooks() {/,/^}/p' \"$1\")\"\n"
           "hooks 1\n" +
           after,
       out.path, kScripts + "gpu_train.sh"});
}

}  // namespace

TEST_CASE("what loadable files gain is no success where one of its steps failed") {
  const auto good = gains("SAYS=");
  INFO(good.out << good.err);
  CHECK(good.exit_code == 0);
  CHECK_THAT(good.out, ContainsSubstring("all done"));
  for (const char* ends : {"TUNE=1", "CHECK=1", "EXPORT=2 SAYS='cannot be written'"}) {
    const auto bad = gains(ends);
    INFO(ends << "\n" << bad.out << bad.err);
    CHECK(bad.exit_code == 1);
    CHECK_THAT(bad.out, ContainsSubstring("all done"));
  }
  // The time was over, or there was nothing to export.
  CHECK(gains("TUNE=124 CHECK=124").exit_code == 0);
  CHECK(gains("EXPORT=2 SAYS='of the table none was surely faster and harmless'").exit_code == 0);
}

TEST_CASE("the part with DDP's hooks leaves NCCL's variables and the loopback as they were") {
  const Folder ended;
  CHECK(hooks(ended, "false", "env | grep -c ^NCCL_ >\"$out/left\"").exit_code >= 0);
  CHECK_THAT(ended.text("seen"),
             ContainsSubstring("tc replace") && ContainsSubstring("rank over lo") &&
                 ContainsSubstring("NCCL_P2P_DISABLE=1") && ContainsSubstring("tc del"));
  CHECK(ended.text("seen").find("tc del") == ended.text("seen").rfind("tc del"));
  CHECK(ended.text("left") == "0\n");
  const Folder stopped;
  hooks(stopped, "kill -INT $$; sleep 1", "");
  CHECK_THAT(stopped.text("seen"), ContainsSubstring("tc replace") && ContainsSubstring("tc del"));
}
