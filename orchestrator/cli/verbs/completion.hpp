#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace dynamiccl {

/// One word that may stand where the cursor is.
struct Candidate {
  std::string word;
  std::string description;  ///< one line, may be empty
};

/// Values that only the surroundings know. Each may throw; what it offered then is left out.
struct CompletionSources {
  std::function<std::vector<Candidate>()> runs;
  std::function<std::vector<Candidate>()> launches;
  std::function<std::vector<Candidate>()> queries;
  std::function<std::vector<Candidate>()> environments;
};

/// What may stand at `words[index]`, made from the command table itself, so that a new verb or
/// option is completed without further work.
/// @param words the command line with the program first, as the shell splits it; bash also splits
/// at "="
std::vector<Candidate> complete(const CLI::App& app, const std::vector<std::string>& words,
                                std::size_t index, const CompletionSources& sources);

/// Files and folders that begin with `prefix`; folders end in "/".
/// @param extension of files, ".toml"; empty = any
std::vector<Candidate> matching_paths(const std::string& prefix, const std::string& extension);

/// The script that a shell loads: it asks the program for every word.
/// @param shell "bash", "zsh" or "fish"
std::string completion_script(const std::string& shell);

}  // namespace dynamiccl
