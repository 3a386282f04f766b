#include "tuner/transport/transport.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/vocabulary/file_limit.hpp"
#include "tuner/transport/copy_pool.hpp"
#include "tuner/transport/device_connection.hpp"
#include "tuner/transport/peer_watch.hpp"
#include "tuner/transport/ring_connection.hpp"

namespace dynamiccl::transport {
namespace {

constexpr std::chrono::seconds kStaleAge{10};
constexpr std::size_t kMostCallers = 32;
constexpr unsigned kLeastCells = 2;
constexpr std::size_t kLeastCellBytes = 4096;
constexpr std::uint8_t kByFolder = 1;
constexpr std::uint8_t kByTcp = 2;

Handle read_handle(const void* text) {
  Handle handle;
  std::memcpy(&handle, text, sizeof handle);
  return handle;
}
void write_handle(void* text, const Handle& handle) { std::memcpy(text, &handle, sizeof handle); }

bool fill_random(void* bytes, std::size_t size) {
  return getrandom(bytes, size, 0) == static_cast<ssize_t>(size);
}

std::string other_user(int socket) {
  return "the other rank runs as user " + std::to_string(peer_user(socket)) + ", this one as " +
         std::to_string(geteuid()) + ". Start all ranks' containers as one user.";
}

const char* name_of(bool device) {
  return device ? "copies between GPUs" : "copies through host memory";
}

}  // namespace

Transport& Transport::instance() {
  static Transport* const transport = new Transport;  // NCCL may call while the program ends
  return *transport;
}

Result Transport::init(nccl_net::Logger log) {
  const std::lock_guard<std::mutex> lock(mutex_);
  set_logger(log);
  if (ready_) return settings_.folder.empty() ? nccl_net::kSystemError : nccl_net::kSuccess;
  ready_ = true;
  settings_ = settings_from_environment(problem_);
  if (settings_.folder.empty()) {
    say(nccl_net::kInfo, "DYNAMICCL_SHARED_FOLDER is not set: NCCL's own network is used");
    return nccl_net::kSystemError;
  }
  // What is wrong from here on fails the first connection: a rank that stepped aside alone would
  // leave NCCL with two networks in one communicator.
  if (problem_.empty()) folder_ = SharedFolder::open(settings_.folder, problem_);
  if (!problem_.empty()) {
    say(nccl_net::kWarn, problem_);
    return nccl_net::kSuccess;
  }
  const int swept = sweep_folder(settings_.folder, kStaleAge);
  if (swept != 0)
    say(nccl_net::kInfo,
        std::to_string(swept) + " files of ended jobs removed from " + settings_.folder);
  std::string why;
  device_ = device_possible(settings_, why);
  if (!device_ && settings_.device) problem_ = why;
  if (device_)
    say(nccl_net::kWarn,
        "copies between GPUs are an experiment: jobs of several communicators, and PyTorch's DDP, "
        "were seen to stop for good. Unset DYNAMICCL_TRANSPORT_DEVICE for copies through host "
        "memory.");
  say(nccl_net::kInfo, "folder " + settings_.folder + ", " + name_of(device_) + ", " +
                           std::to_string(settings_.threads) + " copy threads" +
                           (why.empty() ? "" : " (" + why + ")"));
  return nccl_net::kSuccess;
}

bool Transport::offered() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ready_ && !settings_.folder.empty();
}

std::string Transport::trouble() const {
  return forked() ? "this process was forked from one that uses the network already, whose threads "
                    "and sockets it lacks. Start processes that call NCCL before the first "
                    "communicator, or by spawn."
                  : problem_;
}

Result Transport::listen(void* text, Listener*& listener) {
  listener = nullptr;
  const std::string trouble = this->trouble();
  if (!trouble.empty()) return fail(nccl_net::kSystemError, trouble);
  auto made = std::make_unique<Listener>();
  Handle& handle = made->handle;
  handle.magic = kWireMagic;
  handle.version = kWireVersion;
  handle.device = device_ ? 1 : 0;
  handle.host = folder_->identity().host;
  handle.folder = folder_->identity().folder;
  if (!fill_random(&handle.name, sizeof handle.name) ||
      !fill_random(handle.token.data(), handle.token.size()))
    return fail(nccl_net::kSystemError, "the system gives no random numbers" + errno_text(errno));
  std::string problem;
  {
    const std::lock_guard<std::mutex> lock(fork_mutex());
    made->socket = folder_->listen(handle.name, problem);
    if (made->socket.valid()) track_socket(made->socket.get());
    made->file = made->socket.valid();
  }
  if (!made->socket.valid()) return fail(nccl_net::kSystemError, problem);
  handle.reachable = kByFolder;
  if (settings_.tcp) {
    made->tcp = TcpListener::make(settings_.interface_, handle, problem);
    if (made->tcp != nullptr)
      handle.reachable |= kByTcp;
    else
      say(settings_.interface_.empty() ? nccl_net::kInfo : nccl_net::kWarn,
          "ranks that do not share the folder cannot connect: " + problem);
  }
  CopyPool::instance().start(settings_.threads);
  write_handle(text, handle);
  listener = made.release();
  return nccl_net::kSuccess;
}

Result Transport::connect(const void* text, Connection*& connection) {
  connection = nullptr;
  const std::string trouble = this->trouble();
  if (!trouble.empty()) return fail(nccl_net::kSystemError, trouble);
  const Handle handle = read_handle(text);
  if (handle.magic != kWireMagic || handle.version != kWireVersion)
    return fail(nccl_net::kInvalidUsage,
                "the other rank does not use this version of DynamICCL's transport. Set "
                "NCCL_NET_PLUGIN and DYNAMICCL_SHARED_FOLDER alike on all ranks.");
  if ((handle.device != 0) != device_)
    return fail(nccl_net::kInvalidUsage,
                std::string("this rank ") + name_of(device_) + ", the other " +
                    name_of(handle.device != 0) +
                    ". Set DYNAMICCL_TRANSPORT_DEVICE=0 on all ranks, or give all of them what "
                    "copies between GPUs need.");
  CopyPool::instance().start(settings_.threads);
  // What is not ready yet is kept here: nothing in a handle, which the peer wrote, is taken for an
  // address.
  Connecting connecting = take_connecting(handle.token);
  if (connecting.connection == nullptr) {
    const SharedFolder::Identity theirs{handle.host, handle.folder};
    const bool by_folder = connecting.tcp == nullptr && theirs == folder_->identity();
    const Result result = by_folder ? connect_folder(handle, connecting.connection)
                                    : connect_tcp(handle, connecting.tcp, connecting.connection);
    if (result != nccl_net::kSuccess) return result;
  }
  bool is_ready = false;
  if (connecting.connection != nullptr) {
    const Result result = connecting.connection->ready(is_ready);
    if (result != nccl_net::kSuccess) {
      close(connecting.connection);
      return result;
    }
  }
  if (is_ready) {
    connection = connecting.connection;
  } else if (connecting.connection != nullptr || connecting.tcp != nullptr) {
    const std::lock_guard<std::mutex> lock(mutex_);
    connecting_[handle.token] = std::move(connecting);
  }
  return nccl_net::kSuccess;
}

Transport::Connecting Transport::take_connecting(const Token& token) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto place = connecting_.find(token);
  if (place == connecting_.end()) return {};
  Connecting connecting = std::move(place->second);
  connecting_.erase(place);
  return connecting;
}

Result Transport::connect_folder(const Handle& handle, Connection*& connection) {
  int error = 0;
  FileDescriptor socket;
  {
    const std::lock_guard<std::mutex> lock(fork_mutex());
    socket = folder_->connect(handle.name, error);
    if (socket.valid()) track_socket(socket.get());
  }
  if (!socket.valid()) {
    if (error == EAGAIN || error == EINTR) return nccl_net::kSuccess;  // a busy listener
    return fail(nccl_net::kSystemError,
                "cannot reach the other rank in " + folder_->path() + errno_text(error) +
                    advice_for(error, error == EACCES ? "Start all ranks' containers as one user."
                                                      : "Has its process ended?"));
  }
  if (peer_user(socket.get()) != geteuid()) {
    const std::string why = other_user(socket.get());
    close_tracked(socket);
    return fail(nccl_net::kInvalidUsage, why);
  }
  std::string problem;
  Packet hello;
  hello.token = handle.token;
  hello.device = device_ ? 1 : 0;
  // Between GPUs the ring holds words alone.
  hello.cells = device_ ? kLeastCells : settings_.cells;
  hello.cell_bytes = device_ ? kLeastCellBytes : settings_.cell_bytes;
  std::unique_ptr<Ring> ring = Ring::make(hello.cells, hello.cell_bytes, problem);
  if (ring == nullptr) {
    // Or it would wait for this rank.
    hello.message = Message::gave_up;
    send_packet(socket.get(), hello);
  }
  if (ring == nullptr || !send_packet(socket.get(), hello, ring->file())) {
    if (ring != nullptr) {
      error = errno;
      const bool gone = error == EPIPE || error == ECONNRESET || error == ENOTCONN;
      problem =
          "cannot pass this rank's ring to the other rank" + errno_text(error) +
          advice_for(error, gone ? "Has its process ended?"
                                 : "A security module, or a limit on files that are passed on "
                                   "and not yet taken, does not allow it.");
    }
    close_tracked(socket);
    return fail(nccl_net::kSystemError, problem);
  }
  ring->forget_file();
  return make_connection(true, std::move(socket), std::move(ring), connection);
}

Result Transport::connect_tcp(const Handle& handle, std::unique_ptr<TcpConnecting>& pending,
                              Connection*& connection) {
  std::string problem;
  if (pending == nullptr) {
    if (!settings_.tcp)
      problem =
          "the other rank shares no folder with this one, and DYNAMICCL_TRANSPORT_TCP=0 forbids "
          "TCP. Mount one folder in every container, or unset it.";
    else if ((handle.reachable & kByTcp) == 0)
      problem =
          "the other rank shares no folder with this one, and does not listen for TCP: its log "
          "says why (DYNAMICCL_TRANSPORT_TCP=0 there, or no interface that fits "
          "NCCL_SOCKET_IFNAME). Mount one folder in every container, or mend that.";
    else if (device_)
      problem =
          "the other rank shares no folder with this one, and memory of GPUs is not sent by "
          "TCP. Set DYNAMICCL_TRANSPORT_DEVICE=0 on all ranks.";
    else
      pending = TcpConnecting::begin(handle, problem);
    if (pending == nullptr) return fail(nccl_net::kSystemError, problem);
  }
  FileDescriptor socket = pending->finish(problem);
  if (!socket.valid() && problem.empty()) return nccl_net::kSuccess;
  pending.reset();
  if (!socket.valid()) return fail(nccl_net::kSystemError, problem);
  say(nccl_net::kInfo, "a connection by TCP");
  auto made = TcpConnection::make(true, std::move(socket), settings_.inline_bytes, problem);
  return opened(std::move(made), problem, connection);
}

Result Transport::accept(Listener& listener, Connection*& connection) {
  connection = nullptr;
  const Result result = accept_folder(listener, connection);
  if (result != nccl_net::kSuccess || connection != nullptr || listener.tcp == nullptr)
    return result;
  std::string problem;
  FileDescriptor socket = listener.tcp->accept(listener.handle.token, problem);
  if (!problem.empty()) return fail(nccl_net::kSystemError, problem);
  if (!socket.valid()) return nccl_net::kSuccess;
  say(nccl_net::kInfo, "a connection by TCP");
  auto made = TcpConnection::make(false, std::move(socket), settings_.inline_bytes, problem);
  forget_file(listener);
  return opened(std::move(made), problem, connection);
}

Result Transport::accept_folder(Listener& listener, Connection*& connection) {
  {
    const std::lock_guard<std::mutex> lock(fork_mutex());
    int error = 0;
    FileDescriptor socket = accept_waiting(listener.socket.get(), error);
    // A rank without room for it would wait for ever.
    if (error != 0)
      return fail(nccl_net::kSystemError, "cannot take another rank's connection" +
                                              errno_text(error) + advice_for(error, ""));
    if (socket.valid()) {
      track_socket(socket.get());
      listener.callers.push_back(std::move(socket));
    }
  }
  for (std::size_t i = 0; i < listener.callers.size(); ++i) {
    Packet hello;
    FileDescriptor file;
    const Received received = receive_packet(listener.callers[i].get(), hello, file);
    if (received == Received::nothing) continue;
    // The ring of the right rank comes as a descriptor: without room for one it is lost.
    if (const int error = received == Received::closed ? want_of_room() : 0; error != 0)
      return fail(nccl_net::kSystemError,
                  "cannot take another rank's ring" + errno_text(error) + advice_for(error, ""));
    const bool ours = hello.magic == kWireMagic && hello.token == listener.handle.token &&
                      peer_user(listener.callers[i].get()) == geteuid();
    if (ours && hello.message == Message::gave_up)
      return fail(nccl_net::kRemoteError,
                  "the other rank could not make a connection. See its output for why.");
    if (ours && received == Received::closed && hello.message == Message::hello)
      return fail(nccl_net::kSystemError,
                  "the other rank's ring did not come with its greeting: a security module of this "
                  "container (SELinux, AppArmor, seccomp) withholds files that others pass on");
    FileDescriptor socket = std::move(listener.callers[i]);
    listener.callers.erase(listener.callers.begin() + static_cast<std::ptrdiff_t>(i));
    if (received == Received::closed || hello.message != Message::hello || !ours) {
      close_tracked(socket);  // someone who tidies the folder, or is not of this job
      --i;
      continue;
    }
    forget_file(listener);
    std::string problem;
    std::unique_ptr<Ring> ring = Ring::map(std::move(file), hello.cells, hello.cell_bytes, problem);
    if (ring == nullptr || (hello.device != 0) != device_) {
      close_tracked(socket);
      return fail(nccl_net::kInvalidUsage,
                  ring == nullptr ? problem : "the other rank copies by another way");
    }
    return make_connection(false, std::move(socket), std::move(ring), connection);
  }
  // Who has waited longest says nothing: others shall not wait for him.
  if (listener.callers.size() > kMostCallers) {
    close_tracked(listener.callers.front());
    listener.callers.erase(listener.callers.begin());
  }
  return nccl_net::kSuccess;
}

Result Transport::make_connection(bool sender, FileDescriptor socket, std::unique_ptr<Ring> ring,
                                  Connection*& connection) {
  std::string problem;
  std::unique_ptr<Connection> made;
  if (device_)
    made = DeviceConnection::make(sender, std::move(socket), std::move(ring), settings_, problem);
  else
    made = RingConnection::make(sender, std::move(socket), std::move(ring), settings_.inline_bytes,
                                problem);
  return opened(std::move(made), problem, connection);
}

Result Transport::opened(std::unique_ptr<Connection> made, const std::string& problem,
                         Connection*& connection) {
  if (made == nullptr) return fail(nccl_net::kSystemError, problem);
  open_.fetch_add(1);
  connection = made.release();
  return nccl_net::kSuccess;
}

void Transport::close(Connection* connection) {
  // A forked process would wait for threads that it has not got.
  if (connection == nullptr || forked()) return;
  delete connection;
  if (open_.fetch_sub(1) == 1) report();
}

void Transport::forget_file(Listener& listener) const {
  if (std::exchange(listener.file, false)) folder_->remove(listener.handle.name);
}

void Transport::close(Listener* listener) {
  if (listener == nullptr || forked()) return;  // the file is the other process's
  for (FileDescriptor& caller : listener->callers) close_tracked(caller);
  close_tracked(listener->socket);
  forget_file(*listener);
  delete listener;
}

void Transport::report() const {
  char line[256];
  std::snprintf(line, sizeof line,
                "{\"pid\": %d, \"ring_bytes\": %" PRIu64 ", \"device_bytes\": %" PRIu64
                ", \"tcp_bytes\": %" PRIu64 ", \"messages\": %" PRIu64 "}\n",
                getpid(), counts().ring_bytes.load(), counts().device_bytes.load(),
                counts().tcp_bytes.load(), counts().messages.load());
  say(nccl_net::kInfo, std::string("transported ") + std::string(line, std::strlen(line) - 1));
  if (settings_.report.empty()) return;
  const FileLimitSignal held;
  const FileDescriptor file(::open(settings_.report.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644));
  if (!file.valid() || ::write(file.get(), line, std::strlen(line)) < 0)
    say(nccl_net::kWarn,
        "cannot write DYNAMICCL_TRANSPORT_REPORT=" + settings_.report + errno_text(errno));
}

}  // namespace dynamiccl::transport
