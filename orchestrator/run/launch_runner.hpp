#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "db/store.hpp"
#include "orchestrator/experiment/protocol.hpp"
#include "orchestrator/launch/cadence.hpp"
#include "orchestrator/launch/launch.hpp"
#include "orchestrator/run/console.hpp"
#include "orchestrator/run/environment_pool.hpp"

namespace dynamiccl {

/// What launches of one run have in common.
struct LaunchTerms {
  std::map<std::string, EnvironmentProfile> profiles;  ///< by name: all that groups may name
  RunProtocol protocol;
  std::uint64_t seed = 1;
};

/// Which of a group's launches it is.
struct LaunchPlace {
  int block = 0;
  int position = 0;   ///< within the block
  std::string label;  ///< of messages: "cross-docker gloo ring 2 ranks, block 3"
};

/// What came of a group's attempts: the last of them.
struct GroupLaunch {
  FinishedLaunch finished;
  std::int64_t row = 0;  ///< launch.id; 0 = not stored

  [[nodiscard]] bool ok() const { return finished.end.status == LaunchStatus::ok; }
};

/// Whether an environment can hold launches on this machine, now.
struct Readiness {
  enum class State {
    ready,
    unsupported,  ///< by nature: this machine lacks what it needs
    failed,       ///< it is here and did not come up
    interrupted,  ///< a signal ended the preparation, which then says nothing
  };
  State state = State::ready;
  std::string reason;
};

/// The one way by which groups become launches: makes environments ready, prepares a launch,
/// attempts it, tries again what failed, and stores every attempt as it ended, those that never
/// came to their command too. Runs, replays and searches store; the doctor's short looks do not.
/// Not thread-safe; needs an InterruptGuard to be stopped by signals.
class LaunchRunner {
 public:
  /// @param store nullptr: nothing is stored
  LaunchRunner(LaunchTerms terms, LaunchSite site, Store* store, Console& console,
               std::string run_id);
  /// Stops all environments; what cannot be removed is a warning.
  ~LaunchRunner();
  LaunchRunner(const LaunchRunner&) = delete;
  LaunchRunner& operator=(const LaunchRunner&) = delete;

  /// Images and engines of an environment; asked for once, then remembered. Without it an
  /// environment is tried as it is.
  const Readiness& prepare_environment(const std::string& name);

  /// The environment that a group's launches run in, started where it is not up.
  /// @throws Error(environment) when it does not start
  Environment& environment(const std::string& name, int ranks) {
    return pool_.get(terms_.profiles.at(name), ranks);
  }

  /// All attempts of one launch of a group. Where the environment is known not to be ready, one
  /// stored attempt that says why. A launch that fails is a value.
  /// @throws Error(bug), and what the store throws
  GroupLaunch launch(const PlannedGroup& group, const LaunchPlace& place);

  /// One attempt by another protocol, without a retry.
  GroupLaunch attempt(const PlannedGroup& group, const LaunchPlace& place, int number,
                      const RunProtocol& protocol);

  /// Its records stay in the launch's folder where the database does not take them.
  /// @returns false where what its tuner chose stays there
  bool store_outcome(const PreparedLaunch& launch, const PlannedGroup& group,
                     const LaunchPlace& place, const GroupLaunch& done);

  /// Stores an attempt that never came to its command.
  GroupLaunch not_started(const PlannedGroup& group, const LaunchPlace& place, int number,
                          const std::string& reason);

  /// Stops what is up: a block's end, or after a launch that failed in it.
  void stop_environments();
  void drop_environment(const PlannedGroup& group);

  /// Calls per sample, settled by the first good launch for all later ones.
  [[nodiscard]] CadenceBook& cadences() { return cadences_; }
  /// Every launch gets this run.json instead of one in a new order.
  void replay(const RunConfig& stored) { replayed_ = stored; }

 private:
  [[nodiscard]] const EnvironmentProfile& profile_of(const PlannedGroup& group) const;
  /// The nodes of a cluster, where ranks go to one; what has ended meanwhile is asked for anew.
  void hold_nodes();
  /// Says once in a run that the places which were declared are of none of its nodes.
  void say_unused_places();
  /// After a launch on nodes: what its job has come to.
  void note_cluster(FinishedLaunch& finished);
  void note_left_over(const std::string& problem);
  /// Once a run.
  void say_who_is_beside(const std::set<pid_t>& processes);

  /// Once for each text of a run: where pairs of ranks stand that are on several nodes.
  void say_places(const std::string& regime_json);

  LaunchTerms terms_;
  LaunchSite site_;
  Store* store_;
  Console& console_;
  std::string run_id_;
  EnvironmentPool pool_;
  std::string job_of_pool_;  ///< of Slurm, in which what is in pool_ was started
  CadenceBook cadences_;
  std::map<std::string, Readiness> readiness_;
  std::optional<RunConfig> replayed_;
  bool said_beside_ = false;
  bool said_unused_places_ = false;
  std::set<std::string> said_places_;
};

}  // namespace dynamiccl
