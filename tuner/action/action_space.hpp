#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/vocabulary/setting.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// Implementation knobs are chosen first, resources inside that choice.
DYN_NAMED_ENUM(KnobRole, "knob role", '-', implementation, resource);
/// One factor of the action.
struct Knob {
  std::string name;  ///< "algorithm", "protocol", "transport", "channels", "segment_bytes", ...
  KnobRole role = KnobRole::resource;
  KnobScope scope = KnobScope::call;
  /// Where the value goes: "algorithm" (WorkCell::algorithm), "call.NAME" (WorkCell::knobs),
  /// "env.NAME", "mca.NAME" or "malloc.NAME" (launch).
  std::string target;
  /// What to write; values[0] is always "default": leave the library alone. Resource values are
  /// numbers in rising order, so that neighbours mean something.
  std::vector<std::string> values;
  /// Algorithms under which the value goes elsewhere than `target`: name, target.
  std::vector<std::pair<std::string, std::string>> target_by_algorithm = {};
  /// What a value really sets where that is not `target` = value.
  std::map<std::string, std::vector<Setting>> expansions = {};
};

/// An index into every knob's values, in the space's knob order. All zero is the library's default.
using Action = std::vector<std::uint8_t>;

/// What must be set where for an action; nothing is set for "default".
struct ActionSettings {
  std::string algorithm = "library";
  std::map<std::string, std::string> call_knobs;    ///< WorkCell::knobs
  std::map<std::string, std::string> launch_knobs;  ///< group knobs, "env.X", "mca.X", "malloc.X"
  bool operator==(const ActionSettings&) const = default;
};

/// The arms of one task: a product of knobs without what is unsafe, impossible or the same as
/// another arm. Immutable.
class ActionSpace {
 public:
  /// @param allowed which combinations exist; the all-default action always does
  /// @throws Error(input) for a knob without values, with more than 255, or whose first value is
  /// not "default"
  template <class Allowed>
  ActionSpace(std::string name, std::vector<Knob> knobs, Allowed&& allowed)
      : ActionSpace(std::move(name), std::move(knobs)) {
    enumerate([&](const Action& action) { return is_default(action) || allowed(*this, action); });
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::vector<Knob>& knobs() const { return knobs_; }
  /// Knobs that are implementation choices; they come first in `knobs()`.
  [[nodiscard]] std::size_t implementation_knobs() const { return implementation_knobs_; }
  /// Every allowed action, in lexicographic order; arms()[0] is the default.
  [[nodiscard]] const std::vector<Action>& arms() const { return arms_; }
  [[nodiscard]] std::optional<std::size_t> find(const Action& action) const;

  /// Values of knob `prefix.size()` that lead to an allowed action: the mask of that head.
  [[nodiscard]] std::vector<bool> mask(std::span<const std::uint8_t> prefix) const;
  /// [first, last) of the arms that begin with `prefix`.
  [[nodiscard]] std::pair<std::size_t, std::size_t> range(
      std::span<const std::uint8_t> prefix) const;
  /// First arm of every implementation choice, and where its subspace ends.
  [[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> subspaces() const;

  [[nodiscard]] std::optional<std::size_t> knob_index(std::string_view name) const;
  /// The value's text under a knob's name; "default" for a knob the space does not have.
  [[nodiscard]] std::string_view value(const Action& action, std::string_view knob) const;
  /// log2 of a resource's number; nullopt for "default" and for what is no number.
  [[nodiscard]] std::optional<double> magnitude(std::size_t knob, std::uint8_t value) const;

  [[nodiscard]] ActionSettings setting(const Action& action) const;
  /// "ring/Simple channels=16", "library" for the default: for people and logs.
  [[nodiscard]] std::string text(const Action& action) const;

  static bool is_default(const Action& action);

 private:
  ActionSpace(std::string name, std::vector<Knob> knobs);
  template <class Keep>
  void enumerate(Keep&& keep) {
    Action action(knobs_.size(), 0);
    do {
      if (keep(action)) arms_.push_back(action);
    } while (next(action));
    check_size();
  }
  bool next(Action& action) const;
  void check_size() const;

  std::string name_;
  std::vector<Knob> knobs_;
  std::size_t implementation_knobs_ = 0;
  std::vector<std::vector<std::optional<double>>> magnitudes_;
  std::vector<Action> arms_;
};

}  // namespace dynamiccl
