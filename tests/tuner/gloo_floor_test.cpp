#include "tuner/guards/gloo_floor.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "core/vocabulary/backend.hpp"

using namespace dynamiccl;
using nlohmann::json;

namespace {

json regime(const char* library, const char* boundary = "cross-docker", double on_a_machine = 1) {
  return {{"ingredients",
           {{"library", library},
            {"boundary", boundary},
            {"apart", json::array({"net", "ipc"})},
            {"inter_link", "tcp"},
            {"inter_tier", "virtual"},
            {"gpu", library == std::string("gloo-0") ? "none" : "dedicated"},
            {"single_copy", library != std::string("gloo-0")}}},
          {"pairs", {{"mix", {{"socket", on_a_machine}, {"network", 1 - on_a_machine}}}}}};
}

GlooTimes measured(const json& where) {
  GlooTimes times;
  times.regimes.push_back(where);
  for (const double us : {90.0, 100.0, 300.0})
    times.rows.push_back({0, Collective::allreduce, 2, Bytes(1 << 20), Micros(us)});
  times.rows.push_back({0, Collective::allreduce, 2, Bytes(4 << 20), Micros(400)});
  times.rows.push_back({0, Collective::allreduce, 2, Bytes(64 << 20), Micros(6400)});
  return times;
}

}  // namespace

TEST_CASE("Gloo's time of a size is known where it was measured, and near it", "[E-143]") {
  const GlooFloor floor(measured(regime("gloo-0")), regime("nccl-2.28"));
  CHECK(floor.count() == 3);
  const auto at = [&](std::uint64_t bytes) {
    return floor.at(Collective::allreduce, 2, Bytes(bytes)).value_or(Micros(-1)).count();
  };
  CHECK(at(1 << 20) == 100);  // median of three launches
  CHECK(std::abs(at(2 << 20) - 200) < 1e-6);
  CHECK(at(4 << 20) == 400);
  CHECK(std::abs(at(6 << 20) - 600) < 1e-6);  // beyond it, 64 MiB are too far away
  CHECK(at(8 << 20) == -1);
  CHECK(at(1 << 19) == -1);
  CHECK(std::abs(at(96 << 20) - 9600) < 1e-6);
  CHECK_FALSE(floor.at(Collective::allreduce, 4, Bytes(1 << 20)));
  CHECK_FALSE(floor.at(Collective::broadcast, 2, Bytes(1 << 20)));
  CHECK_FALSE(GlooFloor().at(Collective::allreduce, 2, Bytes(1 << 20)));
}

TEST_CASE("Gloo's time of another place is no floor", "[E-143]") {
  const GlooTimes here = measured(regime("gloo-0"));
  CHECK(GlooFloor(here, regime("nccl-2.28", "bare-metal")).empty());
  CHECK(GlooFloor(here, regime("nccl-2.28", "cross-docker", 0.5)).empty());
  CHECK(GlooFloor(here, json()).empty());
  CHECK(GlooFloor(measured(json()), json()).empty());
  CHECK_FALSE(GlooFloor(here, regime("nccl-2.30")).empty());
}

TEST_CASE("a table's rows of Gloo say what its defaults took, whatever they keep", "[E-143]") {
  ConfigurationTable table;
  table.put_regime({"a", "", regime("gloo-0")});
  table.put_regime({"b", "", regime("nccl-2.28")});
  const auto put = [&](const char* in, Backend backend, double default_us) {
    TableEntry entry;
    entry.key = {in, {Collective::allreduce, SizeBin{20}, 2, 1, Architecture::ring, backend}};
    entry.size = Bytes(1 << 20);
    entry.evidence.default_us = default_us;
    entry.evidence.tuned_us = default_us / 2;
    table.put(entry);
  };
  put("b", Backend::nccl, 500);
  CHECK(gloo_times(table).rows.empty());
  put("a", floor_backend(), 0);
  CHECK(gloo_times(table).rows.empty());
  put("a", floor_backend(), 100);
  GlooTimes times = gloo_times(table);
  REQUIRE(times.rows.size() == 1);
  times.add(measured(regime("gloo-0")));
  const GlooFloor floor(times, regime("nccl-2.28"));
  CHECK(floor.at(Collective::allreduce, 2, Bytes(1 << 20))->count() == 100);
  CHECK(floor.at(Collective::allreduce, 2, Bytes(4 << 20))->count() == 400);
}
