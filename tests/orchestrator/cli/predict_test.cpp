// What `predict` prints and refuses.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>

#include "containers/command.hpp"
#include "core/vocabulary/json.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/orchestrator/cli/program.hpp"

using namespace dynamiccl;
using testing::run;

TEST_CASE("predict prints every algorithm of each size, the fastest first",
          "[F-13][F-14][F-18][H-17]") {
  const auto result = run({"predict", "gpus-100k", "--bytes", "1KiB,64MiB", "--json"});
  REQUIRE(result.exit_code == 0);
  const auto rows = nlohmann::json::parse(result.out);
  REQUIRE(rows.size() > 20);
  CHECK(rows.front().at("size_bytes") == 1024);
  CHECK(rows.front().at("against_fastest") == 1.0);
  CHECK(rows.back().at("against_fastest").get<double>() > 1.0);
  CHECK(run({"predict", "cross-site-64"}).out.find("nothing of it was measured") !=
        std::string::npos);
}

TEST_CASE("predict lists the machines, and says what it cannot do") {
  CHECK(run({"predict"}).out.find("rtx2080ti-8x4  (32 ranks, 8 nodes, star)") != std::string::npos);
  const auto refused = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"predict", "rtx2080ti-8x4"});
    const auto result = run(arguments);
    CHECK(result.exit_code == 2);
    return result.err;
  };
  CHECK(refused({"--ranks", "33"}).find("rtx2080ti-8x4 has 32 (8 nodes of 4)") !=
        std::string::npos);
  CHECK(refused({"--operation", "training"}).find("has no model") != std::string::npos);
  CHECK(refused({"--set", "nodes=many"}).find("nodes") != std::string::npos);
  // What the list of machines or a model's traffic would leave out of account is no input.
  const std::vector<std::vector<std::string>> of_machine{
      {"--traffic", "llama-7b"}, {"--bytes", "1KiB"},  {"--operation", "broadcast"},
      {"--ranks", "2"},          {"--set", "nodes=2"}, {"--smpi"}};
  for (std::vector<std::string> option : of_machine) {
    INFO(option[0]);
    const std::string name = option[0];
    option.insert(option.begin(), "predict");
    const auto result = run(option);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(name + ": of which MACHINE?") != std::string::npos);
  }
  CHECK(refused({"--traffic", "llama-7b", "--bytes", "1KiB"}).find("--bytes excludes --traffic") !=
        std::string::npos);
  CHECK(refused({"--traffic", "llama-7b", "--operation", "broadcast"})
            .find("--operation excludes --traffic") != std::string::npos);
}

TEST_CASE("predict sets what SMPI simulates next to the models", "[A-14]") {
  const auto predict = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"predict"});
    arguments.insert(arguments.end(), {"--smpi", "--json"});
    return run(arguments);
  };
  CHECK(predict({"bcube-1024"}).exit_code == 1);
  if (find_program("smpirun").empty()) SKIP("smpirun is not here: libsimgrid-dev brings it");
  CHECK(predict({"bcube-1024"}).err.find("SimGrid has no BCube") != std::string::npos);
  // By the same messages, the shape of the network decides.
  std::set<double> doubling;
  for (const char* machine : {"star-1024", "fat-tree-1024", "torus-1024", "dragonfly-1024"}) {
    INFO(machine);
    const auto result = predict({machine, "--ranks", "64", "--bytes", "1MiB"});
    REQUIRE(result.exit_code == 0);
    int compared = 0;
    for (const auto& row : nlohmann::json::parse(result.out)) {
      if (row.at("smpi_ratio").is_null()) continue;
      ++compared;
      INFO(row.dump());
      if (row.at("algorithm") == "recursive_doubling")
        doubling.insert(row.at("smpi_us").get<double>());
      // At one switch both count the same messages on the same links.
      if (machine != std::string("star-1024")) continue;
      CHECK(row.at("smpi_ratio") > 0.9);
      CHECK(row.at("smpi_ratio") < 1.1);
    }
    CHECK(compared == 3);
  }
  CHECK(doubling.size() == 4);
  // Other calls, and a library whose rules no replay knows.
  for (const char* operation : {"allreduce", "allgather", "reduce_scatter", "gather", "alltoall"}) {
    INFO(operation);
    const auto result = predict({"star-1024", "--ranks", "64", "--operation", operation});
    REQUIRE(result.exit_code == 0);
    std::map<std::string, double> us;
    for (const auto& row : nlohmann::json::parse(result.out)) {
      INFO(row.dump());
      if (!row.at("smpi_us").is_null()) us[row.at("algorithm")] = row.at("smpi_us").get<double>();
      if (row.at("algorithm") != "ring" && row.at("algorithm") != "recursive_halving") continue;
      CHECK(row.at("smpi_ratio") > 0.9);
      CHECK(row.at("smpi_ratio") < 1.1);
    }
    CHECK(us["MPICH 3.3b's rules"] > 0);
    // What they choose, without the communicators that their first call makes.
    if (operation != std::string("allreduce")) continue;
    CHECK(us["MPICH 3.3b's rules"] > 0.99 * us["recursive_doubling"]);
    CHECK(us["MPICH 3.3b's rules"] < 1.01 * us["recursive_doubling"]);
  }
  CHECK(predict({"star-1024", "--operation", "push"}).err.find("push is not simulated: of MPI's") !=
        std::string::npos);
  const std::vector<std::string> again{"star-1024", "--ranks", "16"};
  CHECK(predict(again).out == predict(again).out);
}

TEST_CASE("predict of several machines says what keeping one's choice costs on the others",
          "[A-57][F-02][F-03][F-04][F-05]") {
  const auto choices = [](const std::vector<std::string>& more) {
    std::vector<std::string> words{"predict", "tier-1",  "tier-2",         "tier-3",
                                   "tier-4",  "--bytes", "1KiB,1MiB,64MiB"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const auto result = choices({"--json"});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const auto rows = nlohmann::json::parse(result.out);
  REQUIRE(rows.size() == 12);
  std::set<std::string> chosen;
  int differ = 0;
  for (const auto& row : rows) {
    INFO(row.dump());
    chosen.insert(row.at("algorithm").get<std::string>());
    const std::string own = row.at("chosen_for");
    CHECK(row.at(own) == 1.0);
    for (const char* tier : {"tier-1", "tier-2", "tier-3", "tier-4"}) {
      if (row.at(tier).is_null()) continue;
      CHECK(row.at(tier) >= 1.0);
      differ += row.at(tier) >= 1.05 ? 1 : 0;
    }
  }
  CHECK(chosen == std::set<std::string>{"rabenseifner", "recursive_doubling"});
  CHECK(differ >= 6);
  auto told = choices({});
  INFO(told.out);
  // Where sentences are folded is not what this is about.
  std::replace(told.out.begin(), told.out.end(), '\n', ' ');
  CHECK(told.out.find("by analytic models: nothing of it was measured") != std::string::npos);
  CHECK(told.out.find("kept elsewhere, what is fastest on tier-1 takes 5 % more at least in ") !=
        std::string::npos);
  CHECK(told.out.starts_with("allreduce on tier-1 ("));
  CHECK(told.out.find(" ranks), tier-2 (") != std::string::npos);
  CHECK(choices({"--traffic", "llama-7b"}).exit_code == 2);
  const auto one_rank = choices({"--ranks", "1"});
  CHECK(one_rank.exit_code == 2);
  CHECK(one_rank.err.find("one rank sends nothing") != std::string::npos);
  const testing::Folder folder;
  const std::string machine =
      "description = \"mine\"\nsource = \"assumed\"\nnodes = 4\n[links.network]\n"
      "latency = \"3us\"\ngbytes_per_s = 5.0\nsource = \"assumed\"\n";
  for (const char* name : {"a|b.toml", "algorithm.toml", "tier-1.toml"}) {
    const auto refused = run({"predict", "tier-1", folder.file(name, machine)});
    INFO(refused.err);
    CHECK(refused.exit_code == 2);
    CHECK(refused.err.find("rename the file") != std::string::npos);
  }
  // One after the other by the models is what each says by itself.
  const auto alone =
      nlohmann::json::parse(run({"predict", "tier-4", "--bytes", "64MiB", "--json"}).out);
  CHECK(rows.back().at("algorithm") == alone.front().at("algorithm"));
}

TEST_CASE("a machine's file is made of a stored run, and says how far off it is", "[A-14]") {
  const testing::Folder folder;
  const std::string db = folder.path("runs.sqlite");
  {
    Store store(db);
    const auto plan = testing::make_plan("0f1e2d3c", {"bare-metal"}, {"allreduce", "allgather"},
                                         {0, 1024, 4096, 65536, 1048576}, 4);
    store.begin_run(plan.run, plan.groups, plan.cells);
    testing::store_launch(store, plan, plan.groups[0], 0, [](const CellInfo& cell, int, int) {
      return 10.0 + static_cast<double>(cell.size_bytes) / 100;
    });
  }
  const auto fitted = run({"predict", "--fit", "last", "--db", db});
  INFO(fitted.err);
  REQUIRE(fitted.exit_code == 0);
  CHECK(fitted.out.find("size = 0") == std::string::npos);
  const auto file = folder.file("mine.toml", fitted.out);
  const auto result = run({"predict", file, "--bytes", "16KiB", "--json"});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const auto rows = nlohmann::json::parse(result.out);
  const auto& library = rows.back();
  CHECK(library.at("predicted_us").get<double>() > 10 + 163);
  CHECK(library.at("predicted_us").get<double>() < 10 + 165);
  CHECK(library.at("error_percent").get<double>() < 0.1);
  CHECK(rows.front().at("error_p90_percent").get<double>() > 0);
  const auto refused = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"predict", "--db", db});
    const auto failed = run(more);
    CHECK(failed.exit_code == 2);
    return failed.err;
  };
  CHECK(refused({"--fit", "last", "--where", "ranks"}).find("expected COLUMN=VALUE") !=
        std::string::npos);
  CHECK(refused({"--fit", "last", "--where", "collective=broadcast"})
            .find("no measured collective of several ranks is left") != std::string::npos);
  CHECK(refused({"--fit", "last", "--json"}).find("leave out --json") != std::string::npos);
  CHECK(refused({"gpus-100k", "--fit", "last"}).find("--fit") != std::string::npos);
  const std::vector<std::pair<std::string, std::string>> ignored{
      {"--ranks", "2"}, {"--set", "nodes=2"}, {"--bytes", "1KiB"}, {"--operation", "broadcast"}};
  for (const auto& [option, value] : ignored)
    CHECK(refused({"--fit", "last", option, value}).find(option + " excludes --fit") !=
          std::string::npos);
  CHECK(refused({"--fit", "last", "--where", "collective=allreduce", "--where", "size_bytes=1024"})
            .find("two sizes or operations") != std::string::npos);
  SQLite::Database(db, SQLite::OPEN_READWRITE).exec("UPDATE plan_group SET ranks = 4294967300");
  CHECK(refused({"--fit", "last"}).find("and a machine has 1048576 at most") != std::string::npos);
  {
    Store store(db);
    const auto plan =
        testing::make_plan("1e2d3c4b", {"simulated-x"}, {"allreduce"}, {1024, 4096}, 4);
    store.begin_run(plan.run, plan.groups, plan.cells);
    testing::store_launch(store, plan, plan.groups[0], 0,
                          [](const CellInfo&, int, int) { return 10.0; });
  }
  CHECK(refused({"--fit", "last"})
            .find("simulated-x was simulated on a machine's file, and a machine is fitted to what "
                  "was measured") != std::string::npos);
}

TEST_CASE("predict lists the calls of a language model's step, and whether it fits",
          "[A-44][D-103][F-19][F-21][F-26]") {
  // The survey's synchronisation of 100,000 million parameters of 16 bits.
  const testing::Folder folder;
  const auto seconds = [&](const char* links) {
    const auto file = folder.file(
        "two.toml", std::string("description = \"d\"\nsource = \"the survey\"\n") + links);
    return run({"predict", file, "--traffic", "survey-100b"}).out;
  };
  const std::string slow = seconds(
      "nodes = 2\n[links.network]\nlatency = \"0.001us\"\n"
      "gbytes_per_s = 0.125\nsource = \"1 Gb/s\"\n");
  INFO(slow);
  CHECK(slow.find("one after another 1600 s of communication") != std::string::npos);
  CHECK(slow.find("does not say its memory") != std::string::npos);
  const std::string fast = seconds(
      "nodes = 1\nranks_per_node = 2\n[links.node]\nlatency = \"0.001us\"\n"
      "gbytes_per_s = 900\nsource = \"NVLink\"\n");
  CHECK(fast.find("one after another 0.2222 s of communication") != std::string::npos);

  const std::vector<std::string> gpus{"predict", "gpus-100k", "--ranks", "64", "--traffic"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), gpus.begin(), gpus.end());
    return run(more);
  };
  CHECK(with({"survey-1.3t"}).out.find("DOES NOT FIT in 80 GiB") != std::string::npos);
  CHECK(with({"llama-7b", "--parallel", "tensor=8"}).out.find(", of 80 GiB") != std::string::npos);
  const auto result =
      with({"llama-7b", "--parallel", "tensor=8,pipeline=4,micro_batches=8", "--json"});
  REQUIRE(result.exit_code == 0);
  const auto rows = nlohmann::json::parse(result.out);
  CHECK(rows.front().at("phase") == "forward");
  CHECK(rows.front().at("limit") == "node");
  CHECK(rows.back().at("phase") == "gradients");
  CHECK(rows.back().at("limit") == "network");
  CHECK(with({"llama-7b", "--parallel", "tensor=3"}).exit_code == 2);
}
