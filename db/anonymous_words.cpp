#include "db/anonymous_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <regex>
#include <string_view>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

bool is_word_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Folders that every machine has, and whose names say nothing.
bool is_of_system(std::string_view path) {
  constexpr std::array<std::string_view, 9> kRoots{"/usr/",  "/bin/", "/sbin/", "/lib/", "/lib64/",
                                                   "/proc/", "/sys/", "/dev/",  "/etc/"};
  return std::any_of(kRoots.begin(), kRoots.end(), [&](std::string_view root) {
    return path.starts_with(root) || path == root.substr(0, root.size() - 1);
  });
}

bool names_a_program(const std::string& name) {
  constexpr std::array<std::string_view, 4> kStarts{"dynamiccl", "libdynamiccl", "mpirun",
                                                    "mpiexec"};
  return name == "run.json" || name == "runs" || name == "tmp" ||
         std::any_of(kStarts.begin(), kStarts.end(), [&](std::string_view start) {
           return name.starts_with(start) && name.find_first_of(" @") == std::string::npos;
         });
}

bool is_identifier(const std::string& name) {
  return name.size() == 36 && std::all_of(name.begin(), name.end(), [](char c) {
           return std::isxdigit(static_cast<unsigned char>(c)) != 0 || c == '-';
         });
}

constexpr const char* kLeftOut = "(left out)";

/// A machine's file that somebody wrote, and none of those that come along.
bool is_own_machine(const std::string& machine) {
  return machine.find('/') != std::string::npos || machine.ends_with(".toml");
}

/// Of `key = ` at a text's end, of inline tables and dotted keys too: "key"; "" = no such end.
std::string key_before(std::string_view text) {
  const auto cut = [&](std::string_view dropped) {
    const auto last = text.find_last_not_of(dropped);
    text = last == std::string_view::npos ? "" : text.substr(0, last + 1);
  };
  cut(" \t");
  if (!text.ends_with('=')) return "";
  text.remove_suffix(1);
  cut(" \t\"'");
  const auto before = text.find_last_of(" \t\n.,{\"'");
  return std::string(before == std::string_view::npos ? text : text.substr(before + 1));
}

bool looks_like_path(const std::string& text) {
  return text.size() > 1 && text.front() == '/' && text.find('\n') == std::string::npos;
}

}  // namespace

void Anonymizer::hide(const std::string& word, const std::string& stands_for) {
  constexpr std::size_t kShortest = 2;
  if (word.size() >= kShortest) words_.try_emplace(word, stands_for);
}

void Anonymizer::hide_host(const std::string& name) {
  if (name.empty() || name == "localhost" || words_.contains(name)) return;
  const std::string stands_for = fmt::format("host{}", ++summary_.hosts);
  hide(name, stands_for);
  if (const auto dot = name.find('.'); dot != std::string::npos && dot > 0)
    hide(name.substr(0, dot), stands_for);
}

void Anonymizer::hide_user(const std::string& name) {
  if (name.empty() || name == "root" || words_.contains(name)) return;
  hide(name, fmt::format("user{}", ++summary_.users));
}

void Anonymizer::hide_word(const std::string& word) {
  hide(word, fmt::format("word{}", words_.size() + 1));
}

void Anonymizer::hide_machine(const std::string& name) {
  // A file may be called as a setting or a library is: its name alone stays what it is.
  constexpr std::array<std::pair<const char*, const char*>, 4> kAround{
      {{"simulated-", ""}, {"simulated on ", ""}, {"SMPI on ", ""}, {"", " is simulated with"}}};
  const std::string stands_for = fmt::format("word{}", words_.size() + 1);
  if (name.empty()) return;
  for (const auto& [before, behind] : kAround)
    hide(before + name + behind, before + stands_for + behind);
}

void Anonymizer::hide_id(const std::string& id) {
  constexpr std::size_t kBeginning = 8;
  const std::string stands_for = fmt::format("boot{}", words_.size() + 1);
  hide(id, stands_for);
  if (id.size() > kBeginning) hide(id.substr(0, kBeginning), stands_for);
}

void Anonymizer::look_at_string(const std::string& key, const std::string& text) {
  static const std::set<std::string> hosts{"hostname", "host", "host_name", "node", "nodename"};
  static const std::set<std::string> users{"user", "USER", "LOGNAME", "user_name"};
  const bool one_word = !text.empty() && text.find_first_of(" /:\n") == std::string::npos;
  if (hosts.contains(key) && one_word) hide_host(text);
  if (users.contains(key) && one_word) hide_user(text);
  if (looks_like_path(text) && text.find(' ') != std::string::npos && !is_of_system(text))
    paths_.insert(text);
  // A machine's file is named from where an experiment was run; names of our own are no paths.
  if (key == "machine" && is_own_machine(text)) {
    if (!text.starts_with("/")) paths_.insert(text);
    hide_machine(std::filesystem::path(text).stem().string());
  }
  // Whose home it is.
  static const std::regex home("/home/([^/\\s\"':;,]+)");
  for (std::sregex_iterator at(text.begin(), text.end(), home), end; at != end; ++at)
    hide_user((*at)[1].str());
}

void Anonymizer::look_at(const json& value) {
  if (value.is_string()) return look_at_string("", value.get<std::string>());
  if (value.is_array())
    for (const auto& one : value) look_at(one);
  if (!value.is_object()) return;
  for (const auto& [key, one] : value.items()) {
    if (one.is_string())
      look_at_string(key, one.get<std::string>());
    else
      look_at(one);
  }
}

void Anonymizer::look_at_command(const json& words) {
  if (!words.is_array()) return;
  constexpr std::array<std::string_view, 8> kEndings{".toml", ".sqlite", ".json", ".txt",
                                                     ".log",  ".csv",    ".html", ".py"};
  for (const auto& one : words) {
    if (!one.is_string()) continue;
    std::string word = one.get<std::string>();
    if (word.starts_with("--"))
      if (const auto equals = word.find('='); equals != std::string::npos)
        word.erase(0, equals + 1);
    if (word.empty() || word.front() == '-' || word.front() == '/') continue;
    const bool folder = word.find('/') != std::string::npos && word.find('=') == std::string::npos;
    if (folder || std::any_of(kEndings.begin(), kEndings.end(),
                              [&](std::string_view ending) { return word.ends_with(ending); }))
      paths_.insert(word);
  }
}

std::string Anonymizer::numbered(const std::string& kind, const std::string& original) {
  const auto [found, fresh] = numbers_.try_emplace(original, "");
  if (fresh) found->second = fmt::format("{}{}", kind, ++summary_.addresses);
  return found->second;
}

std::string Anonymizer::component(const std::string& name) {
  if (name.empty() || names_a_program(name) || is_identifier(name)) return name;
  const auto [found, fresh] = components_.try_emplace(name, "");
  if (fresh) found->second = fmt::format("p{}", components_.size());
  return found->second;
}

std::string Anonymizer::path(const std::string& text) {
  if (is_of_system(text)) return text;
  if (seen_paths_.insert(text).second) ++summary_.paths;
  std::vector<std::string> names = split(text, '/');
  for (auto& name : names) name = component(name);
  return join(names, "/");
}

std::string Anonymizer::with_patterns(const std::string& text) {
  // A path, an IPv4 address, a MAC address or InfiniBand id, a GPU's id, an e-mail address.
  static const std::regex pattern(
      "(/[A-Za-z0-9_.@~+-][^\\s\"'\\\\,;:|<>(){}\\[\\]=]*)|"
      "(\\b[0-9]{1,3}(?:\\.[0-9]{1,3}){3}\\b)|"
      "(\\b[0-9a-fA-F]{2,4}(?::[0-9a-fA-F]{2,4}){3,7}\\b)|"
      "(\\b(?:GPU|MIG)-[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\\b)|"
      "([A-Za-z0-9._+-]+@[A-Za-z0-9-]+\\.[A-Za-z0-9.-]+)");
  std::string result;
  auto from = text.begin();
  for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) {
    const auto& match = *at;
    const auto begin = text.begin() + match.position(0);
    result.append(from, begin);
    from = begin + match.length(0);
    const std::string found = match.str(0);
    // A fraction or a unit, as in "GB/s", is no path.
    const bool inside_word = begin != text.begin() && is_word_letter(*(begin - 1));
    if (match[1].matched)
      result += inside_word ? found : path(found);
    else if (match[2].matched)
      result += found.starts_with("127.") || found == "0.0.0.0" ? found : numbered("ip", found);
    else
      result += numbered("id", found);
  }
  result.append(from, text.end());
  return result;
}

std::string Anonymizer::with_words(std::string text) const {
  // Longest first: a host's full name before its short one.
  std::vector<std::pair<std::string, std::string>> words(words_.begin(), words_.end());
  std::stable_sort(words.begin(), words.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  for (const auto& [word, stands_for] : words)
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
      const std::size_t end = at + word.size();
      const bool whole = (at == 0 || !is_word_letter(text[at - 1])) &&
                         (end == text.size() || !is_word_letter(text[end]));
      if (whole) text.replace(at, word.size(), stands_for);
      at += whole ? stands_for.size() : 1;
    }
  return text;
}

std::string Anonymizer::replaced(const std::string& text) {
  std::string result = text;
  // Those with blanks, which no pattern tells from what follows them.
  for (auto known = paths_.rbegin(); known != paths_.rend(); ++known)
    for (std::size_t at = result.find(*known); at != std::string::npos;
         at = result.find(*known, at)) {
      const std::string stands_for = path(*known);
      result.replace(at, known->size(), stands_for);
      at += stands_for.size();
    }
  constexpr std::size_t kLongestForPatterns = 20000;
  if (result.size() <= kLongestForPatterns) return with_words(with_patterns(result));
  // Regular expressions recurse: long texts are taken by lines, and an endless line is dropped.
  std::vector<std::string> lines = split(result, '\n');
  for (auto& line : lines)
    line = line.size() <= kLongestForPatterns ? with_words(with_patterns(line)) : "(left out)";
  return join(lines, "\n");
}

json Anonymizer::replaced(const json& value) {
  if (value.is_string()) return replaced(value.get<std::string>());
  if (value.is_array()) {
    json list = json::array();
    for (const auto& one : value) list.push_back(replaced(one));
    return list;
  }
  if (!value.is_object()) return value;
  json object = json::object();
  const auto machine = value.find("machine");
  const bool own =
      machine != value.end() && machine->is_string() && is_own_machine(machine->get<std::string>());
  const std::set<std::string> without{"description", "source"};
  for (const auto& [key, one] : value.items()) {
    if (key == "machine_toml" && one.is_string())
      object[key] = replaced(
          without_comments(one.get<std::string>(), own ? without : std::set<std::string>{}));
    else
      object[replaced(key)] = own && key == "description" ? json(kLeftOut) : replaced(one);
  }
  return object;
}

std::string without_comments(const std::string& toml, const std::set<std::string>& without) {
  std::string result;
  std::string quote;  // "" outside of strings
  bool hidden = false;
  for (std::size_t at = 0; at < toml.size(); ++at) {
    const char c = toml[at];
    if (quote.empty() && c == '#') {
      while (at < toml.size() && toml[at] != '\n') ++at;
      if (at < toml.size()) result += '\n';
      continue;
    }
    if (quote.empty() && (c == '"' || c == '\'')) {
      const std::string three(3, c);
      hidden = without.contains(key_before(result));
      quote = toml.compare(at, 3, three) == 0 ? three : std::string(1, c);
      result += quote + (hidden ? kLeftOut : "");
      at += quote.size() - 1;
    } else if (!quote.empty() && quote.front() == '"' && c == '\\' && at + 1 < toml.size()) {
      ++at;
      if (!hidden) result += {c, toml[at]};
    } else if (!quote.empty() && toml.compare(at, quote.size(), quote) == 0) {
      result += quote;
      at += quote.size() - 1;
      quote.clear();
      hidden = false;
    } else {
      const bool torn = c == '\n' && quote.size() == 1;
      if (!hidden || torn) result += c;
      if (torn) quote.clear();
      hidden = hidden && !torn;
    }
  }
  return result;
}

}  // namespace dynamiccl
