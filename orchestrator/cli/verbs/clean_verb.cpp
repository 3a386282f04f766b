#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "containers/cluster/slurm.hpp"
#include "containers/shared_memory.hpp"
#include "containers/start/environment.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/messages.hpp"
#include "db/reader.hpp"
#include "db/store.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/run/launch_folders.hpp"
#include "profiles/detect/probes/one_host.hpp"

namespace dynamiccl {
namespace {

/// What killed ranks left in the folder that makes them one host (docs/one-host.md).
LeftSegments sweep_shared_folder() {
  const char* folder = std::getenv(kOneHostFolder);
  if (folder == nullptr || *folder == '\0') return {};
  return remove_left_segments(folder, 0);
}

}  // namespace

void add_clean_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand(
      "clean",
      "remove containers, networks, mounts, processes, Slurm jobs and stray folders of runs that "
      "are no longer alive, and what killed ranks left in DYNAMICCL_SHARED_FOLDER");
  add_output_options(*verb, shared);
  verb->footer("Example:\n  dynamiccl clean");
  add_db_option(*verb, shared);
  verb->callback([&shared] {
    auto removed = clean_leftovers();
    if (std::filesystem::exists(shared.db)) {
      // Opening it for writing marks the runs of dead processes as interrupted.
      { const Store store(shared.db); }
      for (const auto& runs : runs_folders(shared.db))
        for (const auto& folder : remove_rowless_folders(Reader(shared.db), runs))
          removed.push_back("folder " + folder);
    }
    const LeftSegments segments = sweep_shared_folder();
    for (const std::string& path : segments.removed) removed.push_back("file " + path);
    // Only here: a run that begins may be about to take one over.
    std::optional<Error> unasked;
    try {
      for (auto& line : clean_jobs()) removed.push_back(std::move(line));
    } catch (const Error& error) {
      unasked = error;
    }
    if (shared.json) {
      fmt::print("{}\n", nlohmann::json{{"removed", removed}, {"kept", segments.kept}}.dump(1));
    } else {
      for (const auto& line : removed) fmt::print("removed {}\n", line);
      for (const auto& path : segments.kept)
        tell(
            fmt::format("{} stays: processes outside this container may use it; clean on the "
                        "machine itself removes it if none does\n",
                        path));
    }
    // What else there was is gone by now.
    if (unasked)
      throw Error(
          unasked->kind(),
          fmt::format("jobs of ended runs may be left in Slurm's queue: {}", unasked->what()));
    if (shared.json) return;
    if (removed.empty() && segments.kept.empty() && !shared.quiet) tell("nothing was left over\n");
  });
}

}  // namespace dynamiccl
