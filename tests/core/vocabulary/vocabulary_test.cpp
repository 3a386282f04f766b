#include "core/vocabulary/vocabulary.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

using namespace dynamiccl;

namespace {
template <class E>
void check_round_trip() {
  std::set<std::string> seen;
  for (const auto& entry : NameTable<E>::entries) {
    CHECK(parse_named<E>(entry.name) == entry.value);
    CHECK(name_of(entry.value) == entry.name);
    seen.emplace(entry.name);
  }
  CHECK(seen.size() == NameTable<E>::entries.size());
}
}  // namespace

TEST_CASE("every name is read back as its value and is unique") {
  check_round_trip<EnvironmentKind>();
  check_round_trip<Backend>();
  check_round_trip<Architecture>();
  check_round_trip<Collective>();
  check_round_trip<DataType>();
  check_round_trip<Cadence>();
  check_round_trip<RankAggregation>();
  check_round_trip<CellStatus>();
  check_round_trip<LaunchStatus>();
  check_round_trip<KnobScope>();
}

TEST_CASE("an unknown name lists the known ones and the nearest") {
  CHECK_THROWS_WITH(parse_named<Backend>("opnmpi"),
                    Catch::Matchers::ContainsSubstring("Did you mean \"openmpi\"?"));
}

TEST_CASE("bus bandwidth factors are those of nccl-tests", "[A-20]") {
  CHECK(bus_bandwidth_factor(Collective::allreduce, 4) == Catch::Approx(1.5));
  CHECK(bus_bandwidth_factor(Collective::allgather, 4) == Catch::Approx(0.75));
  CHECK(bus_bandwidth_factor(Collective::alltoallv, 4) == Catch::Approx(0.9));
  CHECK(bus_bandwidth_factor(Collective::broadcast, 4) == Catch::Approx(1.0));
  CHECK(bus_bandwidth_factor(Collective::allreduce, 1) == Catch::Approx(0.0));
}

TEST_CASE("push, pull and gather need a server; allreduce has none", "[A-47]") {
  CHECK(belongs_to(Collective::push_pull, Architecture::ps));
  CHECK_FALSE(belongs_to(Collective::push_pull, Architecture::ring));
  CHECK(belongs_to(Collective::allreduce, Architecture::ring));
  CHECK_FALSE(belongs_to(Collective::allreduce, Architecture::ps));
  CHECK(belongs_to(Collective::broadcast, Architecture::ps));
  CHECK(belongs_to(Collective::broadcast, Architecture::ring));
}
