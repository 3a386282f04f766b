#include "tuner/transport/cuda_driver.hpp"

#include <dlfcn.h>

namespace dynamiccl::transport {
namespace {

struct Loaded {
  CudaDriver driver;
  std::string why;
};

template <typename Function>
void take(void* library, const char* name, Function& function, std::string& why) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr && why.empty())
    why = std::string("CUDA's driver has no ") + name + ": a newer driver is needed";
}

Loaded load() {
  Loaded loaded;
  std::string& why = loaded.why;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    why = "CUDA's driver is not here";
    return loaded;
  }
  CudaDriver& d = loaded.driver;
  take(library, "cuGetErrorName", d.get_error_name, why);
  take(library, "cuCtxGetCurrent", d.ctx_get_current, why);
  take(library, "cuCtxPushCurrent_v2", d.ctx_push_current, why);
  take(library, "cuCtxPopCurrent_v2", d.ctx_pop_current, why);
  take(library, "cuCtxGetDevice", d.ctx_get_device, why);
  take(library, "cuDeviceGetAttribute", d.device_get_attribute, why);
  take(library, "cuModuleGetLoadingMode", d.module_get_loading_mode, why);
  take(library, "cuThreadExchangeStreamCaptureMode", d.thread_exchange_capture_mode, why);
  take(library, "cuMemGetAddressRange_v2", d.mem_get_address_range, why);
  take(library, "cuMemRetainAllocationHandle", d.mem_retain_allocation_handle, why);
  take(library, "cuMemExportToShareableHandle", d.mem_export_to_shareable_handle, why);
  take(library, "cuMemImportFromShareableHandle", d.mem_import_from_shareable_handle, why);
  take(library, "cuMemRelease", d.mem_release, why);
  take(library, "cuMemAddressReserve", d.mem_address_reserve, why);
  take(library, "cuMemAddressFree", d.mem_address_free, why);
  take(library, "cuMemMap", d.mem_map, why);
  take(library, "cuMemUnmap", d.mem_unmap, why);
  take(library, "cuMemSetAccess", d.mem_set_access, why);
  take(library, "cuMemHostRegister_v2", d.mem_host_register, why);
  take(library, "cuMemHostUnregister", d.mem_host_unregister, why);
  take(library, "cuMemHostGetDevicePointer_v2", d.mem_host_get_device_pointer, why);
  take(library, "cuCtxGetStreamPriorityRange", d.ctx_get_stream_priority_range, why);
  take(library, "cuStreamCreateWithPriority", d.stream_create_with_priority, why);
  take(library, "cuStreamDestroy_v2", d.stream_destroy, why);
  take(library, "cuStreamSynchronize", d.stream_synchronize, why);
  take(library, "cuMemcpyAsync", d.memcpy_async, why);
  take(library, "cuStreamWriteValue32_v2", d.stream_write_value, why);
  return loaded;
}

}  // namespace

const CudaDriver* cuda_driver(std::string& why) {
  static const Loaded* const loaded = new Loaded(load());
  why = loaded->why;
  return why.empty() ? &loaded->driver : nullptr;
}

std::string cuda_text(const CudaDriver& driver, const char* call, CudaResult result) {
  const char* name = nullptr;
  if (driver.get_error_name(result, &name) != kCudaSuccess || name == nullptr) name = "error";
  return std::string(call) + " failed: " + name + " (" + std::to_string(result) + ")";
}

InContext::InContext(const CudaDriver& driver, CudaContext context)
    : driver_(driver), pushed_(driver.ctx_push_current(context) == kCudaSuccess) {
  driver_.thread_exchange_capture_mode(&mode_);
}

InContext::~InContext() {
  driver_.thread_exchange_capture_mode(&mode_);
  CudaContext context = nullptr;
  if (pushed_) driver_.ctx_pop_current(&context);
}

}  // namespace dynamiccl::transport
