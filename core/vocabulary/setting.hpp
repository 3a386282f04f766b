#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

// One setting of a library, as profiles, experiments, searches, exported tables and stored rows
// name it: "scope.NAME", where the scope says who takes it and hence how it gets there. All of them
// read and write names here and nowhere else.

/// env: an environment variable of every rank. mca: a parameter of Open MPI, given to its launcher.
/// malloc: of the C library's allocator (malloc_settings.hpp). call: of a communicator or a call,
/// set by the worker.
DYN_NAMED_ENUM(SettingScope, "scope of a setting", '-', env, mca, malloc, call);
struct Setting {
  SettingScope scope = SettingScope::env;
  std::string name;  ///< without the scope: "btl_tcp_if_include"
  std::string value;
  bool operator==(const Setting&) const = default;
};

/// "mca.btl_tcp_if_include".
std::string setting_text(SettingScope scope, std::string_view name);

/// A name that was read.
struct SettingName {
  SettingScope scope = SettingScope::env;
  std::string name;
  /// Why and how to write it otherwise where it was spelled as profiles did first (mca:NAME,
  /// malloc:NAME), which still reads; "" = nothing.
  std::string note;
};

/// Reads "scope.NAME"; nullopt for what names no scope, such as a plain variable.
std::optional<SettingName> find_setting(std::string_view text);

/// The same in a profile, where a plain NAME is an environment variable.
SettingName profile_setting(std::string_view text);
/// And how a profile is written: variables plain, all others with their scope.
std::string profile_text(SettingScope scope, std::string_view name);

/// What is wrong with a name that must have one of these scopes: `"x": expected "env.NAME" ...`;
/// "" = it has.
std::string setting_mistake(std::string_view text, const std::vector<SettingScope>& scopes);

/// As profiles in databases name it, and as groups' ids are made from: in the first spelling, so
/// that rows and ids of every version are equal where their profiles are.
std::string stored_setting_text(SettingScope scope, std::string_view name);

/// Those of one scope, by their names without it. `knobs` are values by "scope.NAME".
std::map<std::string, std::string> settings_of(const std::map<std::string, std::string>& knobs,
                                               SettingScope scope);

}  // namespace dynamiccl
