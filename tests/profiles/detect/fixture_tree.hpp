#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/vocabulary/json.hpp"
#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl::test {

/// A recorded machine: tests/profiles/fixtures/NAME.tree unpacked into a temporary folder, gone
/// with the object. Lines of the file are `file PATH TEXT` (with \n, \t, \\ and \xNN) and
/// `link PATH TARGET`; /live.json holds what system calls would have told.
class FixtureTree {
 public:
  explicit FixtureTree(const std::string& name);
  ~FixtureTree();
  FixtureTree(const FixtureTree&) = delete;
  FixtureTree& operator=(const FixtureTree&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// The facts of a process on that machine.
  [[nodiscard]] nlohmann::json facts(const Declarations& declared = {}) const;
  [[nodiscard]] nlohmann::json host_facts() const;

 private:
  std::filesystem::path path_;
};

/// What /live.json of a tree recorded; an absent key is unknown.
std::unique_ptr<LiveSystem> recorded_live_system(const std::filesystem::path& tree);

}  // namespace dynamiccl::test
