#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "core/vocabulary/text.hpp"
#include "orchestrator/run/console.hpp"

namespace dynamiccl {

/// Exit codes of design and scripts: kept stable, tested.
namespace exit_code {
inline constexpr int kFine = 0;
inline constexpr int kCellFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kRegression = 3;
inline constexpr int kDoctor = 4;
inline constexpr int kUnclear = 5;
}  // namespace exit_code

/// What every verb knows; filled by the command line before a verb runs.
struct Shared {
  std::vector<std::string> argv;
  std::vector<std::string> command;  ///< words behind `tune --`: somebody's own command
  std::string db;                    ///< --db, else usual_db()
  std::string tune_mode;             ///< the word behind `tune`, or what its options stand for
  bool tune_help = false;            ///< and its help is asked for
  std::string old_spelling;          ///< of that word; "" = it was there
  bool json = false;
  bool quiet = false;
  bool verbose = false;
  int exit_code = exit_code::kFine;  ///< set by the verb

  [[nodiscard]] Verbosity verbosity() const {
    return quiet ? Verbosity::quiet : verbose ? Verbosity::verbose : Verbosity::normal;
  }
};

/// Each adds its subcommand; its callback does the work, throws Error, and sets shared.exit_code.
using AddVerb = void(CLI::App& app, Shared& shared);
AddVerb add_run_verb, add_plan_verb, add_query_verb, add_list_verb, add_show_verb, add_report_verb,
    add_export_verb, add_clean_verb, add_tune_verb, add_train_verb, add_doctor_verb,
    add_compare_verb, add_gate_verb, add_import_verb, add_replay_verb, add_completion_verb,
    add_schema_verb, add_experiments_verb, add_predict_verb;
/// Takes the mode of `tune` out of a command line, or finds out which one an old spelling means.
void take_tune_mode(std::vector<std::string>& argv, Shared& shared);

/// An option that takes some words only: help lists them as its value, and completion offers what
/// help lists. The verb itself checks the value, for a message that names the nearest word.
template <class Target>
CLI::Option* add_choice_option(CLI::App& verb, const std::string& name, Target& target,
                               const std::vector<std::string>& words,
                               const std::string& description) {
  return verb.add_option(name, target, description)->type_name(join(words, "|"));
}

/// A share of times that counts as equal: "2%" or "0.02".
/// @throws Error(input) for anything else
double parse_band(const std::string& text);

/// --json is a format, too.
/// @throws Error(input) when --json and a --format that is another one are given
void refuse_two_formats(const Shared& shared, const std::string& format);

/// Options that verbs share: --db, --json, -q, -v.
void add_db_option(CLI::App& verb, Shared& shared);
void add_output_options(CLI::App& verb, Shared& shared);

}  // namespace dynamiccl
