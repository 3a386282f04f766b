#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>
#include <torch/version.h>

#include "workers/train/learner.hpp"
#include "workers/train/torch/engine.hpp"
#include "workers/train/torch/models.hpp"

namespace dynamiccl {
namespace {

using torch::Tensor;

/// OpenBLAS has threads of its own, beside the tensor library's.
void set_blas_threads(int threads) {
  using SetThreads = void (*)(int);
  if (auto* set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads")))
    set(threads);
}

class TorchLearner final : public Learner {
 public:
  TorchLearner(const TrainingSpec& spec, std::uint64_t seed) {
    torch::manual_seed(seed);
    const bool tokens = facts_of(spec.model, spec.sequence).tokens;
    model_ = tokens ? make_bert(spec.model) : make_image_model(spec.model);
    for (std::size_t stage = 0; stage < model_.stages.size(); ++stage) {
      for (auto& tensor : model_.stages[stage].parameters) {
        DYN_ASSERT(tensor.is_contiguous(), "weights are updated as flat memory");
        tensors_.push_back(tensor);
        parameters_.push_back({tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel()),
                               static_cast<int>(stage)});
      }
    }
    add_hooks();
  }

  [[nodiscard]] const std::vector<Parameter>& parameters() const override { return parameters_; }
  [[nodiscard]] int stages() const override { return static_cast<int>(model_.stages.size()); }
  void on_gradient(OnGradient callback) override { callback_ = std::move(callback); }

  void load(const Batch& batch) override {
    input_ = input_of(batch);
    labels_ = labels_of(batch);
  }

  void forward(int stage) override {
    input_ = model_.stages[static_cast<std::size_t>(stage)].forward(input_);
  }

  double loss() override {
    loss_ = torch::nn::functional::cross_entropy(input_, labels_);
    input_.reset();
    return loss_.item<double>();
  }

  void backward() override {
    loss_.backward();
    loss_.reset();
  }

  double accuracy(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    for (auto& module : model_.owners) module->eval();
    Tensor x = input_of(batch);
    for (auto& stage : model_.stages) x = stage.forward(x);
    for (auto& module : model_.owners) module->train();
    return x.argmax(1).eq(labels_of(batch)).to(torch::kDouble).mean().item<double>();
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
      accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, i](const torch::autograd::variable_list& outputs,
                    const torch::autograd::variable_list&) {
            Tensor& gradient = tensors_[i].mutable_grad();
            const Tensor whole = gradient.contiguous();
            callback_(i, whole.data_ptr<float>());
            // The engine's own hook comes after this one and takes the gradient.
            if (!engaged_) gradient.reset();
            return outputs;
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

  StagedModel model_;
  std::vector<Tensor> tensors_;
  std::vector<Parameter> parameters_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  OnGradient callback_;
  bool engaged_ = false;  ///< an engine lives
  Tensor input_;
  Tensor labels_;
  Tensor loss_;
};

}  // namespace

std::unique_ptr<Learner> make_learner(const TrainingSpec& spec, std::uint64_t seed, int threads) {
  at::set_num_threads(threads);
  set_blas_threads(threads);
  return std::make_unique<TorchLearner>(spec, seed);
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
