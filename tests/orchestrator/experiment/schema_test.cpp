// The schema against the reader: every key of the one is a key of the other, and every experiment
// that the reader takes is valid.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/experiment/experiment.hpp"
#include "orchestrator/experiment/experiment_keys.hpp"
#include "profiles/strict_toml.hpp"
#include "tests/orchestrator/json_schema.hpp"
#include "train/spec/training.hpp"

using namespace dynamiccl;
using dynamiccl::testing::invalid;
using nlohmann::json;

namespace {

json as_json(const std::string& toml_text) {
  std::ostringstream out;
  out << toml::json_formatter{parse_toml(toml_text, "test")};
  return json::parse(out.str());
}

json schema() { return json(experiment_schema()); }

const std::string kGood =
    "name = \"demo\"\n[axes]\nenvironment = \"bare-metal\"\nbackend = \"gloo\"\narchitecture = "
    "\"ring\"\nranks = 2\n[[work]]\ncollective = \"allreduce\"\nsize = \"1KiB\"\n";

/// A key that a file may choose, by what stands for it in the page.
std::string chosen_name(const std::string& chosen, const std::string& path) {
  if (path == "profile") return "cross-docker";
  if (chosen == "COLLECTIVE") return "allreduce";
  return chosen == "SETTING" ? "\"env.A\"" : "x_y";
}

/// The dotted paths of all keys, as --set takes them; of [[tables]] those of the first.
void paths_of(const TableKeys& keys, const std::string& path, std::vector<std::string>& paths) {
  const auto visit = [&](const std::string& name, const ValueRule& rule) {
    const std::string own = path.empty() ? name : path + "." + name;
    // A list of tables is not replaced by a date, but by one in it.
    if (rule.kind != ValueKind::table || rule.count == HowMany::one) paths.push_back(own);
    if (rule.kind != ValueKind::table || rule.count == HowMany::list) return;
    const bool one = rule.count == HowMany::one;
    paths_of(*rule.tables.front(), one ? own : own + ".0", paths);
  };
  for (const Key& key : keys.keys) visit(key.name, key.value);
  if (keys.others) visit(chosen_name(keys.chosen, path), *keys.others);
}

std::string mistakes_in(const std::string& text, const std::vector<std::string>& overrides) {
  static const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  try {
    parse_experiment(text, "demo.toml", overrides, profiles);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every key of the table is read, and checked by it") {
  std::vector<std::string> paths;
  paths_of(experiment_keys(), "", paths);
  CHECK(paths.size() > 200);
  const std::string zip = "[[zip]]\ndatatype = \"float32\"\nin_place = false\n";
  for (const auto& path : paths) {
    INFO(path);
    const std::string found = mistakes_in(kGood + zip, {path + "=1979-05-27"});
    CHECK(found.find("expected ") != std::string::npos);
    CHECK(found.find("found a date or time") != std::string::npos);
  }
  const std::string training =
      kGood.substr(0, kGood.find("[[work]]")) + "[[work]]\ntraining = \"dear\"\nmodel = \"mlp\"\n";
  paths.clear();
  paths_of(training_work_keys(), "work.0", paths);
  CHECK(paths.size() == 3 + training_settings().size());
  for (const auto& path : paths) {
    INFO(path);
    CHECK(mistakes_in(training, {path + "=1979-05-27"}).find("found a date") != std::string::npos);
  }
}

TEST_CASE("a mistake is told once, and nothing that follows from it") {
  const auto with = [](std::string text, const std::string& old, const std::string& now) {
    text.replace(text.find(old), old.size(), now);
    return mistakes_in(text, {});
  };
  CHECK(
      with(kGood, "\"demo\"", "\"a\\nb\"") ==
      "demo.toml:1:8: name: the text holds the control character U+000A: leave it out, no name or "
      "setting has one");
  CHECK(with(kGood, "name = \"demo\"\n", "") ==
        "demo.toml:1:1: the file needs the key name: what the runs are listed under");
  CHECK(mistakes_in("seed = 1.0\n" + kGood, {}) ==
        "demo.toml:1:8: seed: expected a whole number from 0 without a point, as 1, found the "
        "number 1.0");
  CHECK(mistakes_in("name = \"x\"\naxes = 3\n" + kGood.substr(kGood.find("[[work]]")), {}) ==
        "demo.toml:2:8: axes: expected a table [axes], found the number 3");
  CHECK(mistakes_in(kGood + "[protocol]\niterations = \"many\"\nmin_iterations = 500\n", {}) ==
        "demo.toml:11:14: protocol.iterations: expected a whole number 1..10000000, found the text "
        "\"many\"");
  CHECK(mistakes_in(kGood + "[[zip]]\ndatatype = [\"float32\", \"flaot64\"]\nin_place = [true, "
                            "false]\n",
                    {})
            .find('\n') == std::string::npos);
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
       {"0KiB", "00", "0.0KiB", "3.7", "1.5B", "1.0001KiB", "1e3", "1e3K", ".5K", "1.K", "-4", "+4",
        "1TiB", "1kB", " 1KiB", "1KiB ", "", "99999999999999999999", "1234567890123G"})
    both_refuse(with_size(fmt::format("\"{}\"", size)));
  both_refuse(with_size("\"" + std::string(100'000, '1') + "\""));
  // A call of nothing.
  for (const char* size : {"0", "\"0\"", "\"0B\"", "[0, 8]"}) both_take(with_size(size));
  for (const char* size :
       {"-1", "1.5", "true", "{from = 0, to = 8}", "[]", "{from = \"0\", to = 8}"})
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

TEST_CASE("the schema file for editors is what the program prints, and the page has every table") {
  {
    INFO("make it anew: dynamiccl schema > experiments/experiment.schema.json");
    CHECK(read_input_file(DYNAMICCL_SOURCE_DIR "/experiments/experiment.schema.json") ==
          experiment_schema().dump(2) + "\n");
  }
  const std::string page = experiment_keys_page();
  for (const char* heading : {"## [protocol]", "## [[work]] with `training`", "## [profile.NAME]",
                              "## [knobs.BACKEND.malloc]", "## [tune]"})
    CHECK(page.find(std::string(heading) + "\n") != std::string::npos);
}
