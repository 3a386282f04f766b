#include "train/codecs/queued/queued_codec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "train/codecs/gradient_codec.hpp"
#include "train/codecs/queued/gpu_kernels.hpp"

namespace dynamiccl {
namespace {

using kernels::ChunkRow;
using kernels::MessageTable;
using kernels::PartRow;

constexpr std::size_t kFrameWord = 4;
std::size_t frame_words(std::size_t bytes) { return (bytes + kFrameWord - 1) / kFrameWord; }

void check_kernels(const char* failure, const char* what) {
  if (failure != nullptr)
    throw Error(ErrorKind::environment, fmt::format("{} on the GPU failed: {}", what, failure));
}

/// GPU memory for so many of another type.
template <class T>
class BufferFor {
 public:
  void resize(TensorMemory& memory, std::size_t count) {
    const std::size_t floats = (count * sizeof(T) + sizeof(float) - 1) / sizeof(float);
    if (floats > buffer_.size()) buffer_.resize(memory, floats);
  }
  [[nodiscard]] T* data() { return reinterpret_cast<T*>(buffer_.data()); }
  [[nodiscard]] std::size_t size_bytes() const { return buffer_.size() * sizeof(float); }

 private:
  FlatBuffer buffer_;
};

/// How messages of a codec are summed on GPUs.
enum class QueuedSum { half, levels, largest, drawn, factors };

/// What kernels make of a codec. A new one of a sum that exists is a row here.
struct QueuedRow {
  Codec codec;
  QueuedSum sum;
  kernels::Form form = kernels::Form::int8;  ///< of levels
  std::size_t bits = 0;                      ///< of each value's level; 0: as the settings say
  std::size_t numbers = 0;  ///< of a part's frame; 0 with bits 0: one for each kQsgdBucket values
  DataType type = DataType::float32;  ///< what the library adds, of halves
};
using kernels::Form;
constexpr QueuedRow kQueued[] = {{Codec::fp16, QueuedSum::half, {}, 0, 0, DataType::float16},
                                 {Codec::bf16, QueuedSum::half, {}, 0, 0, DataType::bfloat16},
                                 {Codec::int8, QueuedSum::levels, Form::int8, 8, 1},
                                 {Codec::onebit, QueuedSum::levels, Form::onebit, 1, 2},
                                 {Codec::ef_sign, QueuedSum::levels, Form::ef_sign, 1, 1},
                                 {Codec::signsgd, QueuedSum::levels, Form::signsgd, 1, 0},
                                 {Codec::terngrad, QueuedSum::levels, Form::terngrad, 2, 1},
                                 {Codec::qsgd, QueuedSum::levels, Form::qsgd},
                                 {Codec::natural, QueuedSum::levels, Form::natural, 8, 1},
                                 {Codec::topk, QueuedSum::largest},
                                 {Codec::dgc, QueuedSum::largest},
                                 {Codec::randomk, QueuedSum::drawn},
                                 {Codec::powersgd, QueuedSum::factors}};

const QueuedRow& queued_row(Codec codec) {
  for (const QueuedRow& row : kQueued)
    if (row.codec == codec) return row;
  DYN_ASSERT(false, "codecs with kernels have a row");
}

std::size_t numbers_of(const QueuedRow& row, std::size_t count) {
  if (row.sum != QueuedSum::levels) return 0;
  return row.bits > 0 ? row.numbers : (count + kQsgdBucket - 1) / kQsgdBucket;
}

/// A message's rows, and how long what is made of it is.
struct Message {
  std::vector<PartRow> parts;
  std::vector<ChunkRow> chunks;
  std::size_t offset = 0;      ///< of its first element
  std::size_t count = 0;       ///< elements
  std::size_t bytes = 0;       ///< of a frame
  std::size_t lefts = 0;       ///< floats
  std::size_t rights = 0;      ///< floats
  std::size_t right_at = 0;    ///< of its right factors among all
  std::size_t first_part = 0;  ///< of its rows in the GPU's tables
  std::size_t first_chunk = 0;
};

Message lay_out(const ExchangePlan& plan, std::size_t piece, std::uint64_t step) {
  const CodecSettings& codec = plan.codec;
  const QueuedRow& form = queued_row(codec.codec);
  const std::size_t bits = form.bits > 0 ? form.bits : static_cast<std::size_t>(codec.bits);
  Message message;
  message.offset = plan.pieces[piece].offset;
  message.count = plan.pieces[piece].count;
  std::size_t numbers = 0;
  const auto parts = coded_parts(plan, piece);
  for (const auto& part : parts) numbers += numbers_of(form, part.count);
  std::size_t levels = kFrameWord * numbers;
  numbers = 0;
  for (const auto& part : parts) {
    PartRow row{};
    row.offset = part.offset;
    row.count = static_cast<std::uint32_t>(part.count);
    row.first_chunk = static_cast<std::uint32_t>(message.chunks.size());
    row.chunks = static_cast<std::uint32_t>((part.count + kernels::kChunk - 1) / kernels::kChunk);
    row.numbers = static_cast<std::uint32_t>(kFrameWord * numbers);
    row.levels = static_cast<std::uint32_t>(levels);
    row.left = static_cast<std::uint32_t>(message.lefts);
    row.right = static_cast<std::uint32_t>(message.rights);
    numbers += numbers_of(form, part.count);
    if (form.sum == QueuedSum::largest || form.sum == QueuedSum::drawn) {
      const std::size_t kept = kept_values(density_at(codec, step), part.count);
      row.kept = static_cast<std::uint32_t>(kept);
      levels += (form.sum == QueuedSum::drawn ? 1 : 2) * kFrameWord * kept;
    } else if (form.sum == QueuedSum::factors) {
      const bool factored = is_factored(codec.rank, part.rows, part.count);
      const auto rank = static_cast<std::size_t>(codec.rank);
      row.rows = static_cast<std::uint32_t>(factored ? part.rows : 0);
      message.lefts += factored ? rank * part.rows : part.count;
      message.rights += factored ? rank * (part.count / part.rows) : 0;
    } else {
      levels += (part.count * bits + 7) / 8;
    }
    for (std::uint32_t chunk = 0; chunk < row.chunks; ++chunk)
      message.chunks.push_back(
          {static_cast<std::uint32_t>(message.parts.size()), chunk * kernels::kChunk});
    message.parts.push_back(row);
  }
  message.bytes = form.sum == QueuedSum::half      ? 2 * message.count
                  : form.sum == QueuedSum::factors ? kFrameWord * (message.lefts + message.rights)
                                                   : levels;
  return message;
}

class GpuCodec final : public QueuedCodec {
 public:
  GpuCodec(Communicator& comm, const ExchangePlan& plan, float* gradients, TensorMemory& memory)
      : comm_(comm),
        queue_(*comm.queue()),
        plan_(plan),
        form_(queued_row(plan.codec.codec)),
        gradients_(gradients),
        memory_(memory),
        ranks_(static_cast<std::size_t>(comm.size())) {
    const std::size_t elements = plan_.elements();
    if (plan_.codec.feedback) residual_.resize(memory_, elements);
    if (codec_row(plan_.codec.codec).momentum) momentum_.resize(memory_, elements);
    lay_out_all();
  }

  void restart() override {
    step_ = 0;
    begun_ = false;
    if (!residual_.empty()) memory_.clear(residual_.data(), residual_.size());
    if (!momentum_.empty()) memory_.clear(momentum_.data(), momentum_.size());
    if (density_at(plan_.codec, step_) != density_) lay_out_all();
  }
  void begin_step() override {
    if (begun_) ++step_;
    begun_ = true;
    ++coding_.steps;
    // In a warm-up alone: frames of other lengths.
    if (density_at(plan_.codec, step_) != density_) lay_out_all();
  }

  void sum(std::size_t piece, const Call& call) override {
    const Message& message = messages_[piece];
    switch (form_.sum) {
      case QueuedSum::half:
        sum_half(message, call);
        break;
      case QueuedSum::levels:
        sum_levels(message, call);
        break;
      case QueuedSum::largest:
        sum_largest(message, call);
        break;
      case QueuedSum::drawn:
        sum_drawn(message, call);
        break;
      case QueuedSum::factors:
        sum_factors(message, call);
        break;
    }
    count(piece);
  }

  [[nodiscard]] std::uint64_t sent_bytes() const override { return sent_bytes_; }
  [[nodiscard]] std::size_t extra_bytes() const override {
    const std::size_t floats = residual_.size() + momentum_.size() + right_.size() + left_.size();
    return floats * sizeof(float) + frames_.size_bytes() + parts_.size_bytes() +
           chunks_.size_bytes() + measured_.size_bytes() + factors_.size_bytes() +
           selected_.size_bytes() + counts_.size_bytes() + bins_.size_bytes();
  }
  CodingFigures take_coding() override { return std::exchange(coding_, CodingFigures{}); }

 private:
  /// The tables of all messages, with this step's density.
  void lay_out_all() {
    density_ = density_at(plan_.codec, step_);
    messages_.clear();
    std::vector<PartRow> parts;
    std::vector<ChunkRow> chunks;
    std::size_t frame = 0;
    std::size_t most_parts = 0;
    std::size_t most_chunks = 0;
    std::size_t lefts = 0;
    std::size_t rights = 0;
    for (std::size_t i = 0; i < plan_.pieces.size(); ++i) {
      Message message = lay_out(plan_, i, step_);
      message.first_part = parts.size();
      message.first_chunk = chunks.size();
      message.right_at = rights;
      parts.insert(parts.end(), message.parts.begin(), message.parts.end());
      chunks.insert(chunks.end(), message.chunks.begin(), message.chunks.end());
      frame = std::max(frame, message.bytes);
      most_parts = std::max(most_parts, message.parts.size());
      most_chunks = std::max(most_chunks, message.chunks.size());
      lefts = std::max(lefts, message.lefts);
      rights += message.rights;
      messages_.push_back(std::move(message));
    }
    upload(parts_, parts);
    upload(chunks_, chunks);
    hold(frame, most_parts, most_chunks, lefts, rights);
  }
  template <class Row>
  void upload(BufferFor<Row>& buffer, const std::vector<Row>& rows) {
    static_assert(sizeof(Row) % sizeof(float) == 0);
    buffer.resize(memory_, rows.size());
    memory_.from_host(reinterpret_cast<const float*>(rows.data()),
                      reinterpret_cast<float*>(buffer.data()),
                      rows.size() * sizeof(Row) / sizeof(float));
  }
  void hold(std::size_t frame, std::size_t parts, std::size_t chunks, std::size_t lefts,
            std::size_t rights) {
    const CodecRow& codec = codec_row(plan_.codec.codec);
    const bool gathered = codec.sum == CodecSum::gathered;
    if (form_.sum == QueuedSum::factors) {
      left_.resize(memory_, lefts);
      right_.resize(memory_, rights);
    } else {
      frames_.resize(memory_, kFrameWord * frame_words(frame) * (gathered ? ranks_ : 1));
    }
    if (form_.sum == QueuedSum::largest) {
      selected_.resize(memory_, parts);
      counts_.resize(memory_, chunks);
      bins_.resize(memory_, parts * kernels::kSelectBins);
    }
    if (codec.momentum) factors_.resize(memory_, parts);
    if (gathered) measured_.resize(memory_, chunks);
  }

  [[nodiscard]] MessageTable table_of(const Message& message) {
    return {parts_.data() + message.first_part, chunks_.data() + message.first_chunk,
            static_cast<std::uint32_t>(message.parts.size()),
            static_cast<std::uint32_t>(message.chunks.size())};
  }
  [[nodiscard]] kernels::Scratch scratch() {
    return {measured_.data(), factors_.data(), selected_.data(), counts_.data(), bins_.data()};
  }
  [[nodiscard]] float* residual() { return residual_.data(); }

  void count(std::size_t piece) {
    const std::size_t bytes = messages_[piece].bytes;
    const bool gathered = codec_row(plan_.codec.codec).sum == CodecSum::gathered;
    coding_.message_bytes += gathered ? kFrameWord * frame_words(bytes) : bytes;
    coding_.plain_bytes += plan_.pieces[piece].count * sizeof(float);
    coding_.formula_bytes += message_bytes(plan_, piece, step_).value_or(bytes);
  }
  void all_reduce(void* data, std::size_t count, DataType type) {
    if (ranks_ > 1 && count > 0) comm_.allreduce(data, data, count, type);
    sent_bytes_ += 2 * count * element_bytes(type) * (ranks_ - 1) / ranks_;
  }
  /// This worker's frame, in its place among all.
  [[nodiscard]] std::uint8_t* own_frame(std::size_t stride) {
    return frames_.data() + static_cast<std::size_t>(comm_.rank()) * stride;
  }
  void all_gather(std::size_t stride) {
    if (ranks_ > 1)
      comm_.allgather(own_frame(stride), frames_.data(), stride / kFrameWord, DataType::int32);
    sent_bytes_ += stride * (ranks_ - 1);
  }

  void sum_half(const Message& message, const Call& call) {
    const bool bfloat16 = form_.type == DataType::bfloat16;
    auto* frame = reinterpret_cast<std::uint16_t*>(frames_.data());
    float* values = gradients_ + message.offset;
    float* kept = residual() == nullptr ? nullptr : residual() + message.offset;
    call("encode", [&] {
      check_kernels(
          kernels::shorten(bfloat16, values, kept, message.count, frame, queue_.own_stream()),
          "encoding");
    });
    call("reduce", [&] { all_reduce(frame, message.count, form_.type); });
    call("decode", [&] {
      check_kernels(kernels::lengthen(bfloat16, frame, message.count, values, queue_.own_stream()),
                    "decoding");
    });
  }

  void sum_levels(const Message& message, const Call& call) {
    const std::size_t stride = kFrameWord * frame_words(message.bytes);
    const MessageTable table = table_of(message);
    const kernels::FormSettings settings{form_.form, plan_.codec.bits,
                                         step_key(worker_seed(plan_.seed, comm_.rank()), step_)};
    call("encode", [&] {
      check_kernels(kernels::encode_form(settings, gradients_, residual(), table, scratch(),
                                         own_frame(stride), queue_.own_stream()),
                    "encoding");
    });
    call("reduce", [&] { all_gather(stride); });
    call("decode", [&] {
      check_kernels(kernels::decode_form(settings, frames_.data(), stride, comm_.size(), table,
                                         gradients_, queue_.own_stream()),
                    "decoding");
    });
  }

  void sum_largest(const Message& message, const Call& call) {
    const std::size_t stride = kFrameWord * frame_words(message.bytes);
    const MessageTable table = table_of(message);
    kernels::Correction correction{momentum_.data(), static_cast<float>(plan_.codec.momentum), 0};
    if (plan_.codec.clip > 0)
      correction.most = plan_.codec.clip / std::sqrt(static_cast<double>(ranks_));
    call("encode", [&] {
      check_kernels(kernels::encode_largest(gradients_, residual(), correction, table, scratch(),
                                            reinterpret_cast<std::uint32_t*>(own_frame(stride)),
                                            queue_.own_stream()),
                    "encoding");
    });
    call("reduce", [&] { all_gather(stride); });
    call("decode", [&] {
      check_kernels(
          kernels::decode_sparse(reinterpret_cast<const std::uint32_t*>(frames_.data()), stride,
                                 comm_.size(), table, gradients_, queue_.own_stream()),
          "decoding");
    });
  }

  void sum_drawn(const Message& message, const Call& call) {
    const MessageTable table = table_of(message);
    auto* frame = reinterpret_cast<float*>(frames_.data());
    const std::uint64_t key = step_key(plan_.seed, step_);
    call("encode", [&] {
      check_kernels(kernels::encode_drawn(gradients_, residual(), !plan_.codec.feedback, key, table,
                                          frame, queue_.own_stream()),
                    "encoding");
    });
    call("reduce", [&] { all_reduce(frame, message.bytes / kFrameWord, DataType::float32); });
    call("decode", [&] {
      check_kernels(kernels::decode_drawn(frame, key, table, gradients_, queue_.own_stream()),
                    "decoding");
    });
  }

  void sum_factors(const Message& message, const Call& call) {
    const MessageTable table = table_of(message);
    const kernels::Factors factors{plan_.codec.rank, left_.data(), right_.at(message.right_at)};
    call("encode", [&] {
      void* stream = queue_.own_stream();
      check_kernels(
          kernels::draw_right(factors, step_ == 0, step_key(plan_.seed, step_), table, stream),
          "drawing");
      check_kernels(kernels::encode_left(gradients_, residual(), factors, table, stream),
                    "encoding");
    });
    call("reduce", [&] { all_reduce(factors.left, message.lefts, DataType::float32); });
    call("encode", [&] {
      check_kernels(kernels::encode_right(gradients_, factors, table, queue_.own_stream()),
                    "encoding");
    });
    call("reduce", [&] { all_reduce(factors.right, message.rights, DataType::float32); });
    call("decode", [&] {
      check_kernels(
          kernels::decode_factors(gradients_, residual(), 1.0F / static_cast<float>(ranks_),
                                  factors, table, queue_.own_stream()),
          "decoding");
    });
  }

  Communicator& comm_;
  GpuOrder& queue_;
  ExchangePlan plan_;
  const QueuedRow& form_;
  float* gradients_;
  TensorMemory& memory_;
  std::size_t ranks_;
  std::uint64_t step_ = 0;
  bool begun_ = false;
  double density_ = 0;
  std::vector<Message> messages_;
  BufferFor<PartRow> parts_;
  BufferFor<ChunkRow> chunks_;
  FlatBuffer residual_;  ///< of every element, where something is kept back
  FlatBuffer momentum_;  ///< DGC's
  FlatBuffer left_;
  FlatBuffer right_;  ///< PowerSGD's last right factors
  BufferFor<std::uint8_t> frames_;
  BufferFor<kernels::Measured> measured_;
  BufferFor<float> factors_;
  BufferFor<kernels::Selection> selected_;
  BufferFor<kernels::ChunkCount> counts_;
  BufferFor<std::uint32_t> bins_;
  CodingFigures coding_;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace

std::unique_ptr<QueuedCodec> make_queued_codec(Communicator& comm, const ExchangePlan& plan,
                                               float* gradients, TensorMemory& memory) {
  return std::make_unique<GpuCodec>(comm, plan, gradients, memory);
}

}  // namespace dynamiccl
