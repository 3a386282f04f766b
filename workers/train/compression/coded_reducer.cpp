#include "workers/train/compression/coded_reducer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "workers/measure/clock.hpp"
#include "workers/tags.hpp"
#include "workers/train/compression/worker_codec.hpp"
#include "workers/train/exchange/agreed_order.hpp"
#include "workers/train/worker_step.hpp"

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

/// Tests plant these on the last worker.
bool is_faulty(bool fault, const Communicator& comm) {
  return fault && comm.rank() == comm.size() - 1;
}

ExchangePlan seeded(const ExchangePlan& plan, const Communicator& comm) {
  ExchangePlan own = plan;
  if (is_faulty(planted_fault().other_seed, comm)) ++own.seed;
  return own;
}

class CodedReducer final : public Reducer {
 public:
  CodedReducer(Communicator& comm, const ExchangePlan& plan, float* gradients)
      : comm_(comm),
        plan_(seeded(plan, comm)),
        gradients_(gradients),
        codec_(plan_, comm.rank(), comm.size()),
        order_(comm, plan.pieces.size()) {
    for (std::size_t i = 0; i < plan_.pieces.size(); ++i) parts_.push_back(coded_parts(plan_, i));
  }

  void begin_step() override {
    if (is_faulty(planted_fault().drop_residual, comm_)) codec_.forget();
    codec_.begin_step();
    ++coding_.steps;
  }
  void restart() override { codec_.restart(); }

  bool start(std::size_t index) override {
    switch (codec_row(plan_.codec.codec).kind) {
      case CodecKind::low_rank:
        sum_factors(index);
        break;
      default:
        if (codec_row(plan_.codec.codec).sum == CodecSum::reduced) {
          sum_reduced(index);
        } else {
          sum_gathered(index);
        }
    }
    return true;
  }

  [[nodiscard]] bool chooses() const override { return order_.chooses(); }
  void agree(std::vector<std::size_t>& chosen) override { order_.agree(chosen); }
  [[nodiscard]] std::size_t extra_bytes() const override {
    return codec_.state_bytes() + own_.size_bytes() + all_.size_bytes();
  }
  std::optional<CodingFigures> take_coding() override {
    return std::exchange(coding_, CodingFigures{});
  }

 private:
  float* values_of(const CodedPart& part) { return gradients_ + part.offset; }

  /// Runs `work` and adds its time.
  template <class F>
  static void timed(double& sum_us, F&& work) {
    const double start_us = now_us();
    work();
    sum_us += now_us() - start_us;
  }

  /// What this worker gave to the library for the piece, beside what the formula has for it.
  void count(std::size_t index, std::size_t bytes) {
    coding_.message_bytes += bytes;
    const auto formula = message_bytes(plan_, index, codec_.step());
    coding_.formula_bytes += formula.value_or(bytes);
    coding_.by_formula &= formula.has_value();
  }
  void all_reduce(void* data, std::size_t count, DataType type) {
    const auto ranks = static_cast<std::uint64_t>(comm_.size());
    if (ranks > 1 && count > 0) comm_.allreduce(data, data, count, type);
    comm_.complete();
    sent_bytes_ += 2 * count * element_bytes(type) * (ranks - 1) / ranks;
  }

  std::size_t encode_all(std::size_t index) {
    std::size_t limit = 0;
    for (const auto& part : parts_[index]) limit += codec_.frame_limit(part);
    std::uint8_t* frames = own_.bytes(limit);
    std::size_t bytes = 0;
    timed(coding_.encode_us, [&] {
      for (const auto& part : parts_[index])
        bytes += codec_.encode(part, values_of(part), frames + bytes);
    });
    return bytes;
  }

  void sum_reduced(std::size_t index) {
    const std::size_t bytes = encode_all(index);
    count(index, bytes);
    const DataType type = reduced_type(plan_.codec.codec);
    all_reduce(own_.bytes(bytes), bytes / element_bytes(type), type);
    timed(coding_.decode_us, [&] {
      const std::uint8_t* frame = own_.bytes(bytes);
      for (const auto& part : parts_[index]) {
        const std::size_t kept = kept_values(density_at(plan_.codec, codec_.step()), part.count);
        decode_reduced(plan_.codec, part, shared_key(plan_.seed, codec_.step(), part), kept, frame,
                       values_of(part));
        frame += frame_bytes(plan_.codec, part, codec_.step(), frame);
      }
    });
  }

  /// A wrong place in what this worker sends.
  void shift_places(std::size_t index) {
    if (plan_.codec.codec != Codec::topk) return;
    std::uint8_t* frame = own_.bytes(0);
    for (const auto& part : parts_[index]) {
      const std::size_t kept = frame_kept(plan_.codec, part, codec_.step(), frame);
      for (std::size_t i = 0; i < kept; ++i) {
        std::uint32_t place = 0;
        std::memcpy(&place, frame + kWord * i, kWord);
        place = (place + 1) % static_cast<std::uint32_t>(part.count);
        std::memcpy(frame + kWord * i, &place, kWord);
      }
      frame += frame_bytes(plan_.codec, part, codec_.step(), frame);
    }
  }

  void sum_gathered(std::size_t index) {
    const std::size_t bytes = encode_all(index);
    if (is_faulty(planted_fault().shift_place, comm_)) shift_places(index);
    std::vector<const std::uint8_t*> frames =
        plan_.codec.codec == Codec::threshold ? gather_unlike(index, bytes) : gather_alike(bytes);
    count(index, words_of(bytes) * kWord);
    timed(coding_.decode_us, [&] {
      for (const auto& part : parts_[index]) {
        sum_frames(plan_.codec, part, codec_.step(), frames, values_of(part));
        for (auto& frame : frames) frame += frame_bytes(plan_.codec, part, codec_.step(), frame);
      }
    });
  }

  /// Of as many bytes on every rank: the library's all-gather, in words.
  std::vector<const std::uint8_t*> gather_alike(std::size_t bytes) {
    const std::size_t words = words_of(bytes);
    const auto ranks = static_cast<std::size_t>(comm_.size());
    if (ranks == 1) return {own_.bytes(bytes)};
    std::uint8_t* all = all_.bytes(words * kWord * ranks);
    comm_.allgather(own_.bytes(words * kWord), all, words, DataType::int32);
    comm_.complete();
    sent_bytes_ += words * kWord * (ranks - 1);
    std::vector<const std::uint8_t*> frames;
    for (std::size_t rank = 0; rank < ranks; ++rank) frames.push_back(all + rank * words * kWord);
    return frames;
  }

  /// Each rank's own number of bytes: they are told, then everyone sends to everyone.
  std::vector<const std::uint8_t*> gather_unlike(std::size_t index, std::size_t bytes) {
    const auto ranks = static_cast<std::size_t>(comm_.size());
    const auto own = static_cast<std::size_t>(comm_.rank());
    if (ranks == 1) return {own_.bytes(bytes)};
    std::vector<std::uint32_t> sizes(ranks);
    const auto mine = static_cast<std::uint32_t>(words_of(bytes));
    comm_.allgather(&mine, sizes.data(), 1, DataType::int32);
    comm_.complete();
    std::vector<std::size_t> starts(ranks, 0);
    std::size_t words = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      starts[rank] = words * kWord;
      if (rank != own) words += sizes[rank];
    }
    std::uint8_t* all = all_.bytes(words * kWord);
    const std::uint8_t* frame = own_.bytes(words_of(bytes) * kWord);
    const int tag = kPieceTag + static_cast<int>(index);
    std::vector<Request> requests;
    std::vector<const std::uint8_t*> frames(ranks, frame);
    for (std::size_t step = 1; step < ranks; ++step) {
      const std::size_t from = (own + ranks - step) % ranks;
      const std::size_t to = (own + step) % ranks;
      frames[from] = all + starts[from];
      requests.push_back(
          comm_.irecv(all + starts[from], sizes[from] * kWord, static_cast<int>(from), tag));
      requests.push_back(comm_.isend(frame, mine * kWord, static_cast<int>(to), tag));
    }
    for (const Request request : requests) comm_.wait(request);
    sent_bytes_ += kWord * (ranks - 1) * (1 + std::size_t{mine});
    return frames;
  }

  /// Two all-reduces, of left factors and of right ones.
  void sum_factors(std::size_t index) {
    const auto& parts = parts_[index];
    const auto rank = static_cast<std::size_t>(plan_.codec.rank);
    std::size_t lefts = 0;
    std::size_t rights = 0;
    for (const auto& part : parts) {
      const bool factored = codec_.is_factored(part);
      lefts += factored ? rank * part.rows : part.count;
      rights += factored ? rank * (part.count / part.rows) : 0;
    }
    float* left = own_.floats(lefts);
    float* right = all_.floats(rights);
    std::size_t at = 0;
    timed(coding_.encode_us, [&] {
      for (const auto& part : parts) at += codec_.encode_left(part, values_of(part), left + at);
    });
    all_reduce(left, lefts, DataType::float32);
    std::size_t left_at = at = 0;
    timed(coding_.encode_us, [&] {
      for (const auto& part : parts) {
        at += codec_.encode_right(part, values_of(part), left + left_at, right + at);
        left_at += codec_.is_factored(part) ? rank * part.rows : part.count;
      }
    });
    all_reduce(right, rights, DataType::float32);
    count(index, (lefts + rights) * sizeof(float));
    if (is_faulty(planted_fault().swap_factors, comm_)) std::reverse(right, right + rights);
    left_at = at = 0;
    timed(coding_.decode_us, [&] {
      for (const auto& part : parts) {
        const bool factored = codec_.is_factored(part);
        codec_.decode_factors(part, left + left_at, right + at, values_of(part));
        left_at += factored ? rank * part.rows : part.count;
        at += factored ? rank * (part.count / part.rows) : 0;
      }
    });
  }

  Communicator& comm_;
  ExchangePlan plan_;
  float* gradients_;
  WorkerCodec codec_;
  AgreedOrder order_;
  std::vector<std::vector<CodedPart>> parts_;  ///< of each piece
  Words own_;                                  ///< this worker's frames, or left factors
  Words all_;                                  ///< all workers' frames, or right factors
  CodingFigures coding_;
};

}  // namespace

std::unique_ptr<Reducer> make_coded_reducer(Communicator& comm, const ExchangePlan& plan,
                                            float* gradients) {
  return std::make_unique<CodedReducer>(comm, plan, gradients);
}

}  // namespace dynamiccl
