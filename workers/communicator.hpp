#pragma once

#include <string>
#include <vector>

#include "workers/gpu_queue.hpp"
#include "workers/library_calls.hpp"
#include "workers/library_facts.hpp"
#include "workers/messages.hpp"

namespace dynamiccl {

/// All ranks of a launch joined through one library: what a backend implements. Who needs
/// less of it takes one of its parts. One thread. Every call throws Error(environment) when the
/// library reports a failure.
class Communicator : public Messages, public LibraryCalls, public GpuCalls, public LibraryFacts {
 public:
  [[nodiscard]] std::string carrier() const override { return library(); }
  [[nodiscard]] std::string barrier_name() const override { return kBarrierName; }
  void send_receive(const void* send, int to, void* receive, int from, std::size_t bytes) override;
  /// The calling thread makes the calls from now on, until the owner's next one.
  void enter_thread();
  /// Makes the ranks leave at the same time. Ranks: all.
  virtual void synchronise();

  /// Leaves the job in order. Ranks: all.
  virtual void finalize() = 0;
  /// Ends every rank of the job as fast as the library can, without waiting for them.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

/// The root's bytes, a multiple of 4, to all ranks; in host memory whatever the library works on.
void broadcast_host(Communicator& comm, void* data, std::size_t bytes, int root);

}  // namespace dynamiccl
