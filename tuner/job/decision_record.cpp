#include "tuner/job/decision_record.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "core/vocabulary/error.hpp"
#include "tuner/state/feature_sources.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

json number_or_null(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? json(*number) : json();
}

std::optional<double> optional_number(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

}  // namespace

std::string decision_line(const DecisionRecord& record) {
  return json{{"agent", record.author.agent},
              {"policy", record.author.policy_version},
              {"seed", record.author.seed},
              {"task", record.task_key},
              {"environment", record.environment},
              {"regime", record.regime},
              {"regime_name", record.regime_name},
              {"step", record.step},
              {"kind", record.kind},
              {"epoch", record.epoch},
              {"arm", record.arm},
              {"propensity", record.propensity},
              {"state", record.state},
              {"candidates", record.candidates},
              {"guard", record.guard},
              {"asked", record.asked},
              {"applied", record.applied},
              {"calls", record.calls},
              {"time_us", number_or_null(record.time_us)},
              {"reference_us", number_or_null(record.reference_us)},
              {"reward", number_or_null(record.reward)},
              {"reward_terms", record.reward_terms}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

DecisionRecord decision_from_line(const std::string& line, const std::string& source) {
  try {
    const json object = json::parse(line);
    DecisionRecord record;
    record.author = {object.at("agent"), object.at("policy"), object.at("seed")};
    record.task_key = object.at("task");
    record.environment = object.at("environment");
    record.regime = object.at("regime");
    record.regime_name = object.value("regime_name", "");
    record.step = object.at("step");
    record.kind = object.at("kind");
    record.epoch = object.at("epoch");
    record.arm = object.at("arm");
    record.propensity = object.at("propensity");
    record.state = object.at("state");
    record.candidates = object.at("candidates");
    record.guard = object.at("guard");
    record.asked = object.at("asked");
    record.applied = object.at("applied");
    record.calls = object.at("calls");
    record.time_us = optional_number(object, "time_us");
    record.reference_us = optional_number(object, "reference_us");
    record.reward = optional_number(object, "reward");
    record.reward_terms = object.at("reward_terms");
    constexpr std::array kinds{"reference", "explore", "exploit", "final"};
    const bool sound = record.step >= 0 && record.calls >= 0 && record.propensity > 0 &&
                       record.propensity <= 1 && !record.author.agent.empty() &&
                       std::find(kinds.begin(), kinds.end(), record.kind) != kinds.end();
    if (!sound) throw Error(ErrorKind::data, "a field is out of its range");
    return record;
  } catch (const std::exception& error) {
    throw Error(ErrorKind::data, source + ": a line is no decision: " + error.what() +
                                     "; the leader's file holds one JSON object per line");
  }
}

DecisionFile::DecisionFile(const std::string& path) {
  if (path.empty()) return;
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0)
    throw Error(ErrorKind::environment, "cannot write the decisions to " + path + ": " +
                                            std::strerror(errno) + "; choose another folder");
}

DecisionFile::~DecisionFile() {
  if (file_ >= 0) ::close(file_);
}

void DecisionFile::add(const DecisionRecord& record) {
  if (file_ < 0) return;
  const std::string line = decision_line(record) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(file_, line.data(), line.size());
}

std::vector<DecisionRecord> read_decisions(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorKind::input, path + ": cannot be read");
  std::vector<DecisionRecord> records;
  std::string line;
  while (std::getline(file, line)) {
    // Whoever wrote it was killed in the last line.
    if (file.eof()) break;
    if (!line.empty()) records.push_back(decision_from_line(line, path));
  }
  return records;
}

json setting_json(const ActionSettings& setting) {
  return {{"algorithm", setting.algorithm},
          {"call", setting.call_knobs},
          {"launch", setting.launch_knobs}};
}

json state_json(const State& state) {
  json object = json::object();
  const Eigen::VectorXf encoded = encode(state);
  Eigen::Index column = 0;
  auto source = feature_sources().begin();
  for (const Feature& feature : feature_table()) {
    json values = json::array();
    for (int i = 0; i < feature.width; ++i, ++column)
      values.push_back(std::round(static_cast<double>(encoded[column]) * 1e4) / 1e4);
    if ((source++)->known(state)) object[std::string(feature.name)] = values;
  }
  return object;
}

json candidates_json(const ActionSpace& space) {
  json knobs = json::array();
  for (std::size_t k = 0; k < space.knobs().size(); ++k) {
    const Knob& knob = space.knobs()[k];
    std::vector<bool> used(knob.values.size(), false);
    for (const Action& arm : space.arms()) used[arm[k]] = true;
    std::string mask;
    for (const bool bit : used) mask += bit ? '1' : '0';
    knobs.push_back({{"name", knob.name}, {"values", knob.values}, {"mask", mask}});
  }
  return {{"space", space.name()}, {"arms", space.arms().size()}, {"knobs", knobs}};
}

json reward_json(const RewardTerms& terms) {
  return {{"base", terms.base},
          {"call_shaping", terms.call_shaping},
          {"switched", terms.switched},
          {"congestion", terms.congestion},
          {"probe", terms.probe},
          {"convergence", terms.convergence},
          {"sm", terms.sm},
          {"tier", terms.tier},
          {"fault", terms.fault}};
}

}  // namespace dynamiccl
