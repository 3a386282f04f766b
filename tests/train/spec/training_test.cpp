#include "train/spec/training.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <limits>

#include "train/spec/payload.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

/// What a cell is refused with when a setting has this value; "" when it is not.
std::string refusal_of(const WorkCell& cell, const std::string& name, const std::string& value) {
  WorkCell wrong = cell;
  wrong.knobs[name] = value;
  try {
    parsed_training(wrong);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("models have their published sizes", "[d-40]") {
  CHECK(facts_of(TrainingModel::resnet18, 64).parameters == 11'173'962);
  CHECK(facts_of(TrainingModel::resnet50, 64).parameters == 25'557'032);
  CHECK(facts_of(TrainingModel::bert_base, 64).parameters == 109'514'298);
  CHECK(facts_of(TrainingModel::bert_large, 64).parameters == 335'174'458);
  // GFLOP per sample and intensity with 1 MAC = 2 FLOP and three passes per step.
  CHECK_THAT(facts_of(TrainingModel::resnet50, 64).flops_per_sample(), WithinRel(24.5e9, 0.005));
  CHECK_THAT(facts_of(TrainingModel::bert_base, 64).flops_per_sample(), WithinRel(42.3e9, 0.005));
  CHECK_THAT(facts_of(TrainingModel::bert_large, 128).flops_per_sample(), WithinRel(262e9, 0.005));
  CHECK_THAT(facts_of(TrainingModel::resnet18, 64).intensity(), WithinRel(298.0, 0.005));
}

TEST_CASE("C2C tells intensity and batch apart", "[e-186][e-189]") {
  TrainingSpec spec;
  spec.model = TrainingModel::resnet50;
  spec.batch = 64;
  const double resnet = c2c_predicted(spec, 4);
  CHECK_THAT(resnet, WithinRel(2.4e-5, 0.02));
  spec.model = TrainingModel::bert_base;
  CHECK(c2c_predicted(spec, 4) > 2 * resnet);
  spec.model = TrainingModel::bert_large;
  spec.batch = 8;
  CHECK_THAT(c2c_predicted(spec, 4), WithinRel(4.9e-4, 0.02));
}

TEST_CASE("one server is the bottleneck, as many as workers are none") {
  TrainingSpec spec;
  spec.method = TrainingMethod::bsp_ps;
  CHECK(parameter_volumes(spec, 4) == 8);
  spec.servers = 4;
  CHECK(parameter_volumes(spec, 4) == 2);
  CHECK(workers_of(spec, 8) == 4);
  spec.placement = ServerPlacement::colocated;
  // As many bytes as all-reduce has, where every worker serves; half of them answer the other half.
  CHECK(parameter_volumes(spec, 4) == 1.5);
  CHECK(workers_of(spec, 4) == 4);
  spec.servers = 2;
  CHECK(parameter_volumes(spec, 4) == 2);
  spec.servers = 1;
  CHECK(parameter_volumes(spec, 4) == 3);
  spec.method = TrainingMethod::mg_wfbp;
  CHECK(parameter_volumes(spec, 4) == 1.5);
  CHECK(workers_of(spec, 8) == 8);
}

TEST_CASE("of an odd number of workers one has no pair in each round", "[d-34]") {
  TrainingSpec spec;
  spec.method = TrainingMethod::d_psgd;
  spec.topology = PeerGraph::random_pairs;
  CHECK(parameter_volumes(spec, 2) == 1);
  CHECK(parameter_volumes(spec, 8) == 1);
  for (const int workers : {1, 3, 5, 7}) {
    double sent = 0;
    constexpr int kRounds = 3000;
    for (int round = 0; round < kRounds; ++round)
      sent += static_cast<double>(
          mixing_of(spec.topology, workers, 0, static_cast<std::uint64_t>(round), 1).to.size());
    CHECK(std::abs(parameter_volumes(spec, workers) - sent / kRounds) < 0.05);
  }
}

TEST_CASE("a server of groups is pushed to by their first workers alone", "[e-186][d-07]") {
  TrainingSpec spec;
  spec.method = TrainingMethod::bsp_ps;
  spec.synchronisation = Synchronisation::asp;
  spec.group_size = 2;
  CHECK(parameter_volumes(spec, 16) == 16);
  // Of two groups of two the busiest is a group's first worker: half a ring, the sum, an answer.
  CHECK(parameter_volumes(spec, 4) == 6);
  CHECK(c2c_effective(spec, 4) == c2c_predicted(spec, 4));
  spec.group_compression = Codec::topk;
  CHECK_FALSE(c2c_effective(spec, 4));
}

TEST_CASE("servers are one dedicated rank or all colocated ones unless told", "[d-03]") {
  TrainingSpec spec;
  spec.method = TrainingMethod::wfbp_ps;
  CHECK(servers_of(spec, 4) == 1);
  CHECK(dedicated_servers(spec) == 1);
  CHECK(ranks_misfit(spec, 2).empty());
  CHECK(ranks_misfit(spec, 1) == "1 server leaves no worker among 1 rank");
  // A stored cell is the same one, said or not.
  spec.servers = 1;
  CHECK(!training_cell(spec).knobs.contains("servers"));
  spec.placement = ServerPlacement::colocated;
  CHECK(training_cell(spec).knobs.at("servers") == "1");
  spec.servers = 0;
  const TrainingSpec read = parsed_training(training_cell(spec));
  CHECK(read.placement == ServerPlacement::colocated);
  CHECK(servers_of(read, 4) == 4);
  CHECK(dedicated_servers(read) == 0);
  CHECK(ranks_misfit(read, 1).empty());
  spec.servers = 3;
  CHECK(servers_of(spec, 4) == 3);
  CHECK(ranks_misfit(spec, 2) == "3 colocated servers are more than 2 ranks");
  spec.method = TrainingMethod::mg_wfbp;
  CHECK(servers_of(spec, 4) == 0);
  CHECK_THAT(training_contradiction(spec),
             ContainsSubstring("placement = \"colocated\": mg-wfbp has no server"));
}

TEST_CASE("gradients go to an aggregator whole and in each step, or the cell is refused",
          "[C-49]") {
  TrainingSpec spec;
  spec.packing = Packing::aggregated;
  for (const auto method : {TrainingMethod::bsp_a2a, TrainingMethod::wfbp_a2a,
                            TrainingMethod::mg_wfbp, TrainingMethod::bytescheduler_a2a}) {
    spec.method = method;
    CHECK(training_contradiction(spec).empty());
  }
  // The launcher says where it is.
  WorkCell cell = training_cell(spec);
  cell.knobs["aggregator"] = "127.0.0.1:9/abcd";
  CHECK(parsed_training(cell).packing == Packing::aggregated);
  spec.method = TrainingMethod::dear;
  CHECK_THAT(training_contradiction(spec),
             ContainsSubstring("answers with whole sums, and dear sums in halves"));
  spec.method = TrainingMethod::bsp_a2a;
  spec.synchronisation = Synchronisation::local;
  spec.local_steps = 2;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("sums the gradients of each step"));
  spec.method = TrainingMethod::bsp_ps;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("bsp-ps sends plain values"));
}

TEST_CASE("a training cell carries its settings there and back") {
  TrainingSpec spec;
  spec.method = TrainingMethod::bytescheduler_ps;
  spec.model = TrainingModel::cnn;
  spec.batch = 7;
  spec.partition = Bytes(1000);
  spec.learning_rate = 0.125;
  spec.merge = MergeRule::greedy;
  spec.packing = Packing::exponents;
  spec.oracle = 20;
  spec.epochs = 3;
  spec.target = 0.75;
  const WorkCell cell = training_cell(spec);
  CHECK(cell.collective == Collective::training);
  CHECK(cell.size.count() == 4 * 545'098);
  CHECK(!cell.knobs.contains("momentum"));
  const TrainingSpec read = parsed_training(cell);
  CHECK(read.method == spec.method);
  CHECK(read.model == spec.model);
  CHECK(read.batch == 7);
  CHECK(read.partition == spec.partition);
  CHECK(read.learning_rate == 0.125);
  CHECK(read.merge == MergeRule::greedy);
  CHECK(read.packing == Packing::exponents);
  CHECK(read.oracle == 20);
  CHECK(read.epochs == 3);
  CHECK(read.target == 0.75);
}

TEST_CASE("a planned cell carries its settings as every rank will read them") {
  TrainingSpec spec;
  spec.method = TrainingMethod::wfbp_ps;
  spec.servers = 1;  // which nothing needs to be said for
  spec.batch = 7;
  const WorkCell cell = training_cell(spec);
  const WorkCell copy = cell;
  CHECK(&training_spec(copy) == &training_spec(cell));
  CHECK(training_spec(cell).method == TrainingMethod::wfbp_ps);
  CHECK(training_spec(cell).batch == 7);
  CHECK(training_spec(cell).servers == 0);
  CHECK(training_cell(training_spec(cell)).knobs == cell.knobs);
}

TEST_CASE("a wrong training setting names itself and what is known") {
  WorkCell cell = training_cell({});
  const auto message = [&](const char* name, const char* value) {
    return refusal_of(cell, name, value);
  };
  CHECK_THAT(message("bach", "3"), ContainsSubstring("batch"));
  CHECK_THAT(message("batch", "0"), ContainsSubstring("expected a whole number 1..1048576"));
  CHECK_THAT(message("batch", "99999999999"),
             ContainsSubstring("expected a whole number 1..1048576"));
  // A transformer has no positions beyond.
  CHECK_THAT(message("sequence", "513"), ContainsSubstring("expected a whole number 1..512"));
  CHECK(message("sequence", "512").empty());
  CHECK_THAT(message("model", "resnet19"), ContainsSubstring("resnet18"));
  CHECK_THAT(message("target", "60"), ContainsSubstring("from 0 to 1"));
  CHECK_THAT(message("partition", "2"), ContainsSubstring("at least 4 bytes"));
  CHECK_THAT(message("bucket", "0"), ContainsSubstring("auto"));
  cell.algorithm = "wfbp";
  CHECK_THROWS_WITH(parsed_training(cell), ContainsSubstring("training method"));
}

TEST_CASE("a setting of a codec is refused with both ends of what it may be") {
  WorkCell cell = training_cell({});
  const auto message = [&](const char* name, const char* value) {
    return refusal_of(cell, name, value);
  };
  for (const char* value : {"0", "-0.1", "1.01", "1%", "nan", "inf", "", "some"})
    CHECK_THAT(message("density", value),
               ContainsSubstring("expected a share above 0, up to 1, as 0.01 of 1 %"));
  for (const char* value : {"0", "-0.1", "nan", "1e39", "1e999"})
    CHECK_THAT(message("threshold", value),
               ContainsSubstring("expected a number above 0, up to 3.4e38"));
  for (const char* value : {"0", "-1", "1.5", "65", "99999999999", "-99999999999", "two", ""})
    CHECK_THAT(message("rank", value), ContainsSubstring("expected a whole number 1..64"));
}

TEST_CASE("numbers that are none, or that no step would end with, are refused") {
  WorkCell cell = training_cell({});
  const auto refusal = [&](const std::string& name, const std::string& value) {
    return refusal_of(cell, name, value);
  };
  for (const char* name :
       {"learning_rate", "momentum", "lars", "target", "slow_momentum", "lag_threshold", "density",
        "threshold", "clip_each", "pace", "slow_factor"}) {
    INFO(name);
    for (const char* value : {"nan", "inf", "-inf", "-1"})
      CHECK_THAT(refusal(name, value), ContainsSubstring(name));
  }
  // A pause too long for the clock was none at all.
  CHECK_THAT(refusal("slow_factor", "1e300"), ContainsSubstring("from 1 to 1000"));
  CHECK_THAT(refusal("pace", "1e300"), ContainsSubstring("from 0 to 60000"));
  CHECK(refusal("slow_factor", "1000").empty());
  // Of a whole gradient nothing would ever be forgotten.
  CHECK_THAT(refusal("momentum", "1"), ContainsSubstring("below 1"));
  CHECK(refusal("momentum", "0.99").empty());
  CHECK_THAT(refusal("threads", "100000"), ContainsSubstring("1"));
  for (const char* bits : {"1", "3", "16"})
    CHECK_THAT(refusal("bits", bits), ContainsSubstring("2, 4 or 8"));
}

TEST_CASE("a pass over the data has a step, and a part of them a sample", "[d-16][a-12]") {
  TrainingSpec spec;
  spec.batch = 32;
  spec.samples = 63;
  CHECK(ranks_misfit(spec, 2).empty());  // steps alone are timed
  spec.epochs = 1;
  CHECK_THAT(ranks_misfit(spec, 2), ContainsSubstring("2 workers take 64 samples in a step"));
  spec.samples = 64;
  CHECK(ranks_misfit(spec, 2).empty());
  // Files are counted where they are read.
  spec.data = "/folder";
  spec.samples = 1;
  CHECK(ranks_misfit(spec, 2).empty());
  CHECK_THAT(samples_misfit(spec, 63, 2), ContainsSubstring("no pass over them fills one"));
  spec.epochs = 0;
  spec.shares = DataShares::linear;
  spec.data = kGeneratedData;
  spec.samples = 9;  // parts of 0.9, 1.8, 2.7 and 3.6
  CHECK_THAT(ranks_misfit(spec, 4), ContainsSubstring("take 10 or more"));
  spec.samples = 10;
  CHECK(ranks_misfit(spec, 4).empty());
}

TEST_CASE("epochs that leave no round for one of two ways of waiting are refused", "[d-34][d-28]") {
  TrainingSpec spec;
  spec.batch = 8;
  spec.samples = 240;  // ten steps of three workers
  spec.epochs = 3;
  spec.local_steps = 20;
  spec.switch_to = Synchronisation::local;
  CHECK(ranks_misfit(spec, 3).empty());
  spec.local_steps = 21;
  CHECK_THAT(ranks_misfit(spec, 3),
             ContainsSubstring("switch_to: a round of 21 steps does not fit into the 20 left") &&
                 ContainsSubstring("fewer local_steps, or more epochs"));
  CHECK(ranks_misfit(spec, 2).empty());  // who have fifteen steps in an epoch

  spec.synchronisation = Synchronisation::local;
  spec.switch_to = Synchronisation::bsp;
  spec.local_steps = 10;
  CHECK(ranks_misfit(spec, 3).empty());
  spec.local_steps = 11;
  CHECK_THAT(ranks_misfit(spec, 3),
             ContainsSubstring("switch_after: a round of 11 steps does not fit into the 10 left") &&
                 ContainsSubstring("fewer local_steps, or a later switch_after"));

  spec.switch_to.reset();
  CHECK(ranks_misfit(spec, 3).empty());  // one round of local steps is done in any case
  spec.synchronisation = Synchronisation::post_local;
  spec.local_steps = 8;
  spec.local_after = 16;
  CHECK(ranks_misfit(spec, 3).empty());
  spec.local_after = 17;  // three rounds of sums
  CHECK_THAT(ranks_misfit(spec, 3),
             ContainsSubstring("local_after: a round of 8 steps does not fit into the 6 left"));
  spec.local_after = 1'000'000;
  CHECK_THAT(ranks_misfit(spec, 3), ContainsSubstring("the 0 left"));
  spec.local_after = 0;  // local steps from the first on
  spec.local_steps = 64;
  CHECK(ranks_misfit(spec, 3).empty());
  spec.epochs = 0;  // rounds are counted then
  CHECK(ranks_misfit(spec, 3).empty());
}

TEST_CASE("a budget of steps that never comes to post-local's local steps is told", "[d-40]") {
  TrainingSpec spec = parsed_training(training_cell({}));
  spec.synchronisation = Synchronisation::post_local;
  spec.local_steps = 3;
  spec.steps = 10;
  spec.local_after = 33;  // eleven rounds of twelve, two of them the warm-up's
  CHECK(local_after_misfit(spec, 2, 100).empty());
  spec.local_after = 34;
  CHECK(
      local_after_misfit(spec, 2, 100) ==
      "local_after = 34: sums of gradients take 12 rounds of 3 steps, and 12 are done in all "
      "(protocol.warmup = 2, steps = 10), so that no local step would come; take local_after = 33 "
      "at most, more steps, or epochs");
  spec.steps = 0;  // the protocol says how many
  CHECK(local_after_misfit(spec, 2, 11).empty());
  CHECK_THAT(local_after_misfit(spec, 2, 10), ContainsSubstring("protocol.iterations = 10"));
  spec.epochs = 1;
  CHECK(local_after_misfit(spec, 2, 10).empty());
  spec.epochs = 0;
  spec.synchronisation = Synchronisation::local;
  CHECK(local_after_misfit(spec, 2, 10).empty());
}

TEST_CASE("sizes may be left to the method") {
  WorkCell cell = training_cell({});
  cell.knobs["bucket"] = "auto";
  cell.knobs["partition"] = "1MiB";
  const TrainingSpec spec = parsed_training(cell);
  CHECK(spec.bucket.count() == 0);
  CHECK(bucket_of(spec).count() == 25U << 20);
  CHECK(partition_of(spec).count() == 1U << 20);
  CHECK(credit_of(spec).count() == 16U << 20);
  CHECK(!training_cell(spec).knobs.contains("bucket"));
}

TEST_CASE("what is left to a method leaves a choice", "[d-48][d-49][dear]") {
  TrainingSpec spec;
  CHECK_FALSE(leaves_a_choice(spec));
  spec.method = TrainingMethod::dear;
  CHECK(leaves_a_choice(spec));
  spec.bucket = Bytes(1U << 20);
  CHECK_FALSE(leaves_a_choice(spec));
  spec.method = TrainingMethod::bytescheduler_a2a;
  spec.partition = Bytes(1U << 20);
  CHECK(leaves_a_choice(spec));
  spec.credit = Bytes(1U << 20);
  CHECK_FALSE(leaves_a_choice(spec));
  spec.method = TrainingMethod::mg_wfbp;
  CHECK(leaves_a_choice(spec));
  spec.merge = MergeRule::greedy;
  CHECK_FALSE(leaves_a_choice(spec));
}

TEST_CASE("servers are refused where a method has none", "[d-04]") {
  TrainingSpec spec;
  spec.servers = 3;
  for (const auto method :
       {TrainingMethod::bsp_ps, TrainingMethod::wfbp_ps, TrainingMethod::bytescheduler_ps}) {
    spec.method = method;
    CHECK(training_contradiction(spec).empty());
  }
  // They would name apart two cells that train alike.
  for (const auto method : {TrainingMethod::bsp_a2a, TrainingMethod::dear, TrainingMethod::ddp,
                            TrainingMethod::d_psgd}) {
    spec.method = method;
    CHECK_THAT(training_contradiction(spec), ContainsSubstring("servers = 3: ") &&
                                                 ContainsSubstring("has no server; take one of"));
  }
}

TEST_CASE("an optimizer on servers needs a method that has some") {
  TrainingSpec spec;
  spec.method = TrainingMethod::wfbp_ps;
  spec.optimizer = OptimizerPlace::server;
  CHECK(training_contradiction(spec).empty());
  CHECK(parsed_training(training_cell(spec)).optimizer == OptimizerPlace::server);
  spec.method = TrainingMethod::dear;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("dear has no server"));
  spec.optimizer = OptimizerPlace::worker;
  CHECK(training_contradiction(spec).empty());
}

TEST_CASE("what says how much is trained says it once", "[a-31]") {
  TrainingSpec spec;
  spec.steps = 391;
  CHECK(training_contradiction(spec).empty());
  spec.epochs = 10;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("leave one out"));
  spec.steps = 0;
  spec.target = 0.6;
  CHECK(training_contradiction(spec).empty());
  spec.epochs = 0;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("target without epochs"));
  spec.target = 0;
  spec.looks = 4;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("looks without epochs"));
}

TEST_CASE("packing needs our own all-reduce") {
  TrainingSpec spec;
  spec.packing = Packing::exponents;
  spec.method = TrainingMethod::mg_wfbp;
  CHECK(training_contradiction(spec).empty());
  spec.method = TrainingMethod::dear;
  CHECK(training_contradiction(spec).empty());
  spec.method = TrainingMethod::wfbp_ps;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("wfbp-ps sends plain values"));
  spec.method = TrainingMethod::ddp;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("ddp sends plain values"));
}

TEST_CASE("a tuner is refused where there is no all-reduce of the library in each step") {
  TrainingSpec spec;
  spec.method = TrainingMethod::bsp_a2a;
  CHECK(!training_cell(spec).knobs.contains("tuner"));
  CHECK(tuner_misfit(spec, Backend::nccl).empty());
  spec.tuner = kOnlineTuner;
  CHECK(parsed_training(training_cell(spec)).tuner == kOnlineTuner);
  CHECK(training_contradiction(spec).empty());
  CHECK(tuner_table(spec).empty());
  for (const auto method :
       {TrainingMethod::wfbp_a2a, TrainingMethod::mg_wfbp, TrainingMethod::bytescheduler_a2a}) {
    spec.method = method;
    CHECK(training_contradiction(spec).empty());
  }
  for (const auto method : {TrainingMethod::bsp_ps, TrainingMethod::dear, TrainingMethod::ddp}) {
    spec.method = method;
    CHECK_THAT(training_contradiction(spec), ContainsSubstring("no call of the library to set"));
  }
  spec.method = TrainingMethod::bsp_a2a;
  spec.packing = Packing::exponents;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("ring of our own or next to it"));
  for (const auto backend : {Backend::openmpi, Backend::mpich, Backend::gloo, Backend::nccl})
    CHECK(tuner_misfit(spec, backend).empty());
  CHECK_THAT(tuner_misfit(spec, Backend::cuda_aware_mpi), ContainsSubstring("gloo and nccl"));
  spec.tuner = "a/table.json";
  CHECK(tuner_table(spec) == "a/table.json");
  CHECK(tuner_file(spec).find('/') == std::string::npos);
}

TEST_CASE("servers sum on GPUs where NCCL's calls have one order", "[d-04][d-05]") {
  TrainingSpec spec;
  spec.method = TrainingMethod::wfbp_ps;
  CHECK(training_cell(spec).knobs.count("server_sums") == 0);
  spec.server_sums = ServerSums::gpu;
  CHECK(training_cell(spec).knobs.at("server_sums") == "gpu");
  CHECK(parsed_training(training_cell(spec)).server_sums == ServerSums::gpu);
  CHECK(training_contradiction(spec).empty());
  CHECK(gpu_misfit(spec, Backend::nccl).empty());
  for (const Backend other : {Backend::gloo, Backend::openmpi, Backend::cuda_aware_mpi})
    CHECK_THAT(gpu_misfit(spec, other), ContainsSubstring("by NCCL alone"));
  CHECK(server_gpu_misfit(spec, true).empty());
  CHECK_THAT(server_gpu_misfit(spec, false), ContainsSubstring("take server_sums = \"chief\""));

  const auto refused = [&](auto&& change) {
    TrainingSpec other = spec;
    change(other);
    return training_contradiction(other);
  };
  CHECK_THAT(refused([](auto& s) { s.method = TrainingMethod::mg_wfbp; }),
             ContainsSubstring("it has no server"));
  CHECK_THAT(refused([](auto& s) { s.method = TrainingMethod::bytescheduler_ps; }),
             ContainsSubstring("an order of its own"));
  CHECK_THAT(refused([](auto& s) { s.placement = ServerPlacement::colocated; }),
             ContainsSubstring("take dear"));
  CHECK_THAT(refused([](auto& s) {
               s.method = TrainingMethod::bsp_ps;
               s.synchronisation = Synchronisation::asp;
             }),
             ContainsSubstring("whoever comes first"));
  CHECK_THAT(refused([](auto& s) { s.compression = Codec::bf16; }),
             ContainsSubstring("decode on their processors"));
  CHECK(refused([](auto& s) { s.servers = 2; }).empty());
  CHECK(refused([](auto& s) {
          s.method = TrainingMethod::bsp_ps;
          s.synchronisation = Synchronisation::local;
          s.local_steps = 4;
        }).empty());

  // A quarter of GiB of floats each: eight workers' are one more than a call counts.
  TrainingSpec large = spec;
  large.model = TrainingModel::bert_large;
  large.partition = Bytes(1U << 30);
  CHECK(ranks_misfit(large, 8).empty());
  CHECK_THAT(ranks_misfit(large, 9), ContainsSubstring("take a smaller partition"));
  large.servers = 2;
  CHECK(ranks_misfit(large, 12).empty());
  large.servers = 1;
  large.partition = Bytes(1U << 29);
  CHECK(ranks_misfit(large, 9).empty());

  spec.server_sums = ServerSums::chief;
  CHECK(training_contradiction(spec).empty());
  CHECK(server_gpu_misfit(spec, false).empty());
  CHECK_THAT(server_gpu_misfit(spec, true), ContainsSubstring("env.DYNAMICCL_SERVER_GPU"));
  CHECK_THAT(refused([](auto& s) { s.servers = 2; }), ContainsSubstring("feeds one server"));
}

TEST_CASE("a check that would keep more copies of a model than memory takes is refused",
          "[safety]") {
  TrainingSpec spec;
  spec.model = TrainingModel::resnet18;
  spec.method = TrainingMethod::bsp_a2a;
  CHECK(oracle_copies(spec) == 0);
  spec.oracle = 20;
  CHECK(oracle_copies(spec) == 21);
  CHECK(training_contradiction(spec).empty());
  spec.oracle = 200;
  CHECK_THAT(training_contradiction(spec),
             ContainsSubstring("oracle = 200 with model = \"resnet18\": each worker would keep 201 "
                               "copies of 42.6 MiB") &&
                 ContainsSubstring("take a smaller oracle"));
  spec.oracle = std::numeric_limits<int>::max();
  CHECK_FALSE(training_contradiction(spec).empty());
  // Codecs and rounds keep more of each.
  spec.oracle = 100;
  CHECK(training_contradiction(spec).empty());
  spec.synchronisation = Synchronisation::local;
  spec.local_steps = 2;
  CHECK(oracle_copies(spec) == 402);
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("402 copies"));
}
