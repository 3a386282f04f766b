#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "train/plan/exchange_plan.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// Messages of a plan whose sizes have the same whole log2: one choice holds for all of them.
struct SettingKey {
  Bytes size;              ///< of the largest of them
  std::size_t pieces = 0;  ///< in each step
};

/// A step as the settings had it.
struct SettingStep {
  std::vector<std::uint32_t> arms;  ///< in force, by key
  std::vector<double> call_us;      ///< of this rank's calls of the key, together
  std::vector<bool> refused;        ///< the library would not run the key's arm: its default did
};

/// Which setting of the library the all-reduces of each step run under, the same on every rank. The
/// first rank decides by propose(); at the next step's beginning it tells the others, whose calls
/// wait for the word, so that all take a choice from the same step on. While nothing is to be
/// decided it speaks in every so many steps alone.
class CallSettings {
 public:
  /// Reads of a plan; sums alone. All ranks make the same.
  CallSettings(Communicator& comm, const ExchangePlan& plan);

  [[nodiscard]] const std::vector<SettingKey>& keys() const { return keys_; }
  /// What a key's choices are, the library's default first; the same on all ranks.
  void set_arms(std::size_t key, std::vector<CallShape> arms);
  [[nodiscard]] const std::vector<CallShape>& arms(std::size_t key) const { return arms_[key]; }

  /// First rank, any thread: from the next agreement on.
  /// @param next_word steps until the ranks are spoken to again, from 1
  void propose(std::vector<std::uint32_t> arms, std::uint32_t next_word);
  /// Every piece under another arm than its neighbour and than in the step before: for checks of
  /// sums under many settings. Ranks: all alike, between two steps.
  void rotate(bool on) { rotates_ = on; }

  /// Communicating thread, before the first call of a step. Ranks: all.
  void begin_step();
  /// One piece summed in place under its key's setting. Ranks: all, in one order.
  void all_reduce(std::size_t piece, float* data, std::size_t count);
  /// For who calls by itself, as work for a GPU is queued: the calls that follow run under the
  /// piece's setting. Ranks: all, in one order.
  void choose_for(std::size_t piece);
  /// After a step of such calls: of each piece what they took.
  void end_step(const std::vector<double>& call_us);
  /// Any thread: the steps whose sums are all there, since the last call.
  std::vector<SettingStep> take_steps();
  /// The library's default is in force again. Between two steps, by who owns the communicator.
  /// Ranks: all.
  void release();

 private:
  void agree();
  [[nodiscard]] std::uint32_t arm_of(std::size_t piece) const;
  void take_into_force(const CallShape& shape);
  /// @returns false when the library cannot, which all ranks see alike before anything is sent
  bool sum_under(const CallShape& shape, float* data, std::size_t count);

  Communicator& comm_;
  std::vector<std::size_t> key_of_;  ///< by piece
  std::vector<SettingKey> keys_;
  std::vector<std::vector<CallShape>> arms_;
  std::vector<std::uint32_t> word_;  ///< steps to the next word, then an arm for each key
  std::uint32_t silent_ = 0;         ///< steps until then
  bool rotates_ = false;
  std::uint64_t step_ = 0;
  std::size_t summed_ = 0;  ///< pieces of this step
  std::string in_force_;    ///< text of the shape that was chosen last; "" = the default
  std::mutex mutex_;        ///< of the rest
  std::vector<std::uint32_t> proposed_;
  std::vector<SettingStep> done_;
  SettingStep now_;
};

}  // namespace dynamiccl
