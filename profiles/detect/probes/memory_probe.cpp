#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {

namespace {

/// The folder that makes isolated ranks one host to NCCL (docs/one-host.md).
void set_shared_folder(const ProbeContext& context, Section& section) {
  const auto variables = context.live.environment();
  if (!variables) return;
  for (const auto& [name, value] : *variables) {
    if (name != "DYNAMICCL_SHARED_FOLDER" || value.empty()) continue;
    const auto folder = context.live.filesystem(value);
    if (folder)
      section.set("folder", nlohmann::json{{"device", folder->device}, {"inode", folder->inode}});
    else
      section.unknown("folder", folder.reason);
    // Besides its identity, which regimes compare: how it looks from here.
    if (const auto found = context.live.meeting_folder(value))
      section.set("meeting", nlohmann::json{{"path", value},
                                            {"trouble", name_of(found->trouble)},
                                            {"why", found->why},
                                            {"filesystem", found->filesystem},
                                            {"owner", found->owner},
                                            {"mode", found->mode},
                                            {"user", found->user},
                                            {"size_bytes", found->size_bytes}});
    else
      section.unknown("meeting", found.reason);
  }
}

}  // namespace

nlohmann::json probe_shared_memory(const ProbeContext& context) {
  Section section;
  if (const auto shm = context.live.filesystem("/dev/shm")) {
    section.set("device", shm->device);
    section.set("size_bytes", shm->size.count());
    section.set("free_bytes", shm->free.count());
    section.set("writable", shm->writable);
  } else {
    for (const char* key : {"device", "size_bytes", "free_bytes", "writable"})
      section.unknown(key, shm.reason);
  }
  set_shared_folder(context, section);
  return std::move(section).take();
}

nlohmann::json probe_cma(const ProbeContext& context) {
  Section section;
  if (const auto test = context.live.cma()) {
    section.set("allowed", test->allowed);
    section.set("outcome", test->outcome);
  } else {
    section.unknown("allowed", test.reason);
  }
  // 0 classic, 1 descendants or who was named by PR_SET_PTRACER, 2 CAP_SYS_PTRACE only, 3 nobody.
  const auto scope = context.root.integer("/proc/sys/kernel/yama/ptrace_scope");
  if (scope)
    section.set("yama_ptrace_scope", *scope);
  else if (!context.root.exists("/proc/sys/kernel/yama"))
    section.unknown("yama_ptrace_scope", "this kernel has no Yama");
  else
    section.unknown("yama_ptrace_scope", scope.reason);
  return std::move(section).take();
}

nlohmann::json probe_memory(const ProbeContext& context) {
  Section section;
  const auto info = context.root.text("/proc/meminfo");
  const auto set = [&](const char* key, const char* field, std::uint64_t unit_bytes) {
    const auto text = info ? field_of(*info, field) : Known<std::string>::unknown(info.reason);
    if (!text) return section.unknown(key, text.reason);
    try {
      section.set(key, std::stoull(*text) * unit_bytes);
    } catch (const std::exception&) {
      section.unknown(key, "/proc/meminfo: \"" + clean_text(*text, 40) + "\" is no number");
    }
  };
  constexpr std::uint64_t kKib = 1024;  // meminfo writes "kB" and means KiB
  set("total_bytes", "MemTotal", kKib);
  set("available_bytes", "MemAvailable", kKib);
  set("swap_bytes", "SwapTotal", kKib);
  set("huge_pages", "HugePages_Total", 1);
  set("huge_page_bytes", "Hugepagesize", kKib);
  return std::move(section).take();
}

}  // namespace dynamiccl
