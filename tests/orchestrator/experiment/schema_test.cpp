// The schema against the reader: every key of the one is a key of the other, and every experiment
// that the reader takes is valid. The validator here knows the keywords that the schema uses and
// fails on any other.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "core/training/training.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/experiment/experiment.hpp"
#include "orchestrator/experiment/experiment_schema.hpp"
#include "profiles/strict_toml.hpp"

using namespace dynamiccl;
using nlohmann::json;

namespace {

json as_json(const std::string& toml_text) {
  std::ostringstream out;
  out << toml::json_formatter{parse_toml(toml_text, "test")};
  return json::parse(out.str());
}

bool has_type(const json& value, const std::string& type) {
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "array") return value.is_array();
  return type == "object" && value.is_object();
}

std::string invalid(const json& value, const json& schema, const std::string& at);

std::string invalid_object(const json& value, const json& schema, const std::string& at) {
  if (!value.is_object()) return "";
  const json properties = schema.value("properties", json::object());
  for (const auto& key : schema.value("required", json::array())) {
    if (!value.contains(key.get<std::string>())) return at + " lacks " + key.get<std::string>();
  }
  const json dependencies = schema.value("dependencies", json::object());
  for (const auto& [key, needed] : dependencies.items()) {
    for (const auto& other : needed) {
      if (value.contains(key) && !value.contains(other.get<std::string>()))
        return at + "." + key + " needs " + other.get<std::string>();
    }
  }
  if (value.size() < schema.value("minProperties", std::size_t{0})) return at + " has too few keys";
  for (const auto& [key, inner] : value.items()) {
    if (schema.contains("propertyNames")) {
      const std::string wrong = invalid(key, schema["propertyNames"], at + " key " + key);
      if (!wrong.empty()) return wrong;
    }
    const json rest = schema.value("additionalProperties", json(true));
    const json& inside = properties.contains(key) ? properties[key] : rest;
    if (inside == false) return at + " has unknown key " + key;
    if (inside == true) continue;
    if (const auto wrong = invalid(inner, inside, at + "." + key); !wrong.empty()) return wrong;
  }
  return "";
}

std::string invalid_any(const json& value, const json& choices, const std::string& at) {
  std::string first;
  for (const auto& choice : choices) {
    const auto wrong = invalid(value, choice, at);
    if (wrong.empty()) return "";
    if (first.empty()) first = wrong;
  }
  return first;
}

std::string invalid_array(const json& value, const json& schema, const std::string& at) {
  if (!value.is_array()) return "";
  if (value.size() < schema.value("minItems", std::size_t{0})) return at + " is too short";
  if (schema.contains("contains") &&
      std::none_of(value.begin(), value.end(),
                   [&](const json& item) { return invalid(item, schema["contains"], at).empty(); }))
    return at + " has none that is asked for";
  for (std::size_t i = 0; i < value.size() && schema.contains("items"); ++i) {
    const auto wrong = invalid(value[i], schema["items"], fmt::format("{}[{}]", at, i));
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string invalid(const json& value, const json& schema, const std::string& at) {
  static const std::set<std::string> known{
      "$schema",  "title",    "description",   "type",
      "enum",     "pattern",  "minimum",       "maximum",
      "minItems", "items",    "minProperties", "propertyNames",
      "required", "anyOf",    "properties",    "additionalProperties",
      "allOf",    "contains", "dependencies",  "exclusiveMinimum"};
  for (const auto& [keyword, ignored] : schema.items()) {
    if (!known.contains(keyword)) return "the validator does not know " + keyword;
  }
  if (schema.contains("type")) {
    const json types = schema["type"].is_array() ? schema["type"] : json::array({schema["type"]});
    const bool fits = std::any_of(types.begin(), types.end(), [&](const json& type) {
      return has_type(value, type.get<std::string>());
    });
    if (!fits) return at + " is no " + types.dump() + ": " + value.dump();
  }
  if (schema.contains("enum")) {
    const json& words = schema["enum"];
    if (std::find(words.begin(), words.end(), value) == words.end())
      return at + " is not in its vocabulary: " + value.dump();
  }
  if (schema.contains("pattern") && value.is_string() &&
      !std::regex_search(value.get<std::string>(),
                         std::regex(schema["pattern"].get<std::string>())))
    return at + " does not look right: " + value.dump();
  if (value.is_number() && (value.get<double>() < schema.value("minimum", -1e300) ||
                            value.get<double>() > schema.value("maximum", 1e300) ||
                            value.get<double>() <= schema.value("exclusiveMinimum", -1e300)))
    return at + " is out of range: " + value.dump();
  if (schema.contains("anyOf")) return invalid_any(value, schema["anyOf"], at);
  for (const auto& all : schema.value("allOf", json::array())) {
    if (const auto wrong = invalid(value, all, at); !wrong.empty()) return wrong;
  }
  const auto wrong = invalid_object(value, schema, at);
  return wrong.empty() ? invalid_array(value, schema, at) : wrong;
}

json schema() { return json(experiment_schema()); }

const std::string kGood =
    "name = \"demo\"\n[axes]\nenvironment = \"bare-metal\"\nbackend = \"gloo\"\narchitecture = "
    "\"ring\"\nranks = 2\n[[work]]\ncollective = \"allreduce\"\nsize = \"1KiB\"\n";

/// The keys that the reader knows where an unknown one stands: its message lists them.
std::set<std::string> keys_of_reader(const std::string& text) {
  static const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  std::set<std::string> keys;
  try {
    parse_experiment(text, "demo.toml", {}, profiles);
  } catch (const Error& error) {
    const std::string message = error.what();
    const auto from = message.find("unknown key \"surely_unknown\"");
    REQUIRE(from != std::string::npos);
    const auto list = message.find("known: ", from) + 7;
    // The list ends at the line, or where a suggestion begins.
    auto names = message.substr(list, message.find('\n', list) - list);
    names = names.substr(0, names.find(". Did you"));
    for (const auto& key : split(names, ',')) keys.insert(std::string(trim(key)));
  }
  return keys;
}

std::set<std::string> keys_of(const json& schema_object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : schema_object.at("properties").items()) keys.insert(key);
  return keys;
}

}  // namespace

TEST_CASE("every key of the reader is in the schema, and no other") {
  const json root = schema();
  const json& in = root["properties"];
  CHECK(keys_of(root) == keys_of_reader("surely_unknown = 1\n" + kGood));
  CHECK(keys_of(in["protocol"]) == keys_of_reader(kGood + "[protocol]\nsurely_unknown = 1\n"));
  CHECK(keys_of(in["protocol"]["properties"]["noise"]) ==
        keys_of_reader(kGood + "[protocol.noise]\nsurely_unknown = 1\n"));
  const json& work = in["work"]["items"]["anyOf"];
  CHECK(keys_of(work[0]) == keys_of_reader(kGood + "surely_unknown = 1\n"));
  // The reader knows a training setting only where it stands.
  std::set<std::string> training{"training", "architecture", "backend"};
  for (const auto& setting : training_settings()) training.insert(setting);
  CHECK(keys_of(work[1]) == training);
  CHECK(keys_of(in["axes"]) == keys_of_reader("name = \"demo\"\n[axes]\nsurely_unknown = 1\n" +
                                              kGood.substr(kGood.find("environment"))));
  CHECK(keys_of(in["zip"]["items"]) == keys_of_reader(kGood + "[[zip]]\nsurely_unknown = 1\n"));
  CHECK(keys_of(in["knobs"]["properties"]["gloo"]) ==
        keys_of_reader(kGood + "[knobs.gloo]\nsurely_unknown = 1\n"));
  CHECK(keys_of(in["profile"]["additionalProperties"]) ==
        keys_of_reader(kGood + "[profile.cross-docker]\nsurely_unknown = 1\n"));
}

TEST_CASE("every experiment of the tree is valid by the schema") {
  std::size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(DYNAMICCL_SOURCE_DIR "/experiments")) {
    if (entry.path().extension() != ".toml") continue;
    ++files;
    INFO(entry.path().string());
    CHECK(invalid(as_json(read_input_file(entry.path().string())), schema(), "file") == "");
  }
  CHECK(files > 5);
}

TEST_CASE("the schema refuses what the reader refuses") {
  const auto wrong = [](const std::string& text) {
    return invalid(as_json(text), schema(), "file");
  };
  CHECK(wrong(kGood).empty());
  CHECK(wrong("sead = 1\n" + kGood) == "file has unknown key sead");
  CHECK(wrong(kGood + "datatype = \"float23\"\n").find("vocabulary") != std::string::npos);
  CHECK(wrong(kGood + "[protocol]\niterations = 0\n").find("out of range") != std::string::npos);
  CHECK(wrong(kGood + "[protocol]\ncell_time_cap = \"2 parsecs\"\n").find("look right") !=
        std::string::npos);
  CHECK(wrong("name = \"x\"\n") == "file lacks axes");
  CHECK(wrong(kGood.substr(0, kGood.find("[[work]]"))) == "file lacks work");
}

namespace {

/// What the program and what the schema find wrong with an experiment; "" = nothing.
std::pair<std::string, std::string> both_find(const std::string& text) {
  static const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  std::string program;
  try {
    parse_experiment(text, "demo.toml", {}, profiles);
  } catch (const Error& error) {
    program = error.what();
  }
  return {program, invalid(as_json(text), schema(), "file")};
}

void both_take(const std::string& text) {
  const auto [program, by_schema] = both_find(text);
  INFO(text);
  CHECK(program == "");
  CHECK(by_schema == "");
}

void both_refuse(const std::string& text) {
  const auto [program, by_schema] = both_find(text);
  INFO(text);
  CHECK_FALSE(program.empty());
  CHECK_FALSE(by_schema.empty());
}

std::string with_size(const std::string& size) {
  return kGood.substr(0, kGood.find("size =")) + "size = " + size + "\n";
}

}  // namespace

TEST_CASE("schema and program take the same sizes") {
  for (const char* size : {"8", "4B", "007", "64KiB", "1 MiB", "1.5MiB", "0.5KiB", "2.125G", "3.0K",
                           "1MB", "0.250KB", "999999999999999999"})
    both_take(with_size(fmt::format("\"{}\"", size)));
  for (const char* size : {"65536", "{from = \"4B\", to = \"1.5KiB\", factor = 3}", "[1, \"2K\"]"})
    both_take(with_size(size));
  for (const char* size :
       {"0", "0B", "0.0KiB", "3.7", "1.5B", "1.0001KiB", "1e3", "1e3K", ".5K", "1.K", "-4", "+4",
        "1TiB", "1kB", " 1KiB", "1KiB ", "", "99999999999999999999", "1234567890123G"})
    both_refuse(with_size(fmt::format("\"{}\"", size)));
  both_refuse(with_size("\"" + std::string(100'000, '1') + "\""));
  for (const char* size : {"0", "-1", "1.5", "true", "[]", "{from = \"0\", to = 8}"})
    both_refuse(with_size(size));
  CHECK(
      both_find(with_size("\"1.0001KiB\""))
          .first.find(
              "expected a size in whole bytes, or in eighths of a K, M or G such as \"1.5MiB\"") !=
      std::string::npos);
}

TEST_CASE("schema and program take the same protocols") {
  const auto with = [](const std::string& line) { return kGood + "[protocol]\n" + line + "\n"; };
  for (const char* key : {"launch_timeout", "connect_timeout", "time_budget"}) {
    for (const char* value : {"\"1ms\"", "\"0.5 s\"", "\"0.01s\"", "\"10m\"", "7", "0.5"})
      both_take(with(fmt::format("{} = {}", key, value)));
    for (const char* value : {"0", "0.0", "\"0\"", "\"0s\"", "\"0.00ms\"", "-1", "\"1e3\"",
                              "\"1e3ms\"", "\".5s\"", "\"1d\"", "\"\"", "1e12", "inf"})
      both_refuse(with(fmt::format("{} = {}", key, value)));
  }
  both_take(with("cell_time_cap = 0"));
  both_take(with("batch_target = \"0us\""));
  both_refuse(with("cell_time_cap = \"1e3\""));
  for (const auto& [key, most] : std::map<std::string, int>{{"launches", 10'000},
                                                            {"retries", 100},
                                                            {"iterations", 10'000'000},
                                                            {"warmup", 1'000'000},
                                                            {"max_batch", 1'000'000}}) {
    both_take(with(fmt::format("{} = {}", key, most)));
    both_refuse(with(fmt::format("{} = {}", key, most + 1)));
    both_refuse(with(fmt::format("{} = 99999999999", key)));
    both_refuse(with(fmt::format("{} = -1", key)));
  }
  both_take(with("max_launches = 10000\ntarget_interval = 0.1"));
  both_refuse(with("max_launches = 10001\ntarget_interval = 0.1"));
  both_refuse(with("max_launches = 50"));
}

TEST_CASE("schema and program ask for the same names and axes") {
  const auto axes = kGood.find("[axes]");
  const auto work = kGood.find("[[work]]");
  for (const char* name : {"", " ", "\\t"})
    both_refuse(fmt::format("name = \"{}\"\n", name) + kGood.substr(axes));
  both_refuse("name = \"x\"\n" + kGood.substr(work));
  for (const std::string axis : {"environment", "backend", "architecture", "ranks"}) {
    auto text = kGood;
    const auto at = text.find(axis + " = ");
    text.erase(at, text.find('\n', at) + 1 - at);
    both_refuse(text);
  }
  const std::string zipped = "[[zip]]\nbackend = [\"gloo\", \"mpich\"]\nranks = [2, 4]\n";
  both_take("name = \"x\"\n[axes]\nenvironment = \"bare-metal\"\narchitecture = \"ring\"\n" +
            zipped + kGood.substr(work));
  both_refuse("name = \"x\"\n[axes]\nenvironment = \"bare-metal\"\n" + zipped + kGood.substr(work));
  auto many = kGood;
  many.replace(many.find("ranks = 2"), 9, "ranks = 2000000");
  both_refuse(many);
}

TEST_CASE("the schema file for editors is what the program prints") {
  std::ifstream file(DYNAMICCL_SOURCE_DIR "/experiments/experiment.schema.json");
  std::ostringstream text;
  text << file.rdbuf();
  INFO("make it anew: dynamiccl schema > experiments/experiment.schema.json");
  CHECK(text.str() == experiment_schema().dump(2) + "\n");
}
