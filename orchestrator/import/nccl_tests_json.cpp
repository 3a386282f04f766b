#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json_problem.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/setting.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "orchestrator/import/import_options.hpp"
#include "orchestrator/import/launch_lines.hpp"
#include "profiles/detect/probes/environment_probe.hpp"
#include "profiles/detect/probes/known_variables.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// More than anyone makes or has; what is multiplied from two of them is still a number.
constexpr std::uint64_t kMostCalls = 1'000'000'000;

/// Variables that steer libraries: the file holds the whole environment, secrets too. Of NCCL's
/// those that are not known are recognised by their names.
void add_variables(ForeignStart& start, const json& document) {
  if (!document.contains("env") || !document["env"].is_array()) return;
  for (const auto& entry : document["env"]) {
    if (!entry.is_string()) continue;
    const auto text = entry.get<std::string>();
    const auto equals = text.find('=');
    const auto name = text.substr(0, equals);
    if (equals == std::string::npos || !steers_library(name) ||
        (!is_known_variable(name) && !name.starts_with("NCCL_")))
      continue;
    const auto setting = setting_text(SettingScope::env, name);
    add_setting(start, setting, text.substr(equals + 1));
    start.environment[name] = start.settings.at(setting);
  }
}

/// 22703 is NCCL 2.27.3.
std::string nccl_version(int code) {
  return code < 10000 ? fmt::format("{}.{}.{}", code / 1000, code / 100 % 10, code % 100)
                      : fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

std::string row_text(const json& row, const char* name) {
  const auto found = row.find(name);
  return found != row.end() && found->is_string() ? std::string(trim(found->get<std::string>()))
                                                  : "";
}

/// A count of the document, by its place in it; as it is read in text.
std::uint64_t count_in(const json& object, const char* key, const std::string& where,
                       std::uint64_t otherwise) {
  const auto found = object.find(key);
  return found == object.end() ? otherwise
                               : count_of(found->dump(), where + "." + key, "value", kMostCalls);
}

/// Ranks whose times these are, and in how many groups all ranks were. A device stands for the
/// process whose first it is; a split makes groups of processes that measure at the same time, and
/// the first process, which writes, is in the one that counts.
struct RankGroups {
  std::uint64_t processes = 1;
  std::size_t groups = 1;
};

RankGroups groups_of(const json& devices) {
  if (devices.empty()) return {};
  const int measured = devices.front().value("group", 0);
  RankGroups ranks{0, 0};
  std::set<int> groups;
  for (const auto& device : devices) {
    const int group = device.value("group", 0);
    groups.insert(group);
    if (group == measured) ++ranks.processes;
  }
  ranks.groups = groups.size();
  return ranks;
}

/// Reads one document of -J.
class JsonReader {
 public:
  JsonReader(std::string path, const ImportOptions& options)
      : path_(std::move(path)), options_(options) {}

  ForeignStart read(const json& document) {
    start_.argv = recorded_command(document.value("args", std::vector<std::string>{}));
    add_variables(start_, document);
    if (document.contains("nccl_version"))
      start_.source["nccl_library"] = nccl_version(document["nccl_version"].get<int>());
    for (const char* key : {"start_time", "end_time", "average_bus_bandwidth"}) {
      if (document.contains(key)) start_.source[key] = document[key];
    }
    if (!start_.argv.empty()) start_.source["program"] = start_.argv.front();
    read_config(document.value("config", json::object()));
    std::size_t place = 0;
    for (const auto& row : document["results"]) {
      const auto where = fmt::format("{}: results[{}]", path_, place++);
      for (const char* direction : {"out_of_place", "in_place"}) add_row(row, direction, where);
    }
    if (empty_rows_ > 0)
      start_.warnings.push_back(
          fmt::format("rows of 0 bytes move nothing and are left out: {}", empty_rows_));
    note_end(document);
    note_verdicts(document);
    return std::move(start_);
  }

 private:
  /// The program writes its times of start and end and the average last of all.
  void note_end(const json& document) {
    std::vector<std::string> missing;
    for (const char* key : {"end_time", "average_bus_bandwidth"})
      if (!document.contains(key)) missing.emplace_back(key);
    std::string errors;
    if (const auto found = document.find("errors"); found != document.end() && found->is_array())
      for (const auto& error : *found)
        errors += (errors.empty() ? "" : "; ") +
                  (error.is_object() ? row_text(error, "message") : error.dump());
    if (missing.empty() && errors.empty()) return;
    std::string largest;
    if (!start_.rows.empty())
      largest = fmt::format("after its row of {} bytes", start_.rows.back().size_bytes);
    start_.cut_off = fmt::format("{} there is no {}, with which nccl-tests ends", largest,
                                 join(missing, " and no "));
    if (missing.empty()) start_.cut_off = largest + " it ended with an error";
    if (!errors.empty()) start_.cut_off += ": it says \"" + errors + "\"";
  }

  static bool says_no(const json& document, const char* name) {
    const auto found = document.find(name);
    if (found == document.end() || !found->is_object()) return false;
    const auto okay = found->find("okay");
    if (okay == found->end()) return false;
    return okay->is_boolean() ? !okay->get<bool>()
                              : okay->is_string() && verdict_of(okay->get<std::string>()) == false;
  }

  /// The program's own verdicts: where no row tells of wrong values, all rows are meant.
  void note_verdicts(const json& document) {
    for (const auto& [name, value] : document.items()) {
      if (!says_no(document, name.c_str())) continue;
      if (name == "average_bus_bandwidth") {
        start_.warnings.emplace_back(
            "its average bus bandwidth failed against the least that it was asked for");
        continue;
      }
      if (std::any_of(start_.rows.begin(), start_.rows.end(),
                      [](const ForeignRow& row) { return row.wrong.value_or(0) > 0; }))
        continue;
      for (auto& row : start_.rows) {
        row.wrong = 1;
        row.wrong_reason = "the program's own verdict " + name + " is not okay";
      }
    }
  }

  void read_config(const json& config) {
    const std::string where = path_ + ": config";
    const auto number = [&](const char* key, std::uint64_t otherwise) {
      return count_in(config, key, where, otherwise);
    };
    if (config.contains("warmup_iters"))
      start_.warmup = static_cast<int>(number("warmup_iters", 0));
    if (config.contains("iterations"))
      start_.iterations = static_cast<int>(number("iterations", 0));
    together_ = static_cast<std::int64_t>(number("aggregated_iterations", 1));
    start_.calls = std::max<std::int64_t>(1, start_.iterations.value_or(1) * together_);
    if (together_ > 1) start_.settings["agg"] = std::to_string(together_);
    for (const char* key : {"graph", "unalign", "nthreads"})
      if (config.contains(key) && config[key].is_number_integer() &&
          config[key] != (std::string_view(key) == "nthreads" ? 1 : 0))
        start_.settings[key] = config[key].dump();
    // -J writes some of its switches as texts.
    for (const char* key : {"blocking_collectives", "per_iter_timing", "parallel_init"})
      if (config.contains(key) && (config[key] == true || config[key] == "true"))
        start_.settings[key] = "1";
    start_.settings.merge(options_in(start_.argv));
    if (config.contains("validation")) start_.verify = number("validation", 0) != 0;
    const auto devices = config.value("devices", json::array());
    const auto ranks = groups_of(devices);
    groups_ = ranks.groups;
    start_.ranks_of_one_process = devices.empty();
    const auto each = std::min(kMostCalls, number("nthreads", 1) * number("ngpus", 1));
    start_.ranks = static_cast<int>(std::min(kMostCalls, ranks.processes * each));
    for (const auto& device : devices) {
      ordered_json told{{"rank", device.value("rank", 0)}};
      if (device.contains("group")) told["group"] = device["group"];
      told["host"] = device.value("hostname", "");
      told["device"] = device.value("device_info", "");
      start_.source["devices"].push_back(std::move(told));
    }
  }

  [[nodiscard]] std::string operation(const json& row, const std::string& where) const {
    return settled_collective(
        !start_.argv.empty() ? start_.argv.front() : row_text(row, "experiment_name"), where,
        options_);
  }

  void add_row(const json& row, const char* direction, const std::string& where) {
    const auto size = count_of(row.at("size").dump(), where + ".size", "size in bytes");
    const auto body = row.find(direction);
    if (body == row.end() || !body->is_object()) return;
    if (size == 0) {
      ++empty_rows_;
      return;
    }
    const std::string there = where + "." + direction;
    const char* clock = body->contains("time") ? "time" : "cpu_time";
    json count;
    if (row.contains("count"))
      count = count_of(row["count"].dump(), where + ".count", "count of elements");
    auto made = nccl_tests_row(
        {operation(row, where), size, count, row_text(row, "type"), row_text(row, "redop"),
         row_text(row, "root"), std::string_view(direction) == "in_place"},
        groups_);
    made.time_us =
        positive_of(body->value(clock, json()).dump(), there + "." + clock, "time in microseconds");
    made.resolution_us = 5e-7;  // it prints six decimals
    made.wrong = wrong_of(body->value("nwrong", json()).dump(), there + ".nwrong");
    if (const auto bits = body->find("bitwise"); bits != body->end() && bits->is_object()) {
      const auto wrong = count_in(*bits, "different_elements", there + ".bitwise", 0);
      made.wrong = made.wrong.value_or(0) + wrong;
      if (wrong > 0)
        made.wrong_reason = fmt::format("bitwise finds {} elements that differ", wrong);
    }
    if (row.contains("actual_iterations")) {
      const auto calls = count_in(row, "actual_iterations", where, 1);
      made.calls = std::max<std::int64_t>(1, static_cast<std::int64_t>(calls) * together_);
    }
    for (const auto& [name, value] : body->items()) made.reported[name] = value;
    const std::string each = std::string(direction) + "_per_iter";
    if (row.contains(each)) made.reported["per_iteration"] = row[each];
    start_.rows.push_back(std::move(made));
  }

  std::string path_;
  const ImportOptions& options_;
  std::int64_t together_ = 1;  ///< calls that one iteration makes
  std::size_t groups_ = 1;
  std::size_t empty_rows_ = 0;  ///< of 0 bytes, by direction
  ForeignStart start_;
};

json parsed(const std::string& text, const std::string& path) {
  try {
    return parsed_json(text);
  } catch (const json::exception& error) {
    throw Error(ErrorKind::data,
                fmt::format("{}: is no document of nccl-tests -J: {}", path, json_problem(error)));
  }
}

}  // namespace

std::vector<ForeignStart> read_nccl_tests_json(const std::string& text, const std::string& path,
                                               const ImportOptions& options) {
  const json document = parsed(text, path);
  if (!document.is_object() || !document.contains("results") || !document["results"].is_array()) {
    throw Error(ErrorKind::data,
                path + ": is no document of nccl-tests -J: it has no list \"results\"");
  }
  ForeignStart start;
  try {
    start = JsonReader(path, options).read(document);
  } catch (const json::exception& error) {
    throw Error(ErrorKind::data,
                fmt::format("{}: is no document of nccl-tests -J: a value is of another kind than "
                            "nccl-tests writes: {}",
                            path, json_problem(error)));
  }
  if (start.rows.empty())
    throw Error(ErrorKind::data, path + ": its list \"results\" holds no times");
  return {std::move(start)};
}

}  // namespace dynamiccl
