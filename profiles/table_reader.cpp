#include "profiles/table_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <regex>
#include <tuple>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// What is too long for a number is none.
constexpr std::size_t kLongestNumber = 64;
constexpr std::size_t kLongestPatterned = 1024;
constexpr std::size_t kMostStepped = 10'000;  // sizes of one range by steps

/// Patterns are matched letter by letter in nested calls, so that a text has a longest length.
bool matches(const std::string& text, const std::regex& pattern,
             std::size_t longest = kLongestNumber) {
  return text.size() <= longest && std::regex_match(text, pattern);
}

std::string describe(const toml::node& node) {
  if (node.is_string()) return fmt::format("the text \"{}\"", *node.value<std::string>());
  if (node.is_integer()) return fmt::format("the number {}", *node.value<std::int64_t>());
  if (node.is_floating_point()) {
    // With its point: to TOML 1.0 is another kind of number than 1.
    const std::string digits = fmt::format("{}", *node.value<double>());
    const bool whole = digits.find_first_not_of("-0123456789") == std::string::npos;
    return fmt::format("the number {}{}", digits, whole ? ".0" : "");
  }
  if (node.is_boolean()) return *node.value<bool>() ? "true" : "false";
  if (node.is_array()) return "a list";
  if (node.is_table()) return "a table";
  return "a date or time";
}

/// Below it a floating-point number holds every whole one.
constexpr double kExactWholes = 9007199254740992.0;

/// The largest number an int holds is named only to who exceeds it.
std::string whole_number(std::int64_t minimum, std::int64_t maximum,
                         const std::optional<std::int64_t>& found) {
  return maximum >= std::numeric_limits<int>::max() && !(found && *found > maximum)
             ? fmt::format("a whole number from {}", minimum)
             : fmt::format("a whole number {}..{}", minimum, maximum);
}

/// "U+001B" for the first control character in a text, "" where there is none.
std::string control_character(std::string_view text, Lines lines) {
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (lines == Lines::many && (c == '\n' || c == '\r' || c == '\t')) continue;
    if (code < 0x20 || code == 0x7f) return fmt::format("U+{:04X}", code);
  }
  return "";
}

}  // namespace

void Mistakes::add(const toml::source_region& where, const std::string& message) {
  mistakes_.push_back(at(where, message));
}

void Mistakes::note(const toml::source_region& where, const std::string& message) {
  notes_.push_back(at(where, message).message);
}

Mistakes::Mistake Mistakes::at(const toml::source_region& where, const std::string& message) const {
  const std::string& source = where.path ? *where.path : source_;
  if (where.begin.line == 0 || source.starts_with("--"))
    return {kNowhere, 0, fmt::format("{}: {}", source, message)};
  return {where.begin.line, where.begin.column,
          fmt::format("{}:{}:{}: {}", source, where.begin.line, where.begin.column, message)};
}

void Mistakes::raise(std::vector<std::string>* notes) const {
  if (mistakes_.empty()) {
    if (notes != nullptr) notes->insert(notes->end(), notes_.begin(), notes_.end());
    return;
  }
  auto sorted = mistakes_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Mistake& a, const Mistake& b) {
    return std::tie(a.line, a.column) < std::tie(b.line, b.column);
  });
  std::vector<std::string> lines;
  lines.reserve(sorted.size());
  for (auto& mistake : sorted) lines.push_back(std::move(mistake.message));
  throw Error(kind_, join(lines, "\n"));
}

TableReader::TableReader(const toml::table& table, std::string path, Mistakes& mistakes,
                         const TableKeys* keys)
    : table_(table), path_(std::move(path)), mistakes_(mistakes), keys_(keys) {}

const ValueRule* TableReader::expect(const std::string& key, ValueKind kind) {
  asked_.insert(key);
  if (keys_ == nullptr) return nullptr;
  const ValueRule* rule = keys_->find(key);
  if (rule == nullptr || rule->kind != kind)
    throw Error(ErrorKind::bug, dotted(key) + " is read otherwise than the table of keys has it");
  return rule;
}

const ValueRule& TableReader::bounds(const std::string& key, ValueKind kind) {
  const ValueRule* rule = expect(key, kind);
  if (rule == nullptr)
    throw Error(ErrorKind::bug, "no table of keys says the bounds of " + dotted(key));
  return *rule;
}

HowMany TableReader::count_of(const std::string& key) const {
  const ValueRule* rule = keys_ != nullptr ? keys_->find(key) : nullptr;
  return rule != nullptr ? rule->count : HowMany::some;
}

std::string TableReader::dotted(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

void TableReader::complain(const std::string& key, const std::string& message) const {
  const toml::node* node = table_.get(key);
  mistakes_.add(node != nullptr ? node->source() : table_.source(), message);
}

void TableReader::note(const std::string& key, const std::string& message) const {
  const toml::node* node = table_.get(key);
  mistakes_.note(node != nullptr ? node->source() : table_.source(), message);
}

void TableReader::wrong_type(const std::string& key, const toml::node& node,
                             const std::string& expected) {
  std::string text =
      fmt::format("{}: expected {}, found {}", dotted(key), expected, describe(node));
  if (keys_ != nullptr)
    for (const auto& [looked_for, hint] : keys_->hints)
      if (looked_for == key + "=") text += "; " + hint;
  mistakes_.add(node.source(), text);
}

void TableReader::wrong_whole(const std::string& key, const toml::node& node, std::int64_t minimum,
                              std::int64_t maximum) {
  std::string expected = whole_number(minimum, maximum, node.value_exact<std::int64_t>());
  if (const auto real = node.value_exact<double>();
      real && *real == std::floor(*real) && std::abs(*real) < kExactWholes)
    expected += fmt::format(" without a point, as {:.0f}", *real);
  wrong_type(key, node, expected);
}

std::string TableReader::unknown_name(const std::string& what, const std::string& name,
                                      const std::vector<std::string>& known) {
  return fmt::format("unknown {} \"{}\"; {}", what, name, suggestion(name, known));
}

std::string TableReader::unknown_value(const std::string& key, const std::string& what,
                                       const std::string& name,
                                       const std::vector<std::string>& known) const {
  if (keys_ != nullptr)
    for (const auto& [looked_for, hint] : keys_->hints)
      if (looked_for == key + "=" || looked_for == key + "=" + name)
        return fmt::format("unknown {} \"{}\"; {}", what, name, hint);
  return unknown_name(what, name, known);
}

void TableReader::for_each(const std::string& key,
                           const std::function<void(const toml::node&)>& visit) {
  asked_.insert(key);
  const HowMany count = count_of(key);
  const toml::node* node = table_.get(key);
  if (node == nullptr) return;
  const auto* array = node->as_array();
  if (array != nullptr && count != HowMany::one) {
    if (array->empty() && count == HowMany::some)
      mistakes_.add(node->source(), dotted(key) + ": the list is empty");
    for (const auto& element : *array) visit(element);
  } else if (array == nullptr && count == HowMany::list) {
    wrong_type(key, *node, "a list");
  } else {
    visit(*node);
  }
}

std::optional<std::string> TableReader::string(const std::string& key, const toml::node& node,
                                               Lines lines) {
  const ValueRule* rule = keys_ != nullptr ? keys_->find(key) : nullptr;
  if (rule != nullptr && rule->kind == ValueKind::text) lines = rule->lines;
  auto value = node.value_exact<std::string>();
  if (!value) {
    const bool known = rule != nullptr && !rule->instead.empty();
    wrong_type(key, node, known ? rule->instead : "a text in quotes");
  } else if (const auto control = control_character(*value, lines); !control.empty()) {
    mistakes_.add(node.source(), fmt::format("{}: the text holds the control character {}: leave "
                                             "it out, no name or setting has one",
                                             dotted(key), control));
    return std::nullopt;
  } else if (rule != nullptr && rule->filled && trim(*value).empty()) {
    mistakes_.add(node.source(), dotted(key) + ": the text is empty");
    return std::nullopt;
  } else if (rule != nullptr && !rule->pattern.empty() &&
             !matches(*value, std::regex(rule->pattern), kLongestPatterned)) {
    wrong_type(key, node, rule->instead);
    return std::nullopt;
  }
  return value;
}

std::optional<std::string> TableReader::text(const std::string& key, Lines lines) {
  expect(key, ValueKind::text);
  const toml::node* node = table_.get(key);
  if (node == nullptr) return std::nullopt;
  return string(key, *node, lines);
}

std::optional<bool> TableReader::boolean(const std::string& key) {
  expect(key, ValueKind::boolean);
  const toml::node* node = table_.get(key);
  if (node == nullptr) return std::nullopt;
  const auto value = node->value_exact<bool>();
  if (!value) wrong_type(key, *node, "true or false");
  return value;
}

std::optional<std::int64_t> TableReader::integer(const std::string& key) {
  const ValueRule& rule = bounds(key, ValueKind::whole);
  return integer(key, rule.low, rule.high);
}

std::optional<std::int64_t> TableReader::integer(const std::string& key, std::int64_t minimum,
                                                 std::int64_t maximum) {
  asked_.insert(key);
  const toml::node* node = table_.get(key);
  if (node == nullptr) return std::nullopt;
  const auto value = node->value_exact<std::int64_t>();
  if (!value || *value < minimum || *value > maximum) {
    wrong_whole(key, *node, minimum, maximum);
    return std::nullopt;
  }
  return value;
}

std::optional<double> TableReader::number(const std::string& key) {
  const ValueRule& rule = bounds(key, ValueKind::number);
  return number(key, rule.least, rule.most);
}

std::optional<double> TableReader::number(const std::string& key, double minimum, double maximum) {
  asked_.insert(key);
  const toml::node* node = table_.get(key);
  if (node == nullptr) return std::nullopt;
  const auto value = node->is_number() ? node->value<double>() : std::nullopt;
  if (!value || !(*value >= minimum) || *value > maximum) {
    wrong_type(key, *node, fmt::format("a number {:g}..{:g}", minimum, maximum));
    return std::nullopt;
  }
  return value;
}

std::optional<Micros> TableReader::duration(const std::string& key) {
  const ValueRule* rule = expect(key, ValueKind::duration);
  const toml::node* node = table_.get(key);
  if (node == nullptr) return std::nullopt;
  std::optional<Micros> result;
  if (node->is_number()) {
    result = Micros(*node->value<double>() * 1e6);
  } else if (const auto text = node->value_exact<std::string>()) {
    static const std::regex pattern(kDurationPattern);
    if (matches(*text, pattern)) result = parse_duration(*text);
  }
  if (!result || !(result->count() >= 0)) {
    wrong_type(key, *node, "a duration such as \"500ms\" or 2 (seconds)");
    return std::nullopt;
  }
  if (*result > kLongestDuration) {
    wrong_type(key, *node, "a duration of at most a year");
    return std::nullopt;
  }
  if (rule != nullptr && rule->positive && result->count() <= 0) {
    complain(key, dotted(key) + ": expected more than 0");
    return std::nullopt;
  }
  return result;
}

std::vector<std::string> TableReader::texts(const std::string& key, Lines lines) {
  expect(key, ValueKind::text);
  std::vector<std::string> values;
  for_each(key, [&](const toml::node& node) {
    if (auto value = string(key, node, lines)) values.push_back(*std::move(value));
  });
  return values;
}

std::vector<int> TableReader::integers(const std::string& key) {
  const ValueRule& rule = bounds(key, ValueKind::whole);
  return integers(key, static_cast<int>(rule.low), static_cast<int>(rule.high));
}

std::vector<int> TableReader::integers(const std::string& key, int minimum, int maximum) {
  std::vector<int> values;
  for_each(key, [&](const toml::node& node) {
    const auto value = node.value_exact<std::int64_t>();
    if (value && *value >= minimum && *value <= maximum) {
      values.push_back(static_cast<int>(*value));
    } else {
      wrong_whole(key, node, minimum, maximum);
    }
  });
  return values;
}

std::vector<bool> TableReader::booleans(const std::string& key) {
  expect(key, ValueKind::boolean);
  std::vector<bool> values;
  for_each(key, [&](const toml::node& node) {
    if (const auto value = node.value_exact<bool>()) {
      values.push_back(*value);
    } else {
      wrong_type(key, node, "true or false");
    }
  });
  return values;
}

std::optional<Bytes> TableReader::size(const std::string& key) {
  const ValueRule* rule = expect(key, ValueKind::size);
  const toml::node* node = table_.get(key);
  if (node == nullptr) return std::nullopt;
  return size_at(key, *node, rule != nullptr ? rule->low : 1);
}

std::optional<Bytes> TableReader::size_at(const std::string& key, const toml::node& node,
                                          std::int64_t least) {
  const auto text = node.value_exact<std::string>();
  static const std::regex pattern(kSizePattern);
  static const std::regex any(kAnySizePattern);
  if (text && matches(*text, least > 0 ? pattern : any)) {
    try {
      return parse_bytes(*text);
    } catch (const Error& error) {
      mistakes_.add(node.source(), fmt::format("{}: {}", dotted(key), error.what()));
      return std::nullopt;
    }
  }
  if (const auto number = node.value_exact<std::int64_t>(); number && *number >= least)
    return Bytes(static_cast<std::uint64_t>(*number));
  if (least > 0 && ((text && text->starts_with('0') && matches(*text, any)) ||
                    node.value_exact<std::int64_t>() == 0)) {
    wrong_type(
        key, node,
        "a size above 0: the smallest that moves anything is one element, as \"4B\" of float32");
    return std::nullopt;
  }
  wrong_type(key, node,
             text && text->find('.') != std::string::npos
                 ? "a size in whole bytes, or in eighths of a K, M or G such as \"1.5MiB\""
                 : "a size such as \"64KiB\" or 65536");
  return std::nullopt;
}

void TableReader::size_range(const std::string& key, const toml::table& range,
                             std::vector<Bytes>& sizes) {
  TableReader reader(range, dotted(key), mistakes_);
  const auto* from = range.get("from");
  const auto* to = range.get("to");
  const auto* rise = range.get("step");
  reader.asked_ = {"from", "to", "step"};
  const auto factor = reader.integer("factor", 2);
  reader.finish();
  if (rise != nullptr && factor)
    mistakes_.add(rise->source(), fmt::format("{}: a range of sizes rises by a factor or by a "
                                              "step in bytes, not by both",
                                              dotted(key)));
  if (from == nullptr || to == nullptr) {
    mistakes_.add(range.source(), fmt::format("{}: a range needs from and to", dotted(key)));
    return;
  }
  const auto low = reader.size_at("from", *from, 1);
  const auto high = reader.size_at("to", *to, 1);
  if (!low || !high) return;
  if (*high < *low)
    mistakes_.add(to->source(), fmt::format("{}: the range ends below its start", dotted(key)));
  std::uint64_t added = 0;
  if (rise != nullptr) {
    const auto step = reader.size_at("step", *rise, 1);
    if (!step) return;
    added = step->count();
    if (added < (high->count() - std::min(low->count(), high->count())) / kMostStepped)
      mistakes_.add(rise->source(), fmt::format("{}: these steps are more than {} sizes",
                                                dotted(key), kMostStepped));
  }
  // By differences from the end: the next size may lie beyond what 64 bits hold.
  const auto times = static_cast<std::uint64_t>(factor.value_or(2));
  for (std::uint64_t size = low->count(); size <= high->count();) {
    sizes.emplace_back(size);
    if (added > 0 ? high->count() - size < added : size > high->count() / times) break;
    size = added > 0 ? size + added : size * times;
    if (sizes.size() > kMostStepped) break;
  }
}

std::vector<Bytes> TableReader::sizes(const std::string& key) {
  const ValueRule* rule = expect(key, ValueKind::size);
  std::vector<Bytes> values;
  const bool from_0 = rule != nullptr && rule->low == 0;
  for_each(key, [&](const toml::node& node) {
    const auto text = node.value_exact<std::string>();
    if (from_0 && (node.value_exact<std::int64_t>() == 0 || text == "0" || text == "0B")) {
      values.emplace_back(0);
    } else if (const auto* range = node.as_table()) {
      size_range(key, *range, values);
    } else if (const auto value = size_at(key, node, 1)) {
      values.push_back(*value);
    }
  });
  return values;
}

std::vector<std::string> TableReader::scalars(const std::string& key) {
  const ValueRule* rule = keys_ != nullptr ? keys_->find(key) : nullptr;
  // A key without a rule is a setting that another part reads, or one that nobody knows: whoever
  // asked for its values judges them.
  if (rule != nullptr) expect(key, rule->kind);
  std::vector<std::string> values;
  for_each(key, [&](const toml::node& node) {
    if (node.is_string()) {
      if (auto value = string(key, node, Lines::one)) values.push_back(*std::move(value));
    } else if (node.is_integer()) {
      values.push_back(fmt::format("{}", *node.value<std::int64_t>()));
    } else if (node.is_boolean()) {
      values.emplace_back(*node.value<bool>() ? "1" : "0");
    } else if (node.is_floating_point()) {
      values.push_back(fmt::format("{}", *node.value<double>()));
    } else {
      wrong_type(key, node, "a text, number or boolean");
    }
  });
  return values;
}

std::optional<TableReader> TableReader::table(const std::string& key) {
  const ValueRule* rule = expect(key, ValueKind::table);
  const toml::node* node = table_.get(key);
  if (node == nullptr) return std::nullopt;
  if (const auto* table = node->as_table())
    return TableReader(*table, dotted(key), mistakes_,
                       rule != nullptr ? rule->tables[0].get() : nullptr);
  wrong_type(key, *node, fmt::format("a table [{}]", dotted(key)));
  return std::nullopt;
}

std::vector<TableReader> TableReader::tables(const std::string& key) {
  const ValueRule* rule = expect(key, ValueKind::table);
  const bool may_be_empty = rule != nullptr && rule->count == HowMany::list;
  std::vector<TableReader> readers;
  const toml::node* node = table_.get(key);
  if (node == nullptr) return readers;
  const auto* array = node->as_array();
  if (array == nullptr || (array->empty() && !may_be_empty)) {
    wrong_type(key, *node, fmt::format("tables [[{}]]", dotted(key)));
    return readers;
  }
  for (const auto& element : *array) {
    if (const auto* table = element.as_table()) {
      readers.emplace_back(*table, dotted(key), mistakes_,
                           rule != nullptr ? rule->tables[0].get() : nullptr);
    } else {
      wrong_type(key, element, fmt::format("a table [[{}]]", dotted(key)));
    }
  }
  return readers;
}

std::vector<std::string> TableReader::keys() {
  std::vector<std::string> names;
  for (const auto& [key, value] : table_) {
    names.emplace_back(key.str());
    asked_.insert(names.back());
  }
  return names;
}

std::string TableReader::hint_for(const std::string& name,
                                  const std::vector<std::string>& known) const {
  const auto hint = std::find_if(keys_->hints.begin(), keys_->hints.end(),
                                 [&](const auto& one) { return one.first == name; });
  return hint != keys_->hints.end() ? hint->second : suggestion(name, known);
}

void TableReader::note_unknown_keys() const {
  const bool free = keys_ == nullptr;
  auto known = free ? std::vector<std::string>(asked_.begin(), asked_.end()) : keys_->names();
  std::sort(known.begin(), known.end());
  for (const auto& [key, value] : table_) {
    const std::string name(key.str());
    if (free ? asked_.contains(name) : keys_->find(name) != nullptr) {
      if (!asked_.contains(name))
        throw Error(ErrorKind::bug, "nothing reads the known key " + dotted(name));
      continue;
    }
    const std::string where = path_.empty() ? "" : fmt::format(" in [{}]", path_);
    const auto& place = key.source().begin.line != 0 ? key.source() : value.source();
    mistakes_.add(place, fmt::format("unknown key \"{}\"{}; {}", name, where,
                                     free ? suggestion(name, known) : hint_for(name, known)));
  }
}

void TableReader::note_absent_keys() const {
  for (const Key& key : keys_->keys) {
    if (!key.required || has(key.name)) continue;
    const std::string table = path_.empty() ? "the file" : fmt::format("[{}]", path_);
    const std::string about = key.about.empty() ? "" : ": " + key.about;
    complain(key.name, fmt::format("{} needs the key {}{}", table, key.name, about));
  }
}

void TableReader::finish() {
  note_unknown_keys();
  if (keys_ != nullptr) note_absent_keys();
}

}  // namespace dynamiccl
