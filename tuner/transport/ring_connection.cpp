#include "tuner/transport/ring_connection.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tuner/transport/settings.hpp"

namespace dynamiccl::transport {
namespace {

constexpr int kPiecesPerCall = 4;  ///< that NCCL's thread copies before it looks at other messages
/// Looks of NCCL's thread, some microseconds apart, at a piece that no copy thread takes, before it
/// copies that itself: on a busy machine copy threads may have no core for milliseconds.
constexpr int kUntakenLooks = 16;

int pieces_of(std::size_t bytes, std::size_t cell_bytes) {
  return bytes == 0 ? 1 : static_cast<int>((bytes + cell_bytes - 1) / cell_bytes);
}

}  // namespace

RingConnection::RingConnection(bool sender, FileDescriptor socket, std::unique_ptr<Ring> ring,
                               std::size_t inline_bytes, std::uint32_t first_cell)
    : sender_(sender),
      inline_bytes_(inline_bytes),
      socket_(std::move(socket)),
      ring_(std::move(ring)),
      next_cell_(first_cell) {}

std::unique_ptr<RingConnection> RingConnection::make(bool sender, FileDescriptor socket,
                                                     std::unique_ptr<Ring> ring,
                                                     std::size_t inline_bytes, std::string& problem,
                                                     std::uint32_t first_cell) {
  // Without copy threads NCCL's own copies pieces of any size.
  if (CopyPool::instance().threads() == 0) inline_bytes = std::numeric_limits<std::size_t>::max();
  std::unique_ptr<RingConnection> connection(
      new RingConnection(sender, std::move(socket), std::move(ring), inline_bytes, first_cell));
  if (!CopyPool::instance().add(*connection)) {
    problem = "more connections than this transport holds";
    return nullptr;
  }
  if (!PeerWatch::instance().add(connection->socket_.get(), *connection, problem)) return nullptr;
  return connection;
}

RingConnection::~RingConnection() {
  PeerWatch::instance().remove(socket_.get());
  CopyPool::instance().remove(*this);
  for (const Request& request : requests_)
    if (request.in_use && request.large) CopyPool::instance().end_large();
  say_closed(socket_.get());
  close_tracked(socket_);
}

bool RingConnection::on_packet(const Packet& packet, FileDescriptor /*file*/) {
  // Nothing else is said after the start.
  (packet.message == Message::closed ? peer_closed_ : broken_)
      .store(true, std::memory_order_release);
  return false;
}

bool RingConnection::cell_ready(std::uint32_t cell) const noexcept {
  return ring_->cell(cell).turn.load(std::memory_order_acquire) == (sender_ ? cell : cell + 1);
}

bool RingConnection::take(std::size_t most, Piece& piece) noexcept {
  const std::uint64_t message = current_.load(std::memory_order_relaxed);
  piece.cell = next_cell_.load(std::memory_order_relaxed);
  if (message == posted_.load(std::memory_order_acquire) || broken_.load() ||
      !cell_ready(piece.cell))
    return false;
  Request& request = requests_[message % kSlots];
  piece.request = &request;
  piece.offset = request.moved;
  if (sender_) {
    piece.bytes = std::min(request.bytes - request.moved, ring_->cell_bytes());
    if (piece.bytes > most) return false;
  } else if (!take_receive(request, most, piece)) {
    return false;
  }
  request.moved += piece.bytes;
  busy_.fetch_add(1, std::memory_order_relaxed);
  next_cell_.store(piece.cell + 1, std::memory_order_relaxed);
  if (request.moved >= request.bytes) current_.store(message + 1, std::memory_order_relaxed);
  return true;
}

/// The cell's words are the peer's: read once, and only what fits the message is taken.
bool RingConnection::take_receive(Request& request, std::size_t most, Piece& piece) noexcept {
  const Cell& cell = ring_->cell(piece.cell);
  const std::size_t bytes = cell.bytes.load(std::memory_order_relaxed);
  if (!request.started) {
    const std::uint64_t total = cell.total.load(std::memory_order_relaxed);
    if (total > request.bytes) {
      broken_.store(true, std::memory_order_release);
      return false;
    }
    request.started = true;
    request.bytes = total;
    request.left.store(pieces_of(total, ring_->cell_bytes()), std::memory_order_relaxed);
    if (total > inline_bytes_) {
      request.large.store(true, std::memory_order_relaxed);
      CopyPool::instance().begin_large();
    }
  }
  piece.bytes = std::min(request.bytes - request.moved, ring_->cell_bytes());
  if (bytes != piece.bytes) {
    broken_.store(true, std::memory_order_release);
    return false;
  }
  return piece.bytes <= most;
}

void RingConnection::copy(const Piece& piece) noexcept {
  Cell& cell = ring_->cell(piece.cell);
  std::byte* place = ring_->data(piece.cell);
  std::byte* data = piece.request->data + piece.offset;
  if (sender_) {
    if (piece.bytes != 0) std::memcpy(place, data, piece.bytes);
    cell.bytes.store(static_cast<std::uint32_t>(piece.bytes), std::memory_order_relaxed);
    cell.total.store(piece.request->bytes, std::memory_order_relaxed);
    cell.turn.store(piece.cell + 1, std::memory_order_release);
  } else {
    if (piece.bytes != 0) std::memcpy(data, place, piece.bytes);
    cell.turn.store(piece.cell + ring_->cells(), std::memory_order_release);
  }
  piece.request->left.fetch_sub(1, std::memory_order_acq_rel);
  busy_.fetch_sub(1, std::memory_order_release);
}

bool RingConnection::step(std::size_t most) noexcept {
  // A look without the lock: most find nothing.
  if (current_.load(std::memory_order_relaxed) == posted_.load(std::memory_order_acquire) ||
      !cell_ready(next_cell_.load(std::memory_order_relaxed)) ||
      lock_.test_and_set(std::memory_order_acquire))
    return false;
  Piece piece;
  const bool taken = take(most, piece);
  lock_.clear(std::memory_order_release);
  if (taken) copy(piece);
  return taken;
}

std::string RingConnection::state() {
  const std::uint64_t under_way = messages_under_way();
  if (under_way == 0) return "";
  const std::uint64_t posted = posted_.load();
  const std::uint64_t current = current_.load();
  const std::uint32_t cell = next_cell_.load();
  std::string text = std::string(sender_ ? "sends" : "receives") + ": " + std::to_string(posted) +
                     " messages asked for, " + std::to_string(under_way) + " not over, " +
                     std::to_string(current) + " taken in whole";
  if (lock_.test_and_set(std::memory_order_acquire)) {
    text += ", a piece is being taken";
  } else {
    const Request& next = requests_[current % kSlots];
    if (current != posted)
      text += ", of the next " + std::to_string(next.moved) + " of " + std::to_string(next.bytes) +
              " bytes";
    lock_.clear(std::memory_order_release);
  }
  return text + "; cell " + std::to_string(cell) + " has turn " +
         std::to_string(ring_->cell(cell).turn.load()) + "; " + std::to_string(busy_.load()) +
         " pieces being copied" + (peer_gone_.load() ? "; the peer is gone" : "") + "\n";
}

Result RingConnection::post(Request*& request, std::byte* data, std::size_t bytes) {
  request = new_request(data, bytes);
  if (request == nullptr) return nccl_net::kSuccess;
  // A receive's pieces are known when its first comes.
  request->left.store(sender_ ? pieces_of(bytes, ring_->cell_bytes()) : 1,
                      std::memory_order_relaxed);
  // So is whether it is large: NCCL posts room for more than it gets.
  const bool large = sender_ && bytes > inline_bytes_;
  request->large.store(large, std::memory_order_relaxed);
  posted_.store(request->number + 1, std::memory_order_release);
  if (large) CopyPool::instance().begin_large();
  return nccl_net::kSuccess;
}

Result RingConnection::isend(std::byte* data, std::size_t bytes, Memory& /*memory*/,
                             Request*& request) {
  const Result result = post(request, data, bytes);
  for (int i = 0; request != nullptr && i < kPiecesPerCall && step(inline_bytes_); ++i) {
  }
  return result;
}

Result RingConnection::irecv(std::byte* data, std::size_t bytes, Memory& /*memory*/,
                             Request*& request) {
  return post(request, data, bytes);
}

Result RingConnection::test(Request& request, bool& done) {
  for (int i = 0; i < kPiecesPerCall && request.left.load(std::memory_order_acquire) != 0 &&
                  step(inline_bytes_);
       ++i) {
  }
  done = request.left.load(std::memory_order_acquire) == 0;
  if (done) {
    if (request.large) CopyPool::instance().end_large();
    counts().ring_bytes.fetch_add(request.bytes, std::memory_order_relaxed);
    counts().messages.fetch_add(1, std::memory_order_relaxed);
    end_request(request);
    return nccl_net::kSuccess;
  }
  if (broken_.load(std::memory_order_acquire) || peer_gone_.load(std::memory_order_acquire))
    return failure(request);
  push_on();
  return nccl_net::kSuccess;
}

void RingConnection::push_on() {
  const std::uint32_t cell = next_cell_.load(std::memory_order_relaxed);
  if (cell != seen_cell_ || !cell_ready(cell)) {
    seen_cell_ = cell;
    untaken_ = 0;
  }
  if (!cell_ready(cell)) return;
  if (++untaken_ <= kUntakenLooks) return CopyPool::instance().wake();
  untaken_ = 0;
  step(std::numeric_limits<std::size_t>::max());
}

/// What the peer wrote before its end still counts.
Result RingConnection::failure(const Request& request) {
  if (!broken_.load(std::memory_order_acquire) &&
      (step(std::numeric_limits<std::size_t>::max()) ||
       busy_.load(std::memory_order_acquire) != 0 ||
       request.left.load(std::memory_order_acquire) == 0))
    return nccl_net::kSuccess;
  if (reported_) return nccl_net::kRemoteError;
  reported_ = true;
  return fail(nccl_net::kRemoteError,
              broken_.load() ? "the peer broke the transport's rules (a message longer than its "
                               "receive, or another version): this connection ends"
              : peer_closed_.load()
                  ? "the peer closed this connection while messages were under way: its "
                    "communicator ended or was aborted. See its output for why."
                  : "the peer's process ended while messages were under way. See the "
                    "output of the other ranks for why.");
}

}  // namespace dynamiccl::transport
