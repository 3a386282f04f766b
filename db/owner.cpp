#include "db/owner.hpp"

#include <fmt/format.h>

#include <optional>

#include "core/vocabulary/host_name.hpp"

namespace dynamiccl {
namespace {

std::string stored_host() {
  const std::string name = host_name();
  return name.empty() ? "unknown" : name;
}

}  // namespace

ProcessIdentity this_process() {
  const ProcessMark mark = own_mark();
  return {stored_host(), mark.boot_id, mark.pid,
          static_cast<std::int64_t>(mark.pid_namespace.value_or(0)), mark.start_ticks};
}

ProcessState state_of(const ProcessIdentity& process) {
  ProcessMark mark{process.pid, process.start_ticks, process.boot_id, std::nullopt};
  if (process.pid_namespace != 0)
    mark.pid_namespace = static_cast<std::uint64_t>(process.pid_namespace);
  const ProcessState state = look_for(mark);
  // Another boot is this machine's only where the name is.
  return state == ProcessState::dead && process.boot_id != own_mark().boot_id &&
                 process.host != stored_host()
             ? ProcessState::unknown
             : state;
}

}  // namespace dynamiccl
