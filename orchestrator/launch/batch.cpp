#include "orchestrator/launch/batch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>

#include "containers/cluster/slurm.hpp"
#include "containers/command.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/interrupt.hpp"

namespace dynamiccl {
namespace {

using Clock = std::chrono::steady_clock;

/// Slurm's controller serves everybody: a job is asked for often at first, then seldom.
constexpr std::chrono::milliseconds kFirstPoll{100};
constexpr std::chrono::milliseconds kSlowestPoll{2000};
/// A controller that is restarted does not answer for a while; its jobs go on.
constexpr std::chrono::seconds kSilence{300};

std::string tail_of(const std::string& path, std::size_t bytes) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  std::string all = text.str();
  if (all.size() > bytes) all.erase(0, all.size() - bytes);
  return all;
}

/// Value of `Name=value` in scontrol's line; Slurm forgets a job after a while.
std::string job_word(const std::string& line, const std::string& name) {
  for (const std::string& word : split(line, ' '))
    if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
  return "";
}

bool has_ended(const std::string& state) {
  for (const char* going : {"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED",
                            "REQUEUED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"})
    if (state == going) return false;
  return true;
}

struct JobLook {
  bool answered = false;
  bool known = false;
  std::string state;
  std::string exit_code;  ///< "CODE:SIGNAL"
};

JobLook look_at(const std::string& job) {
  const auto shown = run_command({"scontrol", "--oneliner", "show", "job", job});
  JobLook look;
  look.known = shown.exit_code == 0;
  look.answered = look.known || shown.err.find("Invalid job id") != std::string::npos;
  look.state = job_word(shown.out, "JobState");
  look.exit_code = job_word(shown.out, "ExitCode");
  return look;
}

/// How a job's end looks as a process's. A job that Slurm has forgotten is judged by its records.
ProcessResult result_of(const JobLook& look, const std::string& folder, std::size_t kept_bytes) {
  ProcessResult result;
  result.stdout_tail = tail_of(folder + "/job.out", kept_bytes);
  result.stderr_tail = tail_of(folder + "/job.err", kept_bytes);
  result.exit_code = 0;
  if (!look.known) return result;
  const auto parts = split(look.exit_code, ':');
  if (parts.size() == 2) {
    result.exit_code = std::atoi(parts[0].c_str());
    result.signal = std::atoi(parts[1].c_str());
  }
  if (look.state != "COMPLETED" && result.exit_code == 0 && result.signal == 0) {
    result.exit_code = 1;
    result.stderr_tail += fmt::format("\nthe job's state is {}\n", look.state);
  }
  return result;
}

/// Seconds that a job has run, by Slurm: also those before it was adopted.
double run_time_s(const std::string& job) {
  const auto shown = run_command({"squeue", "--noheader", "--jobs=" + job, "--format=%M"});
  double seconds = 0;
  for (const std::string& part : split(std::string(trim(shown.out)), ':'))
    seconds = seconds * 60 + std::atof(part.c_str());
  return seconds;
}

}  // namespace

Command batch_command(const std::vector<std::string>& prefix,
                      const std::vector<Command>& commands) {
  Command batch;
  std::string script;
  for (const auto& command : commands) {
    std::vector<std::string> words{"env"};
    for (const auto& [name, value] : command.environment) words.push_back(name + "=" + value);
    words.insert(words.end(), command.argv.begin(), command.argv.end());
    std::vector<std::string> quoted;
    for (const auto& word : words) quoted.push_back(shell_quote(word));
    script += (script.empty() ? "" : " & ") + join(quoted, " ");
  }
  if (commands.size() > 1) script += " & wait";
  batch.argv = prefix;
  batch.argv.push_back("--wrap=" + script);
  return batch;
}

std::string job_of_launch(const std::string& folder) {
  std::ifstream file(folder + "/job");
  std::string job;
  file >> job;
  return job;
}

ProcessOutcome run_as_job(const std::string& run_id, const std::string& folder,
                          const std::vector<Command>& commands, const ProcessOptions& options) {
  DYN_ASSERT(commands.size() == 1 && commands.front().argv.front() == "sbatch",
             "a launch of a batch system is one job");
  auto argv = commands.front().argv;
  const std::vector<std::string> marks{
      "--job-name=dynamiccl-launch", "--comment=" + mark_text(own_mark(run_id)),
      "--output=" + folder + "/job.out", "--error=" + folder + "/job.err", "--chdir=" + folder};
  argv.insert(argv.begin() + 1, marks.begin(), marks.end());
  const auto submitted = run_command(argv);
  if (submitted.exit_code != 0) {
    ProcessOutcome refused;
    refused.results.emplace_back();
    refused.results.back().start_error =
        fmt::format("sbatch refused the job: {}", trim(submitted.err));
    return refused;
  }
  const std::string job(trim(submitted.out.substr(0, submitted.out.find(';'))));
  std::ofstream(folder + "/job") << job << "\n";
  return wait_for_job(job, folder, options);
}

ProcessOutcome wait_for_job(const std::string& job, const std::string& folder,
                            const ProcessOptions& options) {
  ProcessOutcome outcome;
  auto poll = kFirstPoll;
  auto answered = Clock::now();
  std::optional<Clock::time_point> running;
  JobLook look;
  while (true) {
    look = look_at(job);
    if (look.answered) answered = Clock::now();
    if (look.answered && (!look.known || has_ended(look.state))) break;
    if (!running && look.state == "RUNNING")
      running = Clock::now() - std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(run_time_s(job)));
    if (options.interruptible) outcome.interrupted_by = interrupt_signal();
    outcome.timed_out =
        running && Clock::now() - *running >
                       std::chrono::duration<double>(options.timeout.seconds());
    if (outcome.interrupted_by != 0 || outcome.timed_out ||
        Clock::now() - answered > kSilence) {
      run_command({"scancel", job});
      break;
    }
    usleep(static_cast<useconds_t>(poll.count() * 1000));
    poll = std::min(kSlowestPoll, poll + poll / 8);
  }
  outcome.results.push_back(result_of(look, folder, options.kept_bytes));
  if (running)
    outcome.duration =
        Micros(std::chrono::duration<double, std::micro>(Clock::now() - *running).count());
  return outcome;
}

}  // namespace dynamiccl
