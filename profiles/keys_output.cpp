#include "profiles/keys_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

using Json = nlohmann::ordered_json;

Json any_of(std::initializer_list<Json> choices) { return {{"anyOf", Json(choices)}}; }
Json pattern(const std::string& expression) {
  return {{"type", "string"}, {"pattern", expression}};
}

Json whole_schema(std::int64_t low, std::int64_t high) {
  Json schema{{"type", "integer"}, {"minimum", low}};
  // A bound that is the file format's own is none.
  if (high < std::numeric_limits<std::int64_t>::max()) schema["maximum"] = high;
  return schema;
}

Json duration_schema(bool positive) {
  if (!positive)
    return any_of(
        {pattern(kDurationPattern),
         {{"type", "number"}, {"minimum", 0.0}, {"maximum", kLongestDuration.seconds()}}});
  return any_of(
      {pattern(kPositiveDurationPattern),
       {{"type", "number"}, {"exclusiveMinimum", 0}, {"maximum", kLongestDuration.seconds()}}});
}

Json size_schema(const ValueRule& rule) {
  const bool above_0 = rule.low > 0 || rule.ranges;
  const Json text = pattern(above_0 ? kSizePattern : kAnySizePattern);
  const Json bytes = whole_schema(above_0 ? std::max<std::int64_t>(rule.low, 1) : 0, rule.high);
  const Json one = any_of({text, bytes});
  if (!rule.ranges) return one;
  const Json range{{"type", "object"},
                   {"additionalProperties", false},
                   {"properties",
                    {{"from", one},
                     {"to", one},
                     {"factor", whole_schema(2, std::numeric_limits<int>::max())},
                     {"step", one}}},
                   {"required", {"from", "to"}}};
  if (rule.low > 0) return any_of({text, bytes, range});
  return any_of({{{"enum", Json::array({0, "0", "0B"})}}, text, bytes, range});
}

Json one_schema(const ValueRule& rule) {
  switch (rule.kind) {
    case ValueKind::text:
      if (rule.filled) return pattern("[^ \\t\\r\\n]");
      return rule.pattern.empty() ? Json{{"type", "string"}} : pattern(rule.pattern);
    case ValueKind::boolean:
      return {{"type", "boolean"}};
    case ValueKind::whole:
      return whole_schema(rule.low, rule.high);
    case ValueKind::number:
      return {{"type", "number"}, {"minimum", rule.least}, {"maximum", rule.most}};
    case ValueKind::duration:
      return duration_schema(rule.positive);
    case ValueKind::size:
      return size_schema(rule);
    case ValueKind::word:
      return {{"type", "string"}, {"enum", rule.words}};
    case ValueKind::scalar:
      return {{"type", Json::array({"string", "integer", "number", "boolean"})}};
    case ValueKind::toggle:
      return any_of({{{"type", "boolean"}}, {{"type", "string"}, {"enum", rule.words}}});
    case ValueKind::table:
      break;
  }
  if (rule.tables.size() == 1) return json_schema(*rule.tables.front());
  Json choices = Json::array();
  for (const auto& keys : rule.tables) choices.push_back(json_schema(*keys));
  return {{"anyOf", std::move(choices)}};
}

Json schema_of(const ValueRule& rule) {
  const Json one = one_schema(rule);
  if (rule.count == HowMany::one) return one;
  Json list{{"type", "array"}, {"items", one}};
  if (rule.count == HowMany::list) return list;
  list["minItems"] = 1;
  // [[tables]] are a list always.
  return rule.kind == ValueKind::table ? list : any_of({one, list});
}

std::string description_of(const Key& key) {
  if (key.usual.empty()) return key.about;
  const std::string absent = "where absent: " + key.usual;
  return key.about.empty() ? absent : key.about + "; " + absent;
}

// ---- Markdown

std::string in_code(const std::string& text) { return "`" + text + "`"; }

std::string bounds(const std::string& what, double low, double high) {
  if (high >= std::numeric_limits<int>::max()) return fmt::format("{} from {:.15g}", what, low);
  return fmt::format("{} {:.15g} to {:.15g}", what, low, high);
}

std::string one_value(const ValueRule& rule) {
  switch (rule.kind) {
    case ValueKind::text:
      return rule.instead.empty() ? "text" : rule.instead;
    case ValueKind::boolean:
      return "true or false";
    case ValueKind::whole:
      return bounds("whole number", static_cast<double>(rule.low), static_cast<double>(rule.high));
    case ValueKind::number:
      return fmt::format("number {:.15g} to {:.15g}", rule.least, rule.most);
    case ValueKind::duration:
      return rule.positive ? "duration above 0" : "duration";
    case ValueKind::size:
      return rule.ranges ? "size or range of sizes" : rule.low > 0 ? "size" : "size or 0";
    case ValueKind::toggle:
    case ValueKind::word: {
      std::vector<std::string> words;
      for (const auto& word : rule.words) words.push_back(in_code(word));
      return (rule.kind == ValueKind::toggle ? "true, false, " : "") + join(words, ", ");
    }
    case ValueKind::scalar:
      return "text, number, true or false";
    case ValueKind::table:
      return rule.count == HowMany::one ? "table" : "tables";
  }
  return "";
}

std::string value_text(const ValueRule& rule) {
  const std::string one = one_value(rule);
  if (rule.count == HowMany::one || rule.kind == ValueKind::table) return one;
  return one + (rule.count == HowMany::some ? "; one or a list" : "; a list");
}

std::string in_cell(const std::string& text) { return join(split(text, '|'), "\\|"); }

class Pages {
 public:
  void add(const TableKeys& keys, const std::string& path, const std::string& heading) {
    text_ += fmt::format("## {}\n\n", heading);
    if (keys.others && keys.keys.empty()) {
      text_ += fmt::format("Any {}: {}.\n\n", in_code(keys.chosen), value_text(*keys.others));
    } else if (!keys.others && !keys.chosen.empty()) {
      std::vector<std::string> names;
      for (const auto& name : keys.names()) names.push_back(in_code(name));
      text_ += fmt::format("Any {}: {}.\n\n", in_code(keys.chosen), join(names, ", "));
    } else {
      rows(keys);
      if (keys.others)
        text_ += fmt::format("Or any {} in quotes, as \"mca.NAME\": {}.\n\n", in_code(keys.chosen),
                             value_text(*keys.others));
    }
    // What the file chooses, and keys that all hold the same, are described once.
    if (keys.others && keys.keys.empty()) return inner(*keys.others, joined(path, keys.chosen));
    if (!keys.others && !keys.chosen.empty())
      return inner(keys.keys.front().value, joined(path, keys.chosen));
    for (auto key = keys.keys.begin(); key != keys.keys.end(); ++key) {
      const auto same = [&](const Key& other) {
        return !other.value.tables.empty() && other.value.tables == key->value.tables;
      };
      if (std::any_of(keys.keys.begin(), key, same)) continue;
      std::vector<std::string> alike;
      for (auto other = std::next(key); other != keys.keys.end(); ++other)
        if (same(*other)) alike.push_back(in_code(other->name));
      inner(key->value, joined(path, key->name),
            alike.empty() ? "" : fmt::format(", the same for {}", join(alike, ", ")));
    }
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  static std::string joined(const std::string& path, const std::string& name) {
    return path.empty() ? name : path + "." + name;
  }

  void rows(const TableKeys& keys) {
    text_ += "| key | value | where absent | what it is |\n|---|---|---|---|\n";
    for (const Key& key : keys.keys)
      text_ += fmt::format("| `{}` | {} | {} | {} |\n", key.name, in_cell(value_text(key.value)),
                           key.required ? "**needed**" : in_cell(key.usual), in_cell(key.about));
    for (const auto& [key, other] : keys.needs)
      text_ += fmt::format("\n`{}` is of use only with `{}`.\n", key, other);
    if (keys.fewest > 1) text_ += fmt::format("\nAt least {} of these keys.\n", keys.fewest);
    text_ += "\n";
  }

  void inner(const ValueRule& value, const std::string& path, const std::string& alike = "") {
    if (value.kind != ValueKind::table) return;
    for (const auto& keys : value.tables) {
      std::string heading = "[" + path + "]";
      if (value.count != HowMany::one) heading = "[" + heading + "]";
      if (value.tables.size() > 1) heading += fmt::format(" with `{}`", keys->keys.front().name);
      add(*keys, path, heading + alike);
    }
  }

  std::string text_;
};

}  // namespace

nlohmann::ordered_json json_schema(const TableKeys& keys) {
  Json schema{{"type", "object"}};
  if (keys.others) {
    if (!keys.others_pattern.empty()) schema["propertyNames"] = {{"pattern", keys.others_pattern}};
    schema["additionalProperties"] = schema_of(*keys.others);
    if (keys.keys.empty()) return schema;
  } else {
    schema["additionalProperties"] = false;
  }
  Json properties = Json::object();
  Json required = Json::array();
  for (const Key& key : keys.keys) {
    Json& property = properties[key.name] = schema_of(key.value);
    if (const auto about = description_of(key); !about.empty()) property["description"] = about;
    if (key.required) required.push_back(key.name);
  }
  schema["properties"] = std::move(properties);
  if (!required.empty()) schema["required"] = std::move(required);
  if (keys.fewest > 0) schema["minProperties"] = keys.fewest;
  for (const auto& [key, other] : keys.needs) schema["dependencies"][key].push_back(other);
  return schema;
}

std::string keys_markdown(const TableKeys& keys, const std::string& top) {
  Pages pages;
  pages.add(keys, "", top);
  return pages.text();
}

}  // namespace dynamiccl
