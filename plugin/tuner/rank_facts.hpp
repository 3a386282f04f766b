#pragma once

#include <cstdint>
#include <string>

namespace dynamiccl {

/// The same for all communicators of this process, another one for every other process.
std::uint64_t process_key();

/// NCCL's version as it says itself, e.g. 22809; 0: it was not found among what is loaded.
int loaded_nccl_version();

/// "2.28" of 22809 or 2809 (versions before 2.9 have one digit less); "" of 0.
std::string nccl_release(int version);

/// Model of this machine's GPUs as the driver names it; "": none, several, or none to be seen.
std::string gpu_model();

/// Tells in the job's folder where this rank runs, as FOLDER/rank-COMMUNICATOR-RANK.json: the
/// sections of FactsRecord::facts that differ between ranks of one machine (system, namespaces,
/// shm, container, gpu, environment with the NCCL_ variables alone) and NCCL's version. For whoever
/// tunes; a failure is no failure of the job. A few dozen reads of /proc, once per communicator.
/// @param mpi what MPI says of its own version, of ranks that use it
void write_rank_facts(const std::string& folder, std::uint64_t communicator, int rank,
                      const std::string& mpi = "") noexcept;

}  // namespace dynamiccl
