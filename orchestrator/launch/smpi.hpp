#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/machine_model.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// A collective that SimGrid's SMPI simulates on a machine's file, by its replay of a trace, or by
/// an MPI program of one call: its algorithms are real MPI code, whose messages share simulated
/// links. Sums and computation take no time, and SMPI's own factors on latency and bandwidth, which
/// were fitted on one old machine, give way to the machine's classes of sizes.

/// SMPI's name for the algorithm that a model of this name describes; "" where it has none.
std::string_view smpi_algorithm(std::string_view model, Collective collective);

/// One of SMPI's algorithms, or a library's rules, and the model that describes it; "" = none does.
struct SmpiAlgorithm {
  std::string_view name;
  std::string_view model;
};
/// Those that a search may choose between.
std::vector<SmpiAlgorithm> smpi_algorithms(Collective collective);

/// A real library's choice of algorithms, as SMPI has it.
struct SmpiRules {
  std::string_view name;
  std::string_view of;
  bool mca;              ///< as backend_facts() says it of the library
  bool replayed = true;  ///< false: crashes in replays of traces, so that an MPI program calls it
};
inline constexpr std::array kSmpiRules{SmpiRules{"ompi", "Open MPI 4.1.2's rules", true},
                                       SmpiRules{"mpich", "MPICH 3.3b's rules", false, false}};

/// "" where SMPI can simulate this here, else why not and what would help.
std::string why_no_smpi(const MachineModel& machine, Collective collective);

/// The machine as SimGrid reads it.
std::string smpi_platform(const MachineModel& machine);

/// What SMPI says of one call, or why it says nothing.
struct SmpiTime {
  std::optional<double> us;
  std::string reason;
};
/// @param algorithm of SMPI, or rules
SmpiTime simulate_collective(const MachineModel& machine, Collective collective, int ranks,
                             double bytes, std::string_view algorithm);

/// Calls of one kind, one after another.
struct SmpiCall {
  Collective collective = Collective::allreduce;
  double bytes = 0;
  std::string algorithm;  ///< of SMPI, or rules
  int calls = 1;
  std::string output;  ///< file in the folder
};
/// Writes what SMPI needs for them into the folder. @returns the shell's script that makes them,
/// each kind in a simulation of its own; it needs smpicc and smpirun
std::string smpi_script(const MachineModel& machine, int ranks, const std::vector<SmpiCall>& calls,
                        const std::string& folder);

struct SmpiSample {
  double start_us = 0;  ///< of the simulation's clock
  double us = 0;
};
/// What such a script left of one kind.
struct SmpiSamples {
  std::vector<std::vector<SmpiSample>> of_ranks;
  std::string version;  ///< of SimGrid
  std::string reason;   ///< why they are not all there; "" = they are
};
SmpiSamples read_smpi_samples(const std::string& path, int ranks);

}  // namespace dynamiccl
