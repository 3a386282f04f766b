#include "train/spec/training_method.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "train/spec/training.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("every method has one row, found by its name") {
  CHECK(all_names<TrainingMethod>().size() == kTrainingMethods.size());
  for (const auto& row : kTrainingMethods) {
    INFO(row.name);
    CHECK(&method_row(row.method) == &row);
    CHECK(parse_named<TrainingMethod>(row.name) == row.method);
  }
}

TEST_CASE("a method is its parts: no two are put together alike") {
  const auto parts = [](const TrainingMethodRow& row) {
    return std::tuple(row.sums, row.order, row.grouping, row.barrier, row.split,
                      row.engine.has_value());
  };
  for (const auto& a : kTrainingMethods) {
    for (const auto& b : kTrainingMethods) {
      INFO(a.name << " and " << b.name);
      CHECK((&a == &b || parts(a) != parts(b)));
    }
  }
}

TEST_CASE("the parts of methods go together") {
  for (const auto& row : kTrainingMethods) {
    INFO(row.name);
    const bool served = row.sums == SumPlace::server;
    CHECK(architecture_of(row.method) == (served ? Architecture::ps : Architecture::ring));
    // Servers sum plain values, and a library's engine packs nothing.
    CHECK(row.packs == (row.sums == SumPlace::all_reduce && !row.engine));
    if (row.split) CHECK_FALSE(served);
    // Who sends by urgency does so because the next step does not wait for the rest.
    if (row.order == SendOrder::by_urgency) CHECK(crosses_barrier(row.method));
    const bool merges = row.grouping == MessageGrouping::merged;
    CHECK(merges == (row.choice == MethodChoice::merge));
  }
}

TEST_CASE("a method leaves a choice while its own sizes are unsaid") {
  TrainingSpec spec;
  spec.method = TrainingMethod::dear;
  CHECK(leaves_a_choice(spec));
  spec.bucket = Bytes(1 << 20);
  CHECK_FALSE(leaves_a_choice(spec));
  spec.method = TrainingMethod::bytescheduler_a2a;
  spec.partition = Bytes(1 << 20);
  CHECK(leaves_a_choice(spec));  // the credit is open still
  spec.credit = Bytes(1 << 20);
  CHECK_FALSE(leaves_a_choice(spec));
  spec.method = TrainingMethod::mg_wfbp;
  CHECK(leaves_a_choice(spec));
  spec.merge = MergeRule::greedy;
  CHECK_FALSE(leaves_a_choice(spec));
}

TEST_CASE("what cannot be had on GPUs is refused by name, with the reason", "[d-35]") {
  TrainingSpec spec;
  spec.method = TrainingMethod::wfbp_a2a;
  for (const CodecRow& row : kCodecs) {
    INFO(row.name);
    spec.compression = row.codec;
    const std::string reason = gpu_misfit(spec, Backend::nccl);
    // What kernels do not know the host encodes, for messages of its own; NCCL's sums are on GPUs.
    CHECK(reason.empty() == (row.on_gpus || row.sum != CodecSum::reduced));
    CHECK(gpu_misfit(spec, Backend::gloo).empty());
    CHECK(gpu_misfit(spec, Backend::cuda_aware_mpi).empty() == (row.codec == Codec::none));
  }
  spec.compression = Codec::sketch;
  CHECK_THAT(gpu_misfit(spec, Backend::nccl),
             ContainsSubstring("sketch") && ContainsSubstring("partial") &&
                 ContainsSubstring("the host's alone") && ContainsSubstring("take topk"));
  spec.compression = Codec::int8;
  for (const auto method : {TrainingMethod::bsp_ps, TrainingMethod::d_psgd}) {
    spec.method = method;  // their messages are the host's
    CHECK(gpu_misfit(spec, Backend::nccl).empty());
  }
  spec.method = TrainingMethod::bytescheduler_a2a;
  CHECK_THAT(gpu_misfit(spec, Backend::nccl), ContainsSubstring("take wfbp-a2a"));
  spec.compression = Codec::none;
  for (const auto& each : NameTable<Synchronisation>::entries) {
    spec.synchronisation = each.value;
    CHECK(gpu_misfit(spec, Backend::nccl).empty());
  }
  // Servers that share weights were tried in host memory alone.
  spec.method = TrainingMethod::bsp_ps;
  spec.synchronisation = Synchronisation::asp;
  CHECK(gpu_misfit(spec, Backend::nccl).empty());
  spec.servers = 2;
  for (const Backend backend : {Backend::nccl, Backend::cuda_aware_mpi})
    CHECK_THAT(gpu_misfit(spec, backend),
               ContainsSubstring("\"asp\" with 2 servers on GPUs over") &&
                   ContainsSubstring("(partial)") && ContainsSubstring("take servers = 1"));
  CHECK(gpu_misfit(spec, Backend::gloo).empty());
  spec.synchronisation = Synchronisation::bsp;
  CHECK(gpu_misfit(spec, Backend::nccl).empty());
}

TEST_CASE("a library's engine runs over the backend that it brings along") {
  CHECK(engine_misfit(TrainingMethod::ddp, Backend::gloo).empty());
  CHECK_THAT(engine_misfit(TrainingMethod::ddp, Backend::openmpi),
             ContainsSubstring("ddp") && ContainsSubstring("backend gloo"));
  for (const auto& row : kTrainingMethods)
    if (!row.engine) CHECK(engine_misfit(row.method, Backend::openmpi).empty());
}
