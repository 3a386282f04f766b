#include "workers/train/compression/codec_replay.hpp"

#include <algorithm>
#include <cmath>

#include "workers/collectives/sum.hpp"

namespace dynamiccl {

CodecReplay::CodecReplay(const ExchangePlan& plan, TrainingWorker& worker)
    : plan_(plan), worker_(worker), sums_(plan.elements()) {
  const auto workers = static_cast<std::size_t>(worker.workers());
  for (std::size_t w = 0; w < workers; ++w)
    codecs_.emplace_back(plan, static_cast<int>(w), worker.workers());
  gradients_.assign(workers, std::vector<float>(plan.elements()));
  frames_.resize(workers);
}

void CodecReplay::step(std::uint64_t step) {
  for (std::size_t w = 0; w < codecs_.size(); ++w) {
    worker_.compute_for(static_cast<int>(w), step);
    gradients_[w] = worker_.host_gradients();
    codecs_[w].begin_step();
  }
  for (std::size_t piece = 0; piece < plan_.pieces.size(); ++piece) sum_piece(piece);
  note_slack();
  worker_.take_host_gradients(sums_.data());
  worker_.apply_gradients(worker_.workers());
}

void CodecReplay::sum_piece(std::size_t piece) {
  const CodecRow& row = codec_row(plan_.codec.codec);
  for (const auto& part : coded_parts(plan_, piece)) {
    if (row.kind == CodecKind::low_rank) {
      sum_factored(part);
    } else if (row.sum == CodecSum::reduced) {
      sum_reduced(part);
    } else {
      sum_gathered(part);
    }
  }
}

void CodecReplay::sum_gathered(const CodedPart& part) {
  std::vector<const std::uint8_t*> frames;
  for (std::size_t w = 0; w < codecs_.size(); ++w) {
    frames_[w].resize(codecs_[w].frame_limit(part));
    codecs_[w].encode(part, &gradients_[w][part.offset], frames_[w].data());
    frames.push_back(frames_[w].data());
  }
  sum_frames(plan_.codec, part, codecs_.front().step(), frames, &sums_[part.offset]);
}

void CodecReplay::sum_reduced(const CodedPart& part) {
  const DataType type = reduced_type(plan_.codec.codec);
  std::size_t bytes = 0;
  for (std::size_t w = 0; w < codecs_.size(); ++w) {
    frames_[w].resize(codecs_[w].frame_limit(part));
    bytes = codecs_[w].encode(part, &gradients_[w][part.offset], frames_[w].data());
    if (w > 0)
      sum_elements(frames_[0].data(), frames_[0].data(), frames_[w].data(),
                   bytes / element_bytes(type), type);
  }
  const std::uint64_t step = codecs_.front().step();
  decode_reduced(plan_.codec, part, shared_key(plan_.seed, step, part),
                 kept_values(density_at(plan_.codec, step), part.count), frames_[0].data(),
                 &sums_[part.offset]);
}

void CodecReplay::sum_factored(const CodedPart& part) {
  const auto rank = static_cast<std::size_t>(plan_.codec.rank);
  const bool factored = codecs_.front().is_factored(part);
  const std::size_t lefts = factored ? rank * part.rows : part.count;
  const std::size_t rights = factored ? rank * (part.count / part.rows) : 0;
  std::vector<float> left(lefts, 0.0F);
  std::vector<float> right(rights, 0.0F);
  std::vector<float> own(std::max(lefts, rights));
  const auto add = [&](std::vector<float>& sum, std::size_t w) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = w == 0 ? own[i] : sum[i] + own[i];
  };
  for (std::size_t w = 0; w < codecs_.size(); ++w) {
    codecs_[w].encode_left(part, &gradients_[w][part.offset], own.data());
    add(left, w);
  }
  const std::vector<float> sum = left;
  for (std::size_t w = 0; w < codecs_.size(); ++w) {
    left = sum;
    codecs_[w].encode_right(part, &gradients_[w][part.offset], left.data(), own.data());
    add(right, w);
  }
  for (std::size_t w = 0; w < codecs_.size(); ++w)
    codecs_[w].decode_factors(part, left.data(), right.data(), &gradients_[w][part.offset]);
  std::copy_n(&gradients_[0][part.offset], part.count, &sums_[part.offset]);
}

/// Each of N - 1 additions rounds to 16 bits what is at most the sum of all magnitudes.
void CodecReplay::note_slack() {
  const Codec codec = plan_.codec.codec;
  if ((codec != Codec::fp16 && codec != Codec::bf16) || codecs_.size() < 3) return;
  const double rounding = codec == Codec::bf16 ? 1.0 / 256 : 1.0 / 2048;
  double largest = 0;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    double magnitudes = 0;
    for (const auto& gradient : gradients_) magnitudes += std::abs(gradient[i]);
    largest = std::max(largest, magnitudes);
  }
  const auto workers = static_cast<double>(codecs_.size());
  order_slack_ = worker_.rate() * largest * rounding * (workers - 1) / workers;
}

}  // namespace dynamiccl
