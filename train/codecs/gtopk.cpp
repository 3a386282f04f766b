#include "train/codecs/gtopk.hpp"

namespace dynamiccl {
namespace {

PlacedValue load_placed(const std::uint8_t* frame, std::size_t kept, std::size_t i) {
  return {load_as<std::uint32_t>(frame + kNumberBytes * i),
          load_as<float>(frame + kNumberBytes * (kept + i))};
}

bool comes_first(const PlacedValue& a, const PlacedValue& b) {
  const std::uint32_t of_a = bits_of(a.value) & ~kSignBit;
  const std::uint32_t of_b = bits_of(b.value) & ~kSignBit;
  return of_a != of_b ? of_a > of_b : a.place < b.place;
}

bool stands_before(const PlacedValue& a, const PlacedValue& b) { return a.place < b.place; }

/// Both frames' places in order, values of equal places added.
std::vector<PlacedValue> united(const std::uint8_t* lower, const std::uint8_t* upper,
                                std::size_t kept) {
  std::vector<PlacedValue> all;
  all.reserve(2 * kept);
  std::size_t a = 0;
  std::size_t b = 0;
  while (a < kept || b < kept) {
    const PlacedValue mine = a < kept ? load_placed(lower, kept, a) : PlacedValue{};
    const PlacedValue other = b < kept ? load_placed(upper, kept, b) : PlacedValue{};
    const bool takes_mine = b == kept || (a < kept && mine.place <= other.place);
    const bool takes_other = a == kept || (b < kept && other.place <= mine.place);
    PlacedValue next = takes_mine ? mine : other;
    if (takes_mine && takes_other) next.value += other.value;
    a += takes_mine ? 1 : 0;
    b += takes_other ? 1 : 0;
    all.push_back(next);
  }
  return all;
}

/// What a worker sent and is not in what all merged into goes back to its residual.
void keep_lost(const std::uint8_t* own, const std::uint8_t* merged, std::size_t kept,
               float* residual) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    const PlacedValue mine = load_placed(own, kept, i);
    while (at < kept && load_placed(merged, kept, at).place < mine.place) ++at;
    const bool won = at < kept && load_placed(merged, kept, at).place == mine.place;
    if (!won) residual[mine.place] += mine.value;
  }
}

/// What was dropped where others' values of the same place won is nobody's loss but who dropped
/// it: it goes to that one's residual.
void keep_dropped(std::vector<PlacedValue>& dropped, const std::uint8_t* merged, std::size_t kept,
                  float* residual) {
  std::sort(dropped.begin(), dropped.end(), stands_before);
  std::size_t at = 0;
  for (const PlacedValue& each : dropped) {
    while (at < kept && load_placed(merged, kept, at).place < each.place) ++at;
    if (at < kept && load_placed(merged, kept, at).place == each.place)
      residual[each.place] += each.value;
  }
}

}  // namespace

int merge_parent(int worker) { return worker & (worker - 1); }

std::vector<int> merge_children(int worker, int workers) {
  std::vector<int> children;
  for (int distance = 1; worker + distance < workers; distance *= 2) {
    if ((worker & distance) != 0) break;
    children.push_back(worker + distance);
  }
  return children;
}

void merge_largest(std::uint8_t* lower, const std::uint8_t* upper, std::size_t kept,
                   std::vector<PlacedValue>& dropped) {
  std::vector<PlacedValue> all = united(lower, upper, kept);
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(kept);
  std::nth_element(all.begin(), end - 1, all.end(), comes_first);
  std::sort(all.begin(), end, stands_before);
  for (std::size_t i = 0; i < kept; ++i) {
    store_as(lower + kNumberBytes * i, all[i].place);
    store_as(lower + kNumberBytes * (kept + i), all[i].value);
  }
  dropped.insert(dropped.end(), end, all.end());
}

void GTopK::conclude_merge(const CodedPart& part, const std::uint8_t* own,
                           const std::uint8_t* merged, std::vector<PlacedValue>& dropped) {
  keep_lost(own, merged, kept(part, step()), residual(part));
  keep_dropped(dropped, merged, kept(part, step()), residual(part));
}

std::unique_ptr<GradientCodec> make_gtopk(const CodecSeat& seat) { return codec_at<GTopK>(seat); }

}  // namespace dynamiccl
