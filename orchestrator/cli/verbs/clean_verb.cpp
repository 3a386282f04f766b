#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "containers/cluster/slurm.hpp"
#include "containers/environment.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"

namespace dynamiccl {

void add_clean_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand(
      "clean",
      "remove containers, networks, mounts, processes and Slurm jobs of runs that are no longer "
      "alive");
  add_output_options(*verb, shared);
  verb->footer("Example:\n  dynamiccl clean");
  verb->callback([&shared] {
    auto removed = clean_leftovers();
    // Only here: a run that begins may be about to take one over.
    for (auto& line : clean_jobs()) removed.push_back(std::move(line));
    if (shared.json) {
      fmt::print("{}\n", nlohmann::json{{"removed", removed}}.dump(1));
      return;
    }
    for (const auto& line : removed) fmt::print("removed {}\n", line);
    if (removed.empty() && !shared.quiet) fmt::print(stderr, "nothing was left over\n");
  });
}

}  // namespace dynamiccl
