#include "workers/collectives/layout.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "workers/collectives/operations.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

WorkCell cell_of(Collective collective, std::uint64_t size, DataType type = DataType::float32) {
  WorkCell cell;
  cell.collective = collective;
  cell.size = Bytes(size);
  cell.datatype = type;
  return cell;
}

Place ring(int ranks, int rank) { return {Architecture::ring, ranks, rank, 0}; }
Place ps(int ranks, int rank, int server) { return {Architecture::ps, ranks, rank, server}; }

struct Case {
  Collective collective;
  Place place;
  std::uint64_t size;
  std::size_t count, in, out;
  std::uint64_t used, payload;
};

}  // namespace

TEST_CASE("a cell's size means what nccl-tests means by it", "[a-20]") {
  const std::vector<Case> cases{
      {Collective::allreduce, ring(4, 1), 4096, 1024, 1024, 1024, 4096, 6144},
      {Collective::allgather, ring(4, 1), 4096, 256, 256, 1024, 4096, 3072},
      {Collective::reduce_scatter, ring(4, 1), 4096, 256, 1024, 256, 4096, 3072},
      {Collective::alltoall, ring(4, 1), 4096, 256, 1024, 1024, 4096, 3072},
      // Shares of 102, 204, 307 and 411 elements; its own is the first.
      {Collective::alltoallv, ring(4, 1), 4096, 1024, 1024, 1024, 4096, 4096 - 408},
      {Collective::allgatherv, ring(4, 1), 4096, 1024, 205, 1024, 4096, 4096 - 820},
      {Collective::scatter, ring(4, 0), 4096, 256, 1024, 256, 4096, 0},
      {Collective::scatter, ring(4, 1), 4096, 256, 0, 256, 4096, 1024},
      {Collective::scatter, ps(4, 2, 2), 4096, 256, 1024, 256, 4096, 0},
      {Collective::barrier, ring(4, 1), 4096, 0, 0, 0, 0, 0},
      {Collective::allreduce, ring(4, 1), 0, 0, 0, 0, 0, 0},
      {Collective::alltoallv, ring(4, 1), 0, 0, 0, 0, 0, 0},
      {Collective::sendrecv, ring(4, 1), 4096, 1024, 1024, 1024, 4096, 4096},
      {Collective::reduce, ring(4, 0), 4096, 1024, 1024, 1024, 4096, 0},
      {Collective::reduce, ring(4, 1), 4096, 1024, 1024, 0, 4096, 4096},
      {Collective::broadcast, ring(4, 0), 4096, 1024, 1024, 1024, 4096, 0},
      {Collective::broadcast, ring(4, 1), 4096, 1024, 0, 1024, 4096, 4096},
      {Collective::broadcast, ps(4, 2, 2), 4096, 1024, 1024, 1024, 4096, 0},
      {Collective::gather, ps(4, 2, 2), 4096, 256, 256, 1024, 4096, 0},
      {Collective::gather, ps(4, 0, 2), 4096, 256, 256, 0, 4096, 1024},
      {Collective::push, ps(4, 2, 2), 4096, 1024, 0, 1024, 4096, 0},
      {Collective::push, ps(4, 3, 2), 4096, 1024, 1024, 0, 4096, 4096},
      {Collective::pull, ps(4, 2, 2), 4096, 1024, 1024, 0, 4096, 0},
      {Collective::pull, ps(4, 3, 2), 4096, 1024, 0, 1024, 4096, 4096},
      {Collective::push_pull, ps(4, 2, 2), 4096, 1024, 0, 1024, 4096, 0},
      {Collective::push_pull, ps(4, 3, 2), 4096, 1024, 1024, 1024, 4096, 8192},
      // Rounded down to whole elements on every rank.
      {Collective::allgather, ring(3, 0), 1024, 85, 85, 255, 1020, 680},
      {Collective::allreduce, ring(3, 0), 1023, 255, 255, 255, 1020, 1360},
  };
  for (const auto& c : cases) {
    const Layout layout = layout_of(cell_of(c.collective, c.size), c.place);
    INFO(name_of(c.collective) << " rank " << c.place.rank << " size " << c.size);
    CHECK(layout.unsupported.empty());
    CHECK(layout.count == c.count);
    CHECK(layout.in_elements == c.in);
    CHECK(layout.out_elements == c.out);
    CHECK(layout.used_bytes == c.used);
    CHECK(layout.payload_bytes == c.payload);
  }
}

TEST_CASE("every output element is expected exactly once on every rank") {
  for (const auto architecture : {Architecture::ring, Architecture::ps}) {
    for (const auto& entry : NameTable<Collective>::entries) {
      if (!belongs_to(entry.value, architecture)) continue;
      for (int rank = 0; rank < 3; ++rank) {
        const Layout layout = layout_of(cell_of(entry.value, 4000), {architecture, 3, rank, 1});
        std::size_t next = 0;
        for (const auto& part : layout.expected) {
          CHECK(part.offset == next);
          next += part.count;
        }
        INFO(entry.name << " rank " << rank);
        CHECK(next == layout.out_elements);
      }
    }
  }
}

TEST_CASE("the last receiver has an output") {
  for (const auto architecture : {Architecture::ring, Architecture::ps}) {
    for (const auto& entry : NameTable<Collective>::entries) {
      if (!belongs_to(entry.value, architecture)) continue;
      for (const int server : {0, 2}) {
        const Layout any = layout_of(cell_of(entry.value, 4000), {architecture, 3, 0, server});
        const Layout last =
            layout_of(cell_of(entry.value, 4000), {architecture, 3, any.last_receiver, server});
        INFO(entry.name << " server " << server);
        CHECK((last.out_elements > 0) == (facts_of(entry.value).size != SizeRule::nothing));
        CHECK(last.last_receiver == any.last_receiver);
      }
    }
  }
}

TEST_CASE("a cell without a meaning here says why") {
  const auto reason = [](const WorkCell& cell, const Place& place) {
    return layout_of(cell, place).unsupported;
  };
  CHECK_THAT(reason(cell_of(Collective::allgather, 8), ring(4, 0)),
             ContainsSubstring("8 B is less than one float32 for each of 4 parts (16 B)"));
  CHECK_THAT(reason(cell_of(Collective::alltoallv, 36), ring(4, 0)),
             ContainsSubstring("36 B is less than one float32 for each of 10 parts (40 B)"));
  WorkCell listed = cell_of(Collective::alltoallv, 64);
  const auto with = [&](std::map<std::string, std::string> knobs) {
    listed.knobs = std::move(knobs);
    return reason(listed, ring(2, 0));
  };
  CHECK(with({{"parts", "0:3"}}).empty());
  CHECK(with({{"parts", "0:3/1:1"}}).empty());
  CHECK_THAT(with({{"parts", "1:2:3"}}), ContainsSubstring("3 shares in a row, for 2 ranks"));
  CHECK_THAT(with({{"parts", "1:1/1:1/1:1"}}), ContainsSubstring("3 rows, for 2 ranks"));
  CHECK_THAT(with({{"parts", "0:0"}}), ContainsSubstring("a row of zeros"));
  CHECK_THAT(with({{"parts", "1:-1"}}), ContainsSubstring("a share of parts is \"-1\""));
  CHECK_THAT(with({{"parts", "1:1"}, {"skew", "2"}}), ContainsSubstring("give one of them"));
  CHECK_THAT(with({{"late", "3s"}}), ContainsSubstring("at most 1.00 s"));
  listed = cell_of(Collective::alltoallv, std::uint64_t{5} << 30);
  CHECK_THAT(with({{"parts", "1:1"}}), ContainsSubstring("at most 1073741823 here"));
  listed = cell_of(Collective::allgatherv, 64);
  CHECK_THAT(with({{"parts", "1:1/1:1"}}), ContainsSubstring("allgatherv takes one"));
  listed = cell_of(Collective::allgather, 64);
  CHECK_THAT(with({{"skew", "2"}}), ContainsSubstring("the parts of allgather are alike"));
  CHECK_THAT(with({{"root", "1"}}), ContainsSubstring("broadcast, reduce and scatter have"));
  CHECK_THAT(reason(cell_of(Collective::allreduce, 4, DataType::float64), ring(2, 0)),
             ContainsSubstring("less than one float64"));
  CHECK_THAT(reason(cell_of(Collective::push, 64), ring(2, 0)),
             ContainsSubstring("push does not belong to the ring architecture"));
  CHECK_THAT(reason(cell_of(Collective::allreduce, 64), ps(2, 0, 0)),
             ContainsSubstring("does not belong to the ps architecture"));
  CHECK_THAT(reason(cell_of(Collective::push, 64), ps(1, 0, 0)),
             ContainsSubstring("at least 2 ranks"));
  CHECK_THAT(reason(cell_of(Collective::allreduce, 64, DataType::bfloat16), ring(200, 0)),
             ContainsSubstring("not exact in bfloat16"));
}

TEST_CASE("a cell finds its operation by collective and algorithm") {
  const auto find = [](Collective collective, const char* algorithm) {
    WorkCell cell = cell_of(collective, 64);
    cell.algorithm = algorithm;
    return find_operation(cell);
  };
  REQUIRE(find(Collective::allreduce, "library") != nullptr);
  CHECK(find(Collective::allreduce, "library")->own_algorithm.empty());
  CHECK(find(Collective::allreduce, "ring")->own_algorithm.empty());
  CHECK(find(Collective::allreduce, "own_ring")->own_algorithm == "own_ring");
  CHECK(find(Collective::allreduce, "two_level")->own_algorithm == "two_level");
  CHECK(find(Collective::push, "library")->own_algorithm == "send_recv");
  CHECK(find(Collective::push, "ring") == nullptr);
  CHECK(find(Collective::broadcast, "own_ring") == nullptr);
}

TEST_CASE("the segment knob is a size of whole words") {
  WorkCell cell = cell_of(Collective::allreduce, 64);
  CHECK(pipelining_of(cell).segment_bytes == 256U << 10);
  cell.knobs["segment_bytes"] = "64KiB";
  CHECK(pipelining_of(cell).segment_bytes == 64U << 10);
  cell.knobs["segment_bytes"] = "100";
  CHECK_THROWS_AS(pipelining_of(cell), Error);
}

TEST_CASE("pipeline depth and shards are whole numbers within bounds") {
  WorkCell cell = cell_of(Collective::push_pull, 64);
  CHECK(pipelining_of(cell).depth == 2);
  CHECK(pipelining_of(cell).shards == 1);
  cell.knobs = {{"pipeline_depth", "8"}, {"shards", "4"}};
  CHECK(pipelining_of(cell).depth == 8);
  CHECK(pipelining_of(cell).shards == 4);
  for (const char* wrong : {"0", "65", "-1", "two", "4x", ""}) {
    cell.knobs = {{"pipeline_depth", wrong}};
    CHECK_THROWS_AS(pipelining_of(cell), Error);
  }
  cell.knobs = {{"shards", "257"}};
  CHECK_THROWS_AS(pipelining_of(cell), Error);
}
