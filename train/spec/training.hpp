#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "core/wire/run_config.hpp"
#include "train/spec/settings.hpp"
#include "train/spec/training_method.hpp"

namespace dynamiccl {

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

/// One training cell. Travels as a WorkCell: collective `training`, algorithm = the method, size =
/// the gradients' bytes, everything else as knobs by the names of its parts' rows.
struct TrainingSpec : TrainingTask,
                      OptimizerSettings,
                      MessageSettings,
                      ServerSettings,
                      MeetingSettings,
                      CodecSpec,
                      PaceSettings,
                      RankSettings {
  TrainingMethod method = kPlainestMethod;
};

/// Last movements of the weights that LAG compares a change of the gradient with.
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

using Settings = std::map<std::string, std::string>;  ///< of a training cell, as text
/// @throws Error(input) naming the setting for an unknown or mistyped one
TrainingSpec parsed_training(const Settings& settings, TrainingMethod method = kPlainestMethod);
/// Of a cell that was read, not planned. @throws Error(input) also for a method that is none
TrainingSpec parsed_training(const WorkCell& cell);
/// What a planned cell carries.
const TrainingSpec& training_spec(const WorkCell& cell);
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
/// compared with where an accuracy is to be reached.
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
