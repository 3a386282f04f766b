#include "core/vocabulary/malloc_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/setting.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

struct Tunable {
  std::string_view setting;
  std::string_view name;
  std::string_view value;
};

// Above all message sizes: what is larger is mapped anew in each call.
constexpr std::array kTunables{
    Tunable{kKeepSetting, "glibc.malloc.mmap_threshold", "4294967296"},
    Tunable{kKeepSetting, "glibc.malloc.trim_threshold", "4294967296"},
    // The heap grows in steps of this size.
    Tunable{kKeepSetting, "glibc.malloc.top_pad", "67108864"},
    // 1: madvise(MADV_HUGEPAGE), which the kernel obeys in the mode "madvise".
    Tunable{kHugePagesSetting, "glibc.malloc.hugetlb", "1"},
};

bool is_true(const std::string& value) { return value == "true" || value == "1"; }
bool is_false(const std::string& value) { return value == "false" || value == "0"; }

}  // namespace

std::vector<std::string> malloc_setting_names() {
  return {std::string(kKeepSetting), std::string(kHugePagesSetting)};
}

std::string malloc_setting_mistake(const std::string& name, const std::string& value) {
  const auto known = malloc_setting_names();
  if (std::find(known.begin(), known.end(), name) == known.end())
    return fmt::format("the allocator has no setting \"{}\"; {}", name, suggestion(name, known));
  if (!is_true(value) && !is_false(value))
    return fmt::format("malloc {} is \"{}\": expected true or false", name, value);
  return "";
}

std::string malloc_knob_mistake(const std::string& knob, const std::vector<std::string>& values) {
  const auto setting = find_setting(knob);
  if (!setting || setting->scope != SettingScope::malloc) return "";
  const std::string& name = setting->name;
  for (const std::string& value : values) {
    if (value == "default") continue;
    if (auto mistake = malloc_setting_mistake(name, value); !mistake.empty()) return mistake;
  }
  return values.empty() ? malloc_setting_mistake(name, "true") : "";
}

bool asks_for_huge_pages(const std::map<std::string, std::string>& knobs) {
  const auto knob = knobs.find(setting_text(SettingScope::malloc, kHugePagesSetting));
  return knob != knobs.end() && is_true(knob->second);
}

std::string with_malloc_settings(const std::string& before,
                                 const std::map<std::string, std::string>& settings) {
  std::vector<std::string> tunables;
  for (const std::string& tunable : split(before, ':'))
    if (!tunable.empty()) tunables.push_back(tunable);
  for (const auto& [name, value] : settings) {
    if (const auto mistake = malloc_setting_mistake(name, value); !mistake.empty())
      throw Error(ErrorKind::input, mistake);
    for (const Tunable& tunable : kTunables) {
      if (tunable.setting != name) continue;
      const auto assignment = fmt::format("{}=", tunable.name);
      std::erase_if(tunables,
                    [&](const std::string& known) { return known.starts_with(assignment); });
      if (is_true(value)) tunables.push_back(assignment + std::string(tunable.value));
    }
  }
  return join(tunables, ":");
}

std::vector<std::string> asked_malloc_settings(const std::string& tunables) {
  const auto given = split(tunables, ':');
  std::vector<std::string> asked;
  for (const std::string& name : malloc_setting_names()) {
    const bool all = std::all_of(kTunables.begin(), kTunables.end(), [&](const Tunable& tunable) {
      return tunable.setting != name ||
             std::find(given.begin(), given.end(),
                       fmt::format("{}={}", tunable.name, tunable.value)) != given.end();
    });
    if (all) asked.push_back(name);
  }
  return asked;
}

std::string why_no_huge_pages(std::string_view mode) {
  if (mode == "madvise") return "";
  if (mode == "always") return "every process has transparent huge pages here without asking";
  if (mode == "never")
    return "transparent huge pages are switched off (echo madvise > "
           "/sys/kernel/mm/transparent_hugepage/enabled allows them, as root)";
  return mode.empty() ? "this kernel has no transparent huge pages"
                      : fmt::format("transparent huge pages have the unknown mode \"{}\"", mode);
}

}  // namespace dynamiccl
