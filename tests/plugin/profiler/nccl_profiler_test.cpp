#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "plugin/profiler/nccl_profiler_abi.hpp"

using namespace dynamiccl::nccl_profiler;

namespace {

namespace fs = std::filesystem;

/// The plugin as NCCL loads it.
struct Library {
  void* handle = dlopen(DYNAMICCL_PROFILER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  template <class T>
  T symbol(const char* name) const {
    return reinterpret_cast<T>(dlsym(handle, name));
  }
};

struct Folder {
  fs::path path = fs::temp_directory_path() / ("dynamiccl-profiler-" + std::to_string(getpid()));
  Folder() {
    fs::remove_all(path);
    fs::create_directories(path);
    setenv("DYNAMICCL_PROFILE_FILE", (path / "p").c_str(), 1);
  }
  ~Folder() {
    fs::remove_all(path);
    unsetenv("DYNAMICCL_PROFILE_FILE");
  }
  [[nodiscard]] std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> all;
    for (const auto& entry : fs::directory_iterator(path)) {
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line));
    }
    return all;
  }
};

EventV5 coll(std::uint64_t sequence, unsigned channels) {
  EventV5 event{};
  event.type = kColl;
  event.details.coll = {sequence, "AllReduce", nullptr,       nullptr,
                        1024,     0,           "ncclFloat32", static_cast<std::uint8_t>(channels),
                        17,       "RING",      "LL128"};
  return event;
}

void* start(const PluginV5& plugin, void* context, EventV5 event) {
  void* handle = nullptr;
  CHECK(plugin.start_event(context, &handle, &event) == kSuccess);
  return handle;
}

void* start_kernel(const PluginV5& plugin, void* context, void* parent, std::uint64_t at) {
  EventV5 event{};
  event.type = kKernelChannel;
  event.parent = parent;
  event.details.kernel = {0, at};
  return start(plugin, context, event);
}

void end_kernel(const PluginV5& plugin, void* handle, std::uint64_t at) {
  StateArguments arguments{};
  arguments.kernel.timer = at;
  plugin.record_event_state(handle, kKernelChannelStop, &arguments);
  plugin.stop_event(handle);
}

}  // namespace

TEST_CASE("a collective's choices and the span of its channels are written", "[A-09][A-18]") {
  const Folder folder;
  const Library library;
  REQUIRE(library.handle != nullptr);
  const auto* plugin = library.symbol<const PluginV5*>("ncclProfiler_v5");
  void* context = nullptr;
  int mask = 0;
  plugin->init(&context, 0xabc, &mask, "", 1, 4, 2, nullptr);
  CHECK(mask == static_cast<int>(kColl | kKernelChannel));
  void* call = start(*plugin, context, coll(7, 2));
  plugin->stop_event(call);
  void* first = start_kernel(*plugin, context, call, 1000);
  void* second = start_kernel(*plugin, context, call, 900);
  end_kernel(*plugin, first, 5000);
  end_kernel(*plugin, second, 6000);
  // NCCL may speak of an event after its end (nccl#1992).
  end_kernel(*plugin, second, 9000);
  plugin->stop_event(call);
  CHECK(start_kernel(*plugin, context, call, 1) == nullptr);
  plugin->finalize(context);
  const auto lines = folder.lines();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["device_ns"] == 5100);
  CHECK(lines[0]["algo"] == "RING");
  CHECK(lines[0]["proto"] == "LL128");
  CHECK(lines[0]["channels"] == 2);
  CHECK(lines[0]["threads"] == 544);
  CHECK(lines[0]["rank"] == 2);
  CHECK(lines[0]["seq"] == 7);
}

TEST_CASE("a call whose channels were lost is written without a time", "[A-09]") {
  const Folder folder;
  const Library library;
  const auto* plugin = library.symbol<const PluginV5*>("ncclProfiler_v5");
  void* context = nullptr;
  int mask = 0;
  plugin->init(&context, 1, &mask, "", 1, 1, 0, nullptr);
  plugin->stop_event(start(*plugin, context, coll(1, 4)));
  plugin->finalize(context);
  REQUIRE(folder.lines().size() == 1);
  CHECK(folder.lines()[0]["device_ns"].is_null());
}

TEST_CASE("kernel, proxy and network times are summed up by channel", "[A-09][E-92]") {
  const Library library;
  const auto* plugin = library.symbol<const PluginV5*>("ncclProfiler_v5");
  const auto channels = library.symbol<void (*)(int)>("dynamiccl_profiler_channels");
  const auto take =
      library.symbol<void (*)(std::uint64_t*, std::size_t)>("dynamiccl_profiler_take_channels");
  REQUIRE((channels != nullptr && take != nullptr));
  setenv("DYNAMICCL_PROFILE_EVENTS", "off", 1);
  void* context = nullptr;
  int mask = -1;
  plugin->init(&context, 1, &mask, "", 1, 2, 0, nullptr);
  CHECK(mask == 0);
  channels(2);
  CHECK(mask == static_cast<int>(kColl | kKernelChannel | kProxyOp | kProxyStep));
  std::array<std::uint64_t, 3 * 4> ns{};
  take(ns.data(), 4);
  const auto proxy = [&](unsigned channel, int is_send) {
    EventV5 event{};
    event.type = kProxyOp;
    // Of another process: a handle that nobody may look at.
    event.parent = reinterpret_cast<void*>(8);
    event.details.proxy = {1, static_cast<std::uint8_t>(channel), 1, 4, 65536, is_send};
    return start(*plugin, context, event);
  };
  const auto step_of = [&](void* operation) {
    EventV5 event{};
    event.type = kProxyStep;
    event.parent = operation;
    return start(*plugin, context, event);
  };
  const auto enter = [&](void* step, int state) {
    CHECK(plugin->record_event_state(step, state, nullptr) == kSuccess);
  };
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); };
  constexpr std::uint64_t kPause = 3'000'000;
  constexpr int kSendGpuWait = 8;

  void* call = start(*plugin, context, coll(1, 2));
  plugin->stop_event(call);
  end_kernel(*plugin, start_kernel(*plugin, context, call, 1000), 5000);
  end_kernel(*plugin, start_kernel(*plugin, context, call, 1000), 7000);
  // A send on channel 1: waits for the GPU, then for the network; a receive beside it counts once.
  void* send = proxy(1, 1);
  void* sent = step_of(send);
  enter(sent, kSendGpuWait);
  pause();
  enter(sent, kProxyStepSendWait);
  void* receive = proxy(1, 0);
  void* received = step_of(receive);
  enter(received, kProxyStepRecvWait);
  pause();
  plugin->stop_event(sent);
  plugin->stop_event(send);
  // What has ended says nothing more.
  enter(sent, kProxyStepSendWait);
  CHECK(step_of(send) == nullptr);
  plugin->stop_event(received);
  plugin->stop_event(receive);
  take(ns.data(), 4);
  CHECK(ns[0] == 4000 + 6000);
  CHECK(ns[1] == 0);
  const std::uint64_t proxy_ns = ns[4], network_ns = ns[5];
  CHECK(ns[3] == 0);
  CHECK(network_ns >= kPause);
  CHECK(proxy_ns >= network_ns + kPause);
  take(ns.data(), 4);
  CHECK(std::all_of(ns.begin(), ns.end(), [](std::uint64_t each) { return each == 0; }));

  // An operation that is still under way is counted until now, and from now on.
  void* open = proxy(2, 0);
  enter(step_of(open), kProxyStepRecvWait);
  pause();
  take(ns.data(), 4);
  CHECK(ns[7] >= kPause);
  CHECK(ns[8] >= kPause);
  pause();
  // Its step never ends by itself.
  plugin->stop_event(open);
  take(ns.data(), 4);
  CHECK(ns[8] >= kPause);
  pause();
  take(ns.data(), 4);
  CHECK(ns[7] + ns[8] == 0);
  channels(0);
  CHECK(mask == 0);
  plugin->finalize(context);
  unsetenv("DYNAMICCL_PROFILE_EVENTS");
}

TEST_CASE("more proxy operations than are kept end whole", "[A-09]") {
  const Library library;
  const auto* plugin = library.symbol<const PluginV5*>("ncclProfiler_v5");
  const auto take =
      library.symbol<void (*)(std::uint64_t*, std::size_t)>("dynamiccl_profiler_take_channels");
  void* context = nullptr;
  int mask = 0;
  plugin->init(&context, 1, &mask, "", 1, 2, 0, nullptr);
  std::vector<void*> late;
  for (int i = 0; i < 10'000; ++i) {
    EventV5 event{};
    event.type = kProxyOp;
    event.details.proxy.channel = 3;
    late.push_back(start(*plugin, context, event));
    EventV5 step{};
    step.type = kProxyStep;
    step.parent = late.back();
    void* of_it = start(*plugin, context, step);
    plugin->record_event_state(of_it, kProxyStepSendWait, nullptr);
  }
  for (void* operation : late) plugin->stop_event(operation);
  std::array<std::uint64_t, 3 * 4> ns{};
  take(ns.data(), 4);
  CHECK(ns[10] > 0);
  CHECK(ns[11] > 0);
  take(ns.data(), 4);
  CHECK(ns[10] + ns[11] == 0);
  plugin->finalize(context);
}

TEST_CASE("a program can ask for what was applied and leave its timed calls alone", "[A-18]") {
  const Library library;
  const auto* plugin = library.symbol<const PluginV5*>("ncclProfiler_v5");
  const auto watch = library.symbol<void (*)(int)>("dynamiccl_profiler_watch");
  const auto last = library.symbol<void (*)(char*, std::size_t)>("dynamiccl_profiler_last");
  setenv("DYNAMICCL_PROFILE_EVENTS", "off", 1);
  void* context = nullptr;
  int mask = -1;
  plugin->init(&context, 1, &mask, "", 1, 1, 0, nullptr);
  CHECK(mask == 0);
  watch(1);
  CHECK(mask == static_cast<int>(kColl));
  // A cell with knobs of its own makes its communicator while the program looks on.
  void* other = nullptr;
  plugin->init(&other, 2, &mask, "", 1, 1, 0, nullptr);
  unsetenv("DYNAMICCL_PROFILE_EVENTS");
  CHECK(mask == static_cast<int>(kColl));
  plugin->finalize(other);
  plugin->stop_event(start(*plugin, context, coll(1, 8)));
  std::array<char, 128> text{};
  last(text.data(), text.size());
  CHECK(std::string(text.data()) == "RING/LL128, 8 channels, 544 threads");
  last(text.data(), text.size());
  CHECK(std::string(text.data()).empty());
  watch(0);
  CHECK(mask == 0);
  plugin->finalize(context);
}

TEST_CASE("every call is timed, or one in so many where asked, the same ones on all ranks",
          "[A-09]") {
  // Which of 4,000 calls NCCL would have been asked to time on this rank of communicator 9.
  const auto timed = [](int rank, const char* every) {
    const Folder folder;
    const Library library;
    const auto* plugin = library.symbol<const PluginV5*>("ncclProfiler_v5");
    if (every != nullptr) setenv("DYNAMICCL_PROFILE_EVERY", every, 1);
    void* context = nullptr;
    int mask = 0;
    plugin->init(&context, 9, &mask, "", 1, 2, rank, nullptr);
    unsetenv("DYNAMICCL_PROFILE_EVERY");
    std::vector<std::uint64_t> calls;
    for (std::uint64_t i = 0; i < 4000; ++i) {
      const bool asked = (mask & static_cast<int>(kKernelChannel)) != 0;
      void* call = start(*plugin, context, coll(i, 1));
      plugin->stop_event(call);
      if (!asked) continue;
      calls.push_back(i);
      end_kernel(*plugin, start_kernel(*plugin, context, call, 1), 11);
    }
    CHECK((mask & static_cast<int>(kColl)) != 0);
    plugin->finalize(context);
    // A call that nobody times is written as one, at once and once.
    const auto lines = folder.lines();
    REQUIRE(lines.size() == 4000);
    std::size_t with_time = 0;
    for (const auto& line : lines) with_time += line["device_ns"] == 10 ? 1U : 0U;
    CHECK(with_time == calls.size());
    return calls;
  };
  // NCCL 2.28 may wait for ever for the times of a few.
  CHECK(timed(0, nullptr).size() == 4000);
  const auto first = timed(0, "4");
  CHECK(first.size() > 900);
  CHECK(first.size() < 1100);
  // Training repeats its calls: each place of a step of 4, 8 or 16 calls is timed.
  for (const std::uint64_t step : {4U, 8U, 16U})
    for (std::uint64_t place = 0; place < step; ++place)
      CHECK(std::any_of(first.begin(), first.end(),
                        [&](std::uint64_t call) { return call % step == place; }));
  CHECK(timed(1, "4") == first);
  CHECK(timed(0, "1").size() == 4000);
}

TEST_CASE("a library that is named as network alone asks NCCL for no event", "[A-09][C-39]") {
  const Library library;
  const auto* plugin = library.symbol<const PluginV5*>("ncclProfiler_v5");
  const auto asked = [&] {
    void* context = nullptr;
    int mask = -1;
    plugin->init(&context, 11, &mask, "", 2, 2, 0, nullptr);
    plugin->finalize(context);
    return mask;
  };
  CHECK(asked() == 0);
  setenv("DYNAMICCL_TUNER_FOLDER", "", 1);
  setenv("DYNAMICCL_PROFILE_EVENTS", "", 1);
  CHECK(asked() == 0);
  unsetenv("DYNAMICCL_PROFILE_EVENTS");
  constexpr int kTimed = static_cast<int>(kColl | kKernelChannel);
  const fs::path folder =
      fs::temp_directory_path() / ("dynamiccl-network-" + std::to_string(getpid()));
  fs::create_directories(folder);
  setenv("DYNAMICCL_TUNER_FOLDER", folder.c_str(), 1);
  CHECK(asked() == kTimed);
  unsetenv("DYNAMICCL_TUNER_FOLDER");
  fs::remove_all(folder);
  setenv("DYNAMICCL_PROFILE_EVENTS", "calls", 1);
  CHECK(asked() == static_cast<int>(kColl));
  setenv("DYNAMICCL_PROFILE_EVENTS", "kernels", 1);
  CHECK(asked() == kTimed);
  unsetenv("DYNAMICCL_PROFILE_EVENTS");
  const Folder file;
  CHECK(asked() == kTimed);
}

TEST_CASE("a million collectives of three communicators on their threads lose none",
          "[A-09][threads]") {
  constexpr std::uint64_t kCalls = 1'000'000 / 3 + 1;
  const Folder folder;
  setenv("DYNAMICCL_PROFILE_EVERY", "1", 1);
  const Library library;
  const auto* plugin = library.symbol<const PluginV5*>("ncclProfiler_v5");
  int mask = 0;  // one for all communicators of the process, as NCCL has it
  std::vector<std::thread> threads;
  std::atomic<int> refused{0};
  for (std::uint64_t comm = 0; comm < 3; ++comm) {
    threads.emplace_back([&, comm] {
      void* context = nullptr;
      plugin->init(&context, comm, &mask, "", 1, 1, 0, nullptr);
      for (std::uint64_t i = 0; i < kCalls; ++i) {
        EventV5 event = coll(i, 1);
        void* call = nullptr;
        plugin->start_event(context, &call, &event);
        EventV5 kernel{};
        kernel.type = kKernelChannel;
        kernel.parent = call;
        kernel.details.kernel = {0, i};
        void* channel = nullptr;
        plugin->start_event(context, &channel, &kernel);
        if (channel == nullptr) ++refused;
        plugin->stop_event(call);
        end_kernel(*plugin, channel, i + 10);
      }
      plugin->finalize(context);
    });
  }
  for (auto& thread : threads) thread.join();
  unsetenv("DYNAMICCL_PROFILE_EVERY");
  CHECK(refused == 0);
  std::size_t lines = 0;
  std::size_t timed = 0;
  for (const auto& entry : fs::directory_iterator(folder.path)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      ++lines;
      if (line.find("\"device_ns\":10}") != std::string::npos) ++timed;
    }
  }
  CHECK(lines == 3 * kCalls);
  CHECK(timed == 3 * kCalls);
}

TEST_CASE("one thread enqueues while another reports what the GPU did", "[A-09][threads]") {
  const Folder folder;
  const Library library;
  const auto* plugin = library.symbol<const PluginV4*>("ncclProfiler_v4");
  void* context = nullptr;
  int mask = 0;
  setenv("DYNAMICCL_PROFILE_EVERY", "1", 1);
  plugin->init(&context, &mask, "", 5, 1, 1, 0, nullptr);
  unsetenv("DYNAMICCL_PROFILE_EVERY");
  constexpr int kCalls = 20'000;
  std::array<std::atomic<void*>, 64> passed{};
  std::thread progress([&] {
    for (int i = 0; i < kCalls; ++i) {
      void* call = nullptr;
      while ((call = passed[static_cast<std::size_t>(i) % 64].exchange(nullptr)) == nullptr) {
        std::this_thread::yield();
      }
      EventV4 kernel{};
      kernel.type = static_cast<std::uint8_t>(kKernelChannel);
      kernel.parent = call;
      kernel.details.kernel = {0, 1};
      void* channel = nullptr;
      plugin->start_event(context, &channel, &kernel);
      StateArguments arguments{};
      arguments.kernel.timer = 2;
      plugin->record_event_state(channel, kKernelChannelStop, &arguments);
      plugin->stop_event(channel);
    }
  });
  for (int i = 0; i < kCalls; ++i) {
    EventV4 event{};
    event.type = static_cast<std::uint8_t>(kColl);
    event.details.coll = coll(static_cast<std::uint64_t>(i), 1).details.coll;
    void* call = nullptr;
    plugin->start_event(context, &call, &event);
    auto& slot = passed[static_cast<std::size_t>(i) % 64];
    while (slot.load() != nullptr) std::this_thread::yield();
    slot = call;
    plugin->stop_event(call);
  }
  progress.join();
  plugin->finalize(context);
  CHECK(folder.lines().size() == kCalls);
}
