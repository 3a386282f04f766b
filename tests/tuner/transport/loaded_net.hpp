#pragma once

#include <cstddef>
#include <string>

#include "tuner/transport/net_abi.hpp"

namespace dynamiccl::testing {

/// The plugin as NCCL loads it: any version of its interface behind one set of calls.
class LoadedNet {
 public:
  /// @throws std::runtime_error when the library or the version is not there
  LoadedNet(const std::string& library, int version);

  int init(nccl_net::Logger log) const;
  int pointer_support() const;
  std::string name() const;
  int listen(void* handle, void** listener) const;
  int connect(void* handle, void** sender) const;
  int accept(void* listener, void** receiver) const;
  int reg_mr(void* connection, void* data, std::size_t bytes, int type, void** memory) const;
  int dereg_mr(void* connection, void* memory) const;
  int isend(void* sender, void* data, std::size_t bytes, void* memory, void** request) const;
  int irecv(void* receiver, void* data, std::size_t bytes, void* memory, void** request) const;
  int irecv_group(void* receiver, int count, void** data, std::size_t* bytes, void** memories,
                  void** request) const;
  int test(void* request, bool& done, std::size_t& bytes) const;
  int close_send(void* sender) const;
  int close_recv(void* receiver) const;
  int close_listen(void* listener) const;
  int finalize() const;

 private:
  int version_;
  const nccl_net::PluginV8* v8_ = nullptr;
  const nccl_net::PluginV9* v9_ = nullptr;
  const nccl_net::PluginV10* v10_ = nullptr;
  const nccl_net::PluginV11* v11_ = nullptr;
};

}  // namespace dynamiccl::testing
