#pragma once

#include <vector>

namespace dynamiccl {

/// Median; the mean of the middle two for an even count. NaN when empty.
double median(std::vector<double> values);
/// Quantile q in [0, 1] by linear interpolation between order statistics. NaN when empty.
double quantile(std::vector<double> values, double q);
double mean(const std::vector<double>& values);
/// Sample standard deviation (n-1). 0 for fewer than two values.
double standard_deviation(const std::vector<double>& values);
/// Median absolute deviation from the median, unscaled.
double median_absolute_deviation(const std::vector<double>& values);
/// Lag-1 autocorrelation. 0 for fewer than three values or no variance.
double lag1_autocorrelation(const std::vector<double>& values);

/// Probability that Student's t with `degrees` > 0 degrees of freedom is at most t.
double student_t_probability(double t, double degrees);
/// Quantile of Student's t distribution with `degrees` > 0 degrees of freedom, 0 < probability < 1.
double student_t_quantile(double probability, double degrees);
/// Quantile of the standard normal distribution.
double normal_quantile(double probability);

}  // namespace dynamiccl
