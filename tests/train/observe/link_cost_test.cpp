// What a GPU's messages cost, on a link whose pace is known: which messages are timed, and how.
#include "train/observe/link_cost.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <thread>

#include "tests/train/paced_gpu.hpp"
#include "train/exchange/lanes.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::WithinRel;

namespace {

/// Two ranks with gradients of these sizes; what rank 0 did stays to be looked at.
struct TwoWorkers {
  explicit TwoWorkers(std::vector<std::size_t> sizes) : counts(std::move(sizes)) {
    spec.batch = 1;
    spec.model = TrainingModel::mlp;
    data = open_dataset(spec);
  }
  void run(const std::function<void(PacedCommunicator&, TrainingWorker&)>& work) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        PacedCommunicator& comm = rank == 0 ? first : second;
        IdleLearner learner(counts);
        TrainingWorker worker(spec, learner, *data, rank, 2, 1);
        std::vector<int> order(counts.size());
        std::iota(order.begin(), order.end(), 0);
        worker.set_order(order);
        work(comm, worker);
      });
    }
    for (auto& thread : threads) thread.join();
  }
  std::vector<std::size_t> counts;
  TrainingSpec spec;
  std::unique_ptr<Dataset> data;
  Network network;
  PacedCommunicator first{network, 0, 2};
  PacedCommunicator second{network, 1, 2};
};

constexpr std::size_t kMiB = 1U << 20;
constexpr std::size_t kLanes = 4;

double lane_us(std::size_t bytes) {
  return PacedQueue::kStartUs + static_cast<double>(bytes) / PacedQueue().lane_bytes_per_us;
}

/// What rank 0 tried where each rank may run on so many cores.
std::vector<TriedPath> tried_by(TwoWorkers& workers, int cores) {
  std::vector<TriedPath> tried;
  workers.run([&](PacedCommunicator& comm, TrainingWorker& worker) {
    // The other rank has cores to spare: the fewest count.
    auto own = try_paths(comm, workers.counts, worker, comm.rank() == 0 ? cores : 2 * cores);
    if (comm.rank() == 0) tried = std::move(own);
  });
  return tried;
}

LinkCost cost_of(TwoWorkers& workers, TrainingMethod method, std::size_t lanes) {
  LinkCost cost;
  workers.run([&](PacedCommunicator& comm, TrainingWorker& worker) {
    TrainingSpec spec = workers.spec;
    spec.method = method;
    LinkCost own = measure_link(comm, spec, workers.counts, &worker, 1, {lanes, false});
    if (comm.rank() == 0) cost = std::move(own);
  });
  return cost;
}

/// For what times say: a busy machine makes some of them longer, so that what holds on an idle one
/// holds in one of many tries there.
template <typename Attempt>
bool holds_once(Attempt attempt) {
  constexpr int kTries = 30;
  for (int i = 0; i < kTries; ++i)
    if (attempt()) return true;
  return false;
}

}  // namespace

TEST_CASE("messages are timed as they will be sent: large ones one by one over all lanes",
          "[a-13]") {
  TwoWorkers workers({8 * kMiB / 4, 24 * kMiB / 4});
  const LinkCost cost = cost_of(workers, TrainingMethod::wfbp_a2a, kLanes);
  const std::size_t all = 8 * kMiB;
  const std::set<std::size_t> shared{largest_whole(kLanes) + 1, all};
  std::size_t large = 0;
  for (const auto& batch : workers.first.paced.batches) {
    std::set<std::size_t> lanes;
    std::size_t sum = 0;
    for (const QueuedCall& call : batch) {
      lanes.insert(call.lane);
      sum += call.count;
    }
    // Small messages keep every lane busy too, a whole one each.
    CHECK(lanes.size() == kLanes);
    if (shared.count(sum) == 0) continue;
    CHECK(batch.size() == kLanes);
    ++large;
  }
  // Each once to warm up and three times.
  CHECK(large == shared.size() * 4);
  // A quarter each, at once; sleeping takes longer at most.
  CHECK(cost.time(32 * kMiB) >= lane_us(8 * kMiB));
  CHECK(holds_once([&] {
    return cost_of(workers, TrainingMethod::wfbp_a2a, kLanes).time(32 * kMiB) < lane_us(32 * kMiB);
  }));
}

TEST_CASE("with one lane messages are timed one after the other on it", "[a-13]") {
  TwoWorkers workers({2 * kMiB, 2 * kMiB});
  const LinkCost cost = cost_of(workers, TrainingMethod::wfbp_a2a, 1);
  for (const auto& batch : workers.first.paced.batches)
    for (const QueuedCall& call : batch) CHECK(call.lane == 0);
  CHECK(cost.time(16 * kMiB) >= lane_us(16 * kMiB));
  CHECK(cost.second.points().back().time_us == 0);
}

TEST_CASE("the halves of DeAR's messages are timed apart where the library queues them", "[d-53]") {
  for (const std::size_t lanes : {std::size_t{1}, kLanes}) {
    TwoWorkers workers({2 * kMiB, 2 * kMiB});
    const LinkCost cost = cost_of(workers, TrainingMethod::dear, lanes);
    // By the link's own clock a half takes this, but for how times since the machine's start are
    // rounded; the whole takes what the host saw.
    const double half_us = lane_us(16 * kMiB / lanes);
    CHECK_THAT(cost.second(16 * kMiB), WithinRel(half_us, 1e-6));
    CHECK(cost.time(16 * kMiB) >= half_us * 0.999);
    // Small messages are on several lanes at once.
    CHECK_THAT(cost.second(1024), WithinRel(lane_us(1024) / static_cast<double>(lanes), 1e-6));
    CHECK(cost.busy_second(16 * kMiB) == cost.second(16 * kMiB));
  }
}

TEST_CASE("lanes are tried up to eight, with messages as large as the model's gradients",
          "[d-40]") {
  // Half of the bytes come in gradients of 4 MiB.
  const std::vector<std::size_t> counts{kMiB, kMiB, kMiB, kMiB, kMiB, 2 * kMiB, 1000, 2 * kMiB};
  std::unique_ptr<TwoWorkers> workers;
  std::vector<TriedPath> tried;
  REQUIRE(holds_once([&] {
    workers = std::make_unique<TwoWorkers>(counts);
    for (PacedCommunicator* comm : {&workers->first, &workers->second})
      comm->paced.lane_bytes_per_us = 500;
    tried = tried_by(*workers, 32);
    return tried.size() == 4 && choose_path(tried).lanes == 8;
  }));
  for (std::size_t i = 0; i < tried.size(); ++i) {
    CHECK(tried[i].path.lanes == std::size_t{1} << i);
    CHECK(tried[i].message_bytes == 4 * kMiB);
  }
  for (const auto& batch : workers->first.paced.batches) {
    std::set<std::size_t> lanes;
    for (const QueuedCall& call : batch) lanes.insert(call.lane);
    // Two lanes share each message of 4 MiB, four and eight take one each.
    if (lanes.size() == 2) CHECK(batch.size() == 16);
    if (lanes.size() > 2) CHECK(batch.size() == 8);
  }
}

TEST_CASE("no more lanes are tried than save time, the cores feed or the library opens", "[d-40]") {
  const auto lanes_tried = [](double link_bytes_per_us, int cores, std::size_t openable) {
    TwoWorkers workers({2 * kMiB, 2 * kMiB, 2 * kMiB});
    for (PacedCommunicator* comm : {&workers.first, &workers.second}) {
      comm->paced.link_bytes_per_us = link_bytes_per_us;
      comm->openable = openable;
    }
    return tried_by(workers, cores).size();
  };
  CHECK(holds_once([&] { return lanes_tried(4000, 64, 64) == 2; }));  // one lane fills the link
  CHECK(lanes_tried(1e9, 15, 64) == 2);  // two ranks, two lanes: 4 of 15 cores, 8 are too many
  CHECK(lanes_tried(1e9, 2, 64) == 1);
  CHECK(lanes_tried(1e9, 64, 3) == 2);
  CHECK(most_lanes(2, 32) == 8);
  CHECK(most_lanes(4, 32) == 4);
  CHECK(most_lanes(1, 1024) == kMostLanes);
}

TEST_CASE("ByteScheduler's parts go over all lanes too, one after the other", "[d-50]") {
  TwoWorkers workers({2 * kMiB, 2 * kMiB});
  const LinkCost cost = cost_of(workers, TrainingMethod::bytescheduler_a2a, kLanes);
  std::size_t large = 0;
  for (const auto& batch : workers.first.paced.batches) {
    std::size_t sum = 0;
    for (const QueuedCall& call : batch) sum += call.count;
    CHECK(batch.size() == (sum > largest_whole(kLanes) ? kLanes : 1));
    large += batch.size() == kLanes ? 1 : 0;
  }
  CHECK(large == 2 * 4);
  CHECK(holds_once([&] {
    return cost_of(workers, TrainingMethod::bytescheduler_a2a, kLanes).time(16 * kMiB) <
           lane_us(16 * kMiB);
  }));
}
