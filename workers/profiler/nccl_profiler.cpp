// libdynamiccl-nccl-plugin.so, profiler half: loaded into NCCL by NCCL_PROFILER_PLUGIN. It never
// throws, never fails a call, writes per collective what NCCL applied and how long the GPU
// took, and tells the tuner half where that is loaded too.
//   DYNAMICCL_PROFILE_FILE    prefix of the JSON lines files; unset: nothing is written
//   DYNAMICCL_PROFILE_EVENTS  "calls": choices alone; "kernels" (the default): GPU times too;
//                             "off": nothing until dynamiccl_profiler_watch()
//   DYNAMICCL_PROFILE_EVERY   GPU times of one call in so many, drawn alike on all ranks; unset:
//                             every call where the tuner half learns from them, else one in four
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>

#include "workers/profiler/call_log.hpp"
#include "workers/profiler/nccl_profiler_abi.hpp"

#define DYN_EXPORT __attribute__((visibility("default")))

namespace dynamiccl::nccl_profiler {
namespace {

std::atomic<int*> g_mask{nullptr};
// Outlives the making of communicators, each of which starts from what the environment asks.
std::atomic<bool> g_watched{false};
// What the environment asks for, read where communicators are made.
std::atomic<std::uint64_t> g_wanted{0};
std::atomic<unsigned> g_every{0};

std::uint64_t wanted_events() {
  const char* text = std::getenv("DYNAMICCL_PROFILE_EVENTS");
  const std::string_view value = text == nullptr ? "kernels" : text;
  if (value == "off") return 0;
  return value == "calls" ? kColl : kColl | kKernelChannel;
}

unsigned wanted_interval() {
  const char* text = std::getenv("DYNAMICCL_PROFILE_EVERY");
  unsigned every = 0;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), every);
  return every;
}

bool times_now() {
  const int* mask = g_mask.load();
  return mask != nullptr && (__atomic_load_n(mask, __ATOMIC_RELAXED) & kKernelChannel) != 0;
}

/// NCCL looks at the mask when a call is made, before it tells of that call: this is for the next.
void choose_next(Session& session, std::uint64_t sequence) {
  int* mask = g_mask.load();
  if (mask == nullptr) return;
  const int now = __atomic_load_n(mask, __ATOMIC_RELAXED);
  if ((now & kColl) == 0 || (g_wanted.load() & kKernelChannel) == 0) return;
  const bool timed = session.times_next(sequence, g_every.load());
  const int kernels = static_cast<int>(kKernelChannel);
  __atomic_store_n(mask, timed ? now | kernels : now & ~kernels, __ATOMIC_RELAXED);
}

template <std::size_t n>
void copy_text(std::array<char, n>& to, const char* from) {
  std::strncpy(to.data(), from == nullptr ? "?" : from, n - 1);
}

/// NCCL is C: nothing may leave a callback but its result.
template <class F>
Result guarded(F&& function) noexcept {
  try {
    function();
  } catch (const std::exception&) {
    // Out of memory: this event goes unrecorded.
  }
  return kSuccess;
}

void init(void** context, std::uint64_t comm_id, int* mask, int nodes, int ranks, int rank) {
  *context = nullptr;
  const std::uint64_t wanted = wanted_events();
  Session* session = take_session();
  session->open(comm_id, rank, ranks, nodes, (wanted & kKernelChannel) != 0);
  *context = session;
  g_wanted.store(wanted);
  g_every.store(wanted_interval());
  const std::uint64_t watched = g_watched.load() ? kColl : 0;
  __atomic_store_n(mask, static_cast<int>(wanted | watched), __ATOMIC_RELAXED);
  // Last: other communicators' threads read the mask through it.
  g_mask.store(mask);
}

Result init_v5(void** context, std::uint64_t comm_id, int* mask, const char* /*name*/, int nodes,
               int ranks, int rank, Logger /*log*/) {
  return guarded([&] { init(context, comm_id, mask, nodes, ranks, rank); });
}
Result init_v4(void** context, int* mask, const char* /*name*/, std::uint64_t comm_id, int nodes,
               int ranks, int rank, Logger /*log*/) {
  return guarded([&] { init(context, comm_id, mask, nodes, ranks, rank); });
}

template <class EventType>
Result start_event(void* context, void** handle, EventType* event) {
  *handle = nullptr;
  if (context == nullptr) return kSuccess;
  return guarded([&] {
    auto* session = static_cast<Session*>(context);
    if (event->type == kColl) {
      const CollV4& coll = event->details.coll;
      Applied applied;
      applied.sequence = coll.sequence;
      applied.count = coll.count;
      copy_text(applied.function, coll.function);
      copy_text(applied.datatype, coll.datatype);
      copy_text(applied.algorithm, coll.algorithm);
      copy_text(applied.protocol, coll.protocol);
      applied.channels = coll.channels;
      applied.warps = coll.warps;
      *handle = static_cast<Event*>(session->start_call(applied, times_now()));
      choose_next(*session, coll.sequence);
    } else if (event->type == kKernelChannel && event->parent != nullptr) {
      auto* parent = static_cast<Event*>(event->parent);
      if (parent->kind == Event::Kind::call)
        *handle = static_cast<Event*>(parent->session->start_channel(static_cast<Call*>(parent),
                                                                     event->details.kernel.timer));
    }
  });
}

Result stop_event(void* handle) {
  if (handle == nullptr) return kSuccess;
  return guarded([&] {
    auto* event = static_cast<Event*>(handle);
    event->session->stop(event);
  });
}

Result record_event_state(void* handle, int state, StateArguments* arguments) {
  if (handle == nullptr || arguments == nullptr || state != kKernelChannelStop) return kSuccess;
  return guarded([&] {
    auto* event = static_cast<Event*>(handle);
    if (event->kind == Event::Kind::channel)
      event->session->stop_channel_timer(static_cast<Channel*>(event), arguments->kernel.timer);
  });
}

Result finalize(void* context) {
  if (context == nullptr) return kSuccess;
  return guarded([&] {
    auto* session = static_cast<Session*>(context);
    session->close();
    give_back(session);
  });
}

}  // namespace
}  // namespace dynamiccl::nccl_profiler

extern "C" {

DYN_EXPORT extern const dynamiccl::nccl_profiler::PluginV5 ncclProfiler_v5;
const dynamiccl::nccl_profiler::PluginV5 ncclProfiler_v5{
    "dynamiccl",
    dynamiccl::nccl_profiler::init_v5,
    dynamiccl::nccl_profiler::start_event<dynamiccl::nccl_profiler::EventV5>,
    dynamiccl::nccl_profiler::stop_event,
    dynamiccl::nccl_profiler::record_event_state,
    dynamiccl::nccl_profiler::finalize};

DYN_EXPORT extern const dynamiccl::nccl_profiler::PluginV4 ncclProfiler_v4;
const dynamiccl::nccl_profiler::PluginV4 ncclProfiler_v4{
    "dynamiccl",
    dynamiccl::nccl_profiler::init_v4,
    dynamiccl::nccl_profiler::start_event<dynamiccl::nccl_profiler::EventV4>,
    dynamiccl::nccl_profiler::stop_event,
    dynamiccl::nccl_profiler::record_event_state,
    dynamiccl::nccl_profiler::finalize};

/// For the program NCCL runs in: what is applied is told (1) or not (0) from the next call on.
DYN_EXPORT void dynamiccl_profiler_watch(int on) {
  dynamiccl::nccl_profiler::g_watched.store(on != 0);
  int* mask = dynamiccl::nccl_profiler::g_mask.load();
  if (mask != nullptr)
    __atomic_store_n(mask, on != 0 ? static_cast<int>(dynamiccl::nccl_profiler::kColl) : 0,
                     __ATOMIC_RELAXED);
}

/// For benchmarks: the events that the environment asks for (1) or none (0) from the next call on,
/// so that one process can time the same calls with and without them.
DYN_EXPORT void dynamiccl_profiler_events(int on) {
  int* mask = dynamiccl::nccl_profiler::g_mask.load();
  if (mask == nullptr) return;
  const std::uint64_t wanted = on != 0 ? dynamiccl::nccl_profiler::wanted_events() : 0;
  __atomic_store_n(mask, static_cast<int>(wanted), __ATOMIC_RELAXED);
}

/// Writes what the last collective was applied, "" when there was none since the last time.
DYN_EXPORT void dynamiccl_profiler_last(char* text, std::size_t bytes) {
  if (bytes == 0) return;
  text[0] = '\0';
  try {
    const std::string applied = dynamiccl::nccl_profiler::take_last_applied();
    std::strncpy(text, applied.c_str(), bytes - 1);
    text[bytes - 1] = '\0';
  } catch (const std::exception&) {
    text[0] = '\0';
  }
}
}
