#include "orchestrator/experiment/experiment.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <fstream>

#include "core/vocabulary/text.hpp"
#include "tests/orchestrator/experiment/demo_experiment.hpp"

using namespace dynamiccl;
using dynamiccl::testing::known_profiles;
using dynamiccl::testing::parsed;

namespace {

const std::string kGood = R"(name = "demo"
seed = 7
[axes]
environment = ["bare-metal", "cross-docker"]
backend = "gloo"
architecture = "ring"
ranks = [2, 4]
[[work]]
collective = "allreduce"
size = ["1KiB", "1MiB"]
)";

std::string mistakes(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parsed(text, overrides);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("an experiment reads into axes, work, protocol and the profiles it names") {
  const auto experiment = parsed(kGood + "[protocol]\nlaunches = 3\nlaunch_timeout = \"5s\"\n");
  CHECK(experiment.name == "demo");
  CHECK(experiment.seed == 7);
  CHECK(experiment.dimensions.size() == 4);
  REQUIRE(experiment.work.size() == 1);
  CHECK(experiment.work[0].sizes == std::vector<Bytes>{Bytes(1024), Bytes(1 << 20)});
  CHECK(experiment.protocol.launches == 3);
  CHECK(experiment.protocol.launch_timeout == Micros(5e6));
  CHECK(experiment.protocol.cells.iterations == 100);
  CHECK(experiment.protocol.target_interval == 0);
  CHECK(experiment.profiles.contains("bare-metal"));
  CHECK(experiment.profiles.contains("cross-docker"));
  CHECK_FALSE(experiment.profiles.contains("single-docker"));
}

TEST_CASE("all mistakes of an experiment are told in one go") {
  std::vector<std::string> names;
  for (const auto& [name, profile] : known_profiles()) names.push_back(name);
  CHECK(
      mistakes("name = \"x\"\n"
               "sead = 1\n"
               "[axes]\n"
               "environment = \"bare-mettal\"\n"
               "backend = \"gloo\"\n"
               "ranks = 0\n"
               "[[work]]\n"
               "colective = \"allreduce\"\n"
               "size = \"4B\"\n") ==
      "demo.toml:2:1: unknown key \"sead\"; known: axes, cluster, description, exclude, knobs, "
      "machine, name, "
      "profile, protocol, seed, tune, where, work, zip. Did you mean \"seed\"?\n"
      "demo.toml:3:1: expected axes.architecture, as in `architecture = [\"ring\", \"ps\"]` below "
      "[axes]\n"
      "demo.toml:4:15: unknown environment \"bare-mettal\"; known: " +
          join(names, ", ") +
          ". Did you mean \"bare-metal\"?\n"
          "demo.toml:6:9: axes.ranks: expected a whole number 1..1048576, found the number 0\n"
          "demo.toml:7:1: [work] needs the key collective: what is called\n"
          "demo.toml:8:1: unknown key \"colective\" in [work]; known: algorithm, architecture, "
          "backend, cold_cache, collective, datatype, in_place, iterations, late, op, parts, "
          "root, size, skew, warmup. "
          "Did you mean \"collective\"?");
}

TEST_CASE("settings of training that change nothing, or not what is meant, are told") {
  const auto work = [](const std::string& settings) {
    return kGood + "[[work]]\ntraining = \"bsp-a2a\"\nmodel = \"cnn\"\n" + settings;
  };
  CHECK(mistakes(work("compression = \"qsgd\"\ndensity = 0.1\n"))
            .starts_with("demo.toml:15:11: density: belongs to compression = \"topk\""));
  CHECK(mistakes(work("clip_each = 1\n"))
            .starts_with("demo.toml:14:13: clip_each: belongs to compression = \"dgc\""));
  // One of the codecs reads it: cells of the other are left to the plan.
  CHECK(mistakes(work("compression = [\"qsgd\", \"topk\"]\ndensity = 0.1\n")).empty());
  CHECK(mistakes(work("batch = true\n")) ==
        "demo.toml:14:9: batch: true and false are no value of it: expected a number or a word in "
        "quotes");
  CHECK(mistakes(work("batch = [8, true]\n")).starts_with("demo.toml:14:9: batch: true and false"));
  CHECK(mistakes(work("compression = \"threshold\"\nthreshold = 1e39\n"))
            .starts_with("demo.toml:15:13: training: threshold = "));
  CHECK(mistakes(work("compression = \"TopK\"\n")).ends_with("Did you mean \"topk\"?"));
  CHECK(parsed(work("compression = \"topk\"\ndensity = 0.5\n")).notes.empty());
  CHECK(parsed(work("compression = \"topk\"\ndensity = [0.1, 1]\n")).notes ==
        std::vector<std::string>{"demo.toml:15:11: density = 1: topk sends a place with each "
                                 "value, 2.0 times the bytes of plain gradients"});
}

TEST_CASE("what no key can say is refused with what is nearest to it") {
  const auto said = [](const std::string& text, const std::string& about) {
    const auto refused = mistakes(text);
    CAPTURE(refused);
    CHECK(refused.find(about) != std::string::npos);
    // Once, and with its place.
    CHECK(refused.starts_with("demo.toml:"));
    CHECK(refused.find('\n') == std::string::npos);
  };
  for (const auto& [line, nearest] : {std::pair{"op = \"avg\"", "nearest is sum"},
                                      {"threads = 2", "more callers are more ranks"},
                                      {"window = 64", "call.pipeline_depth"},
                                      {"overlap = true", "training = [\"wfbp-a2a\""},
                                      {"graph = 10", "call.graph = [0, 1] in [knobs.nccl]"}})
    said(kGood + line + "\n", nearest);
  said(kGood + "[protocol]\nmax_seconds = 600\n", "time_budget");
  said(kGood + "[protocol]\nverify = \"last\"\n", "protocol.verify: expected true or false");
  said(kGood + "[protocol]\nverify = \"last\"\n", "--set protocol.verify=false --only");
  const std::string mine = kGood + "[profile.mine]\nextends = \"single-docker\"\n";
  for (const auto& [line, nearest] :
       {std::pair{"volumes = [\"/dev/null:/dev/shm/x\"]", "mounts = [\"/FROM:/TO\"]"},
        {"hostname = \"localhost\"", "docker_args = "},
        {"user = \"1000\"", "unknown sharing \"1000\"; \"user\" says whose user namespace"}})
    said(mine + line + "\n", nearest);
  for (const auto& [work, nearest] :
       {std::pair{"collective = \"scatterv\"\nsize = 4", "nearest are scatter"},
        {"collective = \"gatherv\"\nsize = 4", "and allgatherv"},
        {"collective = \"reduce_scatter_block\"\nsize = 4", "reduce_scatter is it"},
        {"collective = \"allreduce\"\ndatatype = \"float8_e4m3\"\nsize = 4", "float16"},
        {"collective = \"allreduce\"\nsize = {from = 0, to = 4}", "a size above 0"},
        {"collective = \"alltoallv\"\nsize = 4\nparts = \"a:b\"", "a share of parts is \"a\""},
        {"collective = \"alltoallv\"\nsize = 4\nparts = 3", "shares in quotes as in \"1:0:3\""},
        {"collective = \"alltoallv\"\nsize = 4\nsizes_per_rank = [1, 2]", "parts = \"1:0:3\""},
        {"collective = \"allreduce\"\nsize = 4\nsubgroup = 2", "ranks = [2, 4] in [axes]"},
        {"collective = \"alltoallv\"\nsize = 4\nmatrix = [[0, 1], [1, 0]]", "parts = \"1:0:3\""},
        {"collective = \"allreduce\"\nsize = 4\nlate = \"soon\"", "a duration such as \"100us\""},
        {"training = \"bsp-ps\"\nmodel = \"mlp\"\nelastic = 0.5", "; it is 0.9, and no setting"},
        {"training = \"bsp-ps\"\nmodel = \"mlp\"\nshift_rate = 1", "; it follows from bits, and"},
        {"collective = \"allreduce\"\nsize = {from = 4, to = 64, step = 4, factor = 2}",
         "not by both"},
        {"collective = \"allreduce\"\nsize = {from = 4, to = \"1GiB\", step = 4}", "10000 sizes"}})
    said(kGood + "[[work]]\n" + work + "\n", nearest);
}

TEST_CASE("a work's calls are settings of its cells, and what is usual is none") {
  const auto said = parsed(
      kGood + "op = [\"sum\", \"max\"]\nroot = [0, 1]\nwarmup = 200\ncold_cache = [false, true]\n");
  const auto& calls = said.work.back().calls;
  REQUIRE(calls.size() == 4);
  CHECK(calls[0].name == "call.op");
  CHECK(calls[0].values == std::vector<std::string>{"default", "max"});
  CHECK(calls[1].values == std::vector<std::string>{"default", "1"});
  CHECK(calls[2].values == std::vector<std::string>{"200"});
  CHECK(calls[3].values == std::vector<std::string>{"default", "1"});
  CHECK(parsed(kGood).work.back().calls.empty());
  const auto uneven = parsed(kGood +
                             "[[work]]\ncollective = [\"alltoallv\", \"barrier\"]\n"
                             "size = [0, \"0B\", \"1KiB\"]\nskew = [1, 4]\nparts = \"1:3\"\n"
                             "late = [\"0s\", \"100us\"]\n")
                          .work.back();
  CHECK(uneven.sizes == std::vector{Bytes(0), Bytes(0), Bytes(1024)});
  REQUIRE(uneven.calls.size() == 3);
  CHECK(uneven.calls[0].values == std::vector<std::string>{"1", "4"});
  CHECK(uneven.calls[1].values == std::vector<std::string>{"1:3"});
  CHECK(uneven.calls[2].values == std::vector<std::string>{"default", "100us"});
}

TEST_CASE("mistakes come in the order of the file, those of --set behind them") {
  const auto text =
      mistakes("nmae = 1\n" + kGood + "[profile.cross-docker]\nipk = \"shared\"\n[knobs.gluo]\n",
               {"protocol.itertions=9"});
  std::vector<std::string> places;
  for (const auto& line : split(text, '\n')) places.push_back(line.substr(0, line.find(": ")));
  CHECK(places == std::vector<std::string>{"demo.toml:1:1", "demo.toml:13:1", "demo.toml:14:1",
                                           "--set protocol.itertions=9"});
  const auto backend = mistakes("[axes]\nenvironment = \"bare-metal\"\nbackend = \"mpchi\"\n");
  CHECK(backend.find("Did you mean \"mpich\"?") != std::string::npos);
}

TEST_CASE("launches follow a target interval, a maximum and a time budget") {
  const auto protocol = parsed(kGood +
                               "[protocol]\ntarget_interval = 0.03\nmax_launches = 30\n"
                               "time_budget = \"10m\"\n[protocol.noise]\nbusy = 0.5\nwait = 0\n")
                            .protocol;
  CHECK(protocol.target_interval == 0.03);
  CHECK(protocol.max_launches == 30);
  CHECK(protocol.time_budget == Micros(600e6));
  CHECK(protocol.noise.busy == 0.5);
  CHECK(protocol.noise.wait == Micros(0));
  CHECK(protocol.noise.steal == 0.02);
  CHECK(mistakes(kGood + "[protocol]\nmax_launches = 30\n")
            .starts_with("demo.toml:12:16: protocol.max_launches bounds what"));
  CHECK(
      mistakes(kGood + "[protocol]\ntarget_interval = 0\n") ==
      "demo.toml:12:19: protocol.target_interval: expected a number 0.001..1, found the number 0");
  CHECK(mistakes(kGood + "[protocol]\ntarget_interval = 0.1\nlaunches = 50\n")
            .ends_with("protocol.max_launches: expected at least protocol.launches"));
  CHECK(mistakes(kGood + "[protocol.noise]\nbussy = 0.5\n")
            .starts_with("demo.toml:12:1: unknown key \"bussy\" in [protocol.noise]; known: busy, "
                         "gpu_capped, load, psi_cpu"));
}

TEST_CASE("a duration that is none is complained about once") {
  for (const char* key : {"launch_timeout", "connect_timeout", "time_budget"}) {
    const std::string name(key);
    const auto none = mistakes(kGood + "[protocol]\n" + name + " = \"1 fortnight\"\n");
    CHECK(none.find("expected a duration") != std::string::npos);
    CHECK(none.find("more than 0") == std::string::npos);
    CHECK(mistakes(kGood + "[protocol]\n" + name + " = 0\n")
              .ends_with("protocol." + name + ": expected more than 0"));
  }
  CHECK(mistakes(kGood + "[protocol]\ntarget_interval = 0.1\nlaunches = 50\nmax_launches = 1\n")
            .find("at least protocol.launches") == std::string::npos);
}

TEST_CASE("no fewer iterations than the least of them, unless --set asks for fewer") {
  const std::string more = ": 100 are more than protocol.iterations, 5; lower it or raise those";
  const std::string protocol = kGood + "[protocol]\nmin_iterations = 100\n";
  CHECK(mistakes(protocol + "iterations = 5\n") ==
        "demo.toml:12:18: protocol.min_iterations" + more);
  CHECK(mistakes(kGood + "[protocol]\niterations = 5\n", {"protocol.min_iterations=100"}) ==
        "--set protocol.min_iterations=100: protocol.min_iterations" + more);
  CHECK(parsed(protocol).protocol.cells.min_iterations == 100);
  CHECK(parsed(protocol, {"protocol.iterations=3"}).protocol.cells.min_iterations == 3);
  CHECK(parsed(kGood + "[protocol]\niterations = 2\n").protocol.cells.min_iterations == 2);
}

TEST_CASE("settings whose combinations nobody could measure are refused before they are made") {
  std::string knobs = "[knobs.gloo]\n";
  for (int i = 0; i < 9; ++i)
    knobs += "env.K" + std::to_string(i) + " = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n";
  CHECK(mistakes(kGood + knobs) ==
        "demo.toml:18:10: knobs.gloo.env.K6: with it the settings have 10000000 combinations, more "
        "than 1000000: give fewer values, or sweep some of them in another file");
  std::string work = kGood + "[[work]]\ntraining = \"dear\"\nmodel = \"cnn\"\n";
  for (const char* name : {"batch", "samples", "steps", "epochs", "oracle", "threads", "servers"})
    work += std::string(name) + " = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n";
  CHECK(mistakes(work).find("with it the settings have 10000000 combinations") !=
        std::string::npos);
}

TEST_CASE("text that is no TOML is refused with its place") {
  CHECK(mistakes("name = \"x\nseed = 1\n").starts_with("demo.toml:1:10: "));
}

TEST_CASE("expressions are checked where they stand") {
  CHECK(mistakes("exclude = [\"size > 1MiB\",\n  \"bakend == gloo\"]\n" + kGood)
            .starts_with("demo.toml:2:3: exclude \"bakend == gloo\", column 1: unknown field"));
}

TEST_CASE("zip lists must have one length and belong to no other axis") {
  const std::string zip =
      "[[zip]]\ndatatype = [\"float32\", \"int32\"]\nalgorithm = [\"library\"]\n";
  CHECK(
      mistakes(kGood + zip) ==
      "demo.toml:12:12: [[zip]] lists must be of one length: algorithm has 1 values, datatype has "
      "2");
  CHECK(mistakes(kGood + "[[zip]]\nranks = [2]\nalgorithm = [\"library\"]\n") ==
        "demo.toml:12:9: axis ranks is given twice: once in [axes] or another [[zip]]");
}

TEST_CASE("overrides win over the file and are checked like it") {
  const auto experiment = parsed(kGood, {"axes.ranks=3", "protocol.iterations=9", "seed=11"});
  CHECK(experiment.seed == 11);
  CHECK(experiment.protocol.cells.iterations == 9);
  CHECK(mistakes(kGood, {"protocol.itertions=9"}) ==
        "--set protocol.itertions=9: unknown key \"itertions\" in [protocol]; known: batch_rooted, "
        "batch_target, "
        "cell_time_cap, connect_timeout, iterations, launch_timeout, launches, max_batch, "
        "max_launches, min_iterations, noise, rank_aggregation, retries, target_interval, "
        "time_budget, "
        "verify, warmup. Did you mean \"iterations\"?");
}

TEST_CASE("a profile is overridden or extended inside the experiment") {
  const std::string text = kGood +
                           "[profile.cross-docker]\nshm_size = \"128MiB\"\n"
                           "[profile.wide]\nextends = \"cross-docker\"\nipc = \"shared\"\n";
  const auto experiment = parsed(text, {"axes.environment=[\"cross-docker\", \"wide\"]"});
  CHECK(experiment.profiles.at("cross-docker").shm_size == Bytes(128 << 20));
  CHECK(experiment.profiles.at("wide").ipc == Sharing::shared);
  CHECK(experiment.profiles.at("wide").name == "wide");
  CHECK(mistakes(kGood + "[profile.odd]\nipc = \"shared\"\n")
            .starts_with("demo.toml:11:1: [profile.odd] is no known profile: write extends"));
  CHECK(mistakes(kGood + "[profile.cross-docker]\nipk = \"shared\"\n")
            .starts_with("demo.toml:12:1: unknown key \"ipk\" in [profile.cross-docker]"));
  // What --set gave stands in no file.
  const std::string set = "profile.x={extends=\"cross-docker\",launcher=\"inside\"}";
  CHECK(mistakes(kGood, {set}).starts_with("--set " + set + ": "));
  // One mistake is told once: the name in [axes] is that of a profile.
  const auto once = mistakes(kGood + "[profile.mine]\nextends = \"cross-docker\"\nipk = 1\n",
                             {"axes.environment=\"mine\""});
  CHECK(once.starts_with("demo.toml:13:1: unknown key \"ipk\" in [profile.mine]"));
  CHECK(once.find("unknown environment") == std::string::npos);
}

TEST_CASE("knobs belong to a backend and a scope") {
  const auto experiment = parsed(kGood + "[knobs.gloo]\ncall.segment = [\"default\", 65536]\n");
  REQUIRE(experiment.knobs.at(Backend::gloo).size() == 1);
  CHECK(experiment.knobs.at(Backend::gloo)[0].name == "call.segment");
  CHECK(experiment.knobs.at(Backend::gloo)[0].values ==
        std::vector<std::string>{"default", "65536"});
  CHECK(mistakes(kGood + "[knobs.gloo]\nmca.btl = \"tcp\"\n") ==
        "demo.toml:12:1: mca parameters belong to Open MPI, not to gloo; use env or call");
  const auto memory = parsed(kGood + "[knobs.gloo]\nmalloc.keep = [\"default\", true]\n");
  CHECK(memory.knobs.at(Backend::gloo)[0].name == "malloc.keep");
  CHECK(memory.knobs.at(Backend::gloo)[0].values == std::vector<std::string>{"default", "1"});
  CHECK(mistakes(kGood + "[knobs.gloo]\nmalloc.keep = \"64MiB\"\n") ==
        "demo.toml:12:15: malloc keep is \"64MiB\": expected true or false");
  CHECK(mistakes(kGood + "[knobs.gloo]\nmalloc.kepp = true\n").find("Did you mean \"keep\"?") !=
        std::string::npos);
  CHECK(mistakes(kGood + "[knobs.gloo]\nenv.A = \"a\\u0000b\"\n")
            .starts_with("demo.toml:12:9: knobs.gloo.env.A: the text holds the control character"));
  CHECK(mistakes(kGood + "[knobs.gluu]\nenv.A = 1\n")
            .starts_with("demo.toml:11:1: unknown backend \"gluu\""));
}

TEST_CASE("a knob's name may stand in quotes with its scope, as profiles write it") {
  const auto experiment = parsed(kGood +
                                 "[knobs.openmpi]\n\"mca.pml\" = [\"default\", \"ob1\"]\n"
                                 "env.A = 1\n\"malloc.keep\" = true\n");
  const auto& knobs = experiment.knobs.at(Backend::openmpi);
  REQUIRE(knobs.size() == 3);
  CHECK(knobs[0].name == "env.A");
  CHECK(knobs[1].name == "malloc.keep");
  CHECK(knobs[2].name == "mca.pml");
  CHECK(knobs[2].values == std::vector<std::string>{"default", "ob1"});
  CHECK(mistakes(kGood + "[knobs.gloo]\n\"mca.pml\" = \"ob1\"\n") ==
        "demo.toml:12:13: mca parameters belong to Open MPI, not to gloo; use env or call");
  CHECK(mistakes(kGood + "[knobs.openmpi]\nmca.btl = \"tcp\"\n\"mca.btl\" = \"self\"\n")
            .find("mca.btl is given twice") != std::string::npos);
  CHECK(mistakes(kGood + "[knobs.openmpi]\npml = \"ob1\"\n")
            .starts_with("demo.toml:12:7: unknown key \"pml\" in [knobs.openmpi]; known: "));
}

TEST_CASE("an experiment in the settings' first spelling is that of today, with notes") {
  const auto text = [](const std::string& between) {
    return kGood + "[profile.bare-metal]\nbackend.gloo = [{ name = \"malloc" + between +
           "keep\", value = \"true\", reason = \"r\" }]\n[tune.gloo.launch]\n\"malloc" + between +
           "huge_pages\" = [\"1\"]\n";
  };
  const auto today = parsed(text("."), {"exclude=\"mca.btl == tcp\""});
  CHECK(today.notes == std::vector<std::string>{});
  const auto first = parsed(text(":"), {"exclude=\"mca:btl == tcp\""});
  CHECK(first.notes ==
        std::vector<std::string>{
            "demo.toml:12:26: \"malloc:keep\" is an old spelling that still reads: write "
            "\"malloc.keep\"",
            "--set exclude=\"mca:btl == tcp\": exclude \"mca:btl == tcp\", column 1: \"mca:btl\" "
            "is an old spelling "
            "that still reads: write \"mca.btl\"",
            "demo.toml:14:23: \"malloc:huge_pages\" is an old spelling that still reads: write "
            "\"malloc.huge_pages\""});
  CHECK(to_json(first.profiles.at("bare-metal")) == to_json(today.profiles.at("bare-metal")));
  using Launch = std::vector<std::pair<std::string, std::vector<std::string>>>;
  for (const auto& experiment : {today, first})
    CHECK(tune_options_of(experiment).backends.at(Backend::gloo).space.launch ==
          Launch{{"malloc.huge_pages", {"1"}}});
  CHECK(mistakes(kGood + "[tune.gloo.launch]\nUCX_TLS = \"tcp\"\n") ==
        "demo.toml:12:11: \"UCX_TLS\": expected \"env.NAME\", \"mca.NAME\" or \"malloc.NAME\" in "
        "quotes");
}

TEST_CASE("a training work table reads methods and settings, and checks each value", "[d-40]") {
  const std::string head =
      kGood + "[[work]]\ntraining = [\"mg-wfbp\", \"dear\"]\nmodel = \"cnn\"\n";
  const auto experiment = parsed(head + "batch = [8, 16]\nmerge = \"greedy\"\n");
  REQUIRE(experiment.work.size() == 2);
  CHECK(experiment.work[1].training.size() == 2);
  CHECK(experiment.work[1].settings.size() == 3);
  CHECK(experiment.work[1].settings[1].values == std::vector<std::string>{"8", "16"});
  const auto contains = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  contains(mistakes(head + "batch = 0\n"), "a whole number 1..1048576");
  contains(mistakes(head + "merge = \"best\"\n"), "unknown merge rule");
  CHECK(
      mistakes(head + "credit = \"8MiB\"\n") ==
      "demo.toml:14:10: credit: belongs to bytescheduler-ps, bytescheduler-a2a; train with one of "
      "these, too, or leave it out");
  contains(mistakes(kGood + "[[work]]\ntraining = [\"wfbp-a2a\"]\nmodel = \"cnn\"\nbucket = 4\n"),
           "bucket: belongs to dear, ddp");
  contains(
      mistakes(kGood + "[[work]]\ntraining = [\"dear\"]\nmodel = \"cnn\"\nmerge = \"greedy\"\n"),
      "merge: belongs to mg-wfbp");
  contains(mistakes(head + "size = \"1KiB\"\n"), "size");
  contains(mistakes(kGood + "[[work]]\ntraining = \"dear\"\n"), "needs the key model");
  contains(mistakes(head + "sequence = [128, 600]\n"),
           "training: sequence = \"600\": expected a whole number 1..512");
  contains(mistakes(kGood + "[[work]]\ntraining = \"deer\"\nmodel = \"cnn\"\n"), "dear");
  contains(mistakes(kGood + "[[work]]\ncollective = \"training\"\nsize = \"4B\"\n"),
           "write training = ");
}

TEST_CASE("a local_after that no cell of the work comes to is refused where it stands", "[d-40]") {
  const std::string head = kGood +
                           "[protocol]\nwarmup = 2\n[[work]]\ntraining = \"bsp-a2a\"\n"
                           "model = \"cnn\"\nsynchronisation = [\"bsp\", \"post-local\"]\n"
                           "local_steps = 3\nsteps = 10\nlocal_after = ";
  CHECK(mistakes(head + "200\n") ==
        "demo.toml:19:15: local_after = 200: sums of gradients take 67 rounds of 3 steps, and 12 "
        "are done in all (protocol.warmup = 2, steps = 10), so that no local step would come; take "
        "local_after = 33 at most, more steps, or epochs");
  // Of several the plan leaves out those that never come; a wrong value is told as that alone.
  CHECK(parsed(head + "33\n").work.size() == 2);
  CHECK(mistakes(head + "\"many\"\n").find("no local step") == std::string::npos);
  CHECK(parsed(head + "200\nepochs = [0, 4]\n").work.size() == 2);
}

TEST_CASE("what no probe sees is declared in [machine], or in a file that it names",
          "[B-20][B-21][B-31]") {
  CHECK(parsed(kGood).machine.deployment.empty());
  const auto machine =
      parsed(kGood + "[machine]\ntopology = \"fat-tree\"\ndeployment = \"edge\"\n" +
             "aggregation = \"switchml\"\nswitches.leaf = [\"n1\", \"n2\"]\n")
          .machine;
  CHECK(machine.topology == "fat-tree");
  CHECK(machine.deployment == "edge");
  CHECK(machine.aggregation == "switchml");
  CHECK(machine.places.at("n2").leaf_switch == "leaf");
  const std::string file = "/tmp/dyn-machine-" + std::to_string(getpid()) + ".toml";
  std::ofstream(file) << "[zones]\neast = \"n1\"\n";
  const std::string named = "[machine]\nfile = \"" + file + "\"\n";
  CHECK(parsed(kGood + named).machine.places.at("n1").zone == "east");
  CHECK(mistakes(kGood + named + "topology = \"torus\"\n").find("stands alone") !=
        std::string::npos);
  std::ofstream(file) << "[zones]\neast = 1\n";
  CHECK(mistakes(kGood + named).find(file + ":2:8") != std::string::npos);
  std::remove(file.c_str());
  CHECK(mistakes(kGood + named).find(file) != std::string::npos);
  CHECK(mistakes(kGood + "[machine]\ndeployment = \"moon\"\n").find("demo.toml:") == 0);
}

TEST_CASE("an experiment names its hosts, or Slurm and how many nodes") {
  CHECK_FALSE(parsed(kGood).cluster);
  const auto hosts = parsed(kGood + "[cluster]\nhosts = [\"n1:2\", \"n2:2\"]\n").cluster;
  REQUIRE(hosts);
  CHECK(hosts->start == ClusterStart::ssh);
  CHECK(hosts->hosts == std::vector<ClusterNode>{{"n1", 2}, {"n2", 2}});
  const auto slurm = parsed(kGood + "[cluster]\nslurm = \"mpirun\"\nnodes = 2\n").cluster;
  REQUIRE(slurm);
  CHECK(slurm->start == ClusterStart::mpirun);
  CHECK(slurm->nodes == 2);
  const auto other = parsed(kGood + "[cluster]\nhosts = \"n1\"\nremote_shell = \"/opt/into\"\n" +
                            "records = \"tcp\"\n")
                         .cluster;
  REQUIRE(other);
  CHECK(other->remote_shell == "/opt/into");
  CHECK(other->records == RecordsWay::tcp);
  CHECK(hosts->records == RecordsWay::automatic);
  for (const char* shell : {"docker exec", "-x", "bin/into", "a:b"})
    CHECK(mistakes(kGood + "[cluster]\nhosts = \"n1\"\nremote_shell = \"" + shell + "\"\n")
              .find("called in ssh's place") != std::string::npos);
  CHECK(
      mistakes(kGood + "[cluster]\nslurm = true\nremote_shell = \"into\"\n").find("is for hosts") !=
      std::string::npos);
  CHECK(mistakes(kGood + "[cluster]\nhosts = \"n1\"\nrecords = \"pigeons\"\n") != "");
  CHECK(mistakes(kGood + "[cluster]\nnodes = 2\n").find("needs hosts") != std::string::npos);
  CHECK(mistakes(kGood + "[cluster]\nslurm = \"ssh\"\n") != "");
  CHECK(mistakes(kGood + "[cluster]\nhosts = \"n1\"\nslurm = true\n").find("exclude") !=
        std::string::npos);
  CHECK(mistakes(kGood + "[cluster]\nhosts = \"n1\"\npartition = \"x\"\n").find("slurm = true") !=
        std::string::npos);
  CHECK(parsed(kGood + "[cluster]\nhosts = \"n1:2,n2:2\"\ndealt = true\n").cluster->dealt);
  CHECK(mistakes(kGood + "[cluster]\nslurm = true\ndealt = true\n")
            .find("cluster.dealt is for hosts: ranks of Slurm") != std::string::npos);
  CHECK(mistakes(kGood + "[cluster]\nhosts = \"n1\"\ndealt = true\ngpus_per_node = 1\n")
            .find("cluster.dealt is for ranks on CPUs") != std::string::npos);
  CHECK(mistakes(kGood + "[cluster]\nslurm = true\noptions = \"rm\"\n").find("no option") !=
        std::string::npos);
}
