#include "train/oracle/codec_replay.hpp"

#include <algorithm>
#include <cmath>

#include "train/codecs/gtopk.hpp"
#include "train/codecs/powersgd.hpp"
#include "train/codecs/sketch.hpp"
#include "train/synchronise/averaging.hpp"
#include "workers/collectives/sum.hpp"

namespace dynamiccl {

ReplayedSum::ReplayedSum(const ExchangePlan& plan, int workers)
    : plan_(plan), sums_(plan.elements()) {
  for (int w = 0; w < workers; ++w) codecs_.push_back(make_codec({plan, w, workers}));
  values_.assign(codecs_.size(), std::vector<float>(plan.elements()));
  frames_.resize(codecs_.size());
}

void ReplayedSum::pass(int worker, std::vector<float>& gradient) {
  GradientCodec& own = codec(static_cast<std::size_t>(worker));
  own.begin_step();
  std::vector<std::uint8_t>& frame = frames_.front();
  for (std::size_t piece = 0; piece < plan_.pieces.size(); ++piece) {
    for (const auto& part : coded_parts(plan_, piece)) {
      frame.resize(own.frame_room(part, own.step()));
      float* values = &gradient[part.offset];
      own.encode(part, values, frame.data());
      std::fill_n(values, part.count, 0.0F);
      own.add(part, own.step(), frame.data(), 1, values);
    }
  }
}

const std::vector<float>& ReplayedSum::sum() {
  for (auto& codec : codecs_) codec->begin_step();
  for (std::size_t piece = 0; piece < plan_.pieces.size(); ++piece) sum_piece(piece);
  note_slack();
  return sums_;
}

void ReplayedSum::sum_piece(std::size_t piece) {
  const CodecRow& row = codec_row(plan_.codec.codec);
  for (const auto& part : coded_parts(plan_, piece)) {
    if (row.kind == CodecKind::low_rank) {
      sum_factored(part);
    } else if (row.kind == CodecKind::sketched) {
      sum_sketched(part);
    } else if (row.sum == CodecSum::merged) {
      sum_merged(part);
    } else if (plan_.servers > 0) {
      sum_decoded(part);
    } else if (row.sum == CodecSum::reduced) {
      sum_reduced(part);
    } else {
      sum_gathered(part);
    }
  }
}

const std::uint8_t* ReplayedSum::encoded(std::size_t worker, const CodedPart& part) {
  GradientCodec& own = codec(worker);
  frames_[worker].resize(own.frame_room(part, own.step()));
  own.encode(part, &values_[worker][part.offset], frames_[worker].data());
  return frames_[worker].data();
}

void ReplayedSum::sum_gathered(const CodedPart& part) {
  std::vector<const std::uint8_t*> frames;
  for (std::size_t w = 0; w < codecs_.size(); ++w) frames.push_back(encoded(w, part));
  float* sum = &sums_[part.offset];
  codec(0).sum_frames(part, codec(0).step(), frames, sum);
  const std::vector<float> said(sum, sum + part.count);
  for (auto& codec : codecs_) {
    std::copy_n(said.data(), part.count, sum);
    codec->conclude(part, sum);
  }
}

/// Each worker with what its children have merged by then.
void ReplayedSum::sum_merged(const CodedPart& part) {
  std::vector<std::vector<PlacedValue>> dropped(codecs_.size());
  std::vector<std::vector<std::uint8_t>> merged(codecs_.size());
  for (std::size_t w = 0; w < codecs_.size(); ++w) {
    encoded(w, part);
    merged[w] = frames_[w];
  }
  const std::uint64_t step = codec(0).step();
  for (std::size_t w = codecs_.size(); w-- > 0;)
    for (const int child : merge_children(static_cast<int>(w), workers()))
      merge_largest(merged[w].data(), merged[static_cast<std::size_t>(child)].data(),
                    codec(0).kept(part, step), dropped[w]);
  const std::uint8_t* all = merged[0].data();
  codec(0).sum_frames(part, step, {all}, &sums_[part.offset]);
  for (std::size_t w = 0; w < codecs_.size(); ++w)
    codec<GTopK>(w).conclude_merge(part, frames_[w].data(), all, dropped[w]);
}

void ReplayedSum::sum_sketched(const CodedPart& part) {
  const std::size_t cells = codec<Sketch>(0).cells(part);
  std::vector<std::vector<float>> sketches(codecs_.size(), std::vector<float>(cells));
  double bound = 0;
  for (std::size_t w = 0; w < codecs_.size(); ++w) {
    codec<Sketch>(w).encode_sketch(part, &values_[w][part.offset], sketches[w].data());
    bound += largest_cell(sketches[w].data(), cells);
  }
  for (auto& sketch : sketches) fix_cells(sketch.data(), cells, bound);
  for (std::size_t w = 1; w < codecs_.size(); ++w)
    sum_elements(sketches[0].data(), sketches[0].data(), sketches[w].data(), cells,
                 DataType::int32);
  std::vector<float> exact(part.count);
  std::vector<float> own(part.count);
  for (std::size_t w = 0; w < codecs_.size(); ++w) {
    const std::size_t found = codec<Sketch>(w).encode_found(part, &values_[w][part.offset],
                                                            sketches[0].data(), own.data());
    for (std::size_t i = 0; i < found; ++i) exact[i] = w == 0 ? own[i] : exact[i] + own[i];
  }
  codec<Sketch>(0).decode_found(part, exact.data(), &sums_[part.offset]);
}

/// A server's sum, of plain values.
void ReplayedSum::sum_decoded(const CodedPart& part) {
  float* sum = &sums_[part.offset];
  std::fill_n(sum, part.count, 0.0F);
  for (std::size_t w = 0; w < codecs_.size(); ++w)
    codec(0).add(part, codec(0).step(), encoded(w, part), 1, sum);
  codec(0).take_vote(sum, part.count, workers());
}

void ReplayedSum::sum_reduced(const CodedPart& part) {
  const DataType type = codec(0).reduced_type();
  for (std::size_t w = 0; w < codecs_.size(); ++w) {
    encoded(w, part);
    if (w > 0)
      sum_elements(frames_[0].data(), frames_[0].data(), frames_[w].data(),
                   frames_[w].size() / element_bytes(type), type);
  }
  codec(0).decode(part, codec(0).step(), frames_[0].data(), &sums_[part.offset]);
}

void ReplayedSum::sum_factored(const CodedPart& part) {
  std::vector<float> left(codec<PowerSgd>(0).left_floats(part), 0.0F);
  std::vector<float> right(codec<PowerSgd>(0).right_floats(part), 0.0F);
  std::vector<float> own(std::max(left.size(), right.size()));
  const auto add = [&](std::vector<float>& sum, std::size_t w) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = w == 0 ? own[i] : sum[i] + own[i];
  };
  for (std::size_t w = 0; w < codecs_.size(); ++w) {
    codec<PowerSgd>(w).encode_left(part, &values_[w][part.offset], own.data());
    add(left, w);
  }
  const std::vector<float> sum = left;
  for (std::size_t w = 0; w < codecs_.size(); ++w) {
    left = sum;
    codec<PowerSgd>(w).encode_right(part, &values_[w][part.offset], left.data(), own.data());
    add(right, w);
  }
  for (std::size_t w = 0; w < codecs_.size(); ++w)
    codec<PowerSgd>(w).decode_factors(part, left.data(), right.data(), &values_[w][part.offset]);
  std::copy_n(&values_[0][part.offset], part.count, &sums_[part.offset]);
}

/// Each of N - 1 additions rounds to 16 bits what is at most the sum of all magnitudes.
void ReplayedSum::note_slack() {
  const double rounding = codec(0).reduced_rounding();
  if (rounding == 0 || codecs_.size() < 3) return;
  if (plan_.servers > 0) return;  // in rank order
  double largest = 0;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    double magnitudes = 0;
    for (const auto& values : values_) magnitudes += std::abs(values[i]);
    largest = std::max(largest, magnitudes);
  }
  const auto workers = static_cast<double>(codecs_.size());
  order_slack_ = largest * rounding * (workers - 1);
}

CodecReplay::CodecReplay(const ExchangePlan& plan, const TrainingSpec& spec, TrainingWorker& worker)
    : spec_(spec), worker_(worker), sum_(plan, worker.workers()) {
  if (spec.synchronisation == Synchronisation::local)
    velocities_.assign(static_cast<std::size_t>(worker.workers()),
                       std::vector<float>(plan.elements(), 0.0F));
}

void CodecReplay::round() {
  if (velocities_.empty()) {
    step_of_all();
  } else {
    local_steps();
  }
}

void CodecReplay::step_of_all() {
  for (int w = 0; w < sum_.workers(); ++w) {
    worker_.compute_for(w, step_);
    sum_.values(w) = worker_.host_gradients();
  }
  ++step_;
  worker_.take_host_gradients(sum_.sum().data());
  worker_.apply_gradients(worker_.workers());
}

void CodecReplay::local_steps() {
  std::vector<float> common = worker_.host_weights();
  const std::size_t count = common.size();
  for (int w = 0; w < sum_.workers(); ++w) {
    auto& velocity = velocities_[static_cast<std::size_t>(w)];
    worker_.take_host_weights(common.data());
    worker_.take_host_velocity(velocity.data());
    for (int i = 0; i < spec_.local_steps; ++i) {
      worker_.compute_for(w, step_ + static_cast<std::uint64_t>(i));
      worker_.apply_gradients(1);
    }
    velocity = worker_.host_velocity();
    sum_.values(w) = worker_.host_weights();
    take_way(common.data(), sum_.values(w).data(), count);
  }
  step_ += static_cast<std::uint64_t>(spec_.local_steps);
  go_way(sum_.sum().data(), static_cast<float>(1.0 / worker_.workers()), common.data(), count);
  worker_.take_host_weights(common.data());
}

double CodecReplay::order_slack() const {
  const double share = 1.0 / worker_.workers();
  return sum_.order_slack() * share * (velocities_.empty() ? worker_.rate() : 1);
}

}  // namespace dynamiccl
