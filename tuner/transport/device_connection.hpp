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

/// Two ranks of a host whose GPUs reach each other: the receiver lends the sender the memory it
/// receives into, and the sender's GPU copies right into it; the end of a copy is a word that the
/// GPU writes into memory of both. Nothing here allocates, maps or waits once messages flow: a
/// kernel of NCCL's may be waiting for them.
class DeviceConnection final : public Connection, private PeerClient {
 public:
  /// The calling thread's CUDA context is used. @returns nullptr and a problem
  static std::unique_ptr<DeviceConnection> make(bool sender, Descriptor socket,
                                                std::unique_ptr<Ring> ring, std::string& problem);
  ~DeviceConnection() override;

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

  DeviceConnection(bool sender, Descriptor socket, std::unique_ptr<Ring> ring,
                   const CudaDriver& driver)
      : sender_(sender), driver_(driver), socket_(std::move(socket)), ring_(std::move(ring)) {}
  bool start(std::string& problem);
  Result offer(Memory& memory);
  bool send_offer(std::uint32_t key, CudaPointer base, std::size_t bytes, std::string& problem);
  Result wait_for_answer(std::uint32_t key);
  CudaResult map_import(int file, Import& import);
  void unmap(const Import& import);
  bool find_import(std::uint32_t key, Import& import);
  Result copy(Request& request, Slot& slot, CudaPointer target);
  Result lost(const char* what);
  void on_packet(const Packet& packet, Descriptor file) override;
  void on_offer(const Packet& packet, const Descriptor& file);
  void on_hang_up() override;

  const bool sender_;
  const CudaDriver& driver_;
  Descriptor socket_;
  std::unique_ptr<Ring> ring_;
  CudaContext context_ = nullptr;
  CudaDevice device_ = 0;
  CudaStream stream_ = nullptr;
  CudaPointer ring_on_device_ = 0;
  std::mutex mutex_;  ///< of offers_ and imports_
  std::condition_variable answered_;
  std::map<std::uint32_t, Offer> offers_;
  std::map<std::uint32_t, Import> imports_;
  std::uint32_t last_key_ = 0;
  std::atomic<bool> peer_gone_{false};
  bool reported_ = false;
};

}  // namespace dynamiccl::transport
