#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/symptoms.hpp"

namespace dynamiccl {

/// A setting of a library as its ranks have it, and who gave it.
struct GivenSetting {
  const BackendLook* look = nullptr;
  std::string name;  ///< Open MPI's parameters without OMPI_MCA_: "btl"
  std::string value;
  std::string origin;  ///< `profile x, [[backend.openmpi]]: "its reason"`, a variable or a file
  /// How a user takes away what came from outside; "" = profile or launcher gave it.
  std::string removal;
  [[nodiscard]] std::string text() const { return name + " = " + value; }
};

/// By whichever way ranks get it, in the order of what outweighs what: the launcher's command, a
/// variable, a file of the library's own. nullopt: it is left alone.
/// @param name "btl" of Open MPI's parameters, "UCX_TLS" of variables
std::optional<GivenSetting> given_setting(const Symptoms& symptoms, const BackendLook& look,
                                          std::string_view name);

/// What takes these settings away: the profile without them, or what a user does where they came
/// from outside.
Fix without_settings(const EnvironmentProfile& profile, const std::vector<GivenSetting>& given);

}  // namespace dynamiccl
