#include "tuner/agents/belief.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/vocabulary/digest.hpp"

namespace dynamiccl {
namespace {

/// Place of "default" on a resource axis: away from every number, yet not beyond all likeness.
constexpr double kDefaultResource = -100;
constexpr double kDefaultDistance = 2;  // in resource scales

std::uint64_t number_of(const std::string& text) {
  return std::stoull(stable_id(text), nullptr, 16);
}

std::uint32_t short_hash(std::string_view text) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

double square(double x) { return x * x; }

/// log2 of how many segments a message of 2^log2_size bytes is cut into; 0 where nothing is said.
double pieces_of(const ActionSpace& space, const Action& action, int log2_size) {
  const auto knob = space.knob_index("segment_bytes");
  const auto magnitude = knob ? space.magnitude(*knob, action[*knob]) : std::nullopt;
  return magnitude ? std::max(0.0, log2_size - *magnitude) : 0;
}

}  // namespace

BeliefView make_view(const Task& task) {
  const ActionSpace& space = *task.space;
  const TaskKey& key = task.key.task;
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
    arm.pieces = pieces_of(space, action, key.bin.log2);
    arms->push_back(std::move(arm));
  }
  BeliefView view;
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
          level + task.prior_trust * std::clamp(task.prior_log_us[a] - level, -2.0, 2.0);
  }
  view.arms = std::move(arms);
  return view;
}

TimeBelief::TimeBelief(const BeliefOptions& options, std::size_t capacity)
    : options_(options),
      capacity_(std::max<std::size_t>(capacity, 2)),
      noise_sd_(options.noise_sd) {}

TimeBelief::TaskKernel TimeBelief::task_kernel(const BeliefTask& a, const BeliefTask& b) const {
  TaskKernel k;
  k.same = a.id == b.id;
  const double size = square(a.log2_size - b.log2_size);
  double distance = 0;
  if (a.group_size != b.group_size)
    distance =
        square(std::log2(static_cast<double>(a.group_size) / b.group_size) / options_.ranks_scale);
  double common = k.same || a.regime == b.regime ? 1 : options_.other_regime;
  k.level = common * square(options_.regime_sd);
  if (a.collective != b.collective) common *= options_.other_collective;
  k.level += common * square(options_.level_sd) *
             std::exp(-0.5 * (size / square(options_.level_scale) + distance));
  if (k.same) k.level += square(options_.task_sd);
  k.shared = common * std::exp(-0.5 * (size / square(options_.size_scale) + distance));
  return k;
}

double TimeBelief::arm_kernel(const TaskKernel& tasks, const BeliefArm& a,
                              const BeliefArm& b) const {
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
    if (distance > 0) resource = std::exp(-0.5 * distance);
  }
  // What cutting costs grows with the number of segments, whatever passes them on.
  const double pieces = square(options_.pieces_sd) * a.pieces * b.pieces;
  double k = tasks.level +
             tasks.shared * (pieces + implementation * (square(options_.implementation_sd) +
                                                        square(options_.resource_sd) * resource));
  if (tasks.same && implementation == 1 && resource == 1) k += square(options_.arm_sd);
  return k;
}

double TimeBelief::kernel(const BeliefTask& ta, const BeliefArm& a, const BeliefTask& tb,
                          const BeliefArm& b) const {
  return arm_kernel(task_kernel(ta, tb), a, b);
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
  Eigen::VectorXd row = row_for(point.task, arm);
  if (point.launch)
    for (std::size_t i = 0; i < points_.size(); ++i)
      if (points_[i].launch == point.launch)
        row[static_cast<Eigen::Index>(i)] += options_.launch_share * square(noise_sd_);
  if (factor_.rows() <= n) {
    const Eigen::Index size = std::max<Eigen::Index>(32, 2 * n);
    factor_.conservativeResize(size, size);
    whitened_.conservativeResize(size);
  }
  const auto lower = factor_.topLeftCorner(n, n).triangularView<Eigen::Lower>();
  const Eigen::VectorXd solved = lower.solve(row);
  const double self =
      kernel(point.task, arm, point.task, arm) + square(noise_sd_) - solved.squaredNorm();
  const double diagonal = std::sqrt(std::max(self, 1e-10));
  factor_.row(n).head(n) = solved.transpose();
  factor_(n, n) = diagonal;
  whitened_[n] = (point.log_us - point.prior - solved.dot(whitened_.head(n))) / diagonal;
  points_.push_back(point);
}

void TimeBelief::rebuild() {
  ++generation_;
  std::vector<Point> kept;
  kept.swap(points_);
  for (const Point& point : kept) append(point);
}

void TimeBelief::observe(const BeliefView& view, std::size_t arm, double log_us,
                         std::optional<std::int64_t> launch) {
  const auto [expected, variance] = marginal(view, arm);
  const double reach = 6 * std::sqrt(variance + square(noise_sd_));
  if (points_.size() >= capacity_) {
    points_.erase(points_.begin(), points_.begin() + static_cast<std::ptrdiff_t>(capacity_ / 2));
    rebuild();
  }
  ++version_;
  append({view.task, view.arms, arm, view.prior[arm],
          std::clamp(log_us, expected - reach, expected + reach), launch});
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

PosteriorMargins TimeBelief::margins(const BeliefView& view) const {
  PosteriorMargins result;
  refresh(view, result);
  return result;
}

void TimeBelief::refresh(const BeliefView& view, PosteriorMargins& margins) const {
  const auto arms = static_cast<Eigen::Index>(view.arms->size());
  const auto n = static_cast<Eigen::Index>(points_.size());
  if (margins.generation != generation_) {
    margins.generation = generation_;
    margins.points = 0;
    margins.mean = Eigen::Map<const Eigen::VectorXd>(view.prior.data(), arms);
    margins.variance.resize(arms);
    const TaskKernel self = task_kernel(view.task, view.task);
    for (Eigen::Index a = 0; a < arms; ++a) {
      const BeliefArm& arm = (*view.arms)[static_cast<std::size_t>(a)];
      margins.variance[a] = arm_kernel(self, arm, arm);
    }
    margins.solved.resize(arms, n);
  }
  if (margins.solved.cols() < n)
    margins.solved.conservativeResize(arms, std::max<Eigen::Index>(32, 2 * n));
  // Forward substitution of all new measurements at once.
  const Eigen::Index known = margins.points;
  const Eigen::Index added = n - known;
  if (added == 0) return;
  auto columns = margins.solved.middleCols(known, added);
  for (Eigen::Index i = 0; i < added; ++i) {
    const Point& point = points_[static_cast<std::size_t>(known + i)];
    const TaskKernel tasks = task_kernel(point.task, view.task);
    for (Eigen::Index a = 0; a < arms; ++a)
      columns(a, i) =
          arm_kernel(tasks, (*point.arms)[point.arm], (*view.arms)[static_cast<std::size_t>(a)]);
  }
  columns.noalias() -=
      margins.solved.leftCols(known) * factor_.block(known, 0, added, known).transpose();
  factor_.block(known, known, added, added)
      .transpose()
      .triangularView<Eigen::Upper>()
      .solveInPlace<Eigen::OnTheRight>(columns);
  margins.mean += columns * whitened_.segment(known, added);
  margins.variance -= columns.rowwise().squaredNorm();
  margins.points = n;
}

Eigen::VectorXd PosteriorMargins::solved_for(Eigen::Index arm) const {
  if (points == 0) return {};  // an empty matrix has no place to count from
  return solved.row(arm).head(points).transpose();
}

Eigen::VectorXd TimeBelief::covariance_with(const BeliefView& view, const PosteriorMargins& margins,
                                            std::size_t arm) const {
  return covariance_with(view, margins,
                         {{{&view, arm}}, margins.solved_for(static_cast<Eigen::Index>(arm))});
}

Eigen::MatrixXd TimeBelief::covariance_with(const BeliefView& view, const PosteriorMargins& margins,
                                            const AskedArms& asked) const {
  const auto arms = static_cast<Eigen::Index>(view.arms->size());
  Eigen::MatrixXd covariance(arms, asked.solved.cols());
  for (Eigen::Index c = 0; c < covariance.cols(); ++c) {
    const auto& [other, arm] = asked.places[static_cast<std::size_t>(c)];
    const TaskKernel tasks = task_kernel(other->task, view.task);
    for (Eigen::Index a = 0; a < arms; ++a)
      covariance(a, c) =
          arm_kernel(tasks, (*other->arms)[arm], (*view.arms)[static_cast<std::size_t>(a)]);
  }
  covariance.noalias() -= margins.solved.leftCols(margins.points) * asked.solved;
  return covariance;
}

Posterior TimeBelief::posterior(const BeliefView& view) const {
  return posterior(view, margins(view));
}

Posterior TimeBelief::posterior(const BeliefView& view, const PosteriorMargins& known) const {
  const auto arms = static_cast<Eigen::Index>(view.arms->size());
  Posterior result;
  result.mean = known.mean;
  result.covariance.resize(arms, arms);
  const TaskKernel self = task_kernel(view.task, view.task);
  for (Eigen::Index i = 0; i < arms; ++i)
    for (Eigen::Index j = 0; j <= i; ++j)
      result.covariance(i, j) = result.covariance(j, i) =
          arm_kernel(self, (*view.arms)[static_cast<std::size_t>(i)],
                     (*view.arms)[static_cast<std::size_t>(j)]);
  const auto solved = known.solved.leftCols(known.points);
  result.covariance.noalias() -= solved * solved.transpose();
  return result;
}

void TimeBelief::set_noise(double sd) {
  noise_sd_ = sd;
  ++version_;
  rebuild();
}

double TimeBelief::log_likelihood() const {
  const auto n = static_cast<Eigen::Index>(points_.size());
  return -0.5 * whitened_.head(n).squaredNorm() -
         factor_.topLeftCorner(n, n).diagonal().array().log().sum();
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
