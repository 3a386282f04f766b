#pragma once

namespace dynamiccl {

/// Around MPI_Finalize, on every rank, once everything that a rank has to say is on disk. MPICH
/// over UCX may wait in MPI_Finalize for an acknowledgement that a peer, already in the launcher's
/// barrier, never sends; all ranks then end with exit code 0 after six seconds, without it.
/// Nothing is done with other libraries.
void before_mpi_finalize();
void after_mpi_finalize();

/// Lets started sends and receives move on: MPI moves them inside its calls.
void make_mpi_progress();

}  // namespace dynamiccl
