#include "orchestrator/tune/export_check.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <fstream>
#include <numbers>
#include <sstream>

#include "core/statistics/fast_random.hpp"
#include "core/vocabulary/setting.hpp"
#include "orchestrator/experiment/tune_reader.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/orchestrator/experiment/demo_experiment.hpp"
#include "tuner/export/export.hpp"
#include "tuner/export/mpi_export.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::uint64_t kKiB = 1024;
const std::string kEager = "mca.btl_vader_eager_limit";
const std::string kKeep = "malloc.keep";
const std::string kThreshold = "env.UCX_RNDV_THRESH";

/// The algorithm that a rules file gives 2 ranks; "library" where it leaves the choice.
std::string ruled(const std::string& path, Collective collective, std::uint64_t size) {
  std::ifstream file(path);
  std::string line;
  std::vector<std::uint64_t> numbers;
  while (std::getline(file, line)) {
    std::istringstream words(line.substr(0, line.find('#')));
    for (std::uint64_t number = 0; words >> number;) numbers.push_back(number);
  }
  std::size_t at = 0;
  const auto next = [&] { return numbers.at(at++); };
  std::uint64_t found = 0;
  const std::map<std::uint64_t, Collective> ids{
      {2, Collective::allreduce}, {7, Collective::broadcast}, {13, Collective::reduce_scatter}};
  for (std::uint64_t left = next(); left > 0; --left) {
    const std::uint64_t id = next();
    for (std::uint64_t communicators = next(); communicators > 0; --communicators) {
      const std::uint64_t ranks = next();
      for (std::uint64_t lines = next(); lines > 0; --lines) {
        const std::uint64_t from = next();
        const std::uint64_t algorithm = next();
        at += 2;
        if (ids.at(id) == collective && ranks == 2 && from <= size) found = algorithm;
      }
    }
  }
  for (const char* name : {"chain", "recursive_doubling", "recursive_halving", "butterfly"})
    if (openmpi_algorithm(collective, name) == static_cast<int>(found)) return name;
  REQUIRE(found == 0);
  return "library";
}

/// What one call takes, of the default's time.
struct Call {
  Collective collective;
  std::uint64_t size;
  std::string algorithm;  ///< in force
  LaunchSettings launch;
  bool exported = false;  ///< it has what a job would load
  [[nodiscard]] bool has(const std::string& name, const std::string& value) const {
    const auto found = launch.find(name);
    return found != launch.end() && found->second == value;
  }
};

/// A machine whose launches take what a formula says, times noise. It reads rules files and
/// variables as the libraries do. What takes no time fails.
class World {
 public:
  using Formula = std::function<double(const Call&)>;
  World(const CheckPlan& check, Formula formula, double noise, std::uint64_t seed = 1)
      : check_(check), formula_(std::move(formula)), noise_(noise), random_(seed) {}

  std::vector<Measured> measure(const std::vector<Ask>& asks) {
    if (rounds_left == 0) return {};
    --rounds_left;
    std::vector<Measured> answers;
    for (const Ask& ask : asks) {
      const RunChoice& run = check_.plan.tasks[ask.task].runs.at(ask.arm);
      Call call = call_of(check_.plan.base.groups[run.group], run.cell);
      call.exported = ask.arm == CheckPlan::kExportedArm;
      const double us = 10 * formula_(call) * std::exp(noise_ * normal());
      answers.push_back({{us > 0, Micros{us}}, "", false, "", 20, "r", {}, {}});
    }
    return answers;
  }
  int rounds_left = 1 << 20;

 private:
  static Call call_of(const PlannedGroup& group, const WorkCell& cell) {
    Call call{cell.collective, cell.size.count(), cell.algorithm, group.knobs};
    const auto rules = group.knobs.find("mca.coll_tuned_dynamic_rules_filename");
    const auto variable =
        group.knobs.find(setting_text(SettingScope::env, mpich_variable(cell.collective)));
    const bool dynamic = group.backend != Backend::openmpi || group.knobs.contains(kDynamicRules);
    if (!dynamic) call.algorithm = "library";
    if (cell.algorithm != "library") return call;
    if (rules != group.knobs.end() && dynamic)
      call.algorithm = ruled(rules->second, call.collective, call.size);
    if (variable != group.knobs.end()) call.algorithm = variable->second;
    return call;
  }
  double normal() {
    const auto uniform = [&] {
      return (static_cast<double>(random_.below(1 << 20)) + 1) / (1 << 20);
    };
    return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
  }

  const CheckPlan& check_;
  Formula formula_;
  double noise_;
  FastRandom random_;
};

/// A check of a table in a world, and what came of it.
class Checked {
 public:
  explicit Checked(const std::string& backend, const std::string& environment = "bare-metal")
      : experiment_(testing::parsed("name = \"demo\"\n[axes]\nenvironment = \"" + environment +
                                    "\"\nbackend = \"" + backend +
                                    "\"\narchitecture = \"ring\"\nranks = 2\n[[work]]\n"
                                    "collective = [\"broadcast\", \"reduce_scatter\"]\n"
                                    "size = [\"32KiB\"]\n")),
        backend_(parse_named<Backend>(backend)) {
    table.put_regime({"r", "demo", {}});
  }

  void row(Collective collective, std::uint64_t size, ActionSettings setting) {
    TableEntry entry;
    entry.key = {"r",
                 {.collective = collective,
                  .bin = SizeBin::of(Bytes{size}),
                  .group_size = 2,
                  .nodes = 1,
                  .architecture = Architecture::ring,
                  .backend = backend_}};
    entry.size = Bytes{size};
    entry.setting = std::move(setting);
    entry.evidence.default_us = 10;
    entry.evidence.tuned_us = 6;
    table.put(entry);
  }

  void run(const World::Formula& formula, double noise = 0.1, std::uint64_t seed = 1,
           int rounds = 1 << 20) {
    const TunePlan tuned = make_tune_plan(experiment_, make_plan(experiment_, {}, nullptr),
                                          tune_options_of(experiment_));
    CheckPlan check = make_check_plan(experiment_, tuned, table);
    World world(check, formula, noise, seed);
    world.rounds_left = rounds;
    const Console console(Verbosity::quiet);
    const auto answer = check_export(
        check, [&](const std::vector<Ask>& asks) { return world.measure(asks); }, folder_.file("."),
        table, {.launches = 6}, console);
    summary = join(answer.summary, "\n");
    rounds_used = rounds - world.rounds_left;
    sets = check.places.front().sets;
  }

  [[nodiscard]] const ActionSettings& at(Collective collective, std::uint64_t size) const {
    for (const TableEntry& check : table.checks)
      if (check.key.task.collective == collective && check.size.count() == size)
        return check.setting;
    FAIL("no check of " << size);
    return table.checks.front().setting;
  }
  [[nodiscard]] bool nothing() const {
    return std::all_of(table.checks.begin(), table.checks.end(),
                       [](const TableEntry& check) { return check.is_default(); });
  }
  [[nodiscard]] LaunchSettings launch() const {
    REQUIRE(!table.checks.empty());
    for (const TableEntry& check : table.checks)
      CHECK(check.setting.launch_knobs == table.checks.front().setting.launch_knobs);
    return table.checks.front().setting.launch_knobs;
  }
  [[nodiscard]] std::string exported(ExportFormat format) const {
    std::string text;
    for (const ExportedFile& file : export_table(table, format, {.folder = "/x"}).files)
      text += file.text;
    return text;
  }

  ConfigurationTable table;
  std::string summary;
  std::vector<LaunchSettings> sets;
  int rounds_used = 0;

 private:
  testing::ScratchFolder folder_;
  Experiment experiment_;
  Backend backend_;
};

bool medium(const Call& call) { return call.size >= 16 * kKiB && call.size <= 64 * kKiB; }

}  // namespace

TEST_CASE("a launch setting that surely slows a size down is not kept, whatever it gains") {
  Checked checked("openmpi");
  checked.row(Collective::broadcast, 32 * kKiB, {"library", {}, {{kEager, "32768"}}});
  checked.run([](const Call& call) {
    if (!call.has(kEager, "32768")) return 1.0;
    return medium(call) ? 0.5 : call.size == 4 * kKiB ? 1.5 : 1.0;
  });
  INFO(checked.summary);
  CHECK(checked.nothing());
  CHECK_THAT(checked.summary, ContainsSubstring("dropped " + kEager + "=32768") &&
                                  ContainsSubstring("4 KiB") &&
                                  ContainsSubstring("the library's own choice stays"));
  CHECK_THROWS_AS(checked.exported(ExportFormat::openmpi), Error);
}

TEST_CASE("a launch setting that helps stays though sizes seem slower by chance") {
  int seeming = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Checked checked("openmpi");
    checked.row(Collective::broadcast, 32 * kKiB, {"library", {}, {{kEager, "32768"}}});
    checked.run(
        [](const Call& call) { return call.has(kEager, "32768") && medium(call) ? 0.5 : 1.0; },
        0.15, seed);
    INFO(seed << "\n" << checked.summary);
    CHECK(checked.launch() == LaunchSettings{{kEager, "32768"}});
    CHECK_THAT(checked.summary,
               ContainsSubstring("sizes surely faster") && ContainsSubstring("none SLOWER"));
    for (const TableEntry& check : checked.table.checks)
      seeming += check.evidence.ratio > 1.02 ? 1 : 0;
    CHECK_THAT(checked.exported(ExportFormat::openmpi),
               ContainsSubstring("OMPI_MCA_btl_vader_eager_limit=32768\n") &&
                   !ContainsSubstring("dynamic_rules"));
  }
  CHECK(seeming > 20);  // what one look at each size would have taken for losses
}

TEST_CASE("an algorithm that is fast only with a launch setting stays or falls with it") {
  for (const bool harms : {false, true}) {
    Checked checked("openmpi");
    checked.row(Collective::reduce_scatter, 8192 * kKiB, {"recursive_halving", {}, {{kKeep, "1"}}});
    checked.run([&](const Call& call) {
      const bool keeps = call.has(kKeep, "1");
      if (call.collective == Collective::broadcast)
        return harms && keeps && call.size == 4 * kKiB ? 1.5 : 1.0;
      if (call.algorithm != "recursive_halving") return 1.0;
      return call.size < 2048 * kKiB ? 1.2 : keeps ? 0.5 : 1.7;
    });
    INFO(harms << "\n" << checked.summary);
    CHECK(checked.sets.size() == 2);  // the algorithm alone, and with the setting
    if (harms) {
      CHECK(checked.nothing());
      continue;
    }
    CHECK(checked.launch() == LaunchSettings{{kKeep, "1"}});
    CHECK(checked.at(Collective::reduce_scatter, 8192 * kKiB).algorithm == "recursive_halving");
    CHECK(checked.at(Collective::reduce_scatter, 65536 * kKiB).algorithm == "recursive_halving");
    CHECK(checked.at(Collective::reduce_scatter, 1024 * kKiB).algorithm == "library");
    CHECK_THAT(checked.exported(ExportFormat::openmpi),
               ContainsSubstring("2097152 3 0 0 #") && ContainsSubstring("67108865 0 0 0 #"));
  }
}

TEST_CASE("an algorithm per size mends what a launch setting makes slower") {
  Checked checked("openmpi");
  checked.row(Collective::reduce_scatter, 32 * kKiB, {"library", {}, {{kEager, "32768"}}});
  checked.row(Collective::broadcast, 4 * kKiB, {"chain", {}, {{kEager, "32768"}}});
  checked.run([](const Call& call) {
    const bool eager = call.has(kEager, "32768");
    if (call.algorithm == "chain") return call.size == 4 * kKiB ? 1.0 : 1.3;
    if (eager && call.collective == Collective::broadcast && call.size == 4 * kKiB) return 1.5;
    return eager && medium(call) ? 0.5 : 1.0;
  });
  INFO(checked.summary);
  CHECK(checked.launch() == LaunchSettings{{kEager, "32768"}});
  CHECK(checked.at(Collective::broadcast, 4 * kKiB).algorithm == "chain");
  CHECK(checked.at(Collective::broadcast, kKiB).algorithm == "library");
}

TEST_CASE("of settings that do the same the fewest are kept, idle ones are not tried") {
  Checked checked("openmpi");
  checked.row(
      Collective::broadcast, 32 * kKiB,
      {"library", {}, {{kEager, "32768"}, {kKeep, "1"}, {"mca.btl_tcp_sndbuf", "4194304"}}});
  checked.run(
      [](const Call& call) { return call.has(kEager, "32768") && medium(call) ? 0.5 : 1.0; });
  INFO(checked.summary);
  CHECK(checked.sets.size() == 3);
  CHECK(checked.launch() == LaunchSettings{{kEager, "32768"}});
  CHECK_THAT(checked.summary, ContainsSubstring("mca.btl_tcp_sndbuf is left out"));
}

TEST_CASE("an MPICH job may be given variables of the launch alone, the better of two values") {
  Checked checked("mpich", "cross-docker");
  checked.row(Collective::broadcast, 32 * kKiB, {"library", {}, {{kThreshold, "262144"}}});
  checked.row(Collective::reduce_scatter, 32 * kKiB, {"pairwise", {}, {{kThreshold, "4096"}}});
  checked.run([](const Call& call) {
    if (call.algorithm == "pairwise") return medium(call) ? 0.9 : 1.4;
    return !medium(call)                    ? 1.0
           : call.has(kThreshold, "262144") ? 0.4
           : call.has(kThreshold, "4096")   ? 0.8
                                            : 1.0;
  });
  INFO(checked.summary);
  CHECK(checked.launch() == LaunchSettings{{kThreshold, "262144"}});
  CHECK_THAT(checked.exported(ExportFormat::mpich),
             ContainsSubstring("UCX_RNDV_THRESH=262144\n") && !ContainsSubstring("MPIR_CVAR"));
}

TEST_CASE("an MPICH algorithm that gains over its collective's sizes is kept, for all of them") {
  Checked checked("mpich");
  checked.row(Collective::reduce_scatter, 32 * kKiB, {"pairwise", {}, {}});
  checked.run(
      [](const Call& call) { return call.algorithm == "pairwise" && medium(call) ? 0.6 : 1.0; },
      0.15);
  INFO(checked.summary);
  CHECK_THAT(checked.exported(ExportFormat::mpich),
             ContainsSubstring("MPIR_CVAR_REDUCE_SCATTER_BLOCK_INTRA_ALGORITHM=pairwise\n"));
  checked.run([](const Call& call) {
    return call.algorithm != "pairwise" ? 1.0 : medium(call) ? 0.6 : call.size == kKiB ? 1.4 : 1.0;
  });
  INFO(checked.summary);
  CHECK(checked.nothing());
}

TEST_CASE("a check that is cut short keeps what it knows, and nothing that leans to slower") {
  const auto helps = [](const Call& call) {
    return call.has(kEager, "32768") && medium(call) ? 0.5 : 1.0;
  };
  const auto harms = [&](const Call& call) {
    return call.has(kEager, "32768") && call.size == 4 * kKiB ? 1.35 : helps(call);
  };
  const auto run = [](const World::Formula& formula, int rounds) {
    Checked checked("openmpi");
    checked.row(Collective::broadcast, 32 * kKiB, {"library", {}, {{kEager, "32768"}}});
    checked.run(formula, 0.1, 1, rounds);
    return checked.table.checks.empty() ? "unknown" : checked.nothing() ? "nothing" : "kept";
  };
  CHECK(run(helps, 0) == std::string("unknown"));
  CHECK(run(helps, 4) == std::string("unknown"));  // the first two launches, and two rounds
  CHECK(run(helps, 7) == std::string("kept"));     // five rounds
  CHECK(run(helps, 8) == std::string("kept"));     // sets were compared
  CHECK(run(helps, 10) == std::string("kept"));    // as exported was looked at twice
  CHECK(run(harms, 10) == std::string("nothing"));
}

TEST_CASE("what a size's own launches show outlives a check that is cut short") {
  // Both were lucky when sets were compared; 1 KiB varies, and is doubtful for longer.
  const auto run = [](int rounds) {
    Checked checked("openmpi");
    checked.row(Collective::broadcast, 32 * kKiB, {"library", {}, {{kEager, "32768"}}});
    int launches = 0;
    checked.run(
        [&](const Call& call) {
          if (!call.has(kEager, "32768")) return 1.0;
          if (medium(call)) return 0.5;
          if (call.collective != Collective::broadcast || !call.exported) return 1.0;
          if (call.size == kKiB) return ++launches % 2 == 0 ? 1.06 : 1.35;
          return call.size == 4 * kKiB ? 1.25 : 1.0;
        },
        0.01, 1, rounds);
    INFO(rounds << "\n" << checked.summary);
    CHECK(checked.rounds_used == rounds);
    CHECK_THAT(checked.summary, ContainsSubstring("the check was cut short"));
    return checked.nothing();
  };
  // Two launches, six of sets, six of what is exported, six of the doubtful: the next are theirs.
  for (const int rounds : {20, 21, 23, 25}) CHECK(run(rounds));
}

TEST_CASE("an algorithm that is taken back leaves its launches to itself") {
  Checked checked("openmpi");
  checked.row(Collective::reduce_scatter, 32 * kKiB, {"library", {}, {{kEager, "32768"}}});
  checked.row(Collective::broadcast, 4 * kKiB, {"chain", {}, {{kEager, "32768"}}});
  checked.run(
      [](const Call& call) {
        const bool eager = call.has(kEager, "32768");
        if (call.algorithm == "chain")
          return call.size != 4 * kKiB ? 1.3 : call.exported ? 1.0 : 0.99;
        if (eager && call.collective == Collective::broadcast && call.size == 4 * kKiB) return 1.3;
        return eager && medium(call) ? 0.5 : 1.0;
      },
      0.02, 1, 13);
  INFO(checked.summary);
  CHECK(checked.nothing());
  CHECK_THAT(checked.summary, ContainsSubstring("broadcast 4 KiB leans to the slower side"));
}

TEST_CASE("an algorithm that was lucky when sets were compared does not end slower") {
  Checked checked("openmpi");
  checked.row(Collective::reduce_scatter, 32 * kKiB, {"library", {}, {{kEager, "32768"}}});
  checked.row(Collective::broadcast, 4 * kKiB, {"chain", {}, {{kEager, "32768"}}});
  checked.run([](const Call& call) {
    const bool eager = call.has(kEager, "32768");
    if (call.algorithm == "chain") return call.size != 4 * kKiB ? 1.3 : call.exported ? 1.3 : 0.6;
    if (eager && call.collective == Collective::broadcast && call.size == 4 * kKiB) return 1.5;
    return eager && medium(call) ? 0.5 : 1.0;
  });
  INFO(checked.summary);
  for (const TableEntry& check : checked.table.checks) CHECK(check.evidence.verdict != "SLOWER");
  CHECK_THAT(checked.summary, ContainsSubstring("chain at broadcast 4 KiB is taken back"));
}

TEST_CASE("a size at which nothing works takes no launch setting from the others") {
  Checked checked("openmpi");
  checked.row(Collective::broadcast, 32 * kKiB, {"library", {}, {{kEager, "32768"}}});
  checked.run([](const Call& call) {
    if (call.size == 4 * kKiB) return 0.0;
    return call.has(kEager, "32768") && medium(call) ? 0.5 : 1.0;
  });
  INFO(checked.summary);
  CHECK(checked.launch() == LaunchSettings{{kEager, "32768"}});
  CHECK_THAT(checked.exported(ExportFormat::openmpi),
             ContainsSubstring("OMPI_MCA_btl_vader_eager_limit=32768\n"));
}
