// Settings that keep a library off a way that the environment allows, or from starting at all.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/examine.hpp"
#include "orchestrator/doctor/given_settings.hpp"
#include "orchestrator/doctor/interface_lists.hpp"
#include "profiles/detect/fact_access.hpp"

namespace dynamiccl {
namespace {

/// From the fastest way to the slowest.
constexpr std::array<std::string_view, 3> kWays{"cma", "shm", "tcp"};

/// Settings that name the ways a library may take: Open MPI's parameters and UCX's variable.
constexpr std::array kWaySettings{"btl", "btl_vader_single_copy_mechanism", "UCX_TLS"};

/// Settings that name the components a library may load: one that is not there ends its start.
constexpr std::array kComponentSettings{
    "pml", "mtl", "btl", "coll", "osc", "UCX_TLS", "UCX_NET_DEVICES"};

/// Settings that name a folder of the ranks' machine.
constexpr std::array kFolderSettings{"btl_vader_backing_directory", "btl_sm_backing_directory",
                                     "orte_tmpdir_base", "UCX_POSIX_DIR"};

std::size_t speed_place(const std::string& way) {
  return static_cast<std::size_t>(std::find(kWays.begin(), kWays.end(), way) - kWays.begin());
}

struct Forced {
  GivenSetting setting;
  std::string without;  ///< the way that is open without it
};

std::vector<Forced> forced_ways(const Symptoms& symptoms) {
  std::vector<Forced> found;
  for (const auto& look : symptoms.looks) {
    if (!is_host_mpi(look.backend) || !look.impossible.empty()) continue;
    auto settings = look.environment;
    settings.insert(look.mca.begin(), look.mca.end());
    std::vector<GivenSetting> given;
    for (const char* name : kWaySettings)
      if (auto one = given_setting(symptoms, look, name)) {
        // UCX carries MPICH, and where a user chose it, Open MPI: which of these is not known.
        if (name == kWaySettings.back() && backend_facts(look.backend).mca && !one->removal.empty())
          continue;
        settings[name] = one->value;
        given.push_back(*std::move(one));
      }
    const auto now = asked_transport(symptoms.profile, look.backend, settings, look.many_hosts);
    for (auto& one : given) {
      auto without = settings;
      without.erase(one.name);
      const auto way = asked_transport(symptoms.profile, look.backend, without, look.many_hosts);
      const bool open = way != "shm" || !shares_by_luck(symptoms, look.backend);
      if (open && speed_place(way) < speed_place(now)) found.push_back({std::move(one), way});
    }
  }
  return found;
}

std::vector<GivenSetting> settings_of(const std::vector<Forced>& forced) {
  std::vector<GivenSetting> given;
  given.reserve(forced.size());
  for (const auto& one : forced) given.push_back(one.setting);
  return given;
}

/// Did the library say, as it ended, that it has nothing of what the setting names?
bool is_refused(const BackendLook& look, std::string_view name) {
  const auto said = [&](std::string_view words) {
    return look.failure.find(words) != std::string::npos;
  };
  if (name == "pml" && said("PML ") && said(" cannot be selected")) return true;
  if (name.starts_with("UCX_")) return said("no usable transports/devices");
  return said(fmt::format("of framework {} ", name));
}

std::vector<GivenSetting> refused_settings(const Symptoms& symptoms) {
  std::vector<GivenSetting> found;
  for (const auto& look : symptoms.looks) {
    if (look.failure.empty()) continue;
    for (const char* name : kComponentSettings)
      if (is_refused(look, name))
        if (auto given = given_setting(symptoms, look, name)) found.push_back(*std::move(given));
  }
  return found;
}

/// Those whose folder some rank does not see.
std::vector<GivenSetting> settings_without_folder(const Symptoms& symptoms) {
  std::vector<GivenSetting> found;
  for (const auto& look : symptoms.looks) {
    if (!look.impossible.empty()) continue;
    for (const char* name : kFolderSettings) {
      auto given = given_setting(symptoms, look, name);
      const auto& ranks = look.facts.empty() ? symptoms.facts : look.facts;
      if (given && std::any_of(ranks.begin(), ranks.end(), [&](const auto& facts) {
            const nlohmann::json& absent = fact(facts, "environment", "absent_folders");
            return absent.is_array() &&
                   std::find(absent.begin(), absent.end(), given->value) != absent.end();
          }))
        found.push_back(*std::move(given));
    }
  }
  return found;
}

struct Doubt {
  GivenSetting setting;
  const char* why;
};

/// Settings that change how a library works, for better or worse as the machine is.
std::vector<Doubt> doubtful_settings(const Symptoms& symptoms) {
  std::vector<Doubt> found;
  const auto cores = whole_number<int>(fact(symptoms.host, "cpu", "cores"));
  for (const auto& look : symptoms.looks) {
    if (!look.ran()) continue;
    if (auto coll = given_setting(symptoms, look, "coll");
        coll && coll->value.starts_with('^') && plain_list_names(coll->value.substr(1), "tuned"))
      found.push_back({*std::move(coll), "takes the algorithms chosen by size away"});
    // The launcher gives it itself to more ranks than there are cores.
    if (auto idle = given_setting(symptoms, look, "mpi_yield_when_idle");
        idle && idle->value != "0" && symptoms.ranks <= cores.value_or(symptoms.ranks))
      found.push_back({*std::move(idle), "gives the core away while a rank waits"});
  }
  return found;
}

Symptom symptom_of(const std::vector<GivenSetting>& given, const std::vector<std::string>& what) {
  Symptom symptom;
  std::vector<std::string> seen;
  for (std::size_t i = 0; i < given.size(); ++i) {
    symptom.backends.push_back(given[i].look->backend);
    seen.push_back(fmt::format("{}: {} ({}) {}", name_of(given[i].look->backend), given[i].text(),
                               given[i].origin, what[i]));
  }
  symptom.evidence = join(seen, "; ");
  return symptom;
}

}  // namespace

std::optional<Symptom> look_for_slow_setting(const Symptoms& symptoms) {
  const auto forced = forced_ways(symptoms);
  if (forced.empty()) return std::nullopt;
  std::vector<std::string> forbids;
  for (const auto& one : forced) forbids.push_back("forbids " + one.without);
  return symptom_of(settings_of(forced), forbids);
}

Fix fix_slow_setting(const Symptoms& symptoms) {
  return without_settings(symptoms.profile, settings_of(forced_ways(symptoms)));
}

std::optional<Symptom> look_for_refused_setting(const Symptoms& symptoms) {
  const auto refused = refused_settings(symptoms);
  if (refused.empty()) return std::nullopt;
  return symptom_of(refused,
                    std::vector<std::string>(refused.size(), "names nothing that it has here"));
}

Fix fix_refused_setting(const Symptoms& symptoms) {
  return without_settings(symptoms.profile, refused_settings(symptoms));
}

std::optional<Symptom> look_for_absent_folder(const Symptoms& symptoms) {
  const auto given = settings_without_folder(symptoms);
  if (given.empty()) return std::nullopt;
  return symptom_of(given, std::vector<std::string>(
                               given.size(), "names a folder that is not there for the ranks"));
}

Fix fix_absent_folder(const Symptoms& symptoms) {
  return without_settings(symptoms.profile, settings_without_folder(symptoms));
}

std::optional<Symptom> look_for_doubtful_setting(const Symptoms& symptoms) {
  std::vector<GivenSetting> given;
  std::vector<std::string> why;
  for (const auto& doubt : doubtful_settings(symptoms)) {
    given.push_back(doubt.setting);
    why.emplace_back(doubt.why);
  }
  if (given.empty()) return std::nullopt;
  return symptom_of(given, why);
}

Fix fix_doubtful_setting(const Symptoms& symptoms) {
  std::vector<GivenSetting> given;
  for (const auto& doubt : doubtful_settings(symptoms)) given.push_back(doubt.setting);
  return without_settings(symptoms.profile, given);
}

}  // namespace dynamiccl
