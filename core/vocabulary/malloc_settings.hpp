#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dynamiccl {

// What the C library's allocator does with memory that is given back to it. Libraries allocate a
// temporary buffer in every call; memory that glibc takes from the kernel and returns each time is
// faulted and zeroed anew, page by page. Settings of a launch, for every backend on CPUs, both true
// or false:
//
//   keep        memory stays with the process: blocks below 4 GiB come from the heap instead of
//               mappings of their own, and the heap is not trimmed
//   huge_pages  glibc asks for transparent huge pages (madvise) for heap and mappings
//
// They become GLIBC_TUNABLES (glibc manual, "Memory Allocation Tunables"; hugetlb and thresholds
// above 32 MiB from glibc 2.35 on). False is glibc's own way, whatever the surroundings say.

inline constexpr std::string_view kTunablesVariable = "GLIBC_TUNABLES";
inline constexpr std::string_view kHugePagesSetting = "huge_pages";
inline constexpr std::string_view kKeepSetting = "keep";

std::vector<std::string> malloc_setting_names();

/// Why there is no such setting, or `value` is none of it ("true", "false", or "1" and "0" as
/// knobs have them); "" = fine.
std::string malloc_setting_mistake(const std::string& name, const std::string& value);

/// The same of a knob with its scope ("malloc.keep") and of all its values, "default" apart; "" for
/// a knob of another scope.
std::string malloc_knob_mistake(const std::string& knob, const std::vector<std::string>& values);

/// True when a launch's knobs, by name with their scope, ask for huge pages.
bool asks_for_huge_pages(const std::map<std::string, std::string>& knobs);

/// GLIBC_TUNABLES `before` with these settings, by name: tunables that they do not speak of stay,
/// the others are replaced (true) or taken out (false).
/// @throws Error(input) for what malloc_setting_mistake() tells
std::string with_malloc_settings(const std::string& before,
                                 const std::map<std::string, std::string>& settings);

/// The settings that a GLIBC_TUNABLES asks for: those all of whose tunables it has.
std::vector<std::string> asked_malloc_settings(const std::string& tunables);

/// Why asking for huge pages changes nothing where transparent huge pages have this mode
/// ("always", "madvise" or "never", in /sys/kernel/mm/transparent_hugepage/enabled; "" = the kernel
/// has none); "" = it does change something.
std::string why_no_huge_pages(std::string_view mode);

}  // namespace dynamiccl
