#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

struct TrainingSpec;

/// One setting of a training cell: its knob's name, what it is, how its text becomes a member of
/// the specification and text again.
struct SettingRow {
  std::string_view name;
  std::string_view about;
  /// @throws Error(input) naming the setting and what it may be
  void (*read)(TrainingSpec&, const SettingRow&, const std::string& value);
  std::string (*write)(const TrainingSpec&);
  double least = 0;  ///< of numbers, both ends among what they may be
  double most = std::numeric_limits<double>::max();
  std::string_view expected = "";  ///< what a refusal says that it may be; "": from the ends
  /// To what it belongs, and whether a cell has that; a cell without must not say it. "": to all.
  std::string_view belongs_to = "";
  bool (*has_use)(const TrainingSpec&) = nullptr;

  /// The row of a setting that only cells have a use for of which this is so.
  [[nodiscard]] constexpr SettingRow of(std::string_view what,
                                        bool (*use)(const TrainingSpec&)) const {
    SettingRow row = *this;
    row.belongs_to = what;
    row.has_use = use;
    return row;
  }
};

/// Settings that belong together, and why they do not go together with each other or the rest of
/// the cell; "" when they do. A part is a struct of settings.hpp and a source that makes this.
struct SettingPart {
  std::span<const SettingRow> rows;
  std::string (*misfit)(const TrainingSpec&);
  /// Whether they say what is trained, for how long and how it is judged: equal where two cells are
  /// compared. All others are how a cell trains: its configuration.
  bool of_task = false;
};

inline constexpr int kUnbounded = std::numeric_limits<int>::max();
inline constexpr double kAboveZero = std::numeric_limits<double>::denorm_min();
inline constexpr double kBelowOne = 1 - std::numeric_limits<double>::epsilon() / 2;

/// @throws Error(input) "training: NAME = "VALUE": expected ..."
[[noreturn]] void refuse_setting(const SettingRow& row, const std::string& value,
                                 std::string_view expected);
/// What the text says; of bytes "auto" is 0. @throws Error(input) when the row does not allow it
void read_setting(const SettingRow& row, const std::string& value, int& member);
void read_setting(const SettingRow& row, const std::string& value, double& member);
void read_setting(const SettingRow& row, const std::string& value, Bytes& member);
void read_setting(const SettingRow& row, const std::string& value, std::string& member);
std::string setting_text(int value);
std::string setting_text(double value);
std::string setting_text(Bytes value);
std::string setting_text(const std::string& value);

template <class Value, class Part>
Value value_of_member(Value Part::*);

/// The row of a member: a number, bytes, a text or a name of an enumeration.
template <auto Member>
constexpr SettingRow setting(std::string_view name, std::string_view about, double least = 0,
                             double most = std::numeric_limits<double>::max(),
                             std::string_view expected = "") {
  using Held = decltype(value_of_member(Member));
  const auto read = [](TrainingSpec& spec, const SettingRow& row, const std::string& value) {
    if constexpr (std::is_enum_v<Held>)
      spec.*Member = parse_named<Held>(value);
    else
      read_setting(row, value, spec.*Member);
  };
  const auto write = [](const TrainingSpec& spec) {
    if constexpr (std::is_enum_v<Held>)
      return std::string(name_of(spec.*Member));
    else
      return setting_text(spec.*Member);
  };
  return {name, about, read, write, least, most, expected};
}

}  // namespace dynamiccl
