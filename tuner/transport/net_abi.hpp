#pragma once

#include <cstddef>
#include <cstdint>

// The part of NCCL's binary interface for network plugins that is used here (NCCL 2.28,
// src/include/plugin/net/net_v8.h to net_v11.h), so that it builds without NCCL.
namespace dynamiccl::nccl_net {

using Result = int;  // ncclResult_t
inline constexpr Result kSuccess = 0;
inline constexpr Result kUnhandledCudaError = 1;
inline constexpr Result kSystemError = 2;
inline constexpr Result kInvalidArgument = 4;
inline constexpr Result kInvalidUsage = 5;
inline constexpr Result kRemoteError = 6;

using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);
inline constexpr int kWarn = 2;
inline constexpr int kInfo = 3;
inline constexpr unsigned long kInit = 0x1;
inline constexpr unsigned long kNet = 0x10;

inline constexpr std::size_t kHandleBytes = 128;  // NCCL_NET_HANDLE_MAXSIZE
inline constexpr int kPointerHost = 1;
inline constexpr int kPointerCuda = 2;
inline constexpr int kMostDevices = 4;  // NCCL_NET_MAX_DEVS_PER_NIC

struct DeviceHandle;  // for networks that NCCL's kernels drive themselves
struct VirtualDevice {
  int count;
  int devices[kMostDevices];
};
struct CommunicatorConfig {
  int traffic_class;
};

struct PropertiesV8 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int speed_mbps;
  int port;
  float latency_us;
  int most_communicators;
  int most_receives;
  int net_device_type;
  int net_device_version;
};
struct PropertiesV9 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int most_communicators;
  int most_receives;
  int net_device_type;
  int net_device_version;
  VirtualDevice virtual_device;
  std::size_t most_p2p_bytes;
  std::size_t most_collective_bytes;
};
using PropertiesV10 = PropertiesV9;
struct PropertiesV11 {
  PropertiesV9 common;
  int most_multi_request_size;
};

struct PluginV8 {
  const char* name;
  Result (*init)(Logger log);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV8* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* handle, void** sender, DeviceHandle** device_handle);
  Result (*accept)(void* listener, void** receiver, DeviceHandle** device_handle);
  Result (*reg_mr)(void* connection, void* data, std::size_t bytes, int type, void** memory);
  Result (*reg_mr_dma_buf)(void* connection, void* data, std::size_t bytes, int type,
                           std::uint64_t offset, int file, void** memory);
  Result (*dereg_mr)(void* connection, void* memory);
  Result (*isend)(void* sender, void* data, int bytes, int tag, void* memory, void** request);
  Result (*irecv)(void* receiver, int count, void** data, int* bytes, int* tags, void** memories,
                  void** request);
  Result (*iflush)(void* receiver, int count, void** data, int* bytes, void** memories,
                   void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_send)(void* sender);
  Result (*close_recv)(void* receiver);
  Result (*close_listen)(void* listener);
  Result (*get_device_mr)(void* connection, void* memory, void** device_memory);
  Result (*irecv_consumed)(void* receiver, int count, void* request);
};
struct PluginV9 {
  const char* name;
  Result (*init)(Logger log);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV9* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* handle, void** sender, DeviceHandle** device_handle);
  Result (*accept)(void* listener, void** receiver, DeviceHandle** device_handle);
  Result (*reg_mr)(void* connection, void* data, std::size_t bytes, int type, void** memory);
  Result (*reg_mr_dma_buf)(void* connection, void* data, std::size_t bytes, int type,
                           std::uint64_t offset, int file, void** memory);
  Result (*dereg_mr)(void* connection, void* memory);
  Result (*isend)(void* sender, void* data, std::size_t bytes, int tag, void* memory,
                  void** request);
  Result (*irecv)(void* receiver, int count, void** data, std::size_t* bytes, int* tags,
                  void** memories, void** request);
  Result (*iflush)(void* receiver, int count, void** data, int* bytes, void** memories,
                   void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_send)(void* sender);
  Result (*close_recv)(void* receiver);
  Result (*close_listen)(void* listener);
  Result (*get_device_mr)(void* connection, void* memory, void** device_memory);
  Result (*irecv_consumed)(void* receiver, int count, void* request);
  Result (*make_virtual_device)(int* device, VirtualDevice* properties);
};
struct PluginV10 {
  const char* name;
  Result (*init)(Logger log, void* profiler);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV10* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, CommunicatorConfig* config, void* handle, void** sender,
                    DeviceHandle** device_handle);
  Result (*accept)(void* listener, void** receiver, DeviceHandle** device_handle);
  Result (*reg_mr)(void* connection, void* data, std::size_t bytes, int type, void** memory);
  Result (*reg_mr_dma_buf)(void* connection, void* data, std::size_t bytes, int type,
                           std::uint64_t offset, int file, void** memory);
  Result (*dereg_mr)(void* connection, void* memory);
  Result (*isend)(void* sender, void* data, std::size_t bytes, int tag, void* memory,
                  void* profiler_handle, void** request);
  Result (*irecv)(void* receiver, int count, void** data, std::size_t* bytes, int* tags,
                  void** memories, void** profiler_handles, void** request);
  Result (*iflush)(void* receiver, int count, void** data, int* bytes, void** memories,
                   void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_send)(void* sender);
  Result (*close_recv)(void* receiver);
  Result (*close_listen)(void* listener);
  Result (*get_device_mr)(void* connection, void* memory, void** device_memory);
  Result (*irecv_consumed)(void* receiver, int count, void* request);
  Result (*make_virtual_device)(int* device, VirtualDevice* properties);
};
struct PluginV11 {
  const char* name;
  Result (*init)(void** context, std::uint64_t communicator, CommunicatorConfig* config, Logger log,
                 void* profiler);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV11* properties);
  Result (*listen)(void* context, int device, void* handle, void** listener);
  Result (*connect)(void* context, int device, void* handle, void** sender,
                    DeviceHandle** device_handle);
  Result (*accept)(void* listener, void** receiver, DeviceHandle** device_handle);
  Result (*reg_mr)(void* connection, void* data, std::size_t bytes, int type, void** memory);
  Result (*reg_mr_dma_buf)(void* connection, void* data, std::size_t bytes, int type,
                           std::uint64_t offset, int file, void** memory);
  Result (*dereg_mr)(void* connection, void* memory);
  Result (*isend)(void* sender, void* data, std::size_t bytes, int tag, void* memory,
                  void* profiler_handle, void** request);
  Result (*irecv)(void* receiver, int count, void** data, std::size_t* bytes, int* tags,
                  void** memories, void** profiler_handles, void** request);
  Result (*iflush)(void* receiver, int count, void** data, int* bytes, void** memories,
                   void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_send)(void* sender);
  Result (*close_recv)(void* receiver);
  Result (*close_listen)(void* listener);
  Result (*get_device_mr)(void* connection, void* memory, void** device_memory);
  Result (*irecv_consumed)(void* receiver, int count, void* request);
  Result (*make_virtual_device)(int* device, VirtualDevice* properties);
  Result (*finalize)(void* context);
  Result (*set_attributes)(void* context, void* attributes);
};

}  // namespace dynamiccl::nccl_net
