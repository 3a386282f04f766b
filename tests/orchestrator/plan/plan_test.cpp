#include "orchestrator/plan/plan.hpp"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>

#include "orchestrator/cli/verbs/plan_printer.hpp"
#include "orchestrator/launch/group_commands.hpp"
#include "orchestrator/plan/gpu_placement.hpp"
#include "tests/orchestrator/experiment/demo_experiment.hpp"
#include "tuner/table/table.hpp"

using namespace dynamiccl;
using dynamiccl::testing::parsed;

namespace {

const std::string kMatrix = R"(name = "demo"
[axes]
environment = ["bare-metal", "cross-docker"]
backend = ["openmpi", "gloo", "nccl"]
architecture = ["ps", "ring"]
ranks = 2
[[work]]
architecture = "ring"
collective = ["allreduce", "allgather"]
size = ["4B", "1KiB"]
[[work]]
architecture = "ps"
collective = ["push", "pull"]
size = ["4B", "1KiB"]
)";

Capabilities no_gpu() {
  Capabilities can;
  can.backend_reasons[Backend::nccl] = "no GPU found";
  return can;
}

}  // namespace

TEST_CASE("lists expand to their cross product, grouped by what starts together") {
  const auto plan = make_plan(parsed(kMatrix), no_gpu(), nullptr);
  CHECK(plan.groups.size() == 12);
  CHECK(plan.cell_count() == 48);
  std::set<std::string> ids;
  for (const auto& group : plan.groups) {
    CHECK(group.cells.size() == 4);
    ids.insert(group.id);
    for (const auto& cell : group.cells) ids.insert(cell.work.id);
  }
  CHECK(ids.size() == 60);
  CHECK(plan.groups.front().environment == "bare-metal");
}

TEST_CASE("impossible cells stay in the plan with their reason") {
  const auto plan = make_plan(parsed(kMatrix), no_gpu(), nullptr);
  for (const auto& group : plan.groups) {
    for (const auto& cell : group.cells) {
      if (group.backend == Backend::nccl) {
        CHECK(cell.impossible == "no GPU found");
      } else if (cell.work.collective == Collective::allgather && cell.work.size == Bytes(4)) {
        CHECK(cell.impossible == "4 B do not split into 2 equal parts of whole float32 elements");
      } else {
        CHECK(cell.impossible.empty());
      }
    }
  }
}

TEST_CASE("sizes are rounded down to whole elements for each of three ranks, and said to be") {
  const auto experiment = parsed(kMatrix, {"axes.ranks=3", "axes.environment=bare-metal"});
  const auto plan = make_plan(experiment, no_gpu(), nullptr);
  std::set<std::uint64_t> gathered;
  for (const auto& group : plan.groups)
    for (const auto& cell : group.cells) {
      if (cell.work.collective == Collective::allgather && cell.impossible.empty())
        gathered.insert(cell.work.size.count());
      CHECK((cell.work.collective == Collective::allgather || !cell.rounded));
    }
  CHECK(gathered == std::set<std::uint64_t>{1020});
  const std::string text = plan_text(experiment, plan, {}, 1000, false);
  CHECK(text.find("1 cell: sizes rounded down to whole elements for each of 3 ranks") !=
        std::string::npos);
  // Ranks that have no core of their own are said, too.
  LaunchSite small;
  small.cores = 2;
  CHECK(plan_text(experiment, plan, small, 1000, false)
            .find("\n3 ranks share 2 cores: how ranks wait for a core is timed, too\n") !=
        std::string::npos);
  small.cores = 3;
  CHECK(plan_text(experiment, plan, small, 1000, false).find("share") == std::string::npos);
}

TEST_CASE("a work's calls make cells of their own, and those without sense are impossible") {
  const auto plan_of = [](const std::string& lines) {
    return make_plan(parsed(R"(name = "demo"
[axes]
environment = "bare-metal"
backend = "gloo"
architecture = "ring"
ranks = 2
[[work]]
collective = ["allreduce", "broadcast"]
size = "1KiB"
)" + lines),
                     {}, nullptr);
  };
  const auto plain = plan_of("");
  const auto usual = plan_of("op = \"sum\"\nroot = 0\ncold_cache = false\n");
  CHECK(plain.groups[0].cells[0].work.id == usual.groups[0].cells[0].work.id);
  const auto plan = plan_of("op = [\"sum\", \"max\"]\nwarmup = 7\n");
  REQUIRE(plan.groups[0].cells.size() == 4);
  std::set<std::string> reasons;
  for (const auto& cell : plan.groups[0].cells) {
    CHECK(cell.work.knobs.at("warmup") == "7");
    if (!cell.impossible.empty()) reasons.insert(cell.impossible);
  }
  CHECK(reasons == std::set<std::string>{"op = \"max\": broadcast reduces nothing; allreduce, "
                                         "reduce and reduce_scatter do"});
  const auto uneven = plan_of(R"([[work]]
collective = ["barrier", "alltoallv", "scatter"]
size = [0, "8B", "1KiB"]
skew = [2, 9]
)");
  std::map<std::string, std::string> by_name;
  for (const auto& cell : uneven.groups[0].cells)
    by_name[fmt::format("{} {} {}", name_of(cell.work.collective), cell.work.size.count(),
                        cell.work.knobs.contains("skew") ? cell.work.knobs.at("skew") : "")] =
        cell.impossible;
  // A barrier has no size, parts by a skew no meaning but where they differ.
  CHECK_FALSE(by_name.contains("barrier 1024 2"));
  CHECK(by_name.at("alltoallv 0 2").empty());
  CHECK(by_name.at("alltoallv 8 9") ==
        "alltoallv over 2 ranks needs 10 float32 elements, 8 B are fewer");
  CHECK(by_name.at("alltoallv 1024 9").empty());
  CHECK(by_name.at("scatter 1024 2") ==
        "skew: the parts of scatter are alike; those of allgatherv and alltoallv differ");
  const auto rooted = plan_of("root = 5\n");
  for (const auto& cell : rooted.groups[0].cells) CHECK_FALSE(cell.impossible.empty());
}

TEST_CASE("a number that Open MPI has no algorithm for is impossible, as it would take its own") {
  const auto plan_of = [](const std::string& number) {
    return make_plan(
        parsed(kMatrix + "[knobs.openmpi]\nmca.coll_tuned_allreduce_algorithm = " + number,
               {"axes.environment=bare-metal", "axes.backend=openmpi"}),
        {}, nullptr);
  };
  CHECK(plan_of("6").possible_cells() > 0);
  CHECK(plan_of("99").possible_cells() == 0);
  CHECK(plan_of("99").groups[0].cells[0].impossible ==
        "mca.coll_tuned_allreduce_algorithm = 99: Open MPI 4.1 has algorithms 1 to 6 of allreduce, "
        "and 0 for its own choice");
}

TEST_CASE("a group that its profile leaves no command for is impossible, the others are not") {
  const auto experiment = parsed(kMatrix + R"([profile.bridged]
extends = "bare-metal"
[[profile.bridged.backend.openmpi]]
name = "mca.btl_tcp_if_include"
value = "{subnet}"
reason = "a bridge that is not there"
)",
                                 {"axes.environment=[\"bare-metal\", \"bridged\"]"});
  auto plan = make_plan(experiment, no_gpu(), nullptr);
  const auto possible = plan.possible_cells();
  rule_out_groups_without_commands(plan, experiment);
  CHECK(plan.possible_cells() < possible);
  for (const auto& group : plan.groups) {
    const bool ruled_out = group.environment == "bridged" && group.backend == Backend::openmpi;
    CHECK((group.possible_cells() == 0) == (ruled_out || group.backend == Backend::nccl));
    if (ruled_out)
      CHECK(group.cells.front().impossible.find("needs {subnet}") != std::string::npos);
  }
}

TEST_CASE("a profile that names folders of the launch is possible before there is a launch") {
  Capabilities can;
  can.gpus = 2;
  const auto experiment = parsed(
      "name = \"x\"\n[axes]\nenvironment = \"cross-docker-one-host\"\nbackend = \"nccl\"\n"
      "architecture = \"ring\"\nranks = 2\n[[work]]\ncollective = \"allreduce\"\n"
      "size = \"1KiB\"\n");
  auto plan = make_plan(experiment, can, nullptr);
  rule_out_groups_without_commands(plan, experiment);
  CHECK(plan.groups.at(0).cells.at(0).impossible == "");
}

TEST_CASE("NCCL's ranks take turns on fewer GPUs where a knob says so") {
  const auto reason = [](const std::string& knob) {
    Capabilities can;
    can.gpus = 2;
    const auto plan = make_plan(
        parsed("name = \"x\"\n[axes]\nenvironment = \"bare-metal\"\nbackend = \"nccl\"\n"
               "architecture = \"ring\"\nranks = 4\n[[work]]\ncollective = \"allreduce\"\n"
               "size = \"1KiB\"\n" +
               knob),
        can, nullptr);
    return plan.groups.at(0).cells.at(0).impossible;
  };
  const std::string named = "[knobs.nccl.env]\nDYNAMICCL_SHARED_GPUS = ";
  CHECK(reason("") ==
        "NCCL needs a GPU per rank: 4 ranks, 2 GPUs (env.DYNAMICCL_SHARED_GPUS lets "
        "ranks take turns)");
  CHECK(reason(named + "2\n").empty());
  CHECK(reason(named + "3\n") ==
        "env.DYNAMICCL_SHARED_GPUS = 3: ranks take turns on 1 GPU or more, here are 2 GPUs");
  CHECK_FALSE(reason(named + "\"two\"\n").empty());
}

TEST_CASE("each kind of impossible cell is told apart") {
  const auto reason = [](const std::vector<std::string>& overrides, const Capabilities& can) {
    const auto plan = make_plan(
        parsed("name = \"x\"\n[axes]\nenvironment = \"bare-metal\"\nbackend = \"gloo\"\n"
               "architecture = \"ring\"\nranks = 2\n[[work]]\ncollective = \"allreduce\"\n"
               "size = \"1KiB\"\n",
               overrides),
        can, nullptr);
    return plan.groups.at(0).cells.at(0).impossible;
  };
  CHECK(reason({}, {}).empty());
  CHECK(reason({"work.0.collective=push"}, {}) == "push does not belong to the ring architecture");
  CHECK(reason({"axes.architecture=ps", "axes.ranks=1", "work.0.collective=push"}, {}) ==
        "a parameter server and a worker need 2 ranks, the cell has 1");
  CHECK(reason({"axes.ranks=1", "work.0.collective=sendrecv"}, {}) ==
        "sendrecv needs 2 ranks, the cell has 1");
  CHECK(reason({"work.0.algorithm=own_ring", "work.0.collective=broadcast"}, {}) ==
        "own_ring is written for allreduce, allgather and reduce_scatter, not for broadcast");
  CHECK(reason({"work.0.algorithm=two_level", "work.0.collective=allgather"}, {}) ==
        "two_level is written for allreduce, not for allgather");
  CHECK(reason({"work.0.algorithm=aggregator", "axes.datatype=float64"}, {}) ==
        "an aggregator sums float32, in fixed point, and int32, not float64");
  CHECK(reason({"work.0.algorithm=aggregator"}, {}).empty());
  CHECK(reason({"work.0.size=3"}, {}) ==
        "3 B do not split into 1 equal part of whole float32 elements");
  CHECK(reason({"work.0.size=6"}, {}).empty());  // rounded down
  Capabilities small;
  small.memory = Bytes(1 << 30);
  CHECK(reason({"work.0.size=1GiB"}, small) ==
        "2 ranks need about 6.0 GiB, the machine has 1.0 GiB");
  CHECK(reason({"axes.ranks=1024"}, small) ==
        "1024 ranks need about 4.0 GiB, the machine has 1.0 GiB");
  Capabilities none;
  none.environment_reasons["bare-metal"] = "no such machine";
  CHECK(reason({}, none) == "no such machine");
}

TEST_CASE("an algorithm that a library will refuse is impossible before it is asked") {
  const auto reason = [](const std::string& backend, const std::string& algorithm,
                         const std::string& more = "", const Capabilities& can = {}) {
    const auto plan = make_plan(
        parsed("name = \"x\"\n[axes]\nenvironment = \"bare-metal\"\nbackend = \"" + backend +
               "\"\narchitecture = \"ring\"\nranks = 2\nalgorithm = \"" + algorithm +
               "\"\n[[work]]\ncollective = \"allreduce\"\nsize = \"1KiB\"\n" + more),
        can, nullptr);
    return plan.groups.at(0).cells.at(0).impossible;
  };
  CHECK(reason("gloo", "library").empty());
  CHECK(reason("gloo", "bcube").empty());
  CHECK(reason("gloo", "tree") ==
        "gloo has no algorithm \"tree\" of allreduce; known: library, ring, bcube, own_ring, "
        "two_level, aggregator");
  CHECK(reason("mpich", "recursive_doubling").empty());
  CHECK(reason("mpich", "recursive_dubling").ends_with("Did you mean \"recursive_doubling\"?"));
  CHECK(reason("openmpi", "own_ring").empty());
  const std::string forced = reason("openmpi", "rabenseifner");
  CHECK(
      forced.starts_with("Open MPI takes a forced algorithm only where the launch sets "
                         "coll_tuned_use_dynamic_rules"));
  CHECK(forced.find("[knobs.openmpi.mca]") != std::string::npos);
  const std::string rules = "[knobs.openmpi]\nmca.coll_tuned_use_dynamic_rules = ";
  CHECK(reason("openmpi", "rabenseifner", rules + "1\n").empty());
  CHECK_FALSE(reason("openmpi", "rabenseifner", rules + "0\n").empty());
  CHECK(reason("openmpi", "rabenseifner",
               "[profile.bare-metal]\nenvironment = { OMPI_MCA_coll_tuned_use_dynamic_rules = "
               "\"1\" }\n")
            .empty());
  CHECK(reason("openmpi", "library", "[knobs.openmpi]\ncall.coll_tuned_priority = 1\n")
            .starts_with("Open MPI takes a call's settings"));
  Capabilities by_machine;
  by_machine.may_force_algorithms = true;
  CHECK(reason("openmpi", "rabenseifner", "", by_machine).empty());
  by_machine.gpus = 2;
  CHECK(reason("nccl", "tree/ll128", "", by_machine).empty());
  CHECK_FALSE(reason("nccl", "tree/ll127", "", by_machine).empty());
}

TEST_CASE("ids depend on what is measured, not on the text around it") {
  const auto first = make_plan(parsed(kMatrix), no_gpu(), nullptr);
  const auto same =
      make_plan(parsed("# a comment\n" + kMatrix, {"protocol.launches=3"}), no_gpu(), nullptr);
  const auto other = make_plan(parsed(kMatrix, {"axes.ranks=3"}), no_gpu(), nullptr);
  const auto variant = make_plan(
      parsed(kMatrix + "[profile.bare-metal]\nenvironment = { A = \"1\" }\n"), no_gpu(), nullptr);
  CHECK(first.groups[0].id == same.groups[0].id);
  CHECK(first.groups[0].cells[0].work.id == same.groups[0].cells[0].work.id);
  CHECK(first.groups[0].id != other.groups[0].id);
  CHECK(first.groups[0].id != variant.groups[0].id);
  // The plan's ids are stored: this one must never change for the same cell.
  CHECK(first.groups[0].id.size() == 16);
}

TEST_CASE("where, exclude and --only drop cells, and groups left without any") {
  const auto plan = make_plan(parsed("exclude = \"backend == nccl\"\n"
                                     "where = \"size >= 1KiB\"\n" +
                                     kMatrix),
                              no_gpu(), nullptr);
  CHECK(plan.groups.size() == 8);
  CHECK(plan.cell_count() == 16);
  const auto only = Expression::parse("environment == bare-metal and collective == pull",
                                      {"bare-metal", "cross-docker"});
  CHECK(make_plan(parsed(kMatrix), no_gpu(), &only).groups.size() == 3);
}

TEST_CASE("zipped axes vary together") {
  const auto plan = make_plan(
      parsed("name = \"x\"\n[axes]\nenvironment = \"bare-metal\"\narchitecture = \"ring\"\n"
             "[[zip]]\nbackend = [\"openmpi\", \"gloo\"]\nranks = [2, 3]\n"
             "[[work]]\ncollective = \"allreduce\"\nsize = [4, 8]\n"),
      {}, nullptr);
  REQUIRE(plan.groups.size() == 2);
  CHECK(plan.groups[0].backend == Backend::openmpi);
  CHECK(plan.groups[0].ranks == 2);
  CHECK(plan.groups[1].backend == Backend::gloo);
  CHECK(plan.groups[1].ranks == 3);
}

TEST_CASE("launch knobs make groups, call knobs make cells, default leaves the library alone") {
  const auto plan = make_plan(
      parsed("name = \"x\"\n[axes]\nenvironment = \"bare-metal\"\narchitecture = \"ring\"\n"
             "backend = [\"openmpi\", \"gloo\"]\nranks = 2\n"
             "[[work]]\ncollective = \"allreduce\"\nsize = 4\n"
             "[knobs.openmpi]\nmca.btl = [\"default\", \"tcp,self\"]\nenv.A = [1, 2]\n"
             "[knobs.gloo]\ncall.segment = [\"default\", 1024]\n"),
      {}, nullptr);
  REQUIRE(plan.groups.size() == 5);
  CHECK(plan.groups[0].knobs == std::map<std::string, std::string>{{"env.A", "1"}});
  CHECK(plan.groups[3].knobs ==
        std::map<std::string, std::string>{{"env.A", "2"}, {"mca.btl", "tcp,self"}});
  CHECK(plan.groups[4].cells.size() == 2);
  CHECK(plan.groups[4].cells[1].work.knobs ==
        std::map<std::string, std::string>{{"segment", "1024"}});
}

TEST_CASE("huge pages are not asked for where that changes nothing, and the reason is kept") {
  const auto experiment = parsed(
      "name = \"x\"\n[axes]\nenvironment = \"bare-metal\"\narchitecture = \"ring\"\n"
      "backend = \"openmpi\"\nranks = 2\n"
      "[[work]]\ncollective = \"allreduce\"\nsize = 4\n"
      "[knobs.openmpi]\nmalloc.huge_pages = [\"default\", true]\n");
  Capabilities can;
  CHECK(make_plan(experiment, can, nullptr).possible_cells() == 2);
  can.huge_pages_reason = "switched off";
  const auto plan = make_plan(experiment, can, nullptr);
  REQUIRE(plan.groups.size() == 2);
  CHECK(plan.groups[0].cells[0].impossible.empty());
  CHECK(plan.groups[1].knobs.at("malloc.huge_pages") == "1");
  CHECK(plan.groups[1].cells[0].impossible == "malloc.huge_pages: switched off");
}

TEST_CASE("orders are permutations that depend on seed, block and attempt alone") {
  const auto order = block_order(24, 7, 0);
  CHECK(std::set<std::size_t>(order.begin(), order.end()).size() == 24);
  CHECK(order == block_order(24, 7, 0));
  CHECK(order != block_order(24, 7, 1));
  CHECK(order != block_order(24, 8, 0));
  const auto plan = make_plan(parsed(kMatrix), no_gpu(), nullptr);
  const auto& group = plan.groups[0];
  const auto a = launch_cells(group, launch_seed(1, group.id, 0, 0));
  CHECK(a.size() == group.possible_cells());
  std::set<std::string> ids;
  for (const auto& cell : a) ids.insert(cell.id);
  CHECK(ids.size() == a.size());
  CHECK(launch_seed(1, group.id, 0, 0) != launch_seed(1, group.id, 0, 1));
  CHECK(launch_seed(1, group.id, 0, 0) != launch_seed(1, group.id, 1, 0));
}

TEST_CASE("every group is early and late about equally often over the blocks") {
  std::vector<int> first_half(24, 0);
  for (int block = 0; block < 400; ++block) {
    const auto order = block_order(24, 3, block);
    for (std::size_t i = 0; i < 12; ++i) ++first_half[order[i]];
  }
  // Binomial(400, 1/2): 5 standard deviations are 50.
  for (const int count : first_half) CHECK(std::abs(count - 200) < 50);
}

TEST_CASE("a hundred thousand cells are planned in less than two seconds") {
  const auto experiment = parsed(
      "name = \"x\"\nexclude = \"size > 1GiB or backend == nccl\"\n"
      "[axes]\nenvironment = [\"bare-metal\", \"singularity\", \"single-docker\", "
      "\"cross-docker\"]\nbackend = [\"openmpi\", \"mpich\", \"gloo\"]\n"
      "architecture = [\"ps\", \"ring\"]\nranks = [2, 3, 4, 6, 8, 12, 16]\n"
      "datatype = [\"float32\", \"int32\", \"float64\"]\n"
      "[[work]]\narchitecture = \"ring\"\n"
      "collective = [\"allreduce\", \"allgather\", \"broadcast\", \"reduce\", \"alltoall\", "
      "\"reduce_scatter\", \"sendrecv\"]\n"
      "size = { from = \"4B\", to = \"1GiB\", factor = 2 }\n"
      "[[work]]\narchitecture = \"ps\"\ncollective = [\"push\", \"pull\", \"push_pull\", "
      "\"broadcast\", \"gather\"]\nsize = { from = \"4B\", to = \"1GiB\", factor = 2 }\n"
      "[knobs.gloo]\ncall.segment = [\"default\", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]\n");
  const auto start = std::chrono::steady_clock::now();
  const auto plan = make_plan(experiment, {}, nullptr);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(plan.cell_count() > 100'000);
#ifdef NDEBUG
  CHECK(took.count() < 2.0);
#endif
}

const std::string kTraining = R"(name = "demo"
[axes]
environment = ["bare-metal", "cross-docker"]
backend = ["openmpi", "gloo"]
architecture = ["ps", "ring"]
ranks = 3
[[work]]
training = ["bsp-ps", "mg-wfbp", "dear"]
model = ["cnn", "resnet18"]
batch = [8, 32]
[[work]]
architecture = "ring"
collective = "allreduce"
size = "12B"
)";

TEST_CASE("a method's own setting makes no second cell of a method beside it", "[d-40]") {
  const auto plan = make_plan(parsed(R"(name = "demo"
[axes]
environment = "bare-metal"
backend = "openmpi"
architecture = "ring"
ranks = 2
[[work]]
training = ["wfbp-a2a", "dear"]
model = "cnn"
bucket = ["1MiB", "4MiB"]
)"),
                              {}, nullptr);
  REQUIRE(plan.groups.size() == 1);
  std::map<std::string, int> cells;
  for (const auto& cell : plan.groups[0].cells) {
    ++cells[cell.work.algorithm];
    CHECK(cell.work.knobs.contains("bucket") == (cell.work.algorithm == "dear"));
  }
  CHECK(cells == std::map<std::string, int>{{"dear", 2}, {"wfbp-a2a", 1}});
}

TEST_CASE("a plan tells what goes over the wire beside the nominal bytes", "[d-35][d-40]") {
  const Experiment experiment = parsed(R"(name = "demo"
[axes]
environment = "bare-metal"
backend = "gloo"
architecture = "ring"
ranks = 2
[[work]]
training = "bsp-a2a"
model = "cnn-small"
compression = ["none", "onebit", "powersgd"]
[[work]]
training = "bsp-a2a"
synchronisation = ["local", "adacomm"]
local_steps = 4
model = "cnn-small"
[[work]]
collective = "allreduce"
size = "12B"
)");
  const auto plan = make_plan(experiment, {}, nullptr);
  LaunchSite anywhere;
  anywhere.worker_folder = "/PROGRAMS";
  anywhere.run_folder = "/RUNS";
  const std::string text = plan_text(experiment, plan, anywhere, 1000, true);
  INFO(text);
  CHECK(text.find("compression=onebit model=cnn-small: 400616 B, 12528 B encoded\n") !=
        std::string::npos);
  CHECK(text.find("batch=32 model=cnn-small: 400616 B\n") != std::string::npos);
  CHECK(text.find("400616 B, encoded in as many bytes as") != std::string::npos);
  CHECK(text.find("synchronisation=local: 400616 B, once in 4 steps\n") != std::string::npos);
  CHECK(text.find("synchronisation=adacomm: 400616 B, once in up to 4 steps\n") !=
        std::string::npos);
  const auto json = plan_json(experiment, plan, anywhere);
  std::map<std::string, nlohmann::json> payloads;
  for (const auto& cell : json.at("groups").at(0).at("cells")) {
    const auto& knobs = cell.at("knobs");
    payloads[knobs.value("compression", "") + knobs.value("synchronisation", "") +
             (cell.at("collective") == "training" ? "" : "collective")] = cell.at("payload");
  }
  REQUIRE(payloads.size() == 6);
  CHECK(payloads.at("").at("effective_bytes") == 400'616);
  CHECK(payloads.at("onebit").at("nominal_bytes") == 400'616);
  CHECK(payloads.at("onebit").at("effective_bytes") == 12'528);
  CHECK(payloads.at("powersgd").at("effective_bytes").is_null());
  CHECK(payloads.at("local").at("firing") == "every round");
  CHECK(payloads.at("local").at("exchanges") == 0.25);
  CHECK(payloads.at("collective").is_null());
}

TEST_CASE("training cells are methods times settings, in their own architecture", "[d-40]") {
  const auto plan = make_plan(parsed(kTraining), {}, nullptr);
  REQUIRE(plan.groups.size() == 8);
  std::set<std::string> ids;
  for (const auto& group : plan.groups) {
    const bool ring = group.architecture == Architecture::ring;
    CHECK(group.cells.size() == (ring ? 9 : 4));
    CHECK(group.trains());
    for (const auto& cell : group.cells) {
      CHECK(cell.impossible.empty());
      ids.insert(cell.work.id);
      if (cell.work.collective != Collective::training) continue;
      CHECK((cell.work.algorithm == "bsp-ps") == !ring);
      CHECK(cell.work.knobs.contains("model"));
    }
  }
  CHECK(ids.size() == 4 * 9 + 4 * 4);
}

TEST_CASE("an optimizer on servers is refused before anything starts", "[d-03]") {
  const auto plan = make_plan(parsed(kTraining, {R"(work.0.optimizer="server")"}), {}, nullptr);
  CHECK(plan.trains());
  for (const auto& group : plan.groups) {
    for (const auto& cell : group.cells) {
      const bool ring = cell.work.algorithm == "mg-wfbp" || cell.work.algorithm == "dear";
      CHECK(cell.impossible.empty() == !ring);
    }
  }
}

TEST_CASE("colocated servers take no rank, and every rank is one unless told", "[d-03]") {
  const std::vector<std::string> colocated{R"(work.0.placement="colocated")"};
  auto settings = colocated;
  settings.emplace_back("axes.ranks=1");
  for (const auto& group : make_plan(parsed(kTraining, settings), {}, nullptr).groups) {
    for (const auto& cell : group.cells) {
      if (cell.work.algorithm != "bsp-ps") continue;
      CHECK(cell.impossible.empty());
      CHECK(cell.work.knobs.at("placement") == "colocated");
    }
  }
  settings = colocated;
  settings.emplace_back("work.0.servers=4");
  for (const auto& group : make_plan(parsed(kTraining, settings), {}, nullptr).groups) {
    for (const auto& cell : group.cells) {
      if (cell.work.collective != Collective::training) continue;
      CHECK(cell.impossible == (cell.work.algorithm == "bsp-ps"
                                    ? "4 colocated servers are more than 3 ranks"
                                    : "placement = \"colocated\": " + cell.work.algorithm +
                                          " has no server; take one of the -ps methods"));
    }
  }
  // Both placements are cells of one launch, and told apart by name.
  const auto both =
      parsed(kTraining, {R"(work.0.placement=["dedicated", "colocated"])",
                         R"(exclude="architecture == ps and placement != colocated")"});
  for (const auto& group : make_plan(both, {}, nullptr).groups)
    if (group.architecture == Architecture::ps) CHECK(group.cells.size() == 4);
}

/// Training over NCCL on three GPUs, with a server that has one and with one that has none.
static auto servers_over_nccl(const std::string& setting) {
  Capabilities can;
  can.gpus = 3;
  return make_plan(parsed(kTraining + R"([knobs.nccl]
env.DYNAMICCL_SERVER_GPU = ["default", "none"]
)",
                          {R"(axes.backend="nccl")", setting}),
                   can, nullptr);
}

TEST_CASE("a colocated server needs the GPU that the server was to be without", "[d-03]") {
  const auto plan = servers_over_nccl(R"(work.0.placement=["dedicated", "colocated"])");
  int refused = 0;
  for (const auto& group : plan.groups) {
    for (const auto& cell : group.cells) {
      if (cell.work.algorithm != "bsp-ps") continue;
      const bool needs = server_without_gpu(group) && cell.work.knobs.count("placement") > 0;
      CHECK((cell.impossible.find("needs its GPU") != std::string::npos) == needs);
      refused += needs ? 1 : 0;
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("a server sums on the GPU that it has, or is fed by a chief", "[d-04][d-05]") {
  const auto plan = servers_over_nccl(R"(work.0.server_sums=["host", "gpu", "chief"])");
  std::map<std::string, int> possible;
  for (const auto& group : plan.groups) {
    for (const auto& cell : group.cells) {
      if (cell.work.algorithm != "bsp-ps") continue;
      const auto knob = cell.work.knobs.find("server_sums");
      const std::string sums = knob == cell.work.knobs.end() ? "host" : knob->second;
      const bool misplaced = server_without_gpu(group) ? sums == "gpu" : sums == "chief";
      INFO(sums << ": " << cell.impossible);
      CHECK(cell.impossible.empty() == !misplaced);
      possible[sums] += cell.impossible.empty() ? 1 : 0;
    }
  }
  CHECK(possible["gpu"] > 0);
  CHECK(possible["chief"] == possible["gpu"]);
  CHECK(possible["host"] == 2 * possible["gpu"]);
}

TEST_CASE("training that cannot run says why, and leaves collectives alone", "[d-40]") {
  Capabilities can;
  can.training_backend_reasons[Backend::gloo] = "no trainer";
  const auto plan = make_plan(parsed(kTraining), can, nullptr);
  for (const auto& group : plan.groups) {
    const bool none = group.backend == Backend::gloo;
    CHECK(group.trains() == !none);
    for (const auto& cell : group.cells) {
      const bool trains = cell.work.collective == Collective::training;
      CHECK(cell.impossible.empty() == (!trains || !none));
    }
  }
  const auto alone = make_plan(parsed(kTraining, {"axes.ranks=1"}), {}, nullptr);
  for (const auto& group : alone.groups) {
    if (group.architecture == Architecture::ps)
      CHECK(group.cells.front().impossible == "1 server leaves no worker among 1 rank");
  }
}

TEST_CASE("of several budgets those that never come to local steps are left out", "[d-40]") {
  const auto plan = make_plan(parsed(R"(name = "demo"
[axes]
environment = "bare-metal"
backend = "gloo"
architecture = "ring"
ranks = 2
[[work]]
training = "bsp-a2a"
synchronisation = "post-local"
model = "cnn"
local_steps = 2
local_after = 40
steps = [10, 60]
[protocol]
warmup = 2
)"),
                              {}, nullptr);
  REQUIRE(plan.groups.size() == 1);
  REQUIRE(plan.groups[0].cells.size() == 2);
  for (const auto& cell : plan.groups[0].cells)
    CHECK(cell.impossible.starts_with("local_after = 40: ") ==
          (cell.work.knobs.at("steps") == "10"));
}

TEST_CASE("another table under the same name makes another training cell", "[d-40]") {
  TableEntry entry;
  entry.key = {"abcd", TaskKey::parse("openmpi/ring/allreduce/2^20/r3n1")};
  entry.size = Bytes{1 << 20};
  entry.arm = entry.setting.algorithm = "ring";
  ConfigurationTable table;
  table.put_regime({"abcd", "somewhere", nlohmann::json::object()});
  table.put(entry);
  const std::string path = "plan-test-table.json";
  const auto id = [&] {
    write_table(table, path);
    const auto plan =
        make_plan(parsed(kTraining, {"work.0.training=\"mg-wfbp\"", "work.0.tuner=\"" + path + "\"",
                                     "axes.backend=\"openmpi\""}),
                  {}, nullptr);
    for (const auto& group : plan.groups)
      for (const auto& cell : group.cells)
        if (cell.work.collective == Collective::training) return cell.work.id;
    return std::string("no training cell");
  };
  const std::string first = id();
  table.provenance["when"] = "later";
  table.entries[0].evidence.ratio = 0.5;
  CHECK(id() == first);  // the same settings, measured otherwise
  table.entries[0].setting.algorithm = "recursive_doubling";
  const std::string second = id();
  CHECK(second != first);
  CHECK(second != "no training cell");
  std::filesystem::remove(path);
}
