#include "tuner/action/action_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/vocabulary/units.hpp"

namespace dynamiccl {
namespace {

constexpr std::string_view kDefault = "default";
// The agents hold a number per arm and task; more is a mistake in an experiment file.
constexpr std::size_t kMaxArms = 200'000;

std::optional<double> magnitude_of(const std::string& text) {
  try {
    const auto number = parse_bytes(text).count();
    return number == 0 ? std::optional(-1.0)
                       : std::optional(std::log2(static_cast<double>(number)));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

ActionSpace::ActionSpace(std::string name, std::vector<Knob> knobs)
    : name_(std::move(name)), knobs_(std::move(knobs)) {
  std::stable_sort(knobs_.begin(), knobs_.end(),
                   [](const Knob& a, const Knob& b) { return a.role < b.role; });
  for (const Knob& knob : knobs_) {
    if (knob.values.empty() || knob.values.size() > 255 || knob.values.front() != kDefault)
      throw Error(ErrorKind::input,
                  fmt::format("knob \"{}\" of {} needs 1 to 255 values, the first \"default\"",
                              knob.name, name_));
    if (knob.role == KnobRole::implementation) ++implementation_knobs_;
    std::vector<std::optional<double>>& row = magnitudes_.emplace_back();
    for (const std::string& value : knob.values)
      row.push_back(knob.role == KnobRole::resource && value != kDefault ? magnitude_of(value)
                                                                         : std::nullopt);
    for (std::size_t i = 2; i < row.size(); ++i)
      if (row[i] && row[i - 1] && *row[i] <= *row[i - 1])
        throw Error(ErrorKind::input,
                    fmt::format("knob \"{}\" of {}: values must rise, but \"{}\" "
                                "follows \"{}\"",
                                knob.name, name_, knob.values[i], knob.values[i - 1]));
  }
}

bool ActionSpace::next(Action& action) const {
  for (std::size_t k = knobs_.size(); k-- > 0;) {
    if (static_cast<std::size_t>(action[k]) + 1 < knobs_[k].values.size()) {
      ++action[k];
      return true;
    }
    action[k] = 0;
  }
  return false;
}

void ActionSpace::check_size() const {
  if (arms_.size() > kMaxArms)
    throw Error(ErrorKind::input, fmt::format("{} has {} arms, more than {}; give shorter lists",
                                              name_, arms_.size(), kMaxArms));
}

std::optional<std::size_t> ActionSpace::find(const Action& action) const {
  const auto place = std::lower_bound(arms_.begin(), arms_.end(), action);
  if (place == arms_.end() || *place != action) return std::nullopt;
  return static_cast<std::size_t>(place - arms_.begin());
}

std::pair<std::size_t, std::size_t> ActionSpace::range(std::span<const std::uint8_t> prefix) const {
  const auto before = [](const Action& arm, std::span<const std::uint8_t> wanted) {
    return std::lexicographical_compare(arm.begin(),
                                        arm.begin() + static_cast<std::ptrdiff_t>(wanted.size()),
                                        wanted.begin(), wanted.end());
  };
  const auto after = [](std::span<const std::uint8_t> wanted, const Action& arm) {
    return std::lexicographical_compare(wanted.begin(), wanted.end(), arm.begin(),
                                        arm.begin() + static_cast<std::ptrdiff_t>(wanted.size()));
  };
  const auto first = std::lower_bound(arms_.begin(), arms_.end(), prefix, before);
  const auto last = std::upper_bound(first, arms_.end(), prefix, after);
  return {static_cast<std::size_t>(first - arms_.begin()),
          static_cast<std::size_t>(last - arms_.begin())};
}

std::vector<bool> ActionSpace::mask(std::span<const std::uint8_t> prefix) const {
  std::vector<bool> allowed(knobs_.at(prefix.size()).values.size(), false);
  const auto [first, last] = range(prefix);
  for (std::size_t i = first; i < last; ++i) allowed[arms_[i][prefix.size()]] = true;
  return allowed;
}

std::vector<std::pair<std::size_t, std::size_t>> ActionSpace::subspaces() const {
  std::vector<std::pair<std::size_t, std::size_t>> all;
  for (std::size_t i = 0; i < arms_.size();) {
    const std::size_t end = range(std::span(arms_[i]).first(implementation_knobs_)).second;
    all.emplace_back(i, end);
    i = end;
  }
  return all;
}

std::optional<std::size_t> ActionSpace::knob_index(std::string_view name) const {
  for (std::size_t k = 0; k < knobs_.size(); ++k)
    if (knobs_[k].name == name) return k;
  return std::nullopt;
}

std::string_view ActionSpace::value(const Action& action, std::string_view knob) const {
  const auto k = knob_index(knob);
  return k ? std::string_view(knobs_[*k].values.at(action.at(*k))) : kDefault;
}

std::optional<double> ActionSpace::magnitude(std::size_t knob, std::uint8_t value) const {
  return magnitudes_.at(knob).at(value);
}

ActionSettings ActionSpace::setting(const Action& action) const {
  ActionSettings setting;
  const auto apply = [&](const Setting& one) {
    if (one.scope == SettingScope::call)
      setting.call_knobs[one.name] = one.value;
    else
      setting.launch_knobs[setting_text(one.scope, one.name)] = one.value;
  };
  const std::string_view algorithm = value(action, "algorithm");
  for (std::size_t k = 0; k < knobs_.size(); ++k) {
    if (action.at(k) == 0) continue;
    const Knob& knob = knobs_[k];
    const std::string& text = knob.values.at(action[k]);
    if (const auto expansion = knob.expansions.find(text); expansion != knob.expansions.end()) {
      for (const Setting& one : expansion->second) apply(one);
      continue;
    }
    std::string target = knob.target;
    for (const auto& [name, other] : knob.target_by_algorithm)
      if (name == algorithm) target = other;
    if (target == "algorithm")
      setting.algorithm = text;
    else if (const auto name = find_setting(target))
      apply({name->scope, name->name, text});
    else
      setting.launch_knobs[target] = text;  // of a whole run, which is no library's setting
  }
  return setting;
}

std::string ActionSpace::text(const Action& action) const {
  std::string head;
  std::string tail;
  for (std::size_t k = 0; k < knobs_.size(); ++k) {
    if (action.at(k) == 0) continue;
    const std::string& value = knobs_[k].values.at(action[k]);
    if (knobs_[k].role == KnobRole::implementation && knobs_[k].values.size() > 1)
      head += (head.empty() ? "" : "/") + value;
    else
      tail += fmt::format(" {}={}", knobs_[k].name, value);
  }
  return (head.empty() ? "library" : head) + tail;
}

bool ActionSpace::is_default(const Action& action) {
  return std::all_of(action.begin(), action.end(), [](std::uint8_t value) { return value == 0; });
}

}  // namespace dynamiccl
