// What goes with what, and who averages with whom: pure data.
#include "train/spec/synchronisation.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <map>
#include <numbers>

#include "train/spec/training.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::WithinAbs;

namespace {

TrainingSpec spec_of(TrainingMethod method, Synchronisation synchronisation) {
  TrainingSpec spec;
  spec.method = method;
  spec.synchronisation = synchronisation;
  if (has_local_steps(synchronisation)) spec.local_steps = 4;
  return spec;
}

}  // namespace

TEST_CASE("every synchronisation has a row, and a reason where it cannot be had", "[d-35]") {
  for (const auto& named : NameTable<Synchronisation>::entries) {
    for (const auto place : {SumPlace::server, SumPlace::all_reduce, SumPlace::neighbours}) {
      INFO(named.name);
      CHECK(synchronisation_row(named.value).synchronisation == named.value);
      const Fit& pair = synchronisation_fit(named.value, place);
      CHECK((pair.fit == PairFit::legal) == pair.reason.empty());
    }
  }
}

TEST_CASE("pairs that cannot be had are refused with their reason", "[d-35]") {
  const auto refusal = [](TrainingMethod method, Synchronisation synchronisation) {
    return training_contradiction(spec_of(method, synchronisation));
  };
  CHECK_THAT(refusal(TrainingMethod::bsp_a2a, Synchronisation::asp),
             ContainsSubstring("illegal") && ContainsSubstring("waits for every worker"));
  CHECK_THAT(refusal(TrainingMethod::bsp_a2a, Synchronisation::ssp), ContainsSubstring("partial"));
  CHECK_THAT(refusal(TrainingMethod::d_psgd, Synchronisation::ssp), ContainsSubstring("illegal"));
  CHECK_THAT(refusal(TrainingMethod::dear, Synchronisation::local),
             ContainsSubstring("take bsp-ps, bsp-a2a or d-psgd"));
  // Of what is advised, nothing is refused in turn.
  CHECK_THAT(refusal(TrainingMethod::wfbp_a2a, Synchronisation::adacomm), EndsWith("take bsp-a2a"));
  CHECK_THAT(refusal(TrainingMethod::wfbp_a2a, Synchronisation::easgd),
             EndsWith("take bsp-ps or bsp-a2a"));
  CHECK_THAT(refusal(TrainingMethod::wfbp_ps, Synchronisation::asp), EndsWith("take bsp-ps"));
  TrainingSpec spec = spec_of(TrainingMethod::bsp_ps, Synchronisation::asp);
  CHECK(training_contradiction(spec).empty());
  spec.placement = ServerPlacement::colocated;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("colocated"));
  spec = spec_of(TrainingMethod::bsp_ps, Synchronisation::ssp);
  spec.servers = 2;
  CHECK_THAT(training_contradiction(spec), EndsWith("take asp, or servers = 1"));
  spec.synchronisation = Synchronisation::asp;
  CHECK(training_contradiction(spec).empty());
  spec.group_size = 2;
  CHECK_THAT(training_contradiction(spec),
             ContainsSubstring("2 servers and group_size (partial)") && EndsWith("servers = 1"));
  spec.group_size = 1;
  spec.compression = Codec::topk;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("servers and compression (partial)"));
  spec.compression = Codec::none;
  spec.switch_to = Synchronisation::bsp;
  spec.epochs = 2;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("servers and switch_to (partial)"));
  spec = spec_of(TrainingMethod::bsp_a2a, Synchronisation::local);
  spec.local_steps = 1;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("local_steps = 2 or more"));
  spec = spec_of(TrainingMethod::bsp_a2a, Synchronisation::bsp);
  spec.staleness = 2;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("staleness: belongs to"));
  spec = spec_of(TrainingMethod::bsp_ps, Synchronisation::backup);
  spec.backups = 3;
  CHECK(ranks_misfit(spec, 5).empty());
  CHECK_THAT(ranks_misfit(spec, 4), ContainsSubstring("none would be waited for"));
  for (const auto& row : kTrainingMethods)
    CHECK(training_contradiction(spec_of(row.method, Synchronisation::bsp)).empty());
}

TEST_CASE("averages have a momentum or weights of their own only where all workers meet",
          "[D-16][D-22]") {
  TrainingSpec spec = spec_of(TrainingMethod::bsp_a2a, Synchronisation::local);
  spec.local_steps = 4;
  spec.slow_momentum = 0.5;
  spec.shares = DataShares::linear;
  CHECK(training_contradiction(spec).empty());
  const TrainingSpec read = parsed_training(training_cell(spec));
  CHECK(read.slow_momentum == 0.5);
  CHECK(read.shares == DataShares::linear);
  double all = 0;
  for (int worker = 0; worker < 3; ++worker) all += share_of(spec, 3, worker);
  CHECK(std::abs(all - 1) < 1e-12);
  CHECK(share_of(spec, 3, 2) == 0.5);
  spec.switch_to = Synchronisation::bsp;
  spec.epochs = 2;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("without switch_to"));
  spec.switch_to.reset();
  spec.epochs = 0;
  spec.synchronisation = Synchronisation::post_local;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("shares: belongs to"));
  spec.shares = DataShares::equal;
  CHECK(training_contradiction(spec).empty());
  spec.method = TrainingMethod::d_psgd;
  spec.synchronisation = Synchronisation::local;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("slow_momentum: belongs to"));
  WorkCell cell = training_cell(spec);
  cell.knobs["slow_momentum"] = "1";
  CHECK_THROWS_WITH(parsed_training(cell), ContainsSubstring("below 1"));
}

TEST_CASE("D2 is of neighbours that stay and send both ways, all else is refused", "[d-30][d-35]") {
  TrainingSpec spec = spec_of(TrainingMethod::d_psgd, Synchronisation::d2);
  CHECK(training_contradiction(spec).empty());
  spec.topology = PeerGraph::torus;
  CHECK(training_contradiction(spec).empty());
  for (const PeerGraph graph : {PeerGraph::exponential, PeerGraph::random_pairs}) {
    spec.topology = graph;
    CHECK_THAT(training_contradiction(spec),
               ContainsSubstring("(illegal)") && EndsWith("take ring or torus"));
  }
  spec.topology = PeerGraph::ring;
  spec.compression = Codec::topk;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("what the average moved"));
  for (const TrainingMethod method : {TrainingMethod::bsp_ps, TrainingMethod::bsp_a2a})
    CHECK_THAT(training_contradiction(spec_of(method, Synchronisation::d2)),
               ContainsSubstring("illegal") && EndsWith("take d-psgd"));
}

TEST_CASE("what goes with lazy, adaptive, elastic and grouped training is said, all else refused",
          "[d-07][d-21][d-28][d-35]") {
  const auto refusal = [](TrainingMethod method, Synchronisation synchronisation) {
    return training_contradiction(spec_of(method, synchronisation));
  };
  CHECK(refusal(TrainingMethod::bsp_ps, Synchronisation::lag).empty());
  CHECK_THAT(refusal(TrainingMethod::bsp_a2a, Synchronisation::lag),
             ContainsSubstring("partial") && ContainsSubstring("take bsp-ps"));
  CHECK_THAT(refusal(TrainingMethod::d_psgd, Synchronisation::lag), ContainsSubstring("DETSGRAD"));
  CHECK(refusal(TrainingMethod::bsp_a2a, Synchronisation::adacomm).empty());
  CHECK_THAT(refusal(TrainingMethod::bsp_ps, Synchronisation::adacomm),
             ContainsSubstring("partial"));
  CHECK(refusal(TrainingMethod::bsp_a2a, Synchronisation::easgd).empty());
  CHECK(refusal(TrainingMethod::bsp_ps, Synchronisation::easgd).empty());
  CHECK_THAT(refusal(TrainingMethod::d_psgd, Synchronisation::easgd), ContainsSubstring("illegal"));
  CHECK_THAT(refusal(TrainingMethod::wfbp_ps, Synchronisation::lag),
             ContainsSubstring("take bsp-ps"));
  TrainingSpec spec = spec_of(TrainingMethod::bsp_ps, Synchronisation::lag);
  spec.optimizer = OptimizerPlace::server;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("leave out optimizer"));
  spec = spec_of(TrainingMethod::bsp_ps, Synchronisation::asp);
  spec.lag_threshold = 2;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("lag_threshold: belongs to"));
  spec.lag_threshold = 1;
  spec.group_size = 2;
  CHECK(training_contradiction(spec).empty());
  CHECK(ranks_misfit(spec, 5).empty());
  CHECK_THAT(ranks_misfit(spec, 4), ContainsSubstring("3 workers do not fill groups"));
  spec.synchronisation = Synchronisation::backup;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("dropped whole"));
  spec.synchronisation = Synchronisation::bsp;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("take bsp-ps with ssp"));
  spec = spec_of(TrainingMethod::bsp_a2a, Synchronisation::easgd);
  spec.local_steps = 1;  // a centre may be met in every step
  CHECK(training_contradiction(spec).empty());
  spec.slow_momentum = 0.5;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("slow_momentum: belongs to"));
}

TEST_CASE("a switch at an epoch's end names what goes over to what", "[d-27][d-34][d-35]") {
  const auto refusal = [](TrainingMethod method, Synchronisation from, Synchronisation to) {
    TrainingSpec spec = spec_of(method, from);
    spec.switch_to = to;
    spec.local_steps = has_local_steps(from) || has_local_steps(to) ? 4 : 1;
    spec.epochs = 2;
    return training_contradiction(spec);
  };
  using S = Synchronisation;
  CHECK(refusal(TrainingMethod::bsp_a2a, S::bsp, S::local).empty());
  CHECK(refusal(TrainingMethod::bsp_a2a, S::local, S::bsp).empty());
  CHECK(refusal(TrainingMethod::bsp_ps, S::bsp, S::ssp).empty());
  CHECK(refusal(TrainingMethod::bsp_ps, S::asp, S::backup).empty());
  CHECK_THAT(refusal(TrainingMethod::bsp_ps, S::bsp, S::bsp), ContainsSubstring("begins with"));
  CHECK_THAT(refusal(TrainingMethod::bsp_a2a, S::bsp, S::ssp), ContainsSubstring("partial"));
  CHECK_THAT(refusal(TrainingMethod::bsp_ps, S::bsp, S::local), ContainsSubstring("partial"));
  CHECK_THAT(refusal(TrainingMethod::d_psgd, S::bsp, S::local), ContainsSubstring("neighbours"));
  CHECK_THAT(refusal(TrainingMethod::dear, S::bsp, S::local), ContainsSubstring("only bsp-ps"));
  TrainingSpec spec = spec_of(TrainingMethod::bsp_a2a, S::bsp);
  spec.switch_after = 2;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("switch_after: belongs to"));
  spec.switch_to = S::local;
  spec.local_steps = 4;
  spec.epochs = 2;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("say more epochs"));
  spec.epochs = 0;
  spec.steps = 100;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("say epochs instead of steps"));
  spec.steps = 0;
  spec.epochs = 4;
  CHECK(training_contradiction(spec).empty());
  CHECK_FALSE(trains_as_one(spec));
  CHECK(parsed_training(training_cell(spec)).switch_to == S::local);
  spec.samples = 8 * spec.batch;  // of two workers four steps: 8 of them, then 8 / 4 rounds
  CHECK(budgeted_steps(spec, 2) == 10);
  CHECK(round_steps(leg_of(spec, false)) == 1);
  CHECK(round_steps(leg_of(spec, true)) == 4);
}

TEST_CASE("AdaComm's rounds shorten with the root of the loss, or by half where it stays",
          "[d-28]") {
  CHECK(adapted_steps(16, 16, 2.0, 1.0) == 12);  // 16 sqrt(1/2) = 11.3
  CHECK(adapted_steps(12, 16, 2.0, 0.125) == 4);
  CHECK(adapted_steps(4, 16, 2.0, 0.125) == 2);
  CHECK(adapted_steps(16, 16, 2.0, 3.0) == 8);
  CHECK(adapted_steps(1, 16, 2.0, 2.0) == 1);
  CHECK(adapted_steps(5, 16, 2.0, std::nan("")) >= 1);
}

TEST_CASE("who takes part in a round is drawn, each as often", "[d-16]") {
  TrainingSpec spec;
  CHECK(participants_of(spec, 3, 0, 1) == std::vector<int>{0, 1, 2});
  spec.participants = 2;
  std::map<int, int> times;
  for (std::uint64_t round = 0; round < 600; ++round) {
    const auto all = participants_of(spec, 4, round, 7);
    REQUIRE(all.size() == 2);
    CHECK(all[0] < all[1]);
    for (const int each : all) ++times[each];
  }
  for (int worker = 0; worker < 4; ++worker) CHECK(std::abs(times[worker] - 300) < 60);
  CHECK(participants_of(spec, 4, 5, 7) == participants_of(spec, 4, 5, 7));
  spec = spec_of(TrainingMethod::bsp_a2a, Synchronisation::local);
  spec.participants = 5;
  CHECK(training_contradiction(spec).empty());
  CHECK_THAT(ranks_misfit(spec, 4), ContainsSubstring("participants = 5"));
  spec.synchronisation = Synchronisation::post_local;
  CHECK_THAT(training_contradiction(spec), ContainsSubstring("participants: belongs to"));
}

TEST_CASE("settings of a synchronisation come back from a cell") {
  TrainingSpec spec = spec_of(TrainingMethod::d_psgd, Synchronisation::local);
  spec.topology = PeerGraph::random_pairs;
  spec.pace = 2.5;
  spec.slow_factor = 3;
  spec.slow_worker = 1;
  const TrainingSpec read = parsed_training(training_cell(spec));
  CHECK(read.synchronisation == Synchronisation::local);
  CHECK(read.local_steps == 4);
  CHECK(read.topology == PeerGraph::random_pairs);
  CHECK(read.pace == 2.5);
  CHECK(read.slow_factor == 3);
  CHECK(read.slow_worker == 1);
  CHECK(training_cell(TrainingSpec{}).knobs.count("synchronisation") == 0);
  CHECK_FALSE(trains_as_one(spec));
  CHECK(trains_as_one(TrainingSpec{}));
  CHECK(c2c_predicted(spec, 4) < c2c_predicted(TrainingSpec{}, 4));
  // Rounds of four steps that have become rounds of two.
  CHECK(c2c_predicted(spec, 4, 0.25) == c2c_predicted(spec, 4));
  CHECK(c2c_predicted(spec, 4, 0.5) == 2 * c2c_predicted(spec, 4));
}

TEST_CASE("a slowed worker is the one that is named, or another one in each step") {
  TrainingSpec spec;
  CHECK_FALSE(is_slowed(spec, 4, 0, 0, 1));
  spec.slow_factor = 3;
  std::map<int, int> slowed;
  for (std::uint64_t step = 0; step < 400; ++step) {
    int of_step = 0;
    for (int worker = 0; worker < 4; ++worker) {
      const bool slow = is_slowed(spec, 4, worker, step, 7);
      of_step += slow ? 1 : 0;
      slowed[worker] += slow ? 1 : 0;
    }
    CHECK(of_step == 1);
  }
  for (int worker = 0; worker < 4; ++worker) CHECK(slowed[worker] > 60);
  spec.slow_worker = 2;
  CHECK(is_slowed(spec, 4, 2, 5, 7));
  CHECK_FALSE(is_slowed(spec, 4, 1, 5, 7));
}

TEST_CASE("averages with neighbours keep the mean, whatever the topology", "[d-06]") {
  const auto topology =
      GENERATE(PeerGraph::ring, PeerGraph::torus, PeerGraph::exponential, PeerGraph::random_pairs);
  for (int workers = 1; workers <= 12; ++workers) {
    for (std::uint64_t round = 0; round < 5; ++round) {
      std::map<int, double> given;  // a column of the matrix
      std::map<std::pair<int, int>, int> ways;
      for (int worker = 0; worker < workers; ++worker) {
        const Mixing mixing = mixing_of(topology, workers, worker, round, 3);
        double row = mixing.self;
        given[worker] += mixing.self;
        for (const auto& from : mixing.from) {
          CHECK(from.worker != worker);
          row += from.weight;
          given[from.worker] += from.weight;
          ++ways[{from.worker, worker}];
        }
        for (const int to : mixing.to) ++ways[{worker, to}];
        CHECK_THAT(row, WithinAbs(1, 1e-12));
      }
      for (const auto& [worker, sum] : given) CHECK_THAT(sum, WithinAbs(1, 1e-12));
      // What one sends, the other one takes.
      for (const auto& [way, ends] : ways) CHECK(ends == 2);
    }
  }
}

TEST_CASE("the spectral gap is what theory has", "[d-06]") {
  constexpr double kPi = std::numbers::pi;
  for (const int workers : {3, 4, 5, 8, 16})
    CHECK_THAT(spectral_gap(PeerGraph::ring, workers),
               WithinAbs(1 - std::abs(1 + 2 * std::cos(2 * kPi / workers)) / 3, 1e-6));
  CHECK(spectral_gap(PeerGraph::ring, 2) == 1);
  // Hops of 1 and 2 among four: every eigenvalue but the first is 1/3 in size.
  CHECK_THAT(spectral_gap(PeerGraph::exponential, 4), WithinAbs(2.0 / 3, 1e-6));
  CHECK(spectral_gap(PeerGraph::exponential, 8) > spectral_gap(PeerGraph::ring, 8));
  CHECK(spectral_gap(PeerGraph::torus, 9) > spectral_gap(PeerGraph::ring, 9));
  CHECK_THAT(spectral_gap(PeerGraph::random_pairs, 4), WithinAbs(1 - std::sqrt(1.0 / 3), 1e-12));
  CHECK_THAT(topology_misfit(PeerGraph::torus, 7), ContainsSubstring("ring"));
  CHECK(topology_misfit(PeerGraph::torus, 8).empty());
}
