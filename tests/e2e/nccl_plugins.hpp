#pragma once

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "plugin/profiler/nccl_profiler_abi.hpp"
#include "plugin/tuner/nccl_tuner_abi.hpp"

namespace dynamiccl::testing {

namespace tuner = nccl_tuner;
namespace profiler = nccl_profiler;

inline constexpr int kAllReduce = 4;

inline std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

inline void logger(int, unsigned long, const char*, int, const char*, ...) {}

/// NCCL's side of both plugins, for one communicator.
class Plugins {
 public:
  Plugins(std::uint64_t communicator, int ranks, int rank, int nodes = 1) {
    const char* path = std::getenv("NCCL_PROFILER_PLUGIN");
    void* library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr)
      profiler_ = static_cast<const profiler::PluginV5*>(dlsym(library, "ncclProfiler_v5"));
    if (profiler_ != nullptr)
      profiler_->init(&profile_, communicator, &mask_, "world", nodes, ranks, rank, logger);
    path = std::getenv("NCCL_TUNER_PLUGIN");
    library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr)
      tuner_ = static_cast<const tuner::PluginV5*>(dlsym(library, "ncclTunerPlugin_v5"));
    if (tuner_ != nullptr)
      tuner_->init(&tuning_, communicator, static_cast<std::size_t>(ranks),
                   static_cast<std::size_t>(nodes), logger, nullptr, nullptr);
  }
  ~Plugins() {
    if (tuner_ != nullptr) tuner_->finalize(tuning_);
    if (profiler_ != nullptr) profiler_->finalize(profile_);
  }
  Plugins(const Plugins&) = delete;
  Plugins& operator=(const Plugins&) = delete;

  /// What the tuner answers: the cap of channels, 0 = none, and the place in NCCL's table whose
  /// cost it has put to 0, -1 = none.
  struct Answer {
    int channels = 0;
    int chosen = -1;
    bool failed = false;  ///< the job must end
  };
  [[nodiscard]] Answer answer(std::size_t bytes) const {
    std::array<float, 21> costs{};
    costs.fill(tuner::kIgnored);
    for (std::size_t i = 0; i < 6; ++i) costs[i] = 10.0F + static_cast<float>(i);
    Answer answer;
    if (tuner_ != nullptr)
      answer.failed = tuner_->get_coll_info(tuning_, kAllReduce, bytes, 1,
                                            reinterpret_cast<float**>(costs.data()), 7, 3, 0,
                                            &answer.channels) != tuner::kSuccess;
    for (std::size_t i = 0; i < costs.size(); ++i)
      if (costs[i] == 0) answer.chosen = static_cast<int>(i);
    return answer;
  }
  /// @returns the cap of channels; 0: none
  int decide(std::size_t bytes) const { return answer(bytes).channels; }

  template <class Work>
  void tell(std::size_t bytes, int channels, Work&& work, const char* function = "AllReduce") {
    void* call = nullptr;
    const bool timed = (mask_ & static_cast<int>(profiler::kKernelChannel)) != 0;
    if (profiler_ != nullptr && (mask_ & static_cast<int>(profiler::kColl)) != 0) {
      profiler::EventV5 event{};
      event.type = profiler::kColl;
      event.details.coll = {
          sequence_++, function, nullptr,       nullptr,
          bytes / 4,   0,        "ncclFloat32", static_cast<std::uint8_t>(channels),
          17,          "RING",   "SIMPLE"};
      profiler_->start_event(profile_, &call, &event);
    }
    const std::uint64_t begin = now_ns();
    work();
    const std::uint64_t end = now_ns();
    if (call == nullptr) return;
    profiler_->stop_event(call);
    for (int channel = 0; timed && channel < channels; ++channel) {
      profiler::EventV5 event{};
      event.type = profiler::kKernelChannel;
      event.parent = call;
      event.details.kernel = {static_cast<std::uint8_t>(channel), begin};
      void* handle = nullptr;
      profiler_->start_event(profile_, &handle, &event);
      profiler::StateArguments stop{};
      stop.kernel.timer = end;
      profiler_->record_event_state(handle, profiler::kKernelChannelStop, &stop);
      profiler_->stop_event(handle);
    }
  }

 private:
  const profiler::PluginV5* profiler_ = nullptr;
  const tuner::PluginV5* tuner_ = nullptr;
  void* profile_ = nullptr;
  void* tuning_ = nullptr;
  int mask_ = 0;
  std::uint64_t sequence_ = 0;
};

}  // namespace dynamiccl::testing
