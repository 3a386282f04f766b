#include "containers/cluster/node_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// Nodes whose problems are printed in whole, and those of which the names are.
constexpr std::size_t kToldWhole = 10;
constexpr std::size_t kToldByName = 40;

/// What can be done about what ssh has said.
std::string_view advice(std::string_view said) {
  struct Known {
    std::string_view words;
    std::string_view advice;
  };
  constexpr std::array kKnown{
      Known{"Could not resolve hostname", "is the name right? Nobody here knows such a host"},
      Known{"Permission denied",
            "ssh has to log in there without a question: ssh-copy-id, or an agent"},
      Known{"Host key verification failed",
            "log in there once by ssh, or add its key to known_hosts"},
      Known{"Connection refused", "no sshd answers there"},
      Known{"timed out", "it is down, or a firewall lets no ssh through"},
      Known{"No route to host", "it is down, or in a network that this machine does not reach"},
  };
  for (const auto& known : kKnown)
    if (said.find(known.words) != std::string_view::npos) return known.advice;
  return "";
}

void add_problem(NodeReport& report, const std::string& problem) {
  report.problem += (report.problem.empty() ? "" : "; ") + problem;
}

void read_word(const std::string& word, const std::string& value, const NodeResult& result,
               NodeReport& report) {
  if (word == "boot_id") {
    report.boot_id = value;
  } else if (word == "cores") {
    report.cores = std::atoi(value.c_str());
  } else if (word == "oom_kill") {
    report.oom_kills = oom_kills_in(word + " " + value);
  } else if (word == "locked_memory") {
    report.locked_memory = value;
  } else if (word == "time" && !value.empty()) {
    // Between sending and answer: in the middle at best, never outside.
    report.clock_offset_s = std::atof(value.c_str()) - (result.began_s + result.ended_s) / 2;
    report.round_trip_s = result.ended_s - result.began_s;
  } else if (word == "missing") {
    const bool first = report.problem.find("has no ") == std::string::npos;
    add_problem(report,
                fmt::format("has no {}{}", value,
                            first ? ", where this machine has the program: copy it there under "
                                    "the same path, or start it from a folder that all nodes share"
                                  : ""));
  } else if (word == "temporary") {
    add_problem(
        report,
        fmt::format("cannot write a temporary file of 64 KiB ({}), as Open MPI and PMIx do: "
                    "make room there, or set TMPDIR for logins",
                    value));
  } else if (word == "apart") {
    report.apart = true;
  } else if (word == "facts") {
    report.facts = json_or_discarded(value);
    if (report.facts.is_discarded()) report.facts = nullptr;
  }
}

/// "" where the facts do not tell machines apart.
std::string machine_of(const NodeReport& report) {
  const nlohmann::json::json_pointer host("/system/hostname");
  const nlohmann::json::json_pointer network("/namespaces/net");
  const auto& facts = report.facts;
  if (!facts.is_object() || !facts.contains(host) || !facts.contains(network)) return "";
  return report.boot_id + " " + facts.at(host).dump() + " " + facts.at(network).dump();
}

}  // namespace

std::optional<std::uint64_t> oom_kills_in(const std::string& text) {
  constexpr std::string_view kWord = "oom_kill ";
  const auto found = text.rfind(kWord);
  std::uint64_t count = 0;
  if (found == std::string::npos) return std::nullopt;
  const char* first = text.data() + found + kWord.size();
  if (std::from_chars(first, text.data() + text.size(), count).ec != std::errc())
    return std::nullopt;
  return count;
}

NodeReport read_node_report(const std::string& name, const NodeResult& result,
                            std::chrono::seconds timeout) {
  NodeReport report;
  report.name = name;
  for (const std::string& line : split(result.out, '\n')) {
    const auto space = line.find(' ');
    if (space != std::string::npos)
      read_word(line.substr(0, space), line.substr(space + 1), result, report);
  }
  if (result.interrupted) {
    report.problem = "was not waited for: interrupted";
  } else if (result.timed_out) {
    report.problem = fmt::format("did not answer within {} s", timeout.count());
  } else if (result.exit_code != 0 || report.boot_id.empty()) {
    std::string said(trim(result.err));
    if (said.empty())
      said = fmt::format("the connection ended without a word (exit code {})", result.exit_code);
    // ssh's own exit code: what a command there has said is no word on the way to it.
    constexpr int kSshFailed = 255;
    const auto what_next = result.exit_code == kSshFailed ? advice(said) : std::string_view();
    report.problem = fmt::format("cannot be reached: {}{}{}{}", said, what_next.empty() ? "" : " (",
                                 what_next, what_next.empty() ? "" : ")");
  }
  return report;
}

std::map<std::string, std::string> named_twice(const std::vector<NodeReport>& reports) {
  std::map<std::string, std::string> first_names;
  std::map<std::string, std::string> problems;
  for (const auto& report : reports) {
    const std::string machine = machine_of(report);
    if (machine.empty()) continue;
    const auto [known, is_new] = first_names.emplace(machine, report.name);
    if (!is_new)
      problems[report.name] = fmt::format(
          "is the same machine as {}: name it once, with the slots of both", known->second);
  }
  return problems;
}

std::string problems_text(const std::vector<NodeReport>& reports) {
  std::vector<std::string> lines;
  std::vector<std::string> others;
  for (const auto& report : reports) {
    if (report.problem.empty()) continue;
    if (lines.size() < kToldWhole)
      lines.push_back(report.name + " " + report.problem);
    else
      others.push_back(report.name);
  }
  if (!others.empty()) {
    const std::size_t named = std::min(others.size(), kToldByName);
    const std::vector<std::string> names(others.begin(),
                                         others.begin() + static_cast<std::ptrdiff_t>(named));
    lines.push_back(fmt::format("and {} more: {}{}", others.size(), join(names, ", "),
                                named < others.size() ? ", ..." : ""));
  }
  return join(lines, "\n  ");
}

}  // namespace dynamiccl
