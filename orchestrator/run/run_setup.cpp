#include "orchestrator/run/run_setup.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/usable_cores.hpp"
#include "orchestrator/experiment/protocol.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/machine.hpp"
#include "orchestrator/run/held_folder.hpp"
#include "orchestrator/run/launch_folders.hpp"
#include "profiles/detect/facts.hpp"
#include "profiles/detect/probes/environment_probe.hpp"

namespace dynamiccl {

namespace fs = std::filesystem;

namespace {

/// Workers and scripts get their files in JSON.
void require_utf8(const std::string& path) {
  try {
    static_cast<void>(nlohmann::json(path).dump());
  } catch (const nlohmann::json::type_error&) {
    throw Error(ErrorKind::input,
                fmt::format("{}: the name of this folder is no UTF-8, in which the files of a run "
                            "name each other; choose another place with --out",
                            path));
  }
}

}  // namespace

RunInfo new_run(const Experiment& experiment, const std::string& spec_path,
                const std::vector<std::string>& argv) {
  RunInfo info;
  info.id = random_uuid();
  info.name = experiment.name;
  info.spec_path = spec_path;
  info.spec_text = experiment.source_text;
  info.overrides = experiment.overrides;
  info.seed = experiment.seed;
  info.argv = recorded_command(argv);
  info.tool_version = fmt::format("dynamiccl {}, {}", tool_version(), build_description());
  info.host_json = probe_host().dump();
  info.protocol_json = to_json(experiment.protocol).dump();
  return info;
}

LaunchSite launch_site(const std::string& db, const std::string& out) {
  LaunchSite site;
  site.worker_folder = program_folder();
  site.host = probe_host();
  site.cores = usable_cores();
  site.keep_files = !out.empty();
  site.db = db;
  const fs::path base = out.empty() ? fs::path(runs_folder(db)) : fs::absolute(out);
  require_utf8(base.string());
  static_cast<void>(stopped_limit());  // said before anything is measured
  make_own_folder(base.string(), out.empty() ? "choose another place with --db or --out"
                                             : "choose another place with --out");
  site.run_folder = fs::canonical(base).string();
  return site;
}

void make_db_folder(const std::string& db) {
  make_folder(fs::absolute(db).parent_path().string(), "choose another place with --db");
}

}  // namespace dynamiccl
