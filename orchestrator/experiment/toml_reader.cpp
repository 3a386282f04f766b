#include "orchestrator/experiment/toml_reader.hpp"

#include <fmt/format.h>

#include <functional>
#include <regex>

#include "core/vocabulary/text.hpp"
#include "profiles/strict_toml.hpp"

namespace dynamiccl {
namespace {

/// The zeros before a number count for nothing; so many digits fit into 64 bits with every suffix.
std::string size_pattern() {
  const std::string part = R"((125|25|375|5|625|75|875)0*)";
  const std::string scaled = fmt::format(R"((0*[1-9][0-9]{{0,8}}(\.(0+|{0}))?|0+\.{0}))", part);
  return fmt::format("^(0*[1-9][0-9]{{0,17}} *B?|{} *[KMG](iB|B)?)$", scaled);
}

constexpr const char* kTimeUnit = " *(us|ms|s|min|m|h)?$";

/// Patterns are matched letter by letter in nested calls: what is too long for a number is none.
bool matches(const std::string& text, const std::regex& pattern) {
  constexpr std::size_t kLongestNumber = 64;
  return text.size() <= kLongestNumber && std::regex_match(text, pattern);
}

std::string describe(const toml::node& node) {
  if (node.is_string()) return fmt::format("the text \"{}\"", *node.value<std::string>());
  if (node.is_integer()) return fmt::format("the number {}", *node.value<std::int64_t>());
  if (node.is_floating_point()) {
    // With its point: "expected a whole number, found the number 1" helps nobody.
    const std::string digits = fmt::format("{}", *node.value<double>());
    const bool whole = digits.find_first_not_of("-0123456789") == std::string::npos;
    return "the number " + digits + (whole ? ".0" : "");
  }
  if (node.is_boolean()) return *node.value<bool>() ? "true" : "false";
  if (node.is_array()) return "a list";
  if (node.is_table()) return "a table";
  return "a date or time";
}

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

const std::string kSizePattern = size_pattern();
const std::string kDurationPattern = std::string(R"(^[0-9]+(\.[0-9]+)?)") + kTimeUnit;
const std::string kPositiveDurationPattern =
    std::string(R"(^(0*[1-9][0-9]*(\.[0-9]+)?|0+\.0*[1-9][0-9]*))") + kTimeUnit;

TableReader::TableReader(const toml::table& table, std::string path, Mistakes& mistakes)
    : table_(table), path_(std::move(path)), mistakes_(mistakes) {}

std::string TableReader::dotted(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

void TableReader::complain(const std::string& key, const std::string& message) const {
  const toml::node* node = table_.get(key);
  mistakes_.add(node != nullptr ? node->source() : table_.source(), message);
}

void TableReader::wrong_type(const std::string& key, const toml::node& node,
                             const std::string& expected) {
  mistakes_.add(node.source(),
                fmt::format("{}: expected {}, found {}", dotted(key), expected, describe(node)));
}

std::string TableReader::unknown_name(const std::string& what, const std::string& name,
                                      const std::vector<std::string>& known) {
  return fmt::format("unknown {} \"{}\"; {}", what, name, suggestion(name, known));
}

void TableReader::for_each(const std::string& key,
                           const std::function<void(const toml::node&)>& visit) {
  known_.insert(key);
  const toml::node* node = table_.get(key);
  if (node == nullptr) return;
  if (const auto* array = node->as_array()) {
    if (array->empty()) mistakes_.add(node->source(), dotted(key) + ": the list is empty");
    for (const auto& element : *array) visit(element);
  } else {
    visit(*node);
  }
}

std::optional<std::string> TableReader::string(const std::string& key, const toml::node& node,
                                               Lines lines) {
  auto value = node.value_exact<std::string>();
  if (!value) {
    wrong_type(key, node, "a text in quotes");
  } else if (const auto control = control_character(*value, lines); !control.empty()) {
    mistakes_.add(node.source(), fmt::format("{}: the text holds the control character {}: leave "
                                             "it out, no name or setting has one",
                                             dotted(key), control));
    return std::nullopt;
  }
  return value;
}

std::optional<std::string> TableReader::text(const std::string& key, Lines lines) {
  known_.insert(key);
  const toml::node* node = table_.get(key);
  if (node == nullptr) return std::nullopt;
  return string(key, *node, lines);
}

std::optional<bool> TableReader::boolean(const std::string& key) {
  known_.insert(key);
  const toml::node* node = table_.get(key);
  if (node == nullptr) return std::nullopt;
  const auto value = node->value_exact<bool>();
  if (!value) wrong_type(key, *node, "true or false");
  return value;
}

std::optional<std::int64_t> TableReader::integer(const std::string& key, std::int64_t minimum,
                                                 std::int64_t maximum) {
  known_.insert(key);
  const toml::node* node = table_.get(key);
  if (node == nullptr) return std::nullopt;
  const auto value = node->value_exact<std::int64_t>();
  if (!value || *value < minimum || *value > maximum) {
    wrong_type(key, *node, whole_number(minimum, maximum, value));
    return std::nullopt;
  }
  return value;
}

std::optional<double> TableReader::number(const std::string& key, double minimum, double maximum) {
  known_.insert(key);
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
  known_.insert(key);
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
  return result;
}

std::vector<std::string> TableReader::texts(const std::string& key, Lines lines) {
  std::vector<std::string> values;
  for_each(key, [&](const toml::node& node) {
    if (auto value = string(key, node, lines)) values.push_back(*std::move(value));
  });
  return values;
}

std::vector<int> TableReader::integers(const std::string& key, int minimum, int maximum) {
  std::vector<int> values;
  for_each(key, [&](const toml::node& node) {
    const auto value = node.value_exact<std::int64_t>();
    if (value && *value >= minimum && *value <= maximum) {
      values.push_back(static_cast<int>(*value));
    } else {
      wrong_type(key, node, whole_number(minimum, maximum, value));
    }
  });
  return values;
}

std::vector<bool> TableReader::booleans(const std::string& key) {
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

std::optional<Bytes> TableReader::size(const std::string& key, const toml::node& node) {
  const auto text = node.value_exact<std::string>();
  static const std::regex pattern(kSizePattern);
  if (text && matches(*text, pattern)) return parse_bytes(*text);
  if (const auto number = node.value_exact<std::int64_t>(); number && *number > 0)
    return Bytes(static_cast<std::uint64_t>(*number));
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
  reader.known_ = {"from", "to"};
  const auto factor = reader.integer("factor", 2).value_or(2);
  reader.finish();
  if (from == nullptr || to == nullptr) {
    mistakes_.add(range.source(), fmt::format("{}: a range needs from and to", dotted(key)));
    return;
  }
  const auto low = reader.size("from", *from);
  const auto high = reader.size("to", *to);
  if (!low || !high) return;
  if (*high < *low)
    mistakes_.add(to->source(), fmt::format("{}: the range ends below its start", dotted(key)));
  const auto step = static_cast<std::uint64_t>(factor);
  for (std::uint64_t size = low->count(); size <= high->count(); size *= step) {
    sizes.emplace_back(size);
    if (size > high->count() / step) break;
  }
}

std::vector<Bytes> TableReader::sizes(const std::string& key) {
  std::vector<Bytes> values;
  for_each(key, [&](const toml::node& node) {
    if (const auto* range = node.as_table()) {
      size_range(key, *range, values);
    } else if (const auto value = size(key, node)) {
      values.push_back(*value);
    }
  });
  return values;
}

std::vector<std::string> TableReader::scalars(const std::string& key) {
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
  known_.insert(key);
  const toml::node* node = table_.get(key);
  if (node == nullptr) return std::nullopt;
  if (const auto* table = node->as_table()) return TableReader(*table, dotted(key), mistakes_);
  wrong_type(key, *node, fmt::format("a table [{}]", dotted(key)));
  return std::nullopt;
}

std::vector<TableReader> TableReader::tables(const std::string& key) {
  known_.insert(key);
  std::vector<TableReader> readers;
  const toml::node* node = table_.get(key);
  if (node == nullptr) return readers;
  const auto* array = node->as_array();
  if (array == nullptr || array->empty()) {
    wrong_type(key, *node, fmt::format("tables [[{}]]", dotted(key)));
    return readers;
  }
  for (const auto& element : *array) {
    if (const auto* table = element.as_table()) {
      readers.emplace_back(*table, dotted(key), mistakes_);
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
    known_.insert(names.back());
  }
  return names;
}

void TableReader::finish() {
  for (const auto& [key, value] : table_) {
    const std::string name(key.str());
    if (known_.contains(name)) continue;
    const std::string where = path_.empty() ? "" : fmt::format(" in [{}]", path_);
    const auto& place = key.source().begin.line != 0 ? key.source() : value.source();
    mistakes_.add(
        place,
        fmt::format("unknown key \"{}\"{}; {}", name, where,
                    suggestion(name, std::vector<std::string>(known_.begin(), known_.end()))));
  }
}

namespace {

/// Moves, as copying a toml++ node forgets where it stood.
void place(toml::table& table, const std::string& key, toml::node&& node) {
  node.visit([&](auto& typed) { table.insert_or_assign(key, std::move(typed)); });
}

void merge(toml::table& into, toml::table&& from, const std::string& override_text);

void merge_into_array(toml::array& into, toml::table&& from, const std::string& override_text) {
  for (auto&& [key, value] : from) {
    const std::string index(key.str());
    const bool number = !index.empty() && index.size() < 7 &&
                        index.find_first_not_of("0123456789") == std::string::npos;
    if (!number || std::stoul(index) >= into.size() || !value.is_table() ||
        !into[std::stoul(index)].is_table()) {
      throw Error(ErrorKind::input,
                  fmt::format("{}: expected an index 0..{} and a key, as in work.0.size",
                              override_text, into.empty() ? 0 : into.size() - 1));
    }
    merge(*into[std::stoul(index)].as_table(), std::move(*value.as_table()), override_text);
  }
}

void merge(toml::table& into, toml::table&& from, const std::string& override_text) {
  for (auto&& [key, value] : from) {
    const std::string name(key.str());
    toml::node* existing = into.get(name);
    if (existing != nullptr && value.is_table() && existing->is_table()) {
      merge(*existing->as_table(), std::move(*value.as_table()), override_text);
    } else if (existing != nullptr && value.is_table() && existing->is_array()) {
      merge_into_array(*existing->as_array(), std::move(*value.as_table()), override_text);
    } else {
      place(into, name, std::move(value));
    }
  }
}

toml::table parse_override(const std::string& text) {
  const std::string source = "--set " + text;
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(ErrorKind::input, fmt::format("{}: expected key=value, as in "
                                              "--set protocol.iterations=50",
                                              source));
  }
  check_key_parts(text, source.size() > 80 ? source.substr(0, 80) + "..." : source);
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error&) {
    std::string quoted = text.substr(0, equals) + "= \"";
    for (const char c : text.substr(equals + 1)) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
    try {
      return toml::parse(quoted + "\"", source);
    } catch (const toml::parse_error& error) {
      throw Error(ErrorKind::input, fmt::format("{}: {}", source, error.description()));
    }
  }
}

}  // namespace

void apply_overrides(toml::table& table, const std::vector<std::string>& overrides) {
  for (const auto& text : overrides) merge(table, parse_override(text), "--set " + text);
}

}  // namespace dynamiccl
