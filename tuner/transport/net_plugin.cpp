// The network that NCCL loads: one transport under four versions of its interface.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "tuner/transport/copy_pool.hpp"
#include "tuner/transport/net_abi.hpp"
#include "tuner/transport/transport.hpp"

#define DYN_EXPORT __attribute__((visibility("default")))

namespace dynamiccl::transport {
namespace {

using nccl_net::DeviceHandle;
using nccl_net::kInvalidArgument;
using nccl_net::kSuccess;
using nccl_net::kSystemError;

constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr int kSpeedMbps = 200'000;
constexpr int kMostCommunicators = 65536;

/// NCCL is C: what is thrown ends here.
template <typename Work>
Result guarded(Work&& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return fail(kSystemError, error.what());
  }
}

Result init(nccl_net::Logger log) {
  return guarded([&] { return Transport::instance().init(log); });
}
Result init_v10(nccl_net::Logger log, void* /*profiler*/) { return init(log); }
Result init_v11(void** context, std::uint64_t /*communicator*/,
                nccl_net::CommunicatorConfig* /*config*/, nccl_net::Logger log,
                void* /*profiler*/) {
  *context = nullptr;
  return init(log);
}

Result devices(int* count) {
  *count = 1;
  return kSuccess;
}

template <typename Properties>
void fill_properties(Properties& properties) {
  static char name[] = "dynamiccl0";
  properties = {};
  properties.name = name;
  properties.guid = 0x64796e;
  properties.pointer_support =
      nccl_net::kPointerHost | (Transport::instance().device() ? nccl_net::kPointerCuda : 0);
  properties.speed_mbps = kSpeedMbps;
  properties.port = 1;
  properties.most_communicators = kMostCommunicators;
  properties.most_receives = 1;
}
Result properties_v8(int /*device*/, nccl_net::PropertiesV8* properties) {
  fill_properties(*properties);
  return kSuccess;
}
Result properties_v9(int device, nccl_net::PropertiesV9* properties) {
  fill_properties(*properties);
  properties->virtual_device.count = 1;
  properties->virtual_device.devices[0] = device;
  properties->most_p2p_bytes = properties->most_collective_bytes = kMostBytes;
  return kSuccess;
}
Result properties_v11(int device, nccl_net::PropertiesV11* properties) {
  properties->most_multi_request_size = 1;
  return properties_v9(device, &properties->common);
}

Result listen(int /*device*/, void* handle, void** listener) {
  return guarded([&] {
    Listener* made = nullptr;
    const Result result = Transport::instance().listen(handle, made);
    *listener = made;
    return result;
  });
}
Result listen_v11(void* /*context*/, int device, void* handle, void** listener) {
  return listen(device, handle, listener);
}

Result connect(int /*device*/, void* handle, void** sender, DeviceHandle** device_handle) {
  return guarded([&] {
    if (device_handle != nullptr) *device_handle = nullptr;
    Connection* made = nullptr;
    const Result result = Transport::instance().connect(handle, made);
    *sender = made;
    return result;
  });
}
Result connect_v10(int device, nccl_net::CommunicatorConfig* /*config*/, void* handle,
                   void** sender, DeviceHandle** device_handle) {
  return connect(device, handle, sender, device_handle);
}
Result connect_v11(void* /*context*/, int device, void* handle, void** sender,
                   DeviceHandle** device_handle) {
  return connect(device, handle, sender, device_handle);
}

Result accept(void* listener, void** receiver, DeviceHandle** device_handle) {
  return guarded([&] {
    if (device_handle != nullptr) *device_handle = nullptr;
    Connection* made = nullptr;
    const Result result = Transport::instance().accept(*static_cast<Listener*>(listener), made);
    *receiver = made;
    return result;
  });
}

Result reg_mr(void* connection, void* data, std::size_t bytes, int type, void** memory) {
  return guarded([&] {
    Memory* made = nullptr;
    const Result result =
        static_cast<Connection*>(connection)->register_memory(data, bytes, type, made);
    *memory = made;
    return result;
  });
}
Result dereg_mr(void* connection, void* memory) {
  return guarded([&] {
    return static_cast<Connection*>(connection)->forget_memory(static_cast<Memory*>(memory));
  });
}

/// More than the properties promise: of 2 GiB NCCL could not even be told the size.
Result refuse(std::size_t bytes) {
  return fail(kInvalidArgument, "a message of " + std::to_string(bytes) +
                                    " bytes: this network sends at most " +
                                    std::to_string(kMostBytes) + " at once");
}

/// What a message lies in; memory of the host that nobody registered is as good as registered.
Memory& memory_of(void* memory) {
  static Memory unregistered;
  return memory == nullptr ? unregistered : *static_cast<Memory*>(memory);
}

Result isend(void* sender, void* data, std::size_t bytes, int /*tag*/, void* memory,
             void* /*profiler_handle*/, void** request) {
  if (bytes > kMostBytes) return guarded([&] { return refuse(bytes); });
  return guarded([&] {
    Request* made = nullptr;
    const Result result = static_cast<Connection*>(sender)->isend(static_cast<std::byte*>(data),
                                                                  bytes, memory_of(memory), made);
    *request = made;
    return result;
  });
}
Result isend_v9(void* sender, void* data, std::size_t bytes, int tag, void* memory,
                void** request) {
  return isend(sender, data, bytes, tag, memory, nullptr, request);
}
Result isend_v8(void* sender, void* data, int bytes, int tag, void* memory, void** request) {
  if (bytes < 0) return kInvalidArgument;
  return isend(sender, data, static_cast<std::size_t>(bytes), tag, memory, nullptr, request);
}

Result irecv(void* receiver, int count, void** data, std::size_t* bytes, int* /*tags*/,
             void** memories, void** /*profiler_handles*/, void** request) {
  // One receive at a time is what the properties promise.
  if (count != 1) return fail(kInvalidArgument, "receives are not grouped by this network");
  return guarded([&] {
    Request* made = nullptr;
    const Result result = static_cast<Connection*>(receiver)->irecv(
        // More room than a message can need is none the less room.
        static_cast<std::byte*>(data[0]), std::min(bytes[0], kMostBytes), memory_of(memories[0]),
        made);
    *request = made;
    return result;
  });
}
Result irecv_v9(void* receiver, int count, void** data, std::size_t* bytes, int* tags,
                void** memories, void** request) {
  return irecv(receiver, count, data, bytes, tags, memories, nullptr, request);
}
Result irecv_v8(void* receiver, int count, void** data, int* bytes, int* tags, void** memories,
                void** request) {
  if (count != 1 || bytes[0] < 0) return kInvalidArgument;
  auto size = static_cast<std::size_t>(bytes[0]);
  return irecv(receiver, count, data, &size, tags, memories, nullptr, request);
}

/// A receive is over only when its bytes can be seen by the GPU.
Result iflush(void* /*receiver*/, int /*count*/, void** /*data*/, int* /*bytes*/,
              void** /*memories*/, void** request) {
  *request = nullptr;
  return kSuccess;
}

Result test(void* opaque, int* done, int* bytes) {
  return guarded([&] {
    auto& request = *static_cast<Request*>(opaque);
    bool ended = false;
    const Result result = request.connection->test(request, ended);
    *done = ended ? 1 : 0;
    if (ended && bytes != nullptr) *bytes = static_cast<int>(request.bytes);
    return result;
  });
}

Result close_connection(void* connection) {
  return guarded([&] {
    Transport::instance().close(static_cast<Connection*>(connection));
    return kSuccess;
  });
}
Result close_listen(void* listener) {
  return guarded([&] {
    Transport::instance().close(static_cast<Listener*>(listener));
    return kSuccess;
  });
}
Result finalize(void* /*context*/) { return kSuccess; }

constexpr char kName[] = "DynamICCL";

}  // namespace
}  // namespace dynamiccl::transport

extern "C" {
namespace transport_abi = dynamiccl::transport;
/// Bytes that this process has sent and received so far: through host memory of the folder's peers,
/// from GPU to GPU, by TCP. For who measures what a job's calls went over.
DYN_EXPORT void dynamiccl_transport_bytes(std::uint64_t moved_bytes[3]);
void dynamiccl_transport_bytes(std::uint64_t moved_bytes[3]) {
  moved_bytes[0] = transport_abi::counts().ring_bytes.load();
  moved_bytes[1] = transport_abi::counts().device_bytes.load();
  moved_bytes[2] = transport_abi::counts().tcp_bytes.load();
}
/// What is under way in this process and does not move, as text, for who looks for why. Ends in 0.
DYN_EXPORT void dynamiccl_transport_state(char* text, std::size_t bytes);
void dynamiccl_transport_state(char* text, std::size_t bytes) {
  transport_abi::guarded([&] {
    std::snprintf(text, bytes, "%s", transport_abi::CopyPool::instance().state().c_str());
    return transport_abi::kSuccess;
  });
}
DYN_EXPORT extern const dynamiccl::nccl_net::PluginV11 ncclNetPlugin_v11;
DYN_EXPORT extern const dynamiccl::nccl_net::PluginV10 ncclNetPlugin_v10;
DYN_EXPORT extern const dynamiccl::nccl_net::PluginV9 ncclNetPlugin_v9;
DYN_EXPORT extern const dynamiccl::nccl_net::PluginV8 ncclNetPlugin_v8;
const dynamiccl::nccl_net::PluginV11 ncclNetPlugin_v11{transport_abi::kName,
                                                       transport_abi::init_v11,
                                                       transport_abi::devices,
                                                       transport_abi::properties_v11,
                                                       transport_abi::listen_v11,
                                                       transport_abi::connect_v11,
                                                       transport_abi::accept,
                                                       transport_abi::reg_mr,
                                                       nullptr,
                                                       transport_abi::dereg_mr,
                                                       transport_abi::isend,
                                                       transport_abi::irecv,
                                                       transport_abi::iflush,
                                                       transport_abi::test,
                                                       transport_abi::close_connection,
                                                       transport_abi::close_connection,
                                                       transport_abi::close_listen,
                                                       nullptr,
                                                       nullptr,
                                                       nullptr,
                                                       transport_abi::finalize,
                                                       nullptr};
const dynamiccl::nccl_net::PluginV10 ncclNetPlugin_v10{transport_abi::kName,
                                                       transport_abi::init_v10,
                                                       transport_abi::devices,
                                                       transport_abi::properties_v9,
                                                       transport_abi::listen,
                                                       transport_abi::connect_v10,
                                                       transport_abi::accept,
                                                       transport_abi::reg_mr,
                                                       nullptr,
                                                       transport_abi::dereg_mr,
                                                       transport_abi::isend,
                                                       transport_abi::irecv,
                                                       transport_abi::iflush,
                                                       transport_abi::test,
                                                       transport_abi::close_connection,
                                                       transport_abi::close_connection,
                                                       transport_abi::close_listen,
                                                       nullptr,
                                                       nullptr,
                                                       nullptr};
const dynamiccl::nccl_net::PluginV9 ncclNetPlugin_v9{transport_abi::kName,
                                                     transport_abi::init,
                                                     transport_abi::devices,
                                                     transport_abi::properties_v9,
                                                     transport_abi::listen,
                                                     transport_abi::connect,
                                                     transport_abi::accept,
                                                     transport_abi::reg_mr,
                                                     nullptr,
                                                     transport_abi::dereg_mr,
                                                     transport_abi::isend_v9,
                                                     transport_abi::irecv_v9,
                                                     transport_abi::iflush,
                                                     transport_abi::test,
                                                     transport_abi::close_connection,
                                                     transport_abi::close_connection,
                                                     transport_abi::close_listen,
                                                     nullptr,
                                                     nullptr,
                                                     nullptr};
const dynamiccl::nccl_net::PluginV8 ncclNetPlugin_v8{transport_abi::kName,
                                                     transport_abi::init,
                                                     transport_abi::devices,
                                                     transport_abi::properties_v8,
                                                     transport_abi::listen,
                                                     transport_abi::connect,
                                                     transport_abi::accept,
                                                     transport_abi::reg_mr,
                                                     nullptr,
                                                     transport_abi::dereg_mr,
                                                     transport_abi::isend_v8,
                                                     transport_abi::irecv_v8,
                                                     transport_abi::iflush,
                                                     transport_abi::test,
                                                     transport_abi::close_connection,
                                                     transport_abi::close_connection,
                                                     transport_abi::close_listen,
                                                     nullptr,
                                                     nullptr};
}
