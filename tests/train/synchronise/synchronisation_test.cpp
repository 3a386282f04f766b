// Trainers whose workers do not all wait for each other in every step: the real programs, each
// against its oracle.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/train/training_job.hpp"
#include "train/synchronise/round_lengths.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const double kGradientBytes =
    4 * static_cast<double>(facts_of(TrainingModel::cnn_small, 1).parameters);

/// What each cell of a launch has beside the method.
using Edit = std::function<void(TrainingSpec&)>;

Edit synchronised(Synchronisation how) {
  return [how](TrainingSpec& spec) {
    spec.synchronisation = how;
    if (has_local_steps(how)) spec.local_steps = 3;
    if (how == Synchronisation::post_local) spec.local_after = 4;
    if (how == Synchronisation::ssp) spec.staleness = 1;
    if (how == Synchronisation::adacomm) spec.local_steps = spec.adapt_every = 4;
  };
}

/// Gradients that changed by so much are sent.
Edit lazy(double threshold) {
  return [threshold](TrainingSpec& spec) {
    spec.synchronisation = Synchronisation::lag;
    spec.lag_threshold = threshold;
  };
}

/// FedAvg: one worker a round, and averages weighted by data.
void sampled(TrainingSpec& spec) {
  synchronised(Synchronisation::local)(spec);
  spec.participants = 1;
  spec.shares = DataShares::linear;
}

Edit in_groups_of(int size, Synchronisation how) {
  return [size, how](TrainingSpec& spec) {
    synchronised(how)(spec);
    spec.group_size = size;
  };
}

/// Two epochs of 64 samples; the second one waits otherwise.
Edit switched(Synchronisation from, Synchronisation to) {
  return [from, to](TrainingSpec& spec) {
    synchronised(from)(spec);
    spec.switch_to = to;
    if (to == Synchronisation::local) spec.local_steps = 3;
    spec.epochs = 2;
  };
}

/// Downpour: so many servers, each of a shard.
Edit sharded(int servers) {
  return [servers](TrainingSpec& spec) {
    synchronised(Synchronisation::asp)(spec);
    spec.servers = servers;
  };
}

Edit among(PeerGraph topology) {
  return [topology](TrainingSpec& spec) { spec.topology = topology; };
}

/// D2 over a graph.
Edit compensated(PeerGraph topology) {
  return [topology](TrainingSpec& spec) {
    spec.topology = topology;
    spec.synchronisation = Synchronisation::d2;
  };
}

Edit slow_momentum(Synchronisation how) {
  return [how](TrainingSpec& spec) {
    synchronised(how)(spec);
    spec.slow_momentum = 0.5;
  };
}

void unequal_shares(TrainingSpec& spec) {
  synchronised(Synchronisation::local)(spec);
  spec.shares = DataShares::linear;
}

/// A launch of one method whose cells are the edits, in their order.
std::unique_ptr<Job> job_of_edits(Backend backend, int workers, TrainingMethod method,
                                  const std::vector<Edit>& edits, int oracle, int servers = 1) {
  auto job = job_of(backend, workers, {method}, oracle, servers);
  job->config.cells.clear();
  for (std::size_t i = 0; i < edits.size(); ++i) {
    TrainingSpec spec = small_spec(method);
    spec.model = TrainingModel::cnn_small;
    spec.partition = Bytes(1U << 17);  // several pieces all the same
    spec.oracle = oracle;
    edits[i](spec);
    WorkCell cell = training_cell(spec);
    cell.id = std::to_string(i);
    job->config.cells.push_back(cell);
  }
  return job;
}

/// Every cell ended well and trained what its oracle does.
void check_cells(const Job& job, std::size_t cells, double tolerance) {
  for (std::size_t i = 0; i < cells; ++i) {
    for (int rank = 0; rank < job.config.ranks; ++rank) {
      const auto records = job.records_of<CellRecord>(rank);
      REQUIRE(records.size() == cells);
      const CellRecord& record = records[i];
      INFO("cell " << i << " on rank " << rank << ": " << record.reason);
      REQUIRE(record.status == CellStatus::ok);
      CHECK(record.wrong == 0);
      REQUIRE(record.training);
      CHECK(record.training->max_difference >= 0);
      CHECK(record.training->max_difference <= tolerance);
      CHECK(record.measured.total_us.size() == 3);
      CHECK(record.training->predicted_us == 0);
    }
  }
}

const std::vector<Edit>& local_edits() {
  static const std::vector<Edit> edits{synchronised(Synchronisation::local),
                                       synchronised(Synchronisation::post_local),
                                       slow_momentum(Synchronisation::local),
                                       slow_momentum(Synchronisation::post_local),
                                       unequal_shares,
                                       synchronised(Synchronisation::adacomm),
                                       synchronised(Synchronisation::easgd),
                                       sampled};
  return edits;
}
const std::vector<Edit>& gossip_edits() {
  static const std::vector<Edit> edits{among(PeerGraph::ring),
                                       among(PeerGraph::exponential),
                                       among(PeerGraph::random_pairs),
                                       among(PeerGraph::torus),
                                       compensated(PeerGraph::ring),
                                       compensated(PeerGraph::torus),
                                       [](TrainingSpec& spec) {
                                         spec.topology = PeerGraph::random_pairs;
                                         spec.synchronisation = Synchronisation::local;
                                         spec.local_steps = 2;
                                       }};
  return edits;
}
const std::vector<Edit>& served_edits() {
  static const std::vector<Edit> edits{synchronised(Synchronisation::ssp),
                                       synchronised(Synchronisation::asp),
                                       synchronised(Synchronisation::backup),
                                       synchronised(Synchronisation::staggered),
                                       synchronised(Synchronisation::local),
                                       slow_momentum(Synchronisation::local),
                                       unequal_shares,
                                       synchronised(Synchronisation::easgd),
                                       sampled,
                                       lazy(1),
                                       lazy(1e9)};
  return edits;
}
const std::vector<Edit>& grouped_edits() {
  static const std::vector<Edit> edits{in_groups_of(2, Synchronisation::ssp),
                                       in_groups_of(2, Synchronisation::asp),
                                       in_groups_of(2, Synchronisation::staggered)};
  return edits;
}
const std::vector<Edit>& switched_edits(bool served) {
  static const std::vector<Edit> by_server{
      switched(Synchronisation::bsp, Synchronisation::ssp),
      switched(Synchronisation::asp, Synchronisation::bsp),
      switched(Synchronisation::ssp, Synchronisation::staggered)};
  static const std::vector<Edit> by_all{switched(Synchronisation::bsp, Synchronisation::local),
                                        switched(Synchronisation::local, Synchronisation::bsp)};
  return served ? by_server : by_all;
}

/// What a worker did not send it did not send: bytes are those of the gradients that went.
void check_lazy_bytes(const Job& job, std::size_t cell, bool once) {
  for (int rank = 1; rank < job.config.ranks; ++rank) {
    const CellRecord record = job.records_of<CellRecord>(rank).at(cell);
    const auto& lag = record.training->details.at("lag");
    const auto log = lag.at("log").get<std::vector<int>>();
    const std::size_t steps = record.measured.total_us.size();
    REQUIRE(log.size() > steps);
    const double sent =
        std::accumulate(log.end() - static_cast<std::ptrdiff_t>(steps), log.end(), 0.0);
    CHECK(log.front() == 1);
    // The first two are sent for want of anything to judge them by.
    if (once) CHECK(sent == 0);
    CHECK(record.training->wire_bytes == sent * kGradientBytes / static_cast<double>(steps));
  }
}

void check_switched(const Job& job, std::size_t cells) {
  for (int rank = 0; rank < job.config.ranks; ++rank) {
    const auto records = job.records_of<CellRecord>(rank);
    REQUIRE(records.size() == cells);
    for (const CellRecord& record : records) {
      INFO("cell " << record.cell_id << " on rank " << rank << ": " << record.reason);
      REQUIRE(record.status == CellStatus::ok);
      REQUIRE(record.training);
      CHECK(record.training->max_difference <= 1e-6);
      const auto& details = record.training->details;
      const auto& told = details.at("switched");
      CHECK(told.at("from") != told.at("to"));
      CHECK(told.at("epoch") == 1);
      CHECK(told.at("rounds").get<std::size_t>() < record.measured.total_us.size());
      CHECK(details.at("worker_steps") > told.at("worker_steps"));
    }
  }
}

}  // namespace

TEST_CASE("local steps train what workers of one process would",
          "[d-15][d-16][d-17][d-22][d-28][long]") {
  const auto backend = GENERATE(from_range(kBackends));
  const int workers = GENERATE(2, 4);
  auto job = job_of_edits(backend, workers, TrainingMethod::bsp_a2a, local_edits(), 4);
  run_to_end(*job);
  check_cells(*job, local_edits().size(), workers == 2 ? 0 : 1e-6);
}

TEST_CASE("averages with neighbours train what workers of one process would",
          "[d-06][d-30][long]") {
  const auto backend = GENERATE(from_range(kBackends));
  auto job = job_of_edits(backend, 4, TrainingMethod::d_psgd, gossip_edits(), 4);
  run_to_end(*job);
  check_cells(*job, gossip_edits().size(), 0);
  std::set<std::string> digests;
  for (int rank = 0; rank < 4; ++rank) {
    const auto record = job->records_of<CellRecord>(rank).front();
    add_digest(record, digests);
    const auto& gossip = record.training->details.at("gossip");
    CHECK(gossip.at("spectral_gap") == spectral_gap(PeerGraph::ring, 4));
    CHECK(gossip.at("consensus").back().at(1) > 0);
    // A ring's worker sends to two.
    CHECK(record.training->wire_bytes == 2 * kGradientBytes);
  }
  CHECK(digests.size() == 4);
}

TEST_CASE("a server that answers workers one by one trains what its log says",
          "[d-13][d-14][d-18][d-19][d-21][long]") {
  const auto backend = GENERATE(from_range(kBackends));
  const int workers = GENERATE(2, 4);
  auto job = job_of_edits(backend, workers, TrainingMethod::bsp_ps, served_edits(), 4);
  run_to_end(*job);
  check_cells(*job, served_edits().size(), 0);
  for (std::size_t i = 0; i < 4; ++i) {
    std::set<std::string> digests;
    for (int rank = 1; rank <= workers; ++rank)
      add_digest(job->records_of<CellRecord>(rank)[i], digests);
    CHECK(digests.size() == 1);
    const auto server = job->records_of<CellRecord>(0)[i];
    CHECK(server.training->details.at("update_log").size() >=
          static_cast<std::size_t>(2 * workers));
    CHECK(server.training->details.contains("staleness"));
  }
  check_lazy_bytes(*job, served_edits().size() - 2, false);
  check_lazy_bytes(*job, served_edits().size() - 1, true);
}

namespace {

/// Shards are applied in orders of their own, and all workers end with the same bits.
void check_sharded(const Job& job, int servers) {
  check_cells(job, 1, 0);
  std::set<std::string> digests;
  std::uint64_t held = 0;
  for (int rank = 0; rank < job.config.ranks; ++rank) {
    const auto record = job.records_of<CellRecord>(rank).front();
    add_digest(record, digests);
    if (rank >= servers) continue;
    const auto& log = record.training->details.at("update_log");
    CHECK(log.size() >= static_cast<std::size_t>(2 * (job.config.ranks - servers)));
    held += record.training->details.at("memory").at("unit_bytes").get<std::uint64_t>();
  }
  CHECK(digests.size() == 1);
  CHECK(static_cast<double>(held) == kGradientBytes);
}

}  // namespace

TEST_CASE("servers that each hold a shard train what their logs say, Gloo", "[d-24]") {
  auto job = job_of_edits(Backend::gloo, 3, TrainingMethod::bsp_ps, {sharded(2)}, 6, 2);
  // The slow one is far behind when the phase ends for the others.
  edit_specs(*job, [](TrainingSpec& spec) {
    spec.pace = 4;
    spec.slow_factor = 4;
    spec.slow_worker = 2;
  });
  run_to_end(*job);
  check_sharded(*job, 2);
  const auto steps = [&](int rank) {
    std::size_t applied = 0;
    const auto record = job->records_of<CellRecord>(0).front();
    for (const auto& event : record.training->details.at("update_log"))
      applied += event[0] == 0 && event[1] == rank - 2 ? 1 : 0;
    return applied;
  };
  CHECK(steps(2) + steps(3) + steps(4) == 18);
}

TEST_CASE("servers that each hold a shard train what their logs say", "[d-24][long]") {
  const auto backend = GENERATE(from_range(kBackends));
  const int workers = GENERATE(2, 3);
  const int servers = GENERATE(2, 3);
  auto job = job_of_edits(backend, workers, TrainingMethod::bsp_ps, {sharded(servers)}, 6, servers);
  run_to_end(*job);
  check_sharded(*job, servers);
}

TEST_CASE("planted faults of shards fail the cell", "[d-24][long]") {
  const auto [fault, seen] =
      GENERATE(std::pair{"lose-shard", "replay of the server's log"},
               std::pair{"old-shard", "weights of workers are not the server's bits"});
  auto job = job_of_edits(Backend::gloo, 2, TrainingMethod::bsp_ps, {sharded(2)}, 4, 2);
  check_fault_is_seen(*job, fault, seen);
}

TEST_CASE("LAG that keeps nothing back trains the bits of a BSP server", "[d-21][long]") {
  auto job =
      job_of_edits(Backend::gloo, 3, TrainingMethod::bsp_ps, {[](TrainingSpec&) {}, lazy(0)}, 0);
  edit_specs(*job, [](TrainingSpec& spec) { spec.steps = 12; });
  run_to_end(*job);
  std::set<std::string> digests;
  for (const auto& record : job->records_of<CellRecord>(1)) add_digest(record, digests);
  CHECK(digests.size() == 1);
}

TEST_CASE("groups that all-reduce before a server train what its log says",
          "[c-36][d-07][d-31][long]") {
  const auto backend = GENERATE(from_range(kBackends));
  const int workers = GENERATE(2, 4);
  auto job = job_of_edits(backend, workers, TrainingMethod::bsp_ps, grouped_edits(), 4);
  run_to_end(*job);
  // A sum of two does not depend on its order.
  check_cells(*job, grouped_edits().size(), 0);
}

TEST_CASE("what waits otherwise from an epoch on trains as both say", "[d-27][d-34][long]") {
  const auto backend = GENERATE(from_range(kBackends));
  const int workers = GENERATE(2, 4);
  const bool served = GENERATE(false, true);
  const auto& edits = switched_edits(served);
  auto job = job_of_edits(backend, workers,
                          served ? TrainingMethod::bsp_ps : TrainingMethod::bsp_a2a, edits, 3);
  run_to_end(*job);
  check_switched(*job, edits.size());
}

namespace {

/// A worker that a server answers by itself pushes and pulls once in each measured step, and its
/// bytes pass an interface.
void check_calls(const CellRecord& worker, double message_bytes) {
  INFO(worker.training->details.dump());
  const auto& calls = worker.training->details.at("calls");
  CHECK(calls.at("kinds") == nlohmann::json{"push", "pull"});
  CHECK(calls.at("each").size() == 2 * calls.at("steps").size());
  CHECK(calls.at("each")[0][5] == message_bytes);
  CHECK(calls.at("each")[1][4] > 0);
  const auto& network = worker.training->details.at("network");
  double sent = 0;
  for (const auto& [name, counts] : network.at("interfaces").items())
    sent += counts.at("tx_bytes").get<double>();
  CHECK(sent >= message_bytes * static_cast<double>(calls.at("steps").size()));
}

}  // namespace

TEST_CASE("every way of waiting trains, Gloo, briefly",
          "[d-13][d-15][d-06][A-17][D-39][H-13][H-14]") {
  const std::vector<Edit> of_server{
      synchronised(Synchronisation::ssp),    synchronised(Synchronisation::asp),
      synchronised(Synchronisation::backup), synchronised(Synchronisation::staggered),
      synchronised(Synchronisation::easgd),  lazy(1e9)};
  auto served = job_of_edits(Backend::gloo, 3, TrainingMethod::bsp_ps, of_server, 3);
  // One is far behind: the bound holds others back, and backup workers go on without it.
  edit_specs(*served, [](TrainingSpec& spec) {
    spec.pace = 5;
    spec.slow_factor = 4;
    spec.slow_worker = 2;
  });
  run_to_end(*served);
  check_cells(*served, of_server.size(), 1e-6);
  const auto records = served->records_of<CellRecord>(0);
  CHECK(records[0].training->details.at("staleness").at("furthest_ahead") <= 1);
  CHECK(records[2].training->details.at("staleness").at("dropped") > 0);
  const auto of_worker = served->records_of<CellRecord>(1);
  for (const std::size_t cell : {0U, 1U}) check_calls(of_worker[cell], kGradientBytes);
  check_lazy_bytes(*served, of_server.size() - 1, true);
  auto gossip = job_of_edits(
      Backend::gloo, 3, TrainingMethod::d_psgd,
      {among(PeerGraph::ring), among(PeerGraph::random_pairs), compensated(PeerGraph::ring)}, 3);
  // Neighbours never have the same bits: two rounds are replayed where no number is asked for.
  edit_specs(*gossip, [](TrainingSpec& spec) {
    if (spec.topology == PeerGraph::ring) spec.oracle = 0;
  });
  run_to_end(*gossip);
  check_cells(*gossip, 3, 0);
  for (const auto& record : gossip->records_of<CellRecord>(0)) CHECK(record.checked > 0);
  const std::vector<Edit> of_all{
      synchronised(Synchronisation::local), slow_momentum(Synchronisation::post_local),
      synchronised(Synchronisation::easgd), sampled, synchronised(Synchronisation::adacomm)};
  auto local = job_of_edits(Backend::gloo, 2, TrainingMethod::bsp_a2a, of_all, 3);
  run_to_end(*local);
  check_cells(*local, of_all.size(), 0);
  const auto adapted = local->records_of<CellRecord>(0).back();
  const auto steps = adapted.training->details.at("round_steps").get<std::vector<int>>();
  REQUIRE(steps.size() == 4);
  CHECK(steps.front() == 4);
  CHECK(steps.back() < 4);
}

TEST_CASE("a worker without a part in a round has no loss in it", "[d-16][d-98]") {
  auto job = job_of_edits(Backend::gloo, 3, TrainingMethod::bsp_a2a, {sampled}, 0);
  run_to_end(*job);
  int unknown = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const auto records = job->records_of<CellRecord>(rank);
    REQUIRE(records.size() == 1);
    INFO(records[0].reason);
    CHECK(records[0].status == CellStatus::ok);
    const TrainingFigures& figures = *records[0].training;
    bool known = false;
    for (const auto& loss : figures.details.at("losses")) {
      known = known || !loss.is_null();
      unknown += loss.is_null() ? 1 : 0;
      // Afterwards the last round's that it had a part in.
      CHECK(loss.is_null() != known);
      if (known) CHECK(loss.get<double>() > 1);
    }
    CHECK((figures.first_loss > 1) == known);
    CHECK((figures.last_loss > 1) == known);
  }
  // One of three takes part in the first round.
  CHECK(unknown >= 2);
}

TEST_CASE("C2C counts the steps that rounds really had", "[E-186][d-28][d-34]") {
  auto job = job_of_edits(Backend::gloo, 2, TrainingMethod::bsp_a2a,
                          {synchronised(Synchronisation::adacomm),
                           switched(Synchronisation::bsp, Synchronisation::local),
                           slow_momentum(Synchronisation::post_local)},
                          0);
  edit_specs(*job, [](TrainingSpec& spec) {
    if (spec.synchronisation == Synchronisation::adacomm) spec.steps = 6;
  });
  run_to_end(*job);
  for (const CellRecord& record : job->records_of<CellRecord>(0)) {
    INFO("cell " << record.cell_id << ": " << record.reason);
    REQUIRE(record.status == CellStatus::ok);
    const TrainingFigures& figures = *record.training;
    REQUIRE(figures.counted_bytes > 0);
    // Bytes of a mean round are the formula's by the steps that it had; Gloo's messages add some.
    CHECK(figures.c2c_measured > figures.c2c_predicted);
    CHECK(figures.c2c_measured < 1.1 * figures.c2c_predicted);
  }
}

TEST_CASE("what neighbours send each other for a look is no round's traffic",
          "[E-186][d-09][d-30]") {
  auto job =
      job_of_edits(Backend::gloo, 2, TrainingMethod::d_psgd,
                   {[](TrainingSpec& spec) { spec.steps = 2; },
                    [](TrainingSpec& spec) { spec.steps = 0, spec.epochs = 2, spec.looks = 2; }},
                   0);
  run_to_end(*job);
  for (const CellRecord& record : job->records_of<CellRecord>(0)) {
    INFO("cell " << record.cell_id << ": " << record.reason);
    REQUIRE(record.status == CellStatus::ok);
    const TrainingFigures& figures = *record.training;
    REQUIRE(!figures.details.at("gossip").at("consensus").empty());
    CHECK(figures.counted_bytes > figures.wire_bytes);
    CHECK(figures.counted_bytes < 1.1 * figures.wire_bytes);
    CHECK(figures.c2c_measured < 1.1 * figures.c2c_predicted);
  }
}

TEST_CASE("groups and switches train, Gloo, briefly", "[d-07][d-34]") {
  auto grouped = job_of_edits(Backend::gloo, 4, TrainingMethod::bsp_ps,
                              {in_groups_of(2, Synchronisation::ssp)}, 3);
  run_to_end(*grouped);
  check_cells(*grouped, 1, 0);
  for (const bool served : {false, true}) {
    auto job =
        job_of_edits(Backend::gloo, 2, served ? TrainingMethod::bsp_ps : TrainingMethod::bsp_a2a,
                     {switched_edits(served).front()}, 2);
    run_to_end(*job);
    check_switched(*job, 1);
  }
}

TEST_CASE("AdaComm's rule holds of rounds after the oracle's too", "[d-28]") {
  auto job = job_of_edits(Backend::gloo, 2, TrainingMethod::bsp_a2a, {[](TrainingSpec& spec) {
                            synchronised(Synchronisation::adacomm)(spec), spec.steps = 4;
                          }},
                          1);
  check_fault_is_seen(*job, "keep-rounds", "measured rounds: workers did");
}

TEST_CASE("a log of rounds is held against AdaComm's rule by its losses", "[d-28]") {
  TrainingSpec spec;
  spec.synchronisation = Synchronisation::adacomm;
  spec.local_steps = spec.adapt_every = 4;
  // Less than a quarter of the first loss halves the first length; a loss that stays halves it
  // again.
  const std::vector<double> losses{4, -0.1, 0, 0, 1, 1, 1, 1, 1};
  CHECK(misfit_of_rounds(spec, {4, 2, 2, 1}, losses).empty());
  CHECK_THAT(misfit_of_rounds(spec, {4, 4, 1}, losses),
             ContainsSubstring("round 1 had 4 steps, by the losses before it the rule gives 2"));
  CHECK_THAT(misfit_of_rounds(spec, {4, 2, 2, 2}, losses), ContainsSubstring("round 3 had 2"));
  CHECK_THAT(misfit_of_rounds(spec, {2, 2, 2, 2, 1}, losses), ContainsSubstring("round 0 had 2"));
  CHECK_THAT(misfit_of_rounds(spec, {4, 2, 2}, losses), ContainsSubstring("9 steps were done"));
  CHECK_THAT(misfit_of_rounds(spec, {4, 2, 2, 1, 1}, losses),
             ContainsSubstring("0 losses of it are known"));
}

TEST_CASE("planted faults of synchronisation fail the cell",
          "[d-13][d-15][d-06][d-16][d-19][d-21][d-22][d-28][d-07][d-34][long]") {
  struct Planted {
    const char* fault;
    TrainingMethod method;
    Edit edit;
    const char* seen;
  };
  const auto slowed = [](TrainingSpec& spec) {
    synchronised(Synchronisation::ssp)(spec);
    spec.pace = 4;
    spec.slow_factor = 8;
    spec.slow_worker = 2;
  };
  const auto planted = GENERATE_COPY(
      Planted{"skip-local-step", TrainingMethod::bsp_a2a, synchronised(Synchronisation::local),
              "replay in one process"},
      Planted{"drop-neighbour", TrainingMethod::d_psgd, among(PeerGraph::ring),
              "replay in one process"},
      Planted{"drop-way", TrainingMethod::d_psgd, compensated(PeerGraph::ring),
              "replay in one process"},
      Planted{"forget-slow-momentum", TrainingMethod::bsp_a2a,
              slow_momentum(Synchronisation::local), "replay in one process"},
      Planted{"equal-share", TrainingMethod::bsp_a2a, unequal_shares, "replay in one process"},
      Planted{"keep-rounds", TrainingMethod::bsp_a2a, synchronised(Synchronisation::adacomm),
              "replay in one process"},
      Planted{"stay-away", TrainingMethod::bsp_a2a, synchronised(Synchronisation::easgd),
              "replay in one process"},
      Planted{"uninvited", TrainingMethod::bsp_a2a, sampled, "replay in one process"},
      Planted{"send-nothing", TrainingMethod::bsp_ps, lazy(0), "replay in one process"},
      Planted{"leave-group", TrainingMethod::bsp_ps, in_groups_of(3, Synchronisation::asp),
              "replay of the server's log"},
      Planted{"forget-switch", TrainingMethod::bsp_a2a,
              switched(Synchronisation::bsp, Synchronisation::local), "replay in one process"},
      Planted{"forget-switch", TrainingMethod::bsp_ps,
              switched(Synchronisation::bsp, Synchronisation::asp), "replay of the server's log"},
      Planted{"out-of-turn", TrainingMethod::bsp_ps, synchronised(Synchronisation::staggered),
              "in worker 0's turn"},
      Planted{"exceed-bound", TrainingMethod::bsp_ps, slowed, "the bound is 1"},
      Planted{"use-twice", TrainingMethod::bsp_ps, synchronised(Synchronisation::asp),
              "replay of the server's log"});
  INFO(planted.fault);
  auto job = job_of_edits(Backend::gloo, 3, planted.method, {planted.edit}, 6);
  check_fault_is_seen(*job, planted.fault, planted.seen);
}

namespace {

/// Who trains without waiting for all.
struct Loose {
  TrainingMethod method;
  Edit edit;
  int workers = 3;
  int servers = 1;
};

/// A short cell, and one of the same that does not end by itself.
std::unique_ptr<Job> endless_job(Backend backend, const Loose& loose) {
  auto job = job_of_edits(backend, loose.workers, loose.method, {loose.edit, loose.edit}, 0,
                          loose.servers);
  int steps = 3;
  edit_specs(*job, [&](TrainingSpec& spec) {
    spec.model = TrainingModel::cnn_small;
    spec.pace = 2;
    spec.steps = std::exchange(steps, 1'000'000);
  });
  job->environment["DYNAMICCL_SILENCE_S"] = "2";
  return job;
}

/// Asks every now and then until it is so, for three minutes at most.
bool comes_true(const std::function<bool()>& is_so) {
  for (int i = 0; i < 1800 && !is_so(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return is_so();
}

}  // namespace

TEST_CASE("a worker that dies or is stopped ends the others with an error in time",
          "[d-06][d-13][d-14][d-24][long]") {
  const auto backend = GENERATE(from_range(kBackends));
  const auto loose = GENERATE(
      Loose{TrainingMethod::bsp_ps, synchronised(Synchronisation::ssp)},
      Loose{TrainingMethod::bsp_ps, synchronised(Synchronisation::asp)},
      Loose{TrainingMethod::d_psgd, among(PeerGraph::ring)}, Loose{TrainingMethod::bsp_ps, lazy(1)},
      Loose{TrainingMethod::bsp_ps, in_groups_of(2, Synchronisation::asp), 4},
      Loose{TrainingMethod::bsp_ps, sharded(2), 3, 2});
  const bool dies = GENERATE(false, true);
  // A launcher sees a death by itself.
  const bool launched = backend != Backend::gloo;
  if (dies && launched) return;
  INFO(name_of(backend) << ", " << name_of(loose.method) << (dies ? ", killed" : ", stopped"));
  auto job = endless_job(backend, loose);
  job->start();
  const int last = job->config.ranks - 1;
  const auto worker = static_cast<pid_t>(wait_for_hello(*job, last).pid);
  REQUIRE(worker > 0);
  REQUIRE(comes_true([&] { return !job->records_of<CellRecord>(last).empty(); }));
  std::this_thread::sleep_for(std::chrono::seconds(2));  // into the other cell's steps
  kill(worker, dies ? SIGKILL : SIGSTOP);
  const auto told = [&] {
    return job->errors().find("has sent anything for") != std::string::npos;
  };
  if (!dies) CHECK(comes_true(told));
  if (!dies && !launched) kill(worker, SIGKILL);  // nobody else would
  CHECK(job->wait(kTimeoutS) > 0);
  INFO(job->errors());
  CHECK(job->records_of<CellRecord>(0).size() == 1);
}

TEST_CASE("parts of a step add up, and what BSP exposes is what it communicates", "[a-13][long]") {
  const auto backend = GENERATE(from_range(kBackends));
  const bool served = GENERATE(false, true);
  std::vector<TrainingMethod> methods = served ? kServer : ring_methods(backend);
  if (!served) methods.push_back(TrainingMethod::d_psgd);
  auto job = job_of(backend, 2, methods, 0);
  edit_specs(*job, [](TrainingSpec& spec) {
    spec.model = TrainingModel::cnn;
    spec.steps = 40;
  });
  run_to_end(*job);
  for (int rank = served ? 1 : 0; rank < job->config.ranks; ++rank) {
    for (const auto& record : job->records_of<CellRecord>(rank)) {
      INFO(name_of(backend) << " rank " << rank << ": " << record.cell_id << " " << record.reason);
      REQUIRE(record.status == CellStatus::ok);
      const TrainingFigures& figures = *record.training;
      // Of a step's parts and that step by one clock, in the middle of all steps: whoever else uses
      // the machine lengthens both, or comes between the parts of a few steps.
      const double accounted = figures.details.at("accounted");
      CHECK(accounted > 0.98);
      CHECK(accounted < 1.02);
      CHECK(figures.wire_bytes > 0);
      const auto method = parse_named<TrainingMethod>(record.algorithm);
      if (method_row(method).grouping != MessageGrouping::together) continue;
      // No bound from above: who else uses the machine comes between what is taken as exposed.
      CHECK(figures.details.at("exposed_of_busy") > 0.9);
    }
  }
}
