#include "core/vocabulary/setting.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr char kBetween = '.';
constexpr char kOldBetween = ':';
constexpr std::string_view kEnds = ".:";

/// Scopes that the first spelling had; it wrote variables plain and knew no calls.
bool had_old_spelling(SettingScope scope) {
  return scope == SettingScope::mca || scope == SettingScope::malloc;
}

}  // namespace

std::string setting_text(SettingScope scope, std::string_view name) {
  return fmt::format("{}{}{}", name_of(scope), kBetween, name);
}

std::optional<SettingName> find_setting(std::string_view text) {
  const auto end = text.find_first_of(kEnds);
  if (end == std::string_view::npos || end + 1 == text.size()) return std::nullopt;
  const auto scope = find_named<SettingScope>(text.substr(0, end));
  const bool old = text[end] == kOldBetween;
  if (!scope || (old && !had_old_spelling(*scope))) return std::nullopt;
  SettingName found{*scope, std::string(text.substr(end + 1)), ""};
  if (old)
    found.note = fmt::format("\"{}\" is an old spelling that still reads: write \"{}\"", text,
                             setting_text(*scope, found.name));
  return found;
}

SettingName profile_setting(std::string_view text) {
  if (auto found = find_setting(text)) return *std::move(found);
  return {SettingScope::env, std::string(text), ""};
}

std::string profile_text(SettingScope scope, std::string_view name) {
  return scope == SettingScope::env ? std::string(name) : setting_text(scope, name);
}

std::string setting_mistake(std::string_view text, const std::vector<SettingScope>& scopes) {
  const auto found = find_setting(text);
  if (found && std::find(scopes.begin(), scopes.end(), found->scope) != scopes.end()) return "";
  std::vector<std::string> expected;
  for (const SettingScope scope : scopes)
    expected.push_back(fmt::format("\"{}\"", setting_text(scope, "NAME")));
  const std::string last = expected.back();
  expected.pop_back();
  return fmt::format("\"{}\": expected {}{}{} in quotes", text, join(expected, ", "),
                     expected.empty() ? "" : " or ", last);
}

std::string stored_setting_text(SettingScope scope, std::string_view name) {
  return had_old_spelling(scope) ? fmt::format("{}{}{}", name_of(scope), kOldBetween, name)
                                 : profile_text(scope, name);
}

std::map<std::string, std::string> settings_of(const std::map<std::string, std::string>& knobs,
                                               SettingScope scope) {
  std::map<std::string, std::string> found;
  for (const auto& [text, value] : knobs)
    if (const auto setting = find_setting(text); setting && setting->scope == scope)
      found[setting->name] = value;
  return found;
}

}  // namespace dynamiccl
