#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "db/reader.hpp"
#include "db/store.hpp"
#include "orchestrator/cli/verbs/experiment_arguments.hpp"
#include "orchestrator/cli/verbs/output_file.hpp"
#include "orchestrator/cli/verbs/stored_experiment.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/plan/plan.hpp"
#include "orchestrator/run/console.hpp"
#include "orchestrator/run/executor.hpp"
#include "orchestrator/run/run_setup.hpp"
#include "reports/compare/gate.hpp"
#include "reports/model/table_view.hpp"
#include "reports/render/comparison_junit.hpp"

namespace dynamiccl {
namespace {

/// One for what tripped, and one for what that could not judge.
constexpr int kMoreLooks = 2;

struct GateArguments {
  ExperimentArguments experiment;
  std::string reference;
  std::string junit;
  std::string band = "5%";
};

/// The experiment of the reference's run, in a file that lives as long as this does.
class ReferenceFile {
 public:
  ReferenceFile(const SideSelection& reference, const std::string& db,
                ExperimentArguments& arguments) {
    const Reader reader(reference.db);
    const auto stored =
        stored_experiment(reader, reader.resolve_run(reference.run), "gate " + reference.db);
    path_ = fmt::format("{}.gate-{}.toml", std::filesystem::absolute(db).string(),
                        reference.run.substr(0, 8));
    write_output(path_, stored.text, "--db");
    arguments.file = path_;
    if (arguments.only.empty()) arguments.only = stored.only;
    arguments.overrides.insert(arguments.overrides.begin(), stored.overrides.begin(),
                               stored.overrides.end());
  }
  ~ReferenceFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  ReferenceFile(const ReferenceFile&) = delete;
  ReferenceFile& operator=(const ReferenceFile&) = delete;

 private:
  std::string path_;
};

/// The experiment's file, else the reference's experiment, in a file that no killed gate leaves.
LoadedExperiment loaded_for(ExperimentArguments& arguments, const SideSelection& reference,
                            const std::string& db) {
  std::optional<ReferenceFile> stored;
  if (arguments.file.empty()) stored.emplace(reference, db, arguments);
  return load_experiment(arguments);
}

/// The plan's cells that are named, as the store knows them.
Plan plan_of_tripped(const Plan& plan, const std::set<std::string>& cells) {
  Plan left;
  for (PlannedGroup group : plan.groups) {
    std::erase_if(group.cells,
                  [&](const PlannedCell& cell) { return !cells.contains(cell.work.id); });
    if (!group.cells.empty()) left.groups.push_back(std::move(group));
  }
  return left;
}

/// Runs, stores and reads: what one look of a gate takes.
class Looks {
 public:
  Looks(const GateArguments& arguments, const LoadedExperiment& loaded, const Shared& shared)
      : arguments_(arguments),
        loaded_(loaded),
        shared_(shared),
        console_(shared.verbosity()),
        store_(shared.db) {}

  /// @returns the run's id; "" where it was interrupted
  std::string measure(const Plan& plan, const char* why) {
    LaunchSite site = launch_site(shared_.db, "");
    site.cluster = loaded_.cluster;
    site.machine = loaded_.experiment.machine;
    auto info =
        new_run(loaded_.experiment, std::filesystem::absolute(arguments_.experiment.file).string(),
                shared_.argv);
    info.overrides.emplace_back(std::string("gate=") + why);
    console_.note(fmt::format("{} {}: {}, {} to measure", why, info.id,
                              counted(plan.groups.size(), "group"),
                              counted(plan.possible_cells(), "cell")));
    Executor executor(loaded_.experiment, plan, std::move(site), store_, console_);
    const auto summary = executor.run(info, std::nullopt);
    interrupted_by_ = summary.interrupted_by;
    return summary.run_id;
  }

  [[nodiscard]] ComparisonSide side(const std::string& run) const {
    return load_side({run, shared_.db, run, "", ""}, {});
  }

  /// The ids of a run's cells that tripped.
  [[nodiscard]] std::set<std::string> ids_of(const std::string& run, const Gate& gate) const {
    const Reader reader(shared_.db);
    const Table table = reader.query(
        "SELECT DISTINCT run_id, environment, backend, architecture, collective, size_bytes, "
        "ranks, datatype, algorithm, in_place, group_knobs, cell_knobs, cell_id FROM v_cell "
        "WHERE run_id = ?1",
        {run});
    const TableView rows(table);
    std::set<std::string> ids;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      CellFigure figure = figure_cell(rows, i);
      figure.run_id.clear();
      if (std::ranges::find(gate.tripped, key_without(figure, "")) != gate.tripped.end())
        ids.insert(rows.text(i, "cell_id"));
    }
    return ids;
  }

  [[nodiscard]] int interrupted_by() const { return interrupted_by_; }

 private:
  const GateArguments& arguments_;
  const LoadedExperiment& loaded_;
  const Shared& shared_;
  Console console_;
  Store store_;
  int interrupted_by_ = 0;
};

nlohmann::ordered_json gate_json(const Gate& gate, const std::string& run, int code) {
  nlohmann::ordered_json findings = nlohmann::ordered_json::array();
  for (const auto& [what, text, cell] : gate.findings)
    findings.push_back({{"what", what}, {"text", text}});
  return {{"run_id", run},
          {"reference_run_id", gate.comparison.a.run_id},
          {"cells", gate.comparison.cells.size()},
          {"may_hide",
           gate.may_hide() ? nlohmann::ordered_json(*gate.may_hide()) : nlohmann::ordered_json()},
          {"findings", std::move(findings)},
          {"exit_code", code}};
}

void print_gate(const Gate& gate, const std::string& run, int code, const Shared& shared) {
  if (shared.json) {
    fmt::print("{}\n", gate_json(gate, run, code).dump(1));
    return;
  }
  std::string text;
  for (const auto& [what, line, cell] : gate.findings) {
    const bool bad = what == "slower" || what == "failed" || what == "unsupported";
    std::string head = what;
    for (char& c : head) c = bad ? static_cast<char>(std::toupper(c)) : c;
    text += fmt::format("{}: {}\n", head, line);
  }
  text += fmt::format("gate: {}, {} compared with run {} of {}: {}\n", run.substr(0, 8),
                      counted(gate.comparison.cells.size(), "cell"),
                      gate.comparison.a.run_id.substr(0, 8), gate.comparison.a.selection.db,
                      gate.outcome());
  fmt::print("{}", coloured_for_stdout(printable(text)));
}

void require_reference(const std::string& reference) {
  std::error_code unseen;
  if (!reference.ends_with(".sqlite") || std::filesystem::exists(reference, unseen)) return;
  throw Error(ErrorKind::input,
              fmt::format("gate: {}: there is no such file; make it where the speed is known to "
                          "be good: dynamiccl run FILE --db {}",
                          reference, shell_quote(reference)));
}

int run_gate(GateArguments arguments, const Shared& shared) {
  const InterruptGuard guard;
  require_reference(arguments.reference);
  make_db_folder(shared.db);
  const auto named = parse_side(arguments.reference, {arguments.reference, "last"});
  ComparisonOptions options;
  options.band.relative = parse_band(arguments.band);
  // The second look keeps false alarms out, so that the first one may see all there is.
  options.correct_for_table = false;
  const ComparisonSide reference = load_side(named, {});
  const auto loaded = loaded_for(arguments.experiment, named, shared.db);
  Looks looks(arguments, loaded, shared);
  const std::string run = looks.measure(loaded.plan, "gate");
  if (looks.interrupted_by() != 0) return 128 + looks.interrupted_by();
  Gate gate = first_look(reference, looks.side(run), options);
  for (int more = kMoreLooks; more > 0 && !gate.tripped.empty(); --more) {
    const auto tripped = plan_of_tripped(loaded.plan, looks.ids_of(run, gate));
    const std::string again = looks.measure(tripped, "again");
    if (looks.interrupted_by() != 0) return 128 + looks.interrupted_by();
    gate = next_look(std::move(gate), reference, looks.side(again), options);
  }
  gate = closed(std::move(gate));
  const int code = gate.verdict() == Verdict::slower    ? exit_code::kRegression
                   : gate.verdict() == Verdict::unclear ? exit_code::kUnclear
                                                        : exit_code::kFine;
  if (!arguments.junit.empty())
    write_output(arguments.junit, comparison_junit(gate.comparison), "--junit");
  print_gate(gate, run, code, shared);
  return code;
}

}  // namespace

void add_gate_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand(
      "gate", "measure and compare with a reference: what is surely slower, twice, fails");
  auto arguments = std::make_shared<GateArguments>();
  verb->add_option("REFERENCE", arguments->reference,
                   "database of the reference: FILE.sqlite, or FILE.sqlite:RUN (its last run)")
      ->required();
  arguments->experiment.add_to(*verb, false);
  verb->add_option("--band", arguments->band, "times within this share count as equal (5%)");
  verb->add_option("--junit", arguments->junit, "also write JUnit XML to this file");
  add_db_option(*verb, shared);
  add_output_options(*verb, shared);
  verb->footer(
      "Examples:\n"
      "  dynamiccl run nightly.toml --db reference.sqlite         once, where it is known to be "
      "good\n"
      "  dynamiccl gate reference.sqlite                          the reference's own experiment\n"
      "  dynamiccl gate reference.sqlite nightly.toml --only 'size >= 1MiB' --junit gate.xml\n"
      "Exit codes: 0 passed, 3 a cell is slower or failed, twice, or has no result any more, or "
      "is\n"
      "UNSUPPORTED here (--only leaves it out); 5 it cannot be said: no cell has a reference of\n"
      "this regime, or launches differ so much that each could be a quarter slower unseen, or "
      "what\n"
      "was slower once was not judged again; 2 wrong input or unlike protocols, 130 Ctrl-C. A\n"
      "regime without a reference is reported and fails nothing.");
  verb->callback([arguments, &shared] { shared.exit_code = run_gate(*arguments, shared); });
}

}  // namespace dynamiccl
