#include "train/codecs/coded_parts.hpp"

#include <algorithm>

namespace dynamiccl {

std::vector<CodedPart> coded_parts(const ExchangePlan& plan, std::size_t piece) {
  const Piece& whole = plan.pieces[piece];
  std::vector<CodedPart> parts;
  std::size_t start = 0;
  for (std::size_t g = 0; g < whole.last; ++g) {
    const std::size_t end = start + plan.counts[g];
    if (g >= whole.first) {
      const std::size_t from = std::max(start, whole.offset);
      const std::size_t until = std::min(end, whole.offset + whole.count);
      const bool uncut = from == start && until == end;
      const std::size_t rows = uncut && g < plan.rows.size() ? plan.rows[g] : 1;
      if (from < until) parts.push_back({g, from, until - from, rows});
    }
    start = end;
  }
  return parts;
}

std::optional<std::uint64_t> message_bytes(const ExchangePlan& plan, std::size_t piece,
                                           std::uint64_t step) {
  std::uint64_t bytes = 0;
  for (const auto& part : coded_parts(plan, piece)) {
    const auto some = codec_bytes(plan.codec, part.count, part.rows, step);
    if (!some) return std::nullopt;
    bytes += *some;
  }
  // Gathered in words; servers and neighbours take each worker's frames as they are.
  constexpr std::uint64_t kWord = 4;
  const bool gathered = codec_row(plan.codec.codec).sum == CodecSum::gathered &&
                        plan.servers == 0 && method_row(plan.method).sums == SumPlace::all_reduce;
  return gathered ? (bytes + kWord - 1) / kWord * kWord : bytes;
}

}  // namespace dynamiccl
