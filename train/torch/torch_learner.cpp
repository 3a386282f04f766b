#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/cuda.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "train/step/learner.hpp"
#include "train/torch/engine.hpp"
#include "train/torch/gpu_memory.hpp"
#include "train/torch/models.hpp"

namespace dynamiccl {
namespace {

using torch::Tensor;

/// OpenBLAS has threads of its own, besides the tensor library's.
void set_blas_threads(int threads) {
  using SetThreads = void (*)(int);
  if (auto* set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads")))
    set(threads);
}

/// Products in bfloat16 for as long as it lives, where wanted.
class Autocast {
 public:
  explicit Autocast(bool wanted) : wanted_(wanted) {
    if (!wanted_) return;
    before_ = set(true);
#if TORCH_VERSION_MAJOR >= 2
    at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
#else
    at::autocast::set_autocast_gpu_dtype(at::kBFloat16);
#endif
  }
  ~Autocast() {
    if (!wanted_) return;
    set(before_);
    at::autocast::clear_cache();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  static bool set(bool enabled) {
#if TORCH_VERSION_MAJOR >= 2
    const bool before = at::autocast::is_autocast_enabled(at::kCUDA);
    at::autocast::set_autocast_enabled(at::kCUDA, enabled);
#else
    const bool before = at::autocast::is_enabled();
    at::autocast::set_enabled(enabled);
#endif
    return before;
  }
  bool wanted_;
  bool before_ = false;
};

/// Called after a node of the backward pass has run.
class AfterNode final : public torch::autograd::FunctionPostHook {
 public:
  explicit AfterNode(std::function<void()> call) : call_(std::move(call)) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& outputs,
      const torch::autograd::variable_list& /*inputs*/) override {
    call_();
    return outputs;
  }

 private:
  std::function<void()> call_;
};

/// Samples where the model computes.
struct Samples {
  Tensor inputs;
  Tensor labels;
};

class TorchLearner final : public Learner {
 public:
  TorchLearner(const TrainingSpec& spec, std::uint64_t seed, std::optional<int> gpu)
      : device_(gpu ? torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(*gpu))
                    : torch::Device(torch::kCPU)),
        memory_(gpu ? make_gpu_memory(device_) : make_host_memory()),
        bf16_(spec.precision == Precision::bf16) {
    at::globalContext().setAllowTF32CuBLAS(spec.precision == Precision::tf32);
    at::globalContext().setAllowTF32CuDNN(spec.precision == Precision::tf32);
    at::globalContext().setDeterministicCuDNN(spec.oracle > 0);
#if TORCH_VERSION_MAJOR >= 2
    // Over more than 64 tokens the fused attention's backward pass adds the parts of a query's
    // gradient in the order in which the GPU's blocks come to it.
    at::globalContext().setSDPUseFlash(spec.oracle == 0);
    at::globalContext().setSDPUseMemEfficient(spec.oracle == 0);
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 5
    at::globalContext().setSDPUseCuDNN(spec.oracle == 0);
#endif
#endif
    shown_loss_ =
        torch::zeros({1}, at::TensorOptions().dtype(at::kFloat).pinned_memory(gpu.has_value()));
    torch::manual_seed(seed);
    const bool tokens = facts_of(spec.model, spec.sequence).tokens;
    model_ = tokens ? make_bert(spec.model) : make_image_model(spec.model);
    // Weights come from the host's generator: the same on every kind of device.
    for (auto& module : model_.owners) {
      module->to(device_);
      for (const Tensor& buffer : module->buffers())
        statistics_.push_back({buffer, buffer.clone()});
    }
    for (std::size_t stage = 0; stage < model_.stages.size(); ++stage) {
      for (auto& tensor : model_.stages[stage].parameters) {
        DYN_ASSERT(tensor.is_contiguous(), "weights are updated as flat memory");
        tensors_.push_back(tensor);
        parameters_.push_back({tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel()),
                               static_cast<int>(stage),
                               tensor.dim() < 2 ? 1 : static_cast<std::size_t>(tensor.size(0))});
      }
    }
    add_hooks();
  }

  [[nodiscard]] const std::vector<Parameter>& parameters() const override { return parameters_; }
  [[nodiscard]] int stages() const override { return static_cast<int>(model_.stages.size()); }
  void reset_statistics() override {
    const torch::NoGradGuard no_grad;
    for (auto& [now, start] : statistics_) now.copy_(start, /*non_blocking=*/true);
  }
  [[nodiscard]] TensorMemory& memory() override { return *memory_; }
  void on_gradient(OnGradient callback) override { callback_ = std::move(callback); }

  void load(const Batch& batch) override {
    input_ = input_of(batch).to(device_, /*non_blocking=*/true);
    labels_ = labels_of(batch).to(device_, /*non_blocking=*/true);
  }

  void forward(int stage) override {
    const Autocast autocast(bf16_);
    input_ = model_.stages[static_cast<std::size_t>(stage)].forward(input_);
  }

  void keep_samples(const Dataset& data) override {
    kept_ = {};
    const std::size_t count = data.training_size();
    if (!device_.is_cuda() || count == 0) return;
    Batch one;
    data.add_to(one, 0);
    const std::size_t bytes = one.pixels.size() * sizeof(float) +
                              (one.tokens.size() + one.labels.size()) * sizeof(std::int64_t);
    if (bytes * count > kMostKept) return;
    Batch all;
    for (std::size_t i = 0; i < count; ++i) data.add_to(all, i);
    kept_.inputs = input_of(all).to(device_);
    kept_.labels = labels_of(all).view({all.count, -1}).to(device_);
  }
  [[nodiscard]] bool keeps_samples() const override { return kept_.inputs.defined(); }
  void fetch(const std::vector<std::size_t>& samples) override {
    const auto count = static_cast<std::int64_t>(samples.size());
    // Page-locked, so that nobody waits for the copy. New each time: the GPU may not have read the
    // batch before's yet; the allocator hands memory out again only when the copies of it are done.
    const Tensor chosen =
        torch::empty({count}, at::TensorOptions().dtype(at::kLong).pinned_memory(true));
    std::copy(samples.begin(), samples.end(), chosen.data_ptr<std::int64_t>());
    const Tensor places = chosen.to(device_, /*non_blocking=*/true);
    fetched_.inputs = kept_.inputs.index_select(0, places);
    fetched_.labels = kept_.labels.index_select(0, places).flatten();
  }
  void load_fetched() override {
    input_ = std::exchange(fetched_.inputs, {});
    labels_ = std::exchange(fetched_.labels, {});
  }

  void compute_loss() override {
    loss_ = torch::nn::functional::cross_entropy(input_.to(torch::kFloat32), labels_);
    input_.reset();
    const torch::NoGradGuard no_grad;
    shown_loss_.copy_(loss_, /*non_blocking=*/true);
  }
  [[nodiscard]] double loss() const override { return *shown_loss_.data_ptr<float>(); }

  void backward() override {
    loss_.backward();
    loss_.reset();
  }

  double accuracy(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    for (auto& module : model_.owners) module->eval();
    Tensor x = input_of(batch).to(device_);
    for (auto& stage : model_.stages) x = stage.forward(x);
    for (auto& module : model_.owners) module->train();
    return x.argmax(1).eq(labels_of(batch).to(device_)).to(torch::kDouble).mean().item<double>();
  }

  std::unique_ptr<DataParallelEngine> engine(EngineGroup& group, Bytes bucket) override {
    return make_engine(group, tensors_, bucket, engaged_);
  }

 private:
  /// After accumulation, as soon as a parameter's gradient is whole. The gradient is given away at
  /// once, so that no second copy of all of them is ever held.
  void add_hooks() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      auto accumulator = torch::autograd::impl::grad_accumulator(tensors_[i]);
      accumulator->add_post_hook(std::make_unique<AfterNode>([this, i] {
        Tensor& gradient = tensors_[i].mutable_grad();
        given_.push_back(gradient.contiguous());
        // The engine's own hook comes after this one and takes the gradient.
        if (!engaged_) gradient.reset();
        callback_(i, given_.back().data_ptr<float>());
        if (!memory_->copies_wait()) given_.clear();
      }));
      accumulators_.push_back(std::move(accumulator));
    }
  }

  static Tensor input_of(const Batch& batch) {
    if (batch.sequence > 0)
      return copied(batch.tokens, torch::kInt64, {batch.count, batch.sequence});
    return copied(batch.pixels, torch::kFloat32, {batch.count, 3, batch.side, batch.side});
  }
  static Tensor labels_of(const Batch& batch) {
    return copied(batch.labels, torch::kInt64, {static_cast<std::int64_t>(batch.labels.size())});
  }
  template <class T>
  static Tensor copied(const std::vector<T>& values, torch::ScalarType type,
                       at::IntArrayRef shape) {
    return torch::from_blob(const_cast<T*>(values.data()), shape, type).clone();
  }

  torch::Device device_;
  std::unique_ptr<TensorMemory> memory_;
  bool bf16_;
  StagedModel model_;
  std::vector<Tensor> tensors_;
  std::vector<Parameter> parameters_;
  /// The model's buffers, and what was in them at the start.
  std::vector<std::pair<Tensor, Tensor>> statistics_;
  /// A shared or an intrusive pointer, as the release has it.
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<Tensor&>()));
  std::vector<Accumulator> accumulators_;
  OnGradient callback_;
  std::vector<Tensor> given_;  ///< gradients whose copies wait
  bool engaged_ = false;       ///< an engine lives
  Tensor input_;
  Tensor labels_;
  Tensor loss_;
  Tensor shown_loss_;  ///< the last loss in host memory; from a GPU it may be on its way there
  /// Samples are kept up to so many bytes; a GPU has tens of gigabytes, larger data is brought.
  static constexpr std::size_t kMostKept = std::size_t{2} << 30;
  Samples kept_;     ///< all to train on
  Samples fetched_;  ///< the next batch
};

}  // namespace

std::string why_no_gpu() {
  return torch::cuda::is_available()
             ? ""
             : fmt::format("libtorch {} of this build computes on no GPU here", TORCH_VERSION);
}

std::unique_ptr<Learner> make_learner(const TrainingSpec& spec, std::uint64_t seed, int threads,
                                      std::optional<int> gpu) {
  if (gpu && !why_no_gpu().empty()) throw Error(ErrorKind::environment, why_no_gpu());
  // As open_device(): the only one, whatever its number outside.
  if (gpu && torch::cuda::device_count() == 1) gpu = 0;
  at::set_num_threads(threads);
  set_blas_threads(threads);
  return std::make_unique<TorchLearner>(spec, seed, gpu);
}

bool has_fast_blas() {
  return dlsym(RTLD_DEFAULT, "openblas_get_config") != nullptr ||
         dlsym(RTLD_DEFAULT, "mkl_get_version_string") != nullptr ||
         dlsym(RTLD_DEFAULT, "MKL_Get_Version_String") != nullptr;
}

std::string learner_library() {
  return fmt::format("libtorch {} with {}", TORCH_VERSION,
                     has_fast_blas() ? "a fast BLAS" : "a reference BLAS");
}

}  // namespace dynamiccl
