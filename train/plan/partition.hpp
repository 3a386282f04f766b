#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "train/plan/merge.hpp"

namespace dynamiccl {

/// Part of the flat gradient buffer that travels as one message.
struct Piece {
  std::size_t offset = 0;  ///< elements
  std::size_t count = 0;   ///< elements
  std::size_t first = 0;   ///< gradients that it touches: [first, last)
  std::size_t last = 0;
  int server = 0;  ///< which server sums it; 0 without servers
};

/// Cuts each group into pieces of at most `most` elements, none empty: together they cover every
/// element of the groups exactly once, in order.
/// @param counts elements of each gradient, in the buffer's order
std::vector<Piece> cut(const std::vector<std::size_t>& counts, const std::vector<Group>& groups,
                       std::size_t most);

/// Gives every piece a server, largest piece first to the one with the least so far: no server has
/// more than the mean plus the largest piece.
void assign_servers(std::vector<Piece>& pieces, int servers);

/// Bytes-in-flight rule of ByteScheduler: which waiting pieces start next, most urgent first, until
/// the credit is used up; the first may overdraw it, so that a piece larger than the credit moves.
/// Urgent is what the next forward pass needs first: the gradients that were finished last.
/// @param waiting indices into `pieces`; what is taken is removed
std::vector<std::size_t> take_urgent(const std::vector<Piece>& pieces,
                                     std::vector<std::size_t>& waiting, std::size_t credit);

/// The pieces [first, last) with elements of this gradient: neighbours, as pieces lie in the
/// gradients' order.
std::pair<std::size_t, std::size_t> pieces_of(const std::vector<Piece>& pieces,
                                              std::size_t gradient);

}  // namespace dynamiccl
