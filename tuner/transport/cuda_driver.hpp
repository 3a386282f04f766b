#pragma once

#include <cstddef>
#include <string>

// CUDA's driver, as far as copies between processes need it, taken from the library that the
// program has loaded: this plugin builds and loads where there is none.
namespace dynamiccl::transport {

using CudaResult = int;
using CudaDevice = int;
using CudaPointer = unsigned long long;
using CudaHandle = unsigned long long;  ///< of an allocation
using CudaContext = void*;
using CudaStream = void*;

inline constexpr CudaResult kCudaSuccess = 0;
inline constexpr int kCudaFileHandle = 1;        // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
inline constexpr int kCudaOnDevice = 1;          // CU_MEM_LOCATION_TYPE_DEVICE
inline constexpr int kCudaReadWrite = 3;         // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
inline constexpr unsigned kCudaNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
inline constexpr unsigned kCudaPortable = 1;     // CU_MEMHOSTREGISTER_PORTABLE
inline constexpr unsigned kCudaDeviceMap = 2;    // CU_MEMHOSTREGISTER_DEVICEMAP
inline constexpr int kCudaRelaxed = 2;           // CU_STREAM_CAPTURE_MODE_RELAXED
inline constexpr int kCudaEagerLoading = 1;      // CU_MODULE_EAGER_LOADING
inline constexpr int kCudaDirectRdma = 116;      // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED

struct CudaAccess {  // CUmemAccessDesc
  int location_type;
  int location_id;
  int flags;
};

struct CudaDriver {
  CudaResult (*get_error_name)(CudaResult, const char**) = nullptr;
  CudaResult (*ctx_get_current)(CudaContext*) = nullptr;
  CudaResult (*ctx_push_current)(CudaContext) = nullptr;
  CudaResult (*ctx_pop_current)(CudaContext*) = nullptr;
  CudaResult (*ctx_get_device)(CudaDevice*) = nullptr;
  CudaResult (*device_get_attribute)(int*, int, CudaDevice) = nullptr;
  CudaResult (*module_get_loading_mode)(int*) = nullptr;
  CudaResult (*thread_exchange_capture_mode)(int*) = nullptr;
  CudaResult (*mem_get_address_range)(CudaPointer*, std::size_t*, CudaPointer) = nullptr;
  CudaResult (*mem_retain_allocation_handle)(CudaHandle*, void*) = nullptr;
  CudaResult (*mem_export_to_shareable_handle)(void*, CudaHandle, int,
                                               unsigned long long) = nullptr;
  CudaResult (*mem_import_from_shareable_handle)(CudaHandle*, void*, int) = nullptr;
  CudaResult (*mem_release)(CudaHandle) = nullptr;
  CudaResult (*mem_address_reserve)(CudaPointer*, std::size_t, std::size_t, CudaPointer,
                                    unsigned long long) = nullptr;
  CudaResult (*mem_address_free)(CudaPointer, std::size_t) = nullptr;
  CudaResult (*mem_map)(CudaPointer, std::size_t, std::size_t, CudaHandle,
                        unsigned long long) = nullptr;
  CudaResult (*mem_unmap)(CudaPointer, std::size_t) = nullptr;
  CudaResult (*mem_set_access)(CudaPointer, std::size_t, const CudaAccess*, std::size_t) = nullptr;
  CudaResult (*mem_host_register)(void*, std::size_t, unsigned) = nullptr;
  CudaResult (*mem_host_unregister)(void*) = nullptr;
  CudaResult (*mem_host_get_device_pointer)(CudaPointer*, void*, unsigned) = nullptr;
  CudaResult (*ctx_get_stream_priority_range)(int*, int*) = nullptr;
  CudaResult (*stream_create_with_priority)(CudaStream*, unsigned, int) = nullptr;
  CudaResult (*stream_destroy)(CudaStream) = nullptr;
  CudaResult (*stream_synchronize)(CudaStream) = nullptr;
  CudaResult (*memcpy_async)(CudaPointer, CudaPointer, std::size_t, CudaStream) = nullptr;
  CudaResult (*stream_write_value)(CudaStream, CudaPointer, unsigned, unsigned) = nullptr;
};

/// @returns nullptr and why: no driver here, or one that lacks what is needed. Never unloaded.
const CudaDriver* cuda_driver(std::string& why);
/// "cuMemMap failed: CUDA_ERROR_..."
std::string cuda_text(const CudaDriver& driver, const char* call, CudaResult result);

/// Works in a context, where allocations are allowed though another thread captures a graph.
class InContext {
 public:
  InContext(const CudaDriver& driver, CudaContext context);
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  ~InContext();

 private:
  const CudaDriver& driver_;
  bool pushed_;
  int mode_ = kCudaRelaxed;
};

}  // namespace dynamiccl::transport
