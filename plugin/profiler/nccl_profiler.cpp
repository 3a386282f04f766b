// libdynamiccl-nccl-plugin.so, profiler half: loaded into NCCL by NCCL_PROFILER_PLUGIN, or next to
// the library's network. It never throws, never fails a call, writes per collective what NCCL
// applied and how long the GPU took, and tells the tuner half where that is loaded too.
//   DYNAMICCL_PROFILE_FILE    prefix of the JSON lines files; unset: nothing is written
//   DYNAMICCL_PROFILE_EVENTS  "calls": choices alone; "kernels" (the default where a file or a
//                             tuner's folder is named): GPU times too; "off" (the default else):
//                             nothing until dynamiccl_profiler_watch()
//   DYNAMICCL_PROFILE_EVERY   GPU times of one call in so many, drawn alike on all ranks; unset: of
//                             every call. More than 1 is for jobs without CUDA graphs in which no
//                             rank sends to itself: see choose_next()
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>

#include "plugin/profiler/call_log.hpp"
#include "plugin/profiler/channel_times.hpp"
#include "plugin/profiler/nccl_profiler_abi.hpp"

#define DYN_EXPORT __attribute__((visibility("default")))

namespace dynamiccl::nccl_profiler {
namespace {

std::atomic<int*> g_mask{nullptr};
// Outlives the making of communicators, each of which starts from what the environment asks.
std::atomic<bool> g_watched{false};
// What the environment asks for, read where communicators are made.
std::atomic<std::uint64_t> g_wanted{0};
std::atomic<unsigned> g_every{0};
/// What dynamiccl_profiler_channels() asks for besides it.
std::atomic<std::uint64_t> g_channels{0};

std::uint64_t now_ns() { return static_cast<std::uint64_t>(monotonic_ns()); }

bool is_named(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0';
}

/// NCCL takes this half from a library that is named as network alone, too. There nobody reads what
/// it says, and each timed call costs the GPU and NCCL's threads some microseconds.
std::uint64_t wanted_events() {
  constexpr const char* kEvents = "DYNAMICCL_PROFILE_EVENTS";
  const char* text = is_named(kEvents) ? std::getenv(kEvents) : nullptr;
  const bool read = is_named("DYNAMICCL_PROFILE_FILE") || is_named("DYNAMICCL_TUNER_FOLDER");
  const std::string_view value = text != nullptr ? text : read ? "kernels" : "off";
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
/// NCCL 2.28 numbers a channel's pieces of work on the host and on the GPU, but those that a rank
/// sends to itself, and those of a graph that is launched again, on the GPU alone. From then on it
/// waits for a number that an earlier piece had, and finds it only if that one was timed, or one
/// that came a multiple of 64 later. Where few are timed, NCCL's helper thread may wait on until
/// the communicator's end, which then never comes; where all are, there is always one.
void choose_next(Session& session, std::uint64_t sequence) {
  const unsigned every = g_every.load();
  int* mask = g_mask.load();
  if (mask == nullptr || every <= 1) return;
  const int now = __atomic_load_n(mask, __ATOMIC_RELAXED);
  // Who sums up channels wants every call.
  if ((now & kColl) == 0 || g_channels.load() != 0 || (g_wanted.load() & kKernelChannel) == 0)
    return;
  const bool timed = session.times_next(sequence, every);
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
  session->open(comm_id, rank, ranks, nodes);
  *context = session;
  g_wanted.store(wanted);
  g_every.store(wanted_interval());
  const std::uint64_t watched = g_watched.load() ? kColl : 0;
  __atomic_store_n(mask, static_cast<int>(wanted | watched | g_channels.load()), __ATOMIC_RELAXED);
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
        *handle = static_cast<Event*>(
            parent->session->start_channel(static_cast<Call*>(parent), event->details.kernel.timer,
                                           event->details.kernel.channel));
    } else if (event->type == kProxyOp) {
      // Its parent may be a handle of another process: nobody looks at it.
      *handle = static_cast<Event*>(
          ChannelTimes::instance().start_op(event->details.proxy.channel, now_ns()));
    } else if (event->type == kProxyStep && event->parent != nullptr) {
      auto* parent = static_cast<Event*>(event->parent);
      if (parent->kind == Event::Kind::proxy_op)
        *handle = static_cast<Event*>(
            ChannelTimes::instance().start_step(static_cast<ProxyOp*>(parent), now_ns()));
    }
  });
}

Result stop_event(void* handle) {
  if (handle == nullptr) return kSuccess;
  return guarded([&] {
    auto* event = static_cast<Event*>(handle);
    if (event->session == nullptr) return ChannelTimes::instance().stop(event, now_ns());
    event->session->stop(event);
  });
}

Result record_event_state(void* handle, int state, StateArguments* arguments) {
  if (handle == nullptr) return kSuccess;
  return guarded([&] {
    auto* event = static_cast<Event*>(handle);
    if (event->kind == Event::Kind::proxy_step)
      return ChannelTimes::instance().enter(static_cast<ProxyStep*>(event), state, now_ns());
    if (arguments == nullptr || state != kKernelChannelStop) return;
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

/// For the program NCCL runs in: what is applied is reported (1) or not (0) from the next call on.
DYN_EXPORT void dynamiccl_profiler_watch(int on) {
  dynamiccl::nccl_profiler::g_watched.store(on != 0);
  int* mask = dynamiccl::nccl_profiler::g_mask.load();
  if (mask != nullptr)
    __atomic_store_n(mask,
                     static_cast<int>((on != 0 ? dynamiccl::nccl_profiler::kColl : 0) |
                                      dynamiccl::nccl_profiler::g_channels.load()),
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

/// For the program NCCL runs in: what channels do is summed up from the next call on. 0: no more;
/// 1: their kernels' times; 2: those of the host's helper threads and of the network too.
DYN_EXPORT void dynamiccl_profiler_channels(int detail) {
  using namespace dynamiccl::nccl_profiler;
  const std::uint64_t kernels = detail > 0 ? kColl | kKernelChannel : 0;
  g_channels.store(kernels | (detail > 1 ? kProxyOp | kProxyStep : 0));
  int* mask = g_mask.load();
  if (mask == nullptr) return;
  const std::uint64_t watched = g_watched.load() ? kColl : 0;
  __atomic_store_n(mask, static_cast<int>(g_wanted.load() | watched | g_channels.load()),
                   __ATOMIC_RELAXED);
}

/// What they did since the last call of this: kernel, proxy and network nanoseconds of each
/// channel.
/// @param ns room for three numbers of each of so many channels
DYN_EXPORT void dynamiccl_profiler_take_channels(std::uint64_t* ns, std::size_t channels) {
  using namespace dynamiccl::nccl_profiler;
  const auto all = ChannelTimes::instance().take(now_ns());
  for (std::size_t c = 0; c < channels; ++c) {
    const ChannelBusy busy = c < all.size() ? all[c] : ChannelBusy{};
    ns[3 * c] = busy.kernel;
    ns[3 * c + 1] = busy.proxy;
    ns[3 * c + 2] = busy.network;
  }
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
