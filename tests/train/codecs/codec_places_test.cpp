// Encoded gradients where servers sum them, where workers meet after steps of their own, and where
// a server answers each worker by itself: the real programs, each against its oracle.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/train/training_job.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

namespace {

/// A place where encoded values are summed.
struct Place {
  const char* name;
  TrainingMethod method;
  int servers = 0;  ///< ranks of their own
  std::function<void(TrainingSpec&)> edit = [](TrainingSpec&) {};
};

TrainingSpec& waits(TrainingSpec& spec, Synchronisation how) {
  spec.synchronisation = how;
  return spec;
}

const std::vector<Place>& places() {
  static const std::vector<Place> all{
      {"servers", TrainingMethod::bsp_ps, 1},
      {"servers, overlapped", TrainingMethod::wfbp_ps, 1},
      {"servers by urgency", TrainingMethod::bytescheduler_ps, 1},
      {"servers as optimizers", TrainingMethod::bsp_ps, 1,
       [](TrainingSpec& spec) { spec.optimizer = OptimizerPlace::server; }},
      {"colocated servers", TrainingMethod::wfbp_ps, 0,
       [](TrainingSpec& spec) { spec.placement = ServerPlacement::colocated; }},
      {"local, all-reduced", TrainingMethod::bsp_a2a, 0,
       [](TrainingSpec& spec) { waits(spec, Synchronisation::local).local_steps = 2; }},
      {"local, served", TrainingMethod::bsp_ps, 1,
       [](TrainingSpec& spec) { waits(spec, Synchronisation::local).local_steps = 3; }},
      {"neighbours", TrainingMethod::d_psgd},
      {"neighbours, local", TrainingMethod::d_psgd, 0,
       [](TrainingSpec& spec) {
         spec.topology = PeerGraph::exponential;
         waits(spec, Synchronisation::local).local_steps = 2;
       }},
      {"ssp", TrainingMethod::bsp_ps, 1,
       [](TrainingSpec& spec) { waits(spec, Synchronisation::ssp).staleness = 1; }},
      {"asp", TrainingMethod::bsp_ps, 1,
       [](TrainingSpec& spec) { waits(spec, Synchronisation::asp); }},
      {"staggered", TrainingMethod::bsp_ps, 1,
       [](TrainingSpec& spec) { waits(spec, Synchronisation::staggered); }},
      {"backup", TrainingMethod::bsp_ps, 1,
       [](TrainingSpec& spec) { waits(spec, Synchronisation::backup).backups = 1; }}};
  return all;
}

TrainingSpec spec_of(const Place& place, Codec codec) {
  TrainingSpec spec = small_spec(place.method);
  spec.model = TrainingModel::cnn_small;
  // Several messages of a model of 400 kB.
  spec.partition = Bytes(1U << 16);
  spec.credit = Bytes(1U << 17);
  spec.servers = place.servers;
  spec.compression = codec;
  spec.learning_rate = codec == Codec::signsgd ? 1e-4 : 0.01;
  if (codec == Codec::threshold) spec.threshold = 0.02;
  spec.oracle = 3;
  place.edit(spec);
  return spec;
}

struct PlacedCell {
  const Place* place;
  Codec codec;
};

/// Every legal pair of codec and place.
std::vector<PlacedCell> legal_cells() {
  std::vector<PlacedCell> cells;
  for (const Place& place : places())
    for (const CodecRow& row : kCodecs)
      if (row.codec != Codec::none && training_contradiction(spec_of(place, row.codec)).empty())
        cells.push_back({&place, row.codec});
  return cells;
}

std::unique_ptr<Job> placed_job(Backend backend, int workers,
                                const std::vector<PlacedCell>& cells) {
  const Place& first = *cells.front().place;
  auto job = job_of(backend, workers, {first.method}, 3, first.servers);
  job->config.cells.clear();
  for (std::size_t i = 0; i < cells.size(); ++i) {
    WorkCell cell = training_cell(spec_of(*cells[i].place, cells[i].codec));
    cell.id = std::to_string(i);
    job->config.cells.push_back(cell);
  }
  return job;
}

void check_placed(const CellRecord& record, const PlacedCell& cell, int workers) {
  INFO(name_of(cell.codec) << ", " << cell.place->name << ", rank " << record.rank << ": "
                           << record.reason);
  REQUIRE(record.status == CellStatus::ok);
  CHECK(record.wrong == 0);
  REQUIRE(record.training);
  // Servers add in rank order, and a sum of two has no order.
  if (workers == 2 || cell.place->method != TrainingMethod::bsp_a2a ||
      codec_row(cell.codec).sum != CodecSum::reduced)
    CHECK(record.training->max_difference == 0);
  const auto& memory = record.training->details.at("memory");
  // What is gathered of all workers grows with them, and what comes of neighbours with those.
  if (workers == 2 || cell.place->servers > 0)
    CHECK(memory.at("held_bytes") <= memory.at("limit_bytes"));
  if (record.training->role == "server") return;
  // In groups the first one alone speaks with the server.
  const int group = spec_of(*cell.place, cell.codec).group_size;
  if (group > 1 && (record.rank - cell.place->servers) % group != 0) return;
  const auto& compression = record.training->details.at("compression");
  CHECK(compression.at("message_bytes") < compression.at("nominal_bytes").get<double>());
  CHECK(compression.at("encode_us") > 0);
  if (codec_row(cell.codec).alike)
    CHECK(compression.at("formula_bytes") == compression.at("message_bytes"));
}

/// Groups of two with a codec among them, and another one between groups and server.
const std::vector<Place>& levels() {
  const auto within = [](Codec codec, Synchronisation how) {
    return [codec, how](TrainingSpec& spec) {
      waits(spec, how).group_size = 2;
      spec.group_compression = codec;
    };
  };
  static const std::vector<Place> all{
      {"groups in bf16", TrainingMethod::bsp_ps, 1, within(Codec::bf16, Synchronisation::asp)},
      {"groups in top-k", TrainingMethod::bsp_ps, 1, within(Codec::topk, Synchronisation::ssp)},
      {"groups in QSGD", TrainingMethod::bsp_ps, 1,
       within(Codec::qsgd, Synchronisation::staggered)},
      {"plain groups", TrainingMethod::bsp_ps, 1, within(Codec::none, Synchronisation::asp)}};
  return all;
}

/// One launch for cells that have as many ranks and one architecture.
void run_and_check(Backend backend, int workers, const std::vector<PlacedCell>& cells) {
  for (const bool ring : {true, false}) {
    for (const int servers : {0, 1}) {
      std::vector<PlacedCell> together;
      for (const auto& cell : cells)
        if (cell.place->servers == servers &&
            (architecture_of(cell.place->method) == Architecture::ring) == ring)
          together.push_back(cell);
      if (together.empty()) continue;
      auto job = placed_job(backend, workers, together);
      run_to_end(*job);
      std::vector<std::set<std::string>> digests(together.size());
      for (int rank = 0; rank < job->config.ranks; ++rank) {
        const auto records = job->records_of<CellRecord>(rank);
        REQUIRE(records.size() == together.size());
        for (std::size_t i = 0; i < together.size(); ++i) {
          check_placed(records[i], together[i], workers);
          add_digest(records[i], digests[i]);
        }
      }
      for (std::size_t i = 0; i < together.size(); ++i) {
        const bool apart = together[i].place->method == TrainingMethod::d_psgd;
        CHECK(digests[i].size() == (apart ? static_cast<std::size_t>(workers) : 1));
      }
    }
  }
}

/// Backend and workers of each launch.
struct Launch {
  Backend backend;
  int workers;
};
std::vector<Launch> launches() {
  std::vector<Launch> all;
  for (const Backend backend : kBackends)
    for (const int workers : {2, 4}) all.push_back({backend, workers});
  return all;
}

}  // namespace

TEST_CASE("codecs train with servers, local steps and single answers", "[d-91][long]") {
  // Every pair of codec and place once; the library and the number of workers go around.
  const std::size_t launch = GENERATE(range(std::size_t{0}, launches().size()));
  const auto all = legal_cells();
  std::vector<PlacedCell> cells;
  for (std::size_t i = launch; i < all.size(); i += launches().size()) cells.push_back(all[i]);
  run_and_check(launches()[launch].backend, launches()[launch].workers, cells);
}

// By name alone: train_tests '[matrix]'.
TEST_CASE("codecs train in every place over every library and number of workers", "[.matrix]") {
  const std::size_t launch = GENERATE(range(std::size_t{0}, launches().size()));
  run_and_check(launches()[launch].backend, launches()[launch].workers, legal_cells());
}

TEST_CASE("one codec in each place trains, Gloo, briefly", "[d-91]") {
  const auto& all = places();
  std::vector<PlacedCell> cells;
  const std::vector<Codec> codecs{Codec::topk, Codec::onebit, Codec::bf16, Codec::qsgd};
  for (std::size_t i = 0; i < all.size(); ++i)
    cells.push_back({&all[i], codecs[i % codecs.size()]});
  run_and_check(Backend::gloo, 2, cells);
}

TEST_CASE("groups send one codec, their server gets another, Gloo, briefly", "[d-87]") {
  const auto& all = levels();
  run_and_check(Backend::gloo, 4, {{&all[0], Codec::topk}, {&all[1], Codec::bf16}});
}

TEST_CASE("a codec per level trains what the server's log says", "[d-87][long]") {
  const auto backend = GENERATE(from_range(kBackends));
  const auto& all = levels();
  run_and_check(backend, 4,
                {{&all[0], Codec::topk},
                 {&all[0], Codec::threshold},
                 {&all[1], Codec::onebit},
                 {&all[2], Codec::randomk},
                 {&all[3], Codec::qsgd}});
  // What goes to the server is plain, what goes around in the group is not.
  auto job = placed_job(backend, 4, {{&all[1], Codec::none}});
  run_to_end(*job);
  const auto record = job->records_of<CellRecord>(1).at(0);
  INFO(record.reason);
  REQUIRE(record.status == CellStatus::ok);
  CHECK(record.wrong == 0);
  CHECK(record.training->max_difference == 0);
  const auto& within = record.training->details.at("group_compression");
  CHECK(within.at("message_bytes") == within.at("formula_bytes"));
  CHECK(within.at("message_bytes") < 0.05 * within.at("nominal_bytes").get<double>());
  CHECK_FALSE(record.training->details.contains("compression"));
  // A message of each member, what was kept back and a buffer to the server are all that it holds.
  const auto& memory = record.training->details.at("memory");
  CHECK(memory.at("held_bytes") == memory.at("limit_bytes"));
}

TEST_CASE("planted faults of a codec within groups fail the cell", "[d-87][long]") {
  const auto [fault, place] = GENERATE(table<const char*, std::size_t>(
      {{"drop-residual", 1}, {"shift-place", 1}, {"leave-group", 0}}));
  INFO(fault);
  auto job = placed_job(Backend::gloo, 4, {{&levels()[place], Codec::bf16}});
  check_fault_is_seen(*job, fault, "replay of the server's log");
}

TEST_CASE("planted faults of codecs fail the cell in every place", "[d-91][long]") {
  struct Planted {
    const char* fault;
    Codec codec;
    std::size_t place;
    const char* seen;
  };
  const char* replay = "replay in one process";
  const char* log = "replay of the server's log";
  const auto planted = GENERATE_REF(Planted{"drop-residual", Codec::onebit, 0, replay},
                                    Planted{"shift-place", Codec::topk, 4, replay},
                                    Planted{"other-seed", Codec::randomk, 1, replay},
                                    Planted{"drop-residual", Codec::topk, 5, replay},
                                    Planted{"drop-residual", Codec::onebit, 6, replay},
                                    Planted{"drop-residual", Codec::ef_sign, 9, log},
                                    Planted{"shift-place", Codec::topk, 10, log},
                                    Planted{"shift-place", Codec::topk, 7, replay},
                                    Planted{"drop-neighbour", Codec::onebit, 8, replay});
  INFO(planted.fault << " of " << name_of(planted.codec) << ", " << places()[planted.place].name);
  auto job = placed_job(Backend::gloo, 2, {{&places()[planted.place], planted.codec}});
  check_fault_is_seen(*job, planted.fault, planted.seen);
}
