#include <fmt/format.h>

#include <chrono>
#include <limits>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>

#include "train/torch/engine.hpp"

namespace dynamiccl {
namespace {

using std::chrono::milliseconds;

// As our own Gloo communicator: longer than any healthy call, so that a lost rank ends the others.
constexpr milliseconds kCallTimeout{120'000};

/// Turns the library's exceptions into ours.
template <class F>
auto guarded(const char* what, F&& function) {
  try {
    return function();
  } catch (const std::exception& error) {
    throw Error(ErrorKind::environment, fmt::format("{} failed: {}", what, error.what()));
  }
}

class GlooGroup final : public EngineGroup {
 public:
  explicit GlooGroup(const EngineMeeting& meeting) {
    const milliseconds connect(static_cast<long>(meeting.connect_timeout.count() / 1e3));
    auto store = c10::make_intrusive<c10d::FileStore>(meeting.store_file, meeting.size);
    store->setTimeout(connect);
    auto options = c10d::ProcessGroupGloo::Options::create(kCallTimeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(meeting.interface));
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, meeting.rank, meeting.size,
                                                         std::move(options));
  }
  [[nodiscard]] const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

/// Set up as torch.nn.parallel.DistributedDataParallel does, in the way that costs it least:
/// gradients become views of the buckets (no copy back) and are dropped after each step (no
/// zeroing), and BatchNorm statistics stay each rank's own (broadcast_buffers=False).
class ReducerEngine final : public DataParallelEngine {
 public:
  ReducerEngine(GlooGroup& group, const std::vector<torch::Tensor>& parameters, Bytes bucket,
                bool& engaged)
      : parameters_(parameters), engaged_(engaged) {
    // The first step shows in which order gradients come; until then there is one bucket.
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
        parameters_, {std::numeric_limits<std::size_t>::max()});
    std::unordered_map<std::size_t, std::string> names;
    for (std::size_t i = 0; i < parameters_.size(); ++i) names[i] = std::to_string(i);
    reducer_ = std::make_shared<c10d::Reducer>(
        parameters_, std::move(buckets), std::move(limits), group.group(),
        std::vector<bool>(parameters_.size(), false), static_cast<std::int64_t>(bucket.count()),
        /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true, std::move(names),
        c10d::kDefaultFirstBucketBytes);
    engaged_ = true;
  }
  ~ReducerEngine() override {
    engaged_ = false;
    drop_gradients();
  }

  void begin_step() override {
    guarded("c10d::Reducer", [&] {
      reducer_->prepare_for_forward();
      reducer_->rebuild_buckets();
      reducer_->prepare_for_backward({});
    });
  }
  const float* average(std::size_t parameter) override {
    const torch::Tensor& gradient = parameters_[parameter].grad();
    DYN_ASSERT(gradient.is_contiguous(), "buckets hold gradients as flat memory");
    return gradient.data_ptr<float>();
  }
  void end_step() override { drop_gradients(); }

  [[nodiscard]] std::vector<std::size_t> bucket_bytes() const override {
    std::vector<std::size_t> bytes;
    for (const auto& bucket : reducer_->get_grad_buckets())
      bytes.push_back(static_cast<std::size_t>(bucket.getBuffer().nbytes()));
    return bytes;
  }

 private:
  void drop_gradients() {
    for (auto& parameter : parameters_) parameter.mutable_grad().reset();
  }

  std::vector<torch::Tensor> parameters_;
  bool& engaged_;
  std::shared_ptr<c10d::Reducer> reducer_;
};

}  // namespace

std::string why_no_engine() { return ""; }

std::unique_ptr<EngineGroup> join_engine(const EngineMeeting& meeting) {
  return guarded("connecting PyTorch's ProcessGroupGloo",
                 [&] { return std::make_unique<GlooGroup>(meeting); });
}

std::unique_ptr<DataParallelEngine> make_engine(EngineGroup& group,
                                                const std::vector<torch::Tensor>& parameters,
                                                Bytes bucket, bool& engaged) {
  return std::make_unique<ReducerEngine>(dynamic_cast<GlooGroup&>(group), parameters, bucket,
                                         engaged);
}

}  // namespace dynamiccl
