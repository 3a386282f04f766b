#include "tuner/agents/belief.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/digest.hpp"

namespace dynamiccl {
namespace {

/// Place of "default" on a resource axis: away from every number, yet not beyond all likeness.
constexpr double kDefaultResource = -100;
constexpr double kDefaultDistance = 1.5;  // in resource scales

std::uint64_t number_of(const std::string& text) {
  return std::stoull(stable_id(text), nullptr, 16);
}

std::uint32_t short_hash(std::string_view text) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

double square(double x) { return x * x; }

}  // namespace

BeliefView make_view(const Task& task, const BeliefOptions& options) {
  const ActionSpace& space = *task.space;
  auto arms = std::make_shared<std::vector<BeliefArm>>();
  for (const Action& action : space.arms()) {
    BeliefArm arm;
    for (std::size_t k = 0; k < space.knobs().size(); ++k) {
      const Knob& knob = space.knobs()[k];
      if (knob.role == KnobRole::implementation) {
        arm.implementation.push_back(short_hash(knob.values[action[k]]));
      } else {
        // A resource that is no number (a transport list, say) keeps its place in the list.
        const auto magnitude = space.magnitude(k, action[k]);
        arm.resources.push_back(action[k] == 0 ? kDefaultResource
                                : magnitude    ? *magnitude
                                               : 3.0 * action[k]);
      }
    }
    arms->push_back(std::move(arm));
  }
  BeliefView view;
  const TaskKey& key = task.key.task;
  view.task = {.id = number_of(task.key.regime + "|" + key.text()),
               .regime = number_of(task.key.regime + "|" + std::string(name_of(key.backend)) + "|" +
                                   std::string(name_of(key.architecture))),
               .collective = static_cast<int>(key.collective),
               .group_size = key.group_size,
               .log2_size = static_cast<double>(key.bin.log2)};
  view.prior.assign(arms->size(), 0);
  if (task.prior_log_us.size() == arms->size() && !arms->empty()) {
    const double level = std::accumulate(task.prior_log_us.begin(), task.prior_log_us.end(), 0.0) /
                         static_cast<double>(arms->size());
    for (std::size_t a = 0; a < arms->size(); ++a)
      view.prior[a] =
          level + options.prior_weight * std::clamp(task.prior_log_us[a] - level, -2.0, 2.0);
  }
  view.arms = std::move(arms);
  return view;
}

TimeBelief::TimeBelief(const BeliefOptions& options, std::size_t capacity)
    : options_(options), capacity_(std::max<std::size_t>(capacity, 2)) {}

double TimeBelief::task_kernel(const BeliefTask& a, const BeliefTask& b) const {
  double k = std::exp(-0.5 * square((a.log2_size - b.log2_size) / options_.size_scale));
  if (a.regime != b.regime) k *= options_.other_regime;
  if (a.collective != b.collective) k *= options_.other_collective;
  if (a.group_size != b.group_size)
    k *= std::exp(-0.5 * square(std::log2(static_cast<double>(a.group_size) / b.group_size) / 2));
  return k;
}

double TimeBelief::kernel(const BeliefTask& ta, const BeliefArm& a, const BeliefTask& tb,
                          const BeliefArm& b) const {
  const bool same_task = ta.id == tb.id;
  const double shared = same_task ? 1 : task_kernel(ta, tb);
  double k = same_task ? square(options_.task_sd) : 0;
  if (shared < 1e-4) return k;
  double implementation = 1;
  if (a.implementation.size() != b.implementation.size()) {
    implementation = options_.other_implementation;
  } else {
    for (std::size_t i = 0; i < a.implementation.size(); ++i)
      if (a.implementation[i] != b.implementation[i])
        implementation *= options_.other_implementation;
  }
  double resource = a.resources.size() == b.resources.size() ? 1 : 0;
  if (resource > 0) {
    double distance = 0;
    for (std::size_t i = 0; i < a.resources.size(); ++i) {
      const bool da = a.resources[i] == kDefaultResource;
      const bool db = b.resources[i] == kDefaultResource;
      if (da && db) continue;
      distance += da || db ? square(kDefaultDistance)
                           : square((a.resources[i] - b.resources[i]) / options_.resource_scale);
    }
    resource = std::exp(-0.5 * distance);
  }
  k += shared * implementation *
       (square(options_.implementation_sd) + square(options_.resource_sd) * resource);
  if (same_task && implementation == 1 && resource == 1) k += square(options_.arm_sd);
  return k;
}

Eigen::VectorXd TimeBelief::row_for(const BeliefTask& task, const BeliefArm& arm) const {
  Eigen::VectorXd row(static_cast<Eigen::Index>(points_.size()));
  for (std::size_t i = 0; i < points_.size(); ++i)
    row[static_cast<Eigen::Index>(i)] =
        kernel(points_[i].task, (*points_[i].arms)[points_[i].arm], task, arm);
  return row;
}

void TimeBelief::append(const Point& point) {
  const auto n = static_cast<Eigen::Index>(points_.size());
  const BeliefArm& arm = (*point.arms)[point.arm];
  const Eigen::VectorXd row = row_for(point.task, arm);
  if (factor_.rows() <= n) {
    const Eigen::Index size = std::max<Eigen::Index>(32, 2 * n);
    factor_.conservativeResize(size, size);
    whitened_.conservativeResize(size);
  }
  const auto lower = factor_.topLeftCorner(n, n).triangularView<Eigen::Lower>();
  const Eigen::VectorXd solved = lower.solve(row);
  const double self =
      kernel(point.task, arm, point.task, arm) + square(options_.noise_sd) - solved.squaredNorm();
  const double diagonal = std::sqrt(std::max(self, 1e-10));
  factor_.row(n).head(n) = solved.transpose();
  factor_(n, n) = diagonal;
  whitened_[n] = (point.log_us - point.prior - solved.dot(whitened_.head(n))) / diagonal;
  points_.push_back(point);
}

void TimeBelief::rebuild() {
  std::vector<Point> kept;
  kept.swap(points_);
  for (const Point& point : kept) append(point);
}

void TimeBelief::observe(const BeliefView& view, std::size_t arm, double log_us) {
  const auto [expected, variance] = marginal(view, arm);
  const double reach = 6 * std::sqrt(variance + square(options_.noise_sd));
  if (points_.size() >= capacity_) {
    points_.erase(points_.begin(), points_.begin() + static_cast<std::ptrdiff_t>(capacity_ / 2));
    rebuild();
  }
  ++version_;
  append({view.task, view.arms, arm, view.prior[arm],
          std::clamp(log_us, expected - reach, expected + reach)});
}

std::pair<double, double> TimeBelief::marginal(const BeliefView& view, std::size_t arm) const {
  const auto n = static_cast<Eigen::Index>(points_.size());
  const BeliefArm& chosen = view.arms->at(arm);
  const double self = kernel(view.task, chosen, view.task, chosen);
  if (n == 0) return {view.prior[arm], self};
  const Eigen::VectorXd solved =
      factor_.topLeftCorner(n, n).triangularView<Eigen::Lower>().solve(row_for(view.task, chosen));
  return {view.prior[arm] + solved.dot(whitened_.head(n)),
          std::max(self - solved.squaredNorm(), 1e-10)};
}

Eigen::MatrixXd TimeBelief::solved_for(const BeliefView& view) const {
  const auto arms = static_cast<Eigen::Index>(view.arms->size());
  const auto n = static_cast<Eigen::Index>(points_.size());
  Eigen::MatrixXd cross(n, arms);
  for (Eigen::Index a = 0; a < arms; ++a)
    cross.col(a) = row_for(view.task, (*view.arms)[static_cast<std::size_t>(a)]);
  factor_.topLeftCorner(n, n).triangularView<Eigen::Lower>().solveInPlace(cross);
  return cross;
}

PosteriorMargins TimeBelief::margins(const BeliefView& view) const {
  const auto arms = static_cast<Eigen::Index>(view.arms->size());
  const auto n = static_cast<Eigen::Index>(points_.size());
  PosteriorMargins result;
  result.mean = Eigen::Map<const Eigen::VectorXd>(view.prior.data(), arms);
  const BeliefArm& any = view.arms->front();
  result.variance = Eigen::VectorXd::Constant(arms, kernel(view.task, any, view.task, any));
  if (n == 0) {
    result.solved.resize(0, arms);
    return result;
  }
  result.solved = solved_for(view);
  result.mean.noalias() += result.solved.transpose() * whitened_.head(n);
  result.variance -= result.solved.colwise().squaredNorm().transpose();
  return result;
}

Eigen::VectorXd TimeBelief::covariance_with(const BeliefView& view, const PosteriorMargins& margins,
                                            std::size_t arm) const {
  Eigen::VectorXd column(static_cast<Eigen::Index>(view.arms->size()));
  for (Eigen::Index a = 0; a < column.size(); ++a)
    column[a] =
        kernel(view.task, (*view.arms)[static_cast<std::size_t>(a)], view.task, (*view.arms)[arm]);
  column.noalias() -=
      margins.solved.transpose() * margins.solved.col(static_cast<Eigen::Index>(arm));
  return column;
}

Posterior TimeBelief::posterior(const BeliefView& view) const {
  const auto arms = static_cast<Eigen::Index>(view.arms->size());
  const auto n = static_cast<Eigen::Index>(points_.size());
  Posterior result;
  result.mean = Eigen::Map<const Eigen::VectorXd>(view.prior.data(), arms);
  result.covariance.resize(arms, arms);
  for (Eigen::Index i = 0; i < arms; ++i)
    for (Eigen::Index j = 0; j <= i; ++j)
      result.covariance(i, j) = result.covariance(j, i) =
          kernel(view.task, (*view.arms)[static_cast<std::size_t>(i)], view.task,
                 (*view.arms)[static_cast<std::size_t>(j)]);
  if (n == 0) return result;
  const Eigen::MatrixXd solved = solved_for(view);
  result.mean += solved.transpose() * whitened_.head(n);
  result.covariance.noalias() -= solved.transpose() * solved;
  return result;
}

void TimeBelief::forget(std::uint64_t task) {
  const auto gone = std::remove_if(points_.begin(), points_.end(),
                                   [&](const Point& point) { return point.task.id == task; });
  if (gone == points_.end()) return;
  ++version_;
  points_.erase(gone, points_.end());
  rebuild();
}

}  // namespace dynamiccl
