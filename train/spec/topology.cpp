#include "train/spec/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/vocabulary/splitmix64.hpp"

namespace dynamiccl {
namespace {

/// Rows of the grid: the largest divisor up to the square root.
int rows_of(int workers) {
  int rows = static_cast<int>(std::sqrt(static_cast<double>(workers)));
  while (rows > 1 && workers % rows != 0) --rows;
  return std::max(rows, 1);
}

std::set<int> ring_neighbours(int workers, int worker) {
  return {(worker + 1) % workers, (worker + workers - 1) % workers};
}

std::set<int> torus_neighbours(int workers, int worker) {
  const int rows = rows_of(workers);
  const int columns = workers / rows;
  const int row = worker / columns;
  const int column = worker % columns;
  return {row * columns + (column + 1) % columns, row * columns + (column + columns - 1) % columns,
          (row + 1) % rows * columns + column, (row + rows - 1) % rows * columns + column};
}

/// The same share of everyone, oneself too.
Mixing even(const std::set<int>& from, const std::set<int>& to) {
  Mixing mixing;
  const double share = 1.0 / static_cast<double>(from.size() + 1);
  mixing.self = share;
  for (const int worker : from) mixing.from.push_back({worker, share});
  mixing.to.assign(to.begin(), to.end());
  return mixing;
}

/// Who stands next to whom in a shuffled row; with an odd number the last one stays alone.
Mixing random_pair(int workers, int worker, std::uint64_t round, std::uint64_t seed) {
  std::vector<int> row(static_cast<std::size_t>(workers));
  std::iota(row.begin(), row.end(), 0);
  std::uint64_t state = seed;
  state = splitmix64_next(state) ^ round;
  for (std::size_t i = row.size(); i > 1; --i)
    std::swap(row[i - 1], row[splitmix64_next(state) % i]);
  const auto at = static_cast<std::size_t>(std::find(row.begin(), row.end(), worker) - row.begin());
  const std::size_t other = at ^ 1U;
  if (other >= row.size()) return {};
  return even({row[other]}, {row[other]});
}

}  // namespace

Mixing mixing_of(PeerGraph topology, int workers, int worker, std::uint64_t round,
                 std::uint64_t seed) {
  if (workers < 2) return {};
  if (topology == PeerGraph::random_pairs) return random_pair(workers, worker, round, seed);
  std::set<int> from;
  std::set<int> to;
  switch (topology) {
    case PeerGraph::ring:
      from = to = ring_neighbours(workers, worker);
      break;
    case PeerGraph::torus:
      from = to = torus_neighbours(workers, worker);
      break;
    case PeerGraph::exponential:
      for (int hop = 1; hop < workers; hop *= 2) {
        to.insert((worker + hop) % workers);
        from.insert((worker + workers - hop) % workers);
      }
      break;
    case PeerGraph::random_pairs:
      break;
  }
  from.erase(worker);
  to.erase(worker);
  return even(from, to);
}

std::string topology_misfit(PeerGraph topology, int workers) {
  if (topology != PeerGraph::torus || rows_of(workers) > 1) return "";
  return fmt::format("{} worker{} no grid of two rows or more: take topology = \"ring\"", workers,
                     workers == 1 ? " fills" : "s fill");
}

double spectral_gap(PeerGraph topology, int workers) {
  const double n = workers;
  if (workers < 2) return 1;
  if (topology == PeerGraph::random_pairs) {
    // A pairing is a projection, so its square is itself; the expectation over all of them has one
    // eigenvalue besides 1.
    const double paired = workers % 2 == 0 ? 1 : (n - 1) / n;
    return 1 - std::sqrt(std::max(0.0, 1 - paired * n / (2 * (n - 1))));
  }
  // Power iteration on what a round and its transpose do to vectors whose mean is 0.
  std::vector<double> x(static_cast<std::size_t>(workers));
  std::uint64_t state = 1;
  for (auto& value : x) value = static_cast<double>(splitmix64_next(state) >> 11);
  constexpr int kRounds = 2000;
  double kept = 0;
  for (int i = 0; i < kRounds; ++i) {
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
    for (auto& value : x) value -= mean;
    const double length = std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
    if (length <= 0) return 1;
    for (auto& value : x) value /= length;
    std::vector<double> mixed(x.size());
    std::vector<double> back(x.size());
    for (std::size_t w = 0; w < x.size(); ++w) {
      const Mixing mixing = mixing_of(topology, workers, static_cast<int>(w), 0, 0);
      mixed[w] = mixing.self * x[w];
      for (const auto& from : mixing.from)
        mixed[w] += from.weight * x[static_cast<std::size_t>(from.worker)];
    }
    kept = std::sqrt(std::inner_product(mixed.begin(), mixed.end(), mixed.begin(), 0.0));
    if (kept < 1e-12) return 1;
    for (std::size_t w = 0; w < x.size(); ++w) {
      const Mixing mixing = mixing_of(topology, workers, static_cast<int>(w), 0, 0);
      back[w] += mixing.self * mixed[w];
      for (const auto& from : mixing.from)
        back[static_cast<std::size_t>(from.worker)] += from.weight * mixed[w];
    }
    x = back;
  }
  return 1 - kept;
}

}  // namespace dynamiccl
