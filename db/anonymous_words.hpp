#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// What a database for sharing lacks; each stands for something else everywhere in it, in JSON and
/// in free text alike.
struct AnonymousSummary {
  int hosts = 0;
  int users = 0;
  int paths = 0;      ///< distinct ones; their structure stays, names of folders and files do not
  int addresses = 0;  ///< IP and MAC addresses, GPUs' serial ids
};

/// Replaces what tells a machine or a person: first everything is looked at, then texts are
/// replaced; equal things get equal names. Pure.
class Anonymizer {
 public:
  void hide_host(const std::string& name);
  void hide_user(const std::string& name);
  void hide_word(const std::string& word);
  /// A boot id: hidden whole and by its beginning, as markers of owners have it.
  void hide_id(const std::string& id);
  /// Hosts, users and whole paths in the strings of a JSON value.
  void look_at(const nlohmann::json& value);
  /// Files in a command line, which may be named from where it was given.
  void look_at_command(const nlohmann::json& words);

  [[nodiscard]] std::string replaced(const std::string& text);
  [[nodiscard]] nlohmann::json replaced(const nlohmann::json& value);
  [[nodiscard]] AnonymousSummary summary() const { return summary_; }

 private:
  void look_at_string(const std::string& key, const std::string& text);
  /// A machine's name, where an environment or a sentence has it.
  void hide_machine(const std::string& name);
  void hide(const std::string& word, const std::string& stands_for);
  [[nodiscard]] std::string path(const std::string& path);
  [[nodiscard]] std::string component(const std::string& name);
  [[nodiscard]] std::string with_patterns(const std::string& text);
  [[nodiscard]] std::string with_words(std::string text) const;
  [[nodiscard]] std::string numbered(const std::string& kind, const std::string& original);

  AnonymousSummary summary_;
  std::map<std::string, std::string> words_;       ///< whole words, in any text
  std::map<std::string, std::string> components_;  ///< of paths
  std::map<std::string, std::string> numbers_;     ///< addresses and ids
  std::set<std::string> paths_;  ///< that no pattern finds: with blanks, relative ones
  std::set<std::string> seen_paths_;
};

/// TOML without its comments. @param without keys whose texts are left out, too
std::string without_comments(const std::string& toml, const std::set<std::string>& without = {});

}  // namespace dynamiccl
