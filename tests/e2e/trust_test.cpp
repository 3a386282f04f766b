#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/e2e/program.hpp"

using namespace dynamiccl;

namespace {

const std::vector<std::string> kSmallRun{"run", DYNAMICCL_SOURCE_DIR "/experiments/smoke.toml",
                                         "--only", "backend == gloo and architecture == ring"};

std::vector<std::string> with(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("launches are added until the intervals are as narrow as asked, or there are enough") {
  const Program program;
  const auto run = program.run(with(
      kSmallRun, {"--set", "protocol.target_interval=0.001", "--set", "protocol.max_launches=7"}));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(program.value("SELECT count(*) FROM launch WHERE status = 'ok'") == 7);
  const auto stopping = program.rows("SELECT stopping_json FROM plan_group").at(0);
  const auto rule = nlohmann::json::parse(stopping["stopping_json"].get<std::string>());
  CHECK(rule["stopped_by"] == "max_launches");
  CHECK(rule["launches"] == 7);
  CHECK_FALSE(rule["reached"].get<bool>());
  CHECK(contains(run.out, "REACHED BY ONLY 0 of 1 group"));
  // Who waits for the seven has an answer after two, once.
  const auto first =
      run.err.find("after 2 of 7 launches of each group: medians, without intervals");
  REQUIRE(first != std::string::npos);
  CHECK(run.err.find("of 7 launches of each group", first + 20) == std::string::npos);
  CHECK(run.err.find("block 3: ok") > first);
  CHECK(contains(run.err.substr(first, run.err.find("block 3: ok") - first), "allreduce"));

  constexpr int kMost = 14;
  const auto generous =
      program.run(with(kSmallRun, {"--set", "protocol.target_interval=1", "--set",
                                   "protocol.max_launches=" + std::to_string(kMost)}));
  REQUIRE(generous.exit_code == 0);
  const auto reached = nlohmann::json::parse(
      program.value("SELECT stopping_json FROM plan_group WHERE run_id = (SELECT max(id) FROM run)")
          .get<std::string>());
  INFO(reached.dump());
  // A quiet machine is there after nine launches; a loaded one may need all there are, and the
  // rule must say which.
  const bool narrow = reached["widest"].get<double>() <= 1;
  CHECK(reached["reached"].get<bool>() == narrow);
  CHECK(reached["stopped_by"] == (narrow ? "target" : "max_launches"));
  CHECK(reached["launches"] >= 9);
  CHECK((narrow || reached["launches"] == kMost));
  CHECK(program.value("SELECT count(*) FROM v_launch WHERE launch_status = 'ok' AND run_row = "
                      "(SELECT max(id) FROM run)") == reached["launches"]);
}

TEST_CASE("a time budget lets no further block begin") {
  const Program program;
  const auto run = program.run(
      with(kSmallRun, {"--set", "protocol.launches=50", "--set", "protocol.time_budget=50ms"}));
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(program.value("SELECT count(*) FROM launch") == 1);
  CHECK(contains(run.err, "no further block begins"));
  CHECK(contains(program.run({"query", "stopping"}).out, "time_budget"));
}

TEST_CASE("every launch was judged by the noise gate and every clock compared") {
  const Program program;
  REQUIRE(program.run(kSmallRun).exit_code == 0);
  CHECK(program.value("SELECT count(*) FROM launch WHERE noise_flags_json IS NULL") == 0);
  CHECK(program.value("SELECT count(*) FROM launch WHERE noise_before_json ->> "
                      "'$.window.busy_share' IS NULL") == 0);
  // Ranks of one machine have one clock, and the ping-pong does not speak against it.
  CHECK(program.value("SELECT min(clock_shared) FROM launch_rank") == 1);
  CHECK(program.value("SELECT min(clock_error_us) FROM launch_rank WHERE rank = 1") > 0);
  CHECK(program.value("SELECT count(*) FROM measurement WHERE skew_us IS NULL") == 0);
}

TEST_CASE("a stored launch is replayed from what was recorded, and compared with then") {
  const Program program;
  REQUIRE(program.run(kSmallRun).exit_code == 0);
  const auto stored = program.rows("SELECT uuid, run_config_json FROM launch").at(0);
  const std::string id = stored["uuid"];
  const auto dry = program.run({"replay", id.substr(0, 8), "--dry-run"});
  INFO(dry.err);
  CHECK(dry.exit_code == 0);
  CHECK(contains(dry.out, id));
  CHECK(program.value("SELECT count(*) FROM run") == 1);

  const auto replay = program.run({"replay", id.substr(0, 8), "--launches", "2"});
  INFO(replay.err);
  REQUIRE(replay.exit_code == 0);
  CHECK(contains(replay.out, "replay of launch " + id));
  CHECK(program.value("SELECT replay_of FROM run ORDER BY id DESC") == id);
  // One launch again is no experiment.
  const std::string first = program.value("SELECT uuid FROM run ORDER BY id");
  const std::string again = program.value("SELECT uuid FROM run ORDER BY id DESC");
  for (const std::vector<std::string>& asked :
       {std::vector<std::string>{"export", "--capsule", program.folder() + "/c", "--run", again},
        {"gate", program.db() + ":" + again}}) {
    const auto refused = program.run(asked);
    CHECK(refused.exit_code == 2);
    CHECK(contains(refused.err, "is one launch of run " + first.substr(0, 8) + " again"));
  }
  auto then = nlohmann::json::parse(stored["run_config_json"].get<std::string>());
  // The calls that a sample counted then are the replay's too, whoever had settled them.
  for (auto& cell : then["cells"])
    cell["batch"] = program.value(
        "SELECT m.batch FROM measurement m JOIN run_cell c ON c.id = m.cell_id JOIN launch l "
        "ON l.id = m.launch_id WHERE l.uuid = '" +
        id + "' AND c.key = '" + cell["id"].get<std::string>() + "'");
  const auto launches = program.rows(
      "SELECT run_config_json FROM launch l JOIN plan_group g ON g.id = l.group_id WHERE g.run_id "
      "= (SELECT max(id) FROM run)");
  REQUIRE(launches.size() == 2);
  for (const auto& launch : launches) {
    const auto now = nlohmann::json::parse(launch["run_config_json"].get<std::string>());
    CHECK(now["seed"] == then["seed"]);
    CHECK(now["cells"] == then["cells"]);
    CHECK(now["protocol"] == then["protocol"]);
    CHECK(now["launch_id"] != then["launch_id"]);
  }
  // An interrupted replay would be no unfinished run of the experiment.
  CHECK(program.run(with(kSmallRun, {"--resume"})).exit_code == 2);

  // Both runs are of this program: its commit names the newer one.
  const auto version = program.value("SELECT tool_version FROM run").get<std::string>();
  if (const auto open = version.find('('); open != std::string::npos) {
    const auto commit = version.substr(open + 1, version.find_first_of(",)", open) - open - 1);
    const auto compared = program.run({"compare", "last", "commit:" + commit, "--json"});
    INFO(compared.err);
    CHECK(compared.exit_code == 5);  // one launch has no interval
    CHECK(nlohmann::json::parse(compared.out)["b"]["run_id"] ==
          program.value("SELECT uuid FROM run ORDER BY id DESC"));
  }
  // What `last` names is what was measured, not its repeat.
  const std::string repeat = program.value("SELECT uuid FROM run ORDER BY id DESC");
  const auto diff = program.run({"show", "--diff", "last", repeat});
  INFO(diff.err);
  CHECK(diff.exit_code == 0);
  CHECK(contains(diff.out, "replay_of"));
  CHECK(contains(diff.out, "allreduce"));
}

TEST_CASE("a variable that is gone or new is said and set back for a replay") {
  const Program program;
  setenv("NCCL_ALGO", "then", 1);
  REQUIRE(program.run(with(kSmallRun, {"--set", "protocol.launches=1"})).exit_code == 0);
  unsetenv("NCCL_ALGO");
  setenv("UCX_TLS", "now", 1);
  const auto replay = program.run({"replay", "last"});
  unsetenv("UCX_TLS");
  INFO(replay.err);
  REQUIRE(replay.exit_code == 0);
  CHECK(contains(replay.out, "NCCL_ALGO"));
  CHECK(contains(replay.out, "UCX_TLS"));
  const auto variables = nlohmann::json::parse(
      program.value("SELECT environment_json FROM launch ORDER BY id DESC").get<std::string>());
  CHECK(variables["NCCL_ALGO"] == "then");
  CHECK_FALSE(variables.contains("UCX_TLS"));
}

TEST_CASE("a launch that does not exist cannot be replayed") {
  const Program program;
  REQUIRE(program.run(with(kSmallRun, {"--set", "protocol.launches=1"})).exit_code == 0);
  const auto none = program.run({"replay", "ffffffffff"});
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "no run \"ffffffffff\""));
}

TEST_CASE("a capsule says on another database which of its verdicts come out alike") {
  const Program there;
  const Program here;
  REQUIRE(there.run(kSmallRun).exit_code == 0);
  const std::string folder = here.folder() + "/capsule";
  const auto made = there.run({"export", "--capsule", folder});
  INFO(made.err);
  REQUIRE(made.exit_code == 0);
  CHECK(contains(made.err, "dynamiccl replay " + folder));
  CHECK(there.run({"export", "--capsule", folder}).exit_code == 2);  // never over another
  for (const char* file :
       {"runs.sqlite", "experiment.toml", "versions.txt", "image/build_rootfs.sh"})
    CHECK(std::filesystem::exists(folder + "/" + file));

  // Who may not read the database reads no capsule of it.
  REQUIRE(there.run({"export", "--capsule", folder + ".tar"}).exit_code == 0);
  for (const auto& file : {folder + ".tar", folder + "/manifest.json"})
    CHECK((std::filesystem::status(file).permissions() & std::filesystem::perms::others_all) ==
          std::filesystem::perms::none);

  const auto looked = here.run({"replay", folder, "--dry-run"});
  CHECK(looked.exit_code == 0);
  CHECK(contains(looked.out, "whole; program: the same"));
  CHECK(contains(looked.out, "[[work]]"));  // what would be started
  CHECK(contains(looked.out, "# run with --only backend == gloo"));
  // One environment and one library: there is no verdict to repeat, which is no success.
  const auto replayed = here.run({"replay", folder, "--launches", "2", "--json"});
  INFO(replayed.err);
  CHECK(replayed.exit_code == 5);
  const auto answer = nlohmann::json::parse(replayed.out);
  CHECK(here.value("SELECT count(*) FROM launch WHERE status = 'ok'") == 2);
  CHECK(here.value("SELECT uuid FROM run") == answer["run_id"]);
  for (const auto& finding : answer["findings"]) CHECK(finding["outcome"] == "open");

  { std::ofstream(folder + "/experiment.toml", std::ios::app) << "# changed\n"; }
  const auto damaged = here.run({"replay", folder});
  CHECK(damaged.exit_code == 2);
  CHECK(contains(damaged.err, "experiment.toml is not what its checksum says"));
  // An empty checksum is not that of a file that is missing.
  auto manifest = nlohmann::json::parse(std::ifstream(folder + "/manifest.json"));
  std::filesystem::remove(folder + "/experiment.toml");
  manifest["sha256"]["experiment.toml"] = "";
  { std::ofstream(folder + "/manifest.json") << manifest; }
  CHECK(
      contains(here.run({"replay", folder}).err, "experiment.toml is not what its checksum says"));
  std::filesystem::create_symlink("/etc/passwd", folder + "/elsewhere");
  CHECK(contains(here.run({"replay", folder}).err, "elsewhere is no file"));
}

TEST_CASE("an archive of a stranger's capsule is looked at before it is unpacked") {
  const Program here;
  const auto refused = [&](const std::string& name, const std::string& making) {
    const auto archive = here.folder() + "/" + name;
    const auto command = "cd '" + here.folder() + "' && rm -rf in && mkdir in && cd in && " +
                         making + " && tar --force-local -Scf '" + archive + "' .";
    REQUIRE(std::system(command.c_str()) == 0);
    const auto replayed = here.run({"replay", archive, "--dry-run"});
    CHECK(replayed.exit_code == 2);
    return replayed.err;
  };
  CHECK(contains(refused("link.tar", "ln -s /etc/passwd manifest.json"), "is no file"));
  CHECK(contains(refused("pipe.tar", "mkfifo manifest.json"), "is no file"));
  CHECK(contains(refused("large.tar", "truncate -s 20G runs.sqlite"), "more than 16 GiB"));
  CHECK(contains(refused("many.tar", "touch $(seq 1200)"), "1,000 files"));
  // The name is a file's, not a host's that tar would call.
  CHECK(contains(refused("host:a.tar", "echo '{}' > manifest.json"), "manifest.json is none"));
}

TEST_CASE("what a work calls and how it is timed is stored as settings of its cells") {
  const Program program;
  std::string text = one_cell("\"bare-metal\"", "gloo");
  text += "op = [\"sum\", \"max\"]\nwarmup = 3\niterations = 4\n[protocol]\nlaunches = 1\n";
  const auto run = program.run({"run", program.file("calls.toml", text)});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const auto cells = program.rows(
      "SELECT DISTINCT cell_knobs, n FROM v_measurement WHERE counts ORDER BY cell_knobs");
  REQUIRE(cells.size() == 2);
  CHECK(cells[0]["cell_knobs"] == R"({"iterations":"4","op":"max","warmup":"3"})");
  CHECK(cells[1]["cell_knobs"] == R"({"iterations":"4","warmup":"3"})");
  // A maximum is other work, not a choice beside the sum.
  CHECK(nlohmann::json::parse(program.run({"query", "best", "--json"}).out).size() == 2);
}

TEST_CASE("without gnuplot figures are data, tables and scripts, and a line names the package") {
  const Program program;
  REQUIRE(program.run(with(kSmallRun, {"--set", "protocol.launches=1"})).exit_code == 0);
  const std::string path = getenv("PATH");
  const std::string folder = program.folder() + "/figures";
  setenv("PATH", "/nowhere", 1);
  const auto made = program.run({"report", "last", "--figures", folder});
  setenv("PATH", path.c_str(), 1);
  INFO(made.err);
  CHECK(made.exit_code == 0);
  CHECK(contains(made.err, "apt-get install gnuplot-nox"));
  std::set<std::string> endings;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    endings.insert(entry.path().extension().string());
  CHECK(endings == std::set<std::string>{".csv", ".gp", ".tex"});
}
