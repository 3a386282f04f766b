#include "profiles/keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dynamiccl {
namespace {

/// The zeros before a number count for nothing; so many digits fit into 64 bits with every suffix.
std::string size_pattern() {
  const std::string part = R"((125|25|375|5|625|75|875)0*)";
  const std::string scaled = fmt::format(R"((0*[1-9][0-9]{{0,8}}(\.(0+|{0}))?|0+\.{0}))", part);
  return fmt::format("^(0*[1-9][0-9]{{0,17}} *B?|{} *[KMG](iB|B)?)$", scaled);
}

constexpr const char* kTimeUnit = " *(us|ms|s|min|m|h)?$";

ValueRule of(ValueKind kind) {
  ValueRule value;
  value.kind = kind;
  return value;
}

}  // namespace

const std::string kSizePattern = size_pattern();
const std::string kAnySizePattern = "^[0-9]+(\\.[0-9]+)? *(B|[KMG](iB|B)?)?$";
const std::string kDurationPattern = std::string(R"(^[0-9]+(\.[0-9]+)?)") + kTimeUnit;
const std::string kPositiveDurationPattern =
    std::string(R"(^(0*[1-9][0-9]*(\.[0-9]+)?|0+\.0*[1-9][0-9]*))") + kTimeUnit;

ValueRule ValueRule::some() const {
  ValueRule value = *this;
  value.count = HowMany::some;
  return value;
}

ValueRule ValueRule::list() const {
  ValueRule value = *this;
  value.count = HowMany::list;
  return value;
}

const ValueRule* TableKeys::find(const std::string& name) const {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const Key& key) { return key.name == name; });
  if (found != keys.end()) return &found->value;
  return others ? &*others : nullptr;
}

std::vector<std::string> TableKeys::names() const {
  std::vector<std::string> list;
  for (const Key& key : keys) list.push_back(key.name);
  return list;
}

namespace rule {

ValueRule text(Lines lines) {
  ValueRule value = of(ValueKind::text);
  value.lines = lines;
  return value;
}

ValueRule filled_text() {
  ValueRule value = text();
  value.filled = true;
  return value;
}

ValueRule text_like(std::string pattern, std::string instead) {
  ValueRule value = text();
  value.pattern = std::move(pattern);
  value.instead = std::move(instead);
  return value;
}

ValueRule boolean() { return of(ValueKind::boolean); }

ValueRule whole(std::int64_t low, std::int64_t high) {
  ValueRule value = of(ValueKind::whole);
  value.low = low;
  value.high = high;
  return value;
}

ValueRule number(double least, double most) {
  ValueRule value = of(ValueKind::number);
  value.least = least;
  value.most = most;
  return value;
}

ValueRule duration() { return of(ValueKind::duration); }

ValueRule positive_duration() {
  ValueRule value = duration();
  value.positive = true;
  return value;
}

ValueRule size(std::int64_t least) {
  ValueRule value = of(ValueKind::size);
  value.low = least;
  return value;
}

ValueRule sizes(std::int64_t least) {
  ValueRule value = size(least).some();
  value.ranges = true;
  return value;
}

ValueRule scalar() { return of(ValueKind::scalar); }

ValueRule toggle(std::vector<std::string> words) {
  ValueRule value = of(ValueKind::toggle);
  value.words = std::move(words);
  return value;
}

ValueRule words(std::vector<std::string> words) {
  ValueRule value = of(ValueKind::word);
  value.words = std::move(words);
  return value;
}

ValueRule table(std::shared_ptr<const TableKeys> keys) {
  ValueRule value = of(ValueKind::table);
  value.tables.push_back(std::move(keys));
  return value;
}

ValueRule table(TableKeys keys) {
  return table(std::make_shared<const TableKeys>(std::move(keys)));
}

ValueRule tables(std::vector<std::shared_ptr<const TableKeys>> keys) {
  ValueRule value = of(ValueKind::table).some();
  value.tables = std::move(keys);
  return value;
}

ValueRule by_backend(const ValueRule& value) {
  TableKeys backends;
  backends.chosen = "BACKEND";
  for (const auto& name : all_names<Backend>()) backends.keys.push_back({name, value, ""});
  return table(std::move(backends));
}

ValueRule chosen(const ValueRule& value, const char* pattern, const char* name) {
  TableKeys keys;
  keys.others = value;
  keys.others_pattern = pattern;
  keys.chosen = name;
  return table(std::move(keys));
}

}  // namespace rule
}  // namespace dynamiccl
