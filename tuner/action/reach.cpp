#include "tuner/action/reach.hpp"

#include "core/vocabulary/backend.hpp"
#include "tuner/action/algorithm_rows.hpp"

namespace dynamiccl {
namespace {

/// Where a call's own setting goes in a job.
Reach reach_of_call(Backend backend, Architecture architecture, const ActionSettings& setting) {
  // A server's pushes and pulls, and what our own algorithms send, are messages that no library
  // arranges.
  if (architecture == Architecture::ps || is_own_algorithm(setting.algorithm)) return Reach::own;
  switch (backend_facts(backend).algorithms) {
    case AlgorithmReach::per_call:
      return Reach::per_call;
    case AlgorithmReach::per_size:
      return Reach::per_size;
    case AlgorithmReach::per_process:
      return Reach::per_process;
    case AlgorithmReach::own:
      break;
  }
  return Reach::own;
}

}  // namespace

Reach reach_of(Backend backend, Architecture architecture, const ActionSettings& setting) {
  const bool per_call = setting.algorithm != "library" || !setting.call_knobs.empty();
  const Reach call = per_call ? reach_of_call(backend, architecture, setting) : Reach::nothing;
  if (call == Reach::own || setting.launch_knobs.empty()) return call;
  return Reach::per_process;
}

}  // namespace dynamiccl
