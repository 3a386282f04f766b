#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/cli/verbs/tune_arguments.hpp"
#include "orchestrator/run/stored_decisions.hpp"
#include "orchestrator/tune/job/job_files.hpp"
#include "profiles/detect/facts.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json online_json(const JobTrialResult& trial, const std::string& run) {
  json object{{"run_id", run},
              {"reason", trial.reason},
              {"command_exit_code", trial.exit_code},
              {"learnt", !trial.decisions.empty()},
              {"interrupted", trial.interrupted_by != 0},
              {"leader_cpu_s", trial.cost.cpu_s},
              {"leader_wall_s", trial.cost.wall_s},
              {"choices", trial.cost.choices},
              {"choice_us", trial.cost.choice_us}};
  if (trial.ok()) {
    object["step_us"] = trial.step.count();
    object["steps"] = trial.step_us.size();
    object["calls_per_step"] = trial.calls_per_step;
  }
  return object;
}

}  // namespace

int run_online(
    const JobCommand& command, const JobTuningOptions& options,
    const std::function<void(const DecisionAuthor&, const std::vector<DecisionInfo>&)>& store,
    const std::string& run, const Shared& shared, const Console& console) {
  TrialRequest request;
  request.seconds = 1e9;
  request.steps = 0;
  request.learn_at_once = true;
  std::error_code ignored;
  const std::string& out = command.out.path();
  if (fs::exists(out + "/nccl.conf", ignored)) {
    const StoredChoice stored = read_choice(out);
    request.variables = stored.choice.variables;
    request.table = stored.choice.table;
    request.origin = stored.choice.origin;
    console.note("it starts with the settings in " + out);
  }
  request.leader.agent = options.call_agent == "none" ? "default" : options.call_agent;
  request.leader.agent_options = options.agent_options;
  request.leader.learn_cost = options.learn_cost;
  request.leader.gloo = options.gloo;
  request.leader.parallelism = options.parallelism;
  request.leader.host_facts = probe_facts();
  const auto begun = std::chrono::steady_clock::now();
  request.leader.on_event = [&](const std::string& text) {
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begun;
    tell(fmt::format("{:.3f} s: {}\n", since.count(), text));
  };
  const JobTrialResult trial =
      run_trial(command, request, [](const std::string& text) { tell(printable(text)); });
  std::vector<DecisionInfo> rows;
  for (const DecisionRecord& record : trial.decisions) rows.push_back(decision_info(record));
  if (!rows.empty()) store(trial.decisions.front().author, rows);
  for (const std::string& note : trial.notes) console.note(note);
  console.note(fmt::format(
      "the leader took {:.2f} s of a core in {:.0f} s; {} choices of {:.0f} us, which every rank "
      "would have made without it",
      trial.cost.cpu_s, trial.cost.wall_s, trial.cost.choices, trial.cost.choice_us));
  if (shared.json)
    fmt::print("{}\n", online_json(trial, run).dump(1, ' ', false, json::error_handler_t::replace));
  if (trial.ok() && !shared.json)
    fmt::print("{:.4g} ms a step over {}, {} each\n", trial.step.count() / 1e3,
               counted(trial.step_us.size(), "step"), counted(trial.calls_per_step, "call"));
  if (trial.started && !trial.heard)
    console.warning(
        "no rank of it loaded the plugin, so nothing was learnt: it must use NCCL 2.23 "
        "or later and read NCCL_CONF_FILE; NCCL_DEBUG=INFO shows what it loads");
  else if (!trial.ok())
    console.warning(trial.reason);
  if (trial.interrupted_by != 0) return 128 + trial.interrupted_by;
  if (trial.exit_code != 0) return exit_code::kCellFailed;
  // Who asked for nothing to be learnt has what he wanted.
  const bool learns = options.call_agent != "none" && options.call_agent != "default";
  if (!learns || !trial.decisions.empty()) return exit_code::kFine;
  if (trial.heard)
    console.warning(
        "nothing was learnt: no size of its calls was measured often enough, or none may be set "
        "here; let the job make more steps, or see what is said above");
  return exit_code::kUnclear;
}

}  // namespace dynamiccl
