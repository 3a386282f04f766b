#include "workers/run/record_link.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr seconds kAnswer{30};
constexpr seconds kOneAddress{1};
/// What answers at an address and does not welcome a rank by then is taken for something else.
constexpr seconds kHello{5};
/// A line that is not acknowledged by then goes with the next one.
constexpr seconds kOneLine{2};
/// A link that is slower than that is as good as none.
constexpr std::size_t kSlowestBytesPerMs = 500;
constexpr milliseconds kAgain{100};
/// What a rank keeps while the orchestrator cannot be reached.
constexpr std::size_t kMostWaiting = std::size_t{256} << 20;

std::atomic<int> g_live{-1};

/// What so many bytes may take on the slowest link that is one.
milliseconds time_for(std::size_t bytes) { return milliseconds(bytes / kSlowestBytesPerMs); }

int left_ms(Clock::time_point until) {
  const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

/// @returns false at that time
bool wait_for(int file, short event, Clock::time_point until) {
  for (;;) {
    pollfd wait{file, event, 0};
    const int ready = poll(&wait, 1, left_ms(until));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

std::string random_name() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

/// @returns a connected socket, or -1 with errno
int connect_to(const std::string& address, int port, Clock::time_point until) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) {
    errno = EINVAL;
    return -1;
  }
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (file < 0) return -1;
  int problem = 0;
  // An interrupted connect() goes on like one that is in progress.
  if (::connect(file, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    problem = errno;
    if (problem == EINPROGRESS || problem == EINTR) {
      socklen_t size = sizeof(problem);
      if (!wait_for(file, POLLOUT, until))
        problem = ETIMEDOUT;
      else
        getsockopt(file, SOL_SOCKET, SO_ERROR, &problem, &size);
    }
  }
  if (problem != 0) {
    ::close(file);
    errno = problem;
    return -1;
  }
  const int on = 1;
  setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(file, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  return file;
}

std::string hello_frame(const RecordsEndpoint& endpoint, int rank, const char* mode) {
  FrameHeader header;
  header.rank = rank;
  return frame(header, fmt::format("{} {} {}", endpoint.token, random_name(), mode));
}

std::string open_port(const RecordsEndpoint& endpoint) {
  return fmt::format("port {} of {} must be open to this node", endpoint.port,
                     join(endpoint.addresses, " or "));
}

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::environment, "the orchestrator does not take this rank's records: " + why);
}

}  // namespace

RecordsEndpoint parse_records_endpoint(const std::string& place, const std::string& token) {
  RecordsEndpoint endpoint;
  const auto colon = place.rfind(':');
  if (place.starts_with(kRecordsScheme) && colon > kRecordsScheme.size()) {
    endpoint.addresses =
        split(place.substr(kRecordsScheme.size(), colon - kRecordsScheme.size()), ',');
    std::from_chars(place.data() + colon + 1, place.data() + place.size(), endpoint.port);
  }
  if (endpoint.port <= 0 || endpoint.port > 65535 || token.empty())
    throw Error(ErrorKind::input,
                fmt::format("{}: expected tcp://ADDRESS:PORT and {} in the environment, as "
                            "dynamiccl starts ranks",
                            place, kRecordsToken));
  endpoint.token = token;
  return endpoint;
}

std::optional<RecordsEndpoint>& records_endpoint() {
  static std::optional<RecordsEndpoint> endpoint;
  return endpoint;
}

FrameSocket::~FrameSocket() { close(); }
FrameSocket::FrameSocket(FrameSocket&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      first_(other.first_),
      received_(other.received_),
      by_size_(other.by_size_),
      peer_(std::move(other.peer_)),
      in_(std::move(other.in_)) {}
FrameSocket& FrameSocket::operator=(FrameSocket&& other) noexcept {
  close();
  file_ = std::exchange(other.file_, -1);
  first_ = other.first_;
  received_ = other.received_;
  by_size_ = other.by_size_;
  peer_ = std::move(other.peer_);
  in_ = std::move(other.in_);
  return *this;
}

void FrameSocket::close() {
  // A signal handler would write into whatever gets this number next.
  int own = file_;
  if (own >= 0) g_live.compare_exchange_strong(own, -1);
  if (file_ >= 0) ::close(file_);
  file_ = -1;
  in_.clear();
}

std::string FrameSocket::connect(const RecordsEndpoint& endpoint, Clock::time_point until) {
  close();
  std::string why;
  for (;;) {
    for (std::size_t tried = 0; tried < endpoint.addresses.size(); ++tried, ++first_) {
      const std::string& address = endpoint.addresses[first_ % endpoint.addresses.size()];
      peer_ = fmt::format("{}:{}", address, endpoint.port);
      file_ = connect_to(address, endpoint.port, std::min(until, Clock::now() + kOneAddress));
      if (file_ >= 0) return "";
      why = fmt::format("{}: {}", peer_, std::strerror(errno));
    }
    if (Clock::now() + kAgain >= until) return why;
    std::this_thread::sleep_for(kAgain);
  }
}

milliseconds FrameSocket::more() const {
  // Who sends without end is nobody's orchestrator.
  return by_size_ ? time_for(std::min(received_, kMostRunBytes)) : milliseconds(0);
}

std::string FrameSocket::go_on() {
  close();
  ++first_;
  return peer_ + ": something else answers there, or the connection broke off";
}

bool FrameSocket::send(const std::string& bytes, Clock::time_point until) {
  std::size_t done = 0;
  // Last words in the middle of a frame would spoil both.
  int own = file_;
  const bool live = own >= 0 && g_live.compare_exchange_strong(own, -1);
  while (alive() && done < bytes.size()) {
    const ssize_t n = ::send(file_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK) ||
               !wait_for(file_, POLLOUT, until)) {
      // Half a frame would spoil the next one.
      close();
    }
  }
  if (live && alive()) g_live.store(file_);
  return alive();
}

std::optional<std::pair<FrameHeader, std::string>> FrameSocket::receive(Clock::time_point until) {
  char part[65536];
  while (alive()) {
    if (in_.size() >= sizeof(FrameHeader)) {
      FrameHeader header;
      std::memcpy(&header, in_.data(), sizeof(header));
      if (header.magic != FrameHeader::kMagic || header.length > kMostPayloadBytes) {
        close();
        break;
      }
      const auto whole = sizeof(header) + static_cast<std::size_t>(header.length);
      if (in_.size() >= whole) {
        std::string payload = in_.substr(sizeof(header), static_cast<std::size_t>(header.length));
        in_.erase(0, whole);
        return std::pair(header, std::move(payload));
      }
    }
    const ssize_t n = recv(file_, part, sizeof(part), 0);
    if (n > 0) {
      in_.append(part, static_cast<std::size_t>(n));
      received_ += static_cast<std::uint64_t>(n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
      close();
    } else if (!wait_for(file_, POLLIN, until + more())) {
      break;
    }
  }
  return std::nullopt;
}

FetchedRun fetch_run(const RecordsEndpoint& endpoint, milliseconds timeout) {
  const auto until = Clock::now() + timeout;
  std::string why;
  FrameSocket socket;
  socket.wait_by_size();
  while (Clock::now() < until + socket.more()) {
    if (const auto problem = socket.connect(endpoint, until + socket.more()); !problem.empty()) {
      why = problem;
      break;
    }
    socket.send(hello_frame(endpoint, -1, "read"), until + socket.more());
    FetchedRun run;
    run.address = socket.peer().substr(0, socket.peer().rfind(':'));
    std::uint64_t bytes = 0;
    while (const auto got = socket.receive(
               run.run_json.empty() ? std::min(until, Clock::now() + kHello) : until)) {
      const auto& [header, payload] = *got;
      if (header.kind == FrameKind::refused) refuse(payload);
      bytes += sizeof(header) + payload.size();
      if (bytes > kMostRunBytes + kMostRunHeaderBytes)
        throw Error(ErrorKind::environment,
                    fmt::format("{}: what answers there hands out {} bytes and more: no launch has "
                                "so much, so it is not where this rank was started",
                                socket.peer(), bytes));
      if (header.kind == FrameKind::run) run.run_json = payload;
      if (const auto end = payload.find('\n');
          header.kind == FrameKind::file && end != std::string::npos)
        run.files.emplace_back(payload.substr(0, end), payload.substr(end + 1));
      if (header.kind == FrameKind::begun && !run.run_json.empty()) return run;
    }
    why = socket.go_on();
    std::this_thread::sleep_for(kAgain);
  }
  throw Error(ErrorKind::environment,
              fmt::format("run.json cannot be fetched from where this rank was started: {}; {}",
                          why, open_port(endpoint)));
}

void keep_files(const FetchedRun& run, const std::string& folder) {
  for (const auto& [name, bytes] : run.files) {
    if (name.find('/') != std::string::npos) continue;
    const std::string path = folder + "/" + name;
    errno = 0;
    std::ofstream file(path, std::ios::binary);
    file << bytes;
    file.close();
    if (!file)
      throw Error(ErrorKind::environment,
                  fmt::format("{}: cannot be written: {}; make room on this node, or name another "
                              "folder with TMPDIR",
                              path, errno != 0 ? std::strerror(errno) : "unknown reason"));
  }
}

RecordLink::RecordLink(RecordsEndpoint endpoint, int rank, const char* mode)
    : endpoint_(std::move(endpoint)), rank_(rank), hello_(hello_frame(endpoint_, rank, mode)) {
  if (connected(Clock::now() + kAnswer)) return;
  if (!refusal_.empty()) refuse(refusal_);
  throw Error(ErrorKind::environment,
              fmt::format("records cannot be sent to where this rank was started: nobody answers "
                          "there: {}; {}",
                          why_, open_port(endpoint_)));
}

RecordLink::~RecordLink() {
  pump(kAnswer, time_for_waiting());
  // Nobody catches what is thrown here; the launch's output is kept.
  if (!waiting_.empty())
    fmt::print(stderr,
               "dynamiccl: rank {}: {} record{} of {} bytes did not reach where this rank was "
               "started: {}\n",
               rank_, waiting_.size(), waiting_.size() == 1 ? "" : "s", waiting_bytes_,
               !refusal_.empty() ? "not taken: " + refusal_
               : socket_.alive() ? "not acknowledged in time; the way there is slow"
                                 : (why_.empty() ? std::string("the connection broke off") : why_) +
                                       "; " + open_port(endpoint_));
  say_bye(Clock::now() + kOneLine);
}

std::chrono::milliseconds RecordLink::time_for_waiting() const { return time_for(waiting_bytes_); }

void RecordLink::say_bye(Clock::time_point until) {
  FrameHeader bye;
  bye.kind = FrameKind::bye;
  bye.rank = rank_;
  // Lines that are still not acknowledged are not all there is to say.
  while (waiting_.empty() && Clock::now() < until && connected(until)) {
    if (!socket_.send(frame(bye), until)) continue;
    while (const auto answer = socket_.receive(until))
      if (answer->first.kind == FrameKind::bye) return;
  }
}

bool RecordLink::connected(Clock::time_point until) {
  if (socket_.alive()) return true;
  while (refusal_.empty() && Clock::now() < until) {
    if (const auto problem = socket_.connect(endpoint_, until); !problem.empty()) {
      why_ = problem;
      return false;
    }
    ++connections_;
    socket_.send(hello_, until);
    const auto answer = socket_.receive(std::min(until, Clock::now() + kHello));
    if (answer && answer->first.kind == FrameKind::welcome) {
      acknowledged(answer->first.sequence);
      sent_ = answer->first.sequence;
      g_live.store(socket_.descriptor());
      return true;
    }
    if (answer && answer->first.kind == FrameKind::refused) refusal_ = answer->second;
    why_ = socket_.go_on();
    std::this_thread::sleep_for(std::min<Clock::duration>(kAgain, until - Clock::now()));
  }
  return false;
}

void RecordLink::acknowledged(std::uint64_t sequence) {
  while (!waiting_.empty() && waiting_.front().first <= sequence) {
    waiting_bytes_ -= waiting_.front().second.size();
    waiting_.pop_front();
  }
}

void RecordLink::pump(Clock::duration timeout, Clock::duration more) {
  const auto until = Clock::now() + timeout + more;
  // Bytes lengthen the time to send, not the time to connect. A broken connection is made anew.
  auto reached = Clock::now() + timeout;
  while (!waiting_.empty() && Clock::now() < until && connected(reached)) {
    for (const auto& [sequence, bytes] : waiting_) {
      if (sequence <= sent_) continue;
      if (!socket_.send(bytes, until)) break;
      sent_ = sequence;
    }
    if (const auto answer = socket_.receive(until)) {
      if (answer->first.kind == FrameKind::ack) acknowledged(answer->first.sequence);
      if (answer->first.kind == FrameKind::refused) {
        refusal_ = answer->second;
        socket_.close();
      }
    }
    reached = std::min(until, Clock::now() + timeout);
  }
}

void RecordLink::write(const std::string& line) {
  if (line.size() > kMostLineBytes)
    throw Error(ErrorKind::environment,
                fmt::format("a record of {} bytes cannot be sent: {} is the most; take fewer "
                            "iterations",
                            line.size(), kMostLineBytes));
  FrameHeader header;
  header.kind = FrameKind::line;
  header.rank = rank_;
  header.sequence = ++last_;
  waiting_.emplace_back(last_, frame(header, line));
  waiting_bytes_ += waiting_.back().second.size();
  // A long line takes its time on a slow link, and one that is cut short begins anew.
  pump(waiting_bytes_ < kMostWaiting ? Clock::duration(kOneLine) : kAnswer, time_for_waiting());
  if (!refusal_.empty()) refuse(refusal_);
  if (waiting_bytes_ >= kMostWaiting)
    throw Error(ErrorKind::environment,
                fmt::format("{} bytes of records wait, {} are the most, and where this rank was "
                            "started nobody takes them; {}, or give all nodes a folder that they "
                            "share (--out)",
                            waiting_bytes_, kMostWaiting, open_port(endpoint_)));
}

void RecordLink::send_file(const std::string& name, const std::string& bytes) {
  if (name.size() >= kMostFileNameBytes || bytes.size() > kMostFileBytes)
    throw Error(ErrorKind::environment,
                fmt::format("{} has {} bytes and cannot be sent: {} is the most; give all nodes a "
                            "folder that they share (--out)",
                            name, bytes.size(), kMostFileBytes));
  pump(kAnswer, time_for_waiting());
  FrameHeader header;
  header.kind = FrameKind::file;
  header.rank = rank_;
  // Whole files are the same when they are sent twice.
  for (const auto until = Clock::now() + kAnswer + time_for(bytes.size());
       Clock::now() < until && connected(until);) {
    if (!socket_.send(frame(header, name + "\n" + bytes), until)) continue;
    const auto answer = socket_.receive(until);
    if (answer && answer->first.kind == FrameKind::ack) return;
  }
  throw Error(ErrorKind::environment, name + " cannot be sent to where this rank was started");
}

std::string RecordLink::last_words(int rank, const std::string& line) {
  FrameHeader header;
  header.kind = FrameKind::last_words;
  header.rank = rank;
  return frame(header, line);
}

int RecordLink::live_descriptor() { return g_live.load(); }

std::pair<FrameHeader, std::string> RecordStore::ask(const std::string& bytes) {
  const auto until = Clock::now() + kAnswer;
  std::string why = "nobody answers";
  while (Clock::now() < until) {
    if (!socket_.alive()) {
      if (const auto problem = socket_.connect(endpoint_, until); !problem.empty()) {
        why = problem;
        break;
      }
      socket_.send(hello_frame(endpoint_, -1, "store"), until);
      if (const auto answer = socket_.receive(std::min(until, Clock::now() + kHello)); !answer) {
        why = socket_.go_on();
        std::this_thread::sleep_for(kAgain);
        continue;
      } else if (answer->first.kind == FrameKind::refused) {
        refuse(answer->second);
      }
    }
    if (socket_.send(bytes, until))
      if (auto answer = socket_.receive(until)) return *answer;
    why = socket_.peer() + ": the connection broke off";
    std::this_thread::sleep_for(kAgain);
  }
  throw Error(ErrorKind::environment, fmt::format("the ranks' rendezvous cannot be reached: {}; {}",
                                                  why, open_port(endpoint_)));
}

void RecordStore::set(const std::string& key, const std::string& value) {
  FrameHeader header;
  header.kind = FrameKind::set;
  const auto answer = ask(frame(header, key + "\n" + value));
  if (answer.first.kind != FrameKind::ack) refuse(answer.second);
}

std::optional<std::string> RecordStore::get(const std::string& key, milliseconds timeout) {
  FrameHeader header;
  header.kind = FrameKind::get;
  const auto until = Clock::now() + timeout;
  for (;;) {
    const auto answer = ask(frame(header, key));
    if (answer.first.kind == FrameKind::value) return answer.second;
    if (answer.first.kind == FrameKind::refused) refuse(answer.second);
    if (Clock::now() >= until) return std::nullopt;
    std::this_thread::sleep_for(milliseconds(2));
  }
}

}  // namespace dynamiccl
