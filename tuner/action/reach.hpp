#pragma once

#include "tuner/action/action_space.hpp"

namespace dynamiccl {

/// How a setting comes into a job: by what a job loads without being changed, or not at all.
enum class Reach {
  nothing,      ///< the library's default: there is nothing to load
  per_call,     ///< NCCL's tuner plugin answers each call
  per_size,     ///< Open MPI's rules file: by collective, ranks and message size
  per_process,  ///< variables and parameters, for all messages of a process
  own           ///< no job can: an argument of the calls of our own worker and trainer
};
template <>
struct NameTable<Reach> {
  static constexpr std::string_view what = "reach";
  static constexpr std::array entries{
      Named{Reach::nothing, "nothing"}, Named{Reach::per_call, "call"},
      Named{Reach::per_size, "size"}, Named{Reach::per_process, "process"},
      Named{Reach::own, "own"}};
};

/// Of a setting with several parts, that of the part which is hardest to load: `own` before
/// `per_process`, as that holds for all sizes, before the others. Our own ring and servers are
/// `own`, and so are algorithm and segment of Gloo, whose callers write them into their code.
Reach reach_of(Backend backend, Architecture architecture, const ActionSettings& setting);

/// Can a job that knows nothing of this project be given it?
constexpr bool is_loadable(Reach reach) { return reach != Reach::own; }

}  // namespace dynamiccl
