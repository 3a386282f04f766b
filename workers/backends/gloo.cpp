#include <fcntl.h>
#include <fmt/format.h>
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/wire/record.hpp"
#include "profiles/detect/network_interface.hpp"
#include "workers/clock.hpp"
#include "workers/collectives/sum.hpp"
#include "workers/run/backend_table.hpp"
#include "workers/run/record_link.hpp"

namespace dynamiccl {
namespace {

using std::chrono::milliseconds;

// Longer than any healthy call, shorter than a launch's timeout: a lost rank ends the others.
constexpr milliseconds kCallTimeout{120'000};

/// A rank's error record and the file it belongs to, made before a signal handler needs them.
struct LastWords {
  std::string path;
  std::string line;
};

LastWords& last_words() {
  static LastWords words;
  return words;
}

/// Gloo writes to sockets without MSG_NOSIGNAL. Without a handler a rank whose peer died ends
/// without a word; with the signal ignored Gloo waits for its timeout.
void speak_when_a_peer_breaks_off(const std::string& output_dir, int rank) {
  const ErrorRecord record{rank,
                           "the connection to a peer broke while Gloo wrote to it (SIGPIPE): that "
                           "rank has ended, its own record or the launch's errors say why"};
  last_words() = {output_dir + "/" + record_file_name(rank),
                  records_endpoint() ? RecordLink::last_words(rank, to_json_line(record))
                                     : to_json_line(record) + "\n"};
  std::signal(SIGPIPE, [](int) {
    const LastWords& words = last_words();
    const int link = RecordLink::live_descriptor();
    const int file = link >= 0 ? link : ::open(words.path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    const bool told = file >= 0 && ::write(file, words.line.data(), words.line.size()) > 0;
    _exit(told ? 1 : 128 + SIGPIPE);
  });
}

/// The rendezvous of ranks that no folder joins.
class ConnectedStore : public gloo::rendezvous::Store {
 public:
  ConnectedStore(const RecordsEndpoint& endpoint, milliseconds timeout)
      : store_(endpoint), timeout_(timeout) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const auto value = store_.get(key, timeout_);
    if (!value)
      throw Error(ErrorKind::environment,
                  fmt::format("a rank did not come to the rendezvous within {} s",
                              timeout_.count() / 1000));
    return {value->begin(), value->end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const auto& key : keys) static_cast<void>(get(key));
  }
  void wait(const std::vector<std::string>& keys, const milliseconds& /*timeout*/) override {
    wait(keys);
  }

 private:
  RecordStore store_;
  milliseconds timeout_;
};

std::unique_ptr<gloo::rendezvous::Store> rendezvous(const RunConfig& config) {
  const milliseconds timeout(static_cast<long>(config.connect_timeout.count() / 1e3));
  if (records_endpoint()) return std::make_unique<ConnectedStore>(*records_endpoint(), timeout);
  std::filesystem::create_directories(config.rendezvous_dir);
  return std::make_unique<gloo::rendezvous::FileStore>(config.rendezvous_dir);
}

/// Turns Gloo's exceptions into ours, naming the call.
template <class F>
auto guarded(const char* call, F&& function) {
  try {
    return function();
  } catch (const std::exception& error) {
    std::signal(SIGPIPE, SIG_IGN);  // this error is the rank's last word
    throw Error(ErrorKind::environment, fmt::format("{} failed: {}", call, error.what()));
  }
}

/// Whether a wait of Gloo's ends within `limit`. What a lost peer throws ends it too, but before.
template <class Wait>
bool ends_within(Micros limit, Wait&& wait) {
  const auto most = milliseconds(static_cast<long>(limit.count() / 1e3));
  const double start_us = now_us();
  try {
    return wait(most);
  } catch (const std::exception&) {
    if (now_us() - start_us < 1e3 * static_cast<double>(most.count())) throw;
    return false;
  }
}

using ReduceFunction = gloo::AllreduceOptions::Func;

template <class T>
ReduceFunction function_of(ReduceOp op) {
  using Pointer = void (*)(void*, const void*, const void*, std::size_t);
  if (op == ReduceOp::max) return static_cast<Pointer>(&gloo::max<T>);
  if (op == ReduceOp::min) return static_cast<Pointer>(&gloo::min<T>);
  if (op == ReduceOp::prod) return static_cast<Pointer>(&gloo::product<T>);
  return static_cast<Pointer>(&gloo::sum<T>);
}

/// 16-bit floats have sums alone (work_settings_misfit()).
ReduceFunction reduce_function(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::float32:
      return function_of<float>(op);
    case DataType::float64:
      return function_of<double>(op);
    case DataType::int32:
      return function_of<std::int32_t>(op);
    default:
      // Not gloo::sum<gloo::float16>: that type's assignment keeps the old value when its bits,
      // read as an integer, equal the new value (0x0348 survives an assignment of 840).
      return [type](void* out, const void* a, const void* b, std::size_t count) {
        sum_elements(out, a, b, count, type);
      };
  }
}

/// Gloo's options take the element's type for its size alone.
template <class F>
void with_element(DataType type, F&& function) {
  switch (element_bytes(type)) {
    case 2:
      return function(std::uint16_t{});
    case 8:
      return function(std::uint64_t{});
    default:
      return function(std::uint32_t{});
  }
}

template <class T>
T* as(const void* data) {
  return static_cast<T*>(const_cast<void*>(data));
}

class GlooCommunicator final : public Communicator {
 public:
  explicit GlooCommunicator(const RunConfig& config);

  [[nodiscard]] int rank() const override { return context_->rank; }
  [[nodiscard]] int size() const override { return context_->size; }
  [[nodiscard]] std::string library() const override {
    return fmt::format("Gloo {}, tcp transport on {}", library_version(), interface_);
  }
  [[nodiscard]] std::string library_version() const override {
    return fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
  }
  [[nodiscard]] std::optional<std::string> unsupported(const CallShape& shape) const override;
  [[nodiscard]] std::vector<std::string> algorithms(Collective collective) const override;
  std::string choose(const CallShape& shape) override;

  void broadcast(void* data, std::size_t count, DataType type, int root) override;
  void reduce(const void* in, void* out, std::size_t count, DataType type, int root) override;
  void allreduce(const void* in, void* out, std::size_t count, DataType type) override;
  void allgather(const void* in, void* out, std::size_t count, DataType type) override;
  void reduce_scatter(const void* in, void* out, std::size_t count, DataType type) override;
  void gather(const void* in, void* out, std::size_t count, DataType type, int root) override;
  void alltoall(const void* in, void* out, std::size_t count, DataType type) override;
  void alltoallv(const void* in, void* out, const PairCounts& counts, DataType type) override;
  void allgatherv(const void* in, void* out, const PairCounts& counts, DataType type) override;
  void scatter(const void* in, void* out, std::size_t count, DataType type, int root) override;
  void library_barrier() override;

  Request isend(const void* data, std::size_t bytes, int to, int tag) override;
  Request irecv(void* data, std::size_t bytes, int from, int tag) override;
  void wait(Request request) override;
  void wait_within(Request request, int peer, Micros limit) override;
  void wait_for_as_long_as(Micros limit) override {
    call_timeout_ = std::max(kCallTimeout, milliseconds(static_cast<long>(limit.count() / 1e3)));
    context_->setTimeout(call_timeout_);
  }
  int receive_any(void* data, std::size_t bytes, const std::vector<int>& from, int tag,
                  Micros limit) override;

  void finalize() override {
    // A rank that leaves closes its connections, which others still in a call see as a failure.
    barrier(*this);
    context_->closeConnections();
  }
  [[noreturn]] void abort(int exit_code) override { std::_Exit(exit_code); }

 private:
  struct Pending {
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    bool sending = false;
  };
  Pending& take(Request& handle);

  std::shared_ptr<gloo::Context> context_;
  milliseconds call_timeout_ = kCallTimeout;
  std::string interface_;
  ReduceOp op_ = ReduceOp::sum;
  gloo::AllreduceOptions::Algorithm allreduce_ = gloo::AllreduceOptions::Algorithm::UNSPECIFIED;
  std::size_t max_segment_bytes_ = 0;  // 0: the library's default
  std::vector<std::byte> reduce_scratch_;
  std::vector<Pending> pending_;
  std::vector<std::uint32_t> free_;
};

GlooCommunicator::GlooCommunicator(const RunConfig& config) {
  const int rank = rank_from_environment(config.ranks);
  if (config.rendezvous_dir.empty()) {
    throw Error(ErrorKind::input,
                "run.json: rendezvous_dir is empty, but Gloo meets through files; give a folder "
                "that every rank sees under the same path");
  }
  interface_ = gloo_interface(config.interface);
  speak_when_a_peer_breaks_off(config.output_dir, rank);
  guarded("connecting Gloo's ranks", [&] {
    gloo::transport::tcp::attr attributes;
    attributes.iface = interface_;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    // Keys carry the launch's id, so that files of an earlier launch are never taken for ours.
    const auto keys = rendezvous(config);
    gloo::rendezvous::PrefixStore store(config.launch_id, *keys);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, config.ranks);
    context->setTimeout(milliseconds(static_cast<long>(config.connect_timeout.count() / 1e3)));
    context->connectFullMesh(store, device);
    context->setTimeout(kCallTimeout);
    context_ = context;
  });
}

std::vector<std::string> GlooCommunicator::algorithms(Collective collective) const {
  switch (collective) {
    case Collective::allreduce:
      return {"library", "ring", "bcube"};
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::allgather:
    case Collective::gather:
    case Collective::alltoall:
    case Collective::alltoallv:
    case Collective::allgatherv:
    case Collective::scatter:
    case Collective::barrier:
      return {"library"};
    default:
      return {};  // reduce_scatter is only a legacy class that overwrites its input
  }
}

std::optional<std::string> GlooCommunicator::unsupported(const CallShape& shape) const {
  if (shape.in_place &&
      (shape.collective == Collective::alltoall || shape.collective == Collective::scatter))
    return fmt::format("Gloo has no in-place {}", name_of(shape.collective));
  // Its rings divide by the elements of a part, and end the process.
  if (shape.count == 0 && facts_of(shape.collective).size != SizeRule::nothing)
    return fmt::format("size = 0: Gloo's {} takes one element at least", name_of(shape.collective));
  for (const auto& [name, value] : shape.knobs) {
    if (name != "max_segment_bytes" && name != "segment_bytes")
      return fmt::format("Gloo has no knob \"{}\"; known: max_segment_bytes", name);
  }
  return std::nullopt;
}

std::string GlooCommunicator::choose(const CallShape& shape) {
  using Algorithm = gloo::AllreduceOptions::Algorithm;
  allreduce_ = Algorithm::UNSPECIFIED;
  op_ = shape.op;
  if (shape.algorithm == "ring") allreduce_ = Algorithm::RING;
  if (shape.algorithm == "bcube") allreduce_ = Algorithm::BCUBE;
  const auto knob = shape.knobs.find("max_segment_bytes");
  max_segment_bytes_ = knob == shape.knobs.end() ? 0 : parse_bytes(knob->second).count();
  switch (shape.collective) {
    case Collective::allreduce:
      return allreduce_ == Algorithm::BCUBE ? "bcube" : "ring";
    case Collective::reduce:
    case Collective::allgather:
    case Collective::allgatherv:
      return "ring";
    case Collective::broadcast:
      return "binomial";
    case Collective::barrier:
      return "dissemination";
    case Collective::gather:
    case Collective::scatter:
      return "linear";
    case Collective::alltoall:
    case Collective::alltoallv:
      return "pairwise";
    default:
      return "library";
  }
}

void GlooCommunicator::broadcast(void* data, std::size_t count, DataType type, int root) {
  guarded("gloo::broadcast", [&] {
    gloo::BroadcastOptions options(context_);
    with_element(type, [&]<class T>(T) { options.setOutput(as<T>(data), count); });
    options.setRoot(root);
    gloo::broadcast(options);
  });
}

void GlooCommunicator::reduce(const void* in, void* out, std::size_t count, DataType type,
                              int root) {
  guarded("gloo::reduce", [&] {
    gloo::ReduceOptions options(context_);
    const std::size_t bytes = count * element_bytes(type);
    // Gloo works in the output on every rank, not only on the root.
    if (rank() != root && reduce_scratch_.size() < bytes) reduce_scratch_.resize(bytes);
    void* to = rank() == root ? out : reduce_scratch_.data();
    with_element(type, [&]<class T>(T) {
      if (in != to) options.setInput(as<T>(in), count);
      options.setOutput(as<T>(to), count);
    });
    options.setReduceFunction(reduce_function(type, op_));
    if (max_segment_bytes_ != 0) options.setMaxSegmentSize(max_segment_bytes_);
    options.setRoot(root);
    gloo::reduce(options);
  });
}

void GlooCommunicator::allreduce(const void* in, void* out, std::size_t count, DataType type) {
  guarded("gloo::allreduce", [&] {
    gloo::AllreduceOptions options(context_);
    with_element(type, [&]<class T>(T) {
      if (in != out) options.setInput(as<T>(in), count);
      options.setOutput(as<T>(out), count);
    });
    options.setAlgorithm(allreduce_);
    options.setReduceFunction(reduce_function(type, op_));
    if (max_segment_bytes_ != 0) options.setMaxSegmentSize(max_segment_bytes_);
    gloo::allreduce(options);
  });
}

void GlooCommunicator::allgather(const void* in, void* out, std::size_t count, DataType type) {
  guarded("gloo::allgather", [&] {
    gloo::AllgatherOptions options(context_);
    const auto ranks = static_cast<std::size_t>(size());
    const void* own = static_cast<std::byte*>(out) +
                      static_cast<std::size_t>(rank()) * count * element_bytes(type);
    with_element(type, [&]<class T>(T) {
      if (in != own) options.setInput(as<T>(in), count);
      options.setOutput(as<T>(out), count * ranks);
    });
    gloo::allgather(options);
  });
}

void GlooCommunicator::reduce_scatter(const void* /*in*/, void* /*out*/, std::size_t /*count*/,
                                      DataType /*type*/) {
  DYN_ASSERT(false, "algorithms() offers no reduce_scatter");
}

void GlooCommunicator::gather(const void* in, void* out, std::size_t count, DataType type,
                              int root) {
  guarded("gloo::gather", [&] {
    gloo::GatherOptions options(context_);
    with_element(type, [&]<class T>(T) {
      options.setInput(as<T>(in), count);
      if (rank() == root) options.setOutput(as<T>(out), count * static_cast<std::size_t>(size()));
    });
    options.setRoot(root);
    gloo::gather(options);
  });
}

void GlooCommunicator::alltoall(const void* in, void* out, std::size_t count, DataType type) {
  guarded("gloo::alltoall", [&] {
    gloo::AlltoallOptions options(context_);
    const std::size_t all = count * static_cast<std::size_t>(size());
    with_element(type, [&]<class T>(T) {
      options.setInput(as<T>(in), all);
      options.setOutput(as<T>(out), all);
    });
    gloo::alltoall(options);
  });
}

void GlooCommunicator::alltoallv(const void* in, void* out, const PairCounts& counts,
                                 DataType type) {
  guarded("gloo::alltoallv", [&] {
    gloo::AlltoallvOptions options(context_);
    with_element(type, [&]<class T>(T) {
      options.setInput(as<T>(in), {counts.send.begin(), counts.send.end()});
      options.setOutput(as<T>(out), {counts.receive.begin(), counts.receive.end()});
    });
    gloo::alltoallv(options);
  });
}

void GlooCommunicator::allgatherv(const void* in, void* out, const PairCounts& counts,
                                  DataType type) {
  guarded("gloo::allgatherv", [&] {
    gloo::AllgathervOptions options(context_);
    const auto own = static_cast<std::size_t>(rank());
    const void* place = static_cast<std::byte*>(out) +
                        static_cast<std::size_t>(counts.receive_at[own]) * element_bytes(type);
    with_element(type, [&]<class T>(T) {
      if (in != place) options.setInput(as<T>(in), static_cast<std::size_t>(counts.receive[own]));
      options.setOutput(as<T>(out), {counts.receive.begin(), counts.receive.end()});
    });
    gloo::allgatherv(options);
  });
}

void GlooCommunicator::scatter(const void* in, void* out, std::size_t count, DataType type,
                               int root) {
  guarded("gloo::scatter", [&] {
    gloo::ScatterOptions options(context_);
    with_element(type, [&]<class T>(T) {
      std::vector<T*> parts;
      for (int peer = 0; rank() == root && peer < size(); ++peer)
        parts.push_back(as<T>(in) + static_cast<std::size_t>(peer) * count);
      if (!parts.empty()) options.setInputs(parts, count);
      options.setOutput(as<T>(out), count);
    });
    options.setRoot(root);
    gloo::scatter(options);
  });
}

void GlooCommunicator::library_barrier() {
  guarded("gloo::barrier", [&] {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  });
}

// Gloo's collectives keep slot numbers with the top byte 1 to 8; ours stay clear of them.
std::uint64_t slot_of(int tag) {
  return (std::uint64_t{0x40} << 40) + static_cast<std::uint64_t>(tag);
}

GlooCommunicator::Pending& GlooCommunicator::take(Request& handle) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(pending_.size()));
    pending_.emplace_back();
  }
  handle = Request{free_.back()};
  free_.pop_back();
  return pending_[static_cast<std::uint32_t>(handle)];
}

Request GlooCommunicator::isend(const void* data, std::size_t bytes, int to, int tag) {
  Request handle{};
  Pending& pending = take(handle);
  guarded("sending through Gloo", [&] {
    pending = {context_->createUnboundBuffer(const_cast<void*>(data), bytes), true};
    pending.buffer->send(to, slot_of(tag));
  });
  return handle;
}

Request GlooCommunicator::irecv(void* data, std::size_t bytes, int from, int tag) {
  Request handle{};
  Pending& pending = take(handle);
  guarded("receiving through Gloo", [&] {
    pending = {context_->createUnboundBuffer(data, bytes), false};
    pending.buffer->recv(from, slot_of(tag));
  });
  return handle;
}

void GlooCommunicator::wait(Request request) {
  Pending& pending = pending_[static_cast<std::uint32_t>(request)];
  guarded("waiting for Gloo", [&] {
    // Buffers keep the shorter timeout of the connecting phase unless set.
    if (pending.sending) {
      pending.buffer->waitSend(call_timeout_);
    } else {
      pending.buffer->waitRecv(call_timeout_);
    }
    pending.buffer.reset();
  });
  free_.push_back(static_cast<std::uint32_t>(request));
}

void GlooCommunicator::wait_within(Request request, int peer, Micros limit) {
  Pending& pending = pending_[static_cast<std::uint32_t>(request)];
  const bool in_time = guarded("waiting for Gloo", [&] {
    return ends_within(limit, [&](milliseconds most) {
      return pending.sending ? pending.buffer->waitSend(most) : pending.buffer->waitRecv(most);
    });
  });
  if (!in_time) refuse_silence({peer}, limit);
  pending.buffer.reset();
  free_.push_back(static_cast<std::uint32_t>(request));
}

int GlooCommunicator::receive_any(void* data, std::size_t bytes, const std::vector<int>& from,
                                  int tag, Micros limit) {
  int sender = -1;
  const bool in_time = guarded("receiving from any rank through Gloo", [&] {
    const auto buffer = context_->createUnboundBuffer(data, bytes);
    buffer->recv(from, slot_of(tag));
    return ends_within(limit, [&](milliseconds most) { return buffer->waitRecv(&sender, most); });
  });
  if (!in_time) refuse_silence(from, limit);
  return sender;
}

}  // namespace

std::unique_ptr<Communicator> connect_gloo(const RunConfig& config) {
  return std::make_unique<GlooCommunicator>(config);
}

}  // namespace dynamiccl
