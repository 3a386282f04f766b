#include "orchestrator/launch/record_server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <map>
#include <random>
#include <variant>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "core/wire/decisions_file.hpp"
#include "core/wire/record.hpp"
#include "core/wire/record_frames.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Who has not said the token by then is nobody's rank.
constexpr std::chrono::seconds kHelloTimeout{5};
/// Connections at once, for each rank and besides: records, run.json, rendezvous.
constexpr std::size_t kConnectionsPerRank = 3;
constexpr std::size_t kConnectionsBesides = 64;
/// What a rank has not taken yet: its run.json and files go in one piece.
constexpr std::size_t kMostUnsent = kMostRunBytes;
/// The headers of so much.
constexpr std::size_t kMostUnsentBesides = std::size_t{1} << 20;
constexpr std::size_t kMostKeys = 1 << 20;
constexpr std::size_t kMostAddresses = 8;
constexpr const char* kUnwritten = "its file cannot be written where it was started";

std::string random_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

/// Takes as long for a token that is almost right.
bool same_token(std::string_view a, std::string_view b) {
  unsigned differing = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    differing |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return differing == 0;
}

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
      .count();
}

std::string address_text(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
  return text;
}

/// All of `bytes` at the file's end, or nothing of it. @returns "", or why not
std::string append_whole(int file, const std::string& bytes) {
  const off_t before = lseek(file, 0, SEEK_END);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      std::string why = n < 0 ? std::strerror(errno) : "nothing was written";
      // A piece without its line end would spoil the line behind it.
      if (done > 0 && (before < 0 || ftruncate(file, before) != 0))
        why += "; half a line is left at its end";
      return why;
    }
    done += static_cast<std::size_t>(n);
  }
  return "";
}

/// Nothing follows it in a rank's file.
bool is_last_record(const std::string& line) {
  constexpr std::size_t kMostDone = 1024;
  if (line.size() > kMostDone) return false;
  try {
    return std::holds_alternative<DoneRecord>(record_from_json_line(line));
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

/// What the server's thread holds: nothing of it is seen from outside while it runs.
class RecordServer::Desk {
 public:
  /// A rank of this launch that writes, over however many connections.
  struct Writer {
    std::uint64_t stored = 0;  ///< number of the last line
    int rank = 0;
    int connections = 0;  ///< now
    std::string from;
    bool said_bye = false;
    bool complete = false;  ///< the last record of its rank is stored
    bool failed = false;    ///< a line of it could not be stored: no later one may be
  };

  struct Connection {
    int file = -1;
    std::string from;
    std::string in;
    std::string out;
    std::size_t sent = 0;  ///< of `out`
    std::string writer;    ///< key of it, "" = it only reads
    Clock::time_point came = Clock::now();
    bool known = false;  ///< has said the token
    bool ends = false;   ///< once `out` is sent
  };

  Desk(const Launch& launch, const std::string& token, Counts& counts,
       std::vector<std::string>& problems)
      : launch_(launch), token_(token), counts_(counts), problems_(problems) {}
  ~Desk() {
    for (auto& connection : connections_) ::close(connection.file);
    for (const auto& [rank, file] : files_) ::close(file);
  }
  Desk(const Desk&) = delete;
  Desk& operator=(const Desk&) = delete;

  std::list<Connection>& connections() { return connections_; }

  /// @returns whether somebody came
  bool take_in(int listener) {
    sockaddr_in from{};
    socklen_t length = sizeof(from);
    for (bool came = false;; came = true) {
      const int file = accept4(listener, reinterpret_cast<sockaddr*>(&from), &length,
                               SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (file < 0 && errno == EINTR) continue;
      if (file < 0) return came;
      if (connections_.size() >=
              kConnectionsBesides + kConnectionsPerRank * static_cast<std::size_t>(launch_.ranks) &&
          !make_place()) {
        ::close(file);
        ++counts_.refused;
        continue;
      }
      const int on = 1;
      setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      setsockopt(file, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
      Connection connection;
      connection.file = file;
      connection.from = address_text(from);
      connections_.push_back(std::move(connection));
    }
  }

  /// Takes in what has come and answers.
  void serve(Connection& connection) {
    char part[65536];
    while (connection.file >= 0 && !connection.ends) {
      const ssize_t n = recv(connection.file, part, sizeof(part), 0);
      if (n > 0) {
        connection.in.append(part, static_cast<std::size_t>(n));
        hear_frames(connection);
        continue;
      }
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      // Half a frame goes with its connection: its writer sends it again.
      drop(connection);
    }
    flush(connection);
  }

  void flush(Connection& connection) {
    while (connection.file >= 0 && !connection.out.empty()) {
      const ssize_t n = send(connection.file, connection.out.data() + connection.sent,
                             connection.out.size() - connection.sent, MSG_NOSIGNAL);
      if (n > 0) {
        connection.sent += static_cast<std::size_t>(n);
        // Not with every piece: what is left would be moved each time.
        const bool all = connection.sent == connection.out.size();
        if (!all && connection.sent < kMostLineBytes) continue;
        connection.out.erase(0, connection.sent);
        connection.sent = 0;
      } else if (n < 0 && errno == EINTR) {
        continue;
      } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        break;
      } else {
        drop(connection);
      }
    }
    if (connection.out.size() - connection.sent > kMostUnsent + kMostUnsentBesides ||
        (connection.ends && connection.out.empty()))
      drop(connection);
  }

  /// Who says nothing, and connections that have ended.
  void sweep() {
    for (auto& connection : connections_)
      if (!connection.known && Clock::now() - connection.came > kHelloTimeout) drop(connection);
    std::erase_if(connections_, [](const Connection& one) { return one.file < 0; });
  }

  [[nodiscard]] bool quiet() const {
    return std::none_of(connections_.begin(), connections_.end(),
                        [](const Connection& one) { return !one.writer.empty(); });
  }

  /// Writers that left without a word, and not all of whose records are known to be here.
  void name_the_lost() {
    for (const auto& [key, writer] : writers_) {
      if (writer.said_bye || writer.complete) continue;
      problems_.push_back(fmt::format(
          "rank {}'s connection from {} broke off after {} line{} and did not come back",
          writer.rank, writer.from, writer.stored, writer.stored == 1 ? "" : "s"));
    }
  }

 private:
  /// Strangers that say nothing keep no rank out: the one that came first goes.
  bool make_place() {
    const auto stranger =
        std::find_if(connections_.begin(), connections_.end(),
                     [](const Connection& one) { return one.file < 0 || !one.known; });
    if (stranger == connections_.end()) return false;
    if (stranger->file >= 0) ++counts_.refused;
    drop(*stranger);
    connections_.erase(stranger);
    return true;
  }

  void drop(Connection& connection) {
    if (connection.file < 0) return;
    ::close(connection.file);
    connection.file = -1;
    if (!connection.writer.empty()) --writers_.at(connection.writer).connections;
    connection.writer.clear();
  }

  void say(Connection& connection, FrameKind kind, std::uint64_t sequence,
           std::string_view payload = {}) {
    FrameHeader header;
    header.kind = kind;
    header.sequence = sequence;
    connection.out += frame(header, payload);
  }

  void turn_away(Connection& connection, const std::string& why) {
    ++counts_.refused;
    say(connection, FrameKind::refused, 0, why);
    connection.ends = true;
  }

  void hear_frames(Connection& connection) {
    while (connection.file >= 0 && !connection.ends &&
           connection.in.size() >= sizeof(FrameHeader)) {
      FrameHeader header;
      std::memcpy(&header, connection.in.data(), sizeof(header));
      if (header.magic != FrameHeader::kMagic || header.kind > kLastFrameKind ||
          (!connection.known && header.length > kMostHelloBytes))
        return turn_away(connection, "this is no frame of a rank");
      const std::uint64_t most =
          header.kind == FrameKind::file ? kMostPayloadBytes : kMostLineBytes;
      if (header.length > most)
        return turn_away(
            connection, fmt::format("{} bytes in one piece; {} are the most", header.length, most));
      const auto whole = sizeof(header) + static_cast<std::size_t>(header.length);
      if (connection.in.size() < whole) return;
      const std::string payload = connection.in.substr(sizeof(header), whole - sizeof(header));
      connection.in.erase(0, whole);
      if (!connection.known)
        hear_hello(connection, header, payload);
      else
        hear(connection, header, payload);
    }
  }

  void hear_hello(Connection& connection, const FrameHeader& header, const std::string& payload) {
    const auto words = split(payload, ' ');
    // Nobody learns which of them was wrong.
    if (header.kind != FrameKind::hello || words.size() != 3 || !same_token(words[0], token_))
      return turn_away(connection, "not of this launch");
    connection.known = true;
    ++counts_.connections;
    const std::string& mode = words[2];
    if (mode == "read") return hand_out(connection);
    if (mode == "store") return say(connection, FrameKind::welcome, 0);
    if (header.rank < 0 || header.rank >= launch_.ranks)
      return turn_away(connection, fmt::format("no rank {} among {}", header.rank, launch_.ranks));
    const std::string key = fmt::format("{} {}", header.rank, words[1]);
    if (!writers_.contains(key) && mode != "append" && files_.contains(header.rank))
      return turn_away(connection, fmt::format("another process claims rank {}", header.rank));
    if (!writers_.contains(key) &&
        writers_.size() >= kConnectionsBesides + static_cast<std::size_t>(launch_.ranks))
      return turn_away(connection, "too many processes claim to be ranks");
    if (const auto known = writers_.find(key); known != writers_.end() && known->second.failed)
      return turn_away(connection, kUnwritten);
    if (!open_file(header.rank))
      return turn_away(connection, "its file cannot be made where it was started");
    Writer& writer = writers_[key];
    writer.rank = header.rank;
    writer.from = connection.from;
    writer.said_bye = false;
    ++writer.connections;
    connection.writer = key;
    say(connection, FrameKind::welcome, writer.stored);
  }

  void hear(Connection& connection, const FrameHeader& header, const std::string& payload) {
    switch (header.kind) {
      case FrameKind::line:
        return hear_line(connection, header.sequence, payload);
      case FrameKind::last_words:
        if (payload.find('\n') != std::string::npos)
          return turn_away(connection, "last words are one line");
        if (!connection.writer.empty()) store(writers_.at(connection.writer), payload);
        return;
      case FrameKind::bye:
        return hear_bye(connection);
      case FrameKind::file:
        return hear_file(connection, payload);
      case FrameKind::set:
        return hear_value(connection, payload);
      case FrameKind::get: {
        const auto found = values_.find(payload);
        return found == values_.end() ? say(connection, FrameKind::absent, 0)
                                      : say(connection, FrameKind::value, 0, found->second);
      }
      default:
        return turn_away(connection, "a rank does not say such a thing");
    }
  }

  void hear_bye(Connection& connection) {
    if (connection.writer.empty())
      return turn_away(connection, "only who writes has something to end");
    Writer& writer = writers_.at(connection.writer);
    writer.said_bye = true;
    say(connection, FrameKind::bye, writer.stored);
  }

  void hear_line(Connection& connection, std::uint64_t sequence, const std::string& line) {
    if (connection.writer.empty() || line.find('\n') != std::string::npos)
      return turn_away(connection, "a record is one line of a rank that has said its number");
    Writer& writer = writers_.at(connection.writer);
    // A rank says its lines in order, also again over a new connection.
    if (sequence > writer.stored + 1)
      return turn_away(connection,
                       fmt::format("line {} came, and {} is missing", sequence, writer.stored + 1));
    if (sequence <= writer.stored) {
      ++counts_.again;
    } else if (store(writer, line)) {
      ++writer.stored;
      writer.complete = is_last_record(line);
    } else {
      return turn_away(connection, kUnwritten);
    }
    say(connection, FrameKind::ack, writer.stored);
  }

  bool store(Writer& writer, const std::string& line) {
    if (writer.failed) return false;
    if (const auto why = append_whole(files_.at(writer.rank), line + "\n"); !why.empty()) {
      writer.failed = true;
      problems_.push_back(fmt::format("{}/{}: cannot be written: {}", launch_.folder,
                                      record_file_name(writer.rank), why));
      return false;
    }
    ++counts_.lines;
    return true;
  }

  bool open_file(int rank) {
    if (files_.contains(rank)) return true;
    const std::string path = fmt::format("{}/{}", launch_.folder, record_file_name(rank));
    const int file =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (file < 0) {
      problems_.push_back(fmt::format("{}: cannot be made: {}", path, std::strerror(errno)));
      return false;
    }
    files_[rank] = file;
    return true;
  }

  void hear_file(Connection& connection, const std::string& payload) {
    const auto end = payload.find('\n');
    if (connection.writer.empty() || payload.substr(0, end) != kDecisionsFile)
      return turn_away(connection, "no such file is taken");
    std::ofstream file(fmt::format("{}/{}", launch_.folder, kDecisionsFile),
                       std::ios::binary | std::ios::trunc);
    file << std::string_view(payload).substr(end + 1);
    file.close();
    if (!file) return turn_away(connection, "the file cannot be written where it was started");
    say(connection, FrameKind::ack, writers_.at(connection.writer).stored);
  }

  void hear_value(Connection& connection, const std::string& payload) {
    const auto end = payload.find('\n');
    if (end == std::string::npos || payload.size() > kMostStoredValue ||
        values_.size() >= kMostKeys)
      return turn_away(connection, "no such value is kept");
    values_[payload.substr(0, end)] = payload.substr(end + 1);
    say(connection, FrameKind::ack, 0);
  }

  /// A launch that a connection cannot carry is said to its ranks, not half handed out.
  void too_large(Connection& connection, const std::string& what) {
    const std::string why =
        what + "; give all nodes a folder that they share (--out), and none needs a connection";
    if (std::find(problems_.begin(), problems_.end(), why) == problems_.end())
      problems_.push_back(why);
    turn_away(connection, why);
  }

  /// run.json and what lies next to it: tables that cells name.
  void hand_out(Connection& connection) {
    std::vector<fs::path> files;
    std::uintmax_t all = launch_.run_json.size();
    if (all > kMostFileBytes)
      return too_large(connection,
                       fmt::format("run.json has {} bytes, {} are the most", all, kMostFileBytes));
    std::error_code problem;
    for (fs::directory_iterator at(launch_.folder, problem), end; !problem && at != end;
         at.increment(problem)) {
      const std::string name = at->path().filename().string();
      std::error_code gone;
      if (!at->is_regular_file(gone) || name == "run.json" || name == kDecisionsFile ||
          name.ends_with(".jsonl"))
        continue;
      const std::uintmax_t bytes = at->file_size(gone);
      if (gone) continue;  // a passing file: tables of cells stay
      if (bytes > kMostFileBytes)
        return too_large(connection, fmt::format("{} has {} bytes, {} are the most",
                                                 at->path().string(), bytes, kMostFileBytes));
      all += bytes;
      files.push_back(at->path());
    }
    if (problem) return too_large(connection, launch_.folder + ": " + problem.message());
    if (all > kMostUnsent)
      return too_large(
          connection, fmt::format("run.json and what lies next to it in {} have {} bytes together, "
                                  "{} are the most",
                                  launch_.folder, all, kMostUnsent));
    say(connection, FrameKind::run, 0, launch_.run_json);
    for (const fs::path& path : files) {
      std::string payload = path.filename().string() + "\n";
      const std::size_t begin = payload.size();
      // Not the most that it could be: that is filled with zeros for every file and rank.
      const std::uintmax_t size = fs::file_size(path, problem);
      const auto bytes =
          problem ? 0 : static_cast<std::size_t>(std::min<std::uintmax_t>(size, kMostFileBytes));
      payload.resize(begin + bytes);
      std::ifstream file(path, std::ios::binary);
      file.read(payload.data() + begin, static_cast<std::streamsize>(bytes));
      payload.resize(begin + static_cast<std::size_t>(file.gcount()));
      say(connection, FrameKind::file, 0, payload);
    }
    say(connection, FrameKind::begun, 0);
  }

  const Launch& launch_;
  const std::string& token_;
  Counts& counts_;
  std::vector<std::string>& problems_;
  std::list<Connection> connections_;
  std::map<std::string, Writer> writers_;  ///< by rank and the name that the process gave itself
  std::map<int, int> files_;               ///< descriptors by rank
  std::map<std::string, std::string> values_;
};

RecordServer::RecordServer(Launch launch) : launch_(std::move(launch)), token_(random_token()) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof(address);
  if (listener_ < 0 || bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener_, SOMAXCONN) != 0 || pipe2(wake_, O_CLOEXEC | O_NONBLOCK) != 0) {
    const std::string why = std::strerror(errno);
    if (listener_ >= 0) ::close(listener_);
    throw Error(ErrorKind::environment,
                "cannot listen for the ranks' records: " + why +
                    "; give all nodes a folder that they share (--out), and none is needed");
  }
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
  port_ = ntohs(address.sin_port);
  place_ = fmt::format("{}{}:{}", kRecordsScheme, join(own_addresses(), ","), port_);
  thread_ = std::thread([this] { serve(); });
}

RecordServer::~RecordServer() {
  finish(Micros{0});
  ::close(listener_);
  for (const int end : wake_) ::close(end);
}

std::vector<std::string> RecordServer::finish(Micros grace) {
  if (thread_.joinable()) {
    end_by_us_ = std::max<std::int64_t>(1, now_us() + static_cast<std::int64_t>(grace.count()));
    // It looks again soon, should that fail.
    [[maybe_unused]] const ssize_t woken = ::write(wake_[1], "", 1);
    thread_.join();
  }
  return problems_;
}

void RecordServer::serve() {
  Desk desk(launch_, token_, counts_, problems_);
  constexpr int kLookMs = 250;
  for (;;) {
    std::vector<pollfd> waits{{listener_, POLLIN, 0}, {wake_[0], POLLIN, 0}};
    for (const auto& connection : desk.connections())
      waits.push_back({connection.file,
                       static_cast<short>(connection.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    // Before anybody is heard: what is there when all ranks have ended is heard to its end.
    const bool ending = end_by_us_ != 0;
    static_cast<void>(poll(waits.data(), waits.size(), ending ? 20 : kLookMs));
    char woken[8];
    while (::read(wake_[0], woken, sizeof(woken)) > 0) {
    }
    std::size_t i = 2;
    for (auto& connection : desk.connections())
      if (waits[i++].revents != 0) desk.serve(connection);
    const bool more = desk.take_in(listener_);
    desk.sweep();
    // What was sent before the ranks ended may still be on its way, and who has just come has not
    // been heard at all.
    if (ending && (now_us() >= end_by_us_ || (!more && desk.quiet()))) break;
  }
  desk.name_the_lost();
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> first;
  std::vector<std::string> last;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {"127.0.0.1"};
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET ||
        (one->ifa_flags & IFF_UP) == 0)
      continue;
    sockaddr_in address{};
    std::memcpy(&address, one->ifa_addr, sizeof(address));
    auto& list = (one->ifa_flags & IFF_LOOPBACK) != 0 ? last : first;
    if (auto text = address_text(address);
        std::find(list.begin(), list.end(), text) == list.end() && list.size() < kMostAddresses - 1)
      list.push_back(std::move(text));
  }
  freeifaddrs(all);
  // The way out: what a datagram to anywhere would be sent from.
  const int probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in away{};
  away.sin_family = AF_INET;
  away.sin_port = htons(9);
  inet_pton(AF_INET, "192.0.2.1", &away.sin_addr);
  socklen_t length = sizeof(away);
  if (probe >= 0 && ::connect(probe, reinterpret_cast<sockaddr*>(&away), length) == 0 &&
      getsockname(probe, reinterpret_cast<sockaddr*>(&away), &length) == 0)
    std::stable_partition(first.begin(), first.end(),
                          [&](const std::string& text) { return text == address_text(away); });
  if (probe >= 0) ::close(probe);
  first.insert(first.end(), last.begin(),
               last.begin() + std::min<std::ptrdiff_t>(1, last.end() - last.begin()));
  return first.empty() ? std::vector<std::string>{"127.0.0.1"} : first;
}

}  // namespace dynamiccl
