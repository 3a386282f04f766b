#include "orchestrator/doctor/job/job_on_hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>

#include "containers/cluster/cluster_session.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {

// In the order of the structures. A letter would be read from a number of any size: the state of a
// look is added as a text.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(StackLook, read, kind, call, place, in_python,
                                                chain, memory)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RankLook, at_s, kernel_call, cpu_s, run_s, wait_s,
                                                io_bytes, throttled_s, throttled, launched,
                                                gpu_memory, stack)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(StuckSocket, peer, connecting, queued_bytes,
                                                retransmits)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LoadedLibrary, name, path, build_id)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(EndedProcess, pid, program, exit_code, signal)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(BegunCall, name, bytes, times, seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveRank, rank, pid, program, identity, nice,
                                                on_gpu, stack_problem, looks, calls, sockets,
                                                libraries)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveJob, world, marker, partly, calls_problem,
                                                seconds, ranks, ended, gone)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(JobRemark, id, says, fix)

namespace {

// A look's own 11 s, gdb where there is no eu-stack, and a shell that is slow to come.
constexpr std::chrono::seconds kTimeout{45};

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

/// What of the words is for this host.
std::vector<std::string> words_for(const std::string& host, const std::vector<std::string>& named,
                                   const std::vector<ClusterNode>& hosts) {
  std::vector<std::string> words;
  for (const auto& word : named) {
    const auto of_host = [&](const ClusterNode& one) { return word.starts_with(one.name + ":"); };
    const auto owner = std::find_if(hosts.begin(), hosts.end(), of_host);
    if (owner == hosts.end())
      words.push_back(word);
    else if (owner->name == host)
      words.push_back(word.substr(host.size() + 1));
  }
  return words;
}

std::vector<std::string> command_for(const std::vector<std::string>& words) {
  std::vector<std::string> command{own_program(), "doctor", "--json", "--looks"};
  for (const auto& word : words) command.insert(command.end(), {"--job", word});
  return command;
}

}  // namespace

nlohmann::json looks_json(const LiveJob& job) {
  nlohmann::json told = job;
  for (std::size_t i = 0; i < job.ranks.size(); ++i)
    for (std::size_t k = 0; k < job.ranks[i].looks.size(); ++k)
      told["ranks"][i]["looks"][k]["state"] = std::string(1, job.ranks[i].looks[k].state);
  return told;
}

JobLook look_of_host(const std::string& host, const std::string& said) {
  JobLook look;
  try {
    const auto told = parsed_json(said);
    look.job = told.at("job").get<LiveJob>();
    for (std::size_t i = 0; i < look.job.ranks.size(); ++i)
      for (std::size_t k = 0; k < look.job.ranks[i].looks.size(); ++k)
        look.job.ranks[i].looks[k].state =
            told["job"]["ranks"][i]["looks"][k].value("state", std::string("?")).c_str()[0];
    look.remarks = told.at("remarks").get<std::vector<JobRemark>>();
    look.stacks = told.at("looks").get<int>();
    look.stack_cpu_s = told.at("core_seconds").get<double>();
    if (look.job.ranks.empty())
      look.verdict.says = host + " has no rank of this job: " + told.value("says", std::string());
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::data,
                fmt::format("doctor: --hosts: {} says what is no look at a job ({}): is it another "
                            "version of this program, or does its shell print words of its own?",
                            host, error.what()));
  }
  for (auto& rank : look.job.ranks) rank.host = host;
  for (auto& ended : look.job.ended) ended.host = host;
  if (!look.job.calls_problem.empty())
    look.job.calls_problem = host + ": " + look.job.calls_problem;
  for (auto& remark : look.remarks) remark.says = host + ": " + remark.says;
  return look;
}

std::string take_answer(const std::string& host, const NodeResult& result,
                        std::vector<JobLook>& looks) {
  if (result.exit_code == 0 && !result.timed_out) {
    try {
      looks.push_back(look_of_host(host, result.out));
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  const auto lines = split(std::string(trim(result.err)), '\n');
  const auto why =
      result.timed_out
          ? fmt::format("no answer within {} s", kTimeout.count())
          : (lines.back().empty() ? fmt::format("code {}", result.exit_code) : lines.back());
  return fmt::format("{} was not looked at: {}", host, why);
}

namespace {

/// Hosts that are one machine see the same processes: each rank is left once.
/// @param ranks by rank
/// @returns which rank two processes are
std::vector<std::string> leave_each_once(std::vector<LiveRank>& ranks) {
  std::vector<std::string> problems;
  std::vector<LiveRank> left;
  for (auto& rank : ranks) {
    const auto same = [&](const LiveRank& one) {
      const bool unknown = one.identity.empty() || rank.identity.empty();
      return one.rank == rank.rank &&
             (unknown ? one.pid == rank.pid : one.identity == rank.identity);
    };
    if (std::any_of(left.begin(), left.end(), same)) continue;
    if (!left.empty() && left.back().rank == rank.rank)
      problems.push_back(
          fmt::format("rank {} is process {} on {} and {} on {}: are these two jobs?", rank.rank,
                      left.back().pid, left.back().host, rank.pid, rank.host));
    left.push_back(std::move(rank));
  }
  ranks = std::move(left);
  return problems;
}

/// Ranks of two jobs wait for nobody together.
void refuse_two_jobs(const std::vector<JobLook>& hosts) {
  const JobLook* first = nullptr;
  for (const auto& look : hosts) {
    if (look.job.ranks.empty() || look.job.marker.empty()) continue;
    if (first == nullptr) first = &look;
    if (look.job.marker != first->job.marker)
      throw Error(ErrorKind::input,
                  fmt::format("doctor: --hosts: these are two jobs: {} has ranks with {}, {} with "
                              "{}; name one, as in --job {}",
                              first->job.ranks.front().host, first->job.marker,
                              look.job.ranks.front().host, look.job.marker, first->job.marker));
  }
}

}  // namespace

JobLook joined_look(std::vector<JobLook> hosts, const std::vector<std::string>& problems) {
  refuse_two_jobs(hosts);
  JobLook all;
  double seconds = 0;
  std::vector<std::string> without;
  for (const auto& host : hosts) {
    if (host.job.ranks.empty())
      without.push_back(host.verdict.says);
    else
      seconds = seconds == 0 ? host.job.seconds : std::min(seconds, host.job.seconds);
  }
  const auto later = [&](const RankLook& look) { return look.at_s > seconds + 0.05; };
  for (auto& host : hosts) {
    all.job.world = std::max(all.job.world, host.job.world);
    all.job.partly = all.job.partly || host.job.partly;
    if (all.job.calls_problem.empty()) all.job.calls_problem = host.job.calls_problem;
    for (auto& rank : host.job.ranks) {
      std::erase_if(rank.looks, later);
      all.job.ranks.push_back(std::move(rank));
    }
    all.job.ended.insert(all.job.ended.end(), host.job.ended.begin(), host.job.ended.end());
    all.job.gone.insert(all.job.gone.end(), host.job.gone.begin(), host.job.gone.end());
    all.remarks.insert(all.remarks.end(), host.remarks.begin(), host.remarks.end());
    all.stacks = std::max(all.stacks, host.stacks);
    all.stack_cpu_s += host.stack_cpu_s;
  }
  all.job.seconds = seconds;
  all.job.partly = all.job.partly || !problems.empty();
  // Of hosts that were asked for their ranks one has none: those that are missing were there.
  all.job.all_here = !all.job.partly && !without.empty();
  auto& ranks = all.job.ranks;
  std::stable_sort(ranks.begin(), ranks.end(), [](const LiveRank& one, const LiveRank& other) {
    return one.rank < other.rank;
  });
  const auto doubled = leave_each_once(ranks);
  std::sort(all.job.gone.begin(), all.job.gone.end());
  all.verdict = verdict(all.job);
  for (const auto& more : {doubled, without})
    all.verdict.evidence.insert(all.verdict.evidence.end(), more.begin(), more.end());
  all.verdict.evidence.insert(all.verdict.evidence.end(), problems.begin(), problems.end());
  return all;
}

JobLook look_at_hosts(const std::vector<std::string>& named, const ClusterOptions& options,
                      bool (*interrupted)()) {
  for (const auto& word : named)
    if (options.hosts.size() > 1 && word.find_first_not_of("0123456789") == std::string::npos)
      throw Error(ErrorKind::input,
                  fmt::format("doctor: --job {0}: a process id is of one host: name it as {1}:{0}",
                              word, options.hosts.front().name));
  const ClusterSession session(options, 1);
  std::vector<ClusterNode> asked;
  std::vector<std::future<NodeResult>> answers;
  std::vector<std::string> problems;
  CommandOptions how;
  how.timeout = kTimeout;
  how.interrupted = interrupted;
  for (const auto& host : session.nodes()) {
    const auto words = words_for(host.name, named, options.hosts);
    if (words.empty()) {
      problems.push_back(host.name + " was not looked at: no --job is for it");
      continue;
    }
    asked.push_back(host);
    answers.push_back(std::async(std::launch::async, [&session, host, words, how] {
      return session.on_nodes({host}, command_for(words), how).front();
    }));
  }
  std::vector<JobLook> looks;
  for (std::size_t i = 0; i < asked.size(); ++i)
    if (auto why = take_answer(asked[i].name, answers[i].get(), looks); !why.empty())
      problems.push_back(std::move(why));
  const auto has_none = [](const JobLook& look) { return look.job.ranks.empty(); };
  if (std::all_of(looks.begin(), looks.end(), has_none)) {
    for (const auto& look : looks) problems.push_back(look.verdict.says);
    throw Error(ErrorKind::input,
                fmt::format("doctor: no host has a rank of this job: {}", join(problems, "; ")));
  }
  return joined_look(std::move(looks), problems);
}

}  // namespace dynamiccl
