#pragma once

#include <map>
#include <string>
#include <vector>

#include "containers/environment_plan.hpp"
#include "containers/run_folder.hpp"
#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// A plan brought to life for a block of launches. stop() (also by the destructor) leaves nothing
/// behind: no process, container, network, mount or socket; what could not be removed is in the
/// error.
class Environment {
 public:
  virtual ~Environment() = default;
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  [[nodiscard]] const EnvironmentPlan& plan() const { return plan_; }
  [[nodiscard]] const LaunchShape& shape() const { return plan_.shape; }
  /// See EnvironmentPlan::rank_command().
  [[nodiscard]] std::vector<std::string> wrap_rank(
      int rank, const std::vector<std::string>& command,
      const std::map<std::string, std::string>& env) const {
    return plan_.rank_command(rank, command, env);
  }
  /// Ends every process of a killed launch; the containers stay. For use after the launcher's
  /// process group was killed: launchers put ranks into groups of their own. A command takes no
  /// longer than the plan's timeout, as whoever has interrupted a run waits for it: what it has
  /// begun may still go on then, so that the next launch needs the environment anew.
  virtual void end_ranks() const;
  /// Engine, version, image and digest, container ids, network, flags: provenance of each launch
  /// (no secrets).
  [[nodiscard]] virtual nlohmann::json provenance() const = 0;
  /// probe_host() of each host that the ranks run on, where that is not this machine; empty = it
  /// is, or nobody could ask.
  [[nodiscard]] virtual std::vector<nlohmann::json> host_facts() const { return {}; }
  virtual void stop() = 0;

 protected:
  /// Takes the environment's folder, and with it its name.
  /// @throws Error(environment) when the folder cannot be made
  explicit Environment(const StartRequest& request) : folder_(request.run_id) {}

  /// From here on this is the plan; its scripts are written.
  /// @throws Error(environment)
  void use_plan(EnvironmentPlan plan) {
    plan_ = std::move(plan);
    if (!plan_.tmpfs.empty() && !has_tmpfs_) folder_.make_tmpfs();
    has_tmpfs_ = !plan_.tmpfs.empty();
    for (const PlannedScript& script : plan_.scripts)
      folder_.write_script(script.file, script.text);
  }
  [[nodiscard]] const std::string& name() const { return folder_.name(); }
  void remove_folder() { folder_.remove(); }

 private:
  RunFolder folder_;
  EnvironmentPlan plan_;
  bool has_tmpfs_ = false;
};

}  // namespace dynamiccl
