#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {
namespace {

/// PRETTY_NAME of os-release, without its quotes.
Known<std::string> distribution(const ProbeRoot& root) {
  for (const char* path : {"/etc/os-release", "/usr/lib/os-release"}) {
    const auto text = root.text(path);
    if (!text) continue;
    for (const std::string& line : split(*text, '\n')) {
      constexpr std::string_view kKey = "PRETTY_NAME=";
      if (!line.starts_with(kKey)) continue;
      std::string_view name = trim(std::string_view(line).substr(kKey.size()));
      if (name.size() >= 2 && name.front() == '"' && name.back() == '"')
        name = name.substr(1, name.size() - 2);
      return {std::string(name), ""};
    }
  }
  return Known<std::string>::unknown("no os-release with a PRETTY_NAME");
}

/// The machine-id is confidential (machine-id(5)); a hash under a name of our own identifies the
/// machine as well.
Known<std::string> machine_hash(const ProbeRoot& root) {
  auto id = root.line("/etc/machine-id");
  if (!id) return id;
  return {sha256_hex("dynamiccl machine " + *id).substr(0, 16), ""};
}

Known<std::string> virtualization(const ProbeRoot& root) {
  auto cpu = root.text("/proc/cpuinfo", 16384);
  if (!cpu) return cpu;
  const auto flags = field_of(*cpu, "flags");
  if (!flags) return Known<std::string>::unknown("/proc/cpuinfo: " + flags.reason);
  if ((" " + *flags + " ").find(" hypervisor ") == std::string::npos) return {"none", ""};
  const auto vendor = root.line("/sys/class/dmi/id/sys_vendor");
  return {vendor ? "virtual machine (" + *vendor + ")" : "virtual machine", ""};
}

}  // namespace

nlohmann::json probe_system(const ProbeContext& context) {
  const ProbeRoot& root = context.root;
  Section section;
  section.set("hostname", root.line("/proc/sys/kernel/hostname"));
  section.set("boot_id", root.line("/proc/sys/kernel/random/boot_id"));
  section.set("machine_id_hash", machine_hash(root));
  section.set("kernel", root.line("/proc/sys/kernel/osrelease"));
  section.set("distribution", distribution(root));
  section.set("virtualization", virtualization(root));
  section.set("libc_version", context.live.libc_version());
  return std::move(section).take();
}

}  // namespace dynamiccl
