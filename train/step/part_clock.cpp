#include "train/step/part_clock.hpp"

#include <algorithm>

namespace dynamiccl {
namespace {

/// Microseconds of `within` in which one of these ran: those of one queue, so none overlap.
double covered_us(const TimeSpan& within, const std::vector<TimeSpan>& ran) {
  double covered = 0;
  for (const TimeSpan& each : ran)
    covered +=
        std::max(0.0, std::min(within.to_us, each.to_us) - std::max(within.from_us, each.from_us));
  return covered;
}

}  // namespace

void PartClock::begin() {
  ends_.clear();
  next_ = 0;
  memory_.time_updates(true);
  stamp();
}

std::size_t PartClock::stamp() {
  memory_.stamp(next_);
  return next_++;
}

void PartClock::end_of(StepPart part) { ends_.push_back({part, stamp()}); }

void PartClock::take(StepTimes& times) {
  const std::vector<TimeSpan> updates = memory_.updates_since(0);
  memory_.time_updates(false);
  times.data_us = times.forward_us = times.backward_us = 0;
  times.update_us = times.exposed_us = 0;
  TimeSpan now;
  for (const End& end : ends_) {
    now = {now.to_us, since_us(end.place)};
    const double us = now.to_us - now.from_us;
    switch (end.part) {
      case StepPart::data:
        times.data_us += us;
        break;
      case StepPart::forward:
        times.forward_us += us;
        break;
      case StepPart::backward:
        times.backward_us += us;
        break;
      case StepPart::update:
        times.update_us += us;
        break;
      case StepPart::wait: {
        const double updating_us = covered_us(now, updates);
        times.update_us += updating_us;
        times.exposed_us += us - updating_us;
        break;
      }
    }
  }
}

}  // namespace dynamiccl
