#include "orchestrator/doctor/least.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/statistics/descriptive.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/examine.hpp"
#include "orchestrator/doctor/gpu_path.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/launch/machine.hpp"
#include "orchestrator/launch/post_mortem.hpp"

namespace dynamiccl {
namespace {

constexpr double kSlower = 1.25;
// The first says what is compared with, the second how far launches differ by themselves.
constexpr int kReferences = 2;
// A launch that is slower, or failed, may be so by chance.
constexpr int kTries = 3;
constexpr int kIterations = 50;
constexpr const char* kByLuck =
    "whether its launch fails is luck: UCX's shared memory wants one PID namespace";
constexpr Bytes kSmall{std::uint64_t{1} << 10};

void add_sharing(std::vector<ContainerFlag>& flags, const char* name,
                 Sharing EnvironmentProfile::*sharing, const EnvironmentProfile& profile) {
  if (profile.*sharing == Sharing::private_) return;
  flags.push_back(
      {fmt::format("--{} {}", name, profile.*sharing == Sharing::host ? "host" : "container:FIRST"),
       [sharing](EnvironmentProfile& changed) { changed.*sharing = Sharing::private_; }});
}

void add_permissions(std::vector<ContainerFlag>& flags, const EnvironmentProfile& profile) {
  for (const auto& capability : profile.capabilities)
    flags.push_back({"--cap-add " + capability.name, [name = capability.name](auto& changed) {
                       std::erase_if(changed.capabilities,
                                     [&](const auto& given) { return given.name == name; });
                     }});
  for (const auto& option : profile.security_options)
    // This one takes rights away.
    if (!option.starts_with("no-new-privileges"))
      flags.push_back({"--security-opt " + option, [option](EnvironmentProfile& changed) {
                         std::erase(changed.security_options, option);
                       }});
}

/// "1g", "64m", "4096b": as --shm-size takes it.
std::string engine_size(Bytes size) {
  for (const auto& [unit, letter] : {std::pair{std::uint64_t{1} << 30, 'g'}, {1U << 20, 'm'}})
    if (size.count() % unit == 0) return fmt::format("{}{}", size.count() / unit, letter);
  return fmt::format("{}b", size.count());
}

std::vector<double> times_of(const std::vector<FlagLaunch>& launches, std::size_t size) {
  std::vector<double> times;
  for (const auto& launch : launches)
    if (size < launch.times.size()) times.push_back(launch.times[size].count());
  return times;
}

std::string slower_text(const FlagLaunch& launch, const std::vector<FlagLaunch>& with_all) {
  const auto sizes = least_sizes();
  for (std::size_t i = 0; i < sizes.size() && i < launch.times.size(); ++i) {
    const auto known = times_of(with_all, i);
    if (known.empty()) continue;
    const double middle = median(known);
    const double most = *std::max_element(known.begin(), known.end());
    if (launch.times[i].count() > std::max(most, kSlower * middle))
      return fmt::format("{} take {}, with all flags {}", format_bytes(sizes[i]),
                         format_micros(launch.times[i]), format_micros(Micros(middle)));
  }
  return "";
}

class LeastSearch {
 public:
  LeastSearch(const EnvironmentProfile& profile, const std::vector<ContainerFlag>& flags,
              const LaunchWith& launch, const LeastOptions& options, Console& console)
      : profile_(profile), flags_(flags), launch_(launch), options_(options), console_(console) {}

  LeastResult run() {
    LeastResult result;
    result.environment = profile_.name;
    result.impossible = look_at_all_flags();
    if (result.known()) search(result);
    result.launches = launches_;
    return result;
  }

 private:
  /// @returns why the profile as it is cannot be compared with
  std::string look_at_all_flags() {
    for (int i = 0; i < 2 * kReferences && with_all_.size() < kReferences; ++i) {
      const auto launch = start(profile_, "with all flags");
      if (!launch) return why_ended();
      if (launch->by_luck)
        return launch->failure.empty()
                   ? fmt::format("{} (pid = \"{}\")", kByLuck,
                                 profile_.ipc == Sharing::host ? "host" : "shared")
                   : "it does not run as it is: " + launch->failure;
      if (launch->failure.empty())
        with_all_.push_back(*launch);
      else if (i > 0 && with_all_.empty())
        return "it does not run as it is: " + launch->failure;
    }
    if (with_all_.size() < kReferences) return "it runs now and then only";
    if (with_all_.front().transport != with_all_.back().transport)
      return fmt::format("its launches took {} once and {} once", with_all_.front().transport,
                         with_all_.back().transport);
    return "";
  }

  void search(LeastResult& result) {
    const auto kept = smallest_set(flags_.size(), [this](const KeptSet& set) { return ask(set); });
    if (!kept) {
      result.impossible = why_ended();
      return;
    }
    result.transport = with_all_.front().transport;
    result.profile = with_flags(profile_, flags_, *kept);
    for (std::size_t i = 0; i < least_sizes().size(); ++i)
      result.with_all.emplace_back(median(times_of(with_all_, i)));
    const bool all = kept->size() == flags_.size();
    result.with_least = all ? result.with_all : good_.at(*kept).times;
    for (std::size_t i = 0; i < flags_.size(); ++i) {
      const bool needed = std::find(kept->begin(), kept->end(), i) != kept->end();
      KeptSet rest = *kept;
      std::erase(rest, i);
      result.flags.push_back({flags_[i].text, needed, needed ? worse_.at(rest) : ""});
    }
  }

  /// With all flags again after the first try, so that what is compared is of the same minute.
  std::optional<bool> ask(const KeptSet& kept) {
    const auto profile = with_flags(profile_, flags_, kept);
    std::string why;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      if (attempt == 1) {
        const auto again = start(profile_, "with all flags");
        if (!again) return std::nullopt;
        if (again->failure.empty()) with_all_.push_back(*again);
      }
      const auto launch = start(profile, label(kept));
      if (!launch) return std::nullopt;
      why = why_worse(*launch, with_all_);
      if (why.empty()) {
        good_[kept] = *launch;
        return true;
      }
      // Which way bytes go is no matter of chance.
      if (launch->by_luck ||
          (launch->failure.empty() && launch->transport != with_all_.front().transport))
        break;
    }
    worse_[kept] = why;
    return false;
  }

  /// nullopt when no more may be started.
  std::optional<FlagLaunch> start(const EnvironmentProfile& profile, const std::string& what) {
    if (launches_ >= options_.launches || interrupt_signal() != 0) return std::nullopt;
    ++launches_;
    console_.note(fmt::format("launch {} of at most {}: {}", launches_, options_.launches, what));
    return launch_(profile);
  }

  [[nodiscard]] std::string label(const KeptSet& kept) const {
    std::vector<std::string> words;
    for (const std::size_t i : kept) words.push_back(flags_[i].text);
    return words.empty() ? "without any of the flags" : "with " + join(words, " ");
  }

  [[nodiscard]] std::string why_ended() const {
    return interrupt_signal() != 0 ? "interrupted"
                                   : fmt::format("{} did not suffice: allow more by --launches",
                                                 counted(options_.launches, "launch"));
  }

  const EnvironmentProfile& profile_;
  const std::vector<ContainerFlag>& flags_;
  const LaunchWith& launch_;
  const LeastOptions& options_;
  Console& console_;
  int launches_ = 0;
  std::vector<FlagLaunch> with_all_;
  std::map<KeptSet, FlagLaunch> good_;
  std::map<KeptSet, std::string> worse_;
};

FlagLaunch launch_of(const Symptoms& symptoms) {
  FlagLaunch launch;
  if (symptoms.looks.empty()) {
    launch.failure = symptoms.unavailable.empty() ? "no launch was made" : symptoms.unavailable;
    return launch;
  }
  const auto& look = symptoms.looks.front();
  launch.failure = !look.impossible.empty() ? look.impossible : look.failure;
  // However this launch ended: the next one may end the other way.
  launch.by_luck = starts_by_luck(symptoms, look);
  launch.transport = look.used;
  launch.times = look.fastest;
  return launch;
}

std::string times_text(const std::vector<Micros>& times) {
  const auto sizes = least_sizes();
  std::vector<std::string> words;
  for (std::size_t i = 0; i < sizes.size() && i < times.size(); ++i)
    words.push_back(fmt::format("{} in {}", format_bytes(sizes[i]), format_micros(times[i])));
  return join(words, ", ");
}

}  // namespace

std::vector<Bytes> least_sizes() { return {kLookSize, kSmall}; }

std::vector<ContainerFlag> container_flags(const EnvironmentProfile& profile, bool gpus) {
  std::vector<ContainerFlag> flags;
  add_sharing(flags, "network", &EnvironmentProfile::network, profile);
  add_sharing(flags, "ipc", &EnvironmentProfile::ipc, profile);
  add_sharing(flags, "pid", &EnvironmentProfile::pid, profile);
  add_sharing(flags, "uts", &EnvironmentProfile::uts, profile);
  if (profile.shm_size != Bytes(0))
    flags.push_back({"--shm-size " + engine_size(profile.shm_size),
                     [](EnvironmentProfile& changed) { changed.shm_size = Bytes(0); }});
  if (!profile.shared_tmpfs.empty())
    flags.push_back({"--volume FOLDER:" + profile.shared_tmpfs,
                     [](EnvironmentProfile& changed) { changed.shared_tmpfs.clear(); }});
  if (gpus && profile.gpus == GpuVisibility::all && profile.ranks_per_container > 0)
    flags.push_back({"--gpus all", [](EnvironmentProfile& changed) {
                       changed.gpus = GpuVisibility::one_per_rank;
                     }});
  add_permissions(flags, profile);
  return flags;
}

EnvironmentProfile with_flags(EnvironmentProfile profile, const std::vector<ContainerFlag>& flags,
                              const KeptSet& kept) {
  for (std::size_t i = 0; i < flags.size(); ++i)
    if (std::find(kept.begin(), kept.end(), i) == kept.end()) flags[i].remove(profile);
  return profile;
}

std::string why_worse(const FlagLaunch& launch, const std::vector<FlagLaunch>& with_all) {
  if (launch.by_luck && (launch.failure.empty() || is_unseen_peer(launch.failure))) return kByLuck;
  if (!launch.failure.empty())
    return "its launch fails: " + launch.failure.substr(0, launch.failure.find('\n'));
  if (launch.transport != with_all.front().transport)
    return fmt::format("transport {}, with all flags {}", launch.transport,
                       with_all.front().transport);
  return slower_text(launch, with_all);
}

LeastResult find_least(const EnvironmentProfile& profile, const std::vector<ContainerFlag>& flags,
                       const LaunchWith& launch, const LeastOptions& options, Console& console) {
  return LeastSearch(profile, flags, launch, options, console).run();
}

LeastResult find_least(const EnvironmentProfile& profile, int ranks, Backend backend,
                       const LaunchSite& site, const LeastOptions& options, Console& console) {
  if (!profile.in_engine())
    throw Error(ErrorKind::input,
                fmt::format("doctor --least: {} starts no container of Docker or Podman, whose "
                            "flags could be left out: name one that does",
                            profile.name));
  const auto can = inspect_machine({{profile.name, profile}}, site.worker_folder);
  const LookPlan plan{least_sizes(), kIterations, false};
  const auto launch = [&](const EnvironmentProfile& changed) {
    return launch_of(examine(changed, ranks, {backend}, site, can, plan));
  };
  auto result = find_least(profile, container_flags(profile, shows_gpus(profile, site.host)),
                           launch, options, console);
  result.backend = backend;
  return result;
}

std::string to_text(const LeastResult& result) {
  std::string text = fmt::format("{}, {}\n", result.environment, name_of(result.backend));
  if (!result.known())
    return text + fmt::format("  not known after {}: {}\n", counted(result.launches, "launch"),
                              result.impossible);
  std::string line = "docker run";
  for (const auto& need : result.flags)
    if (need.needed) line += " " + need.flag;
  text += fmt::format("  transport {}; {}\n", result.transport, times_text(result.with_all));
  for (const auto& need : result.flags)
    if (need.needed) text += fmt::format("  needed: {} (without it {})\n", need.flag, need.without);
  std::vector<std::string> rest;
  for (const auto& need : result.flags)
    if (!need.needed) rest.push_back(need.flag);
  if (!rest.empty()) text += fmt::format("  not needed: {}\n", join(rest, ", "));
  if (result.flags.empty()) text += "  it has no flag that could be left out\n";
  return text + fmt::format("  least: {} ...\n  with it {}; {}\n", line,
                            times_text(result.with_least), counted(result.launches, "launch"));
}

nlohmann::json to_json(const LeastResult& result) {
  nlohmann::json flags = nlohmann::json::array();
  for (const auto& need : result.flags)
    flags.push_back({{"flag", need.flag},
                     {"needed", need.needed},
                     {"without", need.needed ? nlohmann::json(need.without) : nlohmann::json()}});
  const auto times = [](const std::vector<Micros>& all) {
    nlohmann::json list = nlohmann::json::array();
    for (std::size_t i = 0; i < all.size(); ++i)
      list.push_back({{"size_bytes", least_sizes()[i].count()}, {"time_us", all[i].count()}});
    return list;
  };
  return {{"environment", result.environment},
          {"backend", name_of(result.backend)},
          {"impossible", result.known() ? nlohmann::json() : nlohmann::json(result.impossible)},
          {"launches", result.launches},
          {"transport", result.known() ? nlohmann::json(result.transport) : nlohmann::json()},
          {"with_all", times(result.with_all)},
          {"with_least", times(result.with_least)},
          {"flags", flags},
          {"least_profile", result.known()
                                ? shown_profile(parsed_json(dynamiccl::to_json(result.profile)))
                                : nlohmann::json()}};
}

}  // namespace dynamiccl
