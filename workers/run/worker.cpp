#include "workers/run/worker.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/wire/decisions_file.hpp"
#include "profiles/detect/facts.hpp"
#include "profiles/detect/gpu_telemetry.hpp"
#include "profiles/detect/noise.hpp"
#include "workers/clock.hpp"
#include "workers/device/device.hpp"
#include "workers/measure/cell_runner.hpp"
#include "workers/measure/clock_sync.hpp"
#include "workers/measure/memory_watch.hpp"
#include "workers/measure/neighbour.hpp"
#include "workers/measure/peak_memory.hpp"
#include "workers/run/record_writer.hpp"
#include "workers/standing.hpp"
#include "workers/transport.hpp"

namespace dynamiccl {
namespace {

HelloRecord hello_of(const Communicator& comm, const RunConfig& config, double started_unix_s) {
  HelloRecord hello;
  hello.rank = comm.rank();
  hello.world_size = comm.size();
  hello.launch_id = config.launch_id;
  hello.library = comm.library();
  hello.library_version = comm.library_version();
  hello.pid = getpid();
  hello.started_unix_s = started_unix_s;
  hello.ready_unix_s = unix_now_s();
  hello.clock_ns = now_us() * 1e3;
  return hello;
}

/// Before the cells, so that a launch that dies in them still tells where it ran.
FactsRecord facts_of(Communicator& comm, const RunConfig& config) {
  ProbeOptions options;
  options.nvml = backend_facts(config.backend).on_gpu;
  FactsRecord record{comm.rank(), probe_facts(options)};
  // Ranks that share one take turns on it.
  if (const Device* own = comm.device()) record.facts["gpu"]["own_pci"] = own->pci();
  return record;
}

CellRecord no_training(const WorkCell& cell, int rank, int position) {
  CellRecord record;
  record.cell_id = cell.id;
  record.rank = rank;
  record.position = position;
  record.status = CellStatus::unsupported;
  record.reason = "this worker was built without training: libtorch was not found";
  return record;
}

/// CPU time of this process so far, user and kernel, seconds.
double own_cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

nlohmann::json noise_since(const nlohmann::json& before, double cpu_before_s) {
  nlohmann::json noise = noise_between(before, probe_noise());
  // Tells the machine's own load from that of others.
  noise["own_cpu_s"] = own_cpu_s() - cpu_before_s;
  return noise;
}

/// What a rank has chosen lies in its folder, which nobody else sees where records go over a
/// connection.
void bring_decisions(const RunConfig& config, const RecordWriter& writer) {
  if (writer.link() == nullptr) return;
  const auto decisions = read_file(config.output_dir + "/" + kDecisionsFile);
  if (decisions) writer.link()->send_file(kDecisionsFile, *decisions);
}

/// Collective.
nlohmann::json end_of(Neighbour& neighbour, Communicator& comm, double since_us) {
  const double beside_s = (now_us() - since_us) / 1e6;
  return {{"kind", neighbour.kind()}, {"cpu_s", neighbour.end(comm)}, {"beside_s", beside_s}};
}

void measure_cells(Communicator& comm, const RunConfig& config, double epoch_us,
                   MakeTraining make_training, RecordWriter& writer) {
  Neighbour neighbour(comm, wanted_neighbour());
  const double beside_since_us = now_us();
  ClockSync clocks(comm);
  const nlohmann::json noise_before = probe_noise();
  const double cpu_before_s = own_cpu_s();
  TransportWatch watch;
  TransportProof proof(comm);
  nlohmann::json gpu = nlohmann::json::object();
  nlohmann::json memory;
  nlohmann::json aggregated;
  {
    MemoryWatch pages;
    CellRunner runner(comm, config, epoch_us);
    const GpuTelemetry telemetry(runner.gpu_pci());
    nlohmann::json before = telemetry.read();
    double before_us = now_us();
    const auto training =
        make_training == nullptr ? nullptr : make_training(comm, config, epoch_us);
    int position = 0;
    for (const auto& cell : config.cells) {
      watch.lap();
      if (cell.collective == Collective::training) {
        const CellRecord record = training == nullptr ? no_training(cell, comm.rank(), position)
                                                      : training->run(cell, position);
        ++position;
        const auto moved = training == nullptr ? 0 : training->last_payload_bytes();
        proof.add_cell(cell.id, watch.lap(), moved, cell.size.count());
        writer.write(record);
        continue;
      }
      const CellRecord record = runner.run(cell, position++);
      proof.add_cell(cell.id, watch.lap(), runner.last_payload_bytes(), runner.last_used_bytes());
      if (record.status == CellStatus::ok)
        pages.add_cell(cell.id, runner.last_faults(), runner.last_timed_calls());
      writer.write(record);
      if (runner.gpu_pci().empty()) continue;
      nlohmann::json after = telemetry.read();
      const double after_us = now_us();
      gpu[cell.id] = gpu_between(before, after, (after_us - before_us) / 1e6);
      before = std::move(after);
      before_us = after_us;
    }
    memory = pages.conclude();
    aggregated = runner.aggregated();
  }
  TransportRecord transport = proof.conclude(watch);
  if (!neighbour.kind().empty())
    transport.details["neighbour"] = end_of(neighbour, comm, beside_since_us);
  transport.details["memory"] = std::move(memory);
  if (!aggregated.is_null()) transport.details["aggregator"] = std::move(aggregated);
  if (!gpu.empty()) transport.details["gpu"] = std::move(gpu);
  if (auto level = comm.thread_level(); !level.empty())
    transport.details["thread_level"] = std::move(level);
  transport.details["noise"] = noise_since(noise_before, cpu_before_s);
  writer.write(transport);
  writer.write(clocks.conclude());
}

}  // namespace

void run_worker(Communicator& comm, const RunConfig& config, double started_unix_s,
                MakeTraining make_training) {
  const bool joined = comm.size() == config.ranks;
  // Ranks that were not joined all call themselves rank 0 and share one file.
  RecordWriter writer(config.output_dir, comm.rank(),
                      joined ? RecordWriter::Existing::refuse : RecordWriter::Existing::append);
  try {
    const HelloRecord hello = hello_of(comm, config, started_unix_s);
    writer.write(hello);
    if (!joined) {
      throw Error(ErrorKind::environment,
                  fmt::format("world size is {} but run.json says {} ranks: the launcher did not "
                              "join the ranks into one job; start the worker with the launcher of "
                              "the library it is linked with ({})",
                              comm.size(), config.ranks, hello.library));
    }
    open_standing(config.output_dir, comm.rank());
    writer.write(facts_of(comm, config));
    measure_cells(comm, config, hello.clock_ns / 1e3, make_training, writer);
    bring_decisions(config, writer);
    writer.write(DoneRecord{comm.rank(), unix_now_s(), whole_peak_memory_bytes()});
  } catch (const std::exception& error) {
    writer.write(ErrorRecord{comm.rank(), error.what()});
    throw;
  }
}

}  // namespace dynamiccl
