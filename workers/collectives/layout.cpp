#include "workers/collectives/layout.hpp"

#include <fmt/format.h>

#include <climits>

namespace dynamiccl {
namespace {

/// One rank's input, from element `first` on.
ExpectedPart from_one(int rank, std::size_t offset, std::size_t count, std::uint64_t first) {
  return {offset, count, first, rank, rank, -1};
}
/// The sum of all ranks' inputs, from element `first` on.
ExpectedPart from_all(const Place& place, std::size_t count, std::uint64_t first) {
  return {0, count, first, 0, place.ranks - 1, -1};
}
/// The sum of the workers' inputs, without the server's.
ExpectedPart from_workers(const Place& place, std::size_t count) {
  return {0, count, 0, 0, place.ranks - 1, place.server_rank};
}

bool needs_two_ranks(Collective collective) {
  return collective == Collective::sendrecv || collective == Collective::push ||
         collective == Collective::pull || collective == Collective::push_pull;
}

/// @param parts as many as hold an element at least
std::string too_small(const WorkCell& cell, std::uint64_t parts) {
  const std::uint64_t width = element_bytes(cell.datatype);
  if (cell.size.count() >= width * parts) return "";
  return fmt::format("{} is less than one {} for each of {} parts ({} B)", format_bytes(cell.size),
                     name_of(cell.datatype), parts, width * parts);
}

std::string size_misfit(const WorkCell& cell, const Place& place) {
  const SizeRule rule = facts_of(cell.collective).size;
  if (rule == SizeRule::nothing || cell.size.count() == 0) return "";
  if (rule != SizeRule::uneven)
    return too_small(cell, rule == SizeRule::parts ? static_cast<std::uint64_t>(place.ranks) : 1);
  const WorkSettings settings = work_settings_of(cell.knobs);
  if (auto misfit = too_small(cell, least_elements(settings, place.ranks)); !misfit.empty())
    return misfit;
  if (cell.in_place && cell.collective == Collective::alltoallv)
    return "alltoallv has no in-place form: what comes in differs from what goes out";
  // By a list, one rank may get all that the others send.
  const auto most = settings.parts.empty() || cell.collective != Collective::alltoallv
                        ? INT_MAX
                        : INT_MAX / place.ranks;
  if (cell.size.count() / element_bytes(cell.datatype) > static_cast<std::uint64_t>(most))
    return fmt::format("{} counts elements with an int: at most {} here", name_of(cell.collective),
                       most);
  return "";
}

std::string why_unsupported(const WorkCell& cell, const Place& place) {
  if (!belongs_to(cell.collective, place.architecture)) {
    return fmt::format("{} does not belong to the {} architecture", name_of(cell.collective),
                       name_of(place.architecture));
  }
  if (place.ranks < 2 && needs_two_ranks(cell.collective))
    return fmt::format("{} needs at least 2 ranks", name_of(cell.collective));
  if (auto misfit = work_settings_misfit(cell, place.architecture, place.ranks, false);
      !misfit.empty())
    return misfit;
  if (auto misfit = size_misfit(cell, place); !misfit.empty()) return misfit;
  if (DataSource(0, cell.datatype, place.ranks).range() < 2) {
    return fmt::format("sums over {} ranks are not exact in {}, so they could not be verified",
                       place.ranks, name_of(cell.datatype));
  }
  return {};
}

/// Where the root sends, the last receiver is the highest other rank.
int last_but(int root, const Place& place) {
  return root == place.ranks - 1 && place.ranks > 1 ? place.ranks - 2 : place.ranks - 1;
}

void lay_out_sums(Layout& layout, const WorkCell& cell, const Place& place, std::size_t elements) {
  const bool at_root = place.rank == layout.root;
  layout.count = layout.in_elements = elements;
  layout.last_receiver = place.ranks - 1;
  if (cell.collective == Collective::reduce) {
    layout.rooted = true;
    layout.last_receiver = layout.root;
  }
  if (cell.collective == Collective::reduce_scatter) {
    layout.count = layout.out_elements = elements / static_cast<std::size_t>(place.ranks);
    layout.in_elements = layout.count * static_cast<std::size_t>(place.ranks);
    layout.in_place_offset = layout.count * static_cast<std::size_t>(place.rank);
    layout.out_inside_in = true;
    layout.expected = {from_all(place, layout.count, layout.in_place_offset)};
  } else if (cell.collective == Collective::allreduce || at_root) {
    layout.out_elements = elements;
    layout.expected = {from_all(place, elements, 0)};
  }
}

void lay_out_parts(Layout& layout, const WorkCell& cell, const Place& place, std::size_t elements) {
  const auto ranks = static_cast<std::size_t>(place.ranks);
  const bool all_to_all = cell.collective == Collective::alltoall;
  layout.count = elements / ranks;
  layout.in_elements = all_to_all ? layout.count * ranks : layout.count;
  layout.last_receiver = place.ranks - 1;
  if (cell.collective == Collective::gather) {
    layout.rooted = true;
    layout.last_receiver = layout.root;
    if (place.rank != layout.root) return;
  }
  layout.out_elements = layout.count * ranks;
  const std::size_t own = layout.count * static_cast<std::size_t>(place.rank);
  if (!all_to_all) layout.in_place_offset = own;
  for (int r = 0; r < place.ranks; ++r) {
    const std::size_t offset = layout.count * static_cast<std::size_t>(r);
    layout.expected.push_back(from_one(r, offset, layout.count, all_to_all ? own : 0));
  }
}

void lay_out_root_parts(Layout& layout, const Place& place, std::size_t elements) {
  const auto ranks = static_cast<std::size_t>(place.ranks);
  const bool at_root = place.rank == layout.root;
  layout.rooted = true;
  layout.count = layout.out_elements = elements / ranks;
  layout.in_elements = at_root ? layout.count * ranks : 0;
  const std::size_t own = layout.count * static_cast<std::size_t>(place.rank);
  layout.out_inside_in = true;
  if (at_root) layout.in_place_offset = own;
  layout.expected = {from_one(layout.root, 0, layout.count, own)};
  layout.last_receiver = last_but(layout.root, place);
}

void lay_out_pairs(Layout& layout, const WorkCell& cell, const Place& place, std::size_t elements) {
  const auto own = static_cast<std::size_t>(place.rank);
  const auto parts = [&, settings = work_settings_of(cell.knobs)](int rank) {
    return uneven_parts(settings, cell.collective, elements, place.ranks, rank);
  };
  const bool all_to_all = cell.collective == Collective::alltoallv;
  layout.count = elements;
  layout.last_receiver = place.ranks - 1;
  const auto mine = parts(place.rank);
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (int peer = 0; peer < place.ranks; ++peer) {
    const auto theirs = all_to_all ? parts(peer) : mine;
    const auto at = static_cast<std::size_t>(all_to_all ? place.rank : peer);
    // Where the peer keeps what it sends to this rank: after its parts for the ranks before.
    std::uint64_t first = 0;
    for (std::size_t before = 0; all_to_all && before < own; ++before) first += theirs[before];
    if (theirs[at] > 0) layout.expected.push_back(from_one(peer, received, theirs[at], first));
    layout.pairs.send.push_back(static_cast<int>(mine[static_cast<std::size_t>(peer)]));
    layout.pairs.send_at.push_back(static_cast<int>(sent));
    layout.pairs.receive.push_back(static_cast<int>(theirs[at]));
    layout.pairs.receive_at.push_back(static_cast<int>(received));
    sent += mine[static_cast<std::size_t>(peer)];
    received += theirs[at];
  }
  layout.in_elements = all_to_all ? sent : mine[own];
  layout.out_elements = received;
  if (!all_to_all) layout.in_place_offset = static_cast<std::size_t>(layout.pairs.receive_at[own]);
}

void lay_out_moves(Layout& layout, const WorkCell& cell, const Place& place, std::size_t elements) {
  const bool at_root = place.rank == layout.root;
  const int left = (place.rank + place.ranks - 1) % place.ranks;
  layout.count = elements;
  layout.last_receiver = place.ranks - 1;
  switch (cell.collective) {
    case Collective::sendrecv:
      layout.in_elements = layout.out_elements = elements;
      layout.expected = {from_one(left, 0, elements, 0)};
      return;
    case Collective::broadcast:
      layout.rooted = layout.one_buffer = true;
      layout.in_elements = at_root ? elements : 0;
      layout.out_elements = elements;
      layout.expected = {from_one(layout.root, 0, elements, 0)};
      break;
    case Collective::pull:
      layout.rooted = true;
      layout.in_elements = at_root ? elements : 0;
      layout.out_elements = at_root ? 0 : elements;
      if (!at_root) layout.expected = {from_one(layout.root, 0, elements, 0)};
      break;
    case Collective::push:
      layout.rooted = true;
      layout.in_elements = at_root ? 0 : elements;
      layout.out_elements = at_root ? elements : 0;
      if (at_root) layout.expected = {from_workers(place, elements)};
      layout.last_receiver = layout.root;
      return;
    default:  // push_pull
      layout.in_elements = at_root ? 0 : elements;
      layout.out_elements = elements;
      layout.expected = {from_workers(place, elements)};
      return;
  }
  layout.last_receiver = last_but(layout.root, place);
}

std::uint64_t payload_of(const Layout& layout, const WorkCell& cell, const Place& place) {
  const auto ranks = static_cast<std::uint64_t>(place.ranks);
  const std::uint64_t others = ranks - 1;
  const std::uint64_t size = layout.used_bytes;
  const bool at_root = place.rank == layout.root;
  switch (cell.collective) {
    case Collective::allreduce:
      return 2 * size * others / ranks;
    case Collective::allgather:
    case Collective::reduce_scatter:
    case Collective::alltoall:
      return size * others / ranks;
    case Collective::alltoallv:
    case Collective::allgatherv:
      return size -
             static_cast<std::uint64_t>(layout.pairs.send[static_cast<std::size_t>(place.rank)]) *
                 element_bytes(cell.datatype);
    case Collective::gather:
    case Collective::scatter:
      return at_root ? 0 : size / ranks;
    case Collective::sendrecv:
      return ranks > 1 ? size : 0;
    case Collective::push_pull:
      return at_root ? 0 : 2 * size;
    default:
      return at_root ? 0 : size;
  }
}

}  // namespace

Layout layout_of(const WorkCell& cell, const Place& place) {
  Layout layout;
  layout.unsupported = why_unsupported(cell, place);
  if (!layout.unsupported.empty()) return layout;
  layout.root = place.architecture == Architecture::ps ? place.server_rank
                                                       : work_settings_of(cell.knobs).root;
  const std::size_t width = element_bytes(cell.datatype);
  const SizeRule rule = facts_of(cell.collective).size;
  const std::size_t elements = rule == SizeRule::nothing ? 0 : cell.size.count() / width;
  switch (cell.collective) {
    case Collective::allreduce:
    case Collective::reduce:
    case Collective::reduce_scatter:
      lay_out_sums(layout, cell, place, elements);
      break;
    case Collective::allgather:
    case Collective::gather:
    case Collective::alltoall:
      lay_out_parts(layout, cell, place, elements);
      break;
    case Collective::scatter:
      lay_out_root_parts(layout, place, elements);
      break;
    case Collective::alltoallv:
    case Collective::allgatherv:
      lay_out_pairs(layout, cell, place, elements);
      break;
    case Collective::barrier:
      layout.last_receiver = place.ranks - 1;
      break;
    default:
      lay_out_moves(layout, cell, place, elements);
  }
  layout.used_bytes = rule == SizeRule::parts
                          ? layout.count * static_cast<std::size_t>(place.ranks) * width
                          : elements * width;
  layout.payload_bytes = payload_of(layout, cell, place);
  // Of nothing there is nothing to look at.
  if (elements == 0) layout.expected.clear();
  return layout;
}

}  // namespace dynamiccl
