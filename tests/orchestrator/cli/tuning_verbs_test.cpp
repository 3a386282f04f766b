// What `train` and `tune` take, and refuse before they begin.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/vocabulary/text.hpp"
#include "tests/orchestrator/cli/program.hpp"
#include "tuner/table/table.hpp"

using namespace dynamiccl;
using testing::run;

TEST_CASE("training that cannot be written is refused before it begins") {
  const auto refused = [](const std::vector<std::string>& places) {
    std::vector<std::string> argv{"train"};
    argv.insert(argv.end(), places.begin(), places.end());
    const auto result = run(argv);
    CHECK(result.exit_code == 2);
    return result.err;
  };
  CHECK(refused({"--out", "/dev/null/x.policy"}).find("another place with --out") !=
        std::string::npos);
  CHECK(refused({"--out", "/tmp"}).find("is a folder") != std::string::npos);
  const testing::Folder fresh;
  CHECK(refused({"--out", fresh.path("new") + "/"}).find("new/ppo.policy") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(fresh.path("new")));
  CHECK(refused({"--seeds", "many"}).find("--seeds: \"many\" is no number") != std::string::npos);
  CHECK(refused({"--seeds", "0"}).find("--seeds: Value 0 is too small") != std::string::npos);
  CHECK(refused({"--out", "x.policy", "--report", "/dev/null/r"}).find("--report") !=
        std::string::npos);
  CHECK(refused({"--out", ""}).find("--out: an empty name is no file") != std::string::npos);
  // A folder that the report would make where the policy is to be.
  const testing::Folder folder;
  const std::string place = folder.path("ppo");
  for (const auto& report : {place, place + "/", place + "/curves", folder.path("./ppo")}) {
    INFO(report);
    CHECK(
        refused({"--out", place, "--report", report}).find("cannot be the folder of the report") !=
        std::string::npos);
    CHECK_FALSE(std::filesystem::exists(place));
  }
  // The kept policy and a seed's own are two files.
  for (const char* name : {"seed-1.policy", "seed-12.policy", "curves.csv", "held_out.csv"}) {
    INFO(name);
    CHECK(refused({"--out", place + "/" + name, "--report", place + "/."})
              .find("the report has a file of that name itself") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(place));
  }
}

TEST_CASE("a policy sets calls and does not choose what runs",
          "[E-200][E-201][E-202][E-203][E-204]") {
  const auto agent = [](const std::string& name) {
    return run({"tune", "nowhere.toml", "--between-runs", "--agent", name});
  };
  for (const char* name : {"ppo", "ppo-untrained"}) {
    const auto refused = agent(name);
    CHECK(refused.exit_code == 2);
    CHECK(refused.err.find("not a policy's to choose: leave --agent out") != std::string::npos);
  }
  // Others get as far as the file.
  CHECK(agent("bandit").err.find("nowhere.toml") != std::string::npos);
  CHECK(run({"tune", "nowhere.toml", "--between-runs"}).err.find("nowhere.toml") !=
        std::string::npos);
}

TEST_CASE("tune refuses options that would have no effect, by their names", "[E-105][E-136]") {
  const auto refused = [](std::vector<std::string> words, const std::vector<std::string>& names) {
    words.insert(words.begin(), "tune");
    const auto result = run(words);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    for (const std::string& name : names) CHECK(result.err.find(name) != std::string::npos);
  };
  refused({"nowhere.toml", "--online"}, {"no command stands behind --"});
  refused({"nowhere.toml", "--parallelism", "tp", "--launches", "3"},
          {"tune search: --launches does nothing here: it is an option of `tune job`"});
  refused({"nowhere.toml", "--parallelism", "tp"}, {"--parallelism", "--set tune.parallelism=tp"});
  refused({"--own", "--", "true"}, {"tune job: --own does nothing here", "`tune sweep`"});
  refused({"--evaluations", "3", "--", "true"}, {"tune job: --evaluations does nothing here"});
  refused({"sweep", "--", "true"}, {"tune sweep: it takes an experiment file, no command"});
  refused({"--agent", "ppo,bandit", "--", "true"}, {"more than one --agent"});
  refused({"nowhere.toml", "--from", "last"}, {"an option of `tune replay`"});
  refused({"search", "nowhere.toml", "--resume"}, {"an option of `tune sweep`"});
  refused({"apply", "nowhere.toml"}, {"tune apply needs a table behind FILE"});
  refused({"job", "nowhere.toml"}, {"no command stands behind --"});
  // Options may stand before a mode's word.
  refused({"--db", "x.sqlite", "job", "nowhere.toml"}, {"no command stands behind --"});
  refused({"-q", "--seed=3", "search", "nowhere.toml", "--resume"}, {"an option of `tune sweep`"});
  // Nor in another of a command's ways.
  refused({"--online", "--trial-seconds", "3", "--same-bits", "--", "true"},
          {"tune job --online: --trial-seconds does nothing here"});
  refused({"--recheck", "--launches", "3", "--", "true"},
          {"tune job --recheck: --launches does nothing here"});
  refused({"--learn-cost", "3", "--", "true"}, {"it is an option of `tune job --online`"});
  refused({"--online", "--recheck", "--", "true"}, {"--recheck"});
  refused({"--budget", "0s", "--", "true"}, {"--budget 0s leaves no time"});
  // Who forgot what stands before a command is told.
  refused({"torchrun", "train.py"}, {"stands behind --: dynamiccl tune -- torchrun train.py"});
  // What acts gets further: to the file, and to the words that there are.
  refused({"nowhere.toml", "--agent", "bandit", "--seed", "3", "-v"}, {"nowhere.toml"});
  refused({"--parallelism", "tensor", "--seed", "3", "--", "true"}, {"tensor", "tp"});
}

TEST_CASE("each mode of tune has a help of its own, and old spellings say the new one") {
  const auto options = [](const std::string& help) {
    std::size_t count = 0;
    for (const std::string& line : split(help, '\n')) count += line.starts_with("  -") ? 1 : 0;
    return count;
  };
  for (const std::string mode : {"search", "sweep", "replay", "apply", "check", "job"}) {
    INFO(mode);
    const auto help = run({"tune", mode, "--help"});
    CHECK(help.exit_code == 0);
    CHECK(help.out.starts_with("tune " + mode + ": "));
    CHECK(help.out.find("dynamiccl tune " + mode + " [OPTIONS]") != std::string::npos);
    CHECK(options(help.out) >= 8);
    if (mode == "search") CHECK(options(help.out) <= 16);
    CHECK((help.out.find("--launches") != std::string::npos) == (mode == "job"));
    CHECK((help.out.find("\n  --from") != std::string::npos) == (mode == "replay"));
    CHECK(run({"tune", "--help"}).out.find("dynamiccl tune " + mode) != std::string::npos);
  }
  const std::vector<std::pair<std::vector<std::string>, std::string>> old{
      {{"nowhere.toml"}, "`tune FILE` is spelled `tune search` now"},
      {{"nowhere.toml", "--sweep"}, "`tune --sweep` is spelled `tune sweep` now"},
      {{"nowhere.toml", "--replay"}, "`tune --replay` is spelled `tune replay` now"},
      {{"nowhere.toml", "--apply=t.json"}, "`tune --apply` is spelled `tune apply` now"},
      {{"--check", "t.json", "nowhere.toml"}, "`tune --check` is spelled `tune check` now"}};
  for (const auto& [words, note] : old) {
    std::vector<std::string> argv{"tune"};
    argv.insert(argv.end(), words.begin(), words.end());
    const auto told = run(argv);
    INFO(told.err);
    CHECK(told.exit_code == 2);
    CHECK(told.err.find(note) != std::string::npos);
    CHECK(told.err.find("nowhere.toml: ") != std::string::npos);
    argv.emplace_back("-q");
    CHECK(run(argv).err.find("is spelled") == std::string::npos);
  }
  for (const auto& words : {std::vector<std::string>{"tune", "sweep", "nowhere.toml"},
                            {"tune", "check", "nowhere.toml", "t.json"},
                            {"tune", "--agent", "bogus", "--", "true"}})
    CHECK(run(words).err.find("is spelled") == std::string::npos);
}

TEST_CASE("tune refuses a policy that no agent of it reads", "[E-105]") {
  const std::string policy = DYNAMICCL_SOURCE_DIR "/tuner/policy/pretrained.policy";
  const auto told = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"tune", "--policy", policy});
    const auto result = run(words);
    CHECK(result.exit_code == 2);
    return result.err;
  };
  const std::vector<std::vector<std::string>> idle{
      {"nowhere.toml"},
      {"nowhere.toml", "--agent", "bandit"},
      {"nowhere.toml", "--between-runs"},
      {"nowhere.toml", "--replay", "--agent", "bandit,ppo-untrained"},
      {"nowhere.toml", "--sweep"},
      {"nowhere.toml", "--check", "t.json"},
      {"--call-agent", "bandit", "--", "true"}};
  for (const auto& words : idle)
    CHECK(told(words).find("--policy does nothing") != std::string::npos);
  // Where one reads it, it is the file that is wrong.
  const std::vector<std::vector<std::string>> read{
      {"nowhere.toml", "--agent", "ppo"},
      {"nowhere.toml", "--replay"},
      {"nowhere.toml", "--replay", "--agent", "bandit,ppo"}};
  for (const auto& words : read) CHECK(told(words).find("nowhere.toml: ") != std::string::npos);
}

TEST_CASE("tune of a command refuses an agent that there is not before it starts the job") {
  const testing::Folder folder;
  const auto db = folder.path("t.sqlite");
  const auto refused = run({"tune", "--agent", "bogus", "--db", db, "--out", folder.path("out"),
                            "--", "touch", folder.path("started")});
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("unknown agent \"bogus\"") != std::string::npos);
  CHECK(!std::filesystem::exists(folder.path("started")));
  CHECK(!std::filesystem::exists(db));
}

TEST_CASE("a job that loads no plugin is not waited for where there is no GPU") {
  if (std::filesystem::exists("/dev/nvidiactl")) SKIP("this machine has a GPU");
  const testing::Folder folder;
  const auto plugin = folder.file("plugin.so", "");
  const auto job = run({"tune", "--db", folder.path("x.sqlite"), "--out", folder.path("out"),
                        "--plugin", plugin, "--trial-seconds", "3600", "--", "sleep", "3600"});
  INFO(job.err);
  CHECK(job.exit_code == 2);
  CHECK(job.err.find("no GPU is here, so it was not waited for") != std::string::npos);
  CHECK(job.err.find("communicates by MPI or Gloo") != std::string::npos);
}

TEST_CASE(
    "export of one regime writes the formats that it has something for, and tells the others") {
  const testing::Folder folder;
  const auto db = folder.path("x.sqlite");
  const auto table = folder.path("t.json");
  const auto out = folder.path("out");
  REQUIRE(run({"import", DYNAMICCL_SOURCE_DIR "/tests/orchestrator/import/all_reduce_h200x8.txt",
               "--db", db})
              .exit_code == 0);
  REQUIRE(run({"export", table, "--measured", "last", "--backend", "nccl", "--format", "toml",
               "--out", folder.path("first"), "--db", db})
              .exit_code == 0);
  const auto written = run({"export", table, "--format", "gloo,toml", "--out", out, "--json"});
  INFO(written.err);
  REQUIRE(written.exit_code == 0);
  const auto answer = nlohmann::json::parse(written.out);
  CHECK(answer.at("files") == nlohmann::json::array({out + "/settings.toml"}));
  REQUIRE(answer.at("notes").size() == 1);
  CHECK(
      answer.at("notes")[0].get<std::string>().starts_with("gloo: the table has no rows of Gloo"));
  // Nothing at all is an error, with what there is to do; one format says its own.
  const auto none = run({"export", table, "--format", "openmpi,gloo", "--out", folder.path("no")});
  CHECK(none.exit_code == 2);
  CHECK(none.err.find("nothing for any of these formats") != std::string::npos);
  CHECK(none.err.find("--format toml has its rows") != std::string::npos);
  for (const char* why : {"\n  openmpi: the table has no rows of Open MPI", "\n  gloo: the table"})
    CHECK(none.err.find(why) != std::string::npos);
  CHECK(none.err.find("note:") == std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.path("no")));
  // A search that kept the library's own choices everywhere has an answer: nothing is to be loaded.
  auto kept_nothing = read_table(table);
  for (auto& entry : kept_nothing.entries) entry.setting = {};
  write_table(kept_nothing, folder.path("defaults.json"));
  const auto defaults = run(
      {"export", folder.path("defaults.json"), "--format", "nccl", "--out", folder.path("none")});
  INFO(defaults.err);
  CHECK(defaults.exit_code == 0);
  CHECK(defaults.err.find("nothing to load, and no file is written") != std::string::npos);
  const auto one = run({"export", table, "--format", "openmpi", "--out", folder.path("no")});
  CHECK(one.exit_code == 2);
  CHECK(one.err.find("the table has no rows of Open MPI") != std::string::npos);
}

TEST_CASE("export says of each regime what its own library lacks, and of no other library") {
  const testing::Folder folder;
  ConfigurationTable table;
  const auto add = [&](const std::string& regime, Backend backend, const std::string& algorithm) {
    table.put_regime({regime, "of " + regime, nlohmann::json::object()});
    TableEntry entry;
    entry.key = {regime, {Collective::allreduce, {16}, 2, 1, Architecture::ring, backend}};
    entry.size = Bytes(1U << 16);
    entry.setting.algorithm = entry.arm = algorithm;
    table.put(entry);
  };
  add("with-mpich", Backend::mpich, "recursive_doubling");
  add("with-gloo", Backend::gloo, "");
  write_table(table, folder.path("t.json"));
  const auto exported = run(
      {"export", folder.path("t.json"), "--format", "openmpi,mpich", "--out", folder.path("o")});
  INFO(exported.err);
  CHECK(exported.exit_code == 2);
  CHECK(exported.err.find("of with-mpich (with-mpich), mpich: ") != std::string::npos);
  CHECK(exported.err.find("tune check FILE TABLE") != std::string::npos);
  CHECK(exported.err.find("(with-gloo), mpich") == std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.path("o")));
}
