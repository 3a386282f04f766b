// Every collective x datatype x size, own algorithms beside the library's, through the worker's own
// cell runner, which compares every element; run with 1, 2 and 4 ranks.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <thread>

#include "tests/workers/world.hpp"
#include "tuner/action/algorithm_rows.hpp"
#include "workers/collectives/two_level.hpp"
#include "workers/measure/cell_runner.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using dynamiccl::testing::world;

namespace {

// Odd counts, one element, sizes around a segment and past the libraries' eager limits.
// Polling ranks that outnumber the cores take a time slice per message, so there are fewer then.
std::vector<std::uint64_t> sizes() {
  if (world().size() > static_cast<int>(std::thread::hardware_concurrency())) return {24, 20000};
  return {8, 24, 1000, 65544, 1200000};
}
const std::vector<DataType> kTypes{DataType::float32, DataType::float64, DataType::float16,
                                   DataType::bfloat16, DataType::int32};

RunConfig config_of(Architecture architecture, int server_rank = 0) {
  RunConfig config;
  config.backend = dynamiccl::testing::world_backend();
  config.architecture = architecture;
  config.ranks = world().size();
  config.server_rank = server_rank;
  config.seed = 12345;
  config.protocol.warmup = 1;
  config.protocol.iterations = 2;
  config.protocol.min_iterations = 1;
  return config;
}

WorkCell cell_of(Collective collective, std::uint64_t size, DataType type = DataType::float32,
                 const std::string& algorithm = "library") {
  WorkCell cell;
  cell.id = fmt::format("{} {} {} {}", name_of(collective), size, name_of(type), algorithm);
  cell.collective = collective;
  cell.size = Bytes(size);
  cell.datatype = type;
  cell.algorithm = algorithm;
  return cell;
}

/// Runs the cells one after the other in one runner, as a launch does.
std::vector<CellRecord> run_all(const RunConfig& config) {
  CellRunner runner(world(), config, 0);
  std::vector<CellRecord> records;
  for (const auto& cell : config.cells)
    records.push_back(runner.run(cell, static_cast<int>(records.size())));
  return records;
}

void check_all(const RunConfig& config) {
  for (const auto& record : run_all(config)) {
    INFO(record.cell_id << " on rank " << world().rank() << ": " << record.reason);
    CHECK(record.wrong == 0);
    CHECK(record.status != CellStatus::failed);
    if (record.status == CellStatus::unsupported)
      CHECK_THAT(record.reason, ContainsSubstring("is less than one") ||
                                    ContainsSubstring("at least 2 ranks") ||
                                    ContainsSubstring("has no in-place scatter"));
    if (record.status == CellStatus::ok) CHECK(record.measured.total_us.size() == 2);
  }
}

}  // namespace

TEST_CASE("every ring operation is right in every datatype and size", "[C-24]") {
  RunConfig config = config_of(Architecture::ring);
  for (const auto& entry : NameTable<Collective>::entries) {
    if (!belongs_to(entry.value, Architecture::ring)) continue;
    for (const auto size : sizes()) config.cells.push_back(cell_of(entry.value, size));
    for (const auto type : kTypes)
      config.cells.push_back(cell_of(entry.value, sizes().back(), type));
  }
  check_all(config);
}

TEST_CASE("every operation of a reduction is right, and every root") {
  RunConfig config = config_of(Architecture::ring);
  const auto last = std::to_string(world().size() - 1);
  const auto add = [&](Collective collective, DataType type, std::string name, std::string value) {
    WorkCell cell = cell_of(collective, sizes().back(), type);
    cell.id += name + value;
    cell.knobs = {{name, value}};
    config.cells.push_back(cell);
  };
  for (const auto collective :
       {Collective::allreduce, Collective::reduce, Collective::reduce_scatter})
    for (const auto& op : NameTable<ReduceOp>::entries)
      for (const auto type : {DataType::float32, DataType::float64, DataType::int32})
        add(collective, type, "op", std::string(op.name));
  for (const auto collective : {Collective::broadcast, Collective::reduce, Collective::scatter})
    add(collective, DataType::float32, "root", last);
  add(Collective::allreduce, DataType::float32, "cold_cache", "1");
  int right = 0;
  for (const auto& record : run_all(config)) {
    INFO(record.cell_id << " on rank " << world().rank() << ": " << record.reason);
    CHECK(record.wrong == 0);
    // What a library has not, our own sums cannot stand in for.
    if (record.status == CellStatus::unsupported)
      CHECK_THAT(record.reason,
                 ContainsSubstring("our own sums") || ContainsSubstring("at least 2 ranks"));
    else
      CHECK(record.status == CellStatus::ok);
    right += record.status == CellStatus::ok ? 1 : 0;
  }
  CHECK(right >= 28);
}

TEST_CASE("parts by a skew, by a list and by rows are right, parts of nothing among them") {
  RunConfig config = config_of(Architecture::ring);
  const int size = world().size();
  const auto add = [&](Collective collective, const char* name, const std::string& value) {
    for (const auto bytes : {std::uint64_t{1000}, sizes().back()}) {
      WorkCell cell = cell_of(collective, bytes);
      cell.id += name + value;
      cell.knobs = {{name, value}};
      config.cells.push_back(cell);
    }
  };
  std::string list = "1", rows;
  for (int r = 1; r < size; ++r) list += r % 2 == 1 ? ":0" : ":7";
  for (int r = 0; r < size; ++r) {
    for (int to = 0; to < size; ++to)
      rows += (to == 0 ? "" : ":") + std::to_string(to == (r + 1) % size ? 5 : 2 * (to == r));
    if (r + 1 < size) rows += "/";
  }
  for (const auto collective : {Collective::allgatherv, Collective::alltoallv}) {
    add(collective, "skew", "1");
    add(collective, "skew", "20");
    add(collective, "parts", list);
  }
  add(Collective::alltoallv, "parts", rows);
  for (const auto& record : run_all(config)) {
    INFO(record.cell_id << " on rank " << world().rank() << ": " << record.reason);
    CHECK(record.status == CellStatus::ok);
    CHECK(record.wrong == 0);
  }
}

TEST_CASE("calls of nothing are measured where a library makes them") {
  RunConfig config = config_of(Architecture::ring);
  for (const auto& entry : NameTable<Collective>::entries)
    if (belongs_to(entry.value, Architecture::ring))
      config.cells.push_back(cell_of(entry.value, 0));
  config.cells.push_back(cell_of(Collective::allreduce, 0, DataType::float32, "own_ring"));
  for (const auto& record : run_all(config)) {
    INFO(record.cell_id << " on rank " << world().rank() << ": " << record.reason);
    CHECK(record.wrong == 0);
    if (record.status != CellStatus::unsupported) {
      CHECK(record.status == CellStatus::ok);
      CHECK(record.checked == (record.cell_id.starts_with("barrier")
                                   ? 2U * static_cast<unsigned>(world().size())
                                   : 0U));
      continue;
    }
    CHECK_THAT(record.reason,
               ContainsSubstring("size = 0: ") || ContainsSubstring("at least 2 ranks"));
  }
}

TEST_CASE("ranks that come late enter by shares of their own, and their time begins then") {
  RunConfig config = config_of(Architecture::ring);
  config.protocol.iterations = 40;
  config.protocol.batch_target = Micros(600e6);
  config.cells = {cell_of(Collective::barrier, 0), cell_of(Collective::allreduce, 64)};
  for (auto& cell : config.cells) cell.knobs = {{"late", "2ms"}};
  for (const auto& record : run_all(config)) {
    INFO(record.cell_id);
    CHECK(record.status == CellStatus::ok);
    CHECK(record.batch == 1);
    // Somebody waited for the last one; a rank alone waits for nobody.
    const auto& times = record.measured.total_us;
    const double longest =
        max_over_ranks(world(), {*std::max_element(times.begin(), times.end())})[0];
    if (world().size() > 1) CHECK(longest > 200);
    const auto& starts = record.measured.start_us;
    double sum = 0;
    for (std::size_t i = 1; i < starts.size(); ++i) sum += starts[i] - starts[i - 1];
    // Half a millisecond each at the very least, of a mean of one.
    CHECK(sum > 500.0 * static_cast<double>(starts.size() - 1));
  }
}

TEST_CASE("a cell's own warm-up and iterations take the protocol's place, beside others") {
  RunConfig config = config_of(Architecture::ring);
  config.cells = {cell_of(Collective::allreduce, 64), cell_of(Collective::allreduce, 128)};
  config.protocol.batch_target = Micros(0);
  config.cells[1].knobs = {{"warmup", "4"}, {"iterations", "7"}};
  const auto records = run_all(config);
  CHECK(records[0].warmup.total_us.size() == 1);
  CHECK(records[0].measured.total_us.size() == 2);
  CHECK(records[1].warmup.total_us.size() == 4);
  CHECK(records[1].measured.total_us.size() == 7);
}

TEST_CASE("settings that say nothing sensible are unsupported cells, on every rank") {
  RunConfig config = config_of(Architecture::ring);
  const auto add = [&](Collective collective, std::map<std::string, std::string> knobs) {
    WorkCell cell = cell_of(collective, 1000);
    cell.id += std::to_string(config.cells.size());
    cell.knobs = std::move(knobs);
    config.cells.push_back(cell);
  };
  add(Collective::broadcast, {{"op", "max"}});
  add(Collective::allreduce, {{"root", "1"}});
  add(Collective::broadcast, {{"root", "99"}});
  add(Collective::allreduce, {{"op", "median"}});
  add(Collective::allreduce, {{"warmup", "many"}});
  for (const auto& record : run_all(config)) {
    INFO(record.cell_id);
    CHECK(record.status == CellStatus::unsupported);
    CHECK_FALSE(record.reason.empty());
  }
}

TEST_CASE("every parameter-server operation is right, whichever rank is the server", "[C-24]") {
  for (const int server : {0, world().size() - 1}) {
    RunConfig config = config_of(Architecture::ps, server);
    for (const auto& entry : NameTable<Collective>::entries) {
      if (!belongs_to(entry.value, Architecture::ps)) continue;
      for (const auto size : sizes()) config.cells.push_back(cell_of(entry.value, size));
      config.cells.push_back(cell_of(entry.value, 3000, DataType::float16));
    }
    check_all(config);
  }
}

TEST_CASE("a push that is answered in shards gives the same sum, however it is cut") {
  RunConfig config = config_of(Architecture::ps, world().size() - 1);
  for (const auto size : sizes())
    for (const char* shards : {"2", "5"})
      for (const char* depth : {"1", "6"}) {
        WorkCell cell = cell_of(Collective::push_pull, size);
        cell.id += std::string("/") + shards + "/" + depth;
        cell.knobs = {{"shards", shards}, {"pipeline_depth", depth}, {"segment_bytes", "4KiB"}};
        config.cells.push_back(cell);
      }
  check_all(config);
}

TEST_CASE("our ring gives the library's result bit by bit, in every segment size", "[c-25]") {
  RunConfig config = config_of(Architecture::ring);
  for (const auto collective :
       {Collective::allreduce, Collective::allgather, Collective::reduce_scatter}) {
    for (const auto size : sizes()) {
      for (const char* segment : {"64", "4KiB", "1MiB"}) {
        // 64 B segments of a large buffer take tens of thousands of messages.
        if (size > 10000 && std::string(segment) == "64") continue;
        WorkCell cell = cell_of(collective, size, DataType::float16, "own_ring");
        cell.id += segment;
        cell.knobs["segment_bytes"] = segment;
        config.cells.push_back(cell);
        for (const char* depth : {"1", "7"}) {
          cell.knobs["pipeline_depth"] = depth;
          cell.id += depth;
          config.cells.push_back(cell);
        }
      }
    }
  }
  check_all(config);
}

TEST_CASE("two levels give the sum however ranks lie on nodes", "[C-30][C-32]") {
  const auto size = static_cast<std::size_t>(world().size());
  std::vector<std::vector<int>> places{std::vector<int>(size, 0)};
  for (const std::vector<int>& four :
       {std::vector<int>{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 1}, {0, 1, 2, 0}, {0, 1, 2, 3}})
    places.emplace_back(four.begin(), four.begin() + static_cast<std::ptrdiff_t>(size));
  for (const auto& nodes : places)
    for (const std::uint64_t bytes : {8U, 24U, 65544U, 1200000U})
      for (const bool in_place : {false, true}) {
        const WorkCell cell = cell_of(Collective::allreduce, bytes);
        const Place place{Architecture::ring, world().size(), world().rank(), 0, nodes};
        const Layout layout = layout_of(cell, place);
        const DataSource source(7, cell.datatype, world().size());
        const Pipelining pipelining{.segment_bytes = 4096, .depth = 3};
        std::vector<std::byte> in(bytes), out(bytes);
        std::vector<std::byte> scratch(two_level_scratch(layout, place, cell.datatype, pipelining));
        poison(out.data(), bytes);
        source.fill(in_place ? out.data() : in.data(), world().rank(), 0, layout.count);
        PhaseTimes times;
        run_two_level_allreduce({world(), layout, cell.datatype, in_place ? out.data() : in.data(),
                                 out.data(), scratch.data(), pipelining, nodes},
                                times);
        const auto verdict = verify(source, out.data(), layout.expected);
        INFO(bytes << " B, rank 1 on node " << nodes.back() << ": " << verdict.first_wrong);
        CHECK(verdict.wrong == 0);
        CHECK(verdict.checked == layout.count);
      }
}

TEST_CASE("ranks of one network are on one node, and two levels run there as a cell", "[C-30]") {
  CHECK(nodes_of_ranks(world()) == std::vector<int>(static_cast<std::size_t>(world().size()), 0));
  RunConfig config = config_of(Architecture::ring);
  for (const auto type : kTypes)
    config.cells.push_back(cell_of(Collective::allreduce, 65544, type, "two_level"));
  check_all(config);
  config.cells = {cell_of(Collective::broadcast, 64, DataType::float32, "two_level")};
  CHECK(run_all(config)[0].status == CellStatus::unsupported);
}

TEST_CASE("in-place calls are right where they are offered") {
  RunConfig config = config_of(Architecture::ring);
  for (const auto collective : {Collective::allreduce, Collective::allgather, Collective::reduce,
                                Collective::allgatherv, Collective::scatter}) {
    WorkCell cell = cell_of(collective, 65544);
    cell.in_place = true;
    config.cells.push_back(cell);
  }
  WorkCell ring = cell_of(Collective::allreduce, 65544, DataType::float32, "own_ring");
  ring.in_place = true;
  config.cells.push_back(ring);
  check_all(config);
}

TEST_CASE("every algorithm that a library offers is right or refuses", "[c-27][c-28]") {
  RunConfig config = config_of(Architecture::ring);
  for (const auto& entry : NameTable<Collective>::entries) {
    if (!belongs_to(entry.value, Architecture::ring) || entry.value == Collective::sendrecv)
      continue;
    const auto planned = offered_algorithms(config.backend, entry.value);
    for (const auto& algorithm : world().algorithms(entry.value)) {
      // A plan would call it impossible.
      CHECK(std::find(planned.begin(), planned.end(), algorithm) != planned.end());
      config.cells.push_back(cell_of(entry.value, 20000, DataType::int32, algorithm));
    }
  }
  // After forced algorithms, the library chooses again.
  config.cells.push_back(cell_of(Collective::allreduce, 4096));
  std::size_t ran = 0;
  for (const auto& record : run_all(config)) {
    INFO(record.cell_id << ": " << record.reason);
    CHECK(record.wrong == 0);
    if (record.status == CellStatus::ok) {
      ++ran;
    } else {
      CHECK(record.status == CellStatus::unsupported);
      CHECK_THAT(record.reason, ContainsSubstring("refuses the chosen algorithm"));
    }
  }
  CHECK(ran >= config.cells.size() * 3 / 4);
}

TEST_CASE("an unknown algorithm or knob makes its own cell unsupported, not the launch") {
  RunConfig config = config_of(Architecture::ring);
  config.cells.push_back(cell_of(Collective::allreduce, 64, DataType::float32, "rign"));
  WorkCell cell = cell_of(Collective::allreduce, 64);
  cell.knobs["no_such_knob"] = "1";
  config.cells.push_back(cell);
  cell.algorithm = "own_ring";
  cell.knobs = {{"segment_bytes", "nonsense"}};
  config.cells.push_back(cell);
  config.cells.push_back(cell_of(Collective::allreduce, 64));
  const auto records = run_all(config);
  CHECK(records[0].status == CellStatus::unsupported);
  CHECK_THAT(records[0].reason, ContainsSubstring("no algorithm \"rign\" for allreduce"));
  CHECK(records[1].status == CellStatus::unsupported);
  CHECK_THAT(records[1].reason, ContainsSubstring("no_such_knob"));
  CHECK(records[2].status == CellStatus::unsupported);
  CHECK_THAT(records[2].reason, ContainsSubstring("nonsense"));
  CHECK(records[3].status == CellStatus::ok);
}

TEST_CASE("fast calls are timed in batches that all ranks agree on, rooted ones never") {
  RunConfig config = config_of(Architecture::ring);
  config.protocol.warmup = 6;
  config.protocol.iterations = 12;
  config.protocol.cell_time_cap = Micros(600e6);
  config.protocol.batch_target = Micros(600e6);
  config.protocol.max_batch = 7;
  config.cells = {cell_of(Collective::allreduce, 8), cell_of(Collective::broadcast, 8),
                  cell_of(Collective::reduce, 8)};
  const auto records = run_all(config);
  CHECK(records[0].batch == 7);
  CHECK(records[0].cadence == Cadence::batched);
  CHECK(records[0].warmup.total_us.size() == 6);
  CHECK(records[0].measured.total_us.size() == 12);
  for (const std::size_t i : {1U, 2U}) {
    CHECK(records[i].batch == 1);
    CHECK(records[i].cadence == Cadence::isolated);
  }
}

TEST_CASE("calls of a sample that were settled before are counted so, fast or slow") {
  RunConfig config = config_of(Architecture::ring);
  config.protocol.warmup = 4;
  config.protocol.iterations = 6;
  config.cells = {cell_of(Collective::allreduce, 8), cell_of(Collective::allreduce, 1 << 20)};
  config.cells[0].batch = 1;
  config.cells[1].batch = 5;
  const auto records = run_all(config);
  CHECK(records[0].batch == 1);
  CHECK(records[0].cadence == Cadence::isolated);
  CHECK(records[1].batch == 5);
  CHECK(records[1].cadence == Cadence::batched);
  CHECK(records[1].wrong == 0);
}

TEST_CASE("calls that take turns over the buffers leave checked data behind") {
  RunConfig config = config_of(Architecture::ring);
  config.protocol.iterations = 4;
  config.protocol.batch_target = Micros(600e6);
  config.protocol.max_batch = 7;
  config.protocol.rotate_buffers = true;
  config.cells = {cell_of(Collective::allreduce, 24), cell_of(Collective::allgather, 1000),
                  cell_of(Collective::reduce_scatter, 1000),
                  cell_of(Collective::allreduce, 1000, DataType::float32, "own_ring"),
                  cell_of(Collective::allreduce, 8008)};
  for (const auto& record : run_all(config)) {
    INFO(record.cell_id << ": " << record.reason);
    CHECK(record.status == CellStatus::ok);
    CHECK(record.wrong == 0);
    CHECK(record.checked > 0);
  }
  const WorkCell& largest = config.cells.back();
  CellMemory memory(world(), config);
  memory.require(memory.mode_of(largest), 8008, 8008, 0);
  CHECK(memory.slots(memory.mode_of(largest), 1024) == 7);
  CHECK(memory.slots(memory.mode_of(largest), 9000) == 1);
}

TEST_CASE("a slow cell is cut short by its time cap, but not below the least iterations") {
  RunConfig config = config_of(Architecture::ring);
  config.protocol.warmup = 50;
  config.protocol.iterations = 100000;
  config.protocol.min_iterations = 4;
  config.protocol.cell_time_cap = Micros(0);
  config.cells = {cell_of(Collective::allreduce, 1200000)};
  const auto records = run_all(config);
  CHECK(records[0].measured.total_us.size() == 4);
  CHECK(records[0].warmup.total_us.size() == 1);
  config.protocol.cell_time_cap = Micros(100e3);
  const auto longer = run_all(config);
  // A busy machine may need the whole cap for the least iterations.
  const auto& starts = longer[0].measured.start_us;
  CHECK((starts.size() > 4 || starts.back() - starts.front() > 40e3));
  CHECK(longer[0].measured.total_us.size() < 100000);
}

TEST_CASE("components sum to the total in every sample", "[a-05]") {
  RunConfig config = config_of(Architecture::ps);
  config.protocol.iterations = 10;
  for (const auto& entry : NameTable<Collective>::entries) {
    if (belongs_to(entry.value, Architecture::ps))
      config.cells.push_back(cell_of(entry.value, 50000));
  }
  for (const auto& record : run_all(config)) {
    const SampleArrays& samples = record.measured;
    for (std::size_t i = 0; i < samples.total_us.size(); ++i) {
      double sum = 0;
      for (const auto* part : {&samples.collective_us, &samples.send_us, &samples.compute_us})
        sum += part->empty() ? 0 : (*part)[i];
      INFO(record.cell_id);
      CHECK(std::abs(sum - samples.total_us[i]) <= 1e-9 * samples.total_us[i]);
      CHECK(samples.total_us[i] > 0);
    }
    const bool is_server = world().rank() == 0;
    if (record.cell_id.starts_with("push 50000") && world().size() > 1)
      CHECK((samples.compute_us.back() > 0) == is_server);
  }
}
