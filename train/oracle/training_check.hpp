#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/wire/record.hpp"
#include "train/exchange/outliving.hpp"
#include "train/exchange/step_server.hpp"
#include "train/synchronise/step_driver.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

inline constexpr double kOracleTolerance = 1e-6;

/// What weights may differ by after one round of so many local steps (1: one step) from those that
/// one process has after it, begun from the same weights; however many rounds are compared. On GPUs
/// sums may go in another order, and means and their momentum are fused: 1e-6 a step, 1e-5 at
/// least.
double oracle_tolerance(bool on_gpu, int round_steps);

/// Some steps of the method: every worker must have the same bits then, and after each step those
/// of one process that does every worker's part in turn from what the worker had before it;
/// weights are at the start again afterwards. A worker keeps steps + 1 copies of its weights in
/// host memory (see oracle_copies()). Ranks: all.
/// @param worker nullptr on servers
/// @param driver makes what exchanges the plan's gradients
/// @param record whose training is filled in; fails where bits are not the same, or weights differ
///               from the one process' by more than oracle_tolerance()
void check_oracle(Communicator& comm, const ExchangePlan& plan, int steps, TrainingWorker* worker,
                  const std::function<std::unique_ptr<StepDriver>()>& driver, CellRecord& record);

/// The same of rounds of local steps, of averages with neighbours and of gradients that are not
/// always sent: every worker must have what the one process gets for it, and the same bits where
/// all average; what rounds decided must be what the one process would decide. So many rounds of
/// each way of waiting. Ranks: all.
void check_rounds(Communicator& comm, const ExchangePlan& plan, const TrainingSpec& spec,
                  TrainingWorker* worker, Micros silence,
                  const std::function<std::unique_ptr<StepDriver>()>& driver, CellRecord& record);

/// The server of steps that all workers do together.
Outliving<StepServer> make_step_server(Communicator& comm, const ExchangePlan& plan,
                                       const TrainingSpec& spec, Micros silence);

/// The same of steps with encoded gradients. The one process starts each step from the weights and
/// momentum that this rank really had, as a rounding may turn a sign; what each worker kept back is
/// the process' own from the first step on.
/// @param worker nullptr on a dedicated server
void check_coded(Communicator& comm, const ExchangePlan& plan, const TrainingSpec& spec,
                 TrainingWorker* worker, const std::function<std::unique_ptr<StepDriver>()>& driver,
                 CellRecord& record);

/// Weights against those that an oracle has for this rank: the record gets the difference, and
/// fails where it is more than `tolerance`, of weights beyond 1 relative to them, and where neither
/// is a number any more. Ranks: all, servers with none of `expected`.
void compare_weights(Communicator& comm, const char* oracle, int steps,
                     const std::vector<float>& trained, const std::vector<float>& expected,
                     CellRecord& record, double tolerance = kOracleTolerance);
/// How many are other bits.
std::uint64_t unlike_bits(const std::vector<float>& own, const std::vector<float>& other);
/// How many of this rank's weights were looked at, and were other bits than they should be: the
/// record fails, on every rank, where any were. Ranks: all.
/// @param what of the words that follow "N weights"
void note_unlike(Communicator& comm, std::uint64_t checked, std::uint64_t unlike,
                 const std::string& what, CellRecord& record);
/// The first fault says where to look.
void fail_check(CellRecord& record, std::string reason);

/// Fails the cell whose training went to infinity: it has trained nothing that could be judged, and
/// what is no number equals whatever it is compared with.
/// @param without_loss first step whose loss is none, from 1 on
void note_divergence(CellRecord& record, std::optional<std::size_t> without_loss,
                     const TrainingWorker& worker);

/// Fails the cell where encoded bytes are not those of the formula, or what is kept back is no
/// finite number.
void check_coding(CellRecord& record, const ExchangePlan& plan, const CodingFigures& coding);

/// The record gets the digest of this worker's own weights.
void note_digest(TrainingWorker& worker, CellRecord& record);

/// After the last step every worker must have the same bits. Ranks: all.
/// @param counts elements of each gradient
/// @param worker nullptr on servers
/// @param record whose training gets the digest of this worker's own weights; fails where they have
///               not
void compare_ranks(Communicator& comm, int servers, const std::vector<std::size_t>& counts,
                   TrainingWorker* worker, CellRecord& record);

}  // namespace dynamiccl
