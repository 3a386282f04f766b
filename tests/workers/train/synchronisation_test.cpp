// Trainers whose workers do not all wait for each other in every step: the real programs, each
// against its oracle.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/statistics/statistics.hpp"
#include "tests/workers/train/training_job.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// What each cell of a launch has beside the method.
using Edit = std::function<void(TrainingSpec&)>;

Edit synchronised(Synchronisation how) {
  return [how](TrainingSpec& spec) {
    spec.synchronisation = how;
    if (has_local_steps(how)) spec.local_steps = 3;
    if (how == Synchronisation::post_local) spec.local_after = 4;
    if (how == Synchronisation::ssp) spec.staleness = 1;
  };
}

Edit among(PeerGraph topology) {
  return [topology](TrainingSpec& spec) { spec.topology = topology; };
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
                                  const std::vector<Edit>& edits, int oracle) {
  auto job = job_of(backend, workers, {method}, oracle);
  job->config.cells.clear();
  for (std::size_t i = 0; i < edits.size(); ++i) {
    TrainingSpec spec = small_spec(method);
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
                                       slow_momentum(Synchronisation::post_local), unequal_shares};
  return edits;
}
const std::vector<Edit>& gossip_edits() {
  static const std::vector<Edit> edits{among(PeerGraph::ring), among(PeerGraph::exponential),
                                       among(PeerGraph::random_pairs), among(PeerGraph::torus),
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
                                       unequal_shares};
  return edits;
}

}  // namespace

TEST_CASE("local steps train what workers of one process would", "[d-15][d-16][d-17][d-22][long]") {
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
    CHECK(record.training->wire_bytes == 2 * 4.0 * 1'707'274);
  }
  CHECK(digests.size() == 4);
}

TEST_CASE("a server that answers workers one by one trains what its log says",
          "[d-13][d-14][d-18][d-19][long]") {
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
}

TEST_CASE("every way of waiting trains, Gloo, briefly", "[d-13][d-15][d-06]") {
  auto served = job_of_edits(Backend::gloo, 3, TrainingMethod::bsp_ps, served_edits(), 3);
  // One is far behind: the bound holds others back, and backup workers go on without it.
  edit_specs(*served, [](TrainingSpec& spec) {
    spec.pace = 5;
    spec.slow_factor = 4;
    spec.slow_worker = 2;
  });
  run_to_end(*served);
  check_cells(*served, served_edits().size(), 1e-6);
  const auto records = served->records_of<CellRecord>(0);
  CHECK(records[0].training->details.at("staleness").at("furthest_ahead") <= 1);
  CHECK(records[2].training->details.at("staleness").at("dropped") > 0);
  auto gossip = job_of_edits(Backend::gloo, 3, TrainingMethod::d_psgd,
                             {among(PeerGraph::ring), among(PeerGraph::random_pairs)}, 3);
  run_to_end(*gossip);
  check_cells(*gossip, 2, 0);
  auto local = job_of_edits(Backend::gloo, 2, TrainingMethod::bsp_a2a, local_edits(), 3);
  run_to_end(*local);
  check_cells(*local, local_edits().size(), 0);
}

TEST_CASE("planted faults of synchronisation fail the cell",
          "[d-13][d-15][d-06][d-16][d-19][d-22][long]") {
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
      Planted{"forget-slow-momentum", TrainingMethod::bsp_a2a,
              slow_momentum(Synchronisation::local), "replay in one process"},
      Planted{"equal-share", TrainingMethod::bsp_a2a, unequal_shares, "replay in one process"},
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
};

/// A short cell, and one of the same that does not end by itself.
std::unique_ptr<Job> endless_job(Backend backend, const Loose& loose) {
  auto job = job_of_edits(backend, 3, loose.method, {loose.edit, loose.edit}, 0);
  int steps = 3;
  edit_specs(*job, [&](TrainingSpec& spec) {
    spec.pace = 2;
    spec.steps = std::exchange(steps, 1'000'000);
  });
  job->environment["DYNAMICCL_SILENCE_S"] = "2";
  return job;
}

/// Asks every now and then until it is so, for a minute at most.
bool comes_true(const std::function<bool()>& is_so) {
  for (int i = 0; i < 600 && !is_so(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return is_so();
}

}  // namespace

TEST_CASE("a worker that dies or is stopped ends the others with an error in time",
          "[d-06][d-13][d-14][long]") {
  const auto backend = GENERATE(from_range(kBackends));
  const auto loose = GENERATE(Loose{TrainingMethod::bsp_ps, synchronised(Synchronisation::ssp)},
                              Loose{TrainingMethod::bsp_ps, synchronised(Synchronisation::asp)},
                              Loose{TrainingMethod::d_psgd, among(PeerGraph::ring)});
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

TEST_CASE("parts of a step add up, and what a method exposes is no less than it communicates",
          "[a-13][long]") {
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
      // Parts and steps by one clock: whoever else uses the machine lengthens both.
      const double accounted = figures.details.at("accounted");
      CHECK(accounted > 0.98);
      CHECK(accounted < 1.02);
      CHECK(figures.wire_bytes > 0);
      const auto method = parse_named<TrainingMethod>(record.algorithm);
      if (method_row(method).order != SendOrder::after_backward || method_row(method).engine)
        continue;
      CHECK(figures.exposed_us > 0.9 * median(record.measured.collective_us));
    }
  }
}
