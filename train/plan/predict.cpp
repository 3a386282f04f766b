#include "train/plan/predict.hpp"

#include <algorithm>
#include <optional>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

constexpr int kSteps = 8;  // the last one is in the steady state
/// A core is never taken away whole, whatever a disturbed measurement says.
constexpr double kLeastPace = 0.05;

/// One worker and its channel: walks through steps as the worker does, event by event.
class Simulation {
 public:
  Simulation(TrainingMethod method, const StepProfile& profile, const std::vector<Piece>& pieces,
             const LinkCost& link, std::size_t credit_bytes)
      : profile_(profile),
        pieces_(pieces),
        link_(link),
        credit_bytes_(credit_bytes),
        crosses_(crosses_barrier(method)),
        by_urgency_(method_row(method).order == SendOrder::by_urgency),
        waits_for_all_(method_row(method).order == SendOrder::after_backward),
        served_(method_row(method).sums == SumPlace::server),
        splits_(method_row(method).split),
        open_(profile.gradients.size(), 0) {
    for (const auto& gradient : profile.gradients) bytes_ += static_cast<double>(gradient.bytes);
  }

  StepPrediction run() {
    for (int i = 0; i < kSteps; ++i) {
      result_ = {};
      const double start_us = now_us_;
      step();
      result_.step_us = now_us_ - start_us;
    }
    return result_;
  }

 private:
  struct Message {
    std::size_t piece;
    bool second;      ///< the all-gather of a split all-reduce
    double alone_us;  ///< on idle processors
    double busy_us;   ///< while the worker computes
    double pace;      ///< of the computation meanwhile, 1 = undisturbed
    double left = 1;  ///< share that is still to be sent
  };

  void step() {
    const auto& stages = profile_.stage_forward_us;
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      if (crosses_) settle(static_cast<int>(stage));
      compute(stages[stage]);
    }
    if (stages.empty()) {
      if (crosses_) settle(-1);
      compute(profile_.forward_us);
    }
    begin_sending();
    double at_us = 0;
    for (std::size_t i = 0; i < profile_.gradients.size(); ++i) {
      const double ready_us = profile_.gradients[i].ready_us;
      compute(ready_us - at_us);
      at_us = std::max(at_us, ready_us);
      finished(i);
    }
    compute(profile_.backward_us - at_us);
    if (!crosses_) settle(-1);
    first_ = false;
  }

  /// Waits for and applies the sums of one stage, or of all (-1), as the worker does.
  void settle(int stage) {
    if (crosses_ && first_) return;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      if (stage >= 0 && profile_.stage_of_gradient[i] != stage) continue;
      const double start_us = now_us_;
      while (open_[i] > 0) {
        DYN_ASSERT(message_.has_value(), "every gradient is under way before it is waited for");
        const double rest_us = message_->left * message_->alone_us;
        now_us_ += rest_us;
        result_.sending_us += rest_us;
        complete();
      }
      result_.exposed_us += now_us_ - start_us;
      if (bytes_ > 0)
        compute(profile_.update_us * static_cast<double>(profile_.gradients[i].bytes) / bytes_);
    }
  }

  /// @param work_us by an undisturbed worker
  void compute(double work_us) {
    while (work_us > 0) {
      if (!message_) {
        spend(work_us);
        return;
      }
      const double to_message_us = message_->left * message_->busy_us;
      const double to_end_us = work_us / message_->pace;
      const double passed_us = std::min(to_message_us, to_end_us);
      spend(passed_us);
      result_.sending_us += passed_us;
      work_us = to_end_us <= to_message_us ? 0 : work_us - passed_us * message_->pace;
      if (to_message_us <= to_end_us) {
        complete();
      } else {
        message_->left -= passed_us / message_->busy_us;
      }
    }
  }

  void spend(double us) {
    now_us_ += us;
    result_.computing_us += us;
  }

  void begin_sending() {
    const std::size_t count = pieces_.size();
    std::fill(open_.begin(), open_.end(), 0);
    missing_.assign(count, 0);
    started_.assign(count, false);
    for (std::size_t i = 0; i < count; ++i) {
      missing_[i] = pieces_[i].last - pieces_[i].first;
      for (std::size_t g = pieces_[i].first; g < pieces_[i].last; ++g) ++open_[g];
    }
    all_missing_ = open_.size();
    next_ = 0;
    halves_done_ = 0;
    seconds_left_ = splits_ ? count : 0;
    batch_.clear();
    parked_.clear();
  }

  /// The backward pass has this gradient.
  void finished(std::size_t gradient) {
    --all_missing_;
    const auto [first, last] = pieces_of(pieces_, gradient);
    for (std::size_t i = first; i < last; ++i) --missing_[i];
    if (all_missing_ == 0) {
      for (const std::size_t parked : parked_) arrived(parked);
      parked_.clear();
    }
    start_next();
  }

  [[nodiscard]] bool is_ready(std::size_t piece) const {
    return waits_for_all_ ? all_missing_ == 0 : missing_[piece] == 0;
  }

  std::optional<std::size_t> next_piece() {
    if (!by_urgency_) {
      if (next_ == pieces_.size() || !is_ready(next_)) return std::nullopt;
      return next_++;
    }
    if (batch_.empty()) {
      std::vector<std::size_t> waiting;
      for (std::size_t i = 0; i < pieces_.size(); ++i)
        if (!started_[i] && is_ready(i)) waiting.push_back(i);
      if (waiting.empty()) return std::nullopt;
      batch_ = take_urgent(pieces_, waiting, credit_bytes_);
      std::reverse(batch_.begin(), batch_.end());
    }
    const std::size_t piece = batch_.back();
    batch_.pop_back();
    return piece;
  }

  void start_next() {
    if (message_) return;
    if (const auto piece = next_piece()) {
      started_[*piece] = true;
      message_ = message(*piece, false);
    } else if (splits_ && halves_done_ == pieces_.size() && seconds_left_ > 0) {
      message_ = message(--seconds_left_, true);
    }
  }

  [[nodiscard]] Message message(std::size_t piece, bool second) const {
    const std::size_t bytes = pieces_[piece].count * sizeof(float);
    const double alone_us = (second ? link_.second : link_.time)(bytes);
    if (link_.busy_time.points().empty()) return {piece, second, alone_us, alone_us, 1};
    const double busy_us = (second ? link_.busy_second : link_.busy_time)(bytes);
    const double both_us = link_.busy_time(bytes) + link_.busy_second(bytes);
    const double lost = both_us > 0 ? link_.lost(bytes) / both_us : 0;
    return {piece, second, alone_us, busy_us, std::clamp(1 - lost, kLeastPace, 1.0)};
  }

  void complete() {
    const Message done = *message_;
    message_.reset();
    if (splits_ && !done.second) {
      ++halves_done_;
    } else if (served_ && all_missing_ > 0) {
      // Answers are taken in once all is sent.
      parked_.push_back(done.piece);
    } else {
      arrived(done.piece);
    }
    start_next();
  }

  void arrived(std::size_t piece) {
    for (std::size_t g = pieces_[piece].first; g < pieces_[piece].last; ++g) --open_[g];
  }

  const StepProfile& profile_;
  const std::vector<Piece>& pieces_;
  const LinkCost& link_;
  std::size_t credit_bytes_;
  bool crosses_;
  bool by_urgency_;
  bool waits_for_all_;
  bool served_;
  bool splits_;
  double bytes_ = 0;
  bool first_ = true;
  double now_us_ = 0;
  StepPrediction result_;
  std::optional<Message> message_;
  std::vector<std::size_t> open_;     ///< of each gradient: pieces whose sum is not there
  std::vector<std::size_t> missing_;  ///< of each piece: gradients that are not ready
  std::vector<bool> started_;
  std::vector<std::size_t> batch_;   ///< what urgency chose, the next at the end
  std::vector<std::size_t> parked_;  ///< answered, but not taken in
  std::size_t all_missing_ = 0;
  std::size_t next_ = 0;
  std::size_t halves_done_ = 0;
  std::size_t seconds_left_ = 0;
};

}  // namespace

StepPrediction predict_step(TrainingMethod method, const StepProfile& profile,
                            const std::vector<Piece>& pieces, const LinkCost& link,
                            std::size_t credit_bytes) {
  return Simulation(method, profile, pieces, link, credit_bytes).run();
}

}  // namespace dynamiccl
