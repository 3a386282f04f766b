#include "containers/cluster/host_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <sstream>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr int kMostSlots = 1 << 16;

[[noreturn]] void refuse(const std::string& source, int line, const std::string& what) {
  // A NUL would end the message.
  throw Error(ErrorKind::input,
              printable(fmt::format("{}:{}: {}; a line is `node1`, `node1:4` or `node1 slots=4`",
                                    source, line, what)));
}

int slots_of(const std::string& text, const std::string& source, int line) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || end != text.data() + text.size() || slots < 1 || slots > kMostSlots)
    refuse(source, line,
           fmt::format("\"{}\" is no number of slots from 1 to {}", text, kMostSlots));
  return slots;
}

/// Names go into command lines of other programs, where a leading - would be an option.
bool is_host_name(const std::string& name) {
  const std::string host = name.substr(name.rfind('@') + 1);
  return !host.empty() && host.front() != '-' && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' ||
                  c == '_' || c == '@';
         });
}

/// What the usual other spellings of hosts are to be replaced by.
void refuse_known_spellings(const std::string& name, const std::string& source, int line) {
  if (std::count(name.begin(), name.end(), ':') > 1)
    refuse(source, line,
           fmt::format("\"{}\" looks like an IPv6 address, whose slots cannot be seen: give "
                       "it a name (/etc/hosts, or Host and HostName in ~/.ssh/config)",
                       name));
  if (name.find('[') != std::string::npos)
    refuse(source, line,
           fmt::format("\"{}\" is a range of hosts: write them out, as `scontrol show hostnames "
                       "{}` does where Slurm is, one a line in a file",
                       name, name));
}

ClusterNode parse_host(const std::string& entry, const std::string& source, int line) {
  std::istringstream words(entry);
  ClusterNode node;
  words >> node.name;
  refuse_known_spellings(node.name, source, line);
  if (const auto colon = node.name.find(':'); colon != std::string::npos) {
    node.slots = slots_of(node.name.substr(colon + 1), source, line);
    node.name.erase(colon);
  }
  if (!is_host_name(node.name))
    refuse(source, line, fmt::format("\"{}\" is no name of a host", node.name));
  for (std::string word; words >> word;) {
    if (word.starts_with("slots="))
      node.slots = slots_of(word.substr(6), source, line);
    else if (!word.starts_with("max_slots=") && !word.starts_with("max-slots="))
      refuse(source, line, fmt::format("\"{}\" is not known here", word));
  }
  return node;
}

}  // namespace

std::vector<ClusterNode> parse_hosts(const std::string& text, const std::string& source) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  std::vector<ClusterNode> nodes;
  std::map<std::string, std::size_t> places;
  int number = 0;
  for (std::string line : split(text, '\n')) {
    if (number == 0 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    ++number;
    if (const auto comment = line.find('#'); comment != std::string::npos) line.erase(comment);
    for (const std::string& part : split(line, ',')) {
      const std::string entry(trim(part));
      if (entry.empty()) continue;
      const ClusterNode node = parse_host(entry, source, number);
      const auto [known, is_new] = places.try_emplace(node.name, nodes.size());
      if (is_new)
        nodes.push_back(node);
      else if (int& slots = nodes[known->second].slots; slots + node.slots <= kMostSlots)
        slots += node.slots;
      else
        refuse(source, number,
               fmt::format("\"{}\" has more than {} slots by now", node.name, kMostSlots));
    }
  }
  if (nodes.empty()) refuse(source, number, "no host is named");
  return nodes;
}

std::vector<ClusterNode> place_ranks(const std::vector<ClusterNode>& nodes, int ranks,
                                     int per_node) {
  std::vector<ClusterNode> placed = nodes;
  for (auto& node : placed) node.slots = 0;
  int left = ranks;
  if (per_node > 0) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      placed[i].slots = std::min({per_node, nodes[i].slots, left});
      left -= placed[i].slots;
    }
  }
  // One round gives every node with room one more rank, so that shares differ by one at most.
  for (bool room = per_node == 0; left > 0 && room;) {
    room = false;
    for (std::size_t i = 0; i < nodes.size() && left > 0; ++i) {
      if (placed[i].slots >= nodes[i].slots) continue;
      ++placed[i].slots;
      --left;
      room = true;
    }
  }
  if (left > 0)
    throw Error(ErrorKind::input,
                fmt::format("{} ranks cannot be placed: {} node{} {}{}", ranks, nodes.size(),
                            nodes.size() == 1 ? " takes" : "s take", ranks - left,
                            per_node > 0 ? fmt::format(" at {} per node", per_node) : ""));
  std::erase_if(placed, [](const ClusterNode& node) { return node.slots == 0; });
  return placed;
}

std::vector<ClusterNode> dealt_in_turn(std::vector<ClusterNode> placed) {
  std::vector<ClusterNode> dealt;
  for (std::size_t before = 1; before != dealt.size();) {
    before = dealt.size();
    for (auto& node : placed)
      if (node.slots-- > 0) dealt.push_back({node.name, 1});
  }
  return dealt;
}

std::string placement_text(const std::vector<ClusterNode>& nodes) {
  std::vector<std::string> parts;
  for (const auto& node : nodes)
    parts.push_back(
        fmt::format("{} ({} rank{})", node.name, node.slots, node.slots == 1 ? "" : "s"));
  return join(parts, ", ");
}

}  // namespace dynamiccl
