#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "containers/cluster/cluster_session.hpp"
#include "core/vocabulary/error.hpp"

namespace dynamiccl::test {

namespace fs = std::filesystem;

/// Hosts of this machine, by a remote shell that reaches those that are not marked as dead.
class NearHosts {
 public:
  NearHosts() {
    REQUIRE(mkdtemp(folder_.data()) != nullptr);
    std::ofstream(shell()) << "#!/bin/sh\nhost=$1; shift\n"
                           << "echo \"$host\" >>" << folder_ << "/asked\n"
                           << "[ -e " << folder_ << "/dead-$host ] && exit 255\n"
                           << "[ -e " << folder_ << "/apart-$host ] && rm -f " << folder_
                           << "/.seen-by-all-*\n"
                           << "[ -e " << folder_ << "/short-$host ] && sh -c \"$*\" && "
                           << "echo oom_kill 999999999 && exit\n"
                           << "[ -e " << folder_ << "/greets-$host ] && cat " << folder_
                           << "/greets-$host\n"
                           << "exec sh -c \"$*\"\n";
    fs::permissions(shell(), fs::perms::owner_all);
  }
  ~NearHosts() { fs::remove_all(folder_); }
  [[nodiscard]] std::string shell() const { return folder_ + "/shell"; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  void kill(const std::string& host) const { std::ofstream(folder_ + "/dead-" + host) << "\n"; }
  /// The user's start-up files print this there.
  void greet(const std::string& host, const std::string& words) const {
    std::ofstream(folder_ + "/greets-" + host) << words;
  }
  /// This host's kernel has ended processes for want of memory.
  void exhaust(const std::string& host) const { std::ofstream(folder_ + "/short-" + host) << "\n"; }
  /// From now on this host, asked alone, does not see the folder.
  void part(const std::string& host) const { std::ofstream(folder_ + "/apart-" + host) << "\n"; }
  /// Since the last time.
  [[nodiscard]] std::set<std::string> asked() const {
    std::set<std::string> hosts;
    std::ifstream file(folder_ + "/asked");
    for (std::string host; std::getline(file, host);) hosts.insert(host);
    fs::remove(folder_ + "/asked");
    return hosts;
  }
  [[nodiscard]] ClusterOptions options() const {
    ClusterOptions options;
    options.hosts = {{"a", 1}, {"b", 1}, {"c", 1}};
    options.remote_shell = shell();
    return options;
  }
  /// @returns what is wrong with which host, "" = nothing
  [[nodiscard]] std::string hold(ClusterSession& session) const {
    try {
      session.hold("run-7", {folder_, folder_}, {}, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

 private:
  std::string folder_ = fs::temp_directory_path() / "near-hosts-XXXXXX";
};

}  // namespace dynamiccl::test
