#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/wire/record_frames.hpp"

namespace dynamiccl {

/// Where the orchestrator listens for a launch's records.
struct RecordsEndpoint {
  std::vector<std::string> addresses;  ///< of one machine; tried in this order
  int port = 0;
  std::string token;
};

/// @param place "tcp://ADDRESS,ADDRESS:PORT". @throws Error(input) for anything else
RecordsEndpoint parse_records_endpoint(const std::string& place, const std::string& token);

/// What this process's records go to, for RecordWriter and the ranks' rendezvous; nullopt: the
/// folder. Set once, by main, before anything is written.
std::optional<RecordsEndpoint>& records_endpoint();

/// A connection that carries frames; fails once and stays failed.
class FrameSocket {
 public:
  using Clock = std::chrono::steady_clock;
  FrameSocket() = default;
  ~FrameSocket();
  FrameSocket(FrameSocket&& other) noexcept;
  FrameSocket& operator=(FrameSocket&& other) noexcept;

  /// Tries each address in turn, a second each, from the one that answered last, until one answers
  /// or the time is over.
  /// @returns why none did, "" = connected
  std::string connect(const RecordsEndpoint& endpoint, Clock::time_point until);
  /// @returns false when the connection has broken
  bool send(const std::string& bytes, Clock::time_point until);
  /// @returns the next frame; nullopt when there is none by then or the connection has broken
  std::optional<std::pair<FrameHeader, std::string>> receive(Clock::time_point until);
  /// From now on receive() waits longer by what has come, over every connection, takes on the
  /// slowest link that is one.
  void wait_by_size() { by_size_ = true; }
  /// So much longer.
  [[nodiscard]] std::chrono::milliseconds more() const;
  [[nodiscard]] bool alive() const { return file_ >= 0; }
  [[nodiscard]] int descriptor() const { return file_; }
  void close();
  /// What answers there is not who is looked for: the next connect() begins with the next address.
  /// @returns a sentence that says so
  std::string go_on();
  /// "ADDRESS:PORT" that was tried last.
  [[nodiscard]] const std::string& peer() const { return peer_; }

 private:
  int file_ = -1;
  std::size_t first_ = 0;  ///< of the addresses, counted round
  std::uint64_t received_ = 0;
  bool by_size_ = false;
  std::string peer_;
  std::string in_;
};

/// A launch as a rank gets it.
struct FetchedRun {
  std::string address;  ///< that of the endpoint's which handed it out
  std::string run_json;
  std::vector<std::pair<std::string, std::string>> files;  ///< name and bytes
};
/// @param timeout on top of the time that what comes takes over a slow link
/// @throws Error(environment) when nobody answers in that time, or refuses
FetchedRun fetch_run(const RecordsEndpoint& endpoint,
                     std::chrono::milliseconds timeout = std::chrono::seconds(30));
/// Writes what lies next to run.json into `folder`; names that lead out of it are left out.
/// @throws Error(environment) with path and reason when one cannot be written whole
void keep_files(const FetchedRun& run, const std::string& folder);

/// Sends one writer's lines. A line is kept until it is acknowledged; a connection that breaks is
/// made anew, and what was not acknowledged is sent again under its old number.
class RecordLink {
 public:
  /// @param mode "refuse": the only writer of this rank; "append"
  /// @throws Error(environment) when nobody answers within 30 s, or refuses
  RecordLink(RecordsEndpoint endpoint, int rank, const char* mode);
  /// Says what is left to be said, for 30 s and as long as that much takes over a slow link, and
  /// that nothing follows, for two more. What did not get through is printed to stderr.
  ~RecordLink();
  RecordLink(const RecordLink&) = delete;
  RecordLink& operator=(const RecordLink&) = delete;

  /// Waits until the line is acknowledged, so that nothing of it is under way while a rank
  /// measures; two seconds at most, more for what is long: then it goes with the next one.
  /// @param line without its line end
  /// @throws Error(environment) for a line that is too long, and when far too much waits
  void write(const std::string& line);
  /// A file of this rank's folder that the orchestrator reads.
  void send_file(const std::string& name, const std::string& bytes);
  /// A frame that a signal handler may write to live_descriptor() as this process ends.
  static std::string last_words(int rank, const std::string& line);
  /// The connection that was made last; -1: there is none, or a frame is being sent over it. For
  /// signal handlers.
  static int live_descriptor();
  [[nodiscard]] std::uint64_t connections() const { return connections_; }

 private:
  using Clock = std::chrono::steady_clock;
  /// @returns false when the orchestrator cannot be reached by then
  bool connected(Clock::time_point until);
  /// Until everything is acknowledged, or no connection was had for `timeout`; `more` on top of it
  /// at most, and only over a connection.
  void pump(Clock::duration timeout, Clock::duration more);
  void acknowledged(std::uint64_t sequence);
  /// What waits takes so long over the slowest link.
  [[nodiscard]] std::chrono::milliseconds time_for_waiting() const;
  /// Until it is acknowledged, or that time: a cut would take a word that is said once with it.
  void say_bye(Clock::time_point until);

  RecordsEndpoint endpoint_;
  int rank_;
  std::string hello_;
  FrameSocket socket_;
  std::deque<std::pair<std::uint64_t, std::string>> waiting_;  ///< whole frames by number
  std::uint64_t last_ = 0;                                     ///< number given out
  std::uint64_t sent_ = 0;                                     ///< over this connection
  std::size_t waiting_bytes_ = 0;
  std::uint64_t connections_ = 0;
  std::string refusal_;
  std::string why_;  ///< the last connection failed
};

/// The ranks' rendezvous: keys and values that any of them sets and all can wait for.
class RecordStore {
 public:
  explicit RecordStore(RecordsEndpoint endpoint) : endpoint_(std::move(endpoint)) {}
  /// @throws Error(environment) when it cannot be said within 30 s
  void set(const std::string& key, const std::string& value);
  /// @returns nullopt when nobody has set it by then
  /// @throws Error(environment) when nobody answers
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout);

 private:
  std::pair<FrameHeader, std::string> ask(const std::string& bytes);
  RecordsEndpoint endpoint_;
  FrameSocket socket_;
};

}  // namespace dynamiccl
