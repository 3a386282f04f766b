#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "train/data/dataset_prefetch.hpp"
#include "train/plan/exchange_plan.hpp"
#include "train/plan/predict.hpp"
#include "train/step/learner.hpp"
#include "train/step/part_clock.hpp"
#include "train/step/step_exchange.hpp"
#include "train/step/step_times.hpp"

namespace dynamiccl {

/// Whether this is a test build that plants the fault of this name, to prove that the checks see
/// it.
bool planted_fault(std::string_view name);

/// While it lives a worker keeps the weights of its steps.
class KeptWeights {
 public:
  explicit KeptWeights(std::vector<std::vector<float>>*& place) : place_(place) {}
  ~KeptWeights() { place_ = nullptr; }
  KeptWeights(const KeptWeights&) = delete;
  KeptWeights& operator=(const KeptWeights&) = delete;

 private:
  std::vector<std::vector<float>>*& place_;
};

/// One worker's training: SGD with momentum on flat buffers, in the order in which the backward
/// pass finishes gradients.
class TrainingWorker {
 public:
  TrainingWorker(const TrainingSpec& spec, Learner& learner, const Dataset& data, int worker,
                 int workers, std::uint64_t seed);

  /// Parameters in the order in which one backward pass finished them.
  std::vector<int> observe_order();
  /// Every rank's order must be the same.
  void set_order(const std::vector<int>& order);

  /// Weights, momentum, the model's statistics and data as at the start.
  void reset();
  /// One step without communication; `profile` gets its ready times and stages.
  StepTimes step_alone(StepProfile* profile);
  /// Before the first step with this exchange, which may apply sums itself.
  void begin(StepExchange& exchange);
  /// One step of the method. Sums of methods that cross the barrier stay open until the next step.
  StepTimes step(StepExchange& exchange, bool crosses);
  /// The stages of the next step() are wanted as the GPU computes them, not as they are queued.
  void trace_next() { trace_wanted_ = memory_.on_gpu(); }
  /// One step whose gradients the tensor library's own engine averages.
  StepTimes step_by(DataParallelEngine& engine);
  /// Applies what is still open.
  StepTimes finish(StepExchange& exchange);
  /// One step without the others: this worker's gradient is in gradients() afterwards, and in the
  /// weights where it is applied.
  StepTimes step_by_itself(bool apply);
  /// Some worker's gradient of its step `step` at the present weights, into gradients().
  /// @returns its loss
  double compute_for(int worker, std::uint64_t step);
  /// What gradients() holds is applied, as a mean over so many workers.
  void apply_gradients(int over);
  /// These, in the order of gradients, are applied as a mean over so many workers.
  void apply(const float* sums, int over);
  /// Weights in the order of gradients become `scale` times these, of memory().
  void take_weights(const float* in_order, float scale);
  /// Weights go this part of their way to these, of memory(), which are in the order of gradients.
  void draw_to(const float* in_order, float part);
  /// Copies in host memory, in the order of gradients, and the ways back: what an oracle reckons
  /// with, and what goes to a server by way of the host. Those of weights pass through gradients().
  [[nodiscard]] std::vector<float> host_weights();
  [[nodiscard]] std::vector<float> host_gradients() { return host_copy(gradients_.data()); }
  [[nodiscard]] std::vector<float> host_velocity();
  void take_host_weights(const float* in_order);
  void take_host_gradients(const float* in_order);
  void take_host_velocity(const float* in_order);
  [[nodiscard]] float* velocity() { return velocity_.data(); }
  /// One step as one process would do it from these weights: every worker's batch in turn,
  /// gradients added in rank order.
  void step_of_all();

  [[nodiscard]] std::vector<float> weights() const;
  /// Weights become these, as weights() gives them.
  void restore(const std::vector<float>& all) {
    const float* from = all.data();
    for (const auto& parameter : learner_.parameters()) {
      memory_.from_host(from, parameter.data, parameter.count);
      from += parameter.count;
    }
  }
  /// From now on the weights at which each step computes its gradients, as weights() gives them,
  /// are added there, until what is returned is destroyed: behind the forward pass, which is where
  /// those of methods that cross the barrier are all applied. `kept` and the worker outlive it.
  [[nodiscard]] KeptWeights keep_weights(std::vector<std::vector<float>>& kept) {
    kept_ = &kept;
    return KeptWeights(kept_);
  }
  /// Share of so many held-out samples that the model tells right; -1 where there are none.
  [[nodiscard]] double accuracy(int samples);
  /// Which flat buffers there are: gradients in the order of the backward pass, and a second place
  /// for what servers answer. set_order() makes the first.
  void hold(bool gradients, bool answers);
  /// A GPU's gradients leave their buffer before answers come into it, and so do encoded ones.
  [[nodiscard]] bool needs_answers(int servers) const {
    return servers > 0 && !memory_.on_gpu() && spec_.compression == Codec::none;
  }
  /// The weights in the order of gradients, in the gradients' buffer.
  const float* weights_in_order();
  [[nodiscard]] TensorMemory& memory() { return memory_; }
  [[nodiscard]] float* gradients() { return gradients_.data(); }
  [[nodiscard]] float* sums() { return sums_.empty() ? gradients_.data() : sums_.data(); }
  [[nodiscard]] std::uint64_t steps_per_epoch() const { return sharding_.steps_per_epoch(); }
  [[nodiscard]] const std::vector<std::size_t>& counts() const { return counts_; }
  /// Rows of each gradient that is a matrix, else 1.
  [[nodiscard]] const std::vector<std::size_t>& rows() const { return rows_; }
  [[nodiscard]] int number() const { return worker_; }
  [[nodiscard]] int workers() const { return workers_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] double rate() const { return spec_.learning_rate; }
  /// Bytes of all gradients, and of the answers' buffer.
  [[nodiscard]] std::size_t gradient_bytes() const { return velocity_.size() * sizeof(float); }
  [[nodiscard]] std::size_t answer_bytes() const { return sums_.size() * sizeof(float); }
  [[nodiscard]] const std::vector<Span>& stage_spans() const { return stage_spans_; }

 private:
  [[nodiscard]] std::vector<float> host_copy(const float* of);
  /// Queues this worker's next batch, where the learner keeps samples.
  void fetch(int worker);
  /// @returns microseconds that it waited for the batch
  double load(int worker);
  /// This worker's batch; the next step's is made from then on.
  double load_own();
  /// @param value the gradient's sum over all workers, or its average with scale 1
  void update(std::size_t gradient, const float* value, float scale);
  void update_from_sum(std::size_t gradient, const float* sums);
  void rescale_velocity(float scale);
  /// What came for this gradient: its sum, or the weights that a server updated.
  void take_answer(std::size_t gradient);
  void settle(StepExchange& exchange, int stage, StepTimes& times);
  void forward_alone(StepProfile* profile);
  /// Waits as `pace` and `slow_factor` ask, between the passes of a step whose forward pass began
  /// then. @returns the microseconds
  double slow_down(double start_us, StepExchange* exchange) const;
  [[nodiscard]] bool is_slowed_down() const { return spec_.pace > 0 || spec_.slow_factor > 1; }
  /// Until the GPU is done, which is never where a rank has died whose sums it waits for.
  /// @param exchange nullptr = it waits for no one
  void complete_beside(StepExchange* exchange) const {
    memory_.complete_or_fail([exchange] {
      if (exchange != nullptr) exchange->check();
    });
  }
  void run_forward(StepExchange* exchange, StepTimes& times);
  void run_backward(StepTimes& times, StepExchange* exchange);
  void add_lowest_bit();
  /// Runs a part of the step and notes its time, in a step that is traced by the GPU too.
  template <class F>
  double span_of(const char* what, std::size_t number, F&& part);
  void take_traced_times(double start_us);
  /// What was queued since the last part is this one, where a GPU computes.
  void end_of(StepPart part);
  /// The parts of a step whose work is done, by the GPU's clock where one computes.
  void take_parts(StepTimes& times);

  TrainingSpec spec_;
  Learner& learner_;
  TensorMemory& memory_;
  const Dataset& data_;
  int worker_;
  int workers_;
  Sharding sharding_;
  std::uint64_t seed_;
  double last_backward_us_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t clock_ = 0;            ///< the step whose gradients are applied
  std::vector<int> order_;             ///< parameter of each gradient
  std::vector<std::size_t> position_;  ///< gradient of each parameter
  std::vector<std::size_t> counts_;    ///< elements of each gradient
  std::vector<std::size_t> rows_;      ///< of each gradient
  std::vector<std::size_t> offsets_;
  std::vector<int> stage_;  ///< of each gradient
  FlatBuffer gradients_;
  FlatBuffer sums_;  ///< PS alone: a second place for the answers
  FlatBuffer velocity_;
  float velocity_scale_ = 1;  ///< of gradients: on a GPU velocities are of those before
  /// The weights at the start, parameter by parameter: what lets every method begin with the same
  /// ones. The measurement's, not a method's, and held in steps without communication too.
  FlatBuffer start_;
  std::optional<BatchPrefetcher> batches_;  ///< where the learner does not keep samples
  std::vector<std::size_t> samples_;        ///< of the batch, where the learner keeps them
  std::optional<std::uint64_t> fetched_;    ///< the step whose batch is on its way
  std::size_t queued_ = 0;                  ///< gradients of this step whose updates are queued
  bool applied_ = false;                    ///< the exchange has sums applied as they come
  bool open_ = false;                       ///< sums of the last step are not applied yet
  std::vector<std::vector<float>>* kept_ = nullptr;  ///< set by keep_weights()
  std::vector<Span> stage_spans_;
  bool trace_wanted_ = false;
  bool traces_ = false;
  std::vector<std::pair<std::size_t, std::size_t>> span_stamps_;  ///< of a traced step's spans
  PartClock clock_of_parts_;
};

}  // namespace dynamiccl
