#include "orchestrator/verbs/experiment_arguments.hpp"

#include <filesystem>

#include "containers/environment.hpp"
#include "containers/image.hpp"
#include "core/error.hpp"
#include "core/text.hpp"
#include "orchestrator/group_commands.hpp"
#include "orchestrator/identity.hpp"
#include "orchestrator/machine.hpp"

namespace dynamiccl {

void ExperimentArguments::add_to(CLI::App& verb) {
  verb.add_option("FILE", file, "experiment file (TOML)")->required();
  verb.add_option("--set", overrides, "KEY=VALUE replaces a key of FILE: protocol.launches=10")
      ->take_all()
      ->allow_extra_args(false);
  verb.add_option("--only", only,
                  "keep the cells for which this holds: 'backend == gloo and size >= 1MiB'")
      ->check([](const std::string& text) -> std::string {
        if (!trim(text).empty()) return "";
        return "the condition is empty; leave --only out to keep all cells";
      });
  verb.add_option("--profiles", profile_folders, "folder with further environment profiles")
      ->take_all()
      ->allow_extra_args(false);
}

std::vector<std::string> profile_folders(const std::vector<std::string>& further) {
  // build/<preset>/dynamiccl stands two folders below the root of the tree it was built from.
  const std::string beside = program_folder() + "/../../profiles/environments";
  std::vector<std::string> folders{std::filesystem::exists(beside)
                                       ? std::filesystem::canonical(beside).string()
                                       : std::string(DYNAMICCL_PROFILES)};
  folders.insert(folders.end(), further.begin(), further.end());
  return folders;
}

LoadedExperiment load_experiment(const ExperimentArguments& arguments) {
  LoadedExperiment loaded;
  const auto profiles = load_profiles(profile_folders(arguments.profile_folders));
  loaded.experiment = read_experiment(arguments.file, arguments.overrides, profiles);
  if (only_user_namespaces()) {
    const auto asked = loaded.experiment.profiles;
    for (const auto& [name, profile] : asked)
      loaded.experiment.profiles[name] = profile_for_user(asked, name, true);
  }
  std::optional<Expression> only;
  if (!arguments.only.empty()) {
    std::vector<std::string> environments;
    for (const auto& [name, profile] : loaded.experiment.profiles) environments.push_back(name);
    try {
      only = Expression::parse(arguments.only, environments);
    } catch (const Error& error) {
      throw error.with_context("--only '" + arguments.only + "'");
    }
  }
  loaded.plan =
      make_plan(loaded.experiment, inspect_machine(loaded.experiment.profiles, program_folder()),
                only ? &*only : nullptr);
  if (loaded.plan.groups.empty())
    throw Error(ErrorKind::input,
                arguments.file + ": no cell is left: where, exclude or --only drop all of them");
  rule_out_groups_without_commands(loaded.plan, loaded.experiment);
  if (loaded.plan.trains()) use_training_image();
  return loaded;
}

}  // namespace dynamiccl
