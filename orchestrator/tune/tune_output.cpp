#include "orchestrator/tune/tune_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

#include "core/statistics/saturation.hpp"
#include "core/statistics/verdict.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/simulated.hpp"
#include "core/vocabulary/terminal_lines.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/column.hpp"
#include "reports/render/render.hpp"
#include "tuner/action/reach.hpp"

namespace dynamiccl {
namespace {

Value number(double value) { return std::isfinite(value) ? Value(value) : Value(); }
Value count(std::size_t value) { return static_cast<std::int64_t>(value); }

Value count(int value) { return static_cast<std::int64_t>(value); }
Value percent(double share) { return std::isfinite(share) ? Value(100 * share) : Value(); }

/// "in 2 of 5 cells", "in 1 of 1 cell"
std::string in_cells(std::size_t cells, const TuningResult& result) {
  return "in " + counted_of(cells, result.tasks.size(), "cell");
}

bool has_flag(const TunedTask& tuned, std::string_view flag) {
  const auto& flags = tuned.entry.flags;
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

std::size_t flagged(const TuningResult& result, std::string_view flag) {
  return static_cast<std::size_t>(
      std::count_if(result.tasks.begin(), result.tasks.end(),
                    [&](const TunedTask& tuned) { return has_flag(tuned, flag); }));
}

/// Environment, backend, architecture, collective, size and ranks of a task.
std::vector<Value> place_of(const TuneTask& task) {
  const TaskKey& key = task.search.task.key.task;
  return {task.environment,
          std::string(name_of(key.backend)),
          std::string(name_of(key.architecture)),
          std::string(name_of(key.collective)),
          count(task.cell.size.count()),
          count(static_cast<std::size_t>(key.group_size))};
}

Value told(const std::string& text) { return text.empty() ? Value() : Value(text); }
Value measured(double us) { return us > 0 ? number(us) : Value(); }

/// The ratio and its ends, each NULL where there is none.
std::vector<Value> ratio_of(const TableEvidence& evidence) {
  const bool compared = evidence.ratio > 0;
  const bool interval = compared && evidence.ratio_high > 0;
  return {compared ? number(evidence.ratio) : Value(),
          interval ? number(evidence.ratio_low) : Value(),
          interval ? number(evidence.ratio_high) : Value()};
}

std::string loaded_by(const TuneTask& task, const TunedTask& tuned) {
  const TaskKey& key = task.search.task.key.task;
  if (is_simulated(task.environment)) return "nobody";
  return std::string(name_of(reach_of(key.backend, key.architecture, tuned.entry.setting)));
}

std::vector<Value> row_of(std::vector<std::vector<Value>> parts) {
  std::vector<Value> row;
  for (auto& part : parts) std::move(part.begin(), part.end(), std::back_inserter(row));
  return row;
}

/// "2 %"
std::string band_text() { return fmt::format("{:g} %", 100 * EquivalenceBand{}.relative); }

}  // namespace

Table tuning_table(const TunePlan& plan, const TuningResult& result) {
  Table table;
  table.columns = {"environment", "backend",   "architecture", "collective", "size_bytes",
                   "ranks",       "held_out",  "setting",      "default_us", "tuned_us",
                   "ratio",       "low",       "high",         "verdict",    "guard",
                   "flags",       "candidate", "loaded_by",    "arms",       "tried",
                   "evaluations"};
  for (const TunedTask& tuned : result.tasks) {
    const TuneTask& task = plan.tasks[tuned.task];
    const TableEvidence& evidence = tuned.entry.evidence;
    table.rows.push_back(
        row_of({place_of(task),
                {count(task.held_out ? 1 : 0), tuned.entry.arm, measured(evidence.default_us),
                 measured(evidence.tuned_us)},
                ratio_of(evidence),
                {told(evidence.verdict), std::string(name_of(tuned.outcome.guard)),
                 join(tuned.entry.flags, " "), told(evidence.candidate), loaded_by(task, tuned),
                 count(task.arms()), count(tuned.outcome.tried),
                 count(static_cast<std::size_t>(tuned.outcome.evaluations))}}));
  }
  return table;
}

namespace {

constexpr const char* kPeoplesColumns =
    "environment | text, quiet | the environment's profile\n"
    "backend | text, quiet | the library that communicates\n"
    "architecture | text, quiet | ring or ps\n"
    "collective size_bytes ranks\n"
    "held out | text, optional | kept from the policy's training\n"
    "setting | text | in force at the end\n"
    "compared | text | the setting that was compared with the default\n"
    "default_us | us, real | of the library's own choice\n"
    "ratio | real, ends:low:high | time of compared over the default's\n"
    "verdict\n"
    "because | text, optional | guards and flags\n"
    "loaded by | text, optional | who can load the setting\n"
    "tried | text | of the settings that there are";

Table peoples_table(const TunePlan& plan, const TuningResult& result) {
  Table table;
  for (auto& column : parse_columns(kPeoplesColumns, "tune"))
    table.columns.push_back(std::move(column.name));
  for (const TunedTask& tuned : result.tasks) {
    const TuneTask& task = plan.tasks[tuned.task];
    const TableEvidence& evidence = tuned.entry.evidence;
    std::vector<std::string> because = tuned.entry.flags;
    if (tuned.outcome.guard != GuardVerdict::pass)
      because.insert(because.begin(), std::string(name_of(tuned.outcome.guard)));
    table.rows.push_back(row_of({place_of(task),
                                 {told(task.held_out ? "yes" : ""), tuned.entry.arm,
                                  told(evidence.candidate), measured(evidence.default_us)},
                                 ratio_of(evidence),
                                 {told(evidence.verdict), told(join(because, ", ")),
                                  told(tuned.entry.is_default() ? "" : loaded_by(task, tuned)),
                                  fmt::format("{} of {}", tuned.outcome.tried, task.arms())}}));
  }
  return table;
}

struct AnswerWord {
  std::string_view word;
  std::string_view meaning;
  bool takes_back =
      false;  ///< a search does not keep what it is said of; a file that is judged does
};
constexpr std::array kAnswerWords{
    AnswerWord{name_of(GuardVerdict::ina_passthrough),
               "the network itself sums: the library is left alone"},
    AnswerWord{name_of(GuardVerdict::no_actuator), "a library that cannot be set from here"},
    AnswerWord{name_of(GuardVerdict::failed), "the compared setting failed, or gave wrong data"},
    AnswerWord{name_of(GuardVerdict::above_gloo_floor), "slower than twice Gloo's time", true},
    AnswerWord{name_of(GuardVerdict::slower_than_default), "surely slower than the default", true},
    AnswerWord{name_of(GuardVerdict::not_confirmed), "not surely faster than the default", true},
    AnswerWord{kNonActionable, "every setting was measured, and the best of them gains nothing"},
    AnswerWord{kUndecided, "nothing is surely faster, and that nothing is was not shown"},
    AnswerWord{kUnexplored, "no two settings were measured, so that nothing is compared"},
    AnswerWord{kOnlyDefault, "every other way missed its target"},
    AnswerWord{kNothingToSet, "there is no setting that a job could load"},
    AnswerWord{kBelowFloor, "Gloo is faster there than the setting"},
    AnswerWord{kLosslessSaturated,
               "even the setting takes longer than the workload leaves for it"}};

constexpr const char* kSimulatedLegend =
    "setting: the fastest of SMPI's algorithms that were simulated; library = the library's own "
    "rules, the default.\ncompared: the fastest other, simulated once, as it repeats bit for bit. "
    "ratio: its time over the default's; below 1 it is faster.\nloaded by: nobody, as no job runs "
    "on this machine.\n";

/// Words that stand in the table, with what they mean.
std::string legend_of(const TuningResult& result, TuningKind kind) {
  if (kind == TuningKind::simulated) return kSimulatedLegend;
  const bool judged = kind == TuningKind::judged;
  std::string text =
      judged ? "setting: what the file asks for; library = nothing, the library's own choice.\n"
      : kind == TuningKind::between_runs
          ? "setting: the way to run that the search keeps; the first one of the file is the "
            "default.\n"
          : "setting: what the table of settings keeps; library = the library's own choice, the "
            "default.\n";
  const bool compared =
      std::any_of(result.tasks.begin(), result.tasks.end(),
                  [](const TunedTask& tuned) { return tuned.entry.evidence.ratio > 0; });
  if (compared)
    text += fmt::format(
        "compared: {}, compared with the default on fresh launches. ratio: its time over the "
        "default's "
        "there; below 1 it is faster.\n"
        "verdict: of that ratio; FASTER, SLOWER: surely, SAME: within {}, UNCLEAR: its interval "
        "leaves it open. {}\n",
        judged ? "that setting" : "the best other setting that the search saw", band_text(),
        judged ? "A file is judged, not changed: what is not FASTER stands in it as it did."
               : "Where it is not FASTER, the default stays.");
  for (const AnswerWord& reason : kAnswerWords) {
    const bool said =
        std::any_of(result.tasks.begin(), result.tasks.end(), [&](const TunedTask& tuned) {
          return name_of(tuned.outcome.guard) == reason.word || has_flag(tuned, reason.word);
        });
    if (said)
      text += fmt::format("{}: {}{}.\n", reason.word, reason.meaning,
                          reason.takes_back && !judged ? ": not kept" : "");
  }
  return text;
}

}  // namespace

std::string tuning_text(const TunePlan& plan, const TuningResult& result, TuningKind kind,
                        std::size_t width) {
  return render_table(peoples_table(plan, result), OutputFormat::text,
                      parse_columns(kPeoplesColumns, "tune"), width) +
         "\n" + broken_text(legend_of(result, kind), width);
}

namespace {

/// What was measured to help where the lossless ways are saturated.
std::string measured_help(const TuningResult& result) {
  std::string help;
  for (const TunedTask& tuned : result.tasks) {
    if (tuned.helped_by.empty()) continue;
    const TableEvidence& evidence = tuned.entry.evidence;
    help += fmt::format("; measured to help: {}, {:.3g} [{:.3g}, {:.3g}] of the default's time",
                        tuned.helped_by, evidence.ratio, evidence.ratio_low, evidence.ratio_high);
  }
  return help;
}

/// "" or how many ways to train missed the accuracy that they are compared by.
std::string missed_targets(const TuningResult& result) {
  std::size_t missed = 0;
  std::size_t without_default = 0;
  for (const TunedTask& tuned : result.tasks) {
    missed += tuned.outcome.missed;
    if (tuned.outcome.missed > 0 && tuned.entry.evidence.default_us == 0) ++without_default;
  }
  if (missed == 0) return "";
  std::string text = fmt::format(
      "{} of the ways that were tried never reached the target accuracy and {} no choice", missed,
      missed == 1 ? "is" : "are");
  if (without_default > 0)
    text += fmt::format(
        "; {} the default, the first way of the file, did not, so that nothing was "
        "compared there: give more epochs, lower the target, or put a way first that reaches it",
        in_cells(without_default, result));
  return text;
}

/// Options with which another search measures settings that this one did not; "" where none does.
std::string measuring_options(const TuningResult& result) {
  std::vector<std::string> options;
  // An agent that ended of itself measures no more, however much it may.
  if (result.spent) options.emplace_back("--evaluations N");
  if (result.agent != "exhaustive") options.emplace_back("--agent exhaustive");
  return join(options, " or ");
}

/// What can decide cells that are undecided; "" where nothing is known to.
std::string deciding_options(const TuningResult& result) {
  std::size_t unmeasured = 0;
  std::size_t open = 0;
  for (const TunedTask& tuned : result.tasks) {
    if (!has_flag(tuned, kUndecided)) continue;
    unmeasured += tuned.outcome.tried < tuned.arms ? 1 : 0;
    open += tuned.entry.evidence.verdict == name_of(Verdict::unclear) ? 1 : 0;
  }
  std::vector<std::string> ways;
  if (const auto options = measuring_options(result); unmeasured > 0 && !options.empty())
    ways.push_back(fmt::format(
        "{} settings that were not measured ({})",
        unmeasured == 1 ? "one cell has" : fmt::format("{} cells have", unmeasured), options));
  if (open > 0)
    ways.push_back(fmt::format("the comparison of {} is open (a larger tune.confirm_launches)",
                               open == 1 ? "one" : fmt::format("{}", open)));
  return ways.empty() ? "" : "; " + join(ways, ", ");
}

}  // namespace

std::vector<std::string> flag_advice(const TuningResult& result) {
  std::vector<std::string> advice;
  if (auto misses = missed_targets(result); !misses.empty()) advice.push_back(std::move(misses));
  if (const auto cells = flagged(result, kNonActionable); cells > 0)
    advice.push_back(fmt::format(
        "{} {}: every setting was measured, and the fastest gains less than {} "
        "there; "
        "what the environment costs, only the environment can give back (`dynamiccl doctor`)",
        kNonActionable, in_cells(cells, result), band_text()));
  if (const auto cells = flagged(result, kUndecided); cells > 0)
    advice.push_back(
        fmt::format("{} {}: none of the settings that were measured is surely faster there, and "
                    "that none is was not shown{}",
                    kUndecided, in_cells(cells, result), deciding_options(result)));
  if (const auto cells = flagged(result, kOnlyDefault); cells > 0)
    advice.push_back(fmt::format(
        "{} {}: every other way was measured and none reached the target accuracy, "
        "so that the default stays; for another choice give more epochs, lower the target, or "
        "change those ways",
        kOnlyDefault, in_cells(cells, result)));
  if (const auto cells = flagged(result, kUnexplored); cells > 0)
    advice.push_back(fmt::format(
        "{} {}: no two settings were measured there{}", kUnexplored, in_cells(cells, result),
        measuring_options(result).empty() ? "" : "; others are with " + measuring_options(result)));
  if (const auto cells = flagged(result, kNothingToSet); cells > 0)
    advice.push_back(
        fmt::format("{} {}: there is nothing that a job could load for "
                    "them",
                    kNothingToSet, in_cells(cells, result)));
  if (const auto cells = flagged(result, kLosslessSaturated); cells > 0)
    advice.push_back(
        fmt::format("{} {}: even the best lossless setting takes longer than the "
                    "workload leaves for it; "
                    "only sending less helps (compression, local steps, larger batches){}",
                    kLosslessSaturated, in_cells(cells, result), measured_help(result)));
  if (const auto cells = flagged(result, kBelowFloor); cells > 0)
    advice.push_back(
        fmt::format("{} {}: Gloo is faster there than the best that was measured of "
                    "this backend",
                    kBelowFloor, in_cells(cells, result)));
  return advice;
}

std::string applied_advice(const TuningResult& result) {
  const auto asked = std::count_if(result.tasks.begin(), result.tasks.end(),
                                   [](const TunedTask& tuned) { return tuned.candidate != 0; });
  if (asked == static_cast<std::ptrdiff_t>(result.tasks.size())) return "";
  return fmt::format(
      "the table sets something {}; in the others the library's own choice was "
      "measured: the table keeps it there, has no row of their library, collective, size, "
      "ranks and regime, or names a setting that does not exist here",
      in_cells(static_cast<std::size_t>(asked), result));
}

Table replay_table(const std::vector<ReplayScore>& scores) {
  Table table;
  table.columns = split(
      "agent tasks seeds evaluations of_exhaustive_percent gain_percent_of_oracle "
      "lowest_seed_percent held_out_tasks held_out_gain_percent evaluations_to_95 "
      "reached_95_percent slower worst_ratio",
      ' ');
  for (const ReplayScore& score : scores) {
    table.rows.push_back(
        {score.agent, count(score.tasks), count(score.seeds), score.evaluations,
         percent(score.share_of_exhaustive), percent(score.gain_share),
         percent(score.gain_share_lowest), count(score.held_out_tasks),
         score.held_out_tasks > 0 ? percent(score.held_out_gain_share) : Value(),
         std::isfinite(score.evaluations_to_95) ? Value(score.evaluations_to_95) : Value(),
         percent(score.reached_95), count(score.slower), score.worst_ratio});
  }
  return table;
}

Table confirmed_table(const std::vector<ConfirmedScore>& scores) {
  Table table;
  table.columns = split(
      "agent tasks oracle_saves_percent gain_percent_of_oracle lowest_seed_percent held_out_tasks "
      "held_out_gain_percent choices kept slower unconfirmed_gain_percent unconfirmed_slower "
      "faster_than_descent slower_than_descent",
      ' ');
  for (const ConfirmedScore& score : scores)
    table.rows.push_back({score.agent, count(score.tasks), percent(score.oracle_saves),
                          percent(score.gain_share), percent(score.gain_share_lowest),
                          count(score.held_out_tasks),
                          score.held_out_tasks > 0 ? percent(score.held_out_gain_share) : Value(),
                          count(score.choices), count(score.kept), count(score.slower),
                          percent(score.unconfirmed_gain_share), count(score.unconfirmed_slower),
                          count(score.faster_than_descent), count(score.slower_than_descent)});
  return table;
}

void append_part(Table& table, const Table& part, Backend backend) {
  table.columns = part.columns;
  table.columns.insert(table.columns.begin(), "backend");
  for (auto row : part.rows) {
    row.insert(row.begin(), std::string(name_of(backend)));
    table.rows.push_back(std::move(row));
  }
}

}  // namespace dynamiccl
