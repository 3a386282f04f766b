#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

inline constexpr std::string_view kRedacted = "<redacted>";

/// Whether a variable of this name steers communication, so that its name is recorded: with its
/// value where is_known_variable().
bool is_recorded_variable(std::string_view name);

/// The value as it may be recorded: redacted unless the name is_known_variable(), without users in
/// URLs, and at most 1 KiB.
std::string recorded_value(std::string_view name, std::string_view value);

/// Whether a URL in it carries a password, "https://NAME:PASSWORD@HOST", or what may be an access
/// token, "https://TOKEN@HOST". A user's name alone, "ssh://git@HOST", is no secret.
bool carries_password(std::string_view text);

/// A command as it may be recorded. Values of variables stay where their names are known: in
/// NAME=VALUE of capitals, behind options that set variables whatever the letters
/// (`--env=NAME=VALUE`, `-x NAME=VALUE`), and behind `-genv NAME`, `-env NAME` and `--mca NAME`. Of
/// other settings (`name=value`, `--option value`) those are hidden whose names speak of a secret;
/// all else stays as it is.
std::vector<std::string> recorded_command(const std::vector<std::string>& argv);

/// The allowed variables of an environment, {"NAME": "value"}; for LaunchStart::environment_json.
nlohmann::json recorded_variables(const std::vector<std::pair<std::string, std::string>>& all);

}  // namespace dynamiccl
