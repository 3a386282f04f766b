#include "train/plan/partition.hpp"

#include <algorithm>
#include <numeric>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

/// The gradients that elements [from, to) belong to.
void set_gradients(Piece& piece, const std::vector<std::size_t>& ends) {
  const auto index = [&](std::size_t element) {
    return static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), element) -
                                    ends.begin());
  };
  piece.first = index(piece.offset);
  piece.last = index(piece.offset + piece.count - 1) + 1;
}

}  // namespace

std::vector<Piece> cut(const std::vector<std::size_t>& counts, const std::vector<Group>& groups,
                       std::size_t most) {
  DYN_ASSERT(most > 0, "a piece has at least one element");
  std::vector<std::size_t> ends(counts.size());
  std::partial_sum(counts.begin(), counts.end(), ends.begin());
  std::vector<Piece> pieces;
  for (const auto& group : groups) {
    if (group.first == group.last) continue;
    const std::size_t begin = group.first == 0 ? 0 : ends[group.first - 1];
    const std::size_t end = ends[group.last - 1];
    for (std::size_t at = begin; at < end; at += most) {
      Piece piece;
      piece.offset = at;
      piece.count = std::min(most, end - at);
      set_gradients(piece, ends);
      pieces.push_back(piece);
    }
  }
  return pieces;
}

void assign_servers(std::vector<Piece>& pieces, int servers) {
  DYN_ASSERT(servers > 0, "pieces need a server");
  std::vector<std::size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return pieces[a].count > pieces[b].count; });
  std::vector<std::size_t> load(static_cast<std::size_t>(servers), 0);
  for (const std::size_t index : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += pieces[index].count;
    pieces[index].server = static_cast<int>(least - load.begin());
  }
}

std::vector<std::size_t> take_urgent(const std::vector<Piece>& pieces,
                                     std::vector<std::size_t>& waiting, std::size_t credit) {
  // Later in the buffer means later in the backward pass, so sooner in the forward pass.
  std::sort(waiting.begin(), waiting.end(),
            [&](std::size_t a, std::size_t b) { return pieces[a].offset > pieces[b].offset; });
  std::vector<std::size_t> taken;
  std::size_t bytes = 0;
  while (taken.size() < waiting.size()) {
    const std::size_t next = pieces[waiting[taken.size()]].count * sizeof(float);
    if (!taken.empty() && bytes + next > credit) break;
    bytes += next;
    taken.push_back(waiting[taken.size()]);
  }
  waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(taken.size()));
  return taken;
}

std::pair<std::size_t, std::size_t> pieces_of(const std::vector<Piece>& pieces,
                                              std::size_t gradient) {
  const auto first = std::partition_point(pieces.begin(), pieces.end(),
                                          [&](const Piece& p) { return p.last <= gradient; });
  const auto last = std::partition_point(first, pieces.end(),
                                         [&](const Piece& p) { return p.first <= gradient; });
  return {static_cast<std::size_t>(first - pieces.begin()),
          static_cast<std::size_t>(last - pieces.begin())};
}

}  // namespace dynamiccl
