#include "tuner/job/decision_record.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_limit.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/json_problem.hpp"
#include "core/vocabulary/others_files.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "tuner/state/features.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

constexpr std::int64_t kLongestLine = std::int64_t{1} << 20;
/// Keys are sorted.
constexpr std::string_view kLineBegin = "{\"agent\":";
/// The largest file of decisions that is read, as of other programs' logs.
constexpr std::uintmax_t kMostDecisionsMib = 256;

json number_or_null(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? json(*number) : json();
}

std::optional<double> optional_number(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

}  // namespace

DecisionRecord record_of(const Task& task, const Choice& choice, const State& state) {
  const ActionSpace& space = *task.space;
  const Action& arm = space.arms()[choice.arm];
  DecisionRecord record;
  record.task_key = task.key.task.text();
  record.arm = space.text(arm);
  record.propensity = std::clamp(choice.propensity, 1e-12, 1.0);
  record.state = state_json(state);
  record.candidates = candidates_json(space);
  record.asked = setting_json(space.setting(arm));
  return record;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DecisionRecord, environment, regime, step, kind, epoch, arm,
                                   propensity, state, candidates, guard, asked, applied, calls,
                                   reward_terms)

std::string decision_line(const DecisionRecord& record) {
  json object = record;
  object["agent"] = record.author.agent;
  object["policy"] = record.author.policy_version;
  object["seed"] = record.author.seed;
  object["task"] = record.task_key;
  object["regime_name"] = record.regime_name;
  object["time_us"] = number_or_null(record.time_us);
  object["reference_us"] = number_or_null(record.reference_us);
  object["reward"] = number_or_null(record.reward);
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

namespace {

[[noreturn]] void no_decision(const std::string& source, const std::string& why) {
  throw Error(ErrorKind::data, source + ": the line is no decision: " + why +
                                   "; the leader's file holds one JSON object per line");
}

}  // namespace

DecisionRecord decision_from_line(const std::string& line, const std::string& source) {
  try {
    const json object = parsed_json(line);
    auto record = object.get<DecisionRecord>();
    record.author = {object.at("agent"), object.at("policy"), object.at("seed")};
    record.task_key = object.at("task");
    record.regime_name = object.value("regime_name", "");
    record.time_us = optional_number(object, "time_us");
    record.reference_us = optional_number(object, "reference_us");
    record.reward = optional_number(object, "reward");
    constexpr std::array kinds{"reference", "explore", "exploit", "final"};
    const bool sound = record.step >= 0 && record.calls >= 0 && record.propensity > 0 &&
                       record.propensity <= 1 && !record.author.agent.empty() &&
                       std::find(kinds.begin(), kinds.end(), record.kind) != kinds.end() &&
                       record.state.is_object() && record.candidates.is_object() &&
                       (record.reward_terms.is_null() || record.reward_terms.is_object());
    if (!sound) throw Error(ErrorKind::data, "a field is out of its range or of another kind");
    return record;
  } catch (const json::exception& error) {
    no_decision(source, json_problem(error));
  } catch (const std::exception& error) {
    no_decision(source, error.what());
  }
}

namespace {

/// What the machine lacks is no mistake in a name.
ErrorKind kind_of_refusal(int error) {
  constexpr std::array kOfTheMachine{ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM, EIO};
  return std::find(kOfTheMachine.begin(), kOfTheMachine.end(), error) != kOfTheMachine.end()
             ? ErrorKind::environment
             : ErrorKind::input;
}

bool is_null_device(const struct stat& status) {
  return S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3);
}

}  // namespace

DecisionFile::DecisionFile(const std::string& path) : path_(path) {
  if (path.empty()) return;
  // Folders of jobs may be everybody's: a pipe there would wait for its reader whatever signal
  // comes, and a link would have another file written to.
  file_ =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
  if (file_ < 0)
    throw Error(kind_of_refusal(errno),
                "cannot write the decisions to " + path + ": " +
                    (errno == ELOOP ? "it is a link" : std::strerror(errno)) +
                    "; choose another folder or file");
  struct stat status {};
  const bool known = ::fstat(file_, &status) == 0;
  if (known && is_null_device(status)) {
    ::close(std::exchange(file_, -1));
    return;
  }
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(file_);
    throw Error(ErrorKind::input, "cannot write the decisions to " + path +
                                      ": it is no regular file; choose another folder or file, or "
                                      "/dev/null to keep none");
  }
  cut_torn_end(status.st_size);
}

DecisionFile::~DecisionFile() {
  if (file_ >= 0) ::close(file_);
}

/// What a writer that was killed in its last line left of it would make the next line none.
void DecisionFile::cut_torn_end(std::int64_t size) {
  std::string end(static_cast<std::size_t>(std::min(size, kLongestLine)), '\0');
  const std::int64_t begin = size - static_cast<std::int64_t>(end.size());
  if (::pread(file_, end.data(), end.size(), begin) != static_cast<ssize_t>(end.size())) return;
  const std::size_t last = end.rfind('\n');
  const std::size_t whole = last == std::string::npos ? 0 : last + 1;
  // Nothing is taken from a file of somebody's notes.
  const std::string_view torn = std::string_view(end).substr(whole, kLineBegin.size());
  if ((last == std::string::npos && begin > 0) || torn.empty() || !kLineBegin.starts_with(torn))
    return;
  [[maybe_unused]] const int cut = ::ftruncate(file_, begin + static_cast<std::int64_t>(whole));
}

void DecisionFile::add(const DecisionRecord& record) {
  if (file_ < 0) return;
  const std::string line = decision_line(record) + "\n";
  const FileLimitSignal limit;  // the report of a part that is taken ends a program by that signal
  const off_t before = ::lseek(file_, 0, SEEK_END);
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t part = ::write(file_, line.data() + written, line.size() - written);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) {
      why_ = part < 0 ? std::strerror(errno) : "the file takes no more";
      break;
    }
    // Where room ends, a part is taken, and only the next one says why.
    written += static_cast<std::size_t>(part);
  }
  if (written == line.size()) return;
  ++lost_;
  // The beginning of a line is none, and would spoil the next one.
  if (written > 0 && before >= 0) [[maybe_unused]]
    const int cut = ::ftruncate(file_, before);
}

std::string DecisionFile::problem() const {
  if (lost_ == 0) return "";
  return path_ + ": " + std::to_string(lost_) + " choice" + (lost_ == 1 ? " is" : "s are") +
         " not in it: " + why_;
}

std::vector<DecisionRecord> parse_decisions(const std::string& text, const std::string& path) {
  std::vector<DecisionRecord> records;
  std::size_t number = 0;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find('\n', at);
    // Whoever wrote it was killed in the last line.
    if (end == std::string::npos) break;
    ++number;
    if (end > at)
      records.push_back(
          decision_from_line(text.substr(at, end - at), path + ":" + std::to_string(number)));
    at = end + 1;
  }
  return records;
}

std::vector<DecisionRecord> read_decisions(const std::string& path) {
  require_whole_file(path, kMostDecisionsMib);
  const auto text = read_file(path);
  if (!text) throw Error(ErrorKind::input, path + ": cannot be read");
  return parse_decisions(*text, path);
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
  for (const Feature& feature : feature_table()) {
    json values = json::array();
    for (int i = 0; i < feature.width; ++i, ++column)
      values.push_back(std::round(static_cast<double>(encoded[column]) * 1e4) / 1e4);
    if (feature.known(state)) object[std::string(feature.name)] = values;
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
  return {{"base", terms.base},         {"call_shaping", terms.call_shaping},
          {"switched", terms.switched}, {"congestion", terms.congestion},
          {"probe", terms.probe},       {"sm", terms.sm},
          {"fault", terms.fault}};
}

}  // namespace dynamiccl
