#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

inline constexpr std::string_view kRedacted = "<redacted>";

/// Whether a variable of this name steers communication and may be recorded (an allow-list).
bool is_recorded_variable(std::string_view name);

/// The value as it may be recorded: redacted where the name speaks of a secret (TOKEN, KEY, SECRET,
/// PASS, AUTH, CRED) or a URL carries a user, and at most 1 KiB.
std::string recorded_value(std::string_view name, std::string_view value);

/// Whether a URL in it carries a password, "https://NAME:PASSWORD@HOST", or what may be an access
/// token, "https://TOKEN@HOST". A user's name alone, "ssh://git@HOST", is no secret.
bool carries_password(std::string_view text);

/// True for names of variables and options whose values are secrets, whatever their case.
bool speaks_of_secret(std::string_view name);

/// A command as it may be recorded: what recorded_value() hides is hidden in NAME=VALUE (also
/// behind an option, `--env=NAME=VALUE`) and in the value behind `-genv NAME`, `-env NAME` and
/// `--mca NAME`; all else stays as it is.
std::vector<std::string> recorded_command(const std::vector<std::string>& argv);

/// The allowed variables of an environment, {"NAME": "value"}; for LaunchStart::environment_json.
nlohmann::json recorded_variables(const std::vector<std::pair<std::string, std::string>>& all);

}  // namespace dynamiccl
