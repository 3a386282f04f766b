#include "workers/measure/barrier_check.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "workers/clock.hpp"
#include "workers/measure/fault.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

constexpr double kLateUs = 1000;

/// @returns how long the call took since this rank said that it comes, microseconds
double called(Communicator& comm, int late) {
  char word = 0;
  double start_us = now_us();
  if (comm.rank() == late) {
    for (int peer = 0; peer < comm.size(); ++peer)
      if (peer != late) comm.wait(comm.irecv(&word, sizeof word, peer, kComingTag));
    start_us = now_us();
    while (now_us() < start_us + kLateUs)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  } else {
    comm.wait(comm.isend(&word, sizeof word, late, kComingTag));
  }
  comm.library_barrier();
  return now_us() - start_us;
}

}  // namespace

DataVerdict check_barrier(Communicator& comm) {
  DataVerdict verdict;
  for (int late = 0; late < comm.size(); ++late) {
    double took_us = called(comm, late);
    // Of a build that plants faults one rank leaves too early, once.
    if (kFlipsByte && comm.rank() == comm.size() - 1 && late == 0) took_us = 0;
    ++verdict.checked;
    if (took_us >= kLateUs) continue;
    ++verdict.wrong;
    if (verdict.first_wrong.empty())
      verdict.first_wrong = fmt::format(
          "left the barrier {:.0f} us after entering, but must be at least {:.0f} us in it: rank "
          "{} had not come",
          took_us, kLateUs, late);
  }
  return verdict;
}

}  // namespace dynamiccl
