#include "tests/fuzz/targets.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/wire/record.hpp"
#include "core/wire/run_config.hpp"
#include "orchestrator/doctor/job/job_logs.hpp"
#include "orchestrator/doctor/job/job_on_hosts.hpp"
#include "orchestrator/doctor/job/job_verdict.hpp"
#include "orchestrator/experiment/experiment.hpp"
#include "orchestrator/experiment/expression.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "orchestrator/import/log_lines.hpp"
#include "plugin/agreement/call_table.hpp"
#include "plugin/agreement/region.hpp"
#include "profiles/detect/probes/environment_probe.hpp"
#include "profiles/detect/regime.hpp"
#include "profiles/profile.hpp"
#include "tests/fuzz/database_target.hpp"
#include "tests/fuzz/wire_targets.hpp"
#include "tuner/agents/policy_file.hpp"
#include "tuner/job/decision_record.hpp"
#include "tuner/job/job_facts.hpp"
#include "tuner/table/table.hpp"

namespace dynamiccl::fuzz {
namespace {

/// A file with the input, for readers that take a path.
class InputFile {
 public:
  explicit InputFile(const std::string& text) {
    std::string name = std::filesystem::temp_directory_path() / "dynamiccl-fuzz-XXXXXX";
    const int file = mkstemp(name.data());
    if (file < 0) throw std::runtime_error("no file for an input");
    [[maybe_unused]] const auto written = write(file, text.data(), text.size());
    close(file);
    path_ = name;
  }
  ~InputFile() { std::remove(path_.c_str()); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void import_text(const std::string& input,
                 std::vector<ForeignStart> (*read)(const std::string&, const std::string&,
                                                   const ImportOptions&),
                 const std::string& format) {
  ImportOptions options;
  options.ranks = 4;
  options.operation = format == "nccl-tests" ? "all_reduce" : "";
  const auto text = decoded_text(input, "x");
  const std::vector<ImportedFile> files{{"x", text, read(text, "x", options)}};
  make_foreign_run(files, format, options);
  import_warnings(files, format, options);
}

void read_nccl(const std::string& input) { import_text(input, read_nccl_tests_text, "nccl-tests"); }
void read_nccl_json(const std::string& input) {
  import_text(input, read_nccl_tests_json, "nccl-tests-json");
}
void read_osu(const std::string& input) { import_text(input, read_osu_text, "osu"); }
void read_imb(const std::string& input) { import_text(input, read_imb_text, "imb"); }

/// As two ranks' files, so that they are compared with each other.
void read_job_logs(const std::string& input) {
  LoggedJob job;
  for (const char* name : {"trace_0", "trace_1"}) read_job_file(job, input, name);
  LogLook look;
  look.verdict = verdict(job);
  to_text(look);
  (void)to_json(look).dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// As two hosts' words, one after the other.
void read_job_looks(const std::string& input) {
  const auto look = joined_look({look_of_host("a", input), look_of_host("b", input)}, {});
  to_text(look);
  (void)to_json(look).dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// From DYNAMICCL_FUZZ_SOURCE where the program runs away from its checkout.
const std::map<std::string, EnvironmentProfile>& shipped_profiles() {
  static const auto profiles = [] {
    const char* elsewhere = std::getenv("DYNAMICCL_FUZZ_SOURCE");
    return load_profiles({std::string(elsewhere != nullptr ? elsewhere : DYNAMICCL_SOURCE_DIR) +
                          "/profiles/environments"});
  }();
  return profiles;
}

void read_experiment_text(const std::string& input) {
  parse_experiment(input, "x.toml", {}, shipped_profiles());
}

void read_expression(const std::string& input) {
  const auto expression = Expression::parse(input, {"bare-metal", "cross-docker"});
  CellView cell;
  cell.environment = "bare-metal";
  cell.backend = "gloo";
  const std::map<std::string, std::string> knobs;
  cell.knobs = &knobs;
  [[maybe_unused]] const bool matches = expression.matches(cell);
}

void read_profile(const std::string& input) {
  const auto profile = parse_profile(input, "x.toml", shipped_profiles());
  profile_from_json(to_json(profile));
}

void read_facts(const std::string& input) {
  const auto facts = json_or_discarded(input);
  if (facts.is_discarded()) return;
  RegimeContext context;
  context.backend = Backend::openmpi;
  derive_regime({facts}, context);
}

/// Records of ranks, and choices of leaders, which `import` knows by the same word.
void read_records(const std::string& input) {
  if (input.find("\"propensity\"") == std::string::npos) {
    const InputFile file(input);
    read_record_file(file.path());
    return;
  }
  for (const auto& choice : parse_decisions(input, "x.jsonl")) {
    const std::string line = decision_line(choice);
    if (decision_line(decision_from_line(line, "x.jsonl")) != line)
      throw std::logic_error("a choice that was written is not read as the same");
  }
}

void read_run_config(const std::string& input) { run_config_from_json(input); }

/// The digest of its weights is put right: no other input would come past it.
void read_policy_text(const std::string& input) {
  const auto first = input.find('\n');
  const auto second = first == std::string::npos ? first : input.find('\n', first + 1);
  std::string text = input;
  if (second != std::string::npos) {
    auto header = json_or_discarded(input.substr(first + 1, second - first - 1));
    const std::string weights = input.substr(second + 1);
    if (header.is_object()) header["sha256"] = sha256_hex(weights);
    if (!header.is_discarded()) text = input.substr(0, first + 1) + header.dump() + "\n" + weights;
  }
  const InputFile file(text);
  read_policy(file.path());
}

/// Tables and policies: what `tune` and `export` choose by. As it is and with the digest put right.
void read_configuration_table(const std::string& input) {
  if (input.starts_with("DYNAMICCL-POLICY")) return read_policy_text(input);
  auto body = json_or_discarded(input);
  if (!body.is_object() || !body.contains("sha256")) {
    table_from_json(input, "x.json");
    return;
  }
  body.erase("sha256");
  body["sha256"] = sha256_hex(body.dump());
  const auto table = table_from_json(body.dump(), "x.json");
  const std::string written = to_json(table);
  if (to_json(table_from_json(written, "x.json")) != written)
    throw std::logic_error("a table that was written is not read as the same");
}

void read_call_table(const std::string& input) {
  std::string problem;
  const auto rows = call_table_from_text(input, problem).rows;
  if (!problem.empty()) return;
  table_for(rows, 4, 2);
  if (call_table_from_text(to_text(rows), problem).rows != rows)
    throw std::logic_error("a table that was written is not read as the same");
}

void read_region(const std::string& input) {
  const InputFile file(input);
  std::string problem;
  const auto region = Region::open(file.path(), problem);
  if (region == nullptr) return;
  CallTable table;
  for (const auto& published : region->header().tables) {
    Proposal proposal;
    proposal.epoch = published.epoch;
    region->copy_table(proposal, table);
  }
  for (std::size_t i = 0; i < region->ranks(); ++i) region->slot(i).acked.load();
}

void read_provenance(const std::string& input) {
  std::vector<std::string> words;
  std::string word;
  for (const char letter : input) {
    if (letter == '\n')
      words.push_back(std::exchange(word, ""));
    else
      word += letter;
  }
  words.push_back(word);
  const auto recorded = recorded_command(words);
  if (recorded.size() != words.size())
    throw std::logic_error("a recorded command has as many words as the command");
  for (const auto& shown : recorded)
    if (printable(shown).find('\x1b') != std::string::npos)
      throw std::logic_error("an escape reached the terminal");
}

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> all{{"nccl-tests", read_nccl},
                                       {"nccl-tests-json", read_nccl_json},
                                       {"osu", read_osu},
                                       {"imb", read_imb},
                                       {"experiment", read_experiment_text},
                                       {"expression", read_expression},
                                       {"profile", read_profile},
                                       {"facts", read_facts},
                                       {"records", read_records},
                                       {"record-frames", read_record_frames},
                                       {"run-config", read_run_config},
                                       {"configuration-table", read_configuration_table},
                                       {"call-table", read_call_table},
                                       {"region", read_region},
                                       {"provenance", read_provenance},
                                       {"database", read_database},
                                       {"job-log", read_job_logs},
                                       {"job-looks", read_job_looks}};
  return all;
}

void try_input(const Target& target, const std::string& input) {
  try {
    target.read(input);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw std::logic_error(error.what());
  }
}

}  // namespace dynamiccl::fuzz
