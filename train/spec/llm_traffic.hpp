#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// What of a large language model decides its traffic.
struct LlmModel {
  std::string_view name;
  int layers = 1;
  int hidden = 1;
  int inner = 1;  ///< width between a layer's feed-forward matrices
  int heads = 1;
  int kv_heads = 1;
  int vocabulary = 1;
  int matrices = 2;      ///< of a feed-forward block: 3 where it is gated
  bool tied = true;      ///< embedding and head are one matrix
  int experts = 0;       ///< of a layer; 0 = it is dense
  int chosen = 1;        ///< experts that a token goes to
  double published = 0;  ///< parameters as published, where no shape with as many is

  /// Parameters of one layer without its experts.
  [[nodiscard]] double layer() const;
  /// Of all experts of one layer.
  [[nodiscard]] double layer_experts() const;
  /// Of embedding, head and last norm.
  [[nodiscard]] double rest() const;
  [[nodiscard]] double parameters() const;
};

/// @throws Error(input) with the names there are
const LlmModel& llm_named(std::string_view name);

/// How a model's training is shared out. Ranks: those of a tensor group are neighbours, then come
/// the data-parallel ones, then the stages.
struct LlmParallelism {
  int data = 1;
  int tensor = 1;
  int pipeline = 1;
  int experts = 1;    ///< ranks of the data-parallel ones that a layer's experts are shared over
  bool fsdp = false;  ///< weights, gradients and the optimizer are sharded over `data`
  bool recompute = false;  ///< activations are computed again in the backward pass
  int micro_batches = 1;   ///< of a step
  int batch = 1;           ///< sequences of a micro-batch
  int sequence = 2048;     ///< tokens

  [[nodiscard]] std::int64_t ranks() const { return std::int64_t{data} * tensor * pipeline; }
};

/// "tensor=8,pipeline=4,fsdp": `data` is what is left of the ranks where it is not named.
/// @throws Error(input) for words it does not know, and what does not divide
LlmParallelism parse_parallelism(const std::string& text, const LlmModel& model, int ranks);

/// Calls that a rank of the first stage makes in one step, one kind of them a row, in the order in
/// which they begin. 16-bit weights, gradients and activations.
struct LlmCall {
  std::string_view phase;  ///< forward, backward, gradients
  std::string_view what;
  Collective collective = Collective::allreduce;
  int group = 2;
  int stride = 1;    ///< between the group's members
  int groups = 1;    ///< that do so at once
  double bytes = 0;  ///< as nccl-tests counts: the whole buffer
  std::int64_t count = 1;
};
std::vector<LlmCall> llm_traffic(const LlmModel& model, const LlmParallelism& parallelism);

/// Bytes that all ranks of these groups together send in one step, by algorithms that send no more
/// than they must.
double sent_in_step(const LlmCall& call);

/// Bytes of weights and gradients (2 each a parameter) and of Adam's state (12) that a rank of the
/// first stage holds, without activations.
double llm_memory(const LlmModel& model, const LlmParallelism& parallelism);

}  // namespace dynamiccl
