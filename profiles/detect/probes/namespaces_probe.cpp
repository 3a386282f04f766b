#include <array>
#include <charconv>

#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {
namespace {

struct NamespaceKind {
  std::string_view name;
  std::uint64_t initial;  ///< inode of the one the kernel boots with; 0 where it varies
};

// include/linux/proc_ns.h of the kernel (PROC_*_INIT_INO).
constexpr std::array kNamespaces{
    NamespaceKind{"net", 0},           NamespaceKind{"ipc", 0xEFFFFFFF},
    NamespaceKind{"uts", 0xEFFFFFFE},  NamespaceKind{"pid", 0xEFFFFFFC},
    NamespaceKind{"mnt", 0},           NamespaceKind{"user", 0xEFFFFFFD},
    NamespaceKind{"time", 0xEFFFFFFA}, NamespaceKind{"cgroup", 0xEFFFFFFB}};

Known<std::uint64_t> inode_of(const ProbeRoot& root, const std::string& name) {
  using Result = Known<std::uint64_t>;
  const auto link = root.link("/proc/self/ns/" + name);
  if (!link) return Result::unknown(link.reason);
  const std::string prefix = name + ":[";
  std::uint64_t inode = 0;
  if (link->starts_with(prefix) && link->ends_with("]")) {
    const char* last = link->data() + link->size() - 1;
    const auto parsed = std::from_chars(link->data() + prefix.size(), last, inode);
    if (parsed.ec == std::errc() && parsed.ptr == last) return {inode, ""};
  }
  return Result::unknown("\"" + clean_text(*link, 60) + "\" is no namespace");
}

}  // namespace

nlohmann::json probe_namespaces(const ProbeContext& context) {
  Section section;
  nlohmann::json initial = nlohmann::json::object();
  for (const NamespaceKind& kind : kNamespaces) {
    const std::string name(kind.name);
    const auto inode = inode_of(context.root, name);
    section.set(name, inode);
    if (inode && kind.initial != 0) initial[name] = *inode == kind.initial;
  }
  section.set("initial", initial);
  return std::move(section).take();
}

}  // namespace dynamiccl
