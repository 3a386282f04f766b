#include "train/torch/models.hpp"

#include <torch/nn/functional.h>
#include <torch/version.h>

namespace dynamiccl {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

/// Appends a stage that runs `module`.
template <class Holder>
void add(StagedModel& model, Holder module) {
  StagedModel::Stage stage;
  stage.parameters = module->parameters();
  stage.forward = [module](Tensor x) mutable { return module->forward(std::move(x)); };
  model.stages.push_back(std::move(stage));
  model.owners.push_back(module.ptr());
}

nn::Conv2d convolution(int from, int to, int kernel, int stride) {
  return nn::Conv2d(
      nn::Conv2dOptions(from, to, kernel).stride(stride).padding(kernel / 2).bias(false));
}

/// Its input is a normalised value that nothing else reads: it is written over.
nn::ReLU activation() { return nn::ReLU(nn::ReLUOptions(/*inplace=*/true)); }

/// Two or three convolutions next to a shortcut (He et al., arXiv 1512.03385; the stride of the
/// three sits in the middle one, "v1.5").
struct BlockImpl : nn::Module {
  BlockImpl(int from, int width, int stride, bool bottleneck) {
    const int to = bottleneck ? 4 * width : width;
    if (bottleneck) {
      body->push_back(convolution(from, width, 1, 1));
      body->push_back(nn::BatchNorm2d(width));
      body->push_back(activation());
    }
    body->push_back(convolution(bottleneck ? width : from, width, 3, stride));
    body->push_back(nn::BatchNorm2d(width));
    body->push_back(activation());
    body->push_back(convolution(width, to, bottleneck ? 1 : 3, 1));
    body->push_back(nn::BatchNorm2d(to));
    register_module("body", body);
    if (stride != 1 || from != to) {
      shortcut->push_back(convolution(from, to, 1, stride));
      shortcut->push_back(nn::BatchNorm2d(to));
    }
    register_module("shortcut", shortcut);
  }
  Tensor forward(const Tensor& x) {
    const Tensor way = shortcut->is_empty() ? x : shortcut->forward(x);
    return (body->forward(x) + way).relu_();
  }
  nn::Sequential body;
  nn::Sequential shortcut;
};
TORCH_MODULE(Block);

struct HeadImpl : nn::Module {
  HeadImpl(int features, int classes)
      : linear(register_module("linear", nn::Linear(features, classes))) {}
  Tensor forward(const Tensor& x) { return linear->forward(x.mean({2, 3})); }
  nn::Linear linear;
};
TORCH_MODULE(Head);

struct FlattenedImpl : nn::Module {
  FlattenedImpl(int from, int to, bool last)
      : linear(register_module("linear", nn::Linear(from, to))), is_last(last) {}
  Tensor forward(const Tensor& x) {
    const Tensor y = linear->forward(x.flatten(1));
    return is_last ? y : torch::relu(y);
  }
  nn::Linear linear;
  bool is_last;
};
TORCH_MODULE(Flattened);

void add_residual_net(StagedModel& model, bool imagenet) {
  nn::Sequential stem(convolution(3, 64, imagenet ? 7 : 3, imagenet ? 2 : 1), nn::BatchNorm2d(64),
                      activation());
  if (imagenet) stem->push_back(nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  add(model, stem);
  const std::array<int, 4> depth = imagenet ? std::array{3, 4, 6, 3} : std::array{2, 2, 2, 2};
  int from = 64;
  for (std::size_t level = 0; level < depth.size(); ++level) {
    const int width = 64 << level;
    for (int i = 0; i < depth[level]; ++i) {
      add(model, Block(from, width, level > 0 && i == 0 ? 2 : 1, imagenet));
      from = imagenet ? 4 * width : width;
    }
  }
  add(model, Head(from, imagenet ? 1000 : 10));
}

/// Word, position and type embeddings, summed and normalised (Devlin et al., arXiv 1810.04805).
struct EmbeddingsImpl : nn::Module {
  explicit EmbeddingsImpl(int h)
      : words(register_module("words", nn::Embedding(30522, h))),
        positions(register_module("positions", nn::Embedding(kPositions, h))),
        types(register_module("types", nn::Embedding(2, h))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({h})))) {
    for (auto& weight : {words->weight, positions->weight, types->weight})
      nn::init::normal_(weight, 0, 0.02);
  }
  Tensor forward(const Tensor& tokens) {
    const auto place = torch::arange(tokens.size(1), tokens.options());
    const auto sum = words->forward(tokens) + positions->forward(place).unsqueeze(0) +
                     types->forward(torch::zeros_like(tokens));
    return norm->forward(sum).transpose(0, 1);  // the encoder takes [sequence, batch, width]
  }
  nn::Embedding words, positions, types;
  nn::LayerNorm norm;
};
TORCH_MODULE(Embeddings);

#if TORCH_VERSION_MAJOR >= 2
/// nn::TransformerEncoderLayer with the fused attention that its Python form takes and its C++ form
/// does not: post-norm, no dropout, gelu, [sequence, batch, width].
struct EncoderLayerImpl : nn::Module {
  EncoderLayerImpl(int h, int heads)
      : heads_(heads),
        inputs(register_module("inputs", nn::Linear(h, 3 * h))),
        output(register_module("output", nn::Linear(h, h))),
        wide(register_module("wide", nn::Linear(h, 4 * h))),
        narrow(register_module("narrow", nn::Linear(4 * h, h))),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({h})))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({h})))) {
    nn::init::xavier_uniform_(inputs->weight);
    nn::init::zeros_(inputs->bias);
    nn::init::zeros_(output->bias);
  }
  Tensor forward(const Tensor& x) {
    const auto s = x.size(0);
    const auto b = x.size(1);
    const auto h = x.size(2);
    // [3, batch, heads, sequence, width of a head]
    const auto parts =
        inputs->forward(x).view({s, b, 3, heads_, h / heads_}).permute({2, 1, 3, 0, 4});
    const auto seen = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    const auto joined = seen.permute({2, 0, 1, 3}).reshape({s, b, h});
    const auto y = norm1->forward(x + output->forward(joined));
    return norm2->forward(y + narrow->forward(F::gelu(wide->forward(y))));
  }
  std::int64_t heads_;
  nn::Linear inputs, output, wide, narrow;
  nn::LayerNorm norm1, norm2;
};
TORCH_MODULE(EncoderLayer);
#endif

/// The masked-language head; its decoder is the word embedding itself.
struct LanguageHeadImpl : nn::Module {
  LanguageHeadImpl(int h, Embeddings embeddings)
      : dense(register_module("dense", nn::Linear(h, h))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({h})))),
        bias(register_parameter("bias", torch::zeros({30522}))),
        tied(std::move(embeddings)) {}
  Tensor forward(const Tensor& x) {
    // Back to [batch, sequence], the order of the labels, while it is narrow.
    const auto rows = x.transpose(0, 1).flatten(0, 1);
    const auto y = norm->forward(F::gelu(dense->forward(rows)));
    return F::linear(y, tied->words->weight, bias);
  }
  nn::Linear dense;
  nn::LayerNorm norm;
  Tensor bias;
  Embeddings tied;
};
TORCH_MODULE(LanguageHead);

}  // namespace

StagedModel make_image_model(TrainingModel kind) {
  StagedModel model;
  switch (kind) {
    case TrainingModel::mlp:
      add(model, Flattened(3072, 512, false));
      add(model, Flattened(512, 256, false));
      add(model, Flattened(256, 10, true));
      break;
    case TrainingModel::cnn:
      for (const int from : {3, 32}) {
        const int to = from == 3 ? 32 : 64;
        add(model, nn::Sequential(nn::Conv2d(nn::Conv2dOptions(from, to, 3).padding(1)), nn::ReLU(),
                                  nn::MaxPool2d(2)));
      }
      add(model, Flattened(4096, 128, false));
      add(model, Flattened(128, 10, true));
      break;
    case TrainingModel::cnn_small:
      // One value of 4 x 4 pixels and kernel: computes little, so that many steps are soon done.
      add(model, nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 16, 4).stride(4)), nn::ReLU()));
      add(model, Flattened(1024, 96, false));
      add(model, Flattened(96, 10, true));
      break;
    default:
      add_residual_net(model, kind == TrainingModel::resnet50);
  }
  return model;
}

StagedModel make_bert(TrainingModel kind) {
  const bool large = kind == TrainingModel::bert_large;
  const int h = large ? 1024 : 768;
  StagedModel model;
  const Embeddings embeddings(h);
  add(model, embeddings);
  for (int i = 0; i < (large ? 24 : 12); ++i) {
#if TORCH_VERSION_MAJOR >= 2
    add(model, EncoderLayer(h, h / 64));
#else
    add(model, nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(h, h / 64)
                                               .dim_feedforward(4 * h)
                                               .dropout(0)
                                               .activation(torch::kGELU)));
#endif
  }
  add(model, LanguageHead(h, embeddings));
  return model;
}

}  // namespace dynamiccl
