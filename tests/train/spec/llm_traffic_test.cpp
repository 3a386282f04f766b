#include "train/spec/llm_traffic.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::WithinRel;

namespace {

std::vector<LlmCall> calls_of(const char* model, const char* parallel, int ranks) {
  const LlmModel& llm = llm_named(model);
  return llm_traffic(llm, parse_parallelism(parallel, llm, ranks));
}

/// Bytes that all ranks send in one step by one kind of call.
double sent(const std::vector<LlmCall>& calls, Collective collective) {
  double bytes = 0;
  for (const LlmCall& call : calls)
    if (call.collective == collective) bytes += sent_in_step(call);
  return bytes;
}

std::int64_t count_of(const std::vector<LlmCall>& calls, Collective collective) {
  std::int64_t count = 0;
  for (const LlmCall& call : calls)
    if (call.collective == collective) count += call.count;
  return count;
}

}  // namespace

TEST_CASE("language models have as many parameters as published", "[F-27][H-10]") {
  // The released weights of LLaMA, to the last one.
  CHECK(llm_named("llama-7b").parameters() == 6'738'415'616);
  CHECK(llm_named("llama-13b").parameters() == 13'015'864'320);
  CHECK(llm_named("llama-65b").parameters() == 65'285'660'672);
  CHECK(llm_named("mixtral-8x7b").parameters() == 46'702'792'704);
  CHECK_THAT(llm_named("gpt3-175b").parameters(), WithinRel(175e9, 0.01));
  CHECK_THAT(llm_named("bloomberggpt-50b").parameters(), WithinRel(50.6e9, 0.01));
  CHECK_THAT(llm_named("mt-nlg-530b").parameters(), WithinRel(530e9, 0.01));
  CHECK_THAT(llm_named("gpt-2.2b").parameters(), WithinRel(2.2e9, 0.02));
}

TEST_CASE("fully sharded and tensor-parallel steps make the calls of their frameworks",
          "[A-44][F-19][F-24]") {
  // A unit for each layer and one around them: weights are gathered twice, but for the outer one's.
  const auto sharded = calls_of("llama-7b", "fsdp", 8);
  CHECK(count_of(sharded, Collective::allgather) == 2 * 32 + 1);
  CHECK(count_of(sharded, Collective::reduce_scatter) == 32 + 1);
  CHECK(count_of(sharded, Collective::allreduce) == 0);
  // Seven eighths of all weights to each rank, twice those of layers; their gradients once.
  const double weights = 2 * 6'738'415'616.0;
  const double outer = 2 * (2 * 32000.0 * 4096 + 4096);
  CHECK_THAT(sent(sharded, Collective::reduce_scatter), WithinRel(7 * weights));
  CHECK_THAT(sent(sharded, Collective::allgather), WithinRel(7 * (2 * weights - outer)));
  // Two all-reduces of activations in each layer and direction, one at either end.
  const auto tensor = calls_of("llama-7b", "tensor=8,batch=2,sequence=1024,micro_batches=3", 8);
  CHECK(count_of(tensor, Collective::allreduce) == 3 * (4 * 32 + 2));
  for (const LlmCall& call : tensor) {
    CHECK(call.bytes == 2.0 * 2 * 1024 * 4096);
    CHECK(call.stride == 1);
  }
  // Buckets of 25 MiB at most hold all gradients.
  const auto data = calls_of("llama-7b", "", 4);
  REQUIRE(data.size() == 1);
  CHECK(data[0].bytes <= 25 << 20);
  CHECK_THAT(data[0].bytes * static_cast<double>(data[0].count), WithinRel(weights));
}

TEST_CASE("groups of three kinds of parallelism share the ranks out", "[F-19][F-24][C-24][D-103]") {
  const auto calls = calls_of("gpt3-175b", "tensor=8,pipeline=12,micro_batches=4", 192);
  const LlmModel& model = llm_named("gpt3-175b");
  bool between = false;
  bool ends = false;
  for (const LlmCall& call : calls) {
    INFO(call.what);
    if (call.collective == Collective::sendrecv) {
      between = true;
      CHECK(call.group == 12);
      CHECK(call.stride == 16);
      CHECK(call.groups == 16);
      CHECK(call.count == 4);
    } else if (call.what == "gradients") {
      CHECK(call.group == 2);
      CHECK(call.stride == 8);
      // An eighth of what the layers of a stage have.
      CHECK_THAT(call.bytes * static_cast<double>(call.count),
                 WithinRel(2 * model.layer() * 96 / 12 / 8));
    } else if (call.stride == 16 * 11) {
      ends = true;
      CHECK(call.groups == 16);
    }
  }
  CHECK(between);
  CHECK(ends);
  // Two experts of eight for each token, there and back, in both directions.
  const auto routed = calls_of("mixtral-8x7b", "experts=8", 16);
  CHECK(count_of(routed, Collective::alltoall) == 4 * 32);
  CHECK(routed.front().bytes == 2.0 * 2 * 2048 * 4096);
}

TEST_CASE("embedding and head are the first and the last stage's", "[F-19][F-24][F-26]") {
  const LlmModel& model = llm_named("llama-7b");
  // A layer has 4 h^2 + 2 h + 3 h w; either end 32000 h and half of the last norm.
  const double layer = 202'383'360;
  const double end = 131'074'048;
  const double all = 32 * layer + 2 * end;
  for (const int stages : {2, 32}) {
    INFO(stages);
    const std::string parallel = "pipeline=" + std::to_string(stages);
    const auto calls = calls_of("llama-7b", parallel.c_str(), 2 * stages);
    double first = 0;
    for (const LlmCall& call : calls)
      if (call.collective == Collective::allreduce)
        first += call.bytes * static_cast<double>(call.count);
    CHECK_THAT(first, WithinRel(2 * (32 / stages * layer + end)));
    // Both ranks of a pair send as many bytes as there are of all stages.
    CHECK_THAT(sent(calls, Collective::allreduce), WithinRel(2 * 2 * all));
    const auto sharded = calls_of("llama-7b", (parallel + ",fsdp").c_str(), 2 * stages);
    CHECK_THAT(sent(sharded, Collective::reduce_scatter), WithinRel(2 * all));
    CHECK_THAT(llm_memory(model, parse_parallelism(parallel, model, 2 * stages)),
               WithinRel(16 * (32 / stages * layer + end)));
  }
  // Tokens are embedded by the first stage alone.
  for (const LlmCall& call : calls_of("llama-7b", "tensor=4,pipeline=8", 64))
    if (call.what == "embedded tokens") CHECK(call.groups == 2);
  // One matrix for both ends is on both; of a sharded one each rank sums its part.
  const LlmModel& tied = llm_named("gpt3-175b");
  const auto shared = calls_of("gpt3-175b", "pipeline=12,fsdp", 48);
  CHECK_THAT(shared.back().bytes, WithinRel(2 * tied.rest() / 4));
  CHECK_THAT(sent(shared, Collective::reduce_scatter),
             WithinRel(3 * 2 * (tied.parameters() + tied.rest())));
}

TEST_CASE("the survey's examples come out", "[F-21][F-22][F-26]") {
  // Stages send some 300 times less than tensor groups: 48 layers are assumed, six all-reduces each
  // where activations are computed again, and two at the ends, against one message each way.
  const double tensor =
      sent(calls_of("gpt-2.2b", "tensor=10,recompute", 10), Collective::allreduce);
  const auto sliced = calls_of("gpt-2.2b", "pipeline=12,recompute", 12);
  const double stages = sent(sliced, Collective::sendrecv);
  CHECK_THAT(tensor / 9 / (stages / 11), WithinRel(290.0));
  // 1.3T parameters are not held by a rank of pure data parallelism, whichever GPU it is.
  const LlmModel& large = llm_named("survey-1.3t");
  CHECK_THAT(llm_memory(large, parse_parallelism("", large, 1024)), WithinRel(16 * 1.3e12));
  CHECK(llm_memory(large, parse_parallelism("fsdp", large, 1024)) < 80e9);
  const LlmModel& small = llm_named("llama-7b");
  CHECK_THAT(llm_memory(small, parse_parallelism("tensor=8", small, 8)),
             WithinRel(2 * 6'738'415'616.0));
}

TEST_CASE("parallelism that does not fit is refused in words") {
  const LlmModel& llama = llm_named("llama-7b");
  const auto refused = [&](const char* text, const char* why) {
    INFO(text);
    CHECK_THROWS_MATCHES(parse_parallelism(text, llama, 8), Error,
                         MessageMatches(ContainsSubstring(why)));
  };
  refused("tensor=3", "tensor=3: does not divide 32 heads");
  refused("pipeline=5", "does not divide 32 layers");
  refused("tensor=16", "tensor x pipeline=16: does not divide 8 ranks");
  refused("data=3", "are 3 ranks, and the machine or --ranks says 8");
  refused("experts=2", "llama-7b has none");
  refused("tensor", "unknown; ");
  // 2^32 more than there are.
  const LlmModel& large = llm_named("survey-1.3t");
  CHECK_THROWS_MATCHES(parse_parallelism("data=262145,tensor=128,pipeline=128", large, 16384),
                       Error, MessageMatches(ContainsSubstring("are 4294983680 ranks")));
  refused("sequence=0", "whole number from 1");
  refused("sharded", "unknown; ");
  CHECK_THROWS_MATCHES(llm_named("llama-8b"), Error, MessageMatches(ContainsSubstring("llama-7b")));
  const LlmModel& mixtral = llm_named("mixtral-8x7b");
  CHECK_THROWS_MATCHES(parse_parallelism("experts=3", mixtral, 9), Error,
                       MessageMatches(ContainsSubstring("does not divide 8 experts")));
  CHECK_THROWS_MATCHES(parse_parallelism("experts=2,fsdp", mixtral, 8), Error,
                       MessageMatches(ContainsSubstring("not modelled")));
}
