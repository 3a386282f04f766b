#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace dynamiccl {

/// Microseconds that a message of so many bytes takes.
using Cost = std::function<double(std::size_t bytes)>;

/// Measured times by size. Between two sizes on a straight line; above the largest along the last
/// two; below the smallest its time. A measured table, as one line fits no library: protocols
/// switch and buffers leave the cache.
class CostTable {
 public:
  struct Point {
    std::size_t bytes;
    double time_us;
  };
  CostTable() = default;
  /// @param points any order, sizes differ; empty means that everything is free
  explicit CostTable(std::vector<Point> points);
  [[nodiscard]] double operator()(std::size_t bytes) const;
  [[nodiscard]] const std::vector<Point>& points() const { return points_; }
  /// Start-up time for the published greedy rule, which knows one alpha only: the table's
  /// intercept.
  [[nodiscard]] double start_up_us() const;

 private:
  std::vector<Point> points_;
};

}  // namespace dynamiccl
