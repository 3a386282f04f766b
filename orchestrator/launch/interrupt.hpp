#pragma once

namespace dynamiccl {

/// While one lives, SIGINT, SIGTERM and SIGHUP are noted instead of ending the program, so that
/// launches, containers and the database are closed first. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

/// Number of the noted signal, 0 = none.
int interrupt_signal();

/// interrupt_signal() != 0, for those who wait and may not know this folder (Progress).
bool interrupted();

/// Readable as soon as a signal is noted; one byte per signal. -1 without a guard.
int interrupt_descriptor();

}  // namespace dynamiccl
