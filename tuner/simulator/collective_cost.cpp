#include "tuner/simulator/collective_cost.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace dynamiccl {
namespace {

double rounds_of_doubling(const CollectiveShape& s) {
  return std::ceil(std::log2(static_cast<double>(s.ranks)));
}

double segments_of(double bytes, double segment) {
  return segment > 0 && segment < bytes ? std::ceil(bytes / segment) : 1;
}

/// `hops` stations in a row pass `bytes` on in segments; each sends `copies` of everything.
CollectiveWork pipelined(double hops, double bytes, double segment, double copies, bool sums) {
  const double count = segments_of(bytes, segment);
  const double unit = bytes / count;
  const double steps = hops + count - 1;
  return {steps * copies, steps * unit * copies, sums ? steps * unit : 0};
}

using Model = CollectiveWork (*)(const CollectiveShape&);
struct ModelRow {
  Collective collective;
  std::string_view name;
  Model work;
  MessagePattern pattern;
};

double n_of(const CollectiveShape& s) { return s.ranks; }
/// (n-1)/n of the whole buffer.
double share(const CollectiveShape& s) { return s.bytes * (n_of(s) - 1) / n_of(s); }

CollectiveWork ring_allreduce(const CollectiveShape& s) {
  return {2 * (n_of(s) - 1), 2 * share(s), share(s)};
}
CollectiveWork segmented_ring(const CollectiveShape& s) {
  const double chunk = s.bytes / n_of(s);
  const double count = segments_of(chunk, s.segment > 0 ? s.segment : 1 << 20);
  // All but the last segment of a step is summed while the next one travels.
  return {2 * (n_of(s) - 1) * count, 2 * share(s), share(s) / count};
}
CollectiveWork doubling_allreduce(const CollectiveShape& s) {
  const double rounds = rounds_of_doubling(s);
  return {rounds, rounds * s.bytes, rounds * s.bytes};
}
CollectiveWork rabenseifner(const CollectiveShape& s) {
  return {2 * rounds_of_doubling(s), 2 * share(s), share(s)};
}
CollectiveWork tree_twice(const CollectiveShape& s) {
  const double rounds = rounds_of_doubling(s);
  return {2 * rounds, 2 * rounds * s.bytes, rounds * s.bytes};
}
CollectiveWork double_tree(const CollectiveShape& s) {
  return {2 * rounds_of_doubling(s), 2 * s.bytes, s.bytes};
}
CollectiveWork linear_twice(const CollectiveShape& s) {
  const double others = n_of(s) - 1;
  return {2 * others, 2 * others * s.bytes, others * s.bytes};
}
CollectiveWork in_network(const CollectiveShape& s) { return {2, s.bytes, 0}; }

CollectiveWork linear_to_all(const CollectiveShape& s) {
  const double others = n_of(s) - 1;
  return {others, others * s.bytes, 0};
}
CollectiveWork binomial(const CollectiveShape& s) {
  const double rounds = rounds_of_doubling(s);
  if (segments_of(s.bytes, s.segment) <= 1) return {rounds, rounds * s.bytes, 0};
  // The root sends every segment to log n children.
  return pipelined(rounds, s.bytes, s.segment, std::max(1.0, rounds), false);
}
CollectiveWork chain(const CollectiveShape& s) {
  const double fanout = std::clamp(s.fanout > 0 ? s.fanout : 4, 1.0, n_of(s) - 1);
  return pipelined(std::ceil((n_of(s) - 1) / fanout), s.bytes, s.segment, fanout, false);
}
CollectiveWork pipeline(const CollectiveShape& s) {
  return pipelined(n_of(s) - 1, s.bytes, s.segment, 1, false);
}
CollectiveWork binary_tree(const CollectiveShape& s) {
  const double depth = std::floor(std::log2(n_of(s)));
  return pipelined(std::max(1.0, depth), s.bytes, s.segment, s.ranks > 2 ? 2 : 1, false);
}
CollectiveWork split_binary(const CollectiveShape& s) {
  CollectiveShape half = s;
  half.bytes = s.bytes / 2;
  CollectiveWork work = binary_tree(half);
  work.rounds += 1;
  work.volume += half.bytes;
  return work;
}
CollectiveWork knomial(const CollectiveShape& s) {
  const double radix = std::max(2.0, s.fanout > 0 ? s.fanout : 4);
  const double rounds = std::ceil(std::log(n_of(s)) / std::log(radix) - 1e-9);
  const double sends = std::min(radix - 1, n_of(s) - 1);
  return pipelined(std::max(1.0, rounds), s.bytes, s.segment, sends, false);
}
CollectiveWork scatter_doubling(const CollectiveShape& s) {
  return {2 * rounds_of_doubling(s), 2 * share(s), 0};
}
CollectiveWork scatter_ring(const CollectiveShape& s) {
  return {rounds_of_doubling(s) + n_of(s) - 1, 2 * share(s), 0};
}

CollectiveWork ring_gather(const CollectiveShape& s) { return {n_of(s) - 1, share(s), 0}; }
CollectiveWork doubling_gather(const CollectiveShape& s) {
  return {rounds_of_doubling(s), share(s), 0};
}
CollectiveWork bruck(const CollectiveShape& s) {
  // The final rotation copies the whole buffer once.
  return {rounds_of_doubling(s), share(s), s.bytes / 4};
}
CollectiveWork neighbor(const CollectiveShape& s) { return {n_of(s) / 2, share(s), 0}; }

CollectiveWork reduce_linear(const CollectiveShape& s) {
  const double others = n_of(s) - 1;
  return {others, others * s.bytes, others * s.bytes};
}
template <Model Spread>
CollectiveWork reversed(const CollectiveShape& s) {
  CollectiveWork work = Spread(s);
  work.summed = work.volume;
  return work;
}
CollectiveWork reduce_scatter_ring(const CollectiveShape& s) {
  return {n_of(s) - 1, share(s), share(s)};
}
CollectiveWork halving(const CollectiveShape& s) {
  return {rounds_of_doubling(s), share(s), share(s)};
}

// What our server does where nothing is said (Pipelining in workers/collectives).
constexpr double kServerSegment = 1 << 18;
constexpr double kServerDepth = 2;

/// The next segment of a worker is sent when one of those under way has come. With one alone
/// nothing travels while the server sums.
CollectiveWork server_push(const CollectiveShape& s) {
  const double workers = n_of(s) - 1;
  const double count = segments_of(s.bytes, s.segment > 0 ? s.segment : kServerSegment);
  const double depth = s.depth > 0 ? s.depth : kServerDepth;
  const double summed = depth > 1 ? s.bytes / count : s.bytes;
  return {workers * std::max(1.0, count / depth), workers * s.bytes, workers * summed};
}
CollectiveWork server_push_pull(const CollectiveShape& s) {
  const double workers = n_of(s) - 1;
  const double shards = std::clamp(s.shards, 1.0, std::max(1.0, s.bytes / 4));
  CollectiveShape shard = s;
  shard.bytes = s.bytes / shards;
  const CollectiveWork in = server_push(shard);
  // Each shard but the last is answered while the next one comes.
  return {shards * in.rounds + workers, shards * in.volume + workers * shard.bytes,
          shards * in.summed};
}

using enum Collective;
using enum MessagePattern;
/// Of names for one model the first is the one given.
constexpr std::array kModels{
    ModelRow{allreduce, "ring", ring_allreduce, neighbours},
    ModelRow{allreduce, "own_ring", segmented_ring, neighbours},
    ModelRow{allreduce, "segmented_ring", segmented_ring, neighbours},
    ModelRow{allreduce, "recursive_doubling", doubling_allreduce, exchange},
    ModelRow{allreduce, "rabenseifner", rabenseifner, exchange_near},
    ModelRow{allreduce, "reduce_scatter_allgather", rabenseifner, exchange_near},
    ModelRow{allreduce, "bcube", rabenseifner, exchange_near},
    ModelRow{allreduce, "nonoverlapping", tree_twice, tree},
    ModelRow{allreduce, "basic_linear", linear_twice, root},
    ModelRow{allreduce, "tree", double_tree, pipelined_tree},
    ModelRow{allreduce, "nvls", in_network, in_switch},
    ModelRow{allreduce, "nvls_tree", double_tree, in_switch},
    ModelRow{allreduce, "collnet_direct", in_network, in_switch},
    ModelRow{allreduce, "collnet_chain", ring_allreduce, in_switch},
    ModelRow{broadcast, "basic_linear", linear_to_all, root},
    ModelRow{broadcast, "chain", chain, neighbours},
    ModelRow{broadcast, "pipeline", pipeline, neighbours},
    ModelRow{broadcast, "ring", pipeline, neighbours},
    ModelRow{broadcast, "split_binary_tree", split_binary, pipelined_tree},
    ModelRow{broadcast, "binary_tree", binary_tree, pipelined_tree},
    ModelRow{broadcast, "binomial", binomial, tree},
    ModelRow{broadcast, "knomial", knomial, tree},
    ModelRow{broadcast, "scatter_allgather", scatter_doubling, exchange_far},
    ModelRow{broadcast, "scatter_recursive_doubling_allgather", scatter_doubling, exchange_far},
    ModelRow{broadcast, "scatter_allgather_ring", scatter_ring, neighbours},
    ModelRow{broadcast, "scatter_ring_allgather", scatter_ring, neighbours},
    ModelRow{allgather, "ring", ring_gather, neighbours},
    ModelRow{allgather, "linear", ring_gather, neighbours},
    ModelRow{allgather, "own_ring", ring_gather, neighbours},
    ModelRow{allgather, "two_proc", ring_gather, neighbours},
    ModelRow{allgather, "bruck", bruck, exchange_far},
    ModelRow{allgather, "brucks", bruck, exchange_far},
    ModelRow{allgather, "recursive_doubling", doubling_gather, exchange_far},
    ModelRow{allgather, "neighbor", neighbor, neighbours},
    ModelRow{allgather, "pat", doubling_gather, exchange_far},
    ModelRow{allgather, "nvls", in_network, in_switch},
    ModelRow{reduce, "linear", reduce_linear, root},
    ModelRow{reduce, "chain", reversed<chain>, neighbours},
    ModelRow{reduce, "pipeline", reversed<pipeline>, neighbours},
    ModelRow{reduce, "ring", reversed<pipeline>, neighbours},
    ModelRow{reduce, "binary", reversed<binary_tree>, pipelined_tree},
    ModelRow{reduce, "in-order_binary", reversed<binary_tree>, pipelined_tree},
    ModelRow{reduce, "binomial", reversed<binomial>, tree},
    ModelRow{reduce, "rabenseifner", rabenseifner, exchange_near},
    ModelRow{reduce, "reduce_scatter_gather", rabenseifner, exchange_near},
    ModelRow{reduce_scatter, "own_ring", reduce_scatter_ring, neighbours},
    ModelRow{reduce_scatter, "ring", reduce_scatter_ring, neighbours},
    ModelRow{reduce_scatter, "pairwise", reduce_scatter_ring, neighbours},
    ModelRow{reduce_scatter, "recursive_halving", halving, exchange_far},
    ModelRow{reduce_scatter, "butterfly", halving, exchange_far},
    ModelRow{reduce_scatter, "recursive_doubling", doubling_allreduce, exchange},
    ModelRow{reduce_scatter, "noncommutative", halving, exchange_far},
    ModelRow{reduce_scatter, "basic_linear", linear_twice, root},
    ModelRow{reduce_scatter, "pat", halving, exchange_far},
    ModelRow{reduce_scatter, "nvls", in_network, in_switch},
    ModelRow{gather, "binomial", doubling_gather, exchange_far},
    ModelRow{alltoall, "modified_bruck", bruck, exchange},
    ModelRow{alltoall, "brucks", bruck, exchange},
    ModelRow{push, "library", server_push, root},
    ModelRow{pull, "library", linear_to_all, root},
    ModelRow{push_pull, "library", server_push_pull, root},
};

const ModelRow* find_model(std::string_view algorithm, Collective collective) {
  for (const ModelRow& row : kModels)
    if (row.collective == collective && row.name == algorithm) return &row;
  return nullptr;
}

/// What a collective costs without any cleverness.
CollectiveWork linear_work(const CollectiveShape& shape) {
  switch (shape.collective) {
    case allreduce:
      return linear_twice(shape);
    case broadcast:
    case pull:
      return linear_to_all(shape);
    case reduce:
      return reduce_linear(shape);
    case push:
      return server_push(shape);
    case push_pull:
      return server_push_pull(shape);
    case reduce_scatter:
      return reduce_scatter_ring(shape);
    default:
      return ring_gather(shape);
  }
}

}  // namespace

CollectiveWork collective_work(std::string_view algorithm, const CollectiveShape& shape) {
  if (shape.ranks <= 1) return {};
  const ModelRow* row = find_model(algorithm, shape.collective);
  return row != nullptr ? row->work(shape) : linear_work(shape);
}

MessagePattern pattern_of(std::string_view algorithm, Collective collective) {
  const ModelRow* row = find_model(algorithm, collective);
  return row != nullptr ? row->pattern : root;
}

std::vector<std::string_view> modelled_algorithms(Collective collective) {
  std::vector<std::string_view> names;
  std::vector<const ModelRow*> given;
  for (const ModelRow& row : kModels) {
    const bool same = std::any_of(given.begin(), given.end(), [&](const ModelRow* other) {
      return other->work == row.work && other->pattern == row.pattern;
    });
    if (row.collective != collective || row.pattern == in_switch || same) continue;
    given.push_back(&row);
    names.push_back(row.name);
  }
  return names;
}

CollectiveWork device_work(std::string_view algorithm, const CollectiveShape& shape) {
  const auto as = [&](Collective collective) {
    CollectiveShape other = shape;
    other.collective = collective;
    return collective_work(algorithm, other);
  };
  switch (shape.collective) {
    case push:
      return as(reduce);
    case pull:
      return as(broadcast);
    case push_pull: {
      const CollectiveWork in = as(reduce);
      const CollectiveWork out = as(broadcast);
      return {in.rounds + out.rounds, in.volume + out.volume, in.summed + out.summed};
    }
    default:
      return collective_work(algorithm, shape);
  }
}

}  // namespace dynamiccl
