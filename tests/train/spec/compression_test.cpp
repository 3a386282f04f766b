// Codecs as data: what goes with what, and how many bytes each takes.
#include "train/spec/compression.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "train/spec/training.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

TrainingSpec spec_of(Codec codec, TrainingMethod method = TrainingMethod::wfbp_a2a) {
  TrainingSpec spec;
  spec.method = method;
  spec.compression = codec;
  return spec;
}

std::uint64_t bytes_of(const TrainingSpec& spec, std::size_t count, std::size_t rows = 1,
                       std::uint64_t step = 0) {
  return codec_bytes(codec_settings(spec), count, rows, step).value_or(0);
}

}  // namespace

TEST_CASE("every codec has a row, every kind and place of the sum a judgement") {
  for (const auto& named : NameTable<Codec>::entries)
    CHECK(codec_row(named.value).codec == named.value);
  for (const auto kind : {CodecKind::dense, CodecKind::quantised, CodecKind::sparse,
                          CodecKind::low_rank, CodecKind::sketched}) {
    for (const auto place : {SumPlace::server, SumPlace::all_reduce, SumPlace::neighbours}) {
      const Fit pair = codec_fit(kind, place);
      CHECK((pair.fit == PairFit::legal) == pair.reason.empty());
    }
  }
}

TEST_CASE("every synchronisation has a judgement of codecs", "[d-91]") {
  for (const auto& named : NameTable<Synchronisation>::entries) {
    const Fit& row = synchronisation_row(named.value).coded;
    CHECK((row.fit == PairFit::legal) == row.reason.empty());
  }
}

TEST_CASE("codecs that do not go with the rest are refused with the reason", "[d-91]") {
  const auto refusal = [](const TrainingSpec& spec) { return training_contradiction(spec); };
  for (const CodecRow& row : kCodecs) {
    CHECK(refusal(spec_of(row.codec)).empty());
    CHECK_FALSE(trains_as_one(spec_of(row.codec)) != (row.codec == Codec::none));
  }
  for (const auto method : {TrainingMethod::bsp_ps, TrainingMethod::bytescheduler_ps})
    CHECK(refusal(spec_of(Codec::topk, method)).empty());
  CHECK_THAT(refusal(spec_of(Codec::threshold, TrainingMethod::bsp_ps)),
             ContainsSubstring("partial") && ContainsSubstring("how long it is"));
  CHECK_THAT(refusal(spec_of(Codec::powersgd, TrainingMethod::bsp_ps)),
             ContainsSubstring("illegal"));
  CHECK(refusal(spec_of(Codec::int8, TrainingMethod::d_psgd)).empty());
  CHECK_FALSE(codec_settings(spec_of(Codec::topk, TrainingMethod::d_psgd)).feedback);
  for (const auto& [codec, why] : {std::pair{Codec::signsgd, "ef-sign"},
                                   {Codec::dgc, "momentum is of gradients"},
                                   {Codec::randomk, "overshoot"},
                                   {Codec::threshold, "one size"},
                                   {Codec::powersgd, "second factor"}})
    CHECK_THAT(refusal(spec_of(codec, TrainingMethod::d_psgd)), ContainsSubstring(why));
  CHECK_THAT(refusal(spec_of(Codec::int8, TrainingMethod::dear)),
             ContainsSubstring("half of a sum"));
  CHECK_THAT(refusal(spec_of(Codec::int8, TrainingMethod::ddp)), ContainsSubstring("own engine"));
  TrainingSpec spec = spec_of(Codec::onebit, TrainingMethod::bsp_a2a);
  spec.synchronisation = Synchronisation::local;
  spec.local_steps = 4;
  CHECK(refusal(spec).empty());
  spec.compression = Codec::signsgd;
  CHECK_THAT(refusal(spec), ContainsSubstring("illegal") && ContainsSubstring("vote"));
  spec.compression = Codec::dgc;
  CHECK_THAT(refusal(spec), ContainsSubstring("illegal") && ContainsSubstring("momentum"));
  spec.compression = Codec::onebit;
  spec.slow_momentum = 0.5;
  CHECK_THAT(refusal(spec), ContainsSubstring("partial") && ContainsSubstring("slow_momentum"));
  spec = spec_of(Codec::onebit, TrainingMethod::bsp_a2a);
  spec.synchronisation = Synchronisation::easgd;
  spec.local_steps = 4;
  CHECK_THAT(refusal(spec), ContainsSubstring("partial") && ContainsSubstring("centre"));
  spec = spec_of(Codec::threshold, TrainingMethod::bsp_ps);
  spec.synchronisation = Synchronisation::ssp;
  CHECK(refusal(spec).empty());
  spec = spec_of(Codec::onebit);
  spec.packing = Packing::exponents;
  CHECK_THAT(refusal(spec), ContainsSubstring("leave one out"));
  spec = spec_of(Codec::signsgd);
  spec.error_feedback = FeedbackWish::on;
  CHECK_THAT(refusal(spec), ContainsSubstring("take ef-sign"));
  spec = spec_of(Codec::dgc);
  spec.error_feedback = FeedbackWish::off;
  CHECK_THAT(refusal(spec), ContainsSubstring("take topk"));
  spec = spec_of(Codec::powersgd, TrainingMethod::bytescheduler_a2a);
  CHECK_THAT(refusal(spec), ContainsSubstring("factored whole"));
  spec = spec_of(Codec::none);
  spec.density = 0.1;
  CHECK_THAT(refusal(spec), ContainsSubstring("density: belongs to"));
  spec = spec_of(Codec::none);
  spec.error_feedback = FeedbackWish::on;
  CHECK_THAT(refusal(spec), ContainsSubstring("nothing is lost"));
  spec = spec_of(Codec::topk);
  spec.bits = 8;
  CHECK_THAT(refusal(spec), ContainsSubstring("bits: belongs to") && ContainsSubstring("diana"));
}

TEST_CASE("codecs of all workers' sums are refused where there is none", "[d-62][d-72][d-86]") {
  for (const Codec codec : {Codec::gtopk, Codec::diana, Codec::sketch})
    for (const TrainingMethod method : {TrainingMethod::bsp_ps, TrainingMethod::d_psgd})
      CHECK_THAT(training_contradiction(spec_of(codec, method)),
                 ContainsSubstring(codec == Codec::sketch && method == TrainingMethod::bsp_ps
                                       ? "(illegal)"
                                       : "(partial)"));
  TrainingSpec spec = spec_of(Codec::diana);
  spec.error_feedback = FeedbackWish::on;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("stands for a residual"));
  spec = spec_of(Codec::gtopk);
  spec.error_feedback = FeedbackWish::off;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("take topk"));
}

TEST_CASE("a codec of a group needs one, and messages that are alike", "[d-87]") {
  TrainingSpec spec = spec_of(Codec::topk, TrainingMethod::bsp_ps);
  spec.synchronisation = Synchronisation::asp;
  spec.group_compression = Codec::bf16;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("group_size of 2 or more"));
  spec.group_size = 2;
  CHECK(training_contradiction(spec).empty());
  CHECK(codec_settings(spec).codec == Codec::topk);
  CHECK(group_codec_settings(spec).codec == Codec::bf16);
  spec.compression = Codec::none;
  CHECK(training_contradiction(spec).empty());
  // Something is lost, but not where error_feedback is asked for.
  spec.error_feedback = FeedbackWish::off;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("within a group it is as usual"));
  spec.error_feedback = FeedbackWish::usual;
  spec.group_compression = Codec::qsgd;
  spec.bits = 8;
  CHECK(training_contradiction(spec).empty());
  spec.bits = 4;
  const auto refused = [&](Codec codec, const char* why) {
    spec.group_compression = codec;
    CHECK_THAT(training_contradiction(spec), ContainsSubstring(why));
  };
  refused(Codec::threshold, "messages of one size");
  refused(Codec::powersgd, "one message each");
  refused(Codec::gtopk, "one message each");
  refused(Codec::dgc, "without momentum");
  refused(Codec::signsgd, "without momentum");
}

TEST_CASE("LARS and a rising rate are refused where they cannot be", "[d-81]") {
  TrainingSpec spec = spec_of(Codec::none);
  spec.lars = 0.001;
  CHECK(training_contradiction(spec).empty());
  CHECK_THAT(gpu_misfit(spec, Backend::nccl), ContainsSubstring("lars on GPUs"));
  CHECK(gpu_misfit(spec, Backend::gloo).empty());
  spec.method = TrainingMethod::bsp_ps;
  spec.optimizer = OptimizerPlace::server;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("lars where a server"));
  spec.optimizer = OptimizerPlace::worker;
  spec.lars = 0;
  spec.rate_warmup = 5;
  spec.synchronisation = Synchronisation::ssp;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("rate_warmup where a server"));
  spec.synchronisation = Synchronisation::lag;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("one learning rate"));
  spec.learning_rate = 0.5;
  CHECK_THAT(rate_at(spec, 0), WithinRel(0.1, 1e-12));
  CHECK_THAT(rate_at(spec, 3), WithinRel(0.4, 1e-12));
  CHECK(rate_at(spec, 5) == 0.5);
  CHECK(rate_at(spec, 500) == 0.5);
}

TEST_CASE("settings of a codec come back from a cell, and wrong ones are refused") {
  TrainingSpec spec = spec_of(Codec::dgc);
  spec.density = 0.001;
  spec.density_warmup = 40;
  spec.clip = 2.5;
  const TrainingSpec read = parsed_training(training_cell(spec));
  CHECK(read.compression == Codec::dgc);
  CHECK(read.density == 0.001);
  CHECK(read.density_warmup == 40);
  CHECK(read.clip == 2.5);
  CHECK(training_cell(TrainingSpec{}).knobs.count("compression") == 0);
  WorkCell cell = training_cell(spec_of(Codec::qsgd));
  cell.knobs["bits"] = "3";
  CHECK_THROWS_WITH(parsed_training(cell), ContainsSubstring("2, 4 or 8"));
  cell = training_cell(spec_of(Codec::topk));
  cell.knobs["density"] = "0";
  CHECK_THROWS_WITH(parsed_training(cell), ContainsSubstring("a share above 0"));
}

TEST_CASE("error feedback is what the file says, else what is usual for the codec", "[d-91]") {
  CHECK(codec_settings(spec_of(Codec::onebit)).feedback);
  CHECK_FALSE(codec_settings(spec_of(Codec::qsgd)).feedback);
  CHECK(codec_settings(spec_of(Codec::dgc)).feedback);
  TrainingSpec spec = spec_of(Codec::topk);
  spec.error_feedback = FeedbackWish::off;
  CHECK_FALSE(codec_settings(spec).feedback);
  spec = spec_of(Codec::int8);
  spec.error_feedback = FeedbackWish::on;
  CHECK(codec_settings(spec).feedback);
  // Momentum is in one place.
  CHECK(optimizer_momentum(spec_of(Codec::dgc)) == 0);
  CHECK(codec_settings(spec_of(Codec::dgc)).momentum == TrainingSpec{}.momentum);
  CHECK(optimizer_momentum(spec_of(Codec::topk)) == TrainingSpec{}.momentum);
}

TEST_CASE("bytes of a gradient by formula", "[d-58][d-59][d-61][d-62][d-64][d-67][d-72][d-86]") {
  CHECK(bytes_of(spec_of(Codec::none), 1000) == 4000);
  CHECK(bytes_of(spec_of(Codec::bf16), 1001) == 2002);
  CHECK(bytes_of(spec_of(Codec::int8), 1001) == 1005);
  CHECK(bytes_of(spec_of(Codec::onebit), 1001) == 126 + 8);
  CHECK(bytes_of(spec_of(Codec::signsgd), 1000) == 125);
  CHECK(bytes_of(spec_of(Codec::terngrad), 1001) == 251 + 4);
  CHECK(bytes_of(spec_of(Codec::qsgd), 1025) == 513 + 12);
  CHECK(bytes_of(spec_of(Codec::topk), 1000) == 80);
  CHECK(bytes_of(spec_of(Codec::topk), 5) == 8);
  CHECK(bytes_of(spec_of(Codec::randomk), 1001) == 44);
  CHECK(bytes_of(spec_of(Codec::stc), 1001) == 4 + 44 + 2);
  CHECK(bytes_of(spec_of(Codec::sbc), 1001) == 4 + 44);
  CHECK(bytes_of(spec_of(Codec::gtopk), 1000) == 80);
  CHECK(bytes_of(spec_of(Codec::diana), 1025) == 513 + 12);
  // A bound, five rows of 40 cells and ten values; as it is where that would be more.
  CHECK(bytes_of(spec_of(Codec::sketch), 1000) == 4 * (1 + 200 + 10));
  CHECK(bytes_of(spec_of(Codec::sketch), 20) == 80);
  for (const CodecRow& row : kCodecs)
    CHECK(codec_bytes(codec_settings(spec_of(row.codec)), 100, 1, 0).has_value() == row.alike);
  // A matrix of 100 x 60 in factors of two columns; a vector as it is.
  CHECK(bytes_of(spec_of(Codec::powersgd), 6000, 100) == 4 * 2 * 160);
  CHECK(bytes_of(spec_of(Codec::powersgd), 6000, 1) == 24000);
  CHECK(bytes_of(spec_of(Codec::powersgd), 16, 4) == 64);
  // Nothing that sends every value beats one bit in 32, but for runs of zeros.
  for (const CodecRow& row : kCodecs)
    if (row.kind == CodecKind::quantised && row.alike)
      CHECK(bytes_of(spec_of(row.codec), 32000) >= 32000 * 4 / 32);
}

TEST_CASE("a density comes down exponentially during its warm-up", "[d-94]") {
  TrainingSpec spec = spec_of(Codec::dgc);
  spec.density = 0.001;
  spec.density_warmup = 4;
  const CodecSettings settings = codec_settings(spec);
  CHECK(density_at(settings, 0) == kWarmDensity);
  CHECK_THAT(density_at(settings, 2), WithinRel(std::sqrt(0.25 * 0.001), 1e-12));
  CHECK(density_at(settings, 4) == 0.001);
  CHECK(density_at(settings, 400) == 0.001);
  CHECK(bytes_of(spec, 1000, 1, 0) == 8 * 250);
  CHECK(bytes_of(spec, 1000, 1, 9) == 8);
}
