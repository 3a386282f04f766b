#include "orchestrator/launch/simulated_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>

#include "containers/command.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/wire/record.hpp"
#include "orchestrator/experiment/experiment.hpp"
#include "profiles/machine_model_file.hpp"

namespace dynamiccl {
namespace {

/// More elements of 4 bytes than an int of MPI's counts.
constexpr std::uint64_t kMostSimulatedBytes = std::uint64_t{1} << 33;
constexpr double kCellLimitUs = 70e6;  ///< SMPI's own, and what its start takes

std::string output_of(std::size_t cell) { return fmt::format("cell{}.out", cell); }

const SmpiRules* rules_of(Backend backend) {
  const bool mca = backend_facts(backend).mca;
  const auto found = std::find_if(kSmpiRules.begin(), kSmpiRules.end(),
                                  [&](const SmpiRules& one) { return one.mca == mca; });
  return is_host_mpi(backend) ? &*found : nullptr;
}

/// SMPI's word for what a cell asks for; "" where it has none.
std::string_view algorithm_of(Backend backend, const WorkCell& cell) {
  if (cell.algorithm == "library") return rules_of(backend)->name;
  for (const SmpiAlgorithm& own : smpi_algorithms(cell.collective))
    if (own.name == cell.algorithm) return own.name;
  return smpi_algorithm(cell.algorithm, cell.collective);
}

std::string why_not_simulated(const MachineModel& machine, const PlannedGroup& group,
                              const WorkCell& cell) {
  if (rules_of(group.backend) == nullptr)
    return fmt::format("{} is not simulated: SMPI has {} and {}", name_of(group.backend),
                       kSmpiRules[0].of, kSmpiRules[1].of);
  if (cell.collective == Collective::training)
    return "training is not simulated: SMPI simulates calls of MPI alone";
  if (auto reason = why_no_smpi(machine, cell.collective); !reason.empty()) return reason;
  for (const auto* knobs : {&group.knobs, &cell.knobs})
    for (const auto& [name, value] : *knobs)
      if (name != kStep && name != kStepCalls)
        return fmt::format("{} changes nothing in a simulation: leave it out", name);
  if (group.ranks < 2 || group.ranks > machine.ranks())
    return fmt::format("{} is simulated with 2 to {} ranks, the cell has {}", machine.name,
                       machine.ranks(), group.ranks);
  if (cell.datatype != DataType::float32 || cell.in_place)
    return "simulated calls are of float32 out of place: nothing is summed";
  if (cell.size.count() == 0 || cell.size.count() >= kMostSimulatedBytes)
    return fmt::format("{} is not simulated: 4 bytes to less than 8 GiB are",
                       format_bytes(cell.size));
  if (algorithm_of(group.backend, cell).empty())
    return fmt::format("SMPI has no counterpart of the algorithm \"{}\" of {}", cell.algorithm,
                       name_of(cell.collective));
  return "";
}

double now_unix_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

CellRecord simulated_record(const RunConfig& config, std::size_t cell, const SmpiSamples& samples,
                            int rank) {
  CellRecord record;
  record.cell_id = config.cells[cell].id;
  record.rank = rank;
  record.position = static_cast<int>(cell);
  record.barrier = "simulated clock";
  record.algorithm = algorithm_of(config.backend, config.cells[cell]);
  record.reason = samples.reason;
  if (!samples.reason.empty()) {
    record.status = CellStatus::failed;
    return record;
  }
  int call = 0;
  for (const SmpiSample& sample : samples.of_ranks[static_cast<std::size_t>(rank)]) {
    SampleArrays& arrays = call++ < config.protocol.warmup ? record.warmup : record.measured;
    arrays.start_us.push_back(sample.start_us);
    arrays.total_us.push_back(sample.us);
  }
  return record;
}

}  // namespace

void can_simulate(const EnvironmentProfile& profile, Capabilities& can) {
  for (const char* program : {"smpirun", "smpicc"})
    if (find_program(program).empty())
      can.environment_reasons[profile.name] = fmt::format(
          "{} is not in PATH: install libsimgrid-dev, which simulates this machine", program);
  const auto machine = std::make_shared<const MachineModel>(
      parse_machine_model(profile.machine_toml, profile.machine));
  can.simulated[profile.name] = [machine](const PlannedGroup& group, const WorkCell& cell) {
    return why_not_simulated(*machine, group, cell);
  };
}

void only_simulated_samples(RunConfig& config) {
  config.protocol.warmup = 1;
  config.protocol.iterations = config.protocol.min_iterations = 1;
  config.protocol.batch_target = Micros(0);
  config.protocol.verify = false;
}

std::vector<SmpiAlgorithm> simulated_settings(Backend backend, Collective collective) {
  auto settings = smpi_algorithms(collective);
  std::erase_if(settings, [&](const auto& one) { return one.name == rules_of(backend)->name; });
  return settings;
}

std::vector<Command> simulated_commands(const RunConfig& config,
                                        const EnvironmentProfile& profile) {
  std::vector<SmpiCall> calls;
  for (const WorkCell& cell : config.cells)
    calls.push_back({cell.collective, static_cast<double>(cell.size.count()),
                     std::string(algorithm_of(config.backend, cell)),
                     config.protocol.warmup + config.protocol.iterations, output_of(calls.size())});
  const MachineModel machine = parse_machine_model(profile.machine_toml, profile.machine);
  return {{.argv = {"sh", "-c", smpi_script(machine, config.ranks, calls, config.output_dir)},
           .environment = {}}};
}

Micros simulated_timeout(std::size_t cells) {
  return Micros(kCellLimitUs * static_cast<double>(cells + 1));
}

void write_simulated_records(const RunConfig& config) {
  std::vector<SmpiSamples> cells;
  for (std::size_t i = 0; i < config.cells.size(); ++i)
    cells.push_back(
        read_smpi_samples(fmt::format("{}/{}", config.output_dir, output_of(i)), config.ranks));
  const double now = now_unix_s();
  for (int rank = 0; rank < config.ranks; ++rank) {
    HelloRecord hello;
    hello.rank = rank;
    hello.world_size = config.ranks;
    hello.launch_id = config.launch_id;
    hello.library = fmt::format("SimGrid's SMPI, {}", rules_of(config.backend)->of);
    hello.library_version = cells.empty() ? "" : cells.front().version;
    hello.started_unix_s = hello.ready_unix_s = now;
    std::ofstream file(fmt::format("{}/{}", config.output_dir, record_file_name(rank)));
    file << to_json_line(hello) << "\n";
    for (std::size_t i = 0; i < cells.size(); ++i)
      file << to_json_line(simulated_record(config, i, cells[i], rank)) << "\n";
    file << to_json_line(DoneRecord{rank, now, 0}) << "\n";
  }
}

}  // namespace dynamiccl
