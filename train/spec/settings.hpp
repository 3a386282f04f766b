#pragma once

#include <array>
#include <optional>
#include <string>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "train/spec/compression.hpp"
#include "train/spec/setting.hpp"
#include "train/spec/synchronisation.hpp"
#include "train/spec/topology.hpp"

namespace dynamiccl {

/// What is trained; stages and facts of each stand in train/torch and training.cpp.
DYN_NAMED_ENUM(TrainingModel, "model", '-', mlp, cnn, cnn_small, resnet18, resnet50, bert_base,
               bert_large);
/// How MG-WFBP finds its groups: the exact program, or the rule of its paper.
DYN_NAMED_ENUM(MergeRule, "merge rule", '-', optimal, greedy);
/// Who applies the gradients: every worker after it pulled their sum, or the server, whose workers
/// pull weights.
DYN_NAMED_ENUM(OptimizerPlace, "place of the optimizer", '-', worker, server);
/// Where the servers are: ranks that do nothing else, or the first workers' own.
DYN_NAMED_ENUM(ServerPlacement, "placement of servers", '-', dedicated, colocated);
/// Where what workers push to dedicated servers is summed. All but the host's are NCCL's.
DYN_NAMED_ENUM(
    ServerSums, "place of the servers' sums", '-',
    host,    ///< by the servers' processors, of messages of the host
    gpu,     ///< by the servers' GPUs in rank order, of what NCCL sends and receives
    chief);  ///< by NCCL onto the first worker's GPU, which feeds a server without one by the host

/// How gradients travel (host memory, our own methods without servers).
DYN_NAMED_ENUM(Packing, "packing", '-',
               none,         ///< as they are
               exponents,    ///< each frame's common exponent written once: lossless
               aggregated);  ///< in fixed point, to an aggregator that sums them on the way
/// What a GPU computes products in; weights, gradients and sums stay fp32.
DYN_NAMED_ENUM(Precision, "precision", '-', fp32, tf32, bf16);
/// How many samples each worker has of its own, whose averages are weighted by it (FedAvg).
DYN_NAMED_ENUM(
    DataShares, "shares of the data", '-',
    equal,    ///< the same, dealt anew in each epoch
    linear);  ///< the first worker one part, the second two, ...; no worker sees another's

/// Data that is made: patterns that are learnt in few steps; fainter ones with labels that are
/// partly wrong, for which plain SGD needs hundreds of steps and never finds all.
inline constexpr const char* kGeneratedData = "generated";
inline constexpr const char* kGeneratedHardData = "generated-hard";
bool is_generated(const std::string& data);

/// A slowed worker that is another one in each step, written "any".
inline constexpr int kAnyWorker = -1;

/// Values of `tuner` that name no table.
inline constexpr const char* kNoTuner = "off";
inline constexpr const char* kOnlineTuner = "online";

// Each setting by the name of its row, whose text says what it is; here stands what that leaves
// open.

/// What is trained, on which data, for how long and how it is judged.
struct TrainingTask {
  TrainingModel model = TrainingModel::resnet18;
  int batch = 32;
  int sequence = 64;
  std::string data = kGeneratedData;  ///< data_batch_1.bin says that a folder is CIFAR-10
  Precision precision = Precision::fp32;
  int oracle = 0;
  int samples = 2048;
  int evaluate = 0;
  int steps = 0;   ///< whatever the protocol's cap
  int epochs = 0;  ///< from the first weights on
  double target = 0;
  int looks = 1;
};
SettingPart task_part();

/// The arithmetic of an update.
struct OptimizerSettings {
  double learning_rate = 0.05;
  double momentum = 0.9;
  double lars = 0;  ///< without weight decay; vectors go as SGD has it
  int rate_warmup = 0;
};
SettingPart optimizer_part();

/// Of what gradients one message is made, and how it travels. Sizes of 0, written "auto", are left
/// to the method: chosen by expected steps and a trial (ByteScheduler-A2A, DeAR), else the usual.
struct MessageSettings {
  Bytes partition{0};
  Bytes credit{0};
  Bytes bucket{0};
  MergeRule merge = MergeRule::optimal;
  Packing packing = Packing::none;
};
SettingPart message_part();

/// Servers of the methods that have some.
struct ServerSettings {
  OptimizerPlace optimizer = OptimizerPlace::worker;
  int servers = 0;  ///< ranks 0 to servers-1
  ServerPlacement placement = ServerPlacement::dedicated;
  ServerSums server_sums = ServerSums::host;
};
SettingPart server_part();

/// When workers meet, and what becomes of their weights or gradients then.
struct MeetingSettings {
  Synchronisation synchronisation = Synchronisation::bsp;
  int staleness = 3;
  int backups = 1;
  int local_steps = 1;  ///< of a round, which is a sample
  int local_after = 0;
  PeerGraph topology = PeerGraph::ring;
  double slow_momentum = 0;
  DataShares shares = DataShares::equal;
  int participants = 0;
  double lag_threshold = 1;  ///< of the last kLagWindow movements, each over the learning rate
  int adapt_every = 100;
  int group_size = 1;  ///< the server answers groups as it would workers
  std::optional<Synchronisation> switch_to;
  int switch_after = 1;
};
SettingPart meeting_part();

/// CodecSpec is the part of encoded gradients.
SettingPart codec_part();

/// How fast workers compute at most, by waiting: stands for slower processors than there are.
struct PaceSettings {
  double pace = 0;
  double slow_factor = 1;
  int slow_worker = kAnyWorker;  ///< drawn by the seed
};
SettingPart pace_part();

/// With what a rank trains: its processors, and who sets the library's calls.
struct RankSettings {
  int threads = 0;
  std::string tuner = kNoTuner;
};
SettingPart rank_part();

}  // namespace dynamiccl
