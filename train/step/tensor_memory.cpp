#include "train/step/tensor_memory.hpp"

#include <algorithm>

#include "workers/clock.hpp"
#include "workers/collectives/sum.hpp"

namespace dynamiccl {
namespace {

class HostMemory final : public TensorMemory {
 public:
  [[nodiscard]] bool on_gpu() const override { return false; }
  [[nodiscard]] std::shared_ptr<float> allocate(std::size_t count) override {
    auto owner = std::make_shared<std::vector<float>>(count, 0.0F);
    return {owner, owner->data()};
  }
  void copy(const float* from, float* to, std::size_t count) override {
    std::copy_n(from, count, to);
  }
  void copy_later(const float* from, float* to, std::size_t count) override {
    copy(from, to, count);
  }
  void flush_copies() override {}
  [[nodiscard]] bool copies_wait() const override { return false; }
  void clear(float* at, std::size_t count) override { std::fill_n(at, count, 0.0F); }
  void add(float* sum, const float* more, std::size_t count) override {
    sum_elements(sum, sum, more, count, DataType::float32);
  }
  void update(const Sgd& sgd, float* weight, float* velocity, const float* gradient, float scale,
              std::size_t count) override {
    sgd_update(sgd, weight, velocity, gradient, scale, count);
  }
  void apply() override {}
  void to_host(const float* from, float* host, std::size_t count) override {
    std::copy_n(from, count, host);
  }
  void from_host(const float* host, float* to, std::size_t count) override {
    std::copy_n(host, count, to);
  }
  void complete() override {}
  void stamp(std::size_t place) override {
    stamps_.resize(std::max(stamps_.size(), place + 1));
    stamps_[place] = now_us();
  }
  [[nodiscard]] double between_us(std::size_t from, std::size_t to) override {
    return stamps_.at(to) - stamps_.at(from);
  }
  void mark(std::size_t /*number*/) override {}
  void reached(std::size_t /*number*/) override {}

 private:
  std::vector<double> stamps_;
};

}  // namespace

void TensorMemory::blend(float* to, float keep, const float* from, float share, std::size_t count) {
  if (share == 0) {
    for (std::size_t i = 0; i < count; ++i) to[i] = keep == 0 ? 0.0F : keep * to[i];
  } else if (keep == 0) {
    for (std::size_t i = 0; i < count; ++i) to[i] = share * from[i];
  } else {
    for (std::size_t i = 0; i < count; ++i) to[i] = keep * to[i] + share * from[i];
  }
}

void TensorMemory::aside(GpuOrder& /*queue*/, std::size_t /*number*/,
                         const std::function<void()>& /*work*/) {
  throw Error(ErrorKind::bug, "host memory has no queue of its own");
}

void TensorMemory::join(std::size_t /*number*/) {
  throw Error(ErrorKind::bug, "host memory has no queue of its own");
}

std::unique_ptr<TensorMemory> make_host_memory() { return std::make_unique<HostMemory>(); }

}  // namespace dynamiccl
