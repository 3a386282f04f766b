#include "tuner/learn/trainer.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace dynamiccl {
namespace {

using torch::Tensor;
using torch::indexing::Slice;

Tensor tensor_of(const Eigen::MatrixXf& matrix) {
  // Eigen keeps columns together, torch rows.
  return torch::from_blob(const_cast<float*>(matrix.data()), {matrix.cols(), matrix.rows()},
                          torch::kFloat32)
      .t()
      .contiguous()
      .clone();
}

Eigen::MatrixXf matrix_of(const Tensor& tensor) {
  const Tensor rows = tensor.detach().contiguous();
  return Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
      rows.data_ptr<float>(), rows.size(0), rows.size(1));
}

/// Heads of one kind over all decisions of a batch, padded to the most candidates.
struct HeadBatch {
  Tensor features;  ///< [heads, candidates, features]
  Tensor mask;      ///< [heads, candidates], true = a candidate
  Tensor picked;    ///< [heads, 1]
  Tensor step;      ///< [heads]: row of the flattened decisions
};

/// Episodes side by side, padded to the longest.
struct Batch {
  Tensor input;  ///< [steps, episodes, input]
  Tensor valid;  ///< [steps * episodes], true = a decision
  Tensor old_log_probability;
  Tensor advantage;
  Tensor target;
  HeadBatch implementation;
  HeadBatch resource;
};

HeadBatch heads_of(const std::vector<std::pair<const HeadStep*, std::int64_t>>& heads) {
  HeadBatch batch;
  const auto count = static_cast<std::int64_t>(heads.size());
  std::int64_t most = 1;
  for (const auto& [head, step] : heads)
    most = std::max<std::int64_t>(most, head->candidates.features.cols());
  batch.features = torch::zeros({count, most, kCandidateFeatures});
  batch.mask = torch::zeros({count, most}, torch::kBool);
  batch.picked = torch::zeros({count, 1}, torch::kLong);
  batch.step = torch::zeros({count}, torch::kLong);
  float* features = batch.features.data_ptr<float>();
  bool* mask = batch.mask.data_ptr<bool>();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& [head, step] = heads[static_cast<std::size_t>(i)];
    const Eigen::MatrixXf& columns = head->candidates.features;
    std::copy(columns.data(), columns.data() + columns.size(),
              features + i * most * kCandidateFeatures);
    std::fill_n(mask + i * most, columns.cols(), true);
    batch.picked.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(head->picked);
    batch.step.data_ptr<std::int64_t>()[i] = step;
  }
  return batch;
}

/// Generalised advantages of one episode.
std::vector<float> advantages(const Episode& episode, const PpoOptions& options) {
  std::vector<float> result(episode.size());
  double carried = 0;
  for (std::size_t i = episode.size(); i-- > 0;) {
    const double next = i + 1 < episode.size() ? static_cast<double>(episode[i + 1].value) : 0;
    const double error = static_cast<double>(episode[i].reward) + options.discount * next -
                         static_cast<double>(episode[i].value);
    carried = error + options.discount * options.smoothing * carried;
    result[i] = static_cast<float>(carried);
  }
  return result;
}

Batch batch_of(const std::vector<const Episode*>& episodes, const PpoOptions& options) {
  Batch batch;
  std::size_t longest = 0;
  for (const Episode* episode : episodes) longest = std::max(longest, episode->size());
  const auto width = static_cast<std::int64_t>(episodes.size());
  const auto steps = static_cast<std::int64_t>(longest);
  const std::int64_t inputs = episodes.front()->front().input.size();
  batch.input = torch::zeros({steps, width, inputs});
  batch.valid = torch::zeros({steps * width}, torch::kBool);
  batch.old_log_probability = torch::zeros({steps * width});
  batch.advantage = torch::zeros({steps * width});
  batch.target = torch::zeros({steps * width});
  std::vector<std::pair<const HeadStep*, std::int64_t>> implementation;
  std::vector<std::pair<const HeadStep*, std::int64_t>> resource;
  for (std::int64_t e = 0; e < width; ++e) {
    const Episode& episode = *episodes[static_cast<std::size_t>(e)];
    const std::vector<float> advantage = advantages(episode, options);
    for (std::size_t t = 0; t < episode.size(); ++t) {
      const PolicyStep& step = episode[t];
      const std::int64_t row = static_cast<std::int64_t>(t) * width + e;
      std::copy(step.input.data(), step.input.data() + inputs,
                batch.input.data_ptr<float>() + row * inputs);
      batch.valid.data_ptr<bool>()[row] = true;
      batch.old_log_probability.data_ptr<float>()[row] = step.log_probability;
      batch.advantage.data_ptr<float>()[row] = advantage[t];
      batch.target.data_ptr<float>()[row] = advantage[t] + step.value;
      for (const HeadStep& head : step.heads)
        (head.implementation ? implementation : resource).emplace_back(&head, row);
    }
  }
  batch.implementation = heads_of(implementation);
  batch.resource = heads_of(resource);
  return batch;
}

}  // namespace

class PpoTrainer::Impl {
 public:
  Impl(const Policy& start, const PpoOptions& options, std::uint64_t seed)
      : options_(options), shape_(start.shape), random_(seed) {
    torch::set_num_threads(1);
    std::vector<Tensor> all;
    for (const auto& [name, matrix] : start.weights) {
      Tensor weight = tensor_of(matrix).set_requires_grad(true);
      all.push_back(weight);
      weights_.emplace(name, weight);
    }
    optimiser_ = std::make_unique<torch::optim::Adam>(
        all, torch::optim::AdamOptions(options.learning_rate).eps(1e-5));
  }

  struct Forward {
    Tensor log_probability;  ///< [steps * episodes]
    Tensor value;
    Tensor entropy;  ///< mean over heads
  };

  [[nodiscard]] Forward forward(const Batch& batch) const {
    const auto& w = weights_;
    const std::int64_t steps = batch.input.size(0);
    const std::int64_t width = batch.input.size(1);
    Tensor hidden = torch::zeros({width, shape_.hidden});
    const Tensor x =
        torch::tanh(torch::matmul(batch.input, w.at("in_w").t()) + w.at("in_b").squeeze(1));
    std::vector<Tensor> states;
    for (std::int64_t t = 0; t < steps; ++t) {
      hidden = torch::gru_cell(x[t], hidden, w.at("gru_input_w"), w.at("gru_hidden_w"),
                               w.at("gru_input_b").squeeze(1), w.at("gru_hidden_b").squeeze(1));
      states.push_back(hidden);
    }
    const Tensor flat = torch::cat(states, 0);
    Forward result;
    result.value = (torch::matmul(torch::tanh(torch::matmul(flat, w.at("value_in").t()) +
                                              w.at("value_b").squeeze(1)),
                                  w.at("value_w").t()) +
                    w.at("value_c").squeeze(1))
                       .squeeze(1);
    result.log_probability = torch::zeros({steps * width});
    Tensor entropy = torch::zeros({1});
    std::int64_t heads = 0;
    for (const auto& [name, head] :
         {std::pair<std::string, const HeadBatch*>{"implementation_", &batch.implementation},
          {"resource_", &batch.resource}}) {
      if (head->step.size(0) == 0) continue;
      const Tensor context =
          torch::matmul(flat.index_select(0, head->step), w.at(name + "context").t()) +
          w.at(name + "bias").squeeze(1);
      const Tensor inner = torch::tanh(torch::matmul(head->features, w.at(name + "feature").t()) +
                                       context.unsqueeze(1));
      const Tensor scores = (torch::matmul(inner, w.at(name + "out").t()) +
                             torch::matmul(head->features, w.at(name + "skip").t()))
                                .squeeze(2)
                                .masked_fill(head->mask.logical_not(), -1e9);
      const Tensor odds = torch::log_softmax(scores, 1);
      result.log_probability =
          result.log_probability.index_add(0, head->step, odds.gather(1, head->picked).squeeze(1));
      entropy = entropy - (odds.exp() * odds.clamp_min(-50)).sum();
      heads += head->step.size(0);
    }
    result.entropy = entropy / std::max<std::int64_t>(1, heads);
    return result;
  }

  void step(const Batch& batch, PpoReport& report, double weight) {
    const Forward now = forward(batch);
    const Tensor rows = batch.valid.nonzero().squeeze(1);
    const auto chosen = [&](const Tensor& all) { return all.index_select(0, rows); };
    const Tensor old = chosen(batch.old_log_probability);
    const Tensor fresh = chosen(now.log_probability);
    Tensor advantage = chosen(batch.advantage);
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6);
    const Tensor ratio = torch::exp(fresh - old);
    const Tensor clipped = ratio.clamp(1 - options_.clip, 1 + options_.clip);
    const Tensor policy_loss = -torch::min(ratio * advantage, clipped * advantage).mean();
    const Tensor value_loss = torch::mse_loss(chosen(now.value), chosen(batch.target));
    const Tensor loss =
        policy_loss + options_.value_weight * value_loss - options_.entropy * now.entropy.sum();
    optimiser_->zero_grad();
    loss.backward();
    std::vector<Tensor> all;
    for (const auto& [name, tensor] : weights_) all.push_back(tensor);
    torch::nn::utils::clip_grad_norm_(all, options_.gradient_norm);
    optimiser_->step();
    report.policy_loss += weight * policy_loss.item<double>();
    report.value_loss += weight * value_loss.item<double>();
    report.entropy += weight * now.entropy.sum().item<double>();
    report.divergence += weight * (old - fresh).mean().item<double>();
  }

  PpoReport update(const Rollout& rollout) {
    PpoReport report;
    std::vector<const Episode*> order;
    for (const Episode& episode : rollout.episodes) order.push_back(&episode);
    if (order.empty()) return report;
    const std::size_t parts =
        std::min<std::size_t>(static_cast<std::size_t>(options_.minibatches), order.size());
    const double weight = 1.0 / (static_cast<double>(parts) * options_.epochs);
    for (int epoch = 0; epoch < options_.epochs; ++epoch) {
      std::shuffle(order.begin(), order.end(), random_);
      for (std::size_t part = 0; part < parts; ++part) {
        const std::size_t first = part * order.size() / parts;
        const std::size_t last = (part + 1) * order.size() / parts;
        step(batch_of({order.begin() + static_cast<std::ptrdiff_t>(first),
                       order.begin() + static_cast<std::ptrdiff_t>(last)},
                      options_),
             report, weight);
      }
    }
    return report;
  }

  [[nodiscard]] ForwardDifference difference(const Rollout& rollout) const {
    const torch::NoGradGuard no_gradients;
    ForwardDifference largest;
    for (const Episode& episode : rollout.episodes) {
      const Batch batch = batch_of({&episode}, options_);
      const Forward now = forward(batch);
      for (std::size_t t = 0; t < episode.size(); ++t) {
        const auto row = static_cast<std::int64_t>(t);
        largest.log_probability = std::max(
            largest.log_probability, std::abs(now.log_probability[row].item<double>() -
                                              static_cast<double>(episode[t].log_probability)));
        largest.value = std::max(largest.value, std::abs(now.value[row].item<double>() -
                                                         static_cast<double>(episode[t].value)));
      }
    }
    return largest;
  }

  PpoOptions options_;
  NetworkShape shape_;
  std::map<std::string, Tensor> weights_;
  std::unique_ptr<torch::optim::Adam> optimiser_;
  std::mt19937_64 random_;
};

PpoTrainer::PpoTrainer(const Policy& start, const PpoOptions& options, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(start, options, seed)) {}
PpoTrainer::~PpoTrainer() = default;

PpoReport PpoTrainer::update(const Rollout& rollout) { return impl_->update(rollout); }

Weights PpoTrainer::weights() const {
  Weights weights;
  for (const auto& [name, tensor] : impl_->weights_) weights.emplace(name, matrix_of(tensor));
  return weights;
}

ForwardDifference PpoTrainer::difference(const Rollout& rollout) const {
  return impl_->difference(rollout);
}

}  // namespace dynamiccl
