#include <algorithm>
#include <set>

#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/cpu_probe.hpp"
#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kMaxCpus = 2048;
constexpr std::size_t kMaxNodes = 256;

bool is_numbered(const std::string& name, std::string_view prefix) {
  return name.starts_with(prefix) && name.size() > prefix.size() &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

/// Hardware threads of each core, die or socket, as CPU lists: {"0,64", "1,65", ...}.
/// @param older the list's name before Linux 5.3, "" = there was none
std::vector<std::vector<int>> cpu_groups(const ProbeRoot& root, const std::string& list_name,
                                         const std::string& older) {
  const std::string folder = "/sys/devices/system/cpu";
  std::set<std::vector<int>> found;
  std::size_t seen = 0;
  for (const std::string& name : root.list(folder, 4096)) {
    if (!is_numbered(name, "cpu") || ++seen > kMaxCpus) continue;
    const std::string topology = folder + "/" + name + "/topology/";
    auto list = root.line(topology + list_name);
    if (!list && !older.empty()) list = root.line(topology + older);
    if (!list) continue;
    if (const auto cpus = parse_cpu_list(*list)) found.insert(*cpus);
  }
  return {found.begin(), found.end()};
}

Known<std::vector<std::vector<int>>> known_groups(const ProbeRoot& root,
                                                  const std::string& list_name,
                                                  const std::string& older) {
  auto groups = cpu_groups(root, list_name, older);
  if (groups.empty())
    return Known<std::vector<std::vector<int>>>::unknown("/sys/devices/system/cpu: no " +
                                                         list_name);
  return {std::move(groups), ""};
}

Known<nlohmann::json> numa_nodes(const ProbeRoot& root) {
  const std::string folder = "/sys/devices/system/node";
  nlohmann::json nodes = nlohmann::json::object();
  for (const std::string& name : root.list(folder)) {
    if (!is_numbered(name, "node") || nodes.size() >= kMaxNodes) continue;
    if (const auto list = root.line(folder + "/" + name + "/cpulist")) nodes[name] = *list;
  }
  if (nodes.empty()) return Known<nlohmann::json>::unknown(folder + ": no nodes");
  return {nodes, ""};
}

Known<std::string> model(const Known<std::string>& info) {
  if (!info) return info;
  for (const char* key : {"model name", "Model Name", "cpu model", "Hardware"})
    if (auto name = field_of(*info, key)) return name;
  const auto implementer = field_of(*info, "CPU implementer");
  const auto part = field_of(*info, "CPU part");
  if (implementer && part) return {"implementer " + *implementer + " part " + *part, ""};
  return Known<std::string>::unknown("/proc/cpuinfo names no model");
}

/// "always [madvise] never" as "madvise".
Known<std::string> bracketed(const Known<std::string>& line) {
  if (!line) return line;
  const std::size_t open = line->find('[');
  const std::size_t close = line->find(']');
  if (open == std::string::npos || close == std::string::npos || close < open)
    return Known<std::string>::unknown("\"" + *line + "\" marks no choice");
  return {line->substr(open + 1, close - open - 1), ""};
}

}  // namespace

Known<std::string> huge_page_mode(const ProbeRoot& root) {
  return bracketed(root.line("/sys/kernel/mm/transparent_hugepage/enabled"));
}

nlohmann::json probe_cpu(const ProbeContext& context) {
  const ProbeRoot& root = context.root;
  Section section;
  // The first processor's block is enough; the whole file costs milliseconds on large machines.
  const auto info = root.text("/proc/cpuinfo", 8192);
  section.set("model", model(info));
  section.set("microcode", info ? field_of(*info, "microcode") : info);
  const auto online = root.line("/sys/devices/system/cpu/online");
  section.set("online",
              online ? parse_cpu_list(*online) : Known<std::vector<int>>::unknown(online.reason));
  const auto threads_of_cores = cpu_groups(root, "core_cpus_list", "thread_siblings_list");
  if (threads_of_cores.empty()) {
    section.unknown("cores", "/sys/devices/system/cpu: no topology");
    section.unknown("core_cpus", "/sys/devices/system/cpu: no topology");
  } else {
    section.set("cores", threads_of_cores.size());
    section.set("core_cpus", threads_of_cores);
  }
  section.set("die_cpus", known_groups(root, "die_cpus_list", ""));
  section.set("socket_cpus", known_groups(root, "package_cpus_list", "core_siblings_list"));
  section.set("smt_active", root.integer("/sys/devices/system/cpu/smt/active"));
  section.set("numa_nodes", numa_nodes(root));
  section.set("governor", root.line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  section.set("boost", root.integer("/sys/devices/system/cpu/cpufreq/boost"));
  section.set("transparent_huge_pages", huge_page_mode(root));
  return std::move(section).take();
}

}  // namespace dynamiccl
