#include "orchestrator/tune/export_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/statistics/fast_random.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/setting.hpp"
#include "orchestrator/tune/set_comparison.hpp"
#include "tuner/export/mpi_export.hpp"

namespace dynamiccl {
namespace {

constexpr int kMostSetsLooked = 3;
constexpr int kMostLooksOfASet = 3;
/// At which a doubtful size loses after its first own launches, and after all.
constexpr double kEarlyRate = 0.01;
constexpr double kLosingRate = 0.05;
/// Sizes that lean to the slower side at this rate take a setting back where no launch is left to
/// find out.
constexpr double kCautiousRate = 0.2;

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// A place while it is checked.
class PlaceCheck {
 public:
  PlaceCheck(CheckPlan& check, CheckPlan::Place& place, const Evaluate& measure,
             const std::string& folder, const CheckOptions& options, const Console& console)
      : check_(check),
        place_(place),
        measure_(measure),
        options_(options),
        console_(console),
        rules_(fmt::format("{}/exported-{}.rules", folder, place.loaded)),
        launches_(std::max(kFewestRounds, options.launches)),
        sets_(check, place),
        random_(1) {}
  ~PlaceCheck() {
    std::error_code ignored;
    std::filesystem::remove(rules_, ignored);
  }
  PlaceCheck(const PlaceCheck&) = delete;
  PlaceCheck& operator=(const PlaceCheck&) = delete;

  [[nodiscard]] const PlannedGroup& group() const { return check_.plan.base.groups[place_.plain]; }
  [[nodiscard]] bool for_all_sizes() const { return is_for_all_sizes(group().backend); }
  [[nodiscard]] std::string label() const {
    return fmt::format("{} {} {} ranks", group().environment, name_of(group().backend),
                       group().ranks);
  }
  [[nodiscard]] bool interrupted() const { return interrupted_; }
  [[nodiscard]] const std::string& regime() const { return regime_; }

  /// Launches the default: once for the regime, when whatever the environment lacks is made, and
  /// once over all sizes, for what a launch takes.
  bool probe() {
    std::vector<Ask> asks{{place_.tasks.front(), CheckPlan::kPlainArm}};
    for (const Measured& one : measure_(asks))
      if (!one.regime_id.empty()) regime_ = one.regime_id;
    asks.clear();
    for (const std::size_t t : place_.tasks) asks.push_back({t, CheckPlan::kPlainArm});
    const auto began = std::chrono::steady_clock::now();
    interrupted_ = measure_(asks).empty();
    launch_s_ = seconds_since(began);
    return !interrupted_;
  }

  /// @returns rows for the table's checks; nullopt where too little is known to say anything
  std::optional<std::vector<TableEntry>> check(const std::vector<TableEntry>& rows) {
    const auto idle = add_sets(check_, place_, rows);
    for (const std::string& name : idle)
      say(fmt::format("{} is left out: it cannot act between these ranks", name));
    if (place_.sets.empty()) return rows_of_nothing();
    announce();
    compare_sets();
    if (sets_.times.rounds() < kFewestRounds) return std::nullopt;
    for (std::size_t s = 0; s < place_.sets.size(); ++s) {
      const std::string by = sets_.felled_by(sets_.with_algorithms(s));
      if (!by.empty()) say(fmt::format("dropped {}: {}", text_of(place_.sets[s]), by));
    }
    const auto candidates = sets_.candidates();
    say_gains(candidates);
    int looked = 0;
    for (const InForce& force : candidates) {
      if (!interrupted_ && looked++ >= kMostSetsLooked) break;
      begin_looks(force);
      if (!interrupted_ && look()) return finished();
      // The launch settings whose look was cut short, or that come first where none was.
      if (interrupted_) return settle() ? finished() : rows_of_nothing();
    }
    return rows_of_nothing();
  }

  /// What a job gains, and what was dropped why.
  std::vector<std::string> summary;

 private:
  void say(const std::string& what) { summary.push_back(label() + ": " + what); }

  [[nodiscard]] int cost() const {
    // Every set and the default; what is exported and the default, and again what seems slower.
    return launches_ * (static_cast<int>(place_.sets.size()) + 1) + 2 * launches_ + launches_;
  }

  void say_gains(const std::vector<InForce>& candidates) {
    std::vector<std::string> gains;
    for (const InForce& force : candidates)
      gains.push_back(fmt::format("{} {:.1f} %", text_of(place_.sets[force.set]),
                                  100 * (1 - std::exp(sets_.score(force)))));
    say(gains.empty()
            ? "no set of launch settings gains over all sizes"
            : "time saved over all sizes, and in the order of the looks: " + join(gains, "; "));
  }

  /// Fewer launches than asked for where a place has to end in time.
  void fit_launches() {
    launches_ = std::max(kFewestRounds, options_.launches);
    while (options_.seconds > 0 && launches_ > kFewestRounds &&
           cost() * launch_s_ > options_.seconds)
      --launches_;
  }

  void announce() {
    fit_launches();
    console_.note(fmt::format(
        "{}: {}, {} of launch settings against none, then what is best as it is "
        "exported: about {} ({} of each, of {:.1f} s), {}; more where sizes lose",
        label(), counted(place_.tasks.size(), "size"), counted(place_.sets.size(), "set"),
        counted(cost(), "launch"), launches_, launch_s_, format_eta(cost() * launch_s_)));
  }

  /// One round; all that it compares is launched once, in an order of its own.
  bool round(CheckTimes& times, std::vector<Ask> asks) {
    for (std::size_t i = asks.size(); i > 1; --i) std::swap(asks[i - 1], asks[random_.below(i)]);
    const auto measured = measure_(asks);
    interrupted_ = measured.empty();
    if (!interrupted_) times.add(asks, measured);
    return !interrupted_;
  }

  void compare_sets() {
    std::vector<bool> measured(place_.sets.size(), true);
    const auto began = std::chrono::steady_clock::now();
    while (sets_.times.rounds() < launches_) {
      if (!round(sets_.times, sets_.round(measured))) return;
      if (sets_.times.rounds() == 1) {
        // Sets have more cells than the default.
        launch_s_ = seconds_since(began) / static_cast<double>(place_.sets.size() + 1);
        fit_launches();
      }
      if (sets_.times.rounds() >= kFewestRounds) drop_losers(measured);
      if (std::find(measured.begin(), measured.end(), true) == measured.end()) return;
    }
  }

  /// Sets that surely lose a size are not launched again, nor those that another surely beats.
  void drop_losers(std::vector<bool>& measured) const {
    const auto best = sets_.candidates();
    for (std::size_t s = 0; s < measured.size(); ++s) {
      if (!measured[s]) continue;
      const InForce force = sets_.with_algorithms(s);
      if (!sets_.felled_by(force).empty() ||
          (!best.empty() && best.front().set != s && sets_.surely_better(best.front(), force)))
        measured[s] = false;
    }
  }

  // What is exported, and looks at it.

  void begin_looks(const InForce& force) {
    force_ = force;
    tried_ = force.named;
    looks_.clear();
    again_.clear();
    lost_.assign(place_.tasks.size(), false);
    since_.assign(place_.tasks.size(), 0);
  }

  [[nodiscard]] std::vector<TableEntry> entries() const {
    std::vector<TableEntry> made;
    for (std::size_t i = 0; i < place_.tasks.size(); ++i) {
      const TuneTask& task = check_.plan.tasks[place_.tasks[i]];
      TableEntry entry;
      entry.key = {regime_, task.search.task.key.task};
      entry.size = task.cell.size;
      if (force_.named[i]) entry.setting = *place_.algorithms[i];
      entry.setting.launch_knobs = place_.sets[force_.set];
      made.push_back(std::move(entry));
    }
    return made;
  }

  /// Makes the loaded group what a job with the files is.
  void load() {
    PlannedGroup& loaded = check_.plan.base.groups[place_.loaded];
    loaded.knobs = group().knobs;
    for (const auto& [name, value] : place_.sets[force_.set]) loaded.knobs[name] = value;
    const auto rows = entries();
    std::vector<std::string> notes;
    if (for_all_sizes()) {
      for (const auto& [collective, algorithm] : mpich_algorithms(rows))
        loaded.knobs[setting_text(SettingScope::env, mpich_variable(collective))] = algorithm;
    } else if (const std::string rules = openmpi_rules(rows, notes); !rules.empty()) {
      std::ofstream(rules_) << rules;
      loaded.knobs[kDynamicRules] = "1";
      loaded.knobs[setting_text(SettingScope::mca, "coll_tuned_dynamic_rules_filename")] = rules_;
    }
    loaded.id =
        stable_id(group().id + "|loaded|" + knobs_key(loaded.knobs) + std::to_string(++loads_));
  }

  [[nodiscard]] std::vector<PairedTime> seen(std::size_t i, const CheckTimes& times) const {
    const std::size_t t = place_.tasks[i];
    return times.pairs({t, CheckPlan::kExportedArm}, {t, CheckPlan::kPlainArm});
  }
  /// As exported, since the size's setting last changed: the launches of its own where it had some.
  /// Launches that compared sets count too where they measured the same, but for algorithms that
  /// were chosen by what they did at this very size.
  [[nodiscard]] std::vector<PairedTime> seen(std::size_t i) const {
    if (since_[i] >= looks_.size()) return {};
    if (auto own = own_seen(i); !own.empty()) return own;
    const bool chosen_alone = force_.named[i] && !for_all_sizes();
    const bool acts = force_.named[i] || !place_.sets[force_.set].empty();
    if (acts && !chosen_alone) return all_seen(i);
    return seen(i, looks_[since_[i]]);
  }
  /// Launches of the size's own, as it seemed slower.
  [[nodiscard]] std::vector<PairedTime> own_seen(std::size_t i) const {
    if (since_[i] >= again_.size()) return {};
    return seen(i, again_[since_[i]]);
  }
  /// All launches with the size's setting, those that compared sets too.
  [[nodiscard]] std::vector<PairedTime> all_seen(std::size_t i) const {
    auto rounds = sets_.against_default(i, force_);
    if (since_[i] >= looks_.size()) return rounds;
    for (const auto& exported : {seen(i, looks_[since_[i]]), own_seen(i)})
      rounds.insert(rounds.end(), exported.begin(), exported.end());
    return rounds;
  }

  bool measure_exported(const std::vector<std::size_t>& sizes, int launches, CheckTimes& times) {
    std::vector<Ask> asks;
    for (const std::size_t i : sizes)
      for (const std::size_t arm : {CheckPlan::kPlainArm, CheckPlan::kExportedArm})
        asks.push_back({place_.tasks[i], arm});
    for (int launch = 0; launch < launches; ++launch)
      if (!round(times, asks)) return false;
    return true;
  }

  /// Launches of their own for sizes that seem slower, twice as many where they still do: their
  /// first launches made them stand out of many, so that these alone say whether they lose.
  bool measure_doubtful(const std::vector<std::size_t>& sizes) {
    CheckTimes& again = again_.emplace_back();
    std::vector<std::size_t> doubtful;
    // An algorithm that was lucky when sets were compared is judged by what it does as exported.
    for (const std::size_t i : sizes)
      if (!lost_[i] &&
          (seems_slower(all_seen(i), kHarmlessBand) || seems_slower(seen(i), kHarmlessBand)))
        doubtful.push_back(i);
    std::vector<std::size_t> open = doubtful;
    for (const double rate : {kEarlyRate, kLosingRate}) {
      if (open.empty()) break;
      if (!measure_exported(open, launches_, again)) return false;
      std::vector<std::vector<PairedTime>> rounds;
      for (const std::size_t i : doubtful) rounds.push_back(seen(i, again));
      const auto verdicts = verdicts_of(rounds, rate);
      open.clear();
      for (std::size_t k = 0; k < doubtful.size(); ++k) {
        if (verdicts[k] == Verdict::slower || fails(rounds[k]))
          lost_[doubtful[k]] = true;
        else if (seems_slower(rounds[k], kHarmlessBand))
          open.push_back(doubtful[k]);
      }
    }
    return true;
  }

  [[nodiscard]] std::vector<Verdict> verdicts(double rate = 0.05) const {
    std::vector<std::vector<PairedTime>> sizes;
    for (std::size_t i = 0; i < place_.tasks.size(); ++i) sizes.push_back(seen(i));
    return verdicts_of(sizes, rate);
  }

  /// Looks at what is exported until nothing of it loses.
  /// @returns is something left that is surely faster, and nothing that loses?
  bool look() {
    std::vector<std::size_t> sizes(place_.tasks.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = i;
    for (int pass = 0; pass < kMostLooksOfASet && !sizes.empty(); ++pass) {
      load();
      looks_.emplace_back();
      for (const std::size_t i : sizes) since_[i] = looks_.size() - 1;
      if (!measure_exported(sizes, launches_, looks_.back())) return false;
      for (const std::size_t i : sizes) lost_[i] = fails(seen(i));
      if (!measure_doubtful(sizes)) return false;
      if (!cut(sizes)) return false;
      if (place_.sets[force_.set].empty() &&
          std::find(force_.named.begin(), force_.named.end(), true) == force_.named.end()) {
        drop("no algorithm is left");
        return false;
      }
    }
    if (!sizes.empty()) {
      drop("its algorithms still changed after the last look");
      return false;
    }
    const auto last = verdicts();
    if (std::find(last.begin(), last.end(), Verdict::faster) != last.end()) return true;
    drop("as exported no size was surely faster");
    return false;
  }

  void drop(const std::string& why) {
    say(fmt::format("dropped {}: {}", text_of(place_.sets[force_.set]), why));
  }
  [[nodiscard]] std::string where(std::size_t i) const {
    const WorkCell& cell = check_.plan.tasks[place_.tasks[i]].cell;
    return fmt::format("{} {}", name_of(cell.collective), format_bytes(cell.size));
  }

  /// Takes back what lost. @param changed sizes whose setting is another one now
  /// @returns false where only other launch settings could help
  bool cut(std::vector<std::size_t>& changed) {
    const std::vector<bool> lost = lost_;
    const InForce before = force_;
    for (std::size_t i = 0; i < lost.size(); ++i) {
      if (!lost[i] && !earns_nothing(i)) continue;
      if (before.named[i]) {
        say(fmt::format("{} at {} is taken back: {}", place_.algorithms[i]->algorithm, where(i),
                        lost[i] ? "it loses" : "it is not surely faster there"));
        take_back(i);
      } else if (lost[i] && can_mend(i)) {
        force_.named[i] = tried_[i] = true;
      } else if (lost[i]) {
        const auto ratio = ratio_of(seen(i));
        drop(fmt::format("{} {}", where(i),
                         ratio ? fmt::format("takes {:.2f} of the default's time", ratio->value)
                               : "does not run"));
        return false;
      }
    }
    changed.clear();
    for (std::size_t i = 0; i < lost.size(); ++i)
      if (force_.named[i] != before.named[i]) {
        lost_[i] = false;
        changed.push_back(i);
      }
    return true;
  }

  /// An algorithm per size stays where it is faster than the default, or where the launch settings
  /// alone would be slower.
  [[nodiscard]] bool earns_nothing(std::size_t i) const {
    if (!force_.named[i] || for_all_sizes()) return false;
    if (surely_faster(all_seen(i))) return false;
    const InForce own{force_.set, std::vector<bool>(place_.tasks.size(), false)};
    return !seems_slower(sets_.against_default(i, own), kHarmlessBand);
  }

  /// An algorithm for all sizes goes for all of them.
  void take_back(std::size_t i) {
    const Collective collective = check_.plan.tasks[place_.tasks[i]].cell.collective;
    for (std::size_t k = 0; k < force_.named.size(); ++k)
      if (k == i ||
          (for_all_sizes() && check_.plan.tasks[place_.tasks[k]].cell.collective == collective))
        force_.named[k] = false;
  }

  /// Could the table's algorithm make good what the launch settings make slower at this size?
  [[nodiscard]] bool can_mend(std::size_t i) const {
    if (for_all_sizes() || !place_.algorithms[i] || tried_[i]) return false;
    InForce with = force_;
    with.named[i] = true;
    const auto rounds = sets_.against_default(i, with);
    return !rounds.empty() && !fails(rounds) && !seems_slower(rounds, kHarmlessBand);
  }

  /// Sizes that lost, or lean to it by the launches of their own, which alone are free of what made
  /// them stand out.
  [[nodiscard]] std::vector<bool> losing() const {
    std::vector<std::size_t> sizes;
    std::vector<std::vector<PairedTime>> own;
    for (std::size_t i = 0; i < lost_.size(); ++i)
      if (auto rounds = own_seen(i); !rounds.empty()) {
        sizes.push_back(i);
        own.push_back(std::move(rounds));
      }
    const auto verdicts = verdicts_of(own, kCautiousRate);
    std::vector<bool> losing = lost_;
    for (std::size_t k = 0; k < sizes.size(); ++k)
      if (fails(own[k]) || verdicts[k] == Verdict::slower) losing[sizes[k]] = true;
    return losing;
  }

  /// What may be exported of a check that was cut short: by all launches so far, algorithms that
  /// are surely faster, and launch settings under which no size leans to the slower side.
  bool settle() {
    std::vector<bool> lean = losing();
    for (std::size_t i = 0; i < force_.named.size(); ++i)
      if (force_.named[i] && !for_all_sizes() && (lean[i] || !surely_faster(all_seen(i)))) {
        force_.named[i] = false;
        // Launches with the algorithm say nothing of the library's own choice.
        since_[i] = looks_.size();
        lean[i] = false;
      }
    use_all_ = true;
    std::vector<std::vector<PairedTime>> sizes;
    for (std::size_t i = 0; i < place_.tasks.size(); ++i) sizes.push_back(all_seen(i));
    const auto verdicts = verdicts_of(sizes, kCautiousRate);
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (lean[i] || fails(sizes[i]) || verdicts[i] == Verdict::slower) {
        drop(where(i) + " leans to the slower side, and the check was cut short");
        return false;
      }
    if (std::find(verdicts.begin(), verdicts.end(), Verdict::faster) == verdicts.end())
      return false;
    say("the check was cut short: what is kept was measured, but not all of it as it is exported");
    return true;
  }

  [[nodiscard]] static std::vector<double> times_of_default(const std::vector<PairedTime>& rounds) {
    std::vector<double> times;
    for (const PairedTime& round : rounds)
      if (round.default_us > 0) times.push_back(round.default_us);
    return times;
  }

  /// Rows of what is in force, with what was seen of it.
  std::vector<TableEntry> finished() {
    auto made = entries();
    std::vector<std::vector<PairedTime>> sizes;
    for (std::size_t i = 0; i < made.size(); ++i) sizes.push_back(use_all_ ? all_seen(i) : seen(i));
    const auto verdicts = verdicts_of(sizes);
    std::vector<double> faster;
    int slower = 0;
    for (std::size_t i = 0; i < made.size(); ++i) {
      TableEvidence& evidence = made[i].evidence;
      const auto [chosen, defaults] = worked(sizes[i]);
      evidence.launches = static_cast<int>(chosen.size());
      const auto ratio = ratio_of(sizes[i]);
      if (!ratio) {
        // What the default can do and the setting cannot loses.
        const auto alone = times_of_default(sizes[i]);
        if (!alone.empty()) evidence.default_us = median(alone);
        continue;
      }
      evidence.default_us = median(defaults);
      evidence.tuned_us = median(chosen);
      evidence.ratio = ratio->value;
      evidence.ratio_low = ratio->interval ? ratio->interval->low : 0;
      evidence.ratio_high = ratio->interval ? ratio->interval->high : 0;
      evidence.verdict = name_of(verdicts[i]);
      if (verdicts[i] == Verdict::faster) faster.push_back(1 / ratio->value);
      slower += verdicts[i] == Verdict::slower ? 1 : 0;
    }
    const auto named = std::count(force_.named.begin(), force_.named.end(), true);
    say(fmt::format(
        "loads {}{}", text_of(place_.sets[force_.set]),
        named > 0 ? fmt::format(" and an algorithm at {}", counted(named, "size")) : ""));
    say(fmt::format("{} surely faster, median {:.2f}x, best {:.2f}x, {} SLOWER",
                    counted_of(faster.size(), made.size(), "size"),
                    faster.empty() ? 1 : median(faster),
                    faster.empty() ? 1 : *std::max_element(faster.begin(), faster.end()),
                    slower == 0 ? "none" : std::to_string(slower)));
    return made;
  }

  /// The library's own choice everywhere.
  std::vector<TableEntry> rows_of_nothing() {
    std::vector<TableEntry> made;
    for (const std::size_t t : place_.tasks) {
      TableEntry entry;
      entry.key = {regime_, check_.plan.tasks[t].search.task.key.task};
      entry.size = check_.plan.tasks[t].cell.size;
      const Ask plain{t, CheckPlan::kPlainArm};
      const auto times = worked(sets_.times.pairs(plain, plain)).default_us;
      entry.evidence.launches = static_cast<int>(times.size());
      if (!times.empty()) entry.evidence.default_us = entry.evidence.tuned_us = median(times);
      made.push_back(std::move(entry));
    }
    say(
        fmt::format("{} surely faster: nothing is exported, the library's own choice "
                    "stays",
                    counted_of(0, made.size(), "size")));
    return made;
  }

  CheckPlan& check_;
  CheckPlan::Place& place_;
  const Evaluate& measure_;
  CheckOptions options_;
  const Console& console_;
  std::string rules_;
  std::string regime_;
  int launches_;
  double launch_s_ = 0;
  bool interrupted_ = false;
  bool use_all_ = false;  ///< launches that compared sets count for what is kept, too
  int loads_ = 0;
  SetComparison sets_;
  FastRandom random_;
  InForce force_;
  std::vector<bool> tried_;         ///< algorithms that were in force once
  std::vector<CheckTimes> looks_;   ///< at the set in force
  std::vector<CheckTimes> again_;   ///< by look: sizes that seemed slower in it
  std::vector<bool> lost_;          ///< by size: with the setting that it has
  std::vector<std::size_t> since_;  ///< by size: the first look at its setting
};

void add_rows(Table& table, const PlannedGroup& group, const std::vector<TableEntry>& checks) {
  for (const TableEntry& check : checks) {
    const TableEvidence& e = check.evidence;
    const auto number = [](double value) { return value > 0 ? Value(value) : Value(); };
    std::string setting = check.setting.algorithm;
    for (const auto& knobs : {check.setting.call_knobs, check.setting.launch_knobs})
      for (const auto& [name, value] : knobs) setting += fmt::format(" {}={}", name, value);
    table.rows.push_back(
        {group.environment, std::string(name_of(group.backend)),
         static_cast<std::int64_t>(group.ranks), std::string(name_of(check.key.task.collective)),
         static_cast<std::int64_t>(check.size.count()), setting, number(e.default_us),
         number(e.tuned_us), number(e.ratio), number(e.ratio_low), number(e.ratio_high),
         e.verdict.empty() ? Value() : Value(e.verdict), static_cast<std::int64_t>(e.launches)});
  }
}

bool all_default(const std::vector<TableEntry>& rows) {
  return std::all_of(rows.begin(), rows.end(),
                     [](const TableEntry& row) { return row.is_default(); });
}

void sort_checks(ConfigurationTable& table) {
  std::sort(table.checks.begin(), table.checks.end(), [](const TableEntry& a, const TableEntry& b) {
    return std::pair(a.key, a.size) < std::pair(b.key, b.size);
  });
}

}  // namespace

CheckAnswer check_export(CheckPlan& check, const Evaluate& measure, const std::string& folder,
                         ConfigurationTable& table, const CheckOptions& options,
                         const Console& console) {
  CheckAnswer answer;
  answer.table.columns = {"environment", "backend",    "ranks",     "collective", "size_bytes",
                          "setting",     "default_us", "loaded_us", "ratio",      "low",
                          "high",        "verdict",    "launches"};
  for (CheckPlan::Place& place : check.places) {
    PlaceCheck one(check, place, measure, folder, options, console);
    if (!one.probe()) break;
    const PlannedGroup group = one.group();
    const auto rows = rows_for(table.entries, one.regime(), group);
    if (rows.empty() || all_default(rows)) {
      answer.summary.push_back(fmt::format("{}: {}", one.label(),
                                           rows.empty()
                                               ? "the table has no rows of this regime"
                                               : "the table keeps the library's defaults"));
      continue;
    }
    const auto checks = one.check(rows);
    answer.summary.insert(answer.summary.end(), one.summary.begin(), one.summary.end());
    if (!checks) {
      answer.summary.push_back(one.label() + ": too few launches to say anything; nothing changes");
      break;
    }
    add_rows(answer.table, group, *checks);
    std::erase_if(table.checks, [&](const TableEntry& old) {
      return !rows_for({old}, one.regime(), group).empty();
    });
    table.checks.insert(table.checks.end(), checks->begin(), checks->end());
    if (one.interrupted()) break;
  }
  sort_checks(table);
  return answer;
}

}  // namespace dynamiccl
