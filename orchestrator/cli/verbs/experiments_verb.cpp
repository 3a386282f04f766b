#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <set>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/terminal_lines.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/cli/verbs/experiment_arguments.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/plan/estimate.hpp"
#include "orchestrator/plan/plan.hpp"

namespace dynamiccl {
namespace {

/// What somebody who looks for an experiment wants to know of a file.
struct IndexRow {
  std::string file;      ///< its name in the folder of experiments
  std::string question;  ///< `description` of the file
  std::string time;      ///< of `run` where all of it can run, roughly
  std::string needs;     ///< beyond one machine with a C++ compiler and MPI
};

std::string needs_of(const Experiment& experiment, const Plan& plan) {
  std::set<std::string> needs;
  int gpus = 0;
  for (const auto& group : plan.groups) {
    if (backend_facts(group.backend).on_gpu) gpus = std::max(gpus, group.ranks);
    const auto kind = experiment.profiles.at(group.environment).kind;
    if (kind == EnvironmentKind::singularity) needs.insert("Apptainer");
    if (kind == EnvironmentKind::single_docker || kind == EnvironmentKind::cross_docker)
      needs.insert("Docker");
  }
  if (plan.trains()) needs.insert("libtorch");
  std::vector<std::string> words(needs.begin(), needs.end());
  if (gpus > 0) words.push_back(fmt::format("GPUs for up to {} ranks", gpus));
  return join(words, ", ");
}

IndexRow row_of(const std::filesystem::path& path,
                const std::map<std::string, EnvironmentProfile>& profiles) {
  const Experiment experiment = read_experiment(path.string(), {}, profiles);
  Capabilities all;
  all.gpus = std::numeric_limits<int>::max();
  const Plan plan = make_plan(experiment, all, nullptr);
  return {path.filename().string(), experiment.description,
          format_eta(estimated_run(plan, experiment).seconds()), needs_of(experiment, plan)};
}

std::vector<IndexRow> index_of(const std::filesystem::path& folder) {
  const auto profiles = load_profiles(profile_folders({}), nullptr);
  std::vector<IndexRow> rows;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".toml") rows.push_back(row_of(entry.path(), profiles));
  std::sort(rows.begin(), rows.end(),
            [](const IndexRow& a, const IndexRow& b) { return a.file < b.file; });
  return rows;
}

std::string as_markdown(const std::vector<IndexRow>& rows) {
  std::string page =
      "# Experiments that come with the program\n\n"
      "`dynamiccl experiments` prints this from the files themselves. The time is what `plan` "
      "estimates of a run that has all it needs; `--only` and `--set` make it shorter.\n\n"
      "| file | question | time | needs |\n|---|---|---|---|\n";
  for (const auto& row : rows)
    page += fmt::format("| [{0}]({0}) | {1} | {2} | {3} |\n", row.file, row.question, row.time,
                        row.needs);
  return page;
}

std::string as_text(const std::vector<IndexRow>& rows, std::size_t columns) {
  std::string text;
  for (const auto& row : rows) {
    text += fmt::format("{}  ({}{}{})\n", row.file, row.time, row.needs.empty() ? "" : "; needs ",
                        row.needs);
    for (const auto& line : broken_lines(row.question, std::max<std::size_t>(columns, 24) - 4))
      text += "    " + line + "\n";
  }
  return text;
}

nlohmann::json as_json(const std::vector<IndexRow>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& row : rows)
    list.push_back(
        {{"file", row.file}, {"question", row.question}, {"time", row.time}, {"needs", row.needs}});
  return list;
}

}  // namespace

void add_experiments_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand(
      "experiments", "list the experiments that come with the program: question, time, needs");
  const auto markdown = std::make_shared<bool>(false);
  verb->add_flag("--markdown", *markdown, "as the page experiments/README.md");
  verb->add_flag("--json", shared.json, "print JSON");
  verb->footer(
      "Examples:\n"
      "  dynamiccl experiments\n"
      "  dynamiccl experiments --markdown > experiments/README.md");
  verb->callback([markdown, &shared] {
    const auto rows = index_of(data_path("experiments"));
    if (shared.json) return fmt::print("{}\n", as_json(rows).dump(1));
    fmt::print("{}", *markdown ? as_markdown(rows)
                               : as_text(rows, std::min<std::size_t>(100, stdout_columns())));
  });
}

}  // namespace dynamiccl
