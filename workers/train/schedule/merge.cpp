#include "workers/train/schedule/merge.hpp"

#include <algorithm>
#include <limits>

namespace dynamiccl {
namespace {

std::vector<std::size_t> prefix_bytes(const std::vector<Gradient>& gradients) {
  std::vector<std::size_t> sums{0};
  for (const auto& gradient : gradients) sums.push_back(sums.back() + gradient.bytes);
  return sums;
}

}  // namespace

double finish_us(const std::vector<Gradient>& gradients, const std::vector<Group>& groups,
                 const Cost& cost) {
  const auto sums = prefix_bytes(gradients);
  double end = 0;
  for (const auto& group : groups) {
    if (group.first == group.last) continue;
    end = std::max(end, gradients[group.last - 1].ready_us) +
          cost(sums[group.last] - sums[group.first]);
  }
  return end;
}

std::vector<Group> optimal_merge(const std::vector<Gradient>& gradients, const Cost& cost) {
  const std::size_t count = gradients.size();
  const auto sums = prefix_bytes(gradients);
  std::vector<double> best(count + 1, std::numeric_limits<double>::infinity());
  std::vector<std::size_t> from(count + 1, 0);
  best[0] = 0;
  for (std::size_t j = 1; j <= count; ++j) {
    for (std::size_t i = 0; i < j; ++i) {
      const double end = std::max(best[i], gradients[j - 1].ready_us) + cost(sums[j] - sums[i]);
      if (end < best[j]) {
        best[j] = end;
        from[j] = i;
      }
    }
  }
  std::vector<Group> groups;
  for (std::size_t j = count; j > 0; j = from[j]) groups.push_back({from[j], j});
  std::reverse(groups.begin(), groups.end());
  return groups;
}

std::vector<Group> greedy_merge(const std::vector<Gradient>& gradients, const Cost& cost,
                                double start_up_us) {
  std::vector<Group> groups;
  double channel_free = 0;
  std::size_t first = 0;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    bytes += gradients[i].bytes;
    const double start = std::max(channel_free, gradients[i].ready_us);
    if (i + 1 < gradients.size()) {
      const double next = gradients[i + 1].ready_us;
      const bool in_time = next < start + cost(bytes);
      if (in_time && (start > next || next - start < start_up_us)) continue;
    }
    groups.push_back({first, i + 1});
    channel_free = start + cost(bytes);
    first = i + 1;
    bytes = 0;
  }
  return groups;
}

std::vector<Group> each_alone(std::size_t gradients) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < gradients; ++i) groups.push_back({i, i + 1});
  return groups;
}

std::vector<Group> all_together(std::size_t gradients) {
  if (gradients == 0) return {};
  return {{0, gradients}};
}

std::vector<Group> up_to(const std::vector<Gradient>& gradients, std::size_t bytes) {
  std::vector<Group> groups;
  std::size_t first = 0;
  std::size_t sum = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (i > first && sum + gradients[i].bytes > bytes) {
      groups.push_back({first, i});
      first = i;
      sum = 0;
    }
    sum += gradients[i].bytes;
  }
  if (first < gradients.size()) groups.push_back({first, gradients.size()});
  return groups;
}

std::vector<Group> filled(const std::vector<Gradient>& gradients, std::size_t first,
                          std::size_t bytes) {
  std::vector<Group> groups;
  std::size_t begin = 0;
  std::size_t sum = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    sum += gradients[i].bytes;
    if (sum < (groups.empty() ? first : bytes) && i + 1 < gradients.size()) continue;
    groups.push_back({begin, i + 1});
    begin = i + 1;
    sum = 0;
  }
  return groups;
}

}  // namespace dynamiccl
