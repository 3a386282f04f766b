// Trainers whose gradients travel encoded: the real programs, each against its oracle.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/train/training_job.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A codec as a cell has it.
struct Coded {
  Codec codec;
  TrainingMethod method = TrainingMethod::wfbp_a2a;
  std::function<void(TrainingSpec&)> edit = [](TrainingSpec&) {};
};

TrainingSpec coded_spec(const Coded& coded) {
  TrainingSpec spec = small_spec(coded.method);
  spec.compression = coded.codec;
  spec.partition = spec.credit = Bytes(0);
  coded.edit(spec);
  return spec;
}

std::unique_ptr<Job> coded_job(Backend backend, int workers, const std::vector<Coded>& cells,
                               int oracle) {
  auto job = job_of(backend, workers, {TrainingMethod::wfbp_a2a}, oracle);
  job->config.cells.clear();
  for (std::size_t i = 0; i < cells.size(); ++i) {
    TrainingSpec spec = coded_spec(cells[i]);
    spec.oracle = oracle;
    WorkCell cell = training_cell(spec);
    cell.id = std::to_string(i);
    job->config.cells.push_back(cell);
  }
  return job;
}

/// Whose frames come into a worker's around gTop-k's tree, of so many.
int children_of(int worker, int workers) {
  int children = 0;
  for (int distance = 1; worker + distance < workers && (worker & distance) == 0; distance *= 2)
    ++children;
  return children;
}

/// What a worker sends in a step, by the formula.
double wire_bytes_of(const Coded& coded, int worker, int workers, double message_bytes) {
  const double others = workers - 1;
  if (codec_row(coded.codec).sum == CodecSum::merged)
    return message_bytes * (children_of(worker, workers) + (worker > 0 ? 1 : 0));
  return codec_row(coded.codec).sum == CodecSum::reduced ? 2 * message_bytes * others / workers
                                                         : message_bytes * others;
}

/// A traced message says what goes over the wire beside what it stands for.
void check_traced_bytes(const nlohmann::json& trace) {
  double sent = 0;
  double nominal = 0;
  for (const auto& event : trace) {
    if (!event.contains("args")) continue;
    sent += event.at("args").at("bytes").get<double>();
    nominal += event.at("args").at("nominal_bytes").get<double>();
  }
  CHECK(sent > 0);
  CHECK(sent < nominal);
}

void check_coded_cell(const CellRecord& record, const Coded& coded, int workers) {
  INFO(name_of(coded.codec) << " with " << name_of(coded.method) << " on rank " << record.rank
                            << ": " << record.reason);
  REQUIRE(record.status == CellStatus::ok);
  CHECK(record.wrong == 0);
  REQUIRE(record.training);
  const CodecRow& row = codec_row(coded.codec);
  CHECK(record.training->max_difference >= 0);
  // Frames are added in rank order, and a sum of two has no order.
  if (workers == 2 || row.sum != CodecSum::reduced) CHECK(record.training->max_difference == 0);
  const auto& compression = record.training->details.at("compression");
  const double bytes = compression.at("message_bytes");
  CHECK(compression.at("nominal_bytes") == 4 * facts_of(TrainingModel::mlp, 1).parameters);
  CHECK(bytes < compression.at("nominal_bytes").get<double>());
  if (!row.alike) {
    CHECK(compression.at("formula_bytes").is_null());
  } else {
    CHECK(compression.at("formula_bytes") == bytes);
    check_traced_bytes(record.training->details.at("trace"));
    // A sketch's bound, 4 bytes, goes to each: of a matrix of the model one.
    const double wire = wire_bytes_of(coded, record.rank, workers, bytes);
    CHECK(std::abs(record.training->wire_bytes - wire) <=
          (row.kind == CodecKind::sketched ? 8 * workers : 8));
  }
  CHECK(compression.at("encode_us") > 0);
  CHECK(compression.at("decode_us") > 0);
  CHECK(record.training->predicted_us == 0);
}

void run_and_check(Backend backend, int workers, const std::vector<Coded>& cells) {
  auto job = coded_job(backend, workers, cells, 4);
  run_to_end(*job);
  std::vector<std::set<std::string>> digests(cells.size());
  for (int rank = 0; rank < workers; ++rank) {
    const auto records = job->records_of<CellRecord>(rank);
    REQUIRE(records.size() == cells.size());
    for (std::size_t i = 0; i < cells.size(); ++i) {
      check_coded_cell(records[i], cells[i], workers);
      add_digest(records[i], digests[i]);
    }
  }
  for (const auto& each : digests) CHECK(each.size() == 1);
}

void above_most(TrainingSpec& spec) { spec.threshold = 0.02; }
void no_feedback(TrainingSpec& spec) { spec.error_feedback = FeedbackWish::off; }
void feedback(TrainingSpec& spec) { spec.error_feedback = FeedbackWish::on; }
void bits_by_size(TrainingSpec& spec) { spec.layer_bits = LayerBits::size; }

/// Codecs that send every value, with the method and settings that go with them.
std::vector<Coded> whole_codecs() {
  return {{Codec::fp16, TrainingMethod::bsp_a2a},
          {Codec::bf16, TrainingMethod::mg_wfbp, feedback},
          {Codec::int8, TrainingMethod::bytescheduler_a2a, feedback},
          {Codec::onebit},
          {Codec::ef_sign, TrainingMethod::mg_wfbp},
          {Codec::signsgd, TrainingMethod::bsp_a2a,
           [](TrainingSpec& spec) { spec.learning_rate = 1e-4; }},
          {Codec::terngrad, TrainingMethod::bsp_a2a},
          {Codec::qsgd, TrainingMethod::bytescheduler_a2a,
           [](TrainingSpec& spec) {
             spec.partition = Bytes(1U << 20);
             spec.credit = Bytes(2U << 20);
           }},
          {Codec::qsgd, TrainingMethod::wfbp_a2a,
           [](TrainingSpec& spec) {
             spec.bits = 2;
             spec.error_feedback = FeedbackWish::on;
           }},
          {Codec::natural, TrainingMethod::mg_wfbp},
          {Codec::diana, TrainingMethod::mg_wfbp},
          {Codec::diana, TrainingMethod::bytescheduler_a2a, bits_by_size},
          {Codec::qsgd, TrainingMethod::bsp_a2a, bits_by_size},
          {Codec::qsgd_adaptive, TrainingMethod::wfbp_a2a, feedback}};
}

/// Codecs that leave values out, or sum some of them.
std::vector<Coded> part_codecs() {
  return {
      {Codec::topk, TrainingMethod::bsp_a2a},
      {Codec::topk, TrainingMethod::wfbp_a2a, [](TrainingSpec& spec) { spec.density_warmup = 3; }},
      {Codec::randomk, TrainingMethod::wfbp_a2a},
      {Codec::randomk, TrainingMethod::bsp_a2a, no_feedback},
      {Codec::threshold, TrainingMethod::bsp_a2a, above_most},
      {Codec::dgc, TrainingMethod::wfbp_a2a,
       [](TrainingSpec& spec) {
         spec.clip = 0.5;
         spec.density_warmup = 2;
       }},
      {Codec::stc},
      {Codec::cocktail},
      {Codec::sbc, TrainingMethod::mg_wfbp},
      {Codec::three_lc, TrainingMethod::bsp_a2a},
      {Codec::adacomp, TrainingMethod::bsp_a2a},
      {Codec::gtopk, TrainingMethod::bsp_a2a},
      {Codec::gtopk, TrainingMethod::wfbp_a2a, [](TrainingSpec& spec) { spec.density_warmup = 3; }},
      {Codec::sketch, TrainingMethod::wfbp_a2a},
      {Codec::sketch, TrainingMethod::bsp_a2a, no_feedback},
      {Codec::powersgd, TrainingMethod::wfbp_a2a},
      {Codec::powersgd, TrainingMethod::bsp_a2a, no_feedback}};
}

std::vector<Coded> all_codecs() {
  auto cells = whole_codecs();
  for (const Coded& each : part_codecs()) cells.push_back(each);
  return cells;
}

}  // namespace

TEST_CASE("encoded gradients train what workers of one process would",
          "[d-58][d-59][d-60][d-61][d-62][d-63][d-64][d-68][d-69][d-70][d-71]"
          "[d-72][d-73][d-75][d-82][d-84][d-86][d-88][d-91][d-92][d-95][long]") {
  const auto [backend, workers] = GENERATE(
      table<Backend, int>({{Backend::openmpi, 2}, {Backend::mpich, 4}, {Backend::gloo, 2}}));
  run_and_check(backend, workers, all_codecs());
}

// By name alone: train_tests '[matrix]' takes five minutes.
TEST_CASE("encoded gradients train over every library and number of workers", "[.matrix]") {
  const auto backend = GENERATE(from_range(kBackends));
  const int workers = GENERATE(2, 4);
  run_and_check(backend, workers, all_codecs());
}

TEST_CASE("one codec of each kind trains, Gloo, briefly", "[c-48][d-58][d-69][d-91][d-95]") {
  run_and_check(Backend::gloo, 2,
                {{Codec::onebit, TrainingMethod::wfbp_a2a},
                 {Codec::topk, TrainingMethod::bsp_a2a},
                 {Codec::powersgd, TrainingMethod::bsp_a2a}});
}

TEST_CASE("codecs that go by all workers' sums train, Gloo, briefly",
          "[c-48][d-62][d-63][d-72][d-86][d-88]") {
  run_and_check(Backend::gloo, 3,
                {{Codec::gtopk, TrainingMethod::bsp_a2a},
                 {Codec::diana, TrainingMethod::wfbp_a2a},
                 {Codec::sketch, TrainingMethod::bsp_a2a},
                 {Codec::qsgd_adaptive, TrainingMethod::bsp_a2a}});
}

TEST_CASE("planted faults of codecs fail the cell", "[d-62][d-72][d-86][d-88][d-91][long]") {
  struct Planted {
    const char* fault;
    Codec codec;
    const char* seen;
  };
  const auto planted =
      GENERATE(Planted{"drop-residual", Codec::onebit, "replay in one process"},
               Planted{"drop-residual", Codec::dgc, "replay in one process"},
               Planted{"drop-residual", Codec::diana, "replay in one process"},
               Planted{"drop-residual", Codec::qsgd_adaptive, "replay in one process"},
               Planted{"drop-residual", Codec::sketch, "replay in one process"},
               Planted{"forget-lost", Codec::gtopk, "replay in one process"},
               Planted{"shift-place", Codec::gtopk, "replay in one process"},
               Planted{"shift-place", Codec::topk, "replay in one process"},
               Planted{"other-seed", Codec::randomk, "replay in one process"},
               Planted{"other-seed", Codec::sketch, "replay in one process"},
               Planted{"swap-factors", Codec::powersgd, "replay in one process"});
  INFO(planted.fault << " of " << name_of(planted.codec));
  auto job = coded_job(Backend::gloo, 2, {{planted.codec}}, 4);
  check_fault_is_seen(*job, planted.fault, planted.seen);
}
