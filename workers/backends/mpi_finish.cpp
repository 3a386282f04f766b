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
constexpr unsigned kFinalizeS = 5;
}  // namespace

// Seen with 4.0.2 over TCP: 1 of 30 ends on crowded cores, with and without a barrier before. Every
// rank goes on for a moment, so that what the barrier itself sent is acknowledged too; that mends
// most ends, and the alarm the rest.
void before_mpi_finalize() {
  for (const double end = MPI_Wtime() + kProgressS; MPI_Wtime() < end;) make_mpi_progress();
  std::signal(SIGALRM, [](int) { _exit(0); });
  alarm(kFinalizeS);
}

void after_mpi_finalize() { alarm(0); }

#else

void before_mpi_finalize() {}
void after_mpi_finalize() {}

#endif

}  // namespace dynamiccl
