#include "train/exchange/coded_reducer.hpp"

#include <algorithm>
#include <vector>

#include "train/codecs/gtopk.hpp"
#include "train/codecs/message_codec.hpp"
#include "train/codecs/powersgd.hpp"
#include "train/codecs/sketch.hpp"
#include "train/exchange/agreed_order.hpp"
#include "train/step/worker_step.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kWord = 4;
std::size_t words_of(std::size_t bytes) { return (bytes + kWord - 1) / kWord; }

/// Grows, never shrinks.
class Words {
 public:
  std::uint8_t* bytes(std::size_t wanted) {
    if (words_.size() < words_of(wanted)) words_.resize(words_of(wanted));
    return reinterpret_cast<std::uint8_t*>(words_.data());
  }
  float* floats(std::size_t wanted) {
    return reinterpret_cast<float*>(bytes(wanted * sizeof(float)));
  }
  [[nodiscard]] std::size_t size_bytes() const { return words_.size() * kWord; }

 private:
  std::vector<std::uint32_t> words_;
};

class CodedReducer final : public Reducer {
 public:
  CodedReducer(Communicator& comm, const ExchangePlan& plan, float* gradients)
      : comm_(comm),
        messages_(plan, comm.rank(), comm.size()),
        plan_(messages_.plan()),
        gradients_(gradients),
        codec_(messages_.codec()),
        order_(comm, plan.pieces.size()) {}

  void begin_step() override { messages_.begin_step(); }
  void restart() override { messages_.restart(); }

  bool start(std::size_t index) override {
    const CodecRow& row = codec_row(plan_.codec.codec);
    if (row.kind == CodecKind::low_rank) {
      sum_factors(index);
    } else if (row.kind == CodecKind::sketched) {
      sum_sketched(index);
    } else if (row.sum == CodecSum::reduced) {
      sum_reduced(index);
    } else if (row.sum == CodecSum::merged) {
      sum_merged(index);
    } else {
      sum_gathered(index);
    }
    return true;
  }

  [[nodiscard]] bool chooses() const override { return order_.chooses(); }
  void agree(std::vector<std::size_t>& chosen) override { order_.agree(chosen); }
  [[nodiscard]] std::size_t extra_bytes() const override {
    return codec_.state_bytes() + own_.size_bytes() + all_.size_bytes();
  }
  std::optional<CodingFigures> take_coding() override { return messages_.take_coding(); }

 private:
  float* values_of(const CodedPart& part) { return gradients_ + part.offset; }

  void all_reduce(void* data, std::size_t count, DataType type) {
    const auto ranks = static_cast<std::uint64_t>(comm_.size());
    if (ranks > 1 && count > 0) comm_.allreduce(data, data, count, type);
    comm_.complete();
    sent_bytes_ += 2 * count * element_bytes(type) * (ranks - 1) / ranks;
  }

  std::size_t encode_all(std::size_t index) {
    return messages_.encode(index, gradients_, own_.bytes(messages_.frame_limit(index)));
  }

  void sum_reduced(std::size_t index) {
    const std::size_t bytes = encode_all(index);
    messages_.count(index, bytes);
    const DataType type = codec_.reduced_type();
    all_reduce(own_.bytes(bytes), bytes / element_bytes(type), type);
    messages_.timed(&CodingFigures::decode_us, [&] {
      const std::uint8_t* frame = own_.bytes(bytes);
      for (const auto& part : messages_.parts(index)) {
        codec_.decode(part, codec_.step(), frame, values_of(part));
        frame += codec_.frame_bytes(part, codec_.step(), frame);
      }
    });
  }

  void sum_gathered(std::size_t index) {
    const std::size_t bytes = encode_all(index);
    std::vector<const std::uint8_t*> frames = codec_row(plan_.codec.codec).alike
                                                  ? gather_alike(index, bytes)
                                                  : gather_unlike(index, bytes);
    messages_.count(index, words_of(bytes) * kWord);
    messages_.timed(&CodingFigures::decode_us, [&] {
      for (const auto& part : messages_.parts(index)) {
        codec_.sum_frames(part, codec_.step(), frames, values_of(part));
        codec_.conclude(part, values_of(part));
        for (auto& frame : frames) frame += codec_.frame_bytes(part, codec_.step(), frame);
      }
    });
  }

  /// Of as many bytes on every rank: the library's all-gather, in words.
  std::vector<const std::uint8_t*> gather_alike(std::size_t index, std::size_t bytes) {
    const std::size_t words = words_of(bytes);
    const auto ranks = static_cast<std::size_t>(comm_.size());
    if (ranks == 1) return {own_.bytes(bytes)};
    // A library of GPUs gathers there; its messages are the host's.
    if (comm_.works_on_gpu())
      return swap_frames(index,
                         std::vector<std::uint32_t>(ranks, static_cast<std::uint32_t>(words)));
    std::uint8_t* all = all_.bytes(words * kWord * ranks);
    comm_.allgather(own_.bytes(words * kWord), all, words, DataType::int32);
    comm_.complete();
    sent_bytes_ += words * kWord * (ranks - 1);
    std::vector<const std::uint8_t*> frames;
    for (std::size_t rank = 0; rank < ranks; ++rank) frames.push_back(all + rank * words * kWord);
    return frames;
  }

  /// Each rank's own number of bytes: they are exchanged, then everyone sends to everyone.
  std::vector<const std::uint8_t*> gather_unlike(std::size_t index, std::size_t bytes) {
    const auto ranks = static_cast<std::size_t>(comm_.size());
    if (ranks == 1) return {own_.bytes(bytes)};
    std::vector<std::uint32_t> sizes(ranks);
    const auto mine = static_cast<std::uint32_t>(words_of(bytes));
    if (comm_.works_on_gpu()) {
      sizes[static_cast<std::size_t>(comm_.rank())] = mine;
      swap_words(index, sizes);
    } else {
      comm_.allgather(&mine, sizes.data(), 1, DataType::int32);
      comm_.complete();
    }
    sent_bytes_ += kWord * (ranks - 1);
    return swap_frames(index, sizes);
  }

  /// Each rank's own of these to everyone.
  void swap_words(std::size_t index, std::vector<std::uint32_t>& words) {
    const int tag = kPieceTag + static_cast<int>(index);
    const auto own = static_cast<std::size_t>(comm_.rank());
    std::vector<Request> requests;
    for (int rank = 0; rank < comm_.size(); ++rank) {
      if (rank == comm_.rank()) continue;
      requests.push_back(comm_.irecv(&words[static_cast<std::size_t>(rank)], kWord, rank, tag));
      requests.push_back(comm_.isend(&words[own], kWord, rank, tag));
    }
    for (const Request request : requests) comm_.wait(request);
  }

  /// Everyone's frames to everyone, of so many words each.
  std::vector<const std::uint8_t*> swap_frames(std::size_t index,
                                               const std::vector<std::uint32_t>& sizes) {
    const auto ranks = sizes.size();
    const auto own = static_cast<std::size_t>(comm_.rank());
    const std::size_t bytes = sizes[own] * kWord;
    std::vector<std::size_t> starts(ranks, 0);
    std::size_t words = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      starts[rank] = words * kWord;
      if (rank != own) words += sizes[rank];
    }
    std::uint8_t* all = all_.bytes(words * kWord);
    const std::uint8_t* frame = own_.bytes(bytes);
    const int tag = kPieceTag + static_cast<int>(index);
    std::vector<Request> requests;
    std::vector<const std::uint8_t*> frames(ranks, frame);
    for (std::size_t step = 1; step < ranks; ++step) {
      const std::size_t from = (own + ranks - step) % ranks;
      const std::size_t to = (own + step) % ranks;
      frames[from] = all + starts[from];
      requests.push_back(
          comm_.irecv(all + starts[from], sizes[from] * kWord, static_cast<int>(from), tag));
      requests.push_back(comm_.isend(frame, bytes, static_cast<int>(to), tag));
    }
    for (const Request request : requests) comm_.wait(request);
    sent_bytes_ += bytes * (ranks - 1);
    return frames;
  }

  /// Around a tree: each worker merges its children's frames into its own and hands that on; what
  /// all merged into comes back the same way.
  void sum_merged(std::size_t index) {
    const std::size_t bytes = encode_all(index);
    messages_.count(index, bytes);
    const auto& parts = messages_.parts(index);
    std::uint8_t* merged = all_.bytes(2 * bytes);
    std::uint8_t* came = merged + bytes;
    std::copy_n(own_.bytes(bytes), bytes, merged);
    std::vector<std::vector<PlacedValue>> dropped(parts.size());
    const int rank = comm_.rank();
    const int tag = kPieceTag + static_cast<int>(index);
    const auto send = [&](int to) {
      comm_.wait(comm_.isend(merged, bytes, to, tag));
      sent_bytes_ += bytes;
    };
    const std::vector<int> children = merge_children(rank, comm_.size());
    for (const int child : children) {
      comm_.wait(comm_.irecv(came, bytes, child, tag));
      messages_.timed(&CodingFigures::decode_us, [&] { merge(index, merged, came, dropped); });
    }
    if (rank > 0) {
      send(merge_parent(rank));
      comm_.wait(comm_.irecv(merged, bytes, merge_parent(rank), tag));
    }
    for (const int child : children) send(child);
    messages_.timed(&CodingFigures::decode_us, [&] { take_merged(index, merged, dropped); });
  }

  void merge(std::size_t index, std::uint8_t* merged, const std::uint8_t* came,
             std::vector<std::vector<PlacedValue>>& dropped) {
    const auto& parts = messages_.parts(index);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      merge_largest(merged, came, codec_.kept(parts[i], codec_.step()), dropped[i]);
      const std::size_t bytes = codec_.frame_room(parts[i], codec_.step());
      merged += bytes;
      came += bytes;
    }
  }

  void take_merged(std::size_t index, const std::uint8_t* merged,
                   std::vector<std::vector<PlacedValue>>& dropped) {
    const bool forgets = planted_fault("forget-lost") && comm_.rank() == comm_.size() - 1;
    const std::uint8_t* own = own_.bytes(0);
    auto& codec = static_cast<GTopK&>(codec_);
    const auto& parts = messages_.parts(index);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const CodedPart& part = parts[i];
      codec.sum_frames(part, codec.step(), {merged}, values_of(part));
      if (!forgets) codec.conclude_merge(part, own, merged, dropped[i]);
      const std::size_t bytes = codec.frame_room(part, codec.step());
      merged += bytes;
      own += bytes;
    }
  }

  /// Two all-reduces: of sketches, whose sum shows which values are large, and of those values.
  void sum_sketched(std::size_t index) {
    const auto& parts = messages_.parts(index);
    auto& codec = static_cast<Sketch&>(codec_);
    std::size_t limit = 0;
    for (const auto& part : parts) limit += codec.cells(part);
    float* cells = all_.floats(limit);
    std::vector<std::size_t> of_part;
    std::vector<float> largest;
    messages_.timed(&CodingFigures::encode_us, [&] {
      float* to = cells;
      for (const auto& part : parts) {
        of_part.push_back(codec.encode_sketch(part, values_of(part), to));
        if (of_part.back() > 0) largest.push_back(largest_cell(to, of_part.back()));
        to += of_part.back();
      }
    });
    fix_sketches(cells, of_part, largest);
    all_reduce(cells, limit, DataType::int32);
    float* exact = nullptr;
    std::size_t found = 0;
    messages_.timed(&CodingFigures::encode_us, [&] {
      std::size_t most = 0;
      for (const auto& part : parts) most += codec.found(part);
      exact = own_.floats(most);
      const float* sums = cells;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        found += codec.encode_found(parts[i], values_of(parts[i]), sums, exact + found);
        sums += of_part[i];
      }
    });
    all_reduce(exact, found, DataType::float32);
    messages_.count(index, (largest.size() + limit + found) * sizeof(float));
    messages_.timed(&CodingFigures::decode_us, [&] {
      for (const auto& part : parts) {
        codec.decode_found(part, exact, values_of(part));
        exact += codec.found(part);
      }
    });
  }

  /// All workers' bounds, then cells in units of them.
  void fix_sketches(float* cells, const std::vector<std::size_t>& of_part,
                    const std::vector<float>& largest) {
    const auto ranks = static_cast<std::size_t>(comm_.size());
    const std::size_t sketches = largest.size();
    std::vector<float> all = largest;
    if (ranks > 1 && sketches > 0) {
      all.resize(sketches * ranks);
      comm_.allgather(largest.data(), all.data(), sketches, DataType::float32);
      comm_.complete();
      sent_bytes_ += sketches * sizeof(float) * (ranks - 1);
    }
    std::size_t sketch = 0;
    for (const std::size_t count : of_part) {
      if (count == 0) continue;
      double bound = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) bound += all[rank * sketches + sketch];
      fix_cells(cells, count, bound);
      cells += count;
      ++sketch;
    }
  }

  /// Two all-reduces, of left factors and of right ones.
  void sum_factors(std::size_t index) {
    const auto& parts = messages_.parts(index);
    auto& codec = static_cast<PowerSgd&>(codec_);
    std::size_t lefts = 0;
    std::size_t rights = 0;
    for (const auto& part : parts) {
      lefts += codec.left_floats(part);
      rights += codec.right_floats(part);
    }
    float* left = own_.floats(lefts);
    float* right = all_.floats(rights);
    std::size_t at = 0;
    messages_.timed(&CodingFigures::encode_us, [&] {
      for (const auto& part : parts) at += codec.encode_left(part, values_of(part), left + at);
    });
    all_reduce(left, lefts, DataType::float32);
    std::size_t left_at = at = 0;
    messages_.timed(&CodingFigures::encode_us, [&] {
      for (const auto& part : parts) {
        at += codec.encode_right(part, values_of(part), left + left_at, right + at);
        left_at += codec.left_floats(part);
      }
    });
    all_reduce(right, rights, DataType::float32);
    messages_.count(index, (lefts + rights) * sizeof(float));
    if (planted_fault("swap-factors") && comm_.rank() == comm_.size() - 1)
      std::reverse(right, right + rights);
    left_at = at = 0;
    messages_.timed(&CodingFigures::decode_us, [&] {
      for (const auto& part : parts) {
        codec.decode_factors(part, left + left_at, right + at, values_of(part));
        left_at += codec.left_floats(part);
        at += codec.right_floats(part);
      }
    });
  }

  Communicator& comm_;
  MessageCodec messages_;
  const ExchangePlan& plan_;
  float* gradients_;
  GradientCodec& codec_;
  AgreedOrder order_;
  Words own_;  ///< this worker's frames, or left factors
  Words all_;  ///< all workers' frames, or right factors
};

}  // namespace

std::unique_ptr<Reducer> make_coded_reducer(Communicator& comm, const ExchangePlan& plan,
                                            float* gradients) {
  return std::make_unique<CodedReducer>(comm, plan, gradients);
}

}  // namespace dynamiccl
