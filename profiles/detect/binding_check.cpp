#include "profiles/detect/binding_check.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
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
        if (const auto number = whole_number<int>(cpu)) core_of[*number] = core;
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

/// "0-3,8" for {0, 1, 2, 3, 8}, as /sys writes it.
std::string as_ranges(const std::set<int>& numbers) {
  std::vector<std::string> parts;
  for (auto first = numbers.begin(); first != numbers.end();) {
    auto last = first;
    while (std::next(last) != numbers.end() && *std::next(last) == *last + 1) ++last;
    parts.push_back(first == last ? std::to_string(*first)
                                  : std::to_string(*first) + "-" + std::to_string(*last));
    first = std::next(last);
  }
  return join(parts, ",");
}

std::string counted(std::size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

/// What is said of each rank, ranks of which the same is said together, in the order of the first.
std::string said_of_ranks(const std::map<int, std::string>& said) {
  std::vector<std::string> order;
  std::map<std::string, std::set<int>> ranks_of;
  for (const auto& [rank, text] : said) {
    if (!ranks_of.contains(text)) order.push_back(text);
    ranks_of[text].insert(rank);
  }
  std::vector<std::string> parts;
  for (const auto& text : order) {
    const auto& ranks = ranks_of.at(text);
    parts.push_back((ranks.size() == 1 ? "rank " : "ranks ") + as_ranges(ranks) + " on " + text);
  }
  return join(parts, ", ");
}

std::set<int> allowed_cpus(const json& facts, const std::map<int, int>& core_of) {
  std::set<int> cpus;
  const json& affinity = fact(facts, "process", "affinity");
  if (!affinity.is_array()) return cpus;
  for (const json& cpu : affinity)
    if (const auto number = whole_number<int>(cpu); number && core_of.contains(*number))
      cpus.insert(*number);
  return cpus;
}

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
      RankCores rank{record->rank, {}};
      for (const int cpu : allowed_cpus(record->facts, core_of)) rank.cores.insert(core_of.at(cpu));
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

std::optional<CorePlacement> core_placement(const std::vector<FactsRecord>& facts) {
  if (facts.empty()) return std::nullopt;
  std::map<std::string, std::vector<RankCores>> hosts;
  std::map<int, std::string> cpus_of;
  std::map<int, std::string> shape_of;
  std::set<std::string> layouts;
  for (const FactsRecord& record : facts) {
    const auto core_of = cores_of_cpus(record.facts);
    const auto cpus = allowed_cpus(record.facts, core_of);
    if (cpus.empty()) return std::nullopt;
    RankCores rank{record.rank, {}};
    for (const int cpu : cpus) rank.cores.insert(core_of.at(cpu));
    const bool free = cpus.size() == core_of.size();
    cpus_of[record.rank] = (cpus.size() == 1 ? "CPU " : "CPUs ") + as_ranges(cpus);
    shape_of[record.rank] =
        free ? "all CPUs"
             : counted(cpus.size(), "CPU") + " of " + counted(rank.cores.size(), "core");
    layouts.insert(fact(record.facts, "cpu", "core_cpus").dump());
    hosts[fact_text(record.facts, "system", "boot_id")].push_back(std::move(rank));
  }
  std::size_t own = 0;
  for (const auto& [boot_id, ranks] : hosts) own += Matching(ranks).size(ranks.size());
  const std::string crowding = "; " + std::to_string(own) + " of " + counted(facts.size(), "rank") +
                               " can have a core of their own";
  return CorePlacement{said_of_ranks(cpus_of) + crowding, said_of_ranks(shape_of) + crowding,
                       facts.size(), own, join({layouts.begin(), layouts.end()}, " ")};
}

}  // namespace dynamiccl
