#include "orchestrator/launch/post_mortem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstring>
#include <set>
#include <string_view>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "core/wire/standing.hpp"

namespace dynamiccl {
namespace {

constexpr std::string_view kUnseenPeer =
    "MPICH's UCX did not find the peer's process, as where ranks that share /dev/shm have PID "
    "namespaces of their own";

std::optional<std::uint64_t> counter_in(const std::string& text, std::string_view name) {
  for (const auto& line : split(text, '\n')) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ' ') continue;
    std::uint64_t value = 0;
    const char* first = line.data() + name.size() + 1;
    if (std::from_chars(first, line.data() + line.size(), value).ec == std::errc()) return value;
  }
  return std::nullopt;
}

/// The file that counts what the kernel ended in the own control group, of version 2 or 1.
std::string own_group_file() {
  std::string file;
  for (const auto& line : split(file_text("/proc/self/cgroup"), '\n')) {
    // "NUMBER:CONTROLLERS:PATH"; a path may hold colons.
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto path = line.substr(second + 1);
    const auto controllers = split(line.substr(first + 1, second - first - 1), ',');
    // Where version 1 has the memory, version 2 counts none.
    if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end())
      return "/sys/fs/cgroup/memory" + path + "/memory.oom_control";
    if (line.starts_with("0::")) file = "/sys/fs/cgroup" + path + "/memory.events";
  }
  return file;
}

/// The number behind a phrase: "exited on signal 9", "(signal 11)".
int number_behind(const std::string& text, std::string_view phrase) {
  const auto found = text.rfind(phrase);
  if (found == std::string::npos) return 0;
  int value = 0;
  const char* first = text.data() + found + phrase.size();
  std::from_chars(first, text.data() + text.size(), value);
  return value > 0 && value < 65 ? value : 0;
}

/// -1: there is none.
int whole_number(std::string_view text) {
  int value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// What stands between the last of these two; "" where they do not.
std::string_view last_between(std::string_view text, std::string_view before,
                              std::string_view after) {
  const auto begin = text.rfind(before);
  if (begin == std::string_view::npos) return "";
  const auto rest = text.substr(begin + before.size());
  const auto end = rest.find(after);
  return end == std::string_view::npos ? "" : rest.substr(0, end);
}

/// Those that Slurm tells of first: "srun: error: node2: tasks 0,2-3: Killed".
struct SlurmTasks {
  std::vector<int> ranks;
  int signal = 0;  ///< 0: they ended by themselves, with this code
  int exit_code = 0;
};

std::vector<int> numbers_of(const std::string& ranges) {
  constexpr int kMost = 65536;
  std::vector<int> numbers;
  for (const std::string& range : split(ranges, ',')) {
    const int first = whole_number(range);
    const auto dash = range.find('-');
    const int last = dash == std::string::npos ? first : whole_number(range.substr(dash + 1));
    for (int number = first; first >= 0 && number <= std::min(last, kMost); ++number)
      numbers.push_back(number);
  }
  return numbers;
}

/// Once a task has ended badly Slurm ends the others by TERM, which tells nothing of why.
std::optional<SlurmTasks> first_lost_by_slurm(const std::string& text) {
  for (const std::string& line : split(text, '\n')) {
    if (!line.starts_with("srun: error: ")) continue;
    const auto what = line.rfind(": ");
    const auto tasks = line.rfind(": task", what - 1);
    const auto numbers = line.find(' ', tasks + 2);
    if (tasks == std::string::npos || numbers == std::string::npos || numbers > what) continue;
    const std::string how = line.substr(what + 2);
    SlurmTasks lost{numbers_of(line.substr(numbers + 1, what - numbers - 1))};
    if (lost.ranks.empty() || how.starts_with(strsignal(SIGTERM))) continue;
    constexpr std::string_view kExited = "Exited with exit code ";
    if (how.starts_with(kExited)) {
      lost.exit_code = whole_number(how.substr(kExited.size()));
      return lost;
    }
    for (int signal = 1; signal < 32; ++signal)
      if (how.starts_with(strsignal(signal))) {
        lost.signal = signal;
        return lost;
      }
  }
  return std::nullopt;
}

/// The rank that Open MPI's last words are of; -1: they name none. MPICH's "PID 20874 RUNNING AT a"
/// may as well be one that its launcher ended when another was gone, whatever the signal.
int rank_named_in(const std::string& text) {
  // Open MPI: "noticed that process rank 1 with PID 0 on node a exited on signal 9 (Killed)."
  if (const int rank = whole_number(last_between(text, "noticed that process rank ", " with PID"));
      rank >= 0)
    return rank;
  // "Process name: [[21234,1],1]" of one that a wrapper gives an exit code to.
  if (const auto name = last_between(text, "Process name: [", "]\n"); !name.empty())
    return whole_number(name.substr(name.rfind(',') + 1));
  return -1;
}

}  // namespace

OutOfMemoryCounts out_of_memory_counts() {
  const auto group = own_group_file();
  return {counter_in(file_text("/proc/vmstat"), "oom_kill"),
          group.empty() ? std::nullopt : counter_in(file_text(group), "oom_kill")};
}

int signal_behind_launcher(const ProcessOutcome& outcome) {
  const ProcessResult* failure = outcome.first_failure();
  if (failure == nullptr) return 0;
  if (failure->signal != 0) return failure->signal;
  if (const auto lost = first_lost_by_slurm(failure->stderr_tail)) return lost->signal;
  constexpr std::array<std::string_view, 4> kPhrases{
      "exited on signal ", "(signal ", "KILLED BY SIGNAL: ", "terminated with signal "};
  for (const auto phrase : kPhrases) {
    for (const auto* text : {&failure->stderr_tail, &failure->stdout_tail})
      if (const int number = number_behind(*text, phrase); number != 0) return number;
  }
  return signal_in(failure->exit_code);
}

int exit_code_behind_launcher(const ProcessOutcome& outcome) {
  const ProcessResult* failure = outcome.first_failure();
  if (failure == nullptr) return 0;
  const auto lost = first_lost_by_slurm(failure->stderr_tail);
  return lost ? lost->exit_code : failure->exit_code;
}

std::vector<int> ranks_behind(const ProcessOutcome& outcome, std::size_t count) {
  const ProcessResult* failure = outcome.first_failure();
  if (failure == nullptr) return {};
  std::vector<int> ranks;
  if (failure->is_rank) {
    for (std::size_t rank = 0; rank < outcome.results.size(); ++rank) {
      const ProcessResult& one = outcome.results[rank];
      if (&one == failure || (one.by_itself && failure->by_itself &&
                              one.signal == failure->signal && one.exit_code == failure->exit_code))
        ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }
  if (const auto lost = first_lost_by_slurm(failure->stderr_tail)) {
    for (const int rank : lost->ranks)
      if (rank < static_cast<int>(count)) ranks.push_back(rank);
    return ranks;
  }
  for (const auto* text : {&failure->stderr_tail, &failure->stdout_tail}) {
    const int rank = rank_named_in(*text);
    if (rank >= 0 && rank < static_cast<int>(count)) return {rank};
  }
  return {};
}

std::string out_of_memory_clause(const OutOfMemoryCounts& before, const OutOfMemoryCounts& after) {
  const auto more = [](const std::optional<std::uint64_t>& then,
                       const std::optional<std::uint64_t>& now) -> std::uint64_t {
    return then && now && *now > *then ? *now - *then : 0;
  };
  const auto group = more(before.group, after.group);
  const auto machine = more(before.machine, after.machine);
  if (group == 0 && machine == 0) return "";
  return fmt::format(
      "the kernel ended {} process{} for want of memory meanwhile (oom_kill of {}): ask for "
      "smaller "
      "sizes or fewer ranks, or raise the limit",
      std::max(group, machine), std::max(group, machine) == 1 ? "" : "es",
      group > 0 ? "this control group" : "the machine and all its control groups");
}

std::vector<std::string> unfinished_ranks(const RunConfig& config,
                                          const std::vector<RecordFile>& files) {
  std::vector<std::string> told;
  for (std::size_t rank = 0; rank < files.size(); ++rank) {
    std::vector<std::string> done;
    for (const auto& record : files[rank].records)
      if (const auto* cell = std::get_if<CellRecord>(&record)) done.push_back(cell->cell_id);
    if (done.size() >= config.cells.size()) continue;
    const auto next = std::find_if(config.cells.begin(), config.cells.end(), [&](const auto& cell) {
      return std::find(done.begin(), done.end(), cell.id) == done.end();
    });
    const auto where = words_of_standing(file_text(
        config.output_dir + "/" + standing_file_name(static_cast<int>(rank)), sizeof(Standing)));
    told.push_back(fmt::format(
        "rank {} had measured {}{}{}", rank, counted_of(done.size(), config.cells.size(), "cell"),
        next == config.cells.end() ? ""
                                   : fmt::format(", next {} of {}", name_of(next->collective),
                                                 counted(next->size.count(), "byte")),
        where.empty() ? "" : ", " + where));
  }
  return told;
}

std::string refused_login_clause(const std::string& said) {
  if (said.find("kex_exchange_identification") == std::string::npos) return "";
  return "a node's sshd has turned a login away: each rank is one, all at once, so MaxStartups "
         "there (10 unless set) has to be as many as the node has ranks, or take fewer ranks on it";
}

namespace {

/// The rest of the last line that holds a phrase; "" = none does.
std::string behind(const std::string& said, std::string_view phrase) {
  const auto found = said.rfind(phrase);
  if (found == std::string::npos) return "";
  const auto begin = found + phrase.size();
  return std::string(trim(said.substr(begin, said.find('\n', begin) - begin)));
}

}  // namespace

bool is_unseen_peer(const std::string& said) {
  if (said.find(kUnseenPeer) != std::string::npos) return true;
  // Of uct_ep_keepalive_init() of UCX 1.13.
  const auto lines = split(said, '\n');
  return std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("initial_address_exchange") != std::string::npos &&
           line.find("Endpoint timeout") != std::string::npos;
  });
}

std::string library_words_clause(const std::string& said) {
  // What the peer says of shmat is only what follows from it.
  if (is_unseen_peer(said))
    return std::string(kUnseenPeer) +
           " (give them one: pid = \"host\", in Docker also \"shared\"; or keep UCX off shared "
           "memory: UCX_TLS = \"tcp,self\"), or where the peer had ended";
  if (const auto pml = said.rfind("PML "); pml != std::string::npos) {
    const std::string line = said.substr(pml, said.find('\n', pml) - pml);
    if (line.ends_with(" cannot be selected")) return fmt::format("Open MPI said: \"{}\"", line);
  }
  const auto framework = behind(said, "Framework:");
  if (!framework.empty() && said.find("requested component was not found") != std::string::npos)
    return fmt::format(
        "Open MPI said that component {} of framework {} was not found, or was unable to be opened",
        behind(said, "Component:"), framework);
  if (const auto name = behind(said, "An invalid value was given for "); !name.empty())
    return fmt::format("Open MPI said of {} = {}: \"{}\"", name.substr(0, name.find_first_of(". ")),
                       behind(said, "Value:"), behind(said, "Message:"));
  if (const auto ucx = behind(said, "UCX  ERROR "); !ucx.empty())
    return fmt::format("UCX said: \"{}\"", ucx);
  return "";
}

namespace {

/// "ch1, ch2": those of one list that the other lacks, and the other way round; a few.
std::string which_changed(const FailedStart& start) {
  constexpr std::size_t kNamed = 4;
  std::set<std::string> names;
  const auto add = [&](const auto& these, const auto& others) {
    for (const auto& [index, name] : these)
      if (!others.contains(index)) names.insert(name);
  };
  add(start.interfaces_before, start.interfaces_after);
  add(start.interfaces_after, start.interfaces_before);
  std::vector<std::string> few(names.begin(), names.end());
  const bool more = few.size() > kNamed;
  if (more) few.resize(kNamed);
  return join(few, ", ") + (more ? " and more" : "");
}

}  // namespace

std::string vanished_interface_clause(const FailedStart& start) {
  const bool named = start.said.find("ucx function returned") != std::string::npos &&
                     start.said.find("No such device") != std::string::npos;
  const auto changed = which_changed(start);
  const bool over_ucx = backend_facts(start.backend).is_mpi;
  if (!named && (!over_ucx || changed.empty() || !trim(start.said).empty())) return "";
  std::string what;
  if (named)
    what = fmt::format(
        "UCX opens every network interface that is up as a rank starts, and one was gone when it "
        "came to it{}",
        changed.empty() ? "" : fmt::format(" (meanwhile came or went: {})", changed));
  else
    what = fmt::format(
        "nobody said why, but network interfaces came or went meanwhile ({}), and a library that "
        "opens one which is gone (UCX opens every one that is up) cannot start",
        changed);
  return fmt::format(
      "{}: those of containers come and go with them, so run again with --resume, or keep UCX to "
      "one that stays: {} = \"{}\" in [knobs.{}.env] of the experiment",
      what, "UCX_NET_DEVICES", start.stays, name_of(start.backend));
}

}  // namespace dynamiccl
