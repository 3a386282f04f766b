#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/vocabulary/units.hpp"

namespace dynamiccl {

/// Takes the records of one launch's ranks over TCP, where they do not see the launch's folder, and
/// appends them to the rank<r>.jsonl there that the collector reads anyway. Also hands out run.json
/// and what lies next to it, and is the ranks' rendezvous. Who does not say the launch's token gets
/// nothing and is closed. A thread of its own.
class RecordServer {
 public:
  struct Launch {
    std::string folder;  ///< of the launch
    std::string run_json;
    int ranks = 1;
  };
  /// What came, for tests and messages.
  struct Counts {
    std::uint64_t lines = 0;        ///< stored
    std::uint64_t again = 0;        ///< lines that were there already
    std::uint64_t connections = 0;  ///< that said the token
    std::uint64_t refused = 0;
  };

  /// Listens on every address of this machine, any port.
  /// @throws Error(environment)
  explicit RecordServer(Launch launch);
  ~RecordServer();
  RecordServer(const RecordServer&) = delete;
  RecordServer& operator=(const RecordServer&) = delete;

  /// What ranks are given in run.json's place; see kRecordsScheme.
  [[nodiscard]] const std::string& place() const { return place_; }
  [[nodiscard]] const std::string& token() const { return token_; }
  [[nodiscard]] int port() const { return port_; }

  /// The ranks have ended: waits until what they sent is taken in, `grace` at most, and ends.
  /// @returns one sentence per writer that broke off and did not come back, and per file that could
  /// not be written
  std::vector<std::string> finish(Micros grace);
  /// After finish().
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  class Desk;
  void serve();
  Launch launch_;
  std::string token_;
  std::string place_;
  int port_ = 0;
  int listener_ = -1;
  int wake_[2] = {-1, -1};
  std::atomic<std::int64_t> end_by_us_{0};  ///< of the steady clock; 0: not yet
  Counts counts_;
  std::vector<std::string> problems_;
  std::thread thread_;
};

/// Addresses of this machine by which another one may reach it, those of a way out first, loopback
/// last; eight at most.
std::vector<std::string> own_addresses();

}  // namespace dynamiccl
