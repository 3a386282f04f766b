#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>

namespace dynamiccl::nvml {

/// Why a fact is unknown that NVML was asked for.
inline constexpr const char* kRefused = "NVML does not tell it for this GPU";

// The part of NVML's stable C interface that is used here, so that it builds without CUDA's
// headers.
using Device = struct nvmlDevice_st*;
inline constexpr int kSuccess = 0;

struct MemoryInfo {
  unsigned long long total, free, used;
};

/// NVML, loaded at run time so that nothing depends on a driver.
class Nvml {
 public:
  static std::unique_ptr<Nvml> open(std::string& reason) {
    std::unique_ptr<Nvml> nvml(new Nvml);
    nvml->handle_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (nvml->handle_ == nullptr) {
      const char* error = dlerror();
      reason = error != nullptr ? error : "libnvidia-ml.so.1 cannot be loaded";
      return nullptr;
    }
    const int status = nvml->call<int (*)()>("nvmlInit_v2");
    if (status != kSuccess) {
      reason = "nvmlInit_v2 failed with status " + std::to_string(status);
      return nullptr;
    }
    nvml->started_ = true;
    return nvml;
  }
  ~Nvml() {
    if (started_) call<int (*)()>("nvmlShutdown");
    // Left loaded: CUDA in the same process may use it, and unloading buys nothing.
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// The function's status, or -1 where this NVML has no such function.
  template <class Function, class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    void* symbol = dlsym(handle_, name);
    if (symbol == nullptr) return -1;
    return reinterpret_cast<Function>(symbol)(arguments...);
  }
  template <class... Arguments>
  [[nodiscard]] bool get(const char* name, Arguments... arguments) const {
    return call<int (*)(Arguments...)>(name, arguments...) == kSuccess;
  }

 private:
  Nvml() = default;
  void* handle_ = nullptr;
  bool started_ = false;
};

}  // namespace dynamiccl::nvml
