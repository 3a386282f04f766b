#include "workers/backends/mpi_finish.hpp"

#include <mpi.h>
#include <unistd.h>

#include <csignal>

namespace dynamiccl {

// What it finds is left where it is; a failure shows in the call that waits.
void make_mpi_progress() {
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

#ifdef MPICH_VERSION

namespace {
constexpr double kProgressS = 0.01;
constexpr unsigned kFinalizeS = 4;
constexpr unsigned kHoldS = 2;

/// A rank that waits for its peers would be let go by the first of them that ends, enter the
/// launcher's barrier and complete it for ranks that are gone, which Hydra takes for a failure of
/// the job ("error writing PMI line"). So none leaves before all have stopped where they are.
void end_without_finalize(int /*signal*/) {
  sleep(kHoldS);
  _exit(0);
}
}  // namespace

// Seen with 4.0.2 and UCX 1.13 over TCP: 1 of 30 ends on crowded cores of one machine, and between
// two nodes up to every second one: a rank waits in UCX for a peer that is in the launcher's
// barrier already. A barrier before, other transports of UCX and half a second of progress did not
// change that. Every rank goes on for a moment, so that what the barrier itself sent is
// acknowledged too; the alarm ends the rest.
void before_mpi_finalize() {
  for (const double end = MPI_Wtime() + kProgressS; MPI_Wtime() < end;) make_mpi_progress();
  std::signal(SIGALRM, end_without_finalize);
  alarm(kFinalizeS);
}

void after_mpi_finalize() { alarm(0); }

#else

void before_mpi_finalize() {}
void after_mpi_finalize() {}

#endif

}  // namespace dynamiccl
