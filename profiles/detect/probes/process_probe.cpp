#include <fmt/format.h>

#include <charconv>

#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {
namespace {

constexpr unsigned kCapSysPtrace = 19;  // linux/capability.h
constexpr unsigned kCapSysNice = 23;
constexpr unsigned kCapSysAdmin = 21;
constexpr unsigned kCapIpcLock = 14;

Known<std::uint64_t> effective_capabilities(const std::string& status) {
  using Result = Known<std::uint64_t>;
  const auto text = field_of(status, "CapEff");
  if (!text) return Result::unknown(text.reason);
  std::uint64_t bits = 0;
  const auto end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, bits, 16);
  if (parsed.ec != std::errc() || parsed.ptr != end)
    return Result::unknown("\"" + clean_text(*text, 40) + "\" is no capability set");
  return {bits, ""};
}

Known<std::int64_t> first_number(const std::string& status, std::string_view key) {
  using Result = Known<std::int64_t>;
  const auto text = field_of(status, key);
  if (!text) return Result::unknown(text.reason);
  std::int64_t value = 0;
  if (std::from_chars(text->data(), text->data() + text->size(), value).ec != std::errc())
    return Result::unknown("\"" + clean_text(*text, 40) + "\" is no number");
  return {value, ""};
}

/// A field of /proc/self/stat by its number in proc(5), counted after the parenthesised name, which
/// may hold spaces.
Known<int> stat_field(const ProbeRoot& root, std::size_t number) {
  const auto stat = root.text("/proc/self/stat", 4096);
  if (!stat) return Known<int>::unknown(stat.reason);
  const std::size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos) return Known<int>::unknown("/proc/self/stat: no name");
  const auto fields = split(trim(std::string_view(*stat).substr(name_end + 1)), ' ');
  constexpr std::size_t kFirstAfterName = 3;
  if (fields.size() <= number - kFirstAfterName)
    return Known<int>::unknown("/proc/self/stat: too short");
  const std::string& field = fields[number - kFirstAfterName];
  int value = 0;
  if (std::from_chars(field.data(), field.data() + field.size(), value).ec != std::errc())
    return Known<int>::unknown(fmt::format("/proc/self/stat: field {} is no number", number));
  return {value, ""};
}

}  // namespace

nlohmann::json probe_process(const ProbeContext& context) {
  Section section;
  section.set("nice", stat_field(context.root, 19));
  // Tasks of a session share as one group where this is on: "/autogroup-16 nice 0".
  section.set("autogroup", context.root.line("/proc/self/autogroup"));
  const auto status = context.root.text("/proc/self/status");
  if (!status) {
    for (const char* key : {"uid", "affinity", "capabilities", "seccomp"})
      section.unknown(key, status.reason);
    return std::move(section).take();
  }
  section.set("uid", first_number(*status, "Uid"));
  const auto allowed = field_of(*status, "Cpus_allowed_list");
  section.set("affinity", allowed ? parse_cpu_list(*allowed)
                                  : Known<std::vector<int>>::unknown(allowed.reason));
  section.set("cpu", stat_field(context.root, 39));
  if (const auto bits = effective_capabilities(*status)) {
    const auto has = [&](unsigned bit) { return ((*bits >> bit) & 1U) != 0; };
    section.set("capabilities", nlohmann::json{{"sys_ptrace", has(kCapSysPtrace)},
                                               {"sys_nice", has(kCapSysNice)},
                                               {"sys_admin", has(kCapSysAdmin)},
                                               {"ipc_lock", has(kCapIpcLock)}});
  } else {
    section.unknown("capabilities", bits.reason);
  }
  // 0 off, 1 strict, 2 a filter: a filter may refuse process_vm_readv although a capability allows.
  section.set("seccomp", first_number(*status, "Seccomp"));
  section.set("no_new_privs", first_number(*status, "NoNewPrivs"));
  return std::move(section).take();
}

}  // namespace dynamiccl
