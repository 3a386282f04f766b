#include "tuner/simulator/machine_fit.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"
#include "profiles/machine_model_file.hpp"
#include "tuner/simulator/machine_cost.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

constexpr double kKiB = 1024;

/// Calls that take 5 us and 1 us for each KiB on the busiest link.
MeasuredLibrary straight(std::vector<Collective> collectives, std::vector<int> ranks = {4}) {
  MeasuredLibrary library;
  library.name = "lib";
  for (const Collective collective : collectives)
    for (const int count : ranks)
      for (const double bytes : {64 * kKiB, 256 * kKiB, 1024 * kKiB, 4096 * kKiB})
        library.calls.push_back(
            {collective, count, bytes, 5 + bytes * bus_bandwidth_factor(collective, count) / kKiB});
  return library;
}

}  // namespace

TEST_CASE("a fitted library's times lie on the lines between its measured calls") {
  MeasuredLibrary library = straight({Collective::allreduce, Collective::allgather});
  const auto time = [&](Collective collective, int ranks, double bytes) {
    return library_time(library, collective, ranks, bytes).value();
  };
  CHECK_THAT(time(Collective::allreduce, 4, 512 * kKiB).us, WithinRel(5 + 1.5 * 512));
  CHECK_THAT(time(Collective::allreduce, 4, 16384 * kKiB).us, WithinRel(5 + 1.5 * 16384));
  CHECK_THAT(time(Collective::allreduce, 4, kKiB).us, WithinRel(5 + 1.5 * 64));
  CHECK(time(Collective::allreduce, 4, kKiB).like == HeldOut::sizes);
  // Reduce-scatter was not measured: as many bytes on a link take as long.
  CHECK_THAT(time(Collective::reduce_scatter, 4, 512 * kKiB).us, WithinRel(5 + 0.75 * 512));
  CHECK(time(Collective::reduce_scatter, 4, kKiB).like == HeldOut::collectives);
  // Two ranks send half of what four send, by the same calls.
  CHECK_THAT(time(Collective::allreduce, 2, 1024 * kKiB).us, WithinRel(5 + 1024.0));
  CHECK(time(Collective::allreduce, 2, kKiB).like == HeldOut::ranks);
  // Both others bend at 256 KiB, and so does what was not measured there.
  MeasuredLibrary bent =
      straight({Collective::allreduce, Collective::allgather, Collective::broadcast});
  for (MeasuredCall& call : bent.calls)
    if (call.bytes == 256 * kKiB && call.collective != Collective::broadcast) call.us *= 2;
  std::erase_if(bent.calls, [](const MeasuredCall& call) {
    return call.bytes == 256 * kKiB && call.collective == Collective::broadcast;
  });
  CHECK_THAT(library_time(bent, Collective::broadcast, 4, 256 * kKiB)->us,
             WithinRel(2 * (5 + 256.0)));
  CHECK_THAT(library_time(bent, Collective::allreduce, 4, 256 * kKiB)->us,
             WithinRel(2 * (5 + 1.5 * 256)));
  library.calls.clear();
  CHECK_FALSE(library_time(library, Collective::allreduce, 4, kKiB));
}

TEST_CASE("what is left out is predicted by the rest, and its distance counted") {
  MeasuredLibrary library = straight({Collective::allreduce, Collective::allgather,
                                      Collective::broadcast, Collective::reduce_scatter},
                                     {4, 8});
  hold_out(library);
  REQUIRE(library.errors.contains(HeldOut::ranks));
  CHECK(library.errors.at(HeldOut::sizes).cells == 16);  // two inner ones of four, of each
  CHECK_THAT(library.errors.at(HeldOut::sizes).median, WithinAbs(0, 1e-9));
  CHECK(library.errors.at(HeldOut::collectives).cells == 32);
  // One call of two thirds the time: found by its neighbours, and by nothing else.
  library.calls[1].us *= 2.0 / 3;
  library.errors.clear();
  hold_out(library);
  CHECK(library.errors.at(HeldOut::sizes).median < 0.01);
  CHECK(library.errors.at(HeldOut::sizes).p90 > 0.01);
  // One count of ranks alone says nothing of another.
  MeasuredLibrary one = straight({Collective::allreduce});
  hold_out(one);
  CHECK_FALSE(one.errors.contains(HeldOut::ranks));
  CHECK_FALSE(one.errors.contains(HeldOut::collectives));
}

TEST_CASE("links are fitted to the models' fastest, and the file reads as what it was made of") {
  MachineModel truth;
  truth.ranks_per_node = 4;
  truth.links[0].classes = {{0, 3, 2e4}};
  MachineModel machine;
  machine.name = "fitted";
  machine.description = "test";
  machine.ranks_per_node = 4;
  machine.links[0].classes = {{}};
  machine.measured = MeasuredLibrary{"lib", {}, {}};
  for (const Collective collective : {Collective::allreduce, Collective::allgather})
    for (const double bytes : {kKiB, 64 * kKiB, 4096 * kKiB})
      machine.measured->calls.push_back(
          {collective, 4, bytes, predict_collective(truth, collective, 4, bytes).front().us});
  hold_out(*machine.measured);
  fit_links(machine);
  CHECK_THAT(machine.links[0].classes[0].latency_us, WithinRel(3, 0.02));
  CHECK_THAT(machine.links[0].classes[0].bytes_per_us, WithinRel(2e4, 0.02));
  CHECK(machine.measured->errors.at(HeldOut::links).cells == 6);
  CHECK(machine.measured->errors.at(HeldOut::links).p90 < 0.03);
  const MachineModel read = parse_machine_model(machine_toml(machine, "run 1"), "fitted.toml");
  CHECK(read.ranks() == 4);
  REQUIRE(read.measured);
  CHECK(read.measured->calls.size() == 6);
  CHECK(read.measured->errors.at(HeldOut::links).cells == 6);
  CHECK_THAT(library_time(*read.measured, Collective::allgather, 4, 64 * kKiB)->us,
             WithinRel(machine.measured->calls[4].us, 1e-4));
}

TEST_CASE("links are not fitted to calls that say nothing of them") {
  MachineModel machine;
  machine.ranks_per_node = 4;
  machine.links[0].classes = {{}};
  const auto refused = [&](MeasuredLibrary library) {
    machine.measured = std::move(library);
    CHECK_THROWS_MATCHES(fit_links(machine), Error,
                         MessageMatches(ContainsSubstring("two sizes or operations")));
  };
  refused(straight({Collective::sendrecv, Collective::scatter}));
  MeasuredLibrary one = straight({Collective::allreduce});
  one.calls.resize(1);
  refused(one);
  // What is left without all-reduce has no model that could be fitted.
  machine.measured = straight({Collective::allreduce, Collective::sendrecv});
  fit_links(machine);
  CHECK_FALSE(machine.measured->errors.contains(HeldOut::links));
}
