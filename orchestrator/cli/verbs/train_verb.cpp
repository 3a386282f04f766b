#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/others_files.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/run/held_folder.hpp"

namespace dynamiccl {
namespace {

struct TrainArguments {
  std::string out = "results/ppo.policy";
  std::string report;
  int seeds = 5;
  int updates = 40;
  int jobs = 48;
  int columns = 0;
  std::string without;
};

/// As dynamiccl-learn names them.
bool is_file_of_report(const std::string& name) {
  constexpr std::string_view kBegin = "seed-";
  constexpr std::string_view kEnd = ".policy";
  if (name == "curves.csv" || name == "held_out.csv" || name == "ablation.csv") return true;
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd) ||
      name.size() <= kBegin.size() + kEnd.size())
    return false;
  const auto digits = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  return std::all_of(digits.begin(), digits.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// Two places of which one would be the other's folder, or none at all.
void check_names(const TrainArguments& arguments) {
  if (arguments.out.empty())
    throw Error(ErrorKind::input,
                "--out: an empty name is no file; name the policy, or leave --out out for " +
                    TrainArguments{}.out);
  if (arguments.report.empty()) return;
  const auto resolved = [](const std::string& place) {
    auto path = std::filesystem::weakly_canonical(std::filesystem::absolute(place));
    return path.has_filename() ? path : path.parent_path();  // "P/" is P
  };
  const auto policy = resolved(arguments.out);
  if (policy.parent_path() == resolved(arguments.report) &&
      is_file_of_report(policy.filename().string()))
    throw Error(
        ErrorKind::input,
        fmt::format("--out {} --report {}: the report has a file of that name itself (every seed's "
                    "policy is seed-N.policy there), and one would be lost; choose another name "
                    "with --out, as {}",
                    arguments.out, arguments.report,
                    (std::filesystem::path(arguments.report) / "best.policy").string()));
  for (auto folder = resolved(arguments.report); folder.has_relative_path();
       folder = folder.parent_path())
    if (folder == policy)
      throw Error(
          ErrorKind::input,
          fmt::format("--out {} --report {}: the policy is a file, and cannot be the folder "
                      "of the report or one above it; choose another place with --report",
                      arguments.out, arguments.report));
}

/// Minutes of training end in these places: what cannot be written is reported before it begins.
void make_places(const TrainArguments& arguments) {
  const auto make = [](const std::filesystem::path& folder, const char* option) {
    const std::string remedy = fmt::format("choose another place with {}", option);
    make_folder(folder.string(), remedy);
    if (access(folder.c_str(), W_OK) != 0)
      throw Error(ErrorKind::input, fmt::format("{}: cannot be written: {}; {}", folder.string(),
                                                std::strerror(errno), remedy));
  };
  check_names(arguments);
  require_no_strangers(arguments.out, "choose another place with --out");
  if (!arguments.report.empty())
    require_no_strangers(arguments.report, "choose another place with --report");
  if (std::filesystem::is_directory(arguments.out) ||
      !std::filesystem::path(arguments.out).has_filename())
    throw Error(
        ErrorKind::input,
        fmt::format("{}: is a folder, and the policy a file; name it with --out {}", arguments.out,
                    (std::filesystem::path(arguments.out) / "ppo.policy").string()));
  make(std::filesystem::absolute(arguments.out).parent_path(), "--out");
  if (!arguments.report.empty()) make(arguments.report, "--report");
}

/// Training carries libtorch, which this program must not link: it becomes the other one.
[[noreturn]] void become_learner(const TrainArguments& arguments) {
  const std::string program = program_folder() + "/dynamiccl-learn";
  std::vector<std::string> argv{program,
                                "--out",
                                arguments.out,
                                "--seeds",
                                std::to_string(arguments.seeds),
                                "--updates",
                                std::to_string(arguments.updates),
                                "--jobs",
                                std::to_string(arguments.jobs)};
  if (arguments.columns > 0)
    argv.insert(argv.end(), {"--columns", std::to_string(arguments.columns)});
  if (!arguments.without.empty()) argv.insert(argv.end(), {"--without", arguments.without});
  if (!arguments.report.empty()) argv.insert(argv.end(), {"--report", arguments.report});
  std::vector<char*> pointers;
  for (std::string& argument : argv) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv(program.c_str(), pointers.data());
  throw Error(ErrorKind::environment,
              fmt::format("{}: cannot be started: {}; it is built where libtorch is found: "
                          "apt-get install libtorch-dev, then build again",
                          program, std::strerror(errno)));
}

}  // namespace

void add_train_verb(CLI::App& app, Shared& /*shared*/) {
  auto* verb = app.add_subcommand("train", "train the ppo agent's policy on the simulator");
  auto arguments = std::make_shared<TrainArguments>();
  verb->add_option("--out", arguments->out, "the policy file (results/ppo.policy)");
  verb->add_option("--report", arguments->report,
                   "folder for the learning curves, the comparison on held-out places (CSV) and "
                   "every seed's policy (seed-N.policy)");
  verb->add_option("--seeds", arguments->seeds, "independent trainings, the best is kept (5)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--updates", arguments->updates, "policy updates per curriculum stage (40)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--jobs", arguments->jobs, "searches of an update (48)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--columns", arguments->columns,
                   "a smaller policy: of the state's features those that fit into so many columns, "
                   "what the cluster is before what job and library are (all)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--without", arguments->without,
                   "a backend that trains nothing: the comparison is on its regimes alone");
  verb->footer(
      "Example:\n  dynamiccl train --out ppo.policy --report ppo\n"
      "Then: dynamiccl tune search FILE --agent ppo --policy ppo.policy");
  verb->callback([arguments] {
    make_places(*arguments);
    become_learner(*arguments);
  });
}

}  // namespace dynamiccl
