#include "tests/tuner/transport/loaded_net.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace dynamiccl::testing {

LoadedNet::LoadedNet(const std::string& library, int version) : version_(version) {
  void* file = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) throw std::runtime_error(dlerror());
  const void* symbol = dlsym(file, ("ncclNetPlugin_v" + std::to_string(version)).c_str());
  if (symbol == nullptr) throw std::runtime_error(dlerror());
  switch (version) {
    case 8:
      v8_ = static_cast<const nccl_net::PluginV8*>(symbol);
      break;
    case 9:
      v9_ = static_cast<const nccl_net::PluginV9*>(symbol);
      break;
    case 10:
      v10_ = static_cast<const nccl_net::PluginV10*>(symbol);
      break;
    case 11:
      v11_ = static_cast<const nccl_net::PluginV11*>(symbol);
      break;
    default:
      throw std::runtime_error("no such version");
  }
}

int LoadedNet::init(nccl_net::Logger log) const {
  nccl_net::CommunicatorConfig config{-1};
  void* context = nullptr;
  if (v11_ != nullptr) return v11_->init(&context, 1, &config, log, nullptr);
  if (v10_ != nullptr) return v10_->init(log, nullptr);
  return v9_ != nullptr ? v9_->init(log) : v8_->init(log);
}

int LoadedNet::pointer_support() const {
  nccl_net::PropertiesV11 v11{};
  nccl_net::PropertiesV10 v10{};
  nccl_net::PropertiesV8 v8{};
  if (v11_ != nullptr) return v11_->get_properties(0, &v11) == 0 ? v11.common.pointer_support : -1;
  if (v10_ != nullptr) return v10_->get_properties(0, &v10) == 0 ? v10.pointer_support : -1;
  if (v9_ != nullptr) return v9_->get_properties(0, &v10) == 0 ? v10.pointer_support : -1;
  return v8_->get_properties(0, &v8) == 0 ? v8.pointer_support : -1;
}

std::string LoadedNet::name() const {
  if (v11_ != nullptr) return v11_->name;
  if (v10_ != nullptr) return v10_->name;
  return v9_ != nullptr ? v9_->name : v8_->name;
}

int LoadedNet::listen(void* handle, void** listener) const {
  if (v11_ != nullptr) return v11_->listen(nullptr, 0, handle, listener);
  if (v10_ != nullptr) return v10_->listen(0, handle, listener);
  return v9_ != nullptr ? v9_->listen(0, handle, listener) : v8_->listen(0, handle, listener);
}

int LoadedNet::connect(void* handle, void** sender) const {
  nccl_net::CommunicatorConfig config{-1};
  nccl_net::DeviceHandle* device = nullptr;
  if (v11_ != nullptr) return v11_->connect(nullptr, 0, handle, sender, &device);
  if (v10_ != nullptr) return v10_->connect(0, &config, handle, sender, &device);
  return v9_ != nullptr ? v9_->connect(0, handle, sender, &device)
                        : v8_->connect(0, handle, sender, &device);
}

int LoadedNet::accept(void* listener, void** receiver) const {
  nccl_net::DeviceHandle* device = nullptr;
  if (v11_ != nullptr) return v11_->accept(listener, receiver, &device);
  if (v10_ != nullptr) return v10_->accept(listener, receiver, &device);
  return v9_ != nullptr ? v9_->accept(listener, receiver, &device)
                        : v8_->accept(listener, receiver, &device);
}

int LoadedNet::reg_mr(void* connection, void* data, std::size_t bytes, int type,
                      void** memory) const {
  if (v11_ != nullptr) return v11_->reg_mr(connection, data, bytes, type, memory);
  if (v10_ != nullptr) return v10_->reg_mr(connection, data, bytes, type, memory);
  return v9_ != nullptr ? v9_->reg_mr(connection, data, bytes, type, memory)
                        : v8_->reg_mr(connection, data, bytes, type, memory);
}
int LoadedNet::dereg_mr(void* connection, void* memory) const {
  if (v11_ != nullptr) return v11_->dereg_mr(connection, memory);
  if (v10_ != nullptr) return v10_->dereg_mr(connection, memory);
  return v9_ != nullptr ? v9_->dereg_mr(connection, memory) : v8_->dereg_mr(connection, memory);
}

int LoadedNet::isend(void* sender, void* data, std::size_t bytes, void* memory,
                     void** request) const {
  if (v11_ != nullptr) return v11_->isend(sender, data, bytes, 0, memory, nullptr, request);
  if (v10_ != nullptr) return v10_->isend(sender, data, bytes, 0, memory, nullptr, request);
  if (v9_ != nullptr) return v9_->isend(sender, data, bytes, 0, memory, request);
  return v8_->isend(sender, data, static_cast<int>(bytes), 0, memory, request);
}

int LoadedNet::irecv_group(void* receiver, int count, void** data, std::size_t* bytes,
                           void** memories, void** request) const {
  int tags[8] = {};
  void* profiler[8] = {};
  if (v11_ != nullptr)
    return v11_->irecv(receiver, count, data, bytes, tags, memories, profiler, request);
  if (v10_ != nullptr)
    return v10_->irecv(receiver, count, data, bytes, tags, memories, profiler, request);
  if (v9_ != nullptr) return v9_->irecv(receiver, count, data, bytes, tags, memories, request);
  int sizes[8] = {};
  for (int i = 0; i < count && i < 8; ++i) sizes[i] = static_cast<int>(bytes[i]);
  return v8_->irecv(receiver, count, data, sizes, tags, memories, request);
}
int LoadedNet::irecv(void* receiver, void* data, std::size_t bytes, void* memory,
                     void** request) const {
  return irecv_group(receiver, 1, &data, &bytes, &memory, request);
}

int LoadedNet::test(void* request, bool& done, std::size_t& bytes) const {
  int ended = 0;
  int size = 0;
  int result = 0;
  if (v11_ != nullptr)
    result = v11_->test(request, &ended, &size);
  else if (v10_ != nullptr)
    result = v10_->test(request, &ended, &size);
  else
    result = v9_ != nullptr ? v9_->test(request, &ended, &size) : v8_->test(request, &ended, &size);
  done = ended != 0;
  bytes = static_cast<std::size_t>(size);
  return result;
}

int LoadedNet::close_send(void* sender) const {
  if (v11_ != nullptr) return v11_->close_send(sender);
  if (v10_ != nullptr) return v10_->close_send(sender);
  return v9_ != nullptr ? v9_->close_send(sender) : v8_->close_send(sender);
}
int LoadedNet::close_recv(void* receiver) const {
  if (v11_ != nullptr) return v11_->close_recv(receiver);
  if (v10_ != nullptr) return v10_->close_recv(receiver);
  return v9_ != nullptr ? v9_->close_recv(receiver) : v8_->close_recv(receiver);
}
int LoadedNet::close_listen(void* listener) const {
  if (v11_ != nullptr) return v11_->close_listen(listener);
  if (v10_ != nullptr) return v10_->close_listen(listener);
  return v9_ != nullptr ? v9_->close_listen(listener) : v8_->close_listen(listener);
}
int LoadedNet::finalize() const { return v11_ != nullptr ? v11_->finalize(nullptr) : 0; }

}  // namespace dynamiccl::testing
