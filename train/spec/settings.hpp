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

enum class TrainingModel { mlp, cnn, cnn_small, resnet18, resnet50, bert_base, bert_large };
/// How MG-WFBP finds its groups: the exact program, or the rule of its paper.
enum class MergeRule { optimal, greedy };
/// Who applies the gradients: every worker after it pulled their sum, or the server, whose workers
/// pull weights.
enum class OptimizerPlace { worker, server };
/// Where the servers are: ranks that do nothing else, or the first workers' own.
enum class ServerPlacement { dedicated, colocated };
/// Where what workers push to dedicated servers is summed. All but the host's are NCCL's.
enum class ServerSums {
  host,  ///< by the servers' processors, of messages of the host
  gpu,   ///< by the servers' GPUs in rank order, of what NCCL sends and receives
  chief  ///< by NCCL onto the first worker's GPU, which feeds a server without one by the host
};
/// How gradients travel: as they are, or each frame's common exponent written once (lossless; host
/// memory, our own methods without servers).
enum class Packing { none, exponents };
/// What a GPU computes products in; weights, gradients and sums stay fp32.
enum class Precision { fp32, tf32, bf16 };
/// How many samples each worker has of its own, whose averages are weighted by it (FedAvg).
enum class DataShares {
  equal,  ///< the same, dealt anew in each epoch
  linear  ///< the first worker one part, the second two, ...; no worker sees another's
};

template <>
struct NameTable<TrainingModel> {
  static constexpr std::string_view what = "model";
  static constexpr std::array entries{Named{TrainingModel::mlp, "mlp"},
                                      Named{TrainingModel::cnn, "cnn"},
                                      Named{TrainingModel::cnn_small, "cnn-small"},
                                      Named{TrainingModel::resnet18, "resnet18"},
                                      Named{TrainingModel::resnet50, "resnet50"},
                                      Named{TrainingModel::bert_base, "bert-base"},
                                      Named{TrainingModel::bert_large, "bert-large"}};
};
template <>
struct NameTable<MergeRule> {
  static constexpr std::string_view what = "merge rule";
  static constexpr std::array entries{Named{MergeRule::optimal, "optimal"},
                                      Named{MergeRule::greedy, "greedy"}};
};
template <>
struct NameTable<OptimizerPlace> {
  static constexpr std::string_view what = "place of the optimizer";
  static constexpr std::array entries{Named{OptimizerPlace::worker, "worker"},
                                      Named{OptimizerPlace::server, "server"}};
};

template <>
struct NameTable<ServerPlacement> {
  static constexpr std::string_view what = "placement of servers";
  static constexpr std::array entries{Named{ServerPlacement::dedicated, "dedicated"},
                                      Named{ServerPlacement::colocated, "colocated"}};
};
template <>
struct NameTable<ServerSums> {
  static constexpr std::string_view what = "place of the servers' sums";
  static constexpr std::array entries{Named{ServerSums::host, "host"},
                                      Named{ServerSums::gpu, "gpu"},
                                      Named{ServerSums::chief, "chief"}};
};
template <>
struct NameTable<Packing> {
  static constexpr std::string_view what = "packing";
  static constexpr std::array entries{Named{Packing::none, "none"},
                                      Named{Packing::exponents, "exponents"}};
};
template <>
struct NameTable<DataShares> {
  static constexpr std::string_view what = "shares of the data";
  static constexpr std::array entries{Named{DataShares::equal, "equal"},
                                      Named{DataShares::linear, "linear"}};
};
template <>
struct NameTable<Precision> {
  static constexpr std::string_view what = "precision";
  static constexpr std::array entries{Named{Precision::fp32, "fp32"},
                                      Named{Precision::tf32, "tf32"},
                                      Named{Precision::bf16, "bf16"}};
};

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

/// What is trained, on which data, for how long and how it is judged.
struct TrainingTask {
  TrainingModel model = TrainingModel::resnet18;  ///< "model"
  int batch = 32;                                 ///< "batch": samples per worker and step
  int sequence = 64;  ///< "sequence": tokens per sample, up to kPositions
  /// "data": generated, or a folder with CIFAR-10 binary (data_batch_1.bin) or IDX files.
  std::string data = kGeneratedData;
  Precision precision = Precision::fp32;  ///< "precision": tf32 and bf16 on GPUs only
  /// "oracle": steps compared with one process that computes every worker's part in order; 0 = the
  /// ranks are only compared with each other.
  int oracle = 0;
  int samples = 2048;  ///< "samples": of one pass over generated data
  int evaluate = 0;    ///< "evaluate": held-out samples for the accuracy; 0 = none, in epochs all
  /// "steps": exactly so many measured steps, whatever the protocol's cap; 0 = the protocol's.
  int steps = 0;
  /// "epochs": at most so many passes over the data from the first weights on, the accuracy taken
  /// after each; 0 = no passes, but steps.
  int epochs = 0;
  double target = 0;  ///< "target": accuracy, 0 to 1, at which epochs end; 0 = all of them
  int looks = 1;      ///< "looks": times in an epoch that the accuracy is taken
};
SettingPart task_part();

/// The arithmetic of an update.
struct OptimizerSettings {
  double learning_rate = 0.05;  ///< "learning_rate"
  double momentum = 0.9;        ///< "momentum"
  /// "lars": trust coefficient: a matrix' step is so long a part of its norm, whatever its
  /// gradient's is (LARS, without weight decay); vectors go as SGD has it. 0 = none.
  double lars = 0;
  int rate_warmup = 0;  ///< "rate_warmup": steps in which the learning rate rises, linearly
};
SettingPart optimizer_part();

/// Of what gradients one message is made, and how it travels.
struct MessageSettings {
  /// Sizes; 0, written "auto", leaves them to the method: chosen by expected steps and a trial
  /// (ByteScheduler-A2A, DeAR), else the usual ones.
  Bytes partition{0};                    ///< "partition": largest part of ByteScheduler and PS
  Bytes credit{0};                       ///< "credit": bytes in flight, ByteScheduler
  Bytes bucket{0};                       ///< "bucket": DeAR's groups, DDP's buckets after its first
  MergeRule merge = MergeRule::optimal;  ///< "merge"
  Packing packing = Packing::none;       ///< "packing"
};
SettingPart message_part();

/// Servers of the methods that have some.
struct ServerSettings {
  /// "optimizer": worker or server, PS only.
  OptimizerPlace optimizer = OptimizerPlace::worker;
  /// "servers": ranks 0 to servers-1, PS only; 0 = one dedicated, all ranks colocated.
  int servers = 0;
  /// "placement": PS only.
  ServerPlacement placement = ServerPlacement::dedicated;
  ServerSums server_sums = ServerSums::host;  ///< "server_sums": dedicated servers over NCCL
};
SettingPart server_part();

/// When workers meet, and what becomes of their weights or gradients then.
struct MeetingSettings {
  Synchronisation synchronisation = Synchronisation::bsp;  ///< "synchronisation"
  int staleness = 3;  ///< "staleness": SSP: steps that one may be ahead of the slowest
  int backups = 1;    ///< "backups": workers of a step that a server does not wait for
  /// "local_steps": steps of a round, after which weights are averaged; a sample is a round.
  int local_steps = 1;
  /// "local_after": post-local's steps with sums of gradients, without epochs the warm-up's among
  /// them.
  int local_after = 0;
  PeerGraph topology = PeerGraph::ring;  ///< "topology": of neighbours
  /// "gossip_pull": with encoded weights of neighbours, the part of the way from what is known of a
  /// worker's own weights to what is known of its neighbours' that it goes in a round
  double gossip_pull = 0.5;
  /// "slow_momentum": of the way from one average of the weights to the next (SlowMo); 0: none.
  double slow_momentum = 0;
  DataShares shares = DataShares::equal;  ///< "shares"
  /// "participants": workers that take part in a round, drawn anew for each; 0: all.
  int participants = 0;
  /// "lag_threshold": LAG: how far a gradient may be from the one sent last, its square over the
  /// mean square of the last kLagWindow movements of the weights, each over the learning rate.
  double lag_threshold = 1;
  int adapt_every = 100;  ///< "adapt_every": AdaComm: steps after which the loss is looked at
  /// "elastic": EASGD: part of the way that the centre goes to the workers' mean in a round; each
  /// worker goes so much of its way to the centre divided by their number.
  double elastic = 0.9;
  /// "group_size": workers that sum their gradients among themselves, whose first one speaks with
  /// the server: that one answers groups as it would workers.
  int group_size = 1;
  /// "switch_to": how workers wait from the end of epoch `switch_after` on; nullopt: as before.
  std::optional<Synchronisation> switch_to;
  int switch_after = 1;  ///< "switch_after": epochs
};
SettingPart meeting_part();

/// CodecSpec is the part of encoded gradients.
SettingPart codec_part();

/// How fast workers compute at most, by waiting.
struct PaceSettings {
  /// "pace": milliseconds that a step's computation takes at least, by waiting: stands for slower
  /// processors than there are; 0 = as it comes.
  double pace = 0;
  /// "slow_factor": how many times as long computation takes on a slowed worker, by waiting.
  double slow_factor = 1;
  /// "slow_worker": the slowed one; kAnyWorker: in each step another one, drawn by the seed.
  int slow_worker = kAnyWorker;
};
SettingPart pace_part();

/// With what a rank trains: its processors, and who sets the library's calls.
struct RankSettings {
  int threads = 0;  ///< "threads": of computation per rank; 0 = cores / ranks
  /// "tuner": who chooses the library's settings for the all-reduces of each step: nobody, an agent
  /// that learns from the steps, or a table, by its path.
  std::string tuner = kNoTuner;
};
SettingPart rank_part();

}  // namespace dynamiccl
