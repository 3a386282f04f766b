#pragma once

#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "core/wire/record.hpp"
#include "profiles/detect/promise.hpp"

namespace dynamiccl {

/// One way in which a launch is not what its profile promised.
struct Violation {
  std::string rule;     ///< "world_size", "ranks", "facts", "hosts", "runtime", "containers",
                        ///< "namespaces", "binding", "library"
  std::string message;  ///< what is wrong, with the ranks and the values seen
};

/// What a launch is compared with.
struct LaunchExpectation {
  ProfilePromise promise;
  int ranks = 1;
  int hosts = 1;
};

/// Checks that the ranks are one job of the promised shape: one world of the right size, each rank
/// once, on the promised number of hosts and containers, in namespaces shared and apart as
/// promised, under the promised runtime, not bound to the same core while others are free. Empty
/// when all is as promised.
/// @param hosts probe_host() of the machines that ranks may run on; what runs on others is compared
/// with none. Machines of one boot id (containers as nodes) are distinguished by their host names.
/// @param hellos, facts what the ranks wrote, in any order; a rank without either is a violation
std::vector<Violation> check_promise(const LaunchExpectation& expected,
                                     const std::vector<nlohmann::json>& hosts,
                                     const std::vector<HelloRecord>& hellos,
                                     const std::vector<FactsRecord>& facts);
/// The same on one machine.
std::vector<Violation> check_promise(const LaunchExpectation& expected, const nlohmann::json& host,
                                     const std::vector<HelloRecord>& hellos,
                                     const std::vector<FactsRecord>& facts);

/// The violations as one reason for a failed launch: "world_size: ...; namespaces: ...".
std::string to_text(const std::vector<Violation>& violations);

}  // namespace dynamiccl
