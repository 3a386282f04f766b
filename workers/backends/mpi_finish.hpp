#pragma once

namespace dynamiccl {

/// Ends MPI on this rank after every rank's work: a barrier, then MPI_Finalize. Everything a rank
/// has to say is on disk by then. MPICH over UCX may wait in MPI_Finalize for an acknowledgement
/// that a peer, already in the launcher's barrier, never sends; such a rank ends with exit code 0
/// after five seconds, without MPI_Finalize.
/// @throws Error (environment) where MPI refuses the barrier or the end
void finish_mpi();

}  // namespace dynamiccl
