// Rounds of local steps and averages with neighbours where weights lie on a GPU and the library
// has a queue: against the replay in one process that checks them on real ones. The GPU is host
// memory that says it is one and updates as one, ranks are threads.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/train/queued_threads.hpp"
#include "train/oracle/training_check.hpp"
#include "train/oracle/update_replay.hpp"
#include "train/synchronise/asynchronous_training.hpp"
#include "train/synchronise/averaging.hpp"
#include "train/synchronise/lazy_gradients.hpp"
#include "train/synchronise/round_driver.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

namespace {

ExchangePlan plan_of(const TrainingSpec& spec) {
  ExchangePlan plan;
  plan.method = spec.method;
  plan.counts = kDrawnCounts;
  plan.pieces = cut(plan.counts, each_alone(2), 1000);
  plan.servers = architecture_of(spec.method) == Architecture::ps ? 1 : 0;
  plan.codec = codec_settings(spec);
  plan.rows = {1, 1};
  plan.seed = 7;
  return plan;
}

using Checked =
    std::function<void(QueuedThreads&, const ExchangePlan&, TrainingWorker*, CellRecord&)>;

/// Runs the check on each rank; every record must end well.
void on_all_ranks(const TrainingSpec& spec, int ranks, const Checked& check) {
  const auto ran = run_ranks<QueuedThreads>(
      spec, plan_of(spec), ranks,
      [&](QueuedThreads& comm, const ExchangePlan& plan, TrainingWorker* worker, Learner&,
          CellRecord& record) { check(comm, plan, worker, record); });
  for (std::size_t rank = 0; rank < ran.records.size(); ++rank) {
    INFO("rank " << rank << ": " << ran.failures[rank] << ran.records[rank].reason);
    CHECK(ran.failures[rank].empty());
    CHECK(ran.records[rank].status == CellStatus::ok);
    CHECK(ran.records[rank].wrong == 0);
  }
}

TrainingSpec rounds(Synchronisation how, TrainingMethod method = TrainingMethod::wfbp_a2a) {
  TrainingSpec spec;
  spec.model = TrainingModel::mlp;
  spec.batch = 1;
  spec.learning_rate = 0.05;
  spec.method = method;
  spec.synchronisation = how;
  spec.oracle = 5;
  if (has_local_steps(how)) spec.local_steps = 3;
  if (how == Synchronisation::post_local) spec.local_after = 4;
  if (how == Synchronisation::adacomm) spec.adapt_every = 3;
  return spec;
}

}  // namespace

TEST_CASE("rounds on GPUs train what a replay of all workers trains", "[d-28]") {
  const int ranks = GENERATE(2, 3);
  TrainingSpec spec = rounds(Synchronisation::local);
  SECTION("local steps") {}
  SECTION("sums of gradients first, whose momentum goes over") {
    spec = rounds(Synchronisation::post_local);
  }
  SECTION("a momentum of averages") { spec.slow_momentum = 0.5; }
  SECTION("unequal shares of data, one worker a round") {
    spec.shares = DataShares::linear;
    spec.participants = 1;
  }
  SECTION("rounds that shorten") { spec = rounds(Synchronisation::adacomm); }
  SECTION("a centre") { spec = rounds(Synchronisation::easgd); }
  SECTION("one message") { spec.method = TrainingMethod::bsp_a2a; }
  on_all_ranks(spec, ranks, [&](auto& comm, const auto& plan, auto* worker, auto& record) {
    const auto make = [&] { return make_round_driver(comm, plan, spec, *worker, Micros(30e6)); };
    check_rounds(comm, plan, spec, worker, Micros(30e6), make, record);
  });
}

TEST_CASE("codecs of the host encode what GPUs average, for messages of the host", "[d-73][d-82]") {
  const int ranks = GENERATE(2, 3);
  TrainingSpec spec = rounds(Synchronisation::local, TrainingMethod::bsp_a2a);
  spec.density = 0.05;
  spec.compression =
      GENERATE(Codec::stc, Codec::sbc, Codec::three_lc, Codec::threshold, Codec::adacomp,
               Codec::gtopk, Codec::diana, Codec::qsgd_adaptive, Codec::qsgd);
  if (spec.compression == Codec::qsgd) spec.layer_bits = LayerBits::size;
  INFO(name_of(spec.compression));
  on_all_ranks(spec, ranks, [&](auto& comm, const auto& plan, auto* worker, auto& record) {
    const auto make = [&] { return make_round_driver(comm, plan, spec, *worker, Micros(30e6)); };
    check_coded(comm, plan, spec, worker, make, record);
    const auto driver = make();
    for (int round = 0; round < 2; ++round) driver->step();
    driver->finish();
    const auto coding = driver->take_coding();
    if (!coding || coding->steps != 2 || coding->message_bytes == 0)
      record.reason = "what was encoded is told", ++record.wrong;
  });
}

TEST_CASE("servers decode what workers on GPUs averaged, encoded by the host", "[d-82]") {
  TrainingSpec spec = rounds(Synchronisation::local, TrainingMethod::bsp_ps);
  spec.compression = GENERATE(Codec::bf16, Codec::onebit, Codec::topk, Codec::randomk, Codec::stc);
  INFO(name_of(spec.compression));
  on_all_ranks(spec, 3, [&](auto& comm, const auto& plan, auto* worker, auto& record) {
    const auto make = [&] { return make_round_driver(comm, plan, spec, *worker, Micros(30e6)); };
    check_coded(comm, plan, spec, worker, make, record);
  });
}

TEST_CASE("neighbours on GPUs send encoded ways, from replicas in host memory", "[d-82]") {
  TrainingSpec spec = rounds(Synchronisation::bsp, TrainingMethod::d_psgd);
  spec.compression = GENERATE(Codec::bf16, Codec::onebit, Codec::topk, Codec::qsgd);
  INFO(name_of(spec.compression));
  on_all_ranks(spec, 4, [&](auto& comm, const auto& plan, auto* worker, auto& record) {
    const auto make = [&] { return make_round_driver(comm, plan, spec, *worker, Micros(30e6)); };
    check_rounds(comm, plan, spec, worker, Micros(30e6), make, record);
    if (comm.swaps != 0) record.reason = "weights are swapped plainly", ++record.wrong;
  });
}

TEST_CASE("what a GPU's sums may be off by grows with a round's steps, a host's does not",
          "[d-28]") {
  CHECK(oracle_tolerance(true, 1) == 10 * oracle_tolerance(false, 1));
  CHECK(oracle_tolerance(true, 18) == oracle_tolerance(false, 18) * 18);
  CHECK(oracle_tolerance(false, 18) == 1e-6);
}

TEST_CASE("neighbours on GPUs swap weights in one call of the library's", "[d-30]") {
  TrainingSpec spec = rounds(Synchronisation::bsp, TrainingMethod::d_psgd);
  SECTION("around a ring") {}
  SECTION("a torus") { spec.topology = PeerGraph::torus; }
  SECTION("exponentially far") { spec.topology = PeerGraph::exponential; }
  SECTION("in random pairs") { spec.topology = PeerGraph::random_pairs; }
  SECTION("after two steps") {
    spec.synchronisation = Synchronisation::local;
    spec.local_steps = 2;
  }
  on_all_ranks(spec, 4, [&](auto& comm, const auto& plan, auto* worker, auto& record) {
    const auto make = [&] { return make_round_driver(comm, plan, spec, *worker, Micros(30e6)); };
    check_rounds(comm, plan, spec, worker, Micros(30e6), make, record);
    // A swap for each round, and no message of the host's instead.
    if (comm.swaps != spec.oracle)
      record.reason = "as many swaps as rounds are due", ++record.wrong;
  });
}

TEST_CASE("the mean of neighbours' weights is judged, and each goes on with its own", "[d-30]") {
  TrainingSpec spec = rounds(Synchronisation::bsp, TrainingMethod::d_psgd);
  spec.epochs = 1;
  constexpr std::size_t kRanks = 4;
  std::vector<double> own(kRanks);
  std::vector<double> judged(kRanks);
  on_all_ranks(spec, kRanks, [&](auto& comm, const auto& plan, auto* worker, auto& record) {
    const auto driver = make_round_driver(comm, plan, spec, *worker, Micros(30e6));
    for (int step = 0; step < 3; ++step) driver->step();
    const std::vector<float> before = worker->weights();
    TrainingFigures figures;
    driver->look(figures, 3);
    if (worker->weights() != before) record.reason = "other weights afterwards", ++record.wrong;
    const auto rank = static_cast<std::size_t>(comm.rank());
    own[rank] = worker->accuracy(1);
    const auto& told = figures.details.at("gossip").at("mean_accuracies").back();
    judged[rank] = told.at(1);
    if (told.at(0) != 3) record.reason = "after three rounds", ++record.wrong;
  });
  const double mean = std::accumulate(own.begin(), own.end(), 0.0) / kRanks;
  CHECK(std::set<double>(own.begin(), own.end()).size() > 1);
  for (const double each : judged) CHECK(std::abs(each - mean) < 1e-6);
}

TEST_CASE("servers answer workers on GPUs by way of host memory", "[d-13]") {
  const auto how = GENERATE(Synchronisation::asp, Synchronisation::staggered, Synchronisation::lag);
  TrainingSpec spec = rounds(how, TrainingMethod::bsp_ps);
  INFO(name_of(how));
  on_all_ranks(spec, 3, [&](auto& comm, const auto& plan, auto* worker, auto& record) {
    if (how != Synchronisation::lag)
      return check_updates(comm, plan, spec, worker, Micros(30e6), record);
    const auto make = [&] { return make_lazy_driver(comm, plan, spec, *worker, Micros(30e6)); };
    check_rounds(comm, plan, spec, worker, Micros(30e6), make, record);
  });
}

TEST_CASE("what the ring of a group adds is replayed in its order", "[d-07][d-31]") {
  const auto how = GENERATE(Synchronisation::asp, Synchronisation::staggered);
  TrainingSpec spec = rounds(how, TrainingMethod::bsp_ps);
  spec.group_size = 3;
  on_all_ranks(spec, 7, [&](auto& comm, const auto& plan, auto* worker, auto& record) {
    check_updates(comm, plan, spec, worker, Micros(30e6), record);
    if (record.training->max_difference != 0)
      record.reason = "other bits than the replay's", ++record.wrong;
  });
}

TEST_CASE("neighbours swap what an int does not count in parts, and average to the same bits") {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 107;
  const auto average = [&](std::size_t most_at_once, int& swaps, int& most) {
    Network network;
    std::vector<std::vector<float>> means(kRanks);
    std::vector<std::pair<int, int>> seen(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        QueuedThreads comm(network, rank, kRanks);
        NamedGpuMemory memory;
        std::vector<float> own(kCount);
        for (std::size_t i = 0; i < kCount; ++i)
          own[i] = 0.1F * static_cast<float>(rank) + 0.01F * static_cast<float>(i);
        NeighbourAverage neighbours(comm, memory, PeerGraph::ring, kCount, 1, Micros{30e6},
                                    most_at_once);
        for (std::uint64_t round = 0; round < 2; ++round) {
          const float* mean = neighbours.average(round, own.data());
          own.assign(mean, mean + kCount);
        }
        means[static_cast<std::size_t>(rank)] = own;
        seen[static_cast<std::size_t>(rank)] = {comm.swaps, comm.most};
      });
    for (auto& thread : threads) thread.join();
    for (const auto& [calls, elements] : seen) {
      CHECK(calls == seen.front().first);
      most = std::max(most, elements);
    }
    swaps = seen.front().first;
    return means;
  };
  int swaps = 0;
  int most = 0;
  const auto whole = average(1 << 20, swaps, most);
  CHECK(swaps == 2);
  CHECK(most == 2 * kCount);
  most = 0;
  const auto parts = average(200, swaps, most);
  CHECK(swaps == 2 * 3);  // of 50 elements at most
  CHECK(most == 2 * 50);
  CHECK(parts == whole);
}
