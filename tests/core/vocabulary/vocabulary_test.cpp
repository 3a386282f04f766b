#include "core/vocabulary/vocabulary.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <map>
#include <set>

#include "core/wire/work_settings.hpp"

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
  CHECK(bus_bandwidth_factor(Collective::allgatherv, 4) == Catch::Approx(0.75));
  CHECK(bus_bandwidth_factor(Collective::scatter, 4) == Catch::Approx(0.75));
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
  CHECK(belongs_to(Collective::scatter, Architecture::ps));
  CHECK(belongs_to(Collective::barrier, Architecture::ring));
  for (const auto& entry : NameTable<Collective>::entries)
    CHECK(facts_of(entry.value).collective == entry.value);
}

TEST_CASE("parts that differ are those of a skew or a list, and hold everything", "[C-23]") {
  const auto parts = [](const std::map<std::string, std::string>& settings, Collective collective,
                        std::uint64_t elements, int ranks, int rank) {
    return uneven_parts(work_settings_of(settings), collective, elements, ranks, rank);
  };
  using Parts = std::vector<std::uint64_t>;
  // Usually 1, 2, ... ranks shares; the last one takes what is left.
  CHECK(parts({}, Collective::allgatherv, 1024, 4, 2) == Parts{102, 205, 307, 410});
  // Of alltoallv by how far the receiver stands behind.
  CHECK(parts({}, Collective::alltoallv, 1024, 4, 0) == Parts{102, 205, 307, 410});
  CHECK(parts({}, Collective::alltoallv, 1024, 4, 1) == Parts{410, 102, 205, 307});
  CHECK(parts({{"skew", "1"}}, Collective::alltoallv, 1024, 4, 3) == Parts{256, 256, 256, 256});
  CHECK(parts({{"skew", "7"}}, Collective::allgatherv, 1600, 4, 0) == Parts{100, 300, 500, 700});
  // Large ones start at 16 bytes of the smallest type, whoever comes first.
  CHECK(parts({}, Collective::alltoallv, 262144, 2, 0) == Parts{87376, 174768});
  CHECK(parts({}, Collective::alltoallv, 262144, 2, 1) == Parts{174768, 87376});
  CHECK(parts({{"parts", "1:2"}}, Collective::allgatherv, 262147, 2, 1) == Parts{87376, 174771});
  CHECK(parts({{"parts", "1:0:3:0"}}, Collective::allgatherv, 10, 4, 0) == Parts{2, 0, 8, 0});
  CHECK(parts({{"parts", "0:1/1:0"}}, Collective::alltoallv, 9, 2, 1) == Parts{9, 0});
  CHECK(parts({{"skew", "5"}}, Collective::allgatherv, 7, 1, 0) == Parts{7});
  CHECK(least_elements(work_settings_of({}), 4) == 10);
  CHECK(least_elements(work_settings_of({{"skew", "1"}}), 4) == 4);
  CHECK(least_elements(work_settings_of({{"parts", "1:99"}}), 2) == 1);
}

TEST_CASE("all large parts start where they should, near their share, and hold everything",
          "[C-23]") {
  for (const int skew : {1, 7, 1000})
    for (const int ranks : {2, 4, 15})
      for (const std::uint64_t elements : {262144U, 262147U, 1048577U}) {
        CAPTURE(skew, ranks, elements);
        const auto settings = work_settings_of({{"skew", std::to_string(skew)}});
        for (int rank = 0; rank < ranks; ++rank) {
          const auto parts = uneven_parts(settings, Collective::alltoallv, elements, ranks, rank);
          std::uint64_t at = 0;
          bool aligned = true;
          bool near = true;
          for (int peer = 0; peer < ranks; ++peer) {
            const auto part = parts[static_cast<std::size_t>(peer)];
            const int behind = (peer - rank + ranks) % ranks;
            const double share = static_cast<double>(elements) *
                                 (ranks - 1 + (skew - 1.0) * behind) /
                                 (ranks * (ranks - 1.0) * (1 + (skew - 1.0) / 2));
            aligned = aligned && at % 16 == 0 && part > 0;
            near = near && std::abs(static_cast<double>(part) - share) < 32;
            at += part;
          }
          CHECK(aligned);
          CHECK(near);
          CHECK(at == elements);
        }
      }
  using Parts = std::vector<std::uint64_t>;
  // What is left of a part that is no multiple ends the buffer.
  const auto settings = work_settings_of({{"skew", "1000"}});
  CHECK(uneven_parts(settings, Collective::alltoallv, 262147, 2, 0) == Parts{256, 261891});
  CHECK(uneven_parts(settings, Collective::alltoallv, 262147, 2, 1) == Parts{261888, 259});
  // A part that would be empty by the rounding is not, and keeps the others from it.
  CHECK(uneven_parts(work_settings_of({{"parts", "1:100000"}}), Collective::allgatherv, 262144, 2,
                     0) == Parts{2, 262142});
  // A share of little stays little where many others round down.
  std::map<std::string, std::string> many{{"parts", "1000"}};
  for (int i = 0; i < 62; ++i) many["parts"] += ":1000";
  many["parts"] += ":100";
  CHECK(uneven_parts(work_settings_of(many), Collective::allgatherv, 67000, 64, 0).back() < 132);
}

TEST_CASE("the bus bandwidth of an all-to-all is that of its parts") {
  const auto factor = [](Collective collective, const char* knobs) {
    return bus_factor_of(collective, 4, knobs);
  };
  CHECK(factor(Collective::alltoallv, "{}") == Catch::Approx(0.9));
  CHECK(factor(Collective::alltoallv, R"({"skew":"1"})") == Catch::Approx(0.75).epsilon(1e-6));
  CHECK(factor(Collective::alltoallv, R"({"parts":"1:0:0:0"})") == Catch::Approx(0.75));
  CHECK(factor(Collective::alltoallv, R"({"parts":"0:1:0:0/0:0:1:0/0:0:0:1/1:0:0:0"})") ==
        Catch::Approx(1.0));
  // Of every list a rank lacks all parts but its own.
  CHECK(factor(Collective::allgatherv, R"({"parts":"1:0:0:0"})") == Catch::Approx(0.75));
  CHECK(factor(Collective::alltoallv, R"({"parts":"nonsense"})") == Catch::Approx(0.9));
}

TEST_CASE("of a cell's settings those are kept that make it other work", "[A-44]") {
  CHECK(work_part_of("{}").empty());
  CHECK(work_part_of(R"({"segment":"8192"})").empty());
  CHECK(work_part_of(R"({"op":"max","segment":"8192"})") == "op=max;");
  // Calls of one step that are alike in all else are no choice of each other.
  CHECK(work_part_of(R"({"step":"llama-7b: forward, weights","step_calls":"32"})") !=
        work_part_of(R"({"step":"llama-7b: backward, weights","step_calls":"32"})"));
}
