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
std::string host_name(const json& facts) { return fact_text(facts, "system", "hostname"); }

/// A container, as far as a process can tell from inside: a mount namespace of a machine.
json container_of(const json& facts) {
  return json::array({boot_id(facts), fact(facts, "namespaces", "mnt")});
}

class Checker {
 public:
  Checker(const LaunchExpectation& expected, const std::vector<json>& hosts,
          const std::vector<HelloRecord>& hellos, const std::vector<FactsRecord>& facts)
      : expected_(expected), hosts_(hosts), hellos_(hellos), facts_(facts) {}

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

  /// The machine a rank runs on, nullptr when it is none of those that are known.
  [[nodiscard]] const json* host_of(const json& facts) const {
    std::vector<const json*> found;
    for (const json& host : hosts_)
      if (boot_id(host) == boot_id(facts)) found.push_back(&host);
    const auto keep = [&](const auto& same) {
      std::vector<const json*> kept;
      std::copy_if(found.begin(), found.end(), std::back_inserter(kept),
                   [&](const json* host) { return same(*host); });
      if (!kept.empty()) found = std::move(kept);
    };
    // A container with a name of its own is known by its machine's network, where it has that.
    if (found.size() > 1)
      keep([&](const json& host) {
        const json& network = namespace_identity(host, "net");
        return !network.is_null() && network == namespace_identity(facts, "net");
      });
    if (found.size() > 1)
      keep([&](const json& host) { return host_name(host) == host_name(facts); });
    return found.size() == 1 ? found.front() : nullptr;
  }

  /// What tells the hosts of ranks apart. A container's host name says nothing of its machine, so
  /// it only counts where several machines are promised and none of them could be asked.
  [[nodiscard]] std::string host_key(const json& facts) const {
    if (expected_.hosts == 1) return boot_id(facts);
    const json* host = host_of(facts);
    if (host != nullptr) return boot_id(*host) + " " + host_name(*host);
    return hosts_.empty() ? boot_id(facts) + " " + host_name(facts) : boot_id(facts);
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
    bool unknown = false;
    for (const auto& record : facts_) {
      hosts.insert(host_key(record.facts));
      unknown = unknown || boot_id(record.facts).empty();
    }
    if (!facts_.empty() && unknown) {
      add("hosts", "a rank does not know its boot id, so hosts cannot be distinguished");
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
      const json* host = host_of(record.facts);
      if (promises_bare_metal() && host != nullptr &&
          container_of(record.facts) == container_of(*host))
        continue;
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
    // No container reaches over hosts.
    std::map<std::string, int> ranks_of_host;
    for (const auto& record : facts_) ++ranks_of_host[host_key(record.facts)];
    int promised = 0;
    for (const auto& [host, ranks] : ranks_of_host) promised += expected_.promise.containers(ranks);
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
      const json* host = host_of(record.facts);
      if (host == nullptr) continue;  // nothing to compare with
      const json& mine = namespace_identity(record.facts, promised.name);
      const json& hosts = namespace_identity(*host, promised.name);
      if (mine.is_null() || hosts.is_null()) {
        add("namespaces", "rank " + std::to_string(record.rank) + ": whether \"" + promised.name +
                              "\" is the host's is not known (" +
                              unknown_reason(mine.is_null() ? record.facts : *host, promised.name) +
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
    if (host_key(a.facts) != host_key(b.facts)) return true;
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
    std::map<std::string, std::vector<FactsRecord>> by_host;
    for (const auto& record : facts_) by_host[host_key(record.facts)].push_back(record);
    for (const auto& [key, records] : by_host) {
      const json* host = host_of(records.front().facts);
      for (const std::string& message : binding_defects(host != nullptr ? *host : json(), records))
        add("binding", message);
    }
  }

  const LaunchExpectation& expected_;
  const std::vector<json>& hosts_;
  const std::vector<HelloRecord>& hellos_;
  const std::vector<FactsRecord>& facts_;
  std::vector<Violation> found_;
};

}  // namespace

std::vector<Violation> check_promise(const LaunchExpectation& expected,
                                     const std::vector<json>& hosts,
                                     const std::vector<HelloRecord>& hellos,
                                     const std::vector<FactsRecord>& facts) {
  return Checker(expected, hosts, hellos, facts).run();
}

std::vector<Violation> check_promise(const LaunchExpectation& expected, const json& host,
                                     const std::vector<HelloRecord>& hellos,
                                     const std::vector<FactsRecord>& facts) {
  const std::vector<json> hosts{host};
  return check_promise(expected, hosts, hellos, facts);
}

std::string to_text(const std::vector<Violation>& violations) {
  std::vector<std::string> parts;
  for (const Violation& violation : violations)
    parts.push_back(violation.rule + ": " + violation.message);
  return join(parts, "; ");
}

}  // namespace dynamiccl
