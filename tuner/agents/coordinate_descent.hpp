#pragma once

#include <map>
#include <memory>

#include "tuner/agents/agent.hpp"

namespace dynamiccl {

/// Lifecycle of a key under coordinate descent.
DYN_NAMED_ENUM(DescentPhase, "descent phase", '-', idle, probing, improving, advance_dimension,
               converged);
/// The search of AutoCCL (Xu et al., NSDI 2025, Fig. 2 and 5), per key:
///   for every implementation subspace (algorithm, protocol, transport):
///     p = a random resource configuration; lr = 0.01; dimension = 0
///     while dimension < M: measure p + lr in that dimension
///       better: lr = BwDelta / Bw(p), p becomes the optimum
///       else:   next dimension, lr = 0.01
///   the best subspace's optimum is the result
/// What the paper leaves open is fixed so: a knob's values are a grid, lr moves by
/// max(1, round(lr * values)) places; a dimension is left when neither direction
/// helps, upwards first; a point that was measured already is not measured again; one measurement
/// is one step. The default is measured first, as the reference of the gain.
class CoordinateDescent final : public Agent {
 public:
  explicit CoordinateDescent(const AgentOptions& options);
  ~CoordinateDescent() override;
  [[nodiscard]] std::string_view name() const override { return "coordinate-descent"; }
  Choice act(const Task& task) override;
  void learn(const Task& task, std::size_t arm, const Trial& trial) override;
  [[nodiscard]] bool finished(const Task& task) const override;
  [[nodiscard]] std::size_t recommend(const Task& task) const override;
  void reopen(const RegimeKey& key) override;
  [[nodiscard]] DescentPhase phase(const Task& task) const;

 private:
  class Search;
  Search& search(const Task& task);
  [[nodiscard]] const Search* find(const Task& task) const;
  std::uint64_t seed_;
  std::map<RegimeKey, std::unique_ptr<Search>> searches_;
};

}  // namespace dynamiccl
