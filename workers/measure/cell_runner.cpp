#include "workers/measure/cell_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "workers/measure/clock.hpp"
#include "workers/measure/fault.hpp"

namespace dynamiccl {

/// One cell, resolved on this rank.
struct CellRunner::Work {
  WorkCell cell;
  Layout layout;
  CallShape shape;
  const OperationRow* operation = nullptr;
  std::size_t segment_bytes = 0;
  DataSource source{0, DataType::float32, 1};
  std::byte* in = nullptr;
  std::byte* out = nullptr;
};

namespace {

void reserve(SampleArrays& samples, int count) {
  const auto n = static_cast<std::size_t>(std::max(count, 0));
  for (auto* values : {&samples.start_us, &samples.total_us, &samples.collective_us,
                       &samples.send_us, &samples.compute_us}) {
    values->reserve(n);
  }
}

bool server_computes(Collective collective) {
  return collective == Collective::push || collective == Collective::push_pull;
}

}  // namespace

Place CellRunner::place() const {
  return {config_.architecture, comm_.size(), comm_.rank(), config_.server_rank};
}

CellRunner::CellRunner(Communicator& comm, const RunConfig& config, double epoch_us)
    : comm_(comm), config_(config), epoch_us_(epoch_us) {
  std::size_t in = 0;
  std::size_t out = 0;
  std::size_t scratch = 0;
  for (const auto& cell : config.cells) {
    Work work;
    if (!resolve(cell, work).empty()) continue;
    const std::size_t width = element_bytes(cell.datatype);
    in = std::max(in, work.layout.in_elements * width);
    out = std::max(out, work.layout.out_elements * width);
    scratch = std::max(scratch, work.operation->scratch_bytes(work.layout, place(), cell.datatype,
                                                              work.segment_bytes));
  }
  // In place, input and output share the larger one.
  buffers_ = {Buffer(in), Buffer(std::max(in, out)), Buffer(scratch)};
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
  auto offered = comm_.algorithms(cell.collective);
  work.operation = find_operation(work.cell);
  if (offered.empty() && work.operation != nullptr && work.operation->own_algorithm.empty()) {
    // Where the library has no such collective, ours stands in; the record names what ran.
    if (cell.algorithm == "library") work.cell.algorithm = "own_ring";
    work.operation = find_operation(work.cell);
    if (work.operation == nullptr)
      return fmt::format("the library has no {}", name_of(cell.collective));
  }
  const bool library_runs = work.operation != nullptr && work.operation->own_algorithm.empty();
  if (work.operation == nullptr || (library_runs && std::find(offered.begin(), offered.end(),
                                                              cell.algorithm) == offered.end())) {
    for (const auto name : own_algorithms(cell.collective)) offered.emplace_back(name);
    return fmt::format("no algorithm \"{}\" for {} here; {}", cell.algorithm,
                       name_of(cell.collective), suggestion(cell.algorithm, offered));
  }
  if (cell.in_place && !library_runs && cell.collective != Collective::allreduce)
    return fmt::format("{} is not run in place by our own algorithm", name_of(cell.collective));
  work.segment_bytes = segment_bytes_of(cell);
  work.shape = {cell.collective, cell.datatype,  work.layout.count,
                cell.in_place,   cell.algorithm, cell.knobs};
  if (library_runs) return comm_.unsupported(work.shape).value_or("");
  return {};
}

void CellRunner::prepare(const Work& work) {
  const std::size_t width = element_bytes(work.cell.datatype);
  if (work.layout.out_elements > 0) poison(work.out, work.layout.out_elements * width);
  if (work.layout.in_elements > 0)
    work.source.fill(work.in, comm_.rank(), 0, work.layout.in_elements);
}

void CellRunner::check(Work& work, CellRecord& record) {
  if (kFlipsByte && comm_.rank() == work.layout.last_receiver && work.layout.out_elements > 0) {
    work.out[work.layout.out_elements * element_bytes(work.cell.datatype) / 2] ^= std::byte{1};
  }
  const Verdict verdict = verify(work.source, work.out, work.layout.expected);
  record.checked += verdict.checked;
  record.wrong += verdict.wrong;
  if (verdict.wrong == 0 || record.status == CellStatus::failed) return;
  record.status = CellStatus::failed;
  record.reason = fmt::format("wrong data on rank {}: {} ({} of {} elements wrong)", comm_.rank(),
                              verdict.first_wrong, verdict.wrong, verdict.checked);
}

double CellRunner::sample(const Work& work, int batch, SampleArrays& samples) {
  const Call call{comm_,
                  work.layout,
                  work.cell.datatype,
                  work.in,
                  work.out,
                  buffers_.scratch.data(),
                  work.segment_bytes};
  PhaseTimes times;
  barrier(comm_);
  const double start_us = now_us();
  for (int i = 0; i < batch; ++i) work.operation->run(call, times);
  const double total_us = (now_us() - start_us) / batch;
  samples.start_us.push_back(start_us - epoch_us_);
  samples.total_us.push_back(total_us);
  if (work.operation->kind == TimeKind::collective) {
    samples.collective_us.push_back(total_us);
  } else {
    const double compute_us = times.compute_us / batch;
    samples.send_us.push_back(total_us - compute_us);
    if (server_computes(work.cell.collective)) samples.compute_us.push_back(compute_us);
  }
  calls_ += static_cast<std::uint64_t>(batch);
  return total_us;
}

int CellRunner::warm_up(const Work& work, SampleArrays& samples) {
  const Protocol& protocol = config_.protocol;
  const double target_us = work.layout.rooted ? 0.0 : protocol.batch_target.count();
  const double start_us = now_us();
  int batch = 1;
  reserve(samples, protocol.warmup);
  for (int i = 0; i < protocol.warmup; ++i) {
    const double call_us = sample(work, batch, samples);
    const auto agreed = max_over_ranks(comm_, {call_us, now_us() - start_us});
    // The first call of a cell sets up connections and says nothing of later ones.
    if (i > 0 && agreed[0] * batch < target_us) {
      const double calls = std::ceil(target_us / std::max(agreed[0], 1e-3));
      batch = static_cast<int>(std::min<double>(calls, protocol.max_batch));
    }
    if (agreed[1] > protocol.cell_time_cap.count() / 2) break;
  }
  return std::max(batch, 1);
}

void CellRunner::measure(Work& work, int batch, CellRecord& record) {
  const Protocol& protocol = config_.protocol;
  const double cap_us = protocol.cell_time_cap.count();
  const int most = std::max(protocol.iterations, 1);
  const int least = std::clamp(protocol.min_iterations, 1, most);
  reserve(record.measured, most);
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
  if (!config_.protocol.verify) return;
  if (work.cell.in_place) {
    SampleArrays untimed;
    prepare(work);
    sample(work, 1, untimed);
  }
  check(work, record);
}

void CellRunner::start(Work& work, CellRecord& record) {
  record.algorithm = work.operation->own_algorithm.empty()
                         ? comm_.choose(work.shape)
                         : std::string(work.operation->own_algorithm);
  work.source = DataSource(data_key(config_.seed, work.cell.id), work.cell.datatype, comm_.size());
  const std::size_t shift = work.layout.in_place_offset * element_bytes(work.cell.datatype);
  work.out = buffers_.out.data();
  work.in = work.layout.one_buffer ? work.out : buffers_.in.data();
  if (work.cell.in_place && !work.layout.one_buffer) {
    work.in = work.layout.out_inside_in ? work.out : work.out + shift;
    if (work.layout.out_inside_in) work.out += shift;
  }
  prepare(work);
  SampleArrays untimed;
  sample(work, 1, untimed);
  if (config_.protocol.verify) check(work, record);
}

CellRecord CellRunner::run(const WorkCell& cell, int position) {
  CellRecord record;
  record.cell_id = cell.id;
  record.rank = comm_.rank();
  record.position = position;
  record.barrier = kBarrierName;
  payload_bytes_ = used_bytes_ = calls_ = 0;
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
  record.batch = warm_up(work, record.warmup);
  record.cadence = record.batch > 1 ? Cadence::batched : Cadence::isolated;
  measure(work, record.batch, record);
  payload_bytes_ = calls_ * work.layout.payload_bytes;
  used_bytes_ = work.layout.used_bytes;
  return record;
}

}  // namespace dynamiccl
