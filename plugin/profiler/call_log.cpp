#include "plugin/profiler/call_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/vocabulary/file_limit.hpp"
#include "core/vocabulary/splitmix64.hpp"
#include "plugin/profiler/channel_times.hpp"
#include "plugin/tuner/rank_facts.hpp"

namespace dynamiccl::nccl_profiler {
namespace {

constexpr std::size_t kCalls = 1024;
constexpr std::size_t kChannels = kCalls * 16;
constexpr std::size_t kFlushBytes = std::size_t{64} << 10;
constexpr unsigned kThreadsPerWarp = 32;

struct Sessions {
  std::mutex mutex;
  std::vector<std::unique_ptr<Session>> all;
  std::vector<Session*> idle;
};
Sessions& sessions() {
  static auto* const kept = new Sessions;
  return *kept;
}

struct Last {
  std::mutex mutex;
  bool any = false;
  Applied applied;
};
Last& last() {
  static auto* const kept = new Last;
  return *kept;
}

/// nullptr where the job has no shared folder, or none that takes it.
std::shared_ptr<CallStream> open_stream(const CallStream::Spec& spec) {
  const char* folder = std::getenv("DYNAMICCL_TUNER_FOLDER");
  if (folder == nullptr || *folder == '\0') return nullptr;
  write_rank_facts(folder, spec.communicator, spec.rank);
  std::string problem;
  return CallStream::make(folder, spec, problem);
}

template <std::size_t n>
std::uint8_t place_of(const std::array<std::string_view, n>& names, const char* name) {
  const auto found = std::find(names.begin(), names.end(), std::string_view(name));
  return found == names.end() ? CallCell::kAny : static_cast<std::uint8_t>(found - names.begin());
}

}  // namespace

void Session::open(std::uint64_t comm_id, int rank, int ranks, int nodes) {
  const std::lock_guard lock(mutex_);
  comm_id_ = comm_id;
  rank_ = rank;
  ranks_ = ranks;
  calls_.resize(kCalls);
  channels_.resize(kChannels);
  link_ = std::make_shared<CommunicatorLink>();
  stream_ = open_stream({comm_id, rank, ranks, nodes, process_key()});
  link_->set_stream(stream_);
  offer_link({comm_id, link_});
  std::array<char, 96> begin{};
  std::snprintf(begin.data(), begin.size(),
                "{\"comm\":\"%016" PRIx64 "\",\"rank\":%d,\"ranks\":%d,\"seq\":", comm_id, rank,
                ranks);
  line_begin_ = begin.data();
  buffer_.reserve(kFlushBytes + 1024);
  const char* prefix = std::getenv("DYNAMICCL_PROFILE_FILE");
  if (prefix == nullptr || *prefix == '\0') return;
  std::array<char, 64> ending{};
  std::snprintf(ending.data(), ending.size(), ".%016" PRIx64 ".rank%d.jsonl", comm_id, rank);
  file_ = ::open((std::string(prefix) + ending.data()).c_str(),
                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

void Session::close() {
  const std::lock_guard lock(mutex_);
  for (Call& call : calls_)
    if (call.open) close_call(call);
  for (Channel& channel : channels_) channel.open = false;
  member_.reset();
  link_.reset();
  if (stream_ != nullptr) stream_->close();
  stream_.reset();
  flush();
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

Call* Session::start_call(const Applied& applied, bool timed) {
  {
    Last& newest = last();
    const std::lock_guard lock(newest.mutex);
    newest.any = true;
    newest.applied = applied;
  }
  const std::lock_guard lock(mutex_);
  if (calls_.empty()) return nullptr;
  Call& call = calls_[next_call_++ % kCalls];
  // Its channels' events were lost, or it is a thousand calls late.
  if (call.open) close_call(call);
  if (member_ == nullptr && link_ != nullptr) member_ = link_->member();
  const std::uint64_t generation = call.generation + 1;
  call = Call{{Event::Kind::call, this},
              applied,
              generation,
              timed,
              true,
              false,
              0,
              0,
              0,
              member_ == nullptr ? 0 : member_->epoch(),
              stream_ == nullptr ? 0 : monotonic_ns()};
  return &call;
}

bool Session::times_next(std::uint64_t sequence, unsigned every) {
  const std::lock_guard lock(mutex_);
  // Mixed: a step of training has its calls in the same order each time, and a plain count would
  // time the same ones of them.
  return splitmix64_mixed((comm_id_ + sequence + 1) * kSplitmix64Step) % every == 0;
}

Channel* Session::start_channel(Call* call, std::uint64_t timer_ns, unsigned number) {
  const std::lock_guard lock(mutex_);
  if (!call->open) return nullptr;
  Channel& channel = channels_[next_channel_++ % kChannels];
  channel = Channel{{Event::Kind::channel, this}, call, call->generation, timer_ns, true, number};
  return &channel;
}

void Session::stop_channel_timer(Channel* channel, std::uint64_t timer_ns) {
  const std::lock_guard lock(mutex_);
  if (!channel->open) return;
  channel->open = false;
  if (timer_ns > channel->start_ns)
    ChannelTimes::instance().add_kernel(channel->number, timer_ns - channel->start_ns);
  Call& call = *channel->call;
  if (!call.open || call.generation != channel->generation) return;
  call.first_start_ns = call.channels_done == 0 ? channel->start_ns
                                                : std::min(call.first_start_ns, channel->start_ns);
  call.last_stop_ns = std::max(call.last_stop_ns, timer_ns);
  ++call.channels_done;
  if (call.enqueued && call.channels_done >= call.applied.channels) close_call(call);
}

void Session::stop(Event* event) {
  // A channel ends with its timer; its stop adds nothing.
  if (event->kind != Event::Kind::call) return;
  const std::lock_guard lock(mutex_);
  auto& call = *static_cast<Call*>(event);
  if (!call.open) return;
  call.enqueued = true;
  if (!call.timed || call.channels_done >= call.applied.channels) close_call(call);
}

void Session::close_call(Call& call) {
  call.open = false;
  if (file_ >= 0) write_line(call);
  if (member_ != nullptr) tell_tuner(call);
  if (stream_ != nullptr) tell_stream(call);
}

void Session::tell_tuner(const Call& call) {
  const bool whole = call.channels_done > 0 && call.channels_done >= call.applied.channels;
  if (!whole || call.last_stop_ns <= call.first_start_ns) return;
  member_->record(function_of(call.applied), CallTable::bin(bytes_of(call.applied, ranks_)),
                  call.epoch, call.last_stop_ns - call.first_start_ns);
}

void Session::tell_stream(const Call& call) {
  // As NCCL spells them for profilers; the order is that of the numbers.
  static constexpr std::array<std::string_view, 7> algorithms{
      "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
  static constexpr std::array<std::string_view, 3> protocols{"LL", "LL128", "SIMPLE"};
  const bool whole = call.channels_done > 0 && call.channels_done >= call.applied.channels &&
                     call.last_stop_ns > call.first_start_ns;
  const std::uint64_t took = whole ? call.last_stop_ns - call.first_start_ns : 0;
  CallRecord record;
  record.host_ns = call.host_ns;
  record.bytes = bytes_of(call.applied, ranks_);
  record.device_ns = static_cast<std::uint32_t>(std::min<std::uint64_t>(took, 0xffffffffU));
  record.epoch = call.epoch;
  record.function = static_cast<std::uint8_t>(function_of(call.applied));
  record.algorithm = place_of(algorithms, call.applied.algorithm.data());
  record.protocol = place_of(protocols, call.applied.protocol.data());
  record.channels = static_cast<std::uint8_t>(std::min(call.applied.channels, 255U));
  stream_->append(record);
}

void Session::write_line(const Call& call) {
  const Applied& a = call.applied;
  const bool whole = call.channels_done > 0 && call.channels_done >= a.channels;
  const std::uint64_t device_ns =
      call.last_stop_ns > call.first_start_ns ? call.last_stop_ns - call.first_start_ns : 0;
  // Inside every collective of the job: appending costs a fifth of snprintf.
  const auto text = [this](std::string_view part) { buffer_.append(part); };
  const auto number = [this](std::uint64_t value) {
    std::array<char, 20> digits;  // of the largest value
    buffer_.append(digits.data(),
                   std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
  };
  text(line_begin_);
  number(a.sequence);
  text(",\"func\":\"");
  text(a.function.data());
  text("\",\"count\":");
  number(a.count);
  text(",\"datatype\":\"");
  text(a.datatype.data());
  text("\",\"algo\":\"");
  text(a.algorithm.data());
  text("\",\"proto\":\"");
  text(a.protocol.data());
  text("\",\"channels\":");
  number(a.channels);
  text(",\"threads\":");
  number(std::uint64_t{a.warps} * kThreadsPerWarp);
  text(",\"channels_seen\":");
  number(call.channels_done);
  text(",\"device_ns\":");
  if (whole)
    number(device_ns);
  else
    text("null");
  text("}\n");
  if (buffer_.size() >= kFlushBytes) flush();
}

void Session::flush() {
  std::size_t done = 0;
  const FileLimitSignal held;
  while (file_ >= 0 && done < buffer_.size()) {
    const ssize_t n = ::write(file_, buffer_.data() + done, buffer_.size() - done);
    // A full disk costs the profile, never the job.
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  buffer_.clear();
}

std::size_t function_of(const Applied& applied) {
  static constexpr std::array<std::string_view, kCallFunctions> names{
      "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};
  const std::string_view name = applied.function.data();
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

std::uint64_t bytes_of(const Applied& applied, int ranks) {
  const std::string_view type = applied.datatype.data();
  const auto has = [&](const char* part) { return type.find(part) != std::string_view::npos; };
  std::uint64_t bytes = applied.count;
  if (has("64"))
    bytes *= 8;
  else if (has("32"))
    bytes *= 4;
  else if (has("16"))
    bytes *= 2;
  const std::size_t function = function_of(applied);
  // Counts are of one rank's part there.
  if (function == 2 || function == 3) bytes *= static_cast<std::uint64_t>(ranks);
  return bytes;
}

Session* take_session() {
  Sessions& kept = sessions();
  const std::lock_guard lock(kept.mutex);
  if (!kept.idle.empty()) {
    Session* session = kept.idle.back();
    kept.idle.pop_back();
    return session;
  }
  kept.all.push_back(std::make_unique<Session>());
  return kept.all.back().get();
}

void give_back(Session* session) {
  Sessions& kept = sessions();
  const std::lock_guard lock(kept.mutex);
  kept.idle.push_back(session);
}

std::string take_last_applied() {
  Last& newest = last();
  const std::lock_guard lock(newest.mutex);
  if (!newest.any) return "";
  newest.any = false;
  const Applied& a = newest.applied;
  return std::string(a.algorithm.data()) + "/" + a.protocol.data() + ", " +
         std::to_string(a.channels) + " channels, " + std::to_string(a.warps * kThreadsPerWarp) +
         " threads";
}

}  // namespace dynamiccl::nccl_profiler
