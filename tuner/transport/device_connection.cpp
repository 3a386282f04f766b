#include "tuner/transport/device_connection.hpp"

#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>

namespace dynamiccl::transport {
namespace {

constexpr std::chrono::seconds kImportPatience{30};
constexpr std::size_t kMostImports = 64;

/// NCCL hands over memory of GPUs to a network that is near enough to them; ours has no place on
/// the bus.
bool nccl_hands_it_over() {
  const char* level = std::getenv("NCCL_NET_GDR_LEVEL");
  return level != nullptr &&
         (strcasecmp(level, "SYS") == 0 || (std::isdigit(level[0]) != 0 && std::atoi(level) >= 4));
}

std::string missing(const CudaDriver& driver) {
  if (!nccl_hands_it_over()) return "NCCL_NET_GDR_LEVEL=SYS is not set";
  int mode = 0;
  if (driver.module_get_loading_mode(&mode) != kCudaSuccess || mode != kCudaEagerLoading)
    return "CUDA_MODULE_LOADING=EAGER is not set, without which a kernel that is loaded while "
           "another waits for a "
           "message would stop the program";
  CudaContext context = nullptr;
  CudaDevice device = 0;
  int rdma = 1;
  if (driver.ctx_get_current(&context) == kCudaSuccess && context != nullptr &&
      driver.ctx_get_device(&device) == kCudaSuccess)
    driver.device_get_attribute(&rdma, kCudaDirectRdma, device);
  return rdma == 0 ? "the GPU does not hand its memory to networks" : "";
}

}  // namespace

std::shared_ptr<CopyStreams> CopyStreams::of(const CudaDriver& driver, CudaContext context,
                                             const Settings& settings, std::string& problem) {
  static std::mutex* const mutex = new std::mutex;
  static auto* const all = new std::map<CudaContext, std::weak_ptr<CopyStreams>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::shared_ptr<CopyStreams> streams = (*all)[context].lock();
  if (streams != nullptr) return streams;
  streams.reset(new CopyStreams(driver, context));
  int least = 0;
  int greatest = 0;
  CudaResult result = driver.ctx_get_stream_priority_range(&least, &greatest);
  const int priority = std::max(greatest, least - static_cast<int>(settings.priority));
  for (unsigned i = 0; i < settings.streams && result == kCudaSuccess; ++i) {
    CudaStream stream = nullptr;
    result = driver.stream_create_with_priority(&stream, kCudaNonBlocking, priority);
    if (result == kCudaSuccess) streams->streams_.push_back(stream);
  }
  if (result != kCudaSuccess) {
    problem = cuda_text(driver, "cuStreamCreateWithPriority", result);
    return nullptr;
  }
  (*all)[context] = streams;
  return streams;
}

CopyStreams::~CopyStreams() {
  const InContext here(driver_, context_);
  for (CudaStream stream : streams_) driver_.stream_destroy(stream);
}

bool device_possible(const Settings& settings, std::string& why) {
  if (!settings.device) return false;
  const CudaDriver* driver = cuda_driver(why);
  if (driver == nullptr) return false;
  why = missing(*driver);
  if (!why.empty()) why = "no copies between GPUs: " + why;
  return why.empty();
}

std::unique_ptr<DeviceConnection> DeviceConnection::make(bool sender, FileDescriptor socket,
                                                         std::unique_ptr<Ring> ring,
                                                         const Settings& settings,
                                                         std::string& problem) {
  const CudaDriver* driver = cuda_driver(problem);
  if (driver == nullptr) return nullptr;
  std::unique_ptr<DeviceConnection> connection(
      new DeviceConnection(sender, std::move(socket), std::move(ring), *driver));
  if (!connection->start(settings, problem)) return nullptr;
  return connection;
}

bool DeviceConnection::start(const Settings& settings, std::string& problem) {
  if (driver_.ctx_get_current(&context_) != kCudaSuccess || context_ == nullptr) {
    problem = "the thread that connects has no CUDA context";
    return false;
  }
  const InContext here(driver_, context_);
  const auto good = [&](const char* call, CudaResult result) {
    if (result != kCudaSuccess) problem = cuda_text(driver_, call, result);
    return result == kCudaSuccess;
  };
  if (sender_) {
    streams_ = CopyStreams::of(driver_, context_, settings, problem);
    if (streams_ == nullptr) return false;
    stream_ = streams_->next();
  }
  return good("cuCtxGetDevice", driver_.ctx_get_device(&device_)) &&
         good("cuMemHostRegister", driver_.mem_host_register(ring_->memory(), ring_->bytes(),
                                                             kCudaPortable | kCudaDeviceMap)) &&
         good("cuMemHostGetDevicePointer",
              driver_.mem_host_get_device_pointer(&ring_on_device_, ring_->memory(), 0)) &&
         PeerWatch::instance().add(socket_.get(), *this, problem);
}

/// CUDA may have ended before: then there is nothing left to give back, and its errors say nothing.
DeviceConnection::~DeviceConnection() {
  PeerWatch::instance().remove(socket_.get());
  if (context_ != nullptr) {
    const InContext here(driver_, context_);
    if (stream_ != nullptr) driver_.stream_synchronize(stream_);
    for (const auto& [key, import] : imports_) unmap(import);
    if (ring_on_device_ != 0) driver_.mem_host_unregister(ring_->memory());
  }
  say_closed(socket_.get());
  close_tracked(socket_);
}

Result DeviceConnection::ready(bool& is_ready) {
  is_ready = mapped_.load(std::memory_order_acquire);
  if (!is_ready && peer_gone_.load(std::memory_order_acquire))
    return left("while it was being connected");
  return nccl_net::kSuccess;
}

Result DeviceConnection::register_memory(void* data, std::size_t bytes, int type, Memory*& memory) {
  memory = nullptr;
  auto made = std::make_unique<Memory>();
  made->type = type;
  made->base = static_cast<std::byte*>(data);
  made->bytes = bytes;
  if (type == nccl_net::kPointerCuda) {
    // A program's own buffers, which NCCL registers later: it copies through its own then.
    if (posted_.load() != 0) return nccl_net::kInvalidUsage;
    if (!sender_) {
      const Result result = offer(*made);
      if (result != nccl_net::kSuccess) return result;
    }
  }
  memory = made.release();
  return nccl_net::kSuccess;
}

Result DeviceConnection::offer(Memory& memory) {
  const InContext here(driver_, context_);
  CudaPointer base = 0;
  std::size_t bytes = 0;
  const auto address = reinterpret_cast<CudaPointer>(memory.base);
  const CudaResult result = driver_.mem_get_address_range(&base, &bytes, address);
  if (result != kCudaSuccess)
    return fail(nccl_net::kUnhandledCudaError, cuda_text(driver_, "cuMemGetAddressRange", result));
  memory.offset = address - base;
  if (memory.bytes > bytes - memory.offset) return nccl_net::kInvalidArgument;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [key, known] : offers_) {
      if (known.base != base || known.bytes != bytes) continue;
      ++known.users;
      memory.key = key;
      return nccl_net::kSuccess;
    }
    memory.key = ++last_key_;
    offers_[memory.key] = {base, bytes, 1, Answer::none, 0};
  }
  std::string problem;
  if (!send_offer(memory.key, base, bytes, problem)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    offers_.erase(memory.key);
    return fail(nccl_net::kUnhandledCudaError,
                problem +
                    ": memory of the GPU cannot be lent to another process. Leave "
                    "NCCL_CUMEM_ENABLE as it is, or set DYNAMICCL_TRANSPORT_DEVICE=0 on all "
                    "ranks.");
  }
  return wait_for_answer(memory.key);
}

bool DeviceConnection::send_offer(std::uint32_t key, CudaPointer base, std::size_t bytes,
                                  std::string& problem) {
  CudaHandle handle = 0;
  CudaResult result = driver_.mem_retain_allocation_handle(&handle, reinterpret_cast<void*>(base));
  if (result != kCudaSuccess) {
    problem = cuda_text(driver_, "cuMemRetainAllocationHandle", result);
    return false;
  }
  int number = -1;
  result = driver_.mem_export_to_shareable_handle(&number, handle, kCudaFileHandle, 0);
  driver_.mem_release(handle);
  if (result != kCudaSuccess) {
    problem = cuda_text(driver_, "cuMemExportToShareableHandle", result);
    return false;
  }
  const FileDescriptor file(number);
  Packet packet;
  packet.message = Message::offer;
  packet.key = key;
  packet.bytes = bytes;
  if (send_packet(socket_.get(), packet, file.get())) return true;
  problem = "the other rank is gone" + errno_text(errno);
  return false;
}

Result DeviceConnection::wait_for_answer(std::uint32_t key) {
  std::unique_lock<std::mutex> lock(mutex_);
  Offer& mine = offers_[key];
  answered_.wait_for(lock, kImportPatience,
                     [&] { return mine.answer != Answer::none || peer_gone_.load(); });
  if (mine.answer == Answer::imported) return nccl_net::kSuccess;
  const bool refused = mine.answer == Answer::refused;
  const std::string text =
      refused ? cuda_text(driver_, "mapping it there", mine.error) : std::string();
  offers_.erase(key);
  lock.unlock();
  if (!refused)
    return fail(nccl_net::kRemoteError, "the other rank did not map this GPU's memory in time");
  return fail(nccl_net::kSystemError,
              text +
                  ": the other rank cannot reach this GPU. Its container needs the device nodes "
                  "of all GPUs (--gpus all), or set DYNAMICCL_TRANSPORT_DEVICE=0 on all ranks.");
}

Result DeviceConnection::forget_memory(Memory* memory) {
  const std::unique_ptr<Memory> gone(memory);
  if (gone == nullptr || gone->key == 0) return nccl_net::kSuccess;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto place = offers_.find(gone->key);
  if (place == offers_.end() || --place->second.users != 0) return nccl_net::kSuccess;
  offers_.erase(place);
  Packet packet;
  packet.message = Message::withdraw;
  packet.key = gone->key;
  send_packet(socket_.get(), packet);  // a peer that is gone has none of it
  return nccl_net::kSuccess;
}

bool DeviceConnection::on_packet(const Packet& packet, FileDescriptor file) {
  if (packet.message == Message::closed) {
    peer_closed_.store(true);
    return false;
  }
  if (packet.message == Message::offer && sender_)
    on_offer(packet, file);
  else if (packet.message == Message::withdraw && sender_)
    on_withdraw(packet.key);
  else
    on_answer(packet);
  return true;
}

void DeviceConnection::on_withdraw(std::uint32_t key) {
  const InContext here(driver_, context_);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto place = imports_.find(key);
  if (place == imports_.end()) return;
  driver_.stream_synchronize(stream_);
  unmap(place->second);
  imports_.erase(place);
}

void DeviceConnection::on_answer(const Packet& packet) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto place = offers_.find(packet.key);
  if (place == offers_.end()) return;
  place->second.error = static_cast<CudaResult>(packet.value);
  if (packet.message == Message::imported) place->second.answer = Answer::imported;
  if (packet.message == Message::refused) place->second.answer = Answer::refused;
  answered_.notify_all();
}

void DeviceConnection::on_offer(const Packet& packet, const FileDescriptor& file) {
  const InContext here(driver_, context_);
  Import import;
  import.bytes = packet.bytes;
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool sound =
      file.valid() && imports_.count(packet.key) == 0 && imports_.size() < kMostImports;
  const CudaResult result = sound ? map_import(file.get(), import) : 1;
  if (result == kCudaSuccess) {
    imports_[packet.key] = import;
    mapped_.store(true, std::memory_order_release);
  }
  Packet answer;
  answer.message = result == kCudaSuccess ? Message::imported : Message::refused;
  answer.key = packet.key;
  answer.value = static_cast<std::uint32_t>(result);
  send_packet(socket_.get(), answer);
}

/// A peer that lies about the size gets an error: CUDA maps no more than the allocation has.
CudaResult DeviceConnection::map_import(int file, Import& import) {
  CudaResult result = driver_.mem_import_from_shareable_handle(
      &import.handle, reinterpret_cast<void*>(static_cast<std::uintptr_t>(file)), kCudaFileHandle);
  if (result != kCudaSuccess) return result;
  result = driver_.mem_address_reserve(&import.place, import.bytes, 0, 0, 0);
  if (result != kCudaSuccess) {
    driver_.mem_release(import.handle);
    return result;
  }
  result = driver_.mem_map(import.place, import.bytes, 0, import.handle, 0);
  if (result != kCudaSuccess) {
    driver_.mem_release(import.handle);
    driver_.mem_address_free(import.place, import.bytes);
    return result;
  }
  const CudaAccess access{kCudaOnDevice, device_, kCudaReadWrite};
  result = driver_.mem_set_access(import.place, import.bytes, &access, 1);
  if (result != kCudaSuccess) unmap(import);
  return result;
}

void DeviceConnection::unmap(const Import& import) {
  driver_.mem_unmap(import.place, import.bytes);
  driver_.mem_release(import.handle);
  driver_.mem_address_free(import.place, import.bytes);
}

void DeviceConnection::on_hang_up() {
  const std::lock_guard<std::mutex> lock(mutex_);
  peer_gone_.store(true, std::memory_order_release);
  answered_.notify_all();
}

bool DeviceConnection::find_import(std::uint32_t key, Import& import) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto place = imports_.find(key);
  if (place == imports_.end()) return false;
  import = place->second;
  return true;
}

Result DeviceConnection::isend(std::byte* data, std::size_t bytes, Memory& /*memory*/,
                               Request*& request) {
  request = nullptr;
  const std::uint64_t number = posted_.load(std::memory_order_relaxed);
  Slot& slot = ring_->slot(number);
  if (slot.posted.load(std::memory_order_acquire) != static_cast<std::uint32_t>(number + 1))
    return peer_gone_.load(std::memory_order_acquire) ? left("before it received")
                                                      : nccl_net::kSuccess;
  // The peer's words: read once, and held against what it has lent.
  const std::uint64_t offset = slot.offset.load(std::memory_order_relaxed);
  const std::uint64_t capacity = slot.capacity.load(std::memory_order_relaxed);
  Import import;
  if (bytes > capacity || !find_import(slot.key.load(std::memory_order_relaxed), import) ||
      offset > import.bytes || bytes > import.bytes - offset)
    return lost(" asks for a message outside of what it lent");
  Request* made = new_request(data, bytes);
  if (made == nullptr) return nccl_net::kSuccess;
  posted_.store(number + 1, std::memory_order_relaxed);
  request = made;
  return copy(*made, slot, import.place + offset);
}

Result DeviceConnection::copy(Request& request, Slot& slot, CudaPointer target) {
  const auto end = static_cast<std::uint32_t>(request.number + 1);
  slot.sent.store(request.bytes, std::memory_order_relaxed);
  if (request.bytes == 0) {
    slot.finished.store(end, std::memory_order_release);
    return nccl_net::kSuccess;
  }
  CudaContext context = nullptr;
  driver_.ctx_push_current(context_);
  CudaResult result = driver_.memcpy_async(target, reinterpret_cast<CudaPointer>(request.data),
                                           request.bytes, stream_);
  if (result == kCudaSuccess) {
    const auto place = static_cast<CudaPointer>(reinterpret_cast<std::byte*>(&slot.finished) -
                                                static_cast<std::byte*>(ring_->memory()));
    result = driver_.stream_write_value(stream_, ring_on_device_ + place, end, 0);
  }
  driver_.ctx_pop_current(&context);
  if (result == kCudaSuccess) return nccl_net::kSuccess;
  return fail(nccl_net::kUnhandledCudaError, cuda_text(driver_, "a copy between GPUs", result));
}

Result DeviceConnection::irecv(std::byte* data, std::size_t bytes, Memory& memory,
                               Request*& request) {
  request = nullptr;
  if (memory.key == 0)
    return fail(nccl_net::kInvalidUsage,
                "a receive into host memory on a connection between GPUs: set "
                "DYNAMICCL_TRANSPORT_DEVICE=0 on all ranks");
  request = new_request(data, bytes);
  if (request == nullptr) return nccl_net::kSuccess;
  posted_.store(request->number + 1, std::memory_order_relaxed);
  Slot& slot = ring_->slot(request->number);
  slot.offset.store(memory.offset + static_cast<std::uint64_t>(data - memory.base),
                    std::memory_order_relaxed);
  slot.capacity.store(bytes, std::memory_order_relaxed);
  slot.key.store(memory.key, std::memory_order_relaxed);
  slot.posted.store(static_cast<std::uint32_t>(request->number + 1), std::memory_order_release);
  return nccl_net::kSuccess;
}

Result DeviceConnection::test(Request& request, bool& done) {
  Slot& slot = ring_->slot(request.number);
  const auto finished = [&] {
    return slot.finished.load(std::memory_order_acquire) ==
           static_cast<std::uint32_t>(request.number + 1);
  };
  done = finished();
  if (!done) {
    // What was finished before the peer's end still counts. A sender asks too: the word that its
    // GPU writes is the peer's to write over.
    if (!peer_gone_.load(std::memory_order_acquire) || finished()) return nccl_net::kSuccess;
    return left("while messages were under way");
  }
  if (!sender_) {
    const std::uint64_t sent = slot.sent.load(std::memory_order_relaxed);
    if (sent > request.bytes) return lost(" sent more than was asked for");
    request.bytes = sent;
  }
  counts().device_bytes.fetch_add(request.bytes, std::memory_order_relaxed);
  counts().messages.fetch_add(1, std::memory_order_relaxed);
  end_request(request);
  return nccl_net::kSuccess;
}

Result DeviceConnection::left(const char* when) {
  return lost((peer_closed_.load() ? " closed this connection " : "'s process ended ") +
              std::string(when));
}

Result DeviceConnection::lost(const std::string& what) {
  if (reported_) return nccl_net::kRemoteError;
  reported_ = true;
  return fail(nccl_net::kRemoteError,
              "the peer" + what + ". See the output of the other ranks for why.");
}

}  // namespace dynamiccl::transport
