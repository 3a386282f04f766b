#include "workers/measure/cell_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "core/vocabulary/splitmix64.hpp"
#include "workers/clock.hpp"
#include "workers/collectives/two_level.hpp"
#include "workers/measure/barrier_check.hpp"
#include "workers/measure/fault.hpp"
#include "workers/measure/memory_watch.hpp"

namespace dynamiccl {

/// One cell, resolved on this rank.
struct CellRunner::Work {
  WorkCell cell;
  Layout layout;
  CallShape shape;
  const OperationRow* operation = nullptr;
  Pipelining pipelining;
  DataSource source{0, DataType::float32, 1};
  MemoryMode memory = MemoryMode::host;
  bool graph = false;
  WorkSettings settings;
  Protocol protocol;       ///< the launch's, with what the cell says instead
  BufferPair library;      ///< what the library gets
  BufferPair data;         ///< where the data is made and verified
  std::size_t slots = 1;   ///< parts of the buffers that calls take turns over
  std::size_t stride = 0;  ///< bytes from one to the next
};

namespace {

void reserve(SampleArrays& samples, int count) {
  const auto n = static_cast<std::size_t>(std::max(count, 0));
  for (auto* values : {&samples.start_us, &samples.total_us, &samples.collective_us,
                       &samples.h2d_us, &samples.d2h_us, &samples.send_us, &samples.compute_us,
                       &samples.device_us, &samples.waited_us}) {
    values->reserve(n);
  }
}

bool server_computes(Collective collective) {
  return collective == Collective::push || collective == Collective::push_pull;
}

/// Knobs that are ours to obey and no business of the library.
std::map<std::string, std::string> library_knobs(const WorkCell& cell) {
  auto knobs = cell.knobs;
  std::erase_if(knobs, [](const auto& knob) { return is_workers_own(knob.first); });
  return knobs;
}

#if defined(__x86_64__) || defined(__aarch64__)
constexpr bool kEmptiesCaches = true;
#else
constexpr bool kEmptiesCaches = false;
#endif

/// From 0 to below 1, even.
double drawn_share(std::uint64_t key, std::uint64_t rank, std::uint64_t call) {
  const std::uint64_t bits = splitmix64_of(splitmix64_of(key + rank) + call);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

/// Takes a buffer's lines out of all caches.
void empty_caches(const std::byte* data, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  for (std::size_t i = 0; i < bytes; i += kLine) {
#if defined(__x86_64__)
    __builtin_ia32_clflush(data + i);
#elif defined(__aarch64__)
    asm volatile("dc civac, %0" ::"r"(data + i) : "memory");
#endif
  }
}

/// In place, the one lies inside the other.
BufferPair placed(BufferPair buffers, const Layout& layout, bool in_place, std::size_t width) {
  if (layout.one_buffer) return {buffers.out, buffers.out};
  if (!in_place) return buffers;
  const std::size_t shift = layout.in_place_offset * width;
  if (layout.out_inside_in) return {buffers.out, buffers.out + shift};
  return {buffers.out + shift, buffers.out};
}

}  // namespace

Place CellRunner::place() const {
  return {config_.architecture, comm_.size(), comm_.rank(), config_.server_rank, nodes_};
}

CellRunner::CellRunner(Communicator& comm, const RunConfig& config, double epoch_us)
    : comm_(comm),
      config_(config),
      epoch_us_(epoch_us),
      memory_(comm, config),
      nodes_(nodes_of_ranks(comm)) {
  for (const auto& cell : config.cells) {
    Work work;
    if (!resolve(cell, work).empty()) continue;
    const std::size_t width = element_bytes(cell.datatype);
    memory_.require(
        work.memory, work.layout.in_elements * width, work.layout.out_elements * width,
        work.operation->scratch_bytes(work.layout, place(), cell.datatype, work.pipelining));
  }
  memory_.allocate();
}

std::string CellRunner::resolve(const WorkCell& cell, Work& work) const {
  try {
    return reason_unsupported(cell, work);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    return error.what();
  }
}

std::string CellRunner::reason_unsupported(const WorkCell& cell, Work& work) const {
  work.cell = cell;
  work.layout = layout_of(cell, place());
  if (!work.layout.unsupported.empty()) return work.layout.unsupported;
  if (auto reason = memory_.unsupported(cell); !reason.empty()) return reason;
  work.memory = memory_.mode_of(cell);
  const bool on_gpu = comm_.works_on_gpu();
  work.settings = work_settings_of(cell.knobs);
  work.protocol = work.settings.of(config_.protocol);
  if (work.settings.cold_cache && !kEmptiesCaches)
    return "cold_cache: this processor lets no program empty its caches";
  if (auto misfit = work_settings_misfit(cell, config_.architecture, comm_.size(), on_gpu);
      !misfit.empty())
    return misfit;
  auto offered = comm_.algorithms(cell.collective);
  work.operation = find_operation(work.cell, on_gpu);
  if (offered.empty() && work.operation != nullptr && work.operation->own_algorithm.empty()) {
    // Where the library has no such collective, ours stands in; the record names what ran.
    if (cell.algorithm == "library") work.cell.algorithm = "own_ring";
    work.operation = find_operation(work.cell, on_gpu);
    if (work.operation == nullptr)
      return fmt::format("the library has no {}", name_of(cell.collective));
  }
  const bool library_runs = work.operation != nullptr && work.operation->own_algorithm.empty();
  if (work.operation != nullptr && !library_runs && work.layout.used_bytes == 0)
    return fmt::format("size = 0: a call of nothing is a library's, and {} runs by our {} here",
                       name_of(cell.collective), work.operation->own_algorithm);
  if (!library_runs && work.settings.op != ReduceOp::sum)
    return fmt::format("the library has no {} here, and our own sums", name_of(cell.collective));
  if (work.operation == nullptr || (library_runs && std::find(offered.begin(), offered.end(),
                                                              cell.algorithm) == offered.end())) {
    for (const auto name : own_algorithms(cell.collective, on_gpu)) offered.emplace_back(name);
    return fmt::format("no algorithm \"{}\" for {} here; {}", cell.algorithm,
                       name_of(cell.collective), suggestion(cell.algorithm, offered));
  }
  if (cell.in_place && !library_runs && cell.collective != Collective::allreduce)
    return fmt::format("{} is not run in place by our own algorithm", name_of(cell.collective));
  work.pipelining = pipelining_of(cell);
  work.shape = {cell.collective, cell.datatype,       work.layout.count, cell.in_place,
                cell.algorithm,  library_knobs(cell), work.settings.op};
  const auto graph = cell.knobs.find("graph");
  work.graph = graph != cell.knobs.end() && graph->second != "0";
  if (work.graph && !on_gpu) return "CUDA graphs hold calls that are queued on a GPU only";
  if (library_runs || on_gpu) return comm_.unsupported(work.shape).value_or("");
  return {};
}

void CellRunner::place_buffers(Work& work) const {
  const std::size_t width = element_bytes(work.cell.datatype);
  const auto own = [&](BufferPair buffers) {
    return placed(buffers, work.layout, work.cell.in_place, width);
  };
  work.library = own(memory_.library_buffers(work.memory));
  work.data = own(memory_.data_buffers(work.memory));
  if (!config_.protocol.rotate_buffers || is_staged(work.memory) || work.cell.in_place) return;
  constexpr std::size_t kAlignment = 256;
  const std::size_t bytes = std::max(work.layout.in_elements, work.layout.out_elements) * width;
  work.stride = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  work.slots = memory_.slots(work.memory, work.stride);
}

void CellRunner::prepare(const Work& work) {
  const std::size_t bytes = work.layout.out_elements * element_bytes(work.cell.datatype);
  if (bytes > 0) {
    memory_.poison(work.memory, work.data.out, bytes);
    // A result left in the staging buffer must not pass for a new one.
    if (is_staged(work.memory)) poison(work.library.out, bytes);
  }
  if (work.layout.in_elements > 0)
    memory_.fill(work.memory, work.source, work.data.in, work.layout.in_elements);
}

void CellRunner::check(Work& work, CellRecord& record) {
  if (facts_of(work.cell.collective).size == SizeRule::nothing)
    return judge(check_barrier(comm_), record);
  if (kFlipsByte && comm_.rank() == work.layout.last_receiver && work.layout.out_elements > 0) {
    memory_.flip(work.memory,
                 work.data.out + work.layout.out_elements * element_bytes(work.cell.datatype) / 2);
  }
  const DataVerdict verdict =
      memory_.verify(work.memory, work.source, work.data.out, work.layout.expected);
  judge(verdict, record);
}

void CellRunner::judge(const DataVerdict& verdict, CellRecord& record) const {
  record.checked += verdict.checked;
  record.wrong += verdict.wrong;
  if (verdict.wrong == 0 || record.status == CellStatus::failed) return;
  record.status = CellStatus::failed;
  record.reason = fmt::format("wrong data on rank {}: {} ({} of {} elements wrong)", comm_.rank(),
                              verdict.first_wrong, verdict.wrong, verdict.checked);
}

void CellRunner::staged_call(const Work& work, const Call& call, PhaseTimes& times,
                             double& collective_us) {
  const Layout& layout = work.layout;
  const std::size_t width = element_bytes(work.cell.datatype);
  const double start_us = now_us();
  if (layout.in_elements > 0)
    memory_.copy_down(work.library.in, work.data.in, layout.in_elements * width);
  const double down_us = now_us();
  work.operation->run(call, times);
  const double done_us = now_us();
  // A broadcast's root has the data on its GPU already.
  const bool arrives =
      layout.out_elements > 0 && !(layout.one_buffer && comm_.rank() == layout.root);
  if (arrives) memory_.copy_up(work.data.out, work.library.out, layout.out_elements * width);
  times.d2h_us += down_us - start_us;
  times.h2d_us += now_us() - done_us;
  collective_us += done_us - down_us;
}

void CellRunner::make_calls(const Work& work, int count, PhaseTimes& times, double& collective_us) {
  Call call{comm_,           work.layout,      work.cell.datatype,
            work.library.in, work.library.out, memory_.scratch(work.memory),
            work.pipelining, nodes_,           aggregation_ ? &*aggregation_ : nullptr};
  if (is_staged(work.memory)) {
    for (int i = 0; i < count; ++i) staged_call(work, call, times, collective_us);
    return;
  }
  // Nothing but the call itself is worth its time here: 30 ns are a thirtieth of the shortest.
  const auto run = work.operation->run;
  if (work.slots == 1) {
    for (int i = 0; i < count; ++i) run(call, times);
    return;
  }
  // The last call works on the checked data, at the first slot.
  std::size_t slot = static_cast<std::size_t>(count - 1) % work.slots;
  for (int i = 0; i < count; ++i) {
    call.in = work.library.in + slot * work.stride;
    call.out = work.library.out + slot * work.stride;
    run(call, times);
    slot = slot == 0 ? work.slots - 1 : slot - 1;
  }
}

void CellRunner::capture(const Work& work, int batch) {
  if (captured_batch_ == batch) return;
  PhaseTimes ignored;
  double none = 0;
  GpuTimer* queue = comm_.queue();
  queue->begin_capture();
  make_calls(work, batch, ignored, none);
  queue->end_capture();
  captured_batch_ = batch;
}

/// By a share of its own in each sample, which a launch's seed decides.
void CellRunner::come_late(const Work& work) const {
  const double until_us =
      now_us() + work.settings.late.count() * drawn_share(work.source.key(),
                                                          static_cast<std::uint64_t>(comm_.rank()),
                                                          calls_);
  while (now_us() < until_us) std::this_thread::yield();
}

double CellRunner::sample(const Work& work, int batch, SampleArrays& samples) {
  GpuTimer* queue = comm_.queue();
  DYN_ASSERT(!work.graph || queue != nullptr, "graphs belong to a queue");
  if (work.graph) capture(work, batch);
  PhaseTimes times;
  double collective_us = 0;
  comm_.take_phases();
  // Read where nothing is timed: ranks that have met begin at once.
  if (work.settings.cold_cache) {
    const std::size_t width = element_bytes(work.cell.datatype);
    empty_caches(work.library.in, work.layout.in_elements * width);
    empty_caches(work.library.out, work.layout.out_elements * width);
  }
  const double waited_before_us = wait_.read_us();
  comm_.synchronise();
  if (work.settings.late.count() > 0) come_late(work);
  const double start_us = now_us();
  if (queue != nullptr) queue->mark_start();
  if (work.graph) {
    queue->replay();
  } else {
    make_calls(work, batch, times, collective_us);
  }
  if (queue != nullptr) queue->mark_stop();
  comm_.complete();
  const double total_us = (now_us() - start_us) / batch;
  wait_.add_since(waited_before_us, batch, samples.waited_us);
  samples.start_us.push_back(start_us - epoch_us_);
  samples.total_us.push_back(total_us);
  if (queue != nullptr) samples.device_us.push_back(queue->marked_us() / batch);
  const auto phases = comm_.take_phases();
  if (phases) times += *phases;
  if (phases || is_staged(work.memory)) {
    samples.d2h_us.push_back(times.d2h_us / batch);
    samples.h2d_us.push_back(times.h2d_us / batch);
  }
  const double compute_us = times.compute_us / batch;
  if (phases) {
    samples.send_us.push_back(times.send_us / batch);
    samples.collective_us.push_back(total_us -
                                    (times.d2h_us + times.h2d_us + times.send_us) / batch);
  } else if (work.operation->kind == TimeKind::collective) {
    samples.collective_us.push_back(is_staged(work.memory) ? collective_us / batch : total_us);
  } else {
    const double moving_us = is_staged(work.memory) ? collective_us / batch : total_us;
    samples.send_us.push_back(moving_us - compute_us);
    if (server_computes(work.cell.collective)) samples.compute_us.push_back(compute_us);
  }
  calls_ += static_cast<std::uint64_t>(batch);
  return total_us;
}

int CellRunner::warm_up(const Work& work, SampleArrays& samples) {
  const Protocol& protocol = work.protocol;
  const bool batches = !work.layout.rooted || protocol.batch_rooted;
  const double target_us = batches ? protocol.batch_target.count() : 0.0;
  const double start_us = now_us();
  // Launches that are compared count the same calls as one sample.
  const bool settled = work.cell.batch > 0;
  int batch = work.settings.is_batched() ? std::max(work.cell.batch, 1) : 1;
  reserve(samples, protocol.warmup);
  for (int i = 0; i < protocol.warmup; ++i) {
    const double call_us = sample(work, batch, samples);
    const auto agreed = max_over_ranks(comm_, {call_us, now_us() - start_us});
    // The first call of a cell sets up connections and says nothing of later ones.
    if (!settled && i > 0 && agreed[0] * batch < target_us) {
      const double calls = std::ceil(target_us / std::max(agreed[0], 1e-3));
      batch = static_cast<int>(std::min<double>(calls, protocol.max_batch));
    }
    if (agreed[1] > protocol.cell_time_cap.count() / 2) break;
  }
  return batch;
}

void CellRunner::measure(Work& work, int batch, CellRecord& record) {
  const Protocol& protocol = work.protocol;
  const double cap_us = protocol.cell_time_cap.count();
  const int most = std::max(protocol.iterations, 1);
  const int least = std::clamp(protocol.min_iterations, 1, most);
  reserve(record.measured, most);
  const std::uint64_t calls_before = calls_;
  const std::uint64_t faults_before = minor_faults();
  const double start_us = now_us();
  int done = 0;
  int next = least - 1;
  // The last sample stands apart: it alone starts from a prepared buffer.
  while (true) {
    for (int i = 0; i < next; ++i) sample(work, batch, record.measured);
    done += next;
    if (done >= most - 1) break;
    const double elapsed_us = max_over_ranks(comm_, {now_us() - start_us})[0];
    if (elapsed_us >= cap_us) break;
    // Half of what seems to fit, as later samples may be slower than the first ones.
    const double fitting = done == 0 ? 1.0 : (cap_us - elapsed_us) / (elapsed_us / done) / 2;
    next = static_cast<int>(std::clamp<double>(fitting, 1, most - 1 - done));
  }
  if (config_.protocol.verify && !work.cell.in_place) prepare(work);
  sample(work, batch, record.measured);
  faults_ = minor_faults() - faults_before;
  timed_calls_ = calls_ - calls_before;
  if (!config_.protocol.verify) return;
  if (work.cell.in_place) {
    SampleArrays untimed;
    prepare(work);
    sample(work, 1, untimed);
  }
  check(work, record);
}

void CellRunner::start(Work& work, CellRecord& record) {
  const bool library_runs = work.operation->own_algorithm.empty();
  // Our own operations on GPUs are made of the library's collectives, which have settings too.
  const std::string chosen = library_runs || comm_.works_on_gpu() ? comm_.choose(work.shape) : "";
  record.algorithm = library_runs ? chosen : std::string(work.operation->own_algorithm);
  if (work.cell.algorithm == "aggregator" && !aggregation_)
    aggregation_.emplace(aggregator_place(work.cell.knobs), comm_.rank(), comm_.size());
  work.source = DataSource(data_key(config_.seed, work.cell.id), work.cell.datatype, comm_.size(),
                           work.settings.op);
  captured_batch_ = 0;
  place_buffers(work);
  prepare(work);
  SampleArrays untimed;
  sample(work, 1, untimed);
  if (config_.protocol.verify) check(work, record);
  record.algorithm = comm_.applied().value_or(record.algorithm);
}

nlohmann::json CellRunner::aggregated() const {
  if (!aggregation_) return {};
  return to_json(aggregation_->counts());
}

CellRecord CellRunner::run(const WorkCell& cell, int position) {
  CellRecord record;
  record.cell_id = cell.id;
  record.rank = comm_.rank();
  record.position = position;
  record.barrier = comm_.barrier_name();
  payload_bytes_ = used_bytes_ = calls_ = faults_ = timed_calls_ = 0;
  Work work;
  std::string unsupported = resolve(cell, work);
  if (unsupported.empty()) {
    try {
      start(work, record);
    } catch (const Error& error) {
      // A knob or an algorithm that the library refuses is this cell's end, not the launch's: all
      // ranks meet it alike.
      if (error.kind() != ErrorKind::input) throw;
      unsupported = error.what();
    }
  }
  if (!unsupported.empty()) {
    record.status = CellStatus::unsupported;
    record.reason = unsupported;
    record.algorithm.clear();
    return record;
  }
  // A cell's first call may have begun threads of the library's.
  wait_.find_threads();
  record.batch = warm_up(work, record.warmup);
  record.cadence = record.batch > 1 ? Cadence::batched : Cadence::isolated;
  measure(work, record.batch, record);
  // What went through an aggregator says nothing of the way that the library's messages take.
  const bool aggregated = work.cell.knobs.contains("aggregator");
  payload_bytes_ = aggregated ? 0 : calls_ * work.layout.payload_bytes;
  used_bytes_ = work.layout.used_bytes;
  return record;
}

}  // namespace dynamiccl
