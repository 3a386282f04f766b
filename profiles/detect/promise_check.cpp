#include "profiles/detect/promise_check.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/vocabulary/text.hpp"
#include "profiles/detect/binding_check.hpp"
#include "profiles/detect/fact_access.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

std::string rank_list(const std::vector<int>& ranks) {
  std::vector<std::string> texts;
  for (const int rank : ranks) texts.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(texts, ", ");
}

std::string boot_id(const json& facts) { return fact_text(facts, "system", "boot_id"); }

/// A container, as far as a process can tell from inside: a mount namespace of a machine.
json container_of(const json& facts) {
  return json::array({boot_id(facts), fact(facts, "namespaces", "mnt")});
}

class Checker {
 public:
  Checker(const LaunchExpectation& expected, const json& host,
          const std::vector<HelloRecord>& hellos, const std::vector<FactsRecord>& facts)
      : expected_(expected), host_(host), hellos_(hellos), facts_(facts) {}

  std::vector<Violation> run() {
    check_world();
    check_ranks("ranks", "started", [&] {
      std::vector<int> ranks;
      for (const auto& hello : hellos_) ranks.push_back(hello.rank);
      return ranks;
    }());
    check_ranks("facts", "wrote facts", [&] {
      std::vector<int> ranks;
      for (const auto& record : facts_) ranks.push_back(record.rank);
      return ranks;
    }());
    check_hosts();
    check_runtime();
    check_containers();
    for (const auto& promised : expected_.promise.namespaces) {
      check_with_host(promised);
      check_between_ranks(promised);
    }
    check_binding();
    return std::move(found_);
  }

 private:
  void add(const char* rule, const std::string& message) { found_.push_back({rule, message}); }

  void check_world() {
    std::map<int, std::vector<int>> worlds;
    std::set<std::string> launches;
    std::map<std::string, std::vector<int>> versions;
    for (const auto& hello : hellos_) {
      if (hello.world_size != expected_.ranks) worlds[hello.world_size].push_back(hello.rank);
      launches.insert(hello.launch_id);
      // A rank without the library (a parameter server without a GPU) says no version.
      if (!hello.library_version.empty()) versions[hello.library_version].push_back(hello.rank);
    }
    for (const auto& [size, ranks] : worlds)
      add("world_size", rank_list(ranks) + " counted " + std::to_string(size) +
                            " rank(s) in the world instead of " + std::to_string(expected_.ranks) +
                            (size == 1 ? ": the launcher started separate one-rank jobs" : ""));
    if (launches.size() > 1)
      add("world_size", "the ranks belong to different launches: " +
                            join({launches.begin(), launches.end()}, ", "));
    if (versions.size() > 1) {
      std::vector<std::string> parts;
      for (const auto& [version, ranks] : versions)
        parts.push_back(rank_list(ranks) + " loaded " + version);
      add("library", "the ranks loaded different library versions: " + join(parts, ", "));
    }
  }

  /// Each of 0..n-1 exactly once.
  void check_ranks(const char* rule, const char* verb, const std::vector<int>& seen) {
    std::map<int, int> counts;
    for (const int rank : seen) ++counts[rank];
    std::vector<int> missing;
    std::vector<int> odd;
    for (int rank = 0; rank < expected_.ranks; ++rank)
      if (!counts.contains(rank)) missing.push_back(rank);
    for (const auto& [rank, count] : counts)
      if (count > 1 || rank < 0 || rank >= expected_.ranks) odd.push_back(rank);
    if (!missing.empty())
      add(rule, rank_list(missing) + " of " + std::to_string(expected_.ranks) + " never " + verb);
    if (!odd.empty()) add(rule, rank_list(odd) + " " + verb + " twice or out of range");
  }

  void check_hosts() {
    std::set<std::string> hosts;
    for (const auto& record : facts_) hosts.insert(boot_id(record.facts));
    if (!facts_.empty() && hosts.contains("")) {
      add("hosts", "a rank does not know its boot id, so hosts cannot be told apart");
      return;
    }
    if (!facts_.empty() && static_cast<int>(hosts.size()) != expected_.hosts)
      add("hosts", "the ranks run on " + std::to_string(hosts.size()) + " host(s) instead of " +
                       std::to_string(expected_.hosts));
  }

  [[nodiscard]] bool promises_bare_metal() const {
    return expected_.promise.runtimes == std::vector<std::string>{"none"};
  }

  void check_runtime() {
    const auto& runtimes = expected_.promise.runtimes;
    for (const auto& record : facts_) {
      const std::string runtime = fact_text(record.facts, "container", "runtime");
      if (std::find(runtimes.begin(), runtimes.end(), runtime) != runtimes.end()) continue;
      // Where the orchestrator itself runs in a container, that container is the machine.
      if (promises_bare_metal() && container_of(record.facts) == container_of(host_)) continue;
      add("runtime", "rank " + std::to_string(record.rank) + " runs under \"" +
                         (runtime.empty() ? "unknown" : runtime) + "\", but profile \"" +
                         expected_.promise.environment + "\" promises " + join(runtimes, " or "));
    }
  }

  void check_containers() {
    if (facts_.empty() || promises_bare_metal()) return;
    std::map<json, std::vector<int>> containers;
    for (const auto& record : facts_) containers[container_of(record.facts)].push_back(record.rank);
    const int per_container = expected_.promise.ranks_per_container;
    // "All ranks in one container" means one on each host.
    const int promised =
        per_container == 0 ? expected_.hosts : expected_.promise.containers(expected_.ranks);
    if (static_cast<int>(containers.size()) != promised)
      add("containers", "the ranks run in " + std::to_string(containers.size()) +
                            " container(s), but profile \"" + expected_.promise.environment +
                            "\" promises " + std::to_string(promised) + " for " +
                            std::to_string(expected_.ranks) + " ranks");
    for (const auto& [container, ranks] : containers)
      if (per_container > 0 && static_cast<int>(ranks.size()) > per_container)
        add("containers", rank_list(ranks) + " share one container, but it is promised to hold " +
                              std::to_string(per_container));
  }

  void check_with_host(const NamespacePromise& promised) {
    if (!promised.with_host) return;
    std::vector<int> wrong;
    for (const auto& record : facts_) {
      if (boot_id(record.facts) != boot_id(host_)) continue;  // nothing to compare with
      const json& mine = namespace_identity(record.facts, promised.name);
      const json& hosts = namespace_identity(host_, promised.name);
      if (mine.is_null() || hosts.is_null()) {
        add("namespaces", "rank " + std::to_string(record.rank) + ": whether \"" + promised.name +
                              "\" is the host's is not known (" +
                              unknown_reason(mine.is_null() ? record.facts : host_, promised.name) +
                              ")");
        return;
      }
      if ((mine == hosts) != *promised.with_host) wrong.push_back(record.rank);
    }
    if (!wrong.empty())
      add("namespaces", rank_list(wrong) + (*promised.with_host ? " left" : " shared") +
                            " the host's \"" + promised.name + "\", but profile \"" +
                            expected_.promise.environment + "\" promises " +
                            (*promised.with_host ? "the host's" : "another"));
  }

  [[nodiscard]] static std::string unknown_reason(const json& facts, const std::string& name) {
    return name == "shm" ? fact_reason(facts, "shm", "device")
                         : fact_reason(facts, "namespaces", name.c_str());
  }

  void check_between_ranks(const NamespacePromise& promised) {
    if (!promised.between_ranks) return;
    for (std::size_t i = 0; i < facts_.size(); ++i)
      for (std::size_t j = i + 1; j < facts_.size(); ++j)
        if (!pair_is_as_promised(promised, facts_[i], facts_[j])) return;  // one message is enough
  }

  bool pair_is_as_promised(const NamespacePromise& promised, const FactsRecord& a,
                           const FactsRecord& b) {
    if (boot_id(a.facts) != boot_id(b.facts)) return true;
    const json& first = namespace_identity(a.facts, promised.name);
    const json& second = namespace_identity(b.facts, promised.name);
    const bool same_container = container_of(a.facts) == container_of(b.facts);
    const bool should_share = *promised.between_ranks || same_container;
    if (first.is_null() || second.is_null()) {
      add("namespaces", rank_list({a.rank, b.rank}) + ": whether they share \"" + promised.name +
                            "\" is not known (" +
                            unknown_reason(first.is_null() ? a.facts : b.facts, promised.name) +
                            ")");
      return false;
    }
    if ((first == second) == should_share) return true;
    add("namespaces",
        rank_list({a.rank, b.rank}) + (should_share ? " are apart in \"" : " share \"") +
            promised.name + "\", but profile \"" + expected_.promise.environment +
            "\" promises the ranks " + (should_share ? "to share it" : "to be apart"));
    return false;
  }

  void check_binding() {
    if (expected_.promise.binding_is_its_own) return;
    for (const std::string& message : binding_defects(host_, facts_)) add("binding", message);
  }

  const LaunchExpectation& expected_;
  const json& host_;
  const std::vector<HelloRecord>& hellos_;
  const std::vector<FactsRecord>& facts_;
  std::vector<Violation> found_;
};

}  // namespace

std::vector<Violation> check_promise(const LaunchExpectation& expected, const json& host,
                                     const std::vector<HelloRecord>& hellos,
                                     const std::vector<FactsRecord>& facts) {
  return Checker(expected, host, hellos, facts).run();
}

std::string to_text(const std::vector<Violation>& violations) {
  std::vector<std::string> parts;
  for (const Violation& violation : violations)
    parts.push_back(violation.rule + ": " + violation.message);
  return join(parts, "; ");
}

}  // namespace dynamiccl
