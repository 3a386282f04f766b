#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "tuner/search/search.hpp"

namespace dynamiccl {

/// What whoever tunes a job says of itself in every record.
struct DecisionAuthor {
  std::string agent;           ///< "bandit", "ppo"
  std::string policy_version;  ///< "": no policy
  std::uint64_t seed = 0;
};

/// One choice made for a running job and what came of it: a line of a decision file, with the
/// fields of the `decision` table.
struct DecisionRecord {
  DecisionAuthor author;
  std::string task_key;
  std::string environment = "job";
  std::string regime;
  std::string regime_name;
  int step = 0;
  std::string kind;  ///< "reference", "explore", "exploit" or "final"
  std::uint64_t epoch = 0;
  std::string arm;
  double propensity = 1;
  nlohmann::json state = nlohmann::json::object();
  nlohmann::json candidates = nlohmann::json::object();
  std::string guard = "pass";
  nlohmann::json asked = nlohmann::json::object();
  nlohmann::json applied;  ///< null: nothing could be read back
  std::int64_t calls = 0;
  std::optional<double> time_us;
  std::optional<double> reference_us;
  std::optional<double> reward;
  nlohmann::json reward_terms;  ///< null: no reward
};

/// What a record says of a choice: the arm, its settings, and the state that it was made in.
DecisionRecord record_of(const Task& task, const Choice& choice, const State& state);

/// One line without its end.
std::string decision_line(const DecisionRecord& record);
/// @throws Error(data) when the line is no record; `source` names the file
DecisionRecord decision_from_line(const std::string& line, const std::string& source);

/// Appends records to a file of its own, each at once, so that a killed writer leaves whole lines
/// but for the last. One thread.
class DecisionFile {
 public:
  /// @param path "" or /dev/null: nothing is written
  /// @throws Error(input) when it may not be written, is a link or no regular file,
  /// Error(environment) when the machine has no room
  explicit DecisionFile(const std::string& path);
  ~DecisionFile();
  DecisionFile(const DecisionFile&) = delete;
  DecisionFile& operator=(const DecisionFile&) = delete;
  /// A full disk costs the record, never the job, nor the file's other lines.
  void add(const DecisionRecord& record);
  /// Says how many records were lost, and why; "": none.
  [[nodiscard]] std::string problem() const;

 private:
  void cut_torn_end(std::int64_t size);

  std::string path_;
  int file_ = -1;
  int lost_ = 0;
  std::string why_;
};

/// All records of a file; a torn last line is left out.
/// @throws Error(input) when it cannot be read, Error(data) when another line is damaged
std::vector<DecisionRecord> read_decisions(const std::string& path);
/// The same of what was read already. @throws Error(data) with file and line
std::vector<DecisionRecord> parse_decisions(const std::string& text, const std::string& path);

/// Parts of records as the decision log keeps them.
nlohmann::json setting_json(const ActionSettings& setting);
/// The encoded vector by feature name; what is unknown is left out.
nlohmann::json state_json(const State& state);
/// Knobs with their values and which of them occur in an arm, and the number of arms.
nlohmann::json candidates_json(const ActionSpace& space);
nlohmann::json reward_json(const RewardTerms& terms);

}  // namespace dynamiccl
