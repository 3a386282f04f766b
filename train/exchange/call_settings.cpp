#include "train/exchange/call_settings.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "workers/clock.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

std::string text_of(const CallShape& shape) {
  if (shape.algorithm == CallShape{}.algorithm && shape.knobs.empty()) return "";
  std::string text = shape.algorithm;
  for (const auto& [name, value] : shape.knobs) text += " " + name + "=" + value;
  return text;
}

}  // namespace

CallSettings::CallSettings(Communicator& comm, const ExchangePlan& plan) : comm_(comm) {
  std::map<int, std::size_t> by_bin;
  for (const Piece& piece : plan.pieces) {
    const std::uint64_t bytes = piece.count * sizeof(float);
    const int bin = static_cast<int>(std::bit_width(bytes));
    const auto [found, is_new] = by_bin.try_emplace(bin, keys_.size());
    if (is_new) keys_.emplace_back();
    SettingKey& key = keys_[found->second];
    key.size = std::max(key.size, Bytes(bytes));
    ++key.pieces;
    key_of_.push_back(found->second);
  }
  arms_.resize(keys_.size(), {CallShape{}});
  word_.resize(keys_.size() + 1, 0);
  proposed_.assign(word_.size(), 0);
  proposed_[0] = 1;
}

void CallSettings::set_arms(std::size_t key, std::vector<CallShape> arms) {
  DYN_ASSERT(!arms.empty() && text_of(arms.front()).empty(), "the first arm is the default");
  arms_[key] = std::move(arms);
}

void CallSettings::propose(std::vector<std::uint32_t> arms, std::uint32_t next_word) {
  DYN_ASSERT(arms.size() == keys_.size() && next_word > 0, "an arm for each key, and a next time");
  const std::lock_guard lock(mutex_);
  proposed_[0] = next_word;
  std::copy(arms.begin(), arms.end(), proposed_.begin() + 1);
}

void CallSettings::agree() {
  const std::size_t bytes = word_.size() * sizeof(std::uint32_t);
  if (comm_.rank() != 0) return comm_.wait(comm_.irecv(word_.data(), bytes, 0, kSettingTag));
  {
    const std::lock_guard lock(mutex_);
    word_ = proposed_;
  }
  std::vector<Request> sending;
  for (int rank = 1; rank < comm_.size(); ++rank)
    sending.push_back(comm_.isend(word_.data(), bytes, rank, kSettingTag));
  for (const Request request : sending) comm_.wait(request);
}

void CallSettings::begin_step() {
  if (silent_ == 0) {
    agree();
    silent_ = word_[0];
  }
  --silent_;
  ++step_;
  summed_ = 0;
  const std::lock_guard lock(mutex_);
  now_ = {{word_.begin() + 1, word_.end()},
          std::vector<double>(keys_.size(), 0),
          std::vector<bool>(keys_.size(), false)};
}

std::uint32_t CallSettings::arm_of(std::size_t piece) const {
  const std::size_t key = key_of_[piece];
  if (rotates_) return static_cast<std::uint32_t>((step_ + piece) % arms_[key].size());
  return std::min<std::uint32_t>(word_[key + 1], static_cast<std::uint32_t>(arms_[key].size()) - 1);
}

void CallSettings::take_into_force(const CallShape& shape) {
  std::string text = text_of(shape);
  if (text == in_force_) return;
  comm_.choose(shape);
  in_force_ = std::move(text);
}

bool CallSettings::sum_under(const CallShape& shape, float* data, std::size_t count) {
  take_into_force(shape);
  try {
    comm_.allreduce(data, data, count, DataType::float32);
    // Calls that are queued have not taken their time yet.
    comm_.complete();
    return true;
  } catch (const NotApplicable&) {
    return false;
  }
}

void CallSettings::all_reduce(std::size_t piece, float* data, std::size_t count) {
  const std::size_t key = key_of_[piece];
  const double start_us = now_us();
  const bool done = sum_under(arms_[key][arm_of(piece)], data, count);
  if (!done && !sum_under(CallShape{}, data, count))
    throw Error(ErrorKind::environment, "the library's own all-reduce does not take these sums");
  const double took_us = now_us() - start_us;
  ++summed_;
  const std::lock_guard lock(mutex_);
  now_.call_us[key] += took_us;
  if (!done) now_.refused[key] = true;
  if (summed_ == key_of_.size()) done_.push_back(now_);
}

void CallSettings::choose_for(std::size_t piece) {
  take_into_force(arms_[key_of_[piece]][arm_of(piece)]);
}

void CallSettings::end_step(const std::vector<double>& call_us) {
  DYN_ASSERT(call_us.size() == key_of_.size(), "a time for each piece");
  const std::lock_guard lock(mutex_);
  for (std::size_t piece = 0; piece < call_us.size(); ++piece)
    now_.call_us[key_of_[piece]] += call_us[piece];
  done_.push_back(now_);
}

std::vector<SettingStep> CallSettings::take_steps() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

void CallSettings::release() {
  if (in_force_.empty()) return;
  comm_.choose(CallShape{});
  in_force_.clear();
}

}  // namespace dynamiccl
