#include "containers/cluster/slurm_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "containers/command.hpp"
#include "containers/owner.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// Slurm takes arrays of fewer tasks than this unless it says otherwise.
constexpr int kUsualArraySize = 1001;

/// Jobs in a row that end before they are used: somebody, or something, does not want them.
constexpr int kMostDead = 5;

int most_tasks() {
  const auto config = run_command({"scontrol", "show", "config"});
  for (const std::string& line : split(config.out, '\n'))
    if (line.starts_with("MaxArraySize"))
      if (const auto equals = line.find('='); equals != std::string::npos)
        return std::max(1, std::atoi(line.c_str() + equals + 1) - 1);
  return kUsualArraySize - 1;
}

/// "12_3" after "12_2", "13" after both: as they were submitted.
std::pair<long, long> place_in_queue(const std::string& job) {
  const auto task = job.find('_');
  return {std::atol(job.c_str()),
          task == std::string::npos ? 0 : std::atol(job.c_str() + task + 1)};
}

}  // namespace

std::string submitted_job(const std::string& text) {
  std::string number(trim(text.substr(0, text.find(';'))));
  if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos)
    throw Error(ErrorKind::environment,
                fmt::format("sbatch says \"{}\" instead of a job's number", trim(text)));
  return number;
}

void SlurmQueue::adopt(const SlurmMark& mark, const Progress& progress) {
  if (std::exchange(adopted_, true)) return;
  std::vector<std::string> left;
  std::set<std::string> arrays;
  std::map<std::string, int> nodes;  ///< that an array's tasks have asked for
  for (const auto& job : own_jobs()) {
    if (job.mark.run != mark.run || job.mark.host != mark.host || owner_alive(job.mark.owner) ||
        !(job.waits() || job.state == "RUNNING"))
      continue;
    const std::string array = array_of(job.id);
    if (nodes.try_emplace(array, 0).second) nodes[array] = asked_nodes(job.id);
    if (nodes[array] != options_.nodes) continue;
    left.push_back(job.id);
    arrays.insert(array);
  }
  for (const auto& array : arrays)
    checked_output("cannot take over a job",
                   {"scontrol", "update", "job", array, "comment=" + mark_text(mark)});
  std::sort(left.begin(), left.end(), [](const std::string& a, const std::string& b) {
    return place_in_queue(a) < place_in_queue(b);
  });
  waiting_.assign(left.begin(), left.end());
  if (!left.empty() && progress.say != nullptr)
    progress.say(fmt::format("takes over {} Slurm job{} of this run, {} first", left.size(),
                             left.size() == 1 ? "" : "s", left.front()));
}

void SlurmQueue::submit(const SlurmMark& mark, const Progress& progress) {
  const bool array = options_.jobs == ClusterJobs::array;
  int count = static_cast<int>(std::clamp<std::size_t>(
      expected_, 1, static_cast<std::size_t>(std::max(1, options_.jobs_ahead))));
  if (array) count = std::min(count, most_tasks());
  const std::string held_s = std::to_string((longest_ + kSpare).count());
  const auto first = submission_argv(options_, slots_per_node_, mark, count, "", held_s);
  if (progress.say != nullptr)
    progress.say(fmt::format("submits {} job{}, one at a time: {}", count, count == 1 ? "" : "s",
                             command_line(first)));
  std::string last = submitted_job(checked_output("Slurm takes no job", first));
  if (array) {
    for (int task = 0; task < count; ++task) waiting_.push_back(fmt::format("{}_{}", last, task));
    return;
  }
  waiting_.push_back(last);
  for (int job = 1; job < count; ++job) {
    if (progress.interrupted && progress.interrupted()) return;
    const auto further =
        run_command(submission_argv(options_, slots_per_node_, mark, 1, waiting_.back(), held_s));
    // A limit on a user's jobs: the others come when these are through.
    if (further.exit_code != 0) return;
    waiting_.push_back(submitted_job(further.out));
  }
}

SlurmAllocation SlurmQueue::next(const SlurmMark& mark, const Progress& progress) {
  adopt(mark, progress);
  std::string ended;
  for (int dead = 0; dead < kMostDead;) {
    if (waiting_.empty()) submit(mark, progress);
    const std::string job = waiting_.front();
    const bool runs = wait_for_job(job, options_, progress);
    waiting_.pop_front();
    if (!runs) {
      ended = why_job_ended(job, kUntilJobIsGone, progress);
      // It may be suspended, say: what nobody knows of any more must not stay.
      run_command({"scancel", job});
      if (progress.say != nullptr) progress.say(ended);
      ++dead;
      continue;
    }
    SlurmAllocation found{job_number(job), {}, true, job};
    if (run_time_s(found.job) > kStart.count()) {
      // Left by a program that was killed: it would end in the middle of a launch.
      run_command({"scancel", job});
      continue;
    }
    try {
      found.nodes = whole_nodes(found.job, options_, slots_per_node_);
    } catch (...) {
      run_command({"scancel", job});
      throw;
    }
    // Steps of one that was taken over: nobody waits for them any more.
    end_steps(found.job);
    if (expected_ > 1) --expected_;
    return found;
  }
  throw Error(ErrorKind::environment,
              fmt::format("{} jobs have ended before a launch came to them: {}", kMostDead, ended));
}

void SlurmQueue::cancel() {
  std::set<std::string> arrays;
  for (const auto& job : std::exchange(waiting_, {})) arrays.insert(array_of(job));
  std::vector<std::string> all{"scancel"};
  all.insert(all.end(), arrays.begin(), arrays.end());
  if (all.size() > 2) run_command(all);  // at once, before each is waited for
  for (const auto& array : arrays) cancel_job(array);
}

}  // namespace dynamiccl
