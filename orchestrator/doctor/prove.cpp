#include "orchestrator/doctor/prove.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/examine.hpp"
#include "orchestrator/launch/machine.hpp"
#include "orchestrator/run/executor.hpp"
#include "orchestrator/run/run_setup.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

constexpr double kLaunchTimeoutSeconds = 60;
// Of a launch that hung when it was looked at.
constexpr double kHungTimeoutSeconds = 10;

double launch_timeout_s(const Symptoms& symptoms, Backend backend) {
  for (const auto& look : symptoms.looks)
    if (look.backend == backend && look.timed_out) return kHungTimeoutSeconds;
  return kLaunchTimeoutSeconds;
}

std::string fixed_name(const EnvironmentProfile& profile) { return profile.name + "-fixed"; }

std::string profile_table(const EnvironmentProfile& profile, const std::string& name) {
  // Every key follows, so that what it starts from leaves no trace.
  return fmt::format("\n[profile.\"{}\"]\nextends = \"bare-metal\"\n{}", name,
                     to_toml_keys(profile));
}

bool was_looked_at(const Symptoms& symptoms, Backend backend) {
  return std::any_of(symptoms.looks.begin(), symptoms.looks.end(), [&](const BackendLook& look) {
    return look.backend == backend && look.impossible.empty();
  });
}

std::int64_t run_row(const Reader& reader, const std::string& run_id) {
  const Table table = reader.query("SELECT run_row FROM v_run WHERE run_id = ?1", {run_id});
  return TableView(table).integer(0, "run_row");
}

void add_note(std::string& note, const std::string& more) {
  note += (note.empty() ? "" : "; ") + more;
}

void read_times(const std::vector<CellFigure>& figures, ProofResult& result) {
  const CellFigure* before = nullptr;
  const CellFigure* after = nullptr;
  for (const auto& figure : figures) {
    if (figure.environment == result.before.environment) before = &figure;
    if (figure.environment == result.after.environment) after = &figure;
  }
  for (const auto& [figure, side] :
       {std::pair{before, &result.before}, std::pair{after, &result.after}}) {
    if (figure == nullptr) continue;
    side->median_us = figure->median_us();
    side->launches = static_cast<int>(figure->launches.size());
  }
  if (before == nullptr || after == nullptr) return;
  result.ratio = time_ratio(*after, *before);
  result.verdict = judge(result.ratio, EquivalenceBand{});
  if (const auto of_waits = waits_note(result.ratio, result.verdict, EquivalenceBand{});
      !of_waits.empty())
    add_note(result.note, of_waits);
}

ProofSide& side_of(const std::string& environment, ProofResult& result) {
  return environment == result.before.environment ? result.before : result.after;
}

void read_failures(const Reader& reader, std::int64_t row, ProofResult& result) {
  const Table table = reader.query(
      "SELECT environment, launch_status, noisy, reason FROM v_launch WHERE run_row = ?1 "
      "AND launch_status <> 'ok' AND is_last_attempt ORDER BY launch_row",
      {row});
  const TableView rows(table);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& side = side_of(rows.text(i, "environment"), result);
    ++side.failed;
    if (rows.text(i, "launch_status") == "timed_out") {
      ++side.timed_out;
      side.disturbed += static_cast<int>(rows.integer(i, "noisy"));
    }
    side.reason = rows.text(i, "reason");
  }
}

void read_noise(const Reader& reader, std::int64_t row, ProofResult& result) {
  const Table table = reader.query(
      "SELECT environment, sum(noisy) AS noisy FROM v_launch "
      "WHERE run_row = ?1 AND launch_status = 'ok' GROUP BY environment",
      {row});
  const TableView rows(table);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& side = side_of(rows.text(i, "environment"), result);
    side.noisy = static_cast<int>(rows.integer(i, "noisy"));
  }
}

void read_transports(const Reader& reader, std::int64_t row, ProofResult& result) {
  const Table table = reader.query(
      "SELECT DISTINCT v.environment, t.transport FROM v_launch v "
      "JOIN transport t ON t.launch_id = v.launch_row "
      "WHERE v.run_row = ?1 AND v.launch_status = 'ok' ORDER BY 1, 2",
      {row});
  const TableView rows(table);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& side = side_of(rows.text(i, "environment"), result);
    side.used += (side.used.empty() ? "" : ", ") + rows.text(i, "transport");
  }
}

/// Times of the launches that ended well say nothing of those that did not.
void judge_failures(ProofResult& result) {
  const auto failed = [](const char* when, const ProofSide& side) {
    return fmt::format("{}, {} failed: {}", when,
                       counted_of(side.failed, side.failed + side.launches, "launch"), side.reason);
  };
  if (result.before.failed > 0) add_note(result.note, failed("before", result.before));
  if (result.after.failed == 0) return;
  result.verdict = Verdict::unclear;
  add_note(result.note, failed("fixed", result.after) + ", so the fix is not proved");
}

/// A side without a single time: what the other side's times then mean.
void judge_without_times(ProofResult& result) {
  if (result.after.launches == 0) {
    add_note(result.note,
             fmt::format("no launch of the fixed profile ended well: {}",
                         result.after.reason.empty() ? "none was tried" : result.after.reason));
    return;
  }
  const bool hung = result.before.timed_out > 0 && result.before.timed_out == result.before.failed;
  result.verdict =
      result.before.failed > 0 && result.after.failed == 0 ? Verdict::faster : Verdict::unclear;
  if (hung && result.before.disturbed > 0) result.verdict = Verdict::not_judged;
  add_note(result.note,
           hung ? fmt::format("before, none of {} came to an end within {} s{}",
                              counted(result.before.failed, "launch"), result.timeout_s,
                              result.before.disturbed > 0 ? " on a busy machine" : "")
                : fmt::format("before, none of {} ended well: {}",
                              counted(result.before.failed, "launch"), result.before.reason));
}

std::string asked_of(const EnvironmentProfile& profile, Backend backend, const Symptoms& symptoms) {
  std::map<std::string, std::string> settings = profile.environment;
  if (const auto found = profile.backend_settings.find(backend);
      found != profile.backend_settings.end())
    for (const auto& setting : found->second)
      if (setting.scope != SettingScope::malloc) settings[setting.name] = setting.value;
  return asked_transport(profile, backend, settings, profile.kind == EnvironmentKind::cross_docker,
                         symptoms.host, symptoms.ranks);
}

}  // namespace

std::optional<Backend> proving_backend(const Symptoms& symptoms, const Finding& finding) {
  const auto wanted = finding.cause->proof().backends;
  const auto& slowed = finding.symptom.backends;
  for (const Backend backend : wanted)
    if (std::find(slowed.begin(), slowed.end(), backend) != slowed.end() &&
        was_looked_at(symptoms, backend))
      return backend;
  return std::nullopt;
}

std::string proof_experiment(const Symptoms& symptoms, const Finding& finding, Backend backend,
                             int launches) {
  const Proof proof = finding.cause->proof();
  const std::string fixed = fixed_name(symptoms.profile);
  std::string text = fmt::format(
      "name = \"doctor {0}\"\n"
      "description = \"{1}: {2} as it is against the same with {0} fixed.\"\nseed = 1\n\n"
      "[axes]\nenvironment = [\"{2}\", \"{3}\"]\nbackend = \"{4}\"\narchitecture = \"ring\"\n"
      "ranks = {5}\n\n[[work]]\ncollective = \"{6}\"\nsize = {7}\n\n"
      "[protocol]\nlaunches = {8}\nretries = 0\nwarmup = 2\niterations = 10\nmin_iterations = 4\n"
      "cell_time_cap = \"1500ms\"\nlaunch_timeout = \"{9}s\"\n",
      finding.cause->id, finding.cause->title, symptoms.profile.name, fixed, name_of(backend),
      symptoms.ranks, name_of(proof.collective), proof.size.count(), launches,
      launch_timeout_s(symptoms, backend));
  text += profile_table(symptoms.profile, symptoms.profile.name);
  text += profile_table(*finding.fix.profile, fixed);
  return text;
}

ProofResult judge_proof(const Reader& reader, const std::string& run_id, const ProofResult& known) {
  ProofResult result = known;
  result.run_id = run_id;
  const std::int64_t row = run_row(reader, run_id);
  read_times(load_figures(reader, {row}), result);
  read_failures(reader, row, result);
  read_noise(reader, row, result);
  read_transports(reader, row, result);
  if (result.before.launches > 0 && result.after.launches > 0)
    judge_failures(result);
  else
    judge_without_times(result);
  return result;
}

ProofResult prove(const Symptoms& symptoms, const Finding& finding, const ProofOptions& options,
                  Console& console) {
  ProofResult result;
  result.cause = finding.cause->id;
  result.ranks = symptoms.ranks;
  if (!finding.fix.profile) {
    result.impossible = "no profile can fix it: " + finding.fix.flag;
    return result;
  }
  const auto backend = proving_backend(symptoms, finding);
  if (!backend) {
    result.impossible = "no backend that could prove it was looked at (--backend)";
    return result;
  }
  const Proof proof = finding.cause->proof();
  result.backend = *backend;
  result.collective = proof.collective;
  result.size = proof.size;
  result.timeout_s = launch_timeout_s(symptoms, *backend);
  result.before.environment = symptoms.profile.name;
  result.before.asked = asked_of(symptoms.profile, *backend, symptoms);
  result.after.environment = fixed_name(symptoms.profile);
  result.after.asked = asked_of(*finding.fix.profile, *backend, symptoms);
  // The base that both profiles name and then replace key by key.
  EnvironmentProfile base;
  base.name = "bare-metal";
  const auto experiment = parse_experiment(
      proof_experiment(symptoms, finding, *backend, options.launches),
      fmt::format("doctor --prove {}", finding.cause->id), {}, {{"bare-metal", base}});
  const auto site = launch_site(options.db, "");
  const auto plan =
      make_plan(experiment, inspect_machine(experiment.profiles, site.worker_folder), nullptr);
  Store store(options.db);
  Executor executor(experiment, plan, site, store, console);
  const auto summary =
      executor.run(new_run(experiment, experiment.source_path, options.argv), std::nullopt);
  if (summary.interrupted_by != 0) result.note = "interrupted";
  return judge_proof(Reader(options.db), summary.run_id, result);
}

}  // namespace dynamiccl
