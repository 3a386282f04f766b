#include "workers/backends/mpi_finish.hpp"

#include <mpi.h>
#include <unistd.h>

#include <csignal>

#include "core/error.hpp"

namespace dynamiccl {
namespace {

void check(int code, const char* what) {
  if (code != MPI_SUCCESS) throw Error(ErrorKind::environment, what);
}

#ifdef MPICH_VERSION

constexpr double kProgressS = 0.01;
constexpr unsigned kFinalizeS = 5;

/// Where MPICH waits for an acknowledgement of a peer that may already sit in the launcher's
/// barrier, which makes no progress (seen with 4.0.2 over TCP: 1 of 30 ends on crowded cores, with
/// and without a barrier before). Every rank goes on for a moment, so that what the barrier itself
/// sent is acknowledged too; that mends most ends, and the alarm the rest.
void help_others_to_end() {
  int found = 0;
  for (const double end = MPI_Wtime() + kProgressS; MPI_Wtime() < end;) {
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE),
          "MPI_Iprobe before the end failed");
  }
  std::signal(SIGALRM, [](int) { _exit(0); });
  alarm(kFinalizeS);
}

void have_ended() { alarm(0); }

#else

void help_others_to_end() {}
void have_ended() {}

#endif

}  // namespace

void finish_mpi() {
  check(MPI_Barrier(MPI_COMM_WORLD), "the last MPI_Barrier failed");
  help_others_to_end();
  check(MPI_Finalize(), "MPI_Finalize failed");
  have_ended();
}

}  // namespace dynamiccl
