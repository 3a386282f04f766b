#include "train/torch/gpu_memory.hpp"

#include <ATen/Functions.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>
#ifdef DYNAMICCL_TORCH_CUDA
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include "workers/device/cuda_check.hpp"
#endif

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>
#include <unordered_map>

#include "core/vocabulary/error.hpp"
#include "train/torch/put_off.hpp"

namespace dynamiccl {
namespace {

using torch::Tensor;

/// Copies and updates that were put off are done from here on, elements: enough for a kernel to
/// fill the GPU, and the first updates run while the last sums are still on their way.
constexpr std::size_t kAtOnce = 1U << 22;

/// Everything through the tensor library's own calls, so that this builds against a libtorch
/// without CUDA too; and on the stream that computes, so that the order is that of the calls.
class GpuMemory final : public TensorMemory {
 public:
  explicit GpuMemory(torch::Device device) : device_(device), guard_(device.type()) {
    // Page-locked memory and such would otherwise belong to the first GPU.
    guard_.setDevice(device_);
  }

  [[nodiscard]] bool on_gpu() const override { return true; }
  [[nodiscard]] std::shared_ptr<float> allocate(std::size_t count) override {
    const torch::NoGradGuard no_grad;
    auto owner = std::make_shared<Tensor>(at::zeros({size(count)}, options()));
    return {owner, owner->data_ptr<float>()};
  }
  void copy(const float* from, float* to, std::size_t count) override {
    const torch::NoGradGuard no_grad;
    here(to, count).copy_(here(from, count), /*non_blocking=*/true);
  }
  void copy_later(const float* from, float* to, std::size_t count) override {
    sources_.push_back(here(from, count));
    places_.push_back(known(to, count));
    waiting_copies_ += count;
    if (waiting_copies_ >= kAtOnce) flush_copies();
  }
  void flush_copies() override {
    if (sources_.empty()) return;
    const torch::NoGradGuard no_grad;
#if TORCH_VERSION_MAJOR >= 2
    at::_foreach_copy_(places_, sources_, /*non_blocking=*/true);
#else
    for (std::size_t i = 0; i < places_.size(); ++i) places_[i].copy_(sources_[i], true);
#endif
    places_.clear();
    sources_.clear();
    waiting_copies_ = 0;
  }
  [[nodiscard]] bool copies_wait() const override { return !sources_.empty(); }
  void clear(float* at, std::size_t count) override {
    const torch::NoGradGuard no_grad;
    here(at, count).zero_();
  }
  void add(float* sum, const float* more, std::size_t count) override {
    const torch::NoGradGuard no_grad;
    here(sum, count).add_(here(more, count));
  }
  void blend(float* to, float keep, const float* from, float share, std::size_t count) override {
    const torch::NoGradGuard no_grad;
    Tensor target = here(to, count);
    if (keep == 0) {
      if (share == 0) return static_cast<void>(target.zero_());
      at::mul_out(target, here(from, count), at::scalar_tensor(share, at::kFloat));
      return;
    }
    if (keep != 1) target.mul_(keep);
    if (share != 0) target.add_(here(from, count), share);
  }
  void update(const Sgd& sgd, float* weight, float* velocity, const float* gradient, float scale,
              std::size_t count) override {
    weights_.push_back(known(weight, count));
    velocities_.push_back(known(velocity, count));
    gradients_.push_back(known(gradient, count));
    sgd_ = sgd;
    scale_ = scale;
    waiting_updates_ += count;
    if (waiting_updates_ >= kAtOnce) apply();
  }
  void apply() override {
    if (weights_.empty()) return;
    const std::size_t timed = timed_.size();
    if (times_updates_) {
      timed_.push_back(unused_.empty() ? TimedUpdate(device_.type()) : std::move(unused_.back()));
      if (!unused_.empty()) unused_.pop_back();
      timed_[timed].from.record(guard_.getStream(device_));
    }
    run_updates();
    if (times_updates_) timed_[timed].to.record(guard_.getStream(device_));
    forget_updates();
  }
  void to_host(const float* from, float* host, std::size_t count) override {
    const torch::NoGradGuard no_grad;
    on_host(host, count).copy_(here(from, count));
  }
  void from_host(const float* host, float* to, std::size_t count) override {
    const torch::NoGradGuard no_grad;
    here(to, count).copy_(on_host(const_cast<float*>(host), count));
  }
  void start_to_host(const float* from, float* host, std::size_t count,
                     std::size_t number) override {
    const torch::NoGradGuard no_grad;
    on_host(host, count).copy_(here(from, count), /*non_blocking=*/true);
    note_copy(number);
  }
  void start_from_host(const float* host, float* to, std::size_t count,
                       std::size_t number) override {
    const torch::NoGradGuard no_grad;
    here(to, count).copy_(on_host(const_cast<float*>(host), count), /*non_blocking=*/true);
    note_copy(number);
  }
  void copied(std::size_t number) override { await(copies_.at(number)); }
  [[nodiscard]] std::shared_ptr<float> allocate_host(std::size_t count) override {
    // Page-locking takes about a second for what BERT-Large needs, and every plan that is tried
    // needs it.
    if (host_.use_count() != 1 || host_count_ < count) {
      host_.reset();
      host_ = page_locked(count);
      host_count_ = count;
    }
    return host_;
  }
  void leave_computation() override {
    guard_.setDevice(device_);
    guard_.exchangeStream(guard_.getStreamFromGlobalPool(device_));
  }
  void complete() override {
    complete_or_fail([] {});
  }
  void complete_or_fail(const std::function<void()>& check) override {
    c10::Event event(device_.type());
    event.record(guard_.getStream(device_));
    await(event, check);
  }
  [[nodiscard]] void* stream() override { return handle_of(guard_.getStream(device_)); }
  void aside(GpuOrder& queue, std::size_t number, const std::function<void()>& work) override {
    if (!side_) side_ = guard_.getStreamFromGlobalPool(device_, /*isHighPriority=*/true);
    while (sides_.size() <= number) sides_.emplace_back(device_.type());
    queue.hold_back(handle_of(*side_), number);
    const c10::StreamGuard here_now(*side_);
    work();
    if (!weights_.empty()) return updates_.put_off(number);
    sides_[number].record(*side_);
    updates_.done(number);
  }
  void join(std::size_t number) override {
    sides_.at(updates_.done_with(number)).block(guard_.getStream(device_));
  }
  void stamp(std::size_t place) override {
    while (stamps_.size() <= place)
      stamps_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    stamps_[place].record(guard_.getStream(device_));
  }
  [[nodiscard]] double between_us([[maybe_unused]] std::size_t from,
                                  [[maybe_unused]] std::size_t to) override {
#if TORCH_VERSION_MAJOR >= 2
    return stamps_.at(from).elapsedTime(stamps_.at(to)) * 1e3;
#else
    return 0;
#endif
  }
  void time_updates(bool wanted) override {
    times_updates_ = wanted;
    if (!wanted) return;
    // Those of a step whose sums stay open end in the next.
    const auto done = std::stable_partition(timed_.begin(), timed_.end(),
                                            [](const auto& each) { return !each.to.query(); });
    std::move(done, timed_.end(), std::back_inserter(unused_));
    timed_.erase(done, timed_.end());
  }
  [[nodiscard]] std::vector<TimeSpan> updates_since([[maybe_unused]] std::size_t place) override {
    std::vector<TimeSpan> ran;
#if TORCH_VERSION_MAJOR >= 2
    const c10::Event& start = stamps_.at(place);
    for (const TimedUpdate& each : timed_)
      if (each.to.query())
        ran.push_back({start.elapsedTime(each.from) * 1e3, start.elapsedTime(each.to) * 1e3});
#endif
    return ran;
  }
  void mark(std::size_t number) override {
    while (marks_.size() <= number) marks_.emplace_back(device_.type());
    marks_[number].record(guard_.getStream(device_));
  }
  void reached(std::size_t number) override { await(marks_[number]); }
  [[nodiscard]] bool has_reached(std::size_t number) override { return marks_[number].query(); }

 private:
  struct TimedUpdate {
    explicit TimedUpdate(c10::DeviceType type)
        : from(type, c10::EventFlag::BACKEND_DEFAULT), to(type, c10::EventFlag::BACKEND_DEFAULT) {}
    c10::Event from;
    c10::Event to;
  };

  static std::int64_t size(std::size_t count) { return static_cast<std::int64_t>(count); }
  [[nodiscard]] at::TensorOptions options() const {
    return at::TensorOptions().dtype(at::kFloat).device(device_);
  }
  [[nodiscard]] Tensor here(const float* data, std::size_t count) const {
    // The device is named: otherwise the driver is asked whose memory it is.
    const std::array<std::int64_t, 1> sizes{size(count)};
    return at::for_blob(const_cast<float*>(data), sizes)
        .options(options())
        .target_device(device_)
        .make_tensor();
  }
  [[nodiscard]] static void* handle_of([[maybe_unused]] const c10::Stream& stream) {
#ifdef DYNAMICCL_TORCH_CUDA
    return c10::cuda::CUDAStream(stream).stream();
#else
    throw Error(ErrorKind::environment, "this libtorch has no streams of GPUs");
#endif
  }
  /// The same as a tensor made once: updates come back in every step.
  const Tensor& known(const float* data, std::size_t count) {
    Tensor& tensor = known_[data];
    if (!tensor.defined() || tensor.numel() != size(count)) tensor = here(data, count);
    return tensor;
  }
  /// Not from the tensor library's allocator, which rounds up to a power of two and keeps all of
  /// it.
  [[nodiscard]] static std::shared_ptr<float> page_locked([[maybe_unused]] std::size_t count) {
#ifdef DYNAMICCL_TORCH_CUDA
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, count * sizeof(float)), "cudaMallocHost");
    return {static_cast<float*>(memory), [](float* at) { cudaFreeHost(at); }};
#else
    throw Error(ErrorKind::environment, "this libtorch has no page-locked memory");
#endif
  }
  /// The velocity is that of the sum, and the rate is scaled: it saves a pass over the gradients.
  void run_updates() {
    const torch::NoGradGuard no_grad;
    const double rate = static_cast<double>(sgd_.rate) * scale_;
#if TORCH_VERSION_MAJOR >= 2
    // The fused update refuses a momentum of 0, which a codec that has it itself leaves (DGC).
    if (sgd_.momentum == 0) {
      at::_foreach_copy_(velocities_, gradients_);
      at::_foreach_add_(weights_, gradients_, -rate);
      return;
    }
    at::_fused_sgd_(weights_, gradients_, velocities_, /*weight_decay=*/0, sgd_.momentum, rate,
                    /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false,
                    /*is_first_step=*/false);
#else
    at::_foreach_mul_(velocities_, sgd_.momentum);
    at::_foreach_add_(velocities_, gradients_);
    at::_foreach_add_(weights_, velocities_, -rate);
#endif
  }
  void forget_updates() {
    weights_.clear();
    velocities_.clear();
    gradients_.clear();
    waiting_updates_ = 0;
  }
  static Tensor on_host(float* data, std::size_t count) {
    return torch::from_blob(data, {size(count)}, at::kFloat);
  }
  void note_copy(std::size_t number) {
    while (copies_.size() <= number) copies_.emplace_back(device_.type());
    copies_[number].record(guard_.getStream(device_));
  }
  /// Asks instead of blocking: the call that blocks is not in every release.
  static void await(const c10::Event& event, const std::function<void()>& check = {}) {
    for (unsigned turn = 1; !event.query(); ++turn) {
      if (check && turn % kTurnsPerCheck == 0) check();
      std::this_thread::yield();
    }
  }

  torch::Device device_;
  c10::impl::VirtualGuardImpl guard_;
  /// One per gradient, made before another thread looks at them: the profile marks all of them.
  std::deque<c10::Event> marks_;
  std::deque<c10::Event> stamps_;
  std::deque<c10::Event> copies_;    ///< to and from host memory
  std::optional<c10::Stream> side_;  ///< for what goes during the computation
  std::deque<c10::Event> sides_;
  PutOff updates_;  ///< of what goes there
  std::unordered_map<const float*, Tensor> known_;
  std::shared_ptr<float> host_;  ///< page-locked, and how many floats it has
  std::size_t host_count_ = 0;
  std::vector<Tensor> weights_;  ///< updates that were put off, all of one optimizer
  std::vector<Tensor> velocities_;
  std::vector<Tensor> gradients_;
  std::size_t waiting_updates_ = 0;  ///< their elements
  bool times_updates_ = false;
  std::vector<TimedUpdate> timed_;
  std::vector<TimedUpdate> unused_;  ///< events that are made, for the next ones
  std::vector<Tensor> sources_;      ///< copies that were put off
  std::vector<Tensor> places_;
  std::size_t waiting_copies_ = 0;
  Sgd sgd_;
  float scale_ = 1;
};

}  // namespace

std::unique_ptr<TensorMemory> make_gpu_memory(torch::Device device) {
  return std::make_unique<GpuMemory>(device);
}

}  // namespace dynamiccl
