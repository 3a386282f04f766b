// Servers that are workers too, over a network in which a send ends when it has been received.
#include "train/exchange/colocated.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <thread>

#include "tests/train/same_bits.hpp"
#include "tests/train/thread_network.hpp"
#include "train/exchange/gradient_exchange.hpp"
#include "train/exchange/gradient_server.hpp"
#include "workers/tags.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

namespace {

constexpr int kColocatedSteps = 4;
const Sgd kSgd{0.5F, 0.9F};

ExchangePlan colocated_plan(TrainingMethod method, int servers) {
  ExchangePlan plan;
  plan.method = method;
  plan.servers = servers;
  plan.colocated = true;
  plan.counts = {5, 700, 1, 400, 33, 256};
  // More pieces than gradients and than servers, and credit for two of them.
  const bool whole = method == TrainingMethod::bsp_ps;
  const auto groups = whole ? all_together(plan.counts.size()) : each_alone(plan.counts.size());
  plan.pieces = cut(plan.counts, groups, 100);
  plan.credit_bytes = 200 * sizeof(float);
  assign_servers(plan.pieces, servers);
  return plan;
}

/// Of such different sizes that sums in another order are other bits.
float gradient_of(int worker, int step, std::size_t i) {
  const auto mixed =
      static_cast<unsigned>(i * 2654435761U + static_cast<unsigned>(worker) * 40503U +
                            static_cast<unsigned>(step) * 977U);
  return static_cast<float>(mixed % 1013) * (worker % 2 == 0 ? 1.0F : 1e-4F) + 1e-6F;
}

/// What one process would add up.
std::vector<float> sums_of(int workers, int step, std::size_t count) {
  std::vector<float> sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] = gradient_of(0, step, i);
    for (int worker = 1; worker < workers; ++worker) sums[i] += gradient_of(worker, step, i);
  }
  return sums;
}

/// The answers that one process would give.
std::vector<std::vector<float>> expected_answers(const ExchangePlan& plan, int workers) {
  const std::size_t count = plan.elements();
  std::vector<float> weights(count, 1.0F);
  std::vector<float> velocity(count, 0.0F);
  std::vector<std::vector<float>> answers;
  for (int step = 0; step < kColocatedSteps; ++step) {
    auto sums = sums_of(workers, step, count);
    if (plan.server_sgd) {
      sgd_update(*plan.server_sgd, weights.data(), velocity.data(), sums.data(),
                 static_cast<float>(1.0 / workers), count);
      sums = weights;
    }
    answers.push_back(std::move(sums));
  }
  return answers;
}

/// Reports gradients one by one, each rank at a pace of its own.
void compute(GradientExchange& exchange, std::size_t gradients, int rank, int step) {
  for (std::size_t i = 0; i < gradients; ++i) {
    if ((static_cast<int>(i) + rank + step) % 3 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(200 * (1 + rank)));
    exchange.ready(i);
  }
}

/// One rank's steps. @returns what went wrong, "" when nothing did
std::string train_colocated(Network& network, const ExchangePlan& plan, int rank, int ranks,
                            bool in_place) {
  const std::size_t count = plan.elements();
  const auto expected = expected_answers(plan, ranks);
  ThreadCommunicator comm(network, rank, ranks);
  std::vector<float> gradients(count);
  std::vector<float> apart(in_place ? 0 : count);
  std::vector<float>& answers = in_place ? gradients : apart;
  GradientExchange exchange(comm, plan, gradients.data(), answers.data());
  const std::vector<float> weights(count, 1.0F);
  if (plan.server_sgd) exchange.take_weights(weights.data());
  for (int step = 0; step < kColocatedSteps; ++step) {
    for (std::size_t i = 0; i < count; ++i) gradients[i] = gradient_of(rank, step, i);
    exchange.start_step();
    compute(exchange, plan.counts.size(), rank, step);
    for (std::size_t i = 0; i < plan.counts.size(); ++i) exchange.wait(i);
    // Gradients may be overwritten now, while others are still answered.
    if (!same_bits(answers, expected[static_cast<std::size_t>(step)]))
      return "wrong answer in step " + std::to_string(step);
  }
  exchange.flush();
  const std::size_t shard = plan.shard_bytes(rank);
  const std::size_t others = static_cast<std::size_t>(ranks - 1);
  const std::size_t pushed = count * sizeof(float) - shard;
  const std::uint64_t bytes = kColocatedSteps * (pushed + others * shard);
  if (exchange.sent_bytes() != bytes) return "bytes are miscounted";
  // ByteScheduler agrees on its order besides.
  if (plan.method != TrainingMethod::bytescheduler_ps && comm.sent != bytes)
    return "sent more or less than every piece once";
  if (comm.open() != 0) return "requests are left";
  const std::size_t slots = others + (plan.server_sgd ? 1 : 0);
  return exchange.extra_bytes() == slots * shard ? "" : "memory is miscounted";
}

/// One rank's steps with a codec. @returns what was miscounted, "" when nothing was
std::string count_encoded(Network& network, const ExchangePlan& plan, int rank, int ranks) {
  const std::size_t count = plan.elements();
  ThreadCommunicator comm(network, rank, ranks);
  std::vector<float> gradients(count);
  std::vector<float> sums(count);
  GradientExchange exchange(comm, plan, gradients.data(), sums.data());
  for (int step = 0; step < kColocatedSteps; ++step) {
    for (std::size_t i = 0; i < count; ++i) gradients[i] = gradient_of(rank, step, i);
    exchange.start_step();
    compute(exchange, plan.counts.size(), rank, step);
    for (std::size_t i = 0; i < plan.counts.size(); ++i) exchange.wait(i);
  }
  exchange.flush();
  const auto coding = exchange.take_coding();
  if (!coding || coding->steps != kColocatedSteps) return "steps are miscounted";
  const std::size_t shard = plan.shard_bytes(rank);
  // Answers are plain sums.
  const std::uint64_t answered = kColocatedSteps * static_cast<std::size_t>(ranks - 1) * shard;
  if (coding->message_bytes != comm.sent - answered) return "messages are not what was pushed";
  if (coding->formula_bytes != coding->message_bytes) return "the formula is of other messages";
  const std::uint64_t plain = kColocatedSteps * (count * sizeof(float) - shard);
  return coding->plain_bytes == plain ? "" : "plain values are of other messages";
}

void check_all_ranks(const ExchangePlan& plan, int ranks, bool in_place) {
  Network network;
  std::vector<std::string> problems(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto& problem = problems[static_cast<std::size_t>(rank)];
      try {
        problem = train_colocated(network, plan, rank, ranks, in_place);
      } catch (const std::exception& error) {
        problem = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& problem : problems) CHECK(problem == "");
}

}  // namespace

TEST_CASE("colocated servers add in rank order and send every piece once", "[d-03][d-40][d-49]") {
  const auto method =
      GENERATE(TrainingMethod::bsp_ps, TrainingMethod::wfbp_ps, TrainingMethod::bytescheduler_ps);
  const int ranks = GENERATE(1, 2, 3, 4);
  const int servers = GENERATE(1, 2, 3, 4);
  if (servers > ranks) return;
  INFO(name_of(method) << ", " << servers << " servers, " << ranks << " workers");
  ExchangePlan plan = colocated_plan(method, servers);
  check_all_ranks(plan, ranks, false);
  check_all_ranks(plan, ranks, true);
  plan.server_sgd = kSgd;
  check_all_ranks(plan, ranks, false);
  check_all_ranks(plan, ranks, true);
}

TEST_CASE("encoded bytes are counted where they leave their rank", "[d-91]") {
  const int ranks = GENERATE(1, 2, 3);
  const int servers = GENERATE(1, 2, 3);
  if (servers > ranks) return;
  INFO(servers << " servers, " << ranks << " workers");
  ExchangePlan plan = colocated_plan(TrainingMethod::wfbp_ps, servers);
  plan.codec.codec = Codec::onebit;
  Network network;
  std::vector<std::string> problems(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto& problem = problems[static_cast<std::size_t>(rank)];
      try {
        problem = count_encoded(network, plan, rank, ranks);
      } catch (const std::exception& error) {
        problem = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& problem : problems) CHECK(problem == "");
}

TEST_CASE("a colocated server receives and moves on while its rank computes", "[d-03]") {
  class Counting final : public ThreadCommunicator {
   public:
    using ThreadCommunicator::ThreadCommunicator;
    void progress() override { ++progressed; }
    std::atomic<int> progressed = 0;
  };
  const ExchangePlan plan = colocated_plan(TrainingMethod::wfbp_ps, 1);
  const std::size_t count = plan.elements();
  Network network;
  Counting server(network, 0, 2);
  ThreadCommunicator worker(network, 1, 2);
  std::vector<float> gradients(count);
  std::vector<float> sums(count);
  for (std::size_t i = 0; i < count; ++i) gradients[i] = gradient_of(0, 0, i);
  GradientExchange exchange(server, plan, gradients.data(), sums.data());
  exchange.start_step();
  // Not one gradient of the server's own is there.
  std::vector<float> pushed(count);
  std::vector<float> pulled(count);
  for (std::size_t i = 0; i < count; ++i) pushed[i] = gradient_of(1, 0, i);
  std::vector<Request> answers;
  for (std::size_t i = 0; i < plan.pieces.size(); ++i) {
    const Piece& piece = plan.pieces[i];
    const std::size_t bytes = piece.count * sizeof(float);
    const int tag = kPieceTag + static_cast<int>(i);
    worker.wait(worker.isend(&pushed[piece.offset], bytes, 0, tag));
    answers.push_back(worker.irecv(&pulled[piece.offset], bytes, 0, tag));
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (server.progressed < 3 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  CHECK(server.progressed >= 3);
  CHECK(!exchange.idle());
  for (std::size_t i = 0; i < plan.counts.size(); ++i) exchange.ready(i);
  for (const Request answer : answers) worker.wait(answer);
  exchange.flush();
  CHECK(same_bits(sums, sums_of(2, 0, count)));
  CHECK(same_bits(pulled, sums));
}

TEST_CASE("a rank that ends takes the others' steps with it", "[d-40]") {
  class Broken final : public ThreadCommunicator {
   public:
    using ThreadCommunicator::ThreadCommunicator;
    void wait(Request) override { throw Error(ErrorKind::environment, "the peer has ended"); }
  };
  const ExchangePlan plan = colocated_plan(TrainingMethod::wfbp_ps, 2);
  Network network;
  Broken comm(network, 0, 2);
  std::vector<float> gradients(plan.elements());
  std::vector<float> sums(plan.elements());
  GradientExchange exchange(comm, plan, gradients.data(), sums.data());
  exchange.start_step();
  for (std::size_t i = 0; i < plan.counts.size(); ++i) exchange.ready(i);
  CHECK_THROWS_AS(exchange.wait(0), Error);
  CHECK_THROWS_AS(exchange.flush(), Error);
}
