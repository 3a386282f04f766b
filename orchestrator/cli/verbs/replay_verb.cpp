#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "containers/image.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "db/store.hpp"
#include "orchestrator/cli/verbs/capsule.hpp"
#include "orchestrator/cli/verbs/experiment_arguments.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/run/console.hpp"
#include "orchestrator/run/executor.hpp"
#include "orchestrator/run/replay.hpp"
#include "orchestrator/run/run_setup.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/render/answer.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {
namespace {

using nlohmann::ordered_json;

struct ReplayArguments {
  std::string launch;
  int launches = 0;  ///< 0: not said
  bool dry_run = false;
};

Table replay_table_of(const std::vector<SurroundingDifference>& differences) {
  Table table;
  table.columns = {"part", "what", "then", "now"};
  for (const auto& [part, leaf] : differences)
    table.rows.push_back({part, leaf.what, leaf.a, leaf.b});
  return table;
}

bool same_group(const CellFigure& figure, const StoredLaunch& launch) {
  const auto& group = launch.group();
  return figure.environment == group.environment && figure.backend == name_of(group.backend) &&
         figure.architecture == name_of(group.architecture) && figure.ranks == group.ranks &&
         figure.group_knobs == nlohmann::json(group.knobs).dump();
}

std::string cell_key(CellFigure figure) {
  figure.run_id.clear();
  return key_without(figure, "");
}

/// What a cell took in the launch replayed, in the other launches of its run, and now.
std::vector<Value> compared_row(const CellFigure& before, const CellFigure& now, int block) {
  const auto then = std::find_if(before.launches.begin(), before.launches.end(),
                                 [&](const auto& launch) { return launch.block == block; });
  const auto all = before.medians_us();
  const auto [low, high] = std::minmax_element(all.begin(), all.end());
  const double now_us = now.median_us();
  const Ratio ratio = ratio_unpaired(now.medians_us(), all);
  const auto interval = now.interval();
  const auto bound = [](const std::optional<Interval>& of, double Interval::*which) {
    return of ? Value((*of).*which) : Value{};
  };
  return {now.collective,
          now.size_bytes,
          now.datatype,
          now.algorithm,
          now.in_place,
          now.cell_knobs,
          then == before.launches.end() ? Value{} : Value(then->median_us),
          *low,
          *high,
          static_cast<std::int64_t>(all.size()),
          now_us,
          bound(interval, &Interval::low),
          bound(interval, &Interval::high),
          static_cast<std::int64_t>(now.launches.size()),
          ratio.value,
          bound(ratio.interval, &Interval::low),
          bound(ratio.interval, &Interval::high),
          std::string(now_us < *low    ? "below"
                      : now_us > *high ? "above"
                                       : "inside")};
}

Table compared_figures(const Reader& reader, const StoredLaunch& launch,
                       const std::string& new_run) {
  Table table;
  table.columns = {"collective", "size_bytes", "datatype",          "algorithm", "in_place",
                   "cell_knobs", "then_us",    "run_from_us",       "run_to_us", "run_launches",
                   "now_us",     "now_low_us", "now_high_us",       "launches",  "x run",
                   "x run_low",  "x run_high", "of the run's range"};
  const auto before = load_figures(reader, run_scope(reader, launch.run_id));
  for (const auto& figure : load_figures(reader, run_scope(reader, new_run))) {
    const auto found = std::find_if(before.begin(), before.end(), [&](const auto& other) {
      return same_group(other, launch) && cell_key(other) == cell_key(figure);
    });
    if (found != before.end()) table.rows.push_back(compared_row(*found, figure, launch.block));
  }
  return table;
}

RunInfo run_info(const StoredLaunch& launch, const Shared& shared) {
  RunInfo info = new_run(launch.experiment, launch.experiment.source_path, shared.argv);
  info.replay_of = launch.uuid;
  return info;
}

void print_json(const StoredLaunch& launch, const std::string& run,
                const std::vector<SurroundingDifference>& before, const Table& seen,
                const Table& figures) {
  const auto list = [](const Table& table) {
    return ordered_json::parse(render_table(table, OutputFormat::json));
  };
  fmt::print("{}\n", ordered_json{{"launch_id", launch.uuid},
                                  {"run_id", run.empty() ? ordered_json() : ordered_json(run)},
                                  {"replay_of_run", launch.run_id},
                                  {"differences_before", list(replay_table_of(before))},
                                  {"differences_seen", list(seen)},
                                  {"figures", list(figures)}}
                         .dump(1, ' ', false, ordered_json::error_handler_t::replace));
}

std::string text_for_terminal(const Table& table) {
  return render_table(table, OutputFormat::text, {}, stdout_columns());
}

std::string about(const StoredLaunch& launch) {
  const auto& group = launch.group();
  return fmt::format("launch {} of run {} ({}), block {}: {} {} {} {}, {}", launch.uuid,
                     launch.run_id.substr(0, 8), launch.experiment.name, launch.block,
                     group.environment, name_of(group.backend), name_of(group.architecture),
                     counted(group.ranks, "rank"), counted(group.cells.size(), "cell"));
}

void say_before(const StoredLaunch& launch, const std::vector<SurroundingDifference>& before,
                const Shared& shared) {
  if (shared.json || shared.quiet) return;
  fmt::print("{}\n", about(launch));
  if (before.empty()) {
    fmt::print("nothing that is recorded differs now\n");
  } else {
    fmt::print("what differs now\n{}", text_for_terminal(replay_table_of(before)));
  }
  std::fflush(stdout);
}

int compare_afterwards(const StoredLaunch& launch, const RunSummary& summary,
                       const std::vector<SurroundingDifference>& before, const Shared& shared) {
  const Reader reader(shared.db);
  const Table figures = compared_figures(reader, launch, summary.run_id);
  Table seen = replay_table_of({});
  if (summary.failed_launches == 0)
    seen = replay_table_of(differences_seen_by_ranks(launch, load_launch(reader, summary.run_id)));
  if (shared.json) {
    print_json(launch, summary.run_id, before, seen, figures);
  } else {
    if (!seen.rows.empty())
      fmt::print("\nwhat the ranks saw otherwise\n{}", text_for_terminal(seen));
    fmt::print(
        "\nrun {}, replay of launch {}\n{}then: that launch; run: all launches of its run; now: "
        "median of the replay's launches; x run: time now / time in the run{}\n",
        summary.run_id, launch.uuid, text_for_terminal(figures),
        summary.launches < 3 ? ", without an interval below 3 launches: --launches 5" : "");
  }
  return summary.ok() ? exit_code::kFine : exit_code::kCellFailed;
}

int replay(const ReplayArguments& arguments, const Shared& shared) {
  if (is_capsule(arguments.launch))
    return replay_capsule(shared, arguments.launch, arguments.launches, arguments.dry_run);
  const InterruptGuard guard;
  Console console(shared.verbosity());
  StoredLaunch launch = load_launch(Reader(shared.db), arguments.launch);
  launch.experiment.protocol.launches = std::max(arguments.launches, 1);
  if (launch.plan.trains()) use_training_image();
  if (const auto reason = unavailable_reason(launch.profile()))
    throw Error(ErrorKind::environment, about(launch) + ": cannot be replayed here: " + *reason);
  LaunchSite site = launch_site(shared.db, "");
  site.machine = launch.machine;
  prepare(launch.profile(), preparation_progress());
  const auto before = differences_now(launch, site, load_profiles(profile_folders({})));
  say_before(launch, before, shared);
  if (arguments.dry_run) {
    if (shared.json) print_json(launch, "", before, replay_table_of({}), Table{});
    return exit_code::kFine;
  }
  restore_variables(launch, before);
  Store store(shared.db);
  Executor executor(launch.experiment, launch.plan, site, store, console);
  executor.replay(launch.config);
  const auto summary = executor.run(run_info(launch, shared), std::nullopt);
  if (summary.interrupted_by == 0) return compare_afterwards(launch, summary, before, shared);
  // Who ends it does not wait for the figures of a large run.
  if (shared.json) print_json(launch, summary.run_id, before, replay_table_of({}), Table{});
  console.warning(fmt::format("interrupted: all that was measured is stored as run {}",
                              summary.run_id.substr(0, 8)));
  return 128 + summary.interrupted_by;
}

}  // namespace

void add_replay_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand(
      "replay", "repeat a stored launch, or a capsule's run, and compare it with what is stored");
  auto arguments = std::make_shared<ReplayArguments>();
  verb->add_option("LAUNCH", arguments->launch,
                   "beginning of a launch's id, or a run: its newest launch that ended well; or a "
                   "capsule (export --capsule)")
      ->required();
  verb->add_option("--launches", arguments->launches,
                   "repeat it this often (a launch once, a capsule as its experiment says)")
      ->check(CLI::Range(1, 1000));
  verb->add_flag("--dry-run", arguments->dry_run, "say what differs now and start no rank");
  add_db_option(*verb, shared);
  add_output_options(*verb, shared);
  verb->footer(
      "Examples:\n"
      "  dynamiccl replay last --dry-run\n"
      "  dynamiccl replay 3fa97c1e --launches 5\n"
      "  dynamiccl replay study.tar                   which of its verdicts come out alike here\n"
      "run.json (seed, cells, their order), the profile and the recorded variables are those of "
      "then;\nthe result is a run of its own that names the launch.\n"
      "Exit codes: 0 all cells fine, 1 a launch or cell failed, 2 wrong input, 130 Ctrl-C; of a "
      "capsule\n3 a verdict came out otherwise, 5 none was sure.");
  verb->callback([arguments, &shared] { shared.exit_code = replay(*arguments, shared); });
}

}  // namespace dynamiccl
