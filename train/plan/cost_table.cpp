#include "train/plan/cost_table.hpp"

#include <algorithm>

namespace dynamiccl {

CostTable::CostTable(std::vector<Point> points) : points_(std::move(points)) {
  std::sort(points_.begin(), points_.end(),
            [](const Point& a, const Point& b) { return a.bytes < b.bytes; });
  // A larger message that was once measured faster is noise; a plan built on it would wait for it.
  for (std::size_t i = 1; i < points_.size(); ++i)
    points_[i].time_us = std::max(points_[i].time_us, points_[i - 1].time_us);
}

double CostTable::operator()(std::size_t bytes) const {
  if (points_.empty() || bytes == 0) return 0;
  if (bytes <= points_.front().bytes || points_.size() == 1) return points_.front().time_us;
  auto upper = std::find_if(points_.begin(), points_.end(),
                            [bytes](const Point& p) { return p.bytes >= bytes; });
  if (upper == points_.end()) --upper;
  const Point& b = *upper;
  const Point& a = *(upper - 1);
  const double slope = (b.time_us - a.time_us) / static_cast<double>(b.bytes - a.bytes);
  return a.time_us + slope * static_cast<double>(bytes - a.bytes);
}

double CostTable::start_up_us() const { return points_.empty() ? 0 : points_.front().time_us; }

}  // namespace dynamiccl
