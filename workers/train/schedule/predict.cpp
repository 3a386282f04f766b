#include "workers/train/schedule/predict.hpp"

#include <algorithm>
#include <numeric>

namespace dynamiccl {
namespace {

constexpr int kSteps = 6;  // the last two are in the steady state

/// One channel, one message at a time; knows when each gradient of the last step has arrived.
class Simulation {
 public:
  Simulation(TrainingMethod method, const StepProfile& profile, const std::vector<Piece>& pieces,
             const LinkCost& link)
      : method_(method),
        profile_(profile),
        pieces_(pieces),
        link_(link),
        arrived_(profile.gradients.size(), 0.0) {
    double stolen = 0;
    for (const auto& piece : pieces) stolen += link.cpu(piece.count * sizeof(float));
    const double compute = profile.forward_us + profile.backward_us;
    // What the transport computes meanwhile is missing from the cores that all ranks fill.
    stretch_ = link.cores_are_full && compute > 0 ? 1 + stolen / compute : 1;
  }

  double run() {
    double start = 0;
    double before = 0;
    for (int i = 0; i < kSteps; ++i) {
      before = start;
      start = step(start);
    }
    return start - before;
  }

 private:
  [[nodiscard]] bool crosses() const { return crosses_barrier(method_); }

  /// @returns when the next step may begin
  double step(double now) {
    for (std::size_t stage = 0; stage < profile_.stage_forward_us.size(); ++stage) {
      if (crosses()) now = std::max(now, gate(static_cast<int>(stage)));
      now += profile_.stage_forward_us[stage] * stretch_;
    }
    if (profile_.stage_forward_us.empty()) now += profile_.forward_us * stretch_;
    if (crosses()) now += profile_.update_us;
    const double backward = now;
    const double end = backward + profile_.backward_us * stretch_;
    send(backward);
    if (crosses()) return end;
    const double all = arrived_.empty() ? end : *std::max_element(arrived_.begin(), arrived_.end());
    return std::max(end, all) + profile_.update_us;
  }

  double gate(int stage) {
    double open = 0;
    for (std::size_t i = 0; i < arrived_.size(); ++i) {
      if (profile_.stage_of_gradient[i] == stage) open = std::max(open, arrived_[i]);
    }
    return open;
  }

  [[nodiscard]] double ready(const Piece& piece, double backward) const {
    return backward + profile_.gradients[piece.last - 1].ready_us * stretch_;
  }

  void send(double backward) {
    std::fill(arrived_.begin(), arrived_.end(), 0.0);
    const bool urgent_first =
        method_ == TrainingMethod::bytescheduler_a2a || method_ == TrainingMethod::bytescheduler_ps;
    std::vector<std::size_t> waiting(pieces_.size());
    std::iota(waiting.begin(), waiting.end(), std::size_t{0});
    const double whole_step = backward + profile_.backward_us * stretch_;
    while (!waiting.empty()) {
      const auto next = urgent_first ? most_urgent(waiting, backward) : waiting.begin();
      const Piece& piece = pieces_[*next];
      const double from = method_ == TrainingMethod::bsp_ps ? whole_step : ready(piece, backward);
      channel_ = std::max(channel_, from) + link_.time(piece.count * sizeof(float));
      arrive(piece);
      waiting.erase(next);
    }
    if (method_ == TrainingMethod::dear) second_half();
  }

  /// DeAR's all-gathers, in the order of the forward pass.
  void second_half() {
    for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
      channel_ += link_.second(piece->count * sizeof(float));
      arrive(*piece);
    }
  }

  void arrive(const Piece& piece) {
    for (std::size_t i = piece.first; i < piece.last; ++i)
      arrived_[i] = std::max(arrived_[i], channel_);
  }

  /// Among what is ready when the channel is free the last of the buffer, else the first to be.
  std::vector<std::size_t>::iterator most_urgent(std::vector<std::size_t>& waiting,
                                                 double backward) {
    auto best = waiting.begin();
    for (auto at = waiting.begin(); at != waiting.end(); ++at) {
      if (ready(pieces_[*at], backward) <= channel_) best = at;
    }
    return best;
  }

  TrainingMethod method_;
  const StepProfile& profile_;
  const std::vector<Piece>& pieces_;
  const LinkCost& link_;
  std::vector<double> arrived_;
  double channel_ = 0;
  double stretch_ = 1;
};

}  // namespace

double predicted_step_us(TrainingMethod method, const StepProfile& profile,
                         const std::vector<Piece>& pieces, const LinkCost& link) {
  return Simulation(method, profile, pieces, link).run();
}

}  // namespace dynamiccl
