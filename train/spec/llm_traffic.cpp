#include "train/spec/llm_traffic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// Shapes as their papers have them. LLaMA: arXiv 2302.13971 table 2, widths of its released
/// weights; GPT-3: 2005.14165 table 2.1; BloombergGPT: 2303.17564 table 4; Megatron-Turing:
/// 2201.11990 section 3; Mixtral: 2401.04088 table 1. The survey gives counts of parameters alone
/// for the last three: their shapes are assumed.
constexpr std::array kLlms{
    LlmModel{"llama-7b", 32, 4096, 11008, 32, 32, 32000, 3, false},
    LlmModel{"llama-13b", 40, 5120, 13824, 40, 40, 32000, 3, false},
    LlmModel{"llama-65b", 80, 8192, 22016, 64, 64, 32000, 3, false},
    LlmModel{"mixtral-8x7b", 32, 4096, 14336, 32, 8, 32000, 3, false, 8, 2},
    LlmModel{"gpt3-175b", 96, 12288, 49152, 96, 96, 50257, 2, true},
    LlmModel{"bloomberggpt-50b", 70, 7680, 30720, 40, 40, 131072, 2, true},
    LlmModel{"mt-nlg-530b", 105, 20480, 81920, 128, 128, 51200, 2, true},
    LlmModel{"gpt-2.2b", 48, 1920, 7680, 20, 20, 50257, 2, true},
    LlmModel{"survey-100b", 80, 10240, 40960, 80, 80, 51200, 2, true, 0, 1, 100e9},
    LlmModel{"survey-1.3t", 128, 28672, 114688, 128, 128, 51200, 2, true, 0, 1, 1.3e12}};

constexpr double kHalf = 2;                   ///< bytes of a 16-bit value
constexpr double kBucket = 25 * 1024 * 1024;  ///< PyTorch DDP's bucket_cap_mb

/// A stage's part of a model as one rank of a tensor group holds it, parameters.
struct StageParts {
  double layer = 0;    ///< dense part of one layer
  double experts = 0;  ///< those of one layer that the rank holds
  double rest = 0;     ///< of embedding and head what the first or last stage has
  int layers = 1;
};

StageParts parts_of(const LlmModel& model, const LlmParallelism& p) {
  // A count that no shape has is spread as the shape's is.
  const double own = model.layers * (model.layer() + model.layer_experts()) + model.rest();
  const double scale = model.parameters() / own / p.tensor;
  // One matrix for both is on the first and on the last stage, of two each has its own.
  const int ends = !model.tied && p.pipeline > 1 ? 2 : 1;
  return {model.layer() * scale, model.layer_experts() * scale / p.experts,
          model.rest() * scale / ends, model.layers / p.pipeline};
}

class LlmStep {
 public:
  LlmStep(const LlmModel& model, const LlmParallelism& p)
      : p_(p),
        parts_(parts_of(model, p)),
        activations_(kHalf * p.batch * p.sequence * model.hidden),
        routed_(activations_ * model.chosen),
        moe_(model.experts > 0),
        ends_(std::min(2, p.pipeline)),
        shared_ends_(model.tied && p.pipeline > 1) {}

  std::vector<LlmCall> calls() {
    pass("forward", 1);
    pass("backward", p_.recompute ? 2 : 1);
    gradients();
    return std::move(calls_);
  }

 private:
  /// @param stages whose ranks do so; 0: all together
  void add(std::string_view phase, std::string_view what, Collective collective, int group,
           int stride, double bytes, double count, int stages = 0) {
    if (group <= 1 || bytes <= 0) return;
    const std::int64_t groups =
        stages > 0 ? p_.ranks() / p_.pipeline / group * stages : p_.ranks() / group;
    calls_.push_back({phase, what, collective, group, stride, static_cast<int>(groups), bytes,
                      static_cast<std::int64_t>(count)});
  }

  /// @param times that a layer's own exchanges are made in: twice with its forward pass again
  void pass(std::string_view phase, int times) {
    const bool forward = phase == "forward";
    const double layers = static_cast<double>(parts_.layers) * p_.micro_batches;
    const double unit = kHalf * (parts_.layer + (p_.experts == 1 ? parts_.experts : 0));
    if (p_.fsdp) {
      // The outermost unit stays gathered until the backward pass.
      if (forward)
        add(phase, "weights of embedding and head", Collective::allgather, p_.data, p_.tensor,
            kHalf * parts_.rest, p_.micro_batches, ends_);
      add(phase, "weights of a layer", Collective::allgather, p_.data, p_.tensor, unit, layers);
    }
    if (forward || p_.pipeline == 1)
      add(phase, forward ? "embedded tokens" : "gradients before the head", Collective::allreduce,
          p_.tensor, 1, activations_, p_.micro_batches, 1);
    add(phase, forward ? "activations of half a layer" : "their gradients", Collective::allreduce,
        p_.tensor, 1, activations_, 2 * layers * times);
    if (moe_)
      add(phase, "tokens to experts and back", Collective::alltoall, p_.experts, p_.tensor, routed_,
          2 * layers * times);
    add(phase, "between stages", Collective::sendrecv, p_.pipeline, p_.tensor * p_.data,
        activations_, p_.micro_batches);
    if (forward || !p_.fsdp) return;
    add(phase, "gradients of a layer", Collective::reduce_scatter, p_.data, p_.tensor, unit,
        layers);
    add(phase, "gradients of embedding and head", Collective::reduce_scatter, p_.data, p_.tensor,
        kHalf * parts_.rest, p_.micro_batches, ends_);
  }

  void gradients() {
    const bool apart = p_.experts > 1;
    const double experts = parts_.experts * parts_.layers;
    const double ends = kHalf * parts_.rest;
    if (!p_.fsdp) {
      const double layers = kHalf * (parts_.layer * parts_.layers + (apart ? 0 : experts));
      buckets("gradients", layers + (p_.pipeline == 1 ? ends : 0), p_.data, p_.tensor);
      if (p_.pipeline > 1)
        buckets("gradients of embedding and head", ends, p_.data, p_.tensor, ends_);
    }
    if (apart)
      buckets("gradients of experts", kHalf * experts, p_.data / p_.experts,
              p_.tensor * p_.experts);
    if (!shared_ends_) return;
    add("gradients", "embedding of the first and last stage", Collective::allreduce, 2,
        p_.tensor * p_.data * (p_.pipeline - 1), ends / (p_.fsdp ? p_.data : 1), 1);
    calls_.back().groups = p_.tensor * p_.data;
  }
  void buckets(std::string_view what, double bytes, int group, int stride, int stages = 0) {
    const double count = std::max(1.0, std::ceil(bytes / kBucket));
    add("gradients", what, Collective::allreduce, group, stride, bytes / count, count, stages);
  }

  const LlmParallelism& p_;
  StageParts parts_;
  double activations_;
  double routed_;
  bool moe_;
  int ends_;  ///< stages that have an embedding or a head
  bool shared_ends_;
  std::vector<LlmCall> calls_;
};

struct LlmDegree {
  std::string_view name;
  int LlmParallelism::*value;
};
constexpr std::array kDegrees{LlmDegree{"data", &LlmParallelism::data},
                              LlmDegree{"tensor", &LlmParallelism::tensor},
                              LlmDegree{"pipeline", &LlmParallelism::pipeline},
                              LlmDegree{"experts", &LlmParallelism::experts},
                              LlmDegree{"micro_batches", &LlmParallelism::micro_batches},
                              LlmDegree{"batch", &LlmParallelism::batch},
                              LlmDegree{"sequence", &LlmParallelism::sequence}};

void set_word(const std::string& word, LlmParallelism& p) {
  if (word == "fsdp" || word == "recompute") {
    (word == "fsdp" ? p.fsdp : p.recompute) = true;
    return;
  }
  const auto equals = word.find('=');
  const std::string name = word.substr(0, equals);
  std::vector<std::string> known{"fsdp", "recompute"};
  for (const LlmDegree& degree : kDegrees) {
    known.emplace_back(degree.name);
    if (degree.name != name || equals == std::string::npos) continue;
    int value = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data() + equals + 1, end, value);
    if (error != std::errc() || stop != end || value < 1 || value > 1 << 20)
      throw Error(
          ErrorKind::input,
          fmt::format("--parallel {}: expected a whole number from 1 to {}", word, 1 << 20));
    p.*degree.value = value;
    return;
  }
  throw Error(ErrorKind::input, fmt::format("--parallel {}: unknown; {}, numbers as in tensor=8",
                                            word, suggestion(name, known)));
}

void check_divides(std::string_view what, int parts, std::string_view of, int whole) {
  if (parts < 1 || whole % parts != 0)
    throw Error(ErrorKind::input,
                fmt::format("--parallel {}={}: does not divide {} {}", what, parts, whole, of));
}

}  // namespace

double LlmModel::layer() const {
  const double h = hidden;
  const double attention = 2 * h * h + 2 * h * h * kv_heads / heads;
  return attention + 2 * h + (experts > 0 ? h * experts : matrices * h * inner);
}
double LlmModel::layer_experts() const {
  return static_cast<double>(experts) * matrices * hidden * inner;
}
double LlmModel::rest() const {
  return static_cast<double>(hidden) * vocabulary * (tied ? 1 : 2) + hidden;
}
double LlmModel::parameters() const {
  return published > 0 ? published : layers * (layer() + layer_experts()) + rest();
}

const LlmModel& llm_named(std::string_view name) {
  std::vector<std::string> known;
  for (const LlmModel& model : kLlms) {
    if (model.name == name) return model;
    known.emplace_back(model.name);
  }
  throw Error(ErrorKind::input,
              fmt::format("unknown language model \"{}\"; {}", name, suggestion(name, known)));
}

LlmParallelism parse_parallelism(const std::string& text, const LlmModel& model, int ranks) {
  LlmParallelism p;
  p.data = 0;
  for (const std::string& word : split(text, ','))
    if (!word.empty()) set_word(word, p);
  check_divides("tensor", p.tensor, "heads", model.heads);
  check_divides("pipeline", p.pipeline, "layers", model.layers);
  if (p.data == 0) {
    check_divides("tensor x pipeline", p.tensor * p.pipeline, "ranks", ranks);
    p.data = ranks / p.tensor / p.pipeline;
  }
  if (p.ranks() != ranks)
    throw Error(ErrorKind::input,
                fmt::format("--parallel: data {} x tensor {} x pipeline {} are {} ranks, and the "
                            "machine or --ranks says {}",
                            p.data, p.tensor, p.pipeline, p.ranks(), ranks));
  if (p.experts > 1 && model.experts == 0)
    throw Error(
        ErrorKind::input,
        fmt::format("--parallel experts={}: {} has none; mixtral-8x7b has", p.experts, model.name));
  if (p.experts > 1 && p.fsdp)
    throw Error(ErrorKind::input, "--parallel: fsdp and shared experts together are not modelled");
  if (p.experts > 1) check_divides("experts", p.experts, "experts of a layer", model.experts);
  check_divides("experts", p.experts, "data-parallel ranks", p.data);
  return p;
}

std::vector<LlmCall> llm_traffic(const LlmModel& model, const LlmParallelism& parallelism) {
  return LlmStep(model, parallelism).calls();
}

double sent_in_step(const LlmCall& call) {
  const double times = static_cast<double>(call.groups) * static_cast<double>(call.count);
  // A stage sends to the next one, and the last to none.
  if (call.collective == Collective::sendrecv) return times * (call.group - 1) * call.bytes;
  return times * call.group * bus_bandwidth_factor(call.collective, call.group) * call.bytes;
}

double llm_memory(const LlmModel& model, const LlmParallelism& parallelism) {
  const StageParts parts = parts_of(model, parallelism);
  const double held = (parts.layer + parts.experts) * parts.layers + parts.rest;
  return 16 * held / (parallelism.fsdp ? parallelism.data : 1);
}

}  // namespace dynamiccl
