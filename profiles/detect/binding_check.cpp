#include "profiles/detect/binding_check.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/text.hpp"
#include "profiles/detect/fact_access.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

/// Core index of each hardware thread.
std::map<int, int> cores_of_cpus(const json& facts) {
  std::map<int, int> core_of;
  const json& cores = fact(facts, "cpu", "core_cpus");
  if (!cores.is_array()) return core_of;
  int core = 0;
  for (const json& cpus : cores) {
    if (cpus.is_array())
      for (const json& cpu : cpus)
        if (cpu.is_number_integer()) core_of[cpu.get<int>()] = core;
    ++core;
  }
  return core_of;
}

struct RankCores {
  int rank = 0;
  std::set<int> cores;
};

/// Cores that the machine leaves to the program that measures: a user may have bound it to some.
std::set<int> offered_cores(const json& machine, const std::map<int, int>& core_of) {
  const json& affinity = fact(machine, "process", "affinity");
  std::set<int> cores;
  for (const auto& [cpu, core] : core_of)
    if (!affinity.is_array() || std::find(affinity.begin(), affinity.end(), cpu) != affinity.end())
      cores.insert(core);
  return cores;
}

/// Gives each rank a core of its own where its binding allows (augmenting paths).
class Matching {
 public:
  explicit Matching(const std::vector<RankCores>& ranks) : ranks_(ranks) {}

  /// @returns how many ranks can have a core of their own, at most `enough`
  std::size_t size(std::size_t enough) {
    std::size_t matched = 0;
    for (std::size_t i = 0; i < ranks_.size() && matched < enough; ++i) {
      visited_.clear();
      if (place(i)) ++matched;
    }
    return matched;
  }

 private:
  bool place(std::size_t rank) {
    for (const int core : ranks_[rank].cores) {
      if (!visited_.insert(core).second) continue;
      const auto holder = holder_.find(core);
      if (holder != holder_.end() && !place(holder->second)) continue;
      holder_[core] = rank;
      return true;
    }
    return false;
  }

  const std::vector<RankCores>& ranks_;
  std::map<int, std::size_t> holder_;
  std::set<int> visited_;
};

std::string describe(const std::vector<RankCores>& ranks, std::size_t own, std::size_t offered) {
  std::vector<std::string> parts;
  constexpr std::size_t kShown = 8;
  for (const RankCores& rank : ranks) {
    if (parts.size() == kShown) {
      parts.emplace_back("...");
      break;
    }
    std::vector<std::string> cores;
    for (const int core : rank.cores) cores.push_back(std::to_string(core));
    parts.push_back("rank " + std::to_string(rank.rank) + " on core " + join(cores, ","));
  }
  return "only " + std::to_string(own) + " of " + std::to_string(ranks.size()) +
         " ranks can have a core of their own, though " + std::to_string(offered) +
         " cores are there: " + join(parts, "; ") +
         "; start Open MPI with --bind-to none, or bind each rank to a core of its own";
}

}  // namespace

std::vector<std::string> binding_defects(const json& host, const std::vector<FactsRecord>& facts) {
  std::map<std::string, std::vector<const FactsRecord*>> hosts;
  for (const FactsRecord& record : facts)
    hosts[fact_text(record.facts, "system", "boot_id")].push_back(&record);
  std::vector<std::string> defects;
  for (const auto& [boot_id, records] : hosts) {
    const json& machine =
        boot_id == fact_text(host, "system", "boot_id") ? host : records.front()->facts;
    const auto core_of = cores_of_cpus(machine);
    std::vector<RankCores> ranks;
    for (const FactsRecord* record : records) {
      const json& affinity = fact(record->facts, "process", "affinity");
      RankCores rank{record->rank, {}};
      if (affinity.is_array())
        for (const json& cpu : affinity)
          if (cpu.is_number_integer() && core_of.contains(cpu.get<int>()))
            rank.cores.insert(core_of.at(cpu.get<int>()));
      if (!rank.cores.empty()) ranks.push_back(std::move(rank));
    }
    if (ranks.size() != records.size()) continue;
    // A rank's own affinity is what is being judged, not what its machine offers.
    const std::size_t offered = offered_cores(&machine == &host ? host : json(), core_of).size();
    const std::size_t enough = std::min(ranks.size(), offered);
    const std::size_t own = Matching(ranks).size(enough);
    if (own < enough) defects.push_back(describe(ranks, own, offered));
  }
  return defects;
}

}  // namespace dynamiccl
