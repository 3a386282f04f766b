#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dynamiccl {

inline constexpr std::string_view kRedacted = "<redacted>";

/// Whether a variable of this name steers communication and may be recorded (an allow-list).
bool is_recorded_variable(std::string_view name);

/// The value as it may be recorded: redacted where the name speaks of a secret (TOKEN, KEY, SECRET,
/// PASS, AUTH, CRED) or a URL carries a user, and at most 1 KiB.
std::string recorded_value(std::string_view name, std::string_view value);

/// The allowed variables of an environment, {"NAME": "value"}; for LaunchStart::environment_json.
nlohmann::json recorded_variables(const std::vector<std::pair<std::string, std::string>>& all);

}  // namespace dynamiccl
