#include "containers/network_traces.hpp"

#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "containers/command.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;
constexpr std::array kFirewalls{"iptables", "ip6tables"};
constexpr const char* kForwarding = "/proc/sys/net/ipv4/ip_forward";

/// One table of a firewall as NAME-save prints it.
struct FirewallTable {
  std::map<std::string, std::string> policies;  ///< chain -> policy, "-" for a user's chain
  std::vector<std::string> rules;               ///< "-A CHAIN ..."
};

std::map<std::string, FirewallTable> tables_of(const std::string& saved) {
  std::map<std::string, FirewallTable> tables;
  FirewallTable* table = nullptr;
  for (const std::string& line : split(saved, '\n')) {
    if (line.starts_with('*')) {
      table = &tables[line.substr(1)];
    } else if (table != nullptr && line.starts_with(':')) {
      const auto words = split(line.substr(1), ' ');
      if (words.size() > 1) table->policies[words[0]] = words[1];
    } else if (table != nullptr && line.starts_with("-A ")) {
      table->rules.push_back(line);
    }
  }
  return tables;
}

bool speaks_of_docker(const std::string& rule) {
  const auto words = split(rule, ' ');
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word.starts_with("DOCKER") || is_docker_bridge(word);
  });
}

std::string undo_table(const FirewallTable& before, const FirewallTable& after, bool policy) {
  std::vector<std::string> own_chains;
  for (const auto& [chain, ignored] : after.policies)
    if (chain.starts_with("DOCKER") && !before.policies.contains(chain))
      own_chains.push_back(chain);
  std::string script;
  const auto wanted = before.policies.find("FORWARD");
  const auto now = after.policies.find("FORWARD");
  if (policy && wanted != before.policies.end() && now != after.policies.end() &&
      now->second != wanted->second)
    script += fmt::format(":FORWARD {} [0:0]\n", wanted->second);
  std::multiset<std::string> old(before.rules.begin(), before.rules.end());
  for (const std::string& rule : after.rules) {
    if (const auto found = old.find(rule); found != old.end()) {
      old.erase(found);
      continue;
    }
    const std::string chain = split(rule, ' ')[1];
    const bool goes_with_chain =
        std::find(own_chains.begin(), own_chains.end(), chain) != own_chains.end();
    if (!goes_with_chain && speaks_of_docker(rule)) script += "-D" + rule.substr(2) + "\n";
  }
  // All are emptied before the first is deleted: they jump to each other.
  for (const char* action : {"-F", "-X"})
    for (const std::string& chain : own_chains) script += fmt::format("{} {}\n", action, chain);
  return script;
}

std::string boot_id() { return std::string(trim(file_text("/proc/sys/kernel/random/boot_id"))); }

/// nullopt where nothing of this boot is noted.
std::optional<NetworkState> noted(const std::string& file) {
  const auto note = json_or_discarded(file_text(file));
  if (!note.is_object() || note.value("boot_id", "") != boot_id()) return std::nullopt;
  try {
    NetworkState state;
    note.at("links").get_to(state.links);
    note.at("forwards").get_to(state.forwards);
    note.at("rules").get_to(state.rules);
    return state;
  } catch (const nlohmann::json::exception&) {  // damaged: worth nothing
    return std::nullopt;
  }
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

/// What a machine lacks or refuses is left as it is: this is called while all else is cleared.
bool succeeds(const std::string& program, std::vector<std::string> arguments) {
  const std::string path = find_program(program);
  if (path.empty()) return false;
  arguments.insert(arguments.begin(), path);
  return run_command(arguments).exit_code == 0;
}

bool restore_firewall(const std::string& name, const std::string& script,
                      const std::string& script_file) {
  std::ofstream(script_file) << script;
  const bool done = succeeds(name + "-restore", {"--noflush", script_file});
  std::error_code ignored;
  fs::remove(script_file, ignored);
  return done;
}

bool stop_forwarding() {
  std::ofstream file(kForwarding);
  file << "0\n" << std::flush;
  return file.good();
}

}  // namespace

bool is_docker_bridge(const std::string& link) {
  constexpr std::size_t kDigits = 12;
  if (link == "docker0") return true;
  return link.starts_with("br-") && link.size() == 3 + kDigits &&
         link.find_first_not_of("0123456789abcdef", 3) == std::string::npos;
}

std::string undo_firewall(const std::string& before, const std::string& after, bool policy) {
  const auto old_tables = tables_of(before);
  std::string script;
  for (const auto& [name, table] : tables_of(after)) {
    const auto old = old_tables.find(name);
    const std::string undo =
        undo_table(old == old_tables.end() ? FirewallTable{} : old->second, table, policy);
    if (!undo.empty()) script += fmt::format("*{}\n{}COMMIT\n", name, undo);
  }
  return script;
}

NetworkState look_at_network() {
  NetworkState state;
  // Not /sys/class/net, which shows the namespace in which it was mounted.
  if (struct if_nameindex* list = if_nameindex()) {
    for (const struct if_nameindex* entry = list; entry->if_index != 0; ++entry)
      state.links.emplace_back(entry->if_name);
    if_freenameindex(list);
  }
  state.forwards = trim(file_text(kForwarding)) == "1";
  for (const char* name : kFirewalls) {
    const std::string program = find_program(std::string(name) + "-save");
    if (program.empty()) continue;
    const CommandResult saved = run_command({program});
    if (saved.exit_code == 0) state.rules[name] = saved.out;
  }
  return state;
}

void note_network(const std::string& file) {
  // A dead engine's note is of the state before it: that is the one to come back to.
  if (noted(file)) return;
  const NetworkState state = look_at_network();
  const nlohmann::json note = {{"boot_id", boot_id()},
                               {"links", state.links},
                               {"forwards", state.forwards},
                               {"rules", state.rules}};
  std::ofstream(file) << note.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

std::vector<std::string> restore_network(const std::string& file) {
  std::vector<std::string> restored;
  std::error_code ignored;
  const auto before = noted(file);
  if (!before) {  // nothing outlives a reboot
    fs::remove(file, ignored);
    return restored;
  }
  const NetworkState now = look_at_network();
  // Somebody else's new network may count on forwarding: then it stays as it is.
  const bool others = std::any_of(now.links.begin(), now.links.end(), [&](const auto& link) {
    return !contains(before->links, link) && !is_docker_bridge(link);
  });
  const bool forwarding_is_dockers = now.forwards && !before->forwards && !others;
  for (const auto& [name, rules] : before->rules) {
    const auto after = now.rules.find(name);
    if (after == now.rules.end()) continue;
    const std::string script = undo_firewall(rules, after->second, forwarding_is_dockers);
    if (!script.empty() && restore_firewall(name, script, file + ".undo"))
      restored.push_back("dockerd's rules of " + name);
  }
  for (const std::string& link : now.links)
    if (is_docker_bridge(link) && !contains(before->links, link) &&
        succeeds("ip", {"link", "delete", link, "type", "bridge"}))
      restored.push_back("interface " + link);
  if (forwarding_is_dockers && stop_forwarding()) restored.emplace_back("net.ipv4.ip_forward = 1");
  fs::remove(file, ignored);
  return restored;
}

}  // namespace dynamiccl
