#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/spec/training.hpp"

namespace dynamiccl {

/// When a training cell calls the library.
enum class Firing {
  every_step,   ///< all workers together
  every_round,  ///< all workers together, after steps of their own
  push_pull     ///< each worker when it is done, and the server's answer
};

template <>
struct NameTable<Firing> {
  static constexpr std::string_view what = "firing";
  static constexpr std::array entries{Named{Firing::every_step, "every step"},
                                      Named{Firing::every_round, "every round"},
                                      Named{Firing::push_pull, "push and pull"}};
};

/// What a library sees of a training cell: how much a worker gives to it at once, all messages
/// together, and how often.
struct Payload {
  std::uint64_t nominal_bytes = 0;  ///< all gradients, or weights, as plain values
  /// The same encoded, by formula as if all were one gradient once a warm-up of the density is
  /// over; nullopt: it depends on values or on the shapes of matrices.
  std::optional<std::uint64_t> effective_bytes;
  Firing firing = Firing::every_step;
  /// Such exchanges in a step of a worker: less than 1 with steps of their own, as many as rounds
  /// have in the beginning.
  double exchanges = 1;

  /// Effective over nominal bytes; 1 where it is not known.
  [[nodiscard]] double share() const {
    return effective_bytes && nominal_bytes > 0
               ? static_cast<double>(*effective_bytes) / static_cast<double>(nominal_bytes)
               : 1;
  }
};
Payload payload_of(const TrainingSpec& spec);

/// C2C of what is given to the library: c2c_predicted() where nothing is encoded. Gathered frames
/// grow with the workers, and a server's answers are plain.
/// nullopt where the payload is not known before.
std::optional<double> c2c_effective(const TrainingSpec& spec, int workers);

}  // namespace dynamiccl
