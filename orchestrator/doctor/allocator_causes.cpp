// Causes that lie in the C library's allocator.
#include <fmt/format.h>

#include <map>

#include "core/vocabulary/malloc_settings.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/fixes.hpp"
#include "profiles/detect/fact_access.hpp"

namespace dynamiccl {
namespace {

/// Of the message's pages: a quarter is the temporary buffer of an algorithm in four parts, and no
/// warm call without one faults that many.
constexpr double kFaultedShare = 0.25;

/// Memory is taken from the kernel anew in each call, and by malloc: who keeps large blocks and
/// faults all the same maps memory himself.
bool faults_anew(const BackendLook& look) {
  return look.ran() && look.pages && !look.pages->kept &&
         look.pages->faults >= kFaultedShare * look.pages->message_pages();
}

bool huge_pages_for_the_asking(const Symptoms& symptoms) {
  return why_no_huge_pages(fact_text(symptoms.host, "cpu", "transparent_huge_pages")).empty();
}

}  // namespace

std::optional<Symptom> look_for_faulted_buffers(const Symptoms& symptoms) {
  Symptom symptom;
  std::vector<std::string> seen;
  std::string libc;
  std::string size;
  for (const auto& look : symptoms.looks) {
    if (!faults_anew(look)) continue;
    symptom.backends.push_back(look.backend);
    libc = look.pages->libc;
    size = format_bytes(look.pages->size);
    seen.push_back(fmt::format("{}: {:.0f}, {:.2f} of the message's pages", name_of(look.backend),
                               look.pages->faults,
                               look.pages->faults / look.pages->message_pages()));
  }
  if (seen.empty()) return std::nullopt;
  symptom.evidence = fmt::format(
      "page faults in every all-reduce of {}, after the warm-up ({}); {} maps large temporary "
      "buffers anew, and the kernel zeroes each page",
      size, join(seen, "; "), libc);
  return symptom;
}

Fix fix_faulted_buffers(const Symptoms& symptoms) {
  std::map<std::string, std::string> settings{{std::string(kKeepSetting), "true"}};
  if (huge_pages_for_the_asking(symptoms)) settings[std::string(kHugePagesSetting)] = "true";
  EnvironmentProfile profile = symptoms.profile;
  std::vector<std::string> names;
  for (const auto& [name, value] : settings) {
    names.push_back(fmt::format("{} = {}", setting_text(SettingScope::malloc, name), value));
    for (const auto& look : symptoms.looks)
      if (faults_anew(look))
        put_setting(profile, look.backend,
                    {{SettingScope::malloc, name, value},
                     "temporary buffers of calls are not faulted anew"});
  }
  return {fmt::format("{}={} in the ranks' environment ({})", kTunablesVariable,
                      with_malloc_settings("", settings), join(names, ", ")),
          std::move(profile)};
}

}  // namespace dynamiccl
