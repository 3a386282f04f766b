#include "orchestrator/launch/adopted.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>

#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// Live processes by their parent.
std::multimap<pid_t, pid_t> children_by_parent() {
  std::multimap<pid_t, pid_t> children;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = file_text(at->path().string() + "/stat");
    // The program's name may hold anything: fields are counted from its last parenthesis.
    const auto name_end = stat.rfind(')');
    if (name_end == std::string::npos || name_end + 4 >= stat.size()) continue;
    const char state = stat[name_end + 2];
    if (state == 'Z' || state == 'X') continue;
    children.emplace(static_cast<pid_t>(std::strtol(stat.c_str() + name_end + 4, nullptr, 10)),
                     static_cast<pid_t>(std::stol(name)));
  }
  return children;
}

void add_below(pid_t parent, const std::multimap<pid_t, pid_t>& children,
               const std::set<pid_t>& but, std::set<pid_t>& found) {
  const auto [first, last] = children.equal_range(parent);
  for (auto child = first; child != last; ++child)
    if (!but.contains(child->second) && found.insert(child->second).second)
      add_below(child->second, children, but, found);
}

}  // namespace

Adoption::Adoption() {
  add_below(getpid(), children_by_parent(), {}, before_);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Adoption::~Adoption() { prctl(PR_SET_CHILD_SUBREAPER, 0); }

std::vector<ProcessInfo> Adoption::processes() const {
  std::set<pid_t> below;
  add_below(getpid(), children_by_parent(), before_, below);
  std::vector<ProcessInfo> found;
  for (const pid_t pid : below)
    found.push_back(
        {pid, std::string(trim(file_text("/proc/" + std::to_string(pid) + "/comm"))), {}});
  return found;
}

void Adoption::reap(const std::function<bool(pid_t)>& is_awaited) {
  for (siginfo_t end{}; waitid(P_ALL, 0, &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                        end.si_pid != 0 && !is_awaited(end.si_pid);
       end.si_pid = 0)
    waitpid(end.si_pid, nullptr, WNOHANG);
}

}  // namespace dynamiccl
