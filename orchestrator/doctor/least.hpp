#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "orchestrator/doctor/smallest_set.hpp"
#include "orchestrator/doctor/symptoms.hpp"
#include "orchestrator/launch/launch.hpp"
#include "orchestrator/plan/plan.hpp"
#include "orchestrator/run/console.hpp"

namespace dynamiccl {

/// What a profile gives its containers beyond what an engine gives by itself.
struct ContainerFlag {
  std::string text;                                 ///< "--ipc host"
  std::function<void(EnvironmentProfile&)> remove;  ///< makes the profile as without it
};

/// @param gpus the machine has some
std::vector<ContainerFlag> container_flags(const EnvironmentProfile& profile, bool gpus);

/// The profile with those flags alone.
EnvironmentProfile with_flags(EnvironmentProfile profile, const std::vector<ContainerFlag>& flags,
                              const KeptSet& kept);

/// What one launch of a container with some of the flags came to.
struct FlagLaunch {
  std::string failure;  ///< "" = it went well
  std::string transport;
  std::vector<Micros> times;  ///< the fastest call for each of least_sizes()
  bool by_luck = false;       ///< another one may end otherwise: starts_by_luck()
};

/// The large all-reduce and the small one whose times are compared.
std::vector<Bytes> least_sizes();

/// Why a launch with fewer flags is worse than those with all of them: "transport tcp, with all
/// flags shm"; "" when it is not. Compared are the fastest calls, as other work makes hardly all of
/// a launch slower: slower is what is beyond all launches with all flags and 1.25 times their
/// median.
std::string why_worse(const FlagLaunch& launch, const std::vector<FlagLaunch>& with_all);

struct LeastOptions {
  int launches = 25;  ///< of containers, at most
};

struct FlagNeed {
  std::string flag;
  bool needed = false;
  std::string without;  ///< of a needed one: what the least line comes to without it
};

struct LeastResult {
  std::string environment;
  Backend backend{};
  std::string impossible;  ///< why nothing is known; then all below but launches is empty
  int launches = 0;
  std::string transport;
  std::vector<Micros> with_all;    ///< medians over the launches with all flags
  std::vector<Micros> with_least;  ///< of the launch by which the least line was kept
  std::vector<FlagNeed> flags;
  EnvironmentProfile profile;  ///< with the needed flags alone

  [[nodiscard]] bool known() const { return impossible.empty(); }
};

/// Starts a container with these flags and a short launch in it.
using LaunchWith = std::function<FlagLaunch(const EnvironmentProfile&)>;

/// The search itself; `launch` is the machine.
LeastResult find_least(const EnvironmentProfile& profile, const std::vector<ContainerFlag>& flags,
                       const LaunchWith& launch, const LeastOptions& options, Console& console);

/// Which flags this profile's containers need for the transport and the speed that the backend
/// has, by launches of the same look as the doctor's.
/// @throws Error(input) for a profile without containers of Docker or Podman
LeastResult find_least(const EnvironmentProfile& profile, int ranks, Backend backend,
                       const LaunchSite& site, const LeastOptions& options, Console& console);

std::string to_text(const LeastResult& result);
nlohmann::json to_json(const LeastResult& result);

}  // namespace dynamiccl
