#include "workers/measure/clock_sync.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "core/vocabulary/digest.hpp"
#include "profiles/detect/probes/probe_root.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

constexpr int kFewestRounds = 8;  // the first ones may open connections
constexpr int kMostRounds = 64;
constexpr double kMostTimeUs = 20e3;

/// Rank 0 to the rank under comparison: another round, or what came out.
struct Ping {
  double another = 0;
  double at_us = 0;
  double offset_us = 0;
  double error_us = 0;
  double rounds = 0;
};

template <class T>
void send(Messages& comm, const T& value, int to) {
  comm.wait(comm.isend(&value, sizeof value, to, kClockTag));
}

template <class T>
T receive(Messages& comm, int from) {
  T value{};
  comm.wait(comm.irecv(&value, sizeof value, from, kClockTag));
  return value;
}

using Identity = std::array<char, 16>;

/// Equal on two processes whose CLOCK_MONOTONIC is one: one boot of one kernel, one time namespace.
/// All zero when that cannot be known.
Identity clock_identity() {
  Identity identity{};
  const ProbeRoot root;
  const auto boot = root.line("/proc/sys/kernel/random/boot_id");
  if (!boot) return identity;
  // Kernels without time namespaces have no such file, and one clock for all.
  const auto space = root.link("/proc/self/ns/time");
  const std::string id = stable_id(*boot + (space ? *space : "no time namespaces"));
  id.copy(identity.data(), identity.size());
  return identity;
}

}  // namespace

ClockSync::ClockSync(Messages& comm, ClockFunction clock)
    : comm_(comm), clock_(std::move(clock)), before_(compare()) {
  same_kernel_clock_ = same_clock_as_root();
}

bool ClockSync::same_clock_as_root() const {
  const Identity mine = clock_identity();
  if (comm_.rank() == 0) {
    for (int rank = 1; rank < comm_.size(); ++rank) send(comm_, mine, rank);
    return true;
  }
  return receive<Identity>(comm_, 0) == mine && mine != Identity{};
}

ClockSync::Reading ClockSync::ask(int rank) const {
  Reading best;
  best.error_us = std::numeric_limits<double>::max();
  const double start_us = now_us();
  while (best.rounds < kFewestRounds ||
         (best.rounds < kMostRounds && now_us() - start_us < kMostTimeUs)) {
    const double sent_us = clock_();
    send(comm_, Ping{1}, rank);
    const auto theirs_us = receive<double>(comm_, rank);
    const double back_us = clock_();
    ++best.rounds;
    if ((back_us - sent_us) / 2 >= best.error_us) continue;
    best.error_us = (back_us - sent_us) / 2;
    best.at_us = theirs_us;
    best.offset_us = theirs_us - (sent_us + back_us) / 2;
  }
  send(comm_, Ping{0, best.at_us, best.offset_us, best.error_us, static_cast<double>(best.rounds)},
       rank);
  return best;
}

ClockSync::Reading ClockSync::answer() const {
  while (true) {
    const auto ping = receive<Ping>(comm_, 0);
    if (ping.another == 0)
      return {ping.at_us, ping.offset_us, ping.error_us, static_cast<int>(ping.rounds)};
    send(comm_, clock_(), 0);
  }
}

ClockSync::Reading ClockSync::compare() {
  if (comm_.rank() != 0) return answer();
  for (int rank = 1; rank < comm_.size(); ++rank) ask(rank);
  return {clock_(), 0, 0, 0};
}

ClockRecord ClockSync::conclude() {
  const Reading after = compare();
  ClockRecord record;
  record.rank = comm_.rank();
  record.at_us = before_.at_us;
  record.offset_us = before_.offset_us;
  record.error_us = before_.error_us;
  record.end_at_us = after.at_us;
  record.end_offset_us = after.offset_us;
  record.end_error_us = after.error_us;
  record.rounds = before_.rounds;
  // An offset beyond its error belies the kernel's word: cores whose counters are apart.
  record.shared = same_kernel_clock_ && std::fabs(before_.offset_us) <= before_.error_us &&
                  std::fabs(after.offset_us) <= after.error_us;
  return record;
}

}  // namespace dynamiccl
