#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tuner/transport/connection.hpp"
#include "tuner/transport/cuda_driver.hpp"
#include "tuner/transport/peer_watch.hpp"
#include "tuner/transport/ring.hpp"
#include "tuner/transport/settings.hpp"

namespace dynamiccl::transport {

/// Whether this process may hand memory of its GPU to peers and copy into theirs. @param why it may
/// not
bool device_possible(const Settings& settings, std::string& why);

/// Streams of one GPU that this process's connections share. CUDA maps streams of a priority to few
/// hardware queues, in each of which work waits for what was queued before, a kernel of NCCL's that
/// waits for a message among it: so copies have the highest priority, which hardly any program
/// gives to kernels, and few streams.
class CopyStreams {
 public:
  /// The current context's. @returns nullptr and a problem
  static std::shared_ptr<CopyStreams> of(const CudaDriver& driver, CudaContext context,
                                         const Settings& settings, std::string& problem);
  ~CopyStreams();
  CudaStream next() { return streams_[next_.fetch_add(1) % streams_.size()]; }

 private:
  CopyStreams(const CudaDriver& driver, CudaContext context) : driver_(driver), context_(context) {}
  const CudaDriver& driver_;
  CudaContext context_;
  std::vector<CudaStream> streams_;
  std::atomic<std::size_t> next_{0};
};

/// Two ranks of a host whose GPUs reach each other: the receiver lends the sender the memory it
/// receives into, and the sender's GPU copies right into it; the end of a copy is a word that the
/// GPU writes into memory of both. Nothing here allocates, maps or waits once messages flow: a
/// kernel of NCCL's may be waiting for them.
class DeviceConnection final : public Connection, private PeerClient {
 public:
  /// The calling thread's CUDA context is used. @returns nullptr and a problem
  static std::unique_ptr<DeviceConnection> make(bool sender, FileDescriptor socket,
                                                std::unique_ptr<Ring> ring,
                                                const Settings& settings, std::string& problem);
  ~DeviceConnection() override;

  /// When the receiver's memory is mapped: once NCCL's kernel waits for this sender's messages,
  /// mapping may wait for it.
  Result ready(bool& is_ready) override;
  /// A receiver's memory is mapped by the sender when this returns; what cannot be fails here.
  Result register_memory(void* data, std::size_t bytes, int type, Memory*& memory) override;
  Result forget_memory(Memory* memory) override;
  Result isend(std::byte* data, std::size_t bytes, Memory& memory, Request*& request) override;
  Result irecv(std::byte* data, std::size_t bytes, Memory& memory, Request*& request) override;
  Result test(Request& request, bool& done) override;

 private:
  enum class Answer { none, imported, refused };
  /// Memory that this receiver lends.
  struct Offer {
    CudaPointer base = 0;
    std::size_t bytes = 0;
    int users = 0;
    Answer answer = Answer::none;
    CudaResult error = 0;
  };
  /// Memory that this sender borrows.
  struct Import {
    CudaPointer place = 0;
    std::size_t bytes = 0;
    CudaHandle handle = 0;
  };

  DeviceConnection(bool sender, FileDescriptor socket, std::unique_ptr<Ring> ring,
                   const CudaDriver& driver)
      : sender_(sender), driver_(driver), socket_(std::move(socket)), ring_(std::move(ring)) {}
  bool start(const Settings& settings, std::string& problem);
  Result offer(Memory& memory);
  bool send_offer(std::uint32_t key, CudaPointer base, std::size_t bytes, std::string& problem);
  Result wait_for_answer(std::uint32_t key);
  CudaResult map_import(int file, Import& import);
  void unmap(const Import& import);
  bool find_import(std::uint32_t key, Import& import);
  Result copy(Request& request, Slot& slot, CudaPointer target);
  /// The peer is gone. @param when it left
  Result left(const char* when);
  Result lost(const std::string& what);
  bool on_packet(const Packet& packet, FileDescriptor file) override;
  void on_withdraw(std::uint32_t key);
  void on_answer(const Packet& packet);
  void on_offer(const Packet& packet, const FileDescriptor& file);
  void on_hang_up() override;

  const bool sender_;
  const CudaDriver& driver_;
  FileDescriptor socket_;
  std::unique_ptr<Ring> ring_;
  CudaContext context_ = nullptr;
  CudaDevice device_ = 0;
  std::shared_ptr<CopyStreams> streams_;
  CudaStream stream_ = nullptr;  ///< one of them
  CudaPointer ring_on_device_ = 0;
  std::mutex mutex_;  ///< of offers_ and imports_
  std::condition_variable answered_;
  std::map<std::uint32_t, Offer> offers_;
  std::map<std::uint32_t, Import> imports_;
  std::uint32_t last_key_ = 0;
  std::atomic<bool> mapped_{false};  ///< at least one import
  std::atomic<bool> peer_gone_{false};
  std::atomic<bool> peer_closed_{false};  ///< it said so: its process did not end
  bool reported_ = false;
};

}  // namespace dynamiccl::transport
