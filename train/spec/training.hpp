#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "core/wire/run_config.hpp"
#include "train/spec/compression.hpp"
#include "train/spec/synchronisation.hpp"
#include "train/spec/topology.hpp"
#include "train/spec/training_method.hpp"

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

/// Size and work of a model. 1 multiply-accumulate (MAC) = 2 FLOP; a training step costs three
/// forward passes (forward, gradients of activations, gradients of weights).
struct ModelFacts {
  std::uint64_t parameters = 0;    ///< D, trainable
  double forward_macs = 0;         ///< per sample
  std::uint64_t sample_bytes = 0;  ///< input of one sample
  bool tokens = false;             ///< takes token ids, not images
  int classes = 10;                ///< images: labels
  [[nodiscard]] double flops_per_sample() const { return 6 * forward_macs; }
  /// I = C / D, FLOP per sample and parameter.
  [[nodiscard]] double intensity() const {
    return flops_per_sample() / static_cast<double>(parameters);
  }
};

/// Tokens of a sample for which a transformer has positions.
inline constexpr int kPositions = 512;

/// @param sequence tokens per sample; images ignore it
ModelFacts facts_of(TrainingModel model, int sequence);

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

/// One training cell. Travels as a WorkCell: collective `training`, algorithm = the method, size =
/// the gradients' bytes, everything else as knobs by the names given here and of CodecSpec's
/// members.
struct TrainingSpec : CodecSpec {
  TrainingMethod method = kPlainestMethod;
  TrainingModel model = TrainingModel::resnet18;  ///< "model"
  int batch = 32;                                 ///< "batch": samples per worker and step
  int sequence = 64;  ///< "sequence": tokens per sample, up to kPositions
  /// "data": generated, or a folder with CIFAR-10 binary (data_batch_1.bin) or IDX files.
  std::string data = kGeneratedData;
  double learning_rate = 0.05;  ///< "learning_rate"
  double momentum = 0.9;        ///< "momentum"
  /// "lars": trust coefficient: a matrix' step is so long a part of its norm, whatever its
  /// gradient's is (LARS, without weight decay); vectors go as SGD has it. 0 = none.
  double lars = 0;
  int rate_warmup = 0;  ///< "rate_warmup": steps in which the learning rate rises, linearly
  /// Sizes; 0, written "auto", leaves them to the method: chosen by expected steps and a trial
  /// (ByteScheduler-A2A, DeAR), else the usual ones.
  Bytes partition{0};                    ///< "partition": largest part of ByteScheduler and PS
  Bytes credit{0};                       ///< "credit": bytes in flight, ByteScheduler
  Bytes bucket{0};                       ///< "bucket": DeAR's groups, DDP's buckets after its first
  MergeRule merge = MergeRule::optimal;  ///< "merge"
  /// "optimizer": worker or server, PS only.
  OptimizerPlace optimizer = OptimizerPlace::worker;
  Packing packing = Packing::none;        ///< "packing"
  Precision precision = Precision::fp32;  ///< "precision": tf32 and bf16 on GPUs only
  /// "servers": ranks 0 to servers-1, PS only; 0 = one dedicated, all ranks colocated.
  int servers = 0;
  /// "placement": PS only.
  ServerPlacement placement = ServerPlacement::dedicated;
  ServerSums server_sums = ServerSums::host;  ///< "server_sums": dedicated servers over NCCL
  int threads = 0;  ///< "threads": of computation per rank; 0 = cores / ranks
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
  /// "pace": milliseconds that a step's computation takes at least, by waiting: stands for slower
  /// processors than there are; 0 = as it comes.
  double pace = 0;
  /// "slow_factor": how many times as long computation takes on a slowed worker, by waiting.
  double slow_factor = 1;
  /// "slow_worker": the slowed one; kAnyWorker: in each step another one, drawn by the seed.
  int slow_worker = kAnyWorker;
  /// "tuner": who chooses the library's settings for the all-reduces of each step: nobody, an agent
  /// that learns from the steps, or a table, by its path.
  std::string tuner = kNoTuner;
};

/// Movements of the weights that LAG holds a change of the gradient against.
inline constexpr int kLagWindow = 10;

/// Whether any part of the cell waits so.
bool waits_as(const TrainingSpec& spec, Synchronisation synchronisation);
/// What is trained before the switch, or after it (the same where there is none).
TrainingSpec leg_of(const TrainingSpec& spec, bool after);
/// Steps of a round: AdaComm's first ones.
int round_steps(const TrainingSpec& spec);
/// Groups that a server answers, of so many workers: workers where there are none.
int groups_of(const TrainingSpec& spec, int workers);
/// AdaComm: steps of a round after the loss came from the first one looked at to `loss`, where
/// rounds have `steps` and had `first` in the beginning.
int adapted_steps(int steps, int first, double first_loss, double loss);

CodecSettings codec_settings(const TrainingSpec& spec);
/// Of gradients within a group.
CodecSettings group_codec_settings(const TrainingSpec& spec);
/// The learning rate in a step of a worker, which counts from 0.
double rate_at(const TrainingSpec& spec, std::uint64_t step);
/// What the optimizer keeps: none where the codec has it.
double optimizer_momentum(const TrainingSpec& spec);
/// Are the library's settings chosen while the cell trains?
bool is_tuned(const TrainingSpec& spec);
/// The path of the table that `tuner` names; "" where it names none.
std::string tuner_table(const TrainingSpec& spec);
/// Name of that table in the folder of a launch, where every rank finds it.
std::string tuner_file(const TrainingSpec& spec);

/// What is usual where nothing is said: BytePS' 4 MiB parts, ByteScheduler's four of them in
/// flight, DDP's 25 MiB buckets.
Bytes partition_of(const TrainingSpec& spec);
Bytes credit_of(const TrainingSpec& spec);
Bytes bucket_of(const TrainingSpec& spec);

/// Is there more than one plan to choose from: sizes left to the method, or MG-WFBP's exact merge?
bool leaves_a_choice(const TrainingSpec& spec);
/// Trying plans takes at most so many times Protocol::cell_time_cap.
inline constexpr double kTrialCaps = 3;

/// Names of the settings that a training cell may have, "model" first.
std::vector<std::string> training_settings();
/// Those of them that say what is trained, for how long and how it is judged: equal where two cells
/// are compared. All others are how a cell trains: its configuration.
const std::vector<std::string>& training_task_settings();
/// All with what they are, in a line, and what holds where they are not said.
struct TrainingSetting {
  std::string name;
  std::string about;
  std::string usual;
};
std::vector<TrainingSetting> training_setting_rows();

/// @throws Error(input) naming the knob for an unknown or mistyped one, or a method that is none
TrainingSpec training_spec(const WorkCell& cell);
/// The cell that carries `spec`, without an id: knobs that have their default are left out, except
/// model and batch.
WorkCell training_cell(const TrainingSpec& spec);

/// Why a method that is a library's engine does not run over this backend; empty when it does.
std::string engine_misfit(TrainingMethod method, Backend backend);
/// Why nothing can choose this backend's settings while it trains; empty when something can, or
/// nothing shall.
std::string tuner_misfit(const TrainingSpec& spec, Backend backend);
/// Why they are not to be had on GPUs over this backend, or ask for GPUs that it does not work on;
/// empty when they are.
std::string gpu_misfit(const TrainingSpec& spec, Backend backend);
/// Why a server with or without a GPU does not sum as the cell says; empty when it does.
std::string server_gpu_misfit(const TrainingSpec& spec, bool has_gpu);
/// Why these settings do not go together; empty when they do.
std::string training_contradiction(const TrainingSpec& spec);
/// Copies of the model that a worker keeps in host memory for `oracle`, at most.
std::uint64_t oracle_copies(const TrainingSpec& spec);

/// Servers among `ranks`, and those of them that do nothing else.
int servers_of(const TrainingSpec& spec, int ranks);
int dedicated_servers(const TrainingSpec& spec);
/// Workers among `ranks`: all but the dedicated servers.
int workers_of(const TrainingSpec& spec, int ranks);
/// Why servers, backup workers, a topology or a pass over generated data do not fit so many ranks;
/// empty when they do.
std::string ranks_misfit(const TrainingSpec& spec, int ranks);
/// Why so many samples are too few: for a step in each pass, a round of each way of waiting, a
/// sample of each worker's own; empty when they are enough.
std::string samples_misfit(const TrainingSpec& spec, std::uint64_t samples, int workers);

/// Why post-local never comes to its local steps in the warm-up's and the measured rounds; empty
/// when it does, or where epochs say how many rounds there are (ranks_misfit()).
/// @param iterations rounds at most where the cell has no `steps`
std::string local_after_misfit(const TrainingSpec& spec, int warmup, int iterations);

/// Whether the cell trains what one process with all workers' batches would: what is judged by step
/// time. Others lose something of plain SGD and are judged by time to a target.
bool trains_as_one(const TrainingSpec& spec);
/// Whether that is plain SGD, too, without LARS and without a warm-up of the rate: what others are
/// held against where an accuracy is to be reached.
bool is_plain_sgd(const TrainingSpec& spec);

/// The worker's part of the data, and of an average of weights; of all workers together 1.
double share_of(const TrainingSpec& spec, int workers, int worker);

/// Workers that take part in a round, in their order: the same answer on every rank.
std::vector<int> participants_of(const TrainingSpec& spec, int workers, std::uint64_t round,
                                 std::uint64_t seed);
/// Whether averages are weighted, by shares or by who takes part.
bool weighs_workers(const TrainingSpec& spec);

/// Is the worker slowed in this step? The same answer on every rank.
bool is_slowed(const TrainingSpec& spec, int workers, int worker, std::uint64_t step,
               std::uint64_t seed);

/// Samples of each worker that `steps` or `epochs` ask for, at most: steps, or rounds of local
/// ones; 0 where the protocol says how many. Files count as 60,000 samples of data.
double budgeted_steps(const TrainingSpec& spec, int workers);
/// The same in a worker's steps, of which a round of local ones has several.
double budgeted_worker_steps(const TrainingSpec& spec, int workers);
/// What a step's computation of `computed_us` takes where a slowed worker is waited for, which
/// `pace` and `slow_factor` lengthen.
double waited_us(const TrainingSpec& spec, double computed_us);

/// f(N): volumes of all parameters that cross the busiest link in one step. All-reduce: 2(N-1)/N in
/// each direction of a full duplex link. S dedicated servers: max(1, N/S) up and down each,
/// together 2 max(1, N/S). A chief before a server: a sum and an answer on each side, together 4 (2
/// without other workers). S colocated ones: a server pushes to S-1 and answers N-1 others,
/// (N+S-2)/S in each direction, with S = N as all-reduce. Neighbours: as many as a worker sends to.
/// Local steps share one such volume, as many as a round has in the beginning.
double parameter_volumes(const TrainingSpec& spec, int workers);

/// C2C = f(N) / (M I): parameters communicated per FLOP computed.
/// @param exchanges of all parameters in a step of a worker, mean: 1 where workers meet in each,
///                  less with rounds of local steps, whose lengths may change while they train;
///                  nullopt: as many as in the beginning
double c2c_predicted(const TrainingSpec& spec, int workers, std::optional<double> exchanges = {});

}  // namespace dynamiccl
