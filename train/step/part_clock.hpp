#pragma once

#include <cstddef>
#include <vector>

#include "train/step/step_times.hpp"
#include "train/step/tensor_memory.hpp"

namespace dynamiccl {

/// What the computing thread's queue does in a step, one part after the other.
enum class StepPart {
  data,
  forward,  ///< with the loss
  backward,
  wait,    ///< for sums, and for updates of who applies them as they come
  update,  ///< by the computing thread itself
};

/// The parts of a step as a GPU computes them, by events on its queue: the host, which goes on at
/// once, sees none of them. One step after the other: begin(), end_of() behind each part, take().
class PartClock {
 public:
  explicit PartClock(TensorMemory& memory) : memory_(memory) {}

  /// A step begins; the queue is empty. Updates are timed until take().
  void begin();
  /// Everything queued since the last part, or since begin(), is of this part.
  void end_of(StepPart part);
  /// A stamp between those of the parts. @returns its place, for since_us()
  std::size_t stamp();
  /// Microseconds after begin() at which the queue was there. After TensorMemory::complete().
  [[nodiscard]] double since_us(std::size_t place) { return memory_.between_us(0, place); }
  /// The step's parts, after TensorMemory::complete(): time of a wait in which updates ran is
  /// theirs, the rest of it is exposed communication. Updates that ran while the queue computed
  /// are hidden, and counted nowhere. start_us, total_us and loss stay as they are.
  void take(StepTimes& times);

 private:
  struct End {
    StepPart part;
    std::size_t place;
  };

  TensorMemory& memory_;
  std::size_t next_ = 0;
  std::vector<End> ends_;
};

}  // namespace dynamiccl
