#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "containers/environment.hpp"
#include "core/error.hpp"
#include "orchestrator/doctor.hpp"
#include "orchestrator/identity.hpp"
#include "orchestrator/interrupt.hpp"
#include "orchestrator/verbs/experiment_arguments.hpp"
#include "orchestrator/verbs/verbs.hpp"
#include "profiles/detect/facts.hpp"

namespace dynamiccl {
namespace {

struct DoctorArguments {
  std::vector<std::string> environments{"bare-metal", "singularity", "single-docker",
                                        "cross-docker"};
  std::vector<std::string> profile_folders;
  int ranks = 2;
};

nlohmann::json to_json(const Diagnosis& diagnosis) {
  return {{"environment", diagnosis.environment},
          {"unavailable", diagnosis.unavailable.empty() ? nlohmann::json()
                                                        : nlohmann::json(diagnosis.unavailable)},
          {"regime_id", diagnosis.regime.id},
          {"regime", diagnosis.regime.name},
          {"derivation", diagnosis.regime.json},
          {"problems", diagnosis.problems},
          {"facts", diagnosis.facts}};
}

void print_text(const Diagnosis& diagnosis) {
  fmt::print("{}\n", diagnosis.environment);
  if (!diagnosis.unavailable.empty()) fmt::print("  cannot run: {}\n", diagnosis.unavailable);
  if (!diagnosis.regime.name.empty())
    fmt::print("  regime {}: {}\n", diagnosis.regime.id, diagnosis.regime.name);
  for (const auto& problem : diagnosis.problems) fmt::print("  PROBLEM {}\n", problem);
}

int run_doctor(const DoctorArguments& arguments, const Shared& shared) {
  const InterruptGuard guard;
  const auto profiles = load_profiles(profile_folders(arguments.profile_folders));
  const auto host = probe_host();
  nlohmann::json all = nlohmann::json::array();
  bool healthy = true;
  for (const auto& name : arguments.environments) {
    find_profile(profiles, name);
    if (interrupt_signal() != 0) return 128 + interrupt_signal();
    const auto diagnosis = diagnose(profile_for_user(profiles, name, only_user_namespaces()),
                                    arguments.ranks, program_folder(), host);
    healthy = healthy && diagnosis.healthy();
    if (shared.json) {
      all.push_back(to_json(diagnosis));
    } else {
      print_text(diagnosis);
    }
  }
  if (shared.json)
    fmt::print("{}\n", nlohmann::json{{"host", host}, {"environments", all}}.dump(1));
  return healthy ? exit_code::kFine : exit_code::kDoctor;
}

}  // namespace

void add_doctor_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand("doctor",
                                  "detect what this machine and each environment on it really are");
  auto arguments = std::make_shared<DoctorArguments>();
  verb->add_option("ENVIRONMENT", arguments->environments, "profiles to look into");
  verb->add_option("--ranks", arguments->ranks, "ranks that look")->check(CLI::Range(1, 256));
  verb->add_option("--profiles", arguments->profile_folders,
                   "folder with further environment profiles")
      ->take_all()
      ->allow_extra_args(false);
  add_output_options(*verb, shared);
  verb->footer(
      "Examples:\n"
      "  dynamiccl doctor\n"
      "  dynamiccl doctor cross-docker cross-docker-shared-ipc --json\n"
      "Exit codes: 0 healthy, 4 an environment cannot run or is not what its profile says.");
  verb->callback([arguments, &shared] { shared.exit_code = run_doctor(*arguments, shared); });
}

}  // namespace dynamiccl
