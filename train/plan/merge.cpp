#include "train/plan/merge.hpp"

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

std::vector<Group> optimal_merge(const std::vector<Gradient>& gradients, const Cost& cost) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const std::size_t count = gradients.size();
  if (count == 0) return {};
  const auto sums = prefix_bytes(gradients);
  // costs[j][i]: of the group [i, j).
  std::vector<std::vector<double>> costs(count + 1);
  std::vector<double> best(count + 1, kNever);
  best[0] = 0;
  for (std::size_t j = 1; j <= count; ++j) {
    for (std::size_t i = 0; i < j; ++i) {
      costs[j].push_back(cost(sums[j] - sums[i]));
      best[j] = std::min(best[j], std::max(best[i], gradients[j - 1].ready_us) + costs[j][i]);
    }
  }
  // Where the channel is idle before the last group, those before it need not be the earliest ones.
  std::vector<double> ends(count + 1, kNever);  // of the first gradients in so many groups
  ends[0] = 0;
  std::vector<std::vector<std::size_t>> from;
  while (ends[count] > best[count]) {
    std::vector<double> next(count + 1, kNever);
    from.emplace_back(count + 1, 0);
    for (std::size_t j = 1; j <= count; ++j) {
      for (std::size_t i = 0; i < j; ++i) {
        const double end = std::max(ends[i], gradients[j - 1].ready_us) + costs[j][i];
        if (end >= next[j]) continue;
        next[j] = end;
        from.back()[j] = i;
      }
    }
    ends = std::move(next);
  }
  std::vector<Group> groups;
  for (std::size_t j = count; j > 0; j = groups.back().first) {
    groups.push_back({from.back()[j], j});
    from.pop_back();
  }
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
