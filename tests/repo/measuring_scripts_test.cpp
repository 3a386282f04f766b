// What scripts that measure leave behind, and what they say of it with their exit code.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

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

TEST_CASE("what a plain program gained has no interval below three turns") {
  const auto said = [](const std::string& turns) {
    return run_command({"bash", "-c",
                        "for t in " + turns +
                            "; do echo $t default allreduce 4 10$t; echo $t loaded allreduce 4 5$t;"
                            " done | python3 \"$0\" /dev/stdin",
                        kScripts + "plain_gains.py"})
        .out;
  };
  CHECK_THAT(said("1 2"), ContainsSubstring("     -      -      2  \n"));
  CHECK_THAT(said("1 2"), !ContainsSubstring("e+"));
  CHECK_THAT(said("1 2 3"), ContainsSubstring("3  FASTER\n"));
}

TEST_CASE("turns of a plain program that a launch failed in do not count") {
  const Folder folder;
  // Launches take half of the time where the file is loaded; the second turn fails.
  const auto turns = [&](int pairs, const std::string& fails) {
    return run_command({"bash", "-c",
                        "cd " + kScripts +
                            ".. && . scripts/plain_turns.sh && one() {"
                            " for side in $2; do n=${#side};"
                            "   echo \"$1 $side allreduce 4096 $((n == 6 ? 50 + $1 : 100 + $1))\";"
                            " done; [ \"$1\" != \"" +
                            fails +
                            "\" ]; };"
                            "PAIRS=" +
                            std::to_string(pairs) + "; plain_turns $((SECONDS + 60)) \"$0\" one",
                        folder.path});
  };
  CHECK(turns(6, "").exit_code == 0);
  CHECK_THAT(folder.text("gains.txt"), ContainsSubstring("1 of 1 sizes FASTER"));
  const auto failed = turns(3, "2");
  CHECK(failed.exit_code == 1);
  CHECK_THAT(failed.err, ContainsSubstring("turn 2: a launch failed"));
  CHECK(folder.text("plain.txt").find("2 loaded") == std::string::npos);
  CHECK_THAT(folder.text("plain.txt"), ContainsSubstring("3 loaded"));
  // Two turns say nothing, nor does none.
  CHECK_THAT(folder.text("gains.txt"), ContainsSubstring("2 of at least 3 turns: too few"));
  turns(1, "1");
  CHECK_THAT(folder.text("gains.txt"), ContainsSubstring("nothing was compared"));
}

TEST_CASE("the plain NCCL program says what it lacks before it searches") {
  const Folder folder;
  const auto ran = run_command(
      {"bash", "-c", "RANKS=1 exec bash " + kScripts + "plain_nccl.sh \"$0\" 20", folder.path});
  CHECK(ran.exit_code == 1);
  CHECK_THAT(ran.err, ContainsSubstring("two are needed"));
}

TEST_CASE("a comparison between runs goes on where its time was over") {
  const Folder tree;
  fs::create_directories(tree.path + "/scripts");
  fs::create_directories(tree.path + "/build/release");
  for (const char* name : {"between_runs.sh", "gpu_setup.sh"})
    fs::copy(kScripts + name, tree.path + "/scripts/" + name);
  std::ofstream(tree.path + "/ways.toml") << "[[work]]\n[[work]]\n";
  const std::string program = tree.path + "/build/release/dynamiccl";
  std::ofstream(program) << R"(#!/bin/bash
[ "$1" = query ] || echo "$*" >>"${0%/build*}/calls"
case $* in
  run*) echo x >"${*: -1}"; [ "${RUNS:-0}" != 2 ] || echo "ways.toml: nothing to resume: none" >&2; exit ${RUNS:-0} ;;
  query*) echo runs,ok; cat "${0%/build*}/stored"; exit ;;
  *--replay*) echo best-fixed ;;
  *) exit ${LIVE:-0} ;;
esac
)";
  fs::permissions(program, fs::perms::owner_all);
  const auto compare = [&](const std::string& settings) {
    return run_command({"bash", "-c",
                        "export DYNAMICCL_NCCL_LIBRARY=/none EXPERIMENT=ways.toml " + settings +
                            "; exec bash \"$0/scripts/between_runs.sh\" \"$0/out\" 60",
                        tree.path});
  };
  const auto cut = compare("LAUNCHES=3 STEPS=8 RUNS=130");
  INFO(cut.out << cut.err);
  CHECK(cut.exit_code == 75);
  CHECK_THAT(cut.out, ContainsSubstring("call this again with the same folder"));
  CHECK_THAT(tree.text("calls"), ContainsSubstring("--set protocol.launches=3 --set work.0.steps=8 "
                                                   "--set work.1.steps=8 --no-report"));
  // The runs are resumed, then every agent searches; a failed search is begun again alone.
  const std::string same = "LAUNCHES=3 STEPS=8 ";
  // A file alone is no run to resume.
  std::ofstream(tree.path + "/stored") << "0,\n";
  CHECK(compare(same + "RUNS=130").exit_code == 75);
  CHECK_THAT(tree.text("calls"), !ContainsSubstring("--resume"));
  std::ofstream(tree.path + "/stored") << "1,3\n";
  // Failed launches keep nothing back, and are tried again until none is left.
  CHECK(compare(same + "RUNS=1 LIVE=1").exit_code == 1);
  CHECK_THAT(tree.text("calls"), ContainsSubstring("--resume"));
  CHECK_THAT(tree.text("calls"), ContainsSubstring("--between-runs --db "));
  CHECK(compare(same + "RUNS=2 LIVE=1").exit_code == 1);
  CHECK(compare("LAUNCHES=4").exit_code == 2);
  CHECK_THAT(tree.text("calls"), ContainsSubstring("--environments --replay"));
  fs::remove(tree.path + "/calls");
  const auto whole = compare(same);
  CHECK(whole.exit_code == 0);
  CHECK_THAT(whole.out, ContainsSubstring("best-fixed"));
  CHECK(tree.text("calls").starts_with("tune ways.toml --set "));
  CHECK(tree.text("calls").find("--replay") == std::string::npos);
}

TEST_CASE("tests of a checkout below /tmp have a place for their files that no other test has") {
  const Folder folder;
  const auto in = [&](const std::string& own) {
    return run_command({"bash", "-c",
                        "cd \"$0\" && exec sh \"$1\" \"$2\" sh -c 'echo $TMPDIR; pwd'", folder.path,
                        std::string(DYNAMICCL_SOURCE_DIR) + "/tests/apart.sh", own});
  };
  const auto first = in(folder.path + "-first");
  INFO(first.out << first.err);
  if (first.err.find("no namespaces of its own") != std::string::npos)
    SKIP("namespaces cannot be made here");
  REQUIRE(first.exit_code == 0);
  CHECK(first.out == folder.path + "-first\n" + folder.path + "\n");
  CHECK_FALSE(fs::exists(folder.path + "-first"));
  CHECK(fs::exists(folder.path));
}

TEST_CASE("time to an accuracy is steps until then times a step behind the link") {
  const Folder folder;
  const auto ran = [&](const std::string& lines) {
    return run_command({"bash", "-c",
                        "cd \"$0\" && " + lines + "; python3 " + kScripts + "hook_times.py .",
                        folder.path});
  };
  const auto result = ran(
      R"(for seed in 1 2; do
  echo "{\"hook\": \"none\", \"seed\": $seed, \"steps\": 1000, \"accuracy\": 0.6, \"reached\": true}"
  echo "{\"hook\": \"post-local\", \"seed\": $seed, \"steps\": 264, \"accuracy\": 0.6, \"reached\": true}"
done >trajectories.jsonl
echo '{"link": "1gbit", "hook": "none", "seed": 1, "mean_ms": 100}
{"link": "1gbit", "hook": "post-local", "seed": 1, "mean_ms": 10}' >steps.jsonl
echo '{"rows": [{"seed": 1, "environment": "bare-metal", "synchronisation": "bsp", "compression": "powersgd", "reached": 1,
  "steps": 800, "accuracy": 0.61, "trained_us": 5},
 {"seed": 2, "environment": "bare-metal", "synchronisation": "bsp", "compression": "powersgd", "reached": 0,
  "steps": 2048, "accuracy": 0.55, "trained_us": 5}]}' >ours-seed1.json
echo '[{"seed": 1, "environment": "cross-docker-1gbit", "synchronisation": "bsp", "compression": "none", "steps": 10,
  "trained_us": 1100000}, {"seed": 1, "environment": "cross-docker-1gbit", "synchronisation": "bsp",
  "compression": "powersgd", "steps": 40, "trained_us": 200000}]' >ours-steps.json)");
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK_THAT(result.out,
             ContainsSubstring("| DDP | none | 2 of 2 | 1000 [1000, 1000] | 100.00 | 100.00 "));
  // 64 plain steps and 200 local ones.
  CHECK_THAT(
      result.out,
      ContainsSubstring(
          "| DDP | post-local | 2 of 2 | 264 [264, 264] | 10.00 | 8.40 [8.40, 8.40] | 0.084 "));
  // The seed that missed the target is counted and has no time.
  CHECK_THAT(result.out,
             ContainsSubstring("| ours | powersgd | 1 of 2 | 800 | 5.00 | 4.00 | 0.040 |"));
  CHECK_THAT(result.out, ContainsSubstring("| none | 1 | 1.100 |"));
  // Whole trainings: of seed 1 theirs ran twice, in seed 3 ours missed the target.
  const auto whole = ran(
      R"(for each in "1, \"seconds\": 90" "1, \"seconds\": 80" "2, \"seconds\": 50" "3, \"seconds\": 60"; do
  echo "{\"link\": \"1gbit\", \"hook\": \"none\", \"steps\": 7, \"reached\": true, \"seed\": $each}"
done >direct.jsonl
for each in '1, "reached": 1' '2, "reached": 1' '3, "reached": 0'; do
  echo '{"environment": "cross-docker-1gbit", "synchronisation": "bsp", "compression": "powersgd", "steps": 9,
    "trained_us": 20000000, "seed": '"$each},"
done | sed '1s/^/[/; $s/,$/]/' >ours-direct.json)");
  INFO(whole.out << whole.err);
  REQUIRE(whole.exit_code == 0);
  CHECK_THAT(whole.out, ContainsSubstring("| ours | powersgd | 1gbit | 3 | 9 | 20.00 | no |"));
  CHECK_THAT(whole.out,
             ContainsSubstring("| powersgd | none | 1gbit | 2 | 0.325 [0.250, 0.400] |"));
  // The writer of a line may have ended in it.
  const auto half = ran(R"(printf '{"hook": "none", "seed": 3, "st' >>trajectories.jsonl)");
  INFO(half.out << half.err);
  REQUIRE(half.exit_code == 0);
  CHECK_THAT(half.err, ContainsSubstring("trajectories.jsonl:5: no whole line of JSON") &&
                           ContainsSubstring("left out"));
  CHECK_THAT(half.out, ContainsSubstring("| DDP | none | 2 of 2 | 1000 [1000, 1000] |"));
}

TEST_CASE("a cluster's bar is missed by a program that ends before its jobs are there") {
  const Folder folder;
  // A queue of as many jobs as $QUEUED, and a program that $ENDS.
  const auto submitted = [&](const std::string& program, int queued) {
    std::ofstream(folder.path + "/dynamiccl") << "#!/bin/sh\n" << program << "\n";
    std::ofstream(folder.path + "/squeue") << "#!/bin/sh\n[ -e cleaned ] || seq " << queued << "\n";
    for (const char* name : {"dynamiccl", "squeue"})
      fs::permissions(folder.path + "/" + name, fs::perms::owner_all);
    fs::remove(folder.path + "/cleaned");
    return run_command({"bash", "-c", "cd \"$0\" && PATH=$PWD:$PATH exec python3 bars.py \"$1\"",
                        folder.path, kScripts});
  };
  std::ofstream(folder.path + "/bars.py") << R"(
import argparse, pathlib, subprocess, sys
sys.path.insert(0, sys.argv[1])
from cluster_bars import Bars

class Here:
    def shell(self, host, line):
        return subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    def on(self, host, *words):
        pathlib.Path("cleaned").touch()
        return subprocess.run(["true"], capture_output=True, text=True)

bars = Bars(argparse.Namespace(build=pathlib.Path(".")))
bars.rig = Here()
bars.say("plan", {"submit_array_s": bars.submit("array")}, {"submit_array_s": 10})
print("\n".join(bars.wrong))
sys.exit(bool(bars.wrong))
)";
  const auto good = submitted("exec sleep 20", 1000);
  INFO(good.out << good.err);
  CHECK(good.exit_code == 0);
  const auto dead = submitted("echo no such partition; exit 1", 3);
  INFO(dead.out << dead.err);
  CHECK(dead.exit_code == 1);
  CHECK_THAT(dead.out, ContainsSubstring("3 of 990 jobs were seen with array: no such partition"));
  CHECK_THAT(dead.out, ContainsSubstring("submit_array_s was not reached"));
}

namespace {

/// A folder with a program that answers scripts/trainer_ab.py, whose runs are the lines of their
/// database: its launches fail with FAILS, and measure nothing of the backend that REFUSES names.
struct Compared : Folder {
  Compared() {
    fs::create_directories(path + "/build/release");
    const std::string program = path + "/build/release/dynamiccl";
    std::ofstream(program) << R"(#!/bin/bash
case $1-$* in
  run-*) db=${*: -1}; [ -z "$FAILS" ] || exit 1; basename "$2" >>"$db"; exit ;;
esac
backend=$(tail -n 1 "$3") backend=${backend%%-*}
case $* in
  *"SELECT run_id"*"LIMIT 1") echo "[{\"run_id\": \"$(wc -l <"$3")\"}]" ;;
  *"DISTINCT reason"*) echo '[{"reason": "no worker is built"}]' ;;
  *) [ "$REFUSES" != $backend ] || { echo '[]'; exit; }
    echo "[{\"backend\": \"$backend\", \"model\": \"mlp\", \"method\": \"bsp-a2a\", \"settings\": \"{}\", \"step_us\": 9, \"quick_us\": 8}]" ;;
esac
)";
    fs::permissions(program, fs::perms::owner_all);
  }

  /// @param settings of the program's environment
  CommandResult pairs(const std::string& settings, const std::string& out,
                      const std::string& options) const {
    return run_command({"bash", "-c",
                        "cd \"$0\" && " + settings + " python3 " + kScripts + "trainer_ab.py . . " +
                            out + " --models mlp --methods bsp-a2a " + options,
                        path});
  }
};

}  // namespace

TEST_CASE("a launch that failed does not take an earlier run's steps for its own") {
  const Compared folder;
  const auto good = folder.pairs("", "out", "--blocks 1 --backends gloo");
  INFO(good.out << good.err);
  CHECK(good.exit_code == 0);
  const std::string measured = folder.text("out/pairs.csv");
  CHECK_THAT(measured, ContainsSubstring("gloo,mlp,bsp-a2a,,0,9,9,8,8"));
  const auto failed = folder.pairs("FAILS=1", "out", "--blocks 1 --backends gloo");
  CHECK(failed.exit_code == 1);
  CHECK_THAT(failed.err, ContainsSubstring("old added no run (exit code 1), see old.log"));
  // Nor an earlier run's reasons.
  CHECK_THAT(failed.err, ContainsSubstring("old measured nothing, see its log"));
  CHECK(folder.text("out/pairs.csv") == measured);
}

TEST_CASE("what neither build can measure is told once, and the other backends are compared") {
  const Compared folder;
  const auto refused = folder.pairs("REFUSES=gloo", "out", "--blocks 3 --backends gloo,openmpi");
  INFO(refused.out << refused.err);
  CHECK(refused.exit_code == 1);
  CHECK_THAT(refused.err, ContainsSubstring("old measured nothing: no worker is built"));
  CHECK(refused.err.find("old measured") == refused.err.rfind("old measured"));
  const std::string measured = folder.text("out/pairs.csv");
  for (const char* each : {"openmpi,mlp,bsp-a2a,,0,9,9,8,8", "openmpi,mlp,bsp-a2a,,2,9,9,8,8"})
    CHECK_THAT(measured, ContainsSubstring(each));
}

TEST_CASE("blocks in several places of a machine have databases of their own") {
  if (std::thread::hardware_concurrency() < 2) SKIP("two places are two CPUs");
  const Compared folder;
  const auto beside =
      folder.pairs("", "beside", "--blocks 2 --beside 2 --cores 1 --backends gloo && ls beside");
  INFO(beside.out << beside.err);
  CHECK(beside.exit_code == 0);
  for (const char* each : {"old-0.sqlite", "new-1.sqlite"})
    CHECK_THAT(beside.out, ContainsSubstring(each));
  const std::string measured = folder.text("beside/pairs.csv");
  for (const char* each : {",,0,9,9,8,8", ",,1,9,9,8,8"})
    CHECK_THAT(measured, ContainsSubstring(each));
}

TEST_CASE("the container study's training goes on where the call before ended", "[long]") {
  const Folder folder;
  const std::string program = folder.path + "/program";
  std::ofstream(program) << R"(#!/bin/bash
echo "$*" >>"$0.asked"
case $* in
  *count*) echo n; [ -z "$NONE" ] || { echo 0; exit; }; echo 1; exit ;;
  *published) exit ${PUBLISHED:-0} ;;
  query*) exit 0 ;;
  import*) exit ${IMPORT:-0} ;;
esac
case $* in *--resume*) [ -z "$LEFT" ] || exit $LEFT; echo "x: nothing to resume: none"; exit 2 ;; esac
while [ "$1" != --db ]; do shift; done
echo x >"$2"
[ "${FIRST:-0}" != hang ] || { echo $$ >>"$0.pids"; exec sleep 50; }
exit ${FIRST:-0}
)";
  fs::permissions(program, fs::perms::owner_all);
  const auto call = [&](const std::string& settings, const std::string& arguments) {
    return run_command({"bash", "-c",
                        settings + " DYNAMICCL=$0/program bash " + kScripts +
                            "container_training.sh \"$0/out\" " + arguments,
                        folder.path});
  };
  // The time is over in the first launches of each library.
  CHECK(call("FIRST=130", "60 '' --set protocol.launches=2").exit_code == 75);
  CHECK_THAT(folder.text("program.asked"), !ContainsSubstring("--resume"));
  CHECK(call("FIRST=130", "60 '' --set protocol.launches=2").exit_code == 0);
  for (const char* library : {"openmpi", "mpich", "gloo"}) {
    CHECK_THAT(folder.text("program.asked"),
               ContainsSubstring(std::string("out/") + library +
                                 ".sqlite --resume --set protocol.launches=2"));
    CHECK(fs::exists(folder.path + "/out/" + library + ".done"));
    CHECK_THAT(folder.text("program.asked"),
               ContainsSubstring(std::string("out/") + library + ".sqlite --db " + folder.path +
                                 "/out/all.sqlite"));
  }
  // One library has no rank: all three have, in one database.
  CHECK_THAT(folder.text("program.asked"),
             ContainsSubstring("/out/all.sqlite --all --pool --format markdown findings"));
  CHECK_THAT(folder.text("out/all.md"), ContainsSubstring("## axis --vary backend"));
  const std::string asked = folder.text("program.asked");
  CHECK(call("FIRST=130", "60").exit_code == 0);
  CHECK(folder.text("program.asked") == asked);
  // A file alone is no run; what failed is not done while a launch is left, nor without answers.
  fs::remove_all(folder.path + "/out");
  CHECK(call("FIRST=130", "60").exit_code == 75);
  CHECK(call("NONE=1 FIRST=130", "60").exit_code == 75);
  CHECK(call("LEFT=1", "60").exit_code == 1);
  CHECK(call("PUBLISHED=2", "60").exit_code == 1);
  CHECK(!fs::exists(folder.path + "/out/gloo.done"));
  CHECK(call("", "60 '' --set other=1").exit_code == 2);
  CHECK(call("IMPORT=2", "60").exit_code == 1);
  CHECK(!fs::exists(folder.path + "/out/all.md"));
  CHECK(call("", "60").exit_code == 0);
  // Failed cells leave nothing to try.
  fs::remove_all(folder.path + "/out");
  CHECK(call("FIRST=1", "60").exit_code == 0);
  // A signal leaves nothing behind.
  for (const char* cores : {"''", "0,0,0"}) {
    fs::remove_all(folder.path + "/out");
    fs::remove(folder.path + "/program.pids");
    const auto ended = run_command(
        {"bash", "-c",
         std::string("FIRST=hang DYNAMICCL=$0/program bash ") + kScripts +
             "container_training.sh \"$0/out\" 60 " + cores +
             " & until [ -s \"$0/program.pids\" ]; do sleep 0.05; done; kill -TERM $!; wait $!; "
             "code=$?; for each in $(cat \"$0/program.pids\"); do ! kill -0 $each || code=99; "
             "done; exit $code",
         folder.path});
    CHECK(ended.exit_code == 143);
  }
  // Beside each other, each on a third; a failure is told.
  fs::remove_all(folder.path + "/out");
  CHECK(call("FIRST=2", "60 0,0,0").exit_code == 2);
  CHECK(call("", "60 0,0").exit_code == 2);
  // Several runs of each library, whose launches are one sample.
  fs::remove_all(folder.path + "/out");
  CHECK(call("BESIDE=2", "60").exit_code == 2);
  CHECK(call("BESIDE=2", "60 0,0,0").exit_code == 2);
  CHECK(call("BESIDE=2", "60 0,0,0,0,0,0 --set other=1").exit_code == 0);
  for (const char* each : {"\"openmpi\"", "openmpi-2.sqlite --set seed=2 ", "gloo-1.sqlite --db"})
    CHECK_THAT(folder.text("program.asked"), ContainsSubstring(each));
  CHECK_THAT(folder.text("out/all.md"), ContainsSubstring("## findings"));
  CHECK(call("BESIDE=3", "60 0,0,0,0,0,0,0,0,0 --set other=1").exit_code == 2);
}

namespace {

/// A tree of its own with copies of scripts, a program that tells how it was called, and `docker`
/// and `python3` that do nothing but what a script asks of them.
class ScriptTree : public Folder {
 public:
  explicit ScriptTree(const std::vector<const char*>& scripts) {
    for (const char* folder : {"/scripts", "/build/release", "/bin"})
      fs::create_directories(path + folder);
    for (const char* name : scripts) fs::copy(kScripts + name, path + "/scripts/" + name);
    program("build/release/dynamiccl", "echo \"$*\" >>\"${0%/build*}/calls\"\n");
    program("bin/docker", "exit 0\n");
  }
  void program(const std::string& name, const std::string& body) const {
    std::ofstream(path + "/" + name) << "#!/bin/bash\n" << body;
    fs::permissions(path + "/" + name, fs::perms::owner_all);
  }
  [[nodiscard]] CommandResult run(const std::string& command) const {
    return run_command(
        {"bash", "-c",
         "cd \"$0\" && export PATH=\"$0/bin:$PATH\" DYNAMICCL_NCCL_LIBRARY=/none; " + command,
         path});
  }
};

}  // namespace

TEST_CASE("a sweep of many settings is cut by collective") {
  const ScriptTree tree({"tune_sweep.sh", "gpu_setup.sh"});
  const std::string places = "ENVIRONMENTS=bare-metal BACKENDS=openmpi ";
  const auto whole = tree.run(places + "bash scripts/tune_sweep.sh state out 60 file.toml 0");
  INFO(whole.out << whole.err);
  CHECK(whole.exit_code == 0);
  CHECK_THAT(tree.text("calls"),
             ContainsSubstring("--only environment == bare-metal and backend == openmpi --db") &&
                 ContainsSubstring("state/bare-metal-openmpi.sqlite"));
  fs::remove(tree.path + "/calls");
  const std::string parts = places + "COLLECTIVES='allreduce broadcast' ";
  const auto cut = tree.run(parts + "bash scripts/tune_sweep.sh state out 60 file.toml 0");
  CHECK(cut.exit_code == 0);
  for (const char* each : {"allreduce", "broadcast"}) {
    CHECK_THAT(tree.text("calls"),
               ContainsSubstring(std::string("openmpi and collective == ") + each + " --db") &&
                   ContainsSubstring(std::string("bare-metal-openmpi-") + each + ".sqlite"));
    CHECK_THAT(tree.text("out/summary.txt"),
               ContainsSubstring(std::string("sweep bare-metal-openmpi-") + each));
  }
  // What is done is not begun again; what was begun is resumed, a file alone is nothing begun.
  fs::remove(tree.path + "/calls");
  for (const char* each : {"allreduce", "broadcast"})
    std::ofstream(tree.path + "/state/bare-metal-openmpi-" + each + ".sqlite") << "x";
  CHECK(tree.run(parts + "bash scripts/tune_sweep.sh state out 60 file.toml 0").exit_code == 0);
  CHECK(!fs::exists(tree.path + "/calls"));
  CHECK_THAT(tree.text("out/summary.txt"), ContainsSubstring("broadcast: done before"));
  // Another experiment is another sweep, and so is one whose database is gone.
  CHECK(tree.run(parts + "bash scripts/tune_sweep.sh state out 60 other.toml 0").exit_code == 0);
  CHECK_THAT(tree.text("calls"), ContainsSubstring("broadcast.sqlite"));
  fs::remove(tree.path + "/calls");
  fs::remove(tree.path + "/state/bare-metal-openmpi-broadcast.sqlite");
  CHECK(tree.run(parts + "bash scripts/tune_sweep.sh state out 60 other.toml 0").exit_code == 0);
  CHECK_THAT(tree.text("calls"),
             ContainsSubstring("broadcast.sqlite") && !ContainsSubstring("allreduce.sqlite"));
  for (const bool begun : {false, true}) {
    fs::remove_all(tree.path + "/state");
    fs::create_directories(tree.path + "/state");
    std::ofstream(tree.path + "/state/bare-metal-openmpi.sqlite") << "x";
    tree.program("build/release/dynamiccl",
                 std::string("case $* in query*) echo n; echo ") + (begun ? "1" : "0") +
                     "; exit ;; esac; echo \"$*\" >\"${0%/build*}/calls\"\n");
    CHECK(tree.run(places + "bash scripts/tune_sweep.sh state out 60 file.toml 0").exit_code == 0);
    CHECK((tree.text("calls").find("--resume") != std::string::npos) == begun);
  }
  // Parts are no sweep of the whole file, so that agents' searches of it would be of what is
  // missing.
  CHECK(tree.run(parts + "bash scripts/tune_sweep.sh state out 60 file.toml 2").exit_code == 2);
}

TEST_CASE("trajectories of DDP's hooks can be run without ours") {
  const ScriptTree tree({"gpu_hooks.sh", "gpu_setup.sh", "gpu_engine.sh", "hook_times.py"});
  tree.program("bin/python3", R"(case $1 in
  */ddp_hooks.py)
    if [ -n "$LOST" ]; then [ "$RANK" = 0 ] || exit 1; sleep 30; echo >waited; fi
    [ "$RANK" != 0 ] || echo "{\"hook\": \"$3\", \"seed\": $5, \"steps\": 9, \"accuracy\": 0.6, \"reached\": true}" ;;
  -c) echo /none ;;
  *) exec /usr/bin/python3 "$@" ;;
esac
)");
  const std::string hooks = "FIRST=3 SEEDS=3 TRAJECTORY_HOOKS='powersgd post-local' ";
  const auto alone =
      tree.run(hooks + "TRAJECTORIES=- bash scripts/gpu_hooks.sh out trajectories=60");
  INFO(alone.out << alone.err);
  CHECK(alone.exit_code == 0);
  for (const char* each : {R"("powersgd", "seed": 3)", R"("post-local", "seed": 3)"})
    CHECK_THAT(tree.text("out/trajectories.jsonl"), ContainsSubstring(each));
  CHECK(!fs::exists(tree.path + "/calls"));
  // A rank that is lost does not leave the other waiting.
  CHECK(tree.run(hooks + "LOST=1 TRAJECTORIES=- bash scripts/gpu_hooks.sh lost trajectories=60")
            .exit_code == 1);
  CHECK(!fs::exists(tree.path + "/waited"));
  CHECK(tree.run(hooks + "bash scripts/gpu_hooks.sh both trajectories=60").exit_code == 0);
  CHECK_THAT(tree.text("calls"), ContainsSubstring("run experiments/gpu_training_hooks.toml"));
}
