#include "tuner/search/cell_answer.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tuner/action/reach.hpp"
#include "tuner/action/spaces.hpp"

using namespace dynamiccl;

namespace {

Ratio between(double low, double high) {
  Ratio ratio;
  ratio.value = (low + high) / 2;
  ratio.interval.emplace();
  ratio.interval->low = low;
  ratio.interval->high = high;
  return ratio;
}

CellAnswer answer(std::size_t tried, std::optional<Ratio> ratio, std::size_t arms = 10) {
  return answer_of({.arms = arms, .tried = tried, .ratio = ratio}, {});
}

}  // namespace

TEST_CASE("what an interval leaves open is undecided, what was not measured unexplored",
          "[E-146]") {
  CHECK(answer(0, std::nullopt).flag == kUnexplored);
  CHECK(answer(1, std::nullopt).flag == kUnexplored);
  CHECK(answer(5, std::nullopt).flag == kUndecided);
  CHECK(answer(10, between(0.9, 1.1)).flag == kUndecided);
  // Not all settings were looked at.
  CHECK(answer(9, between(0.99, 1.01)).flag == kUndecided);
  CHECK(answer(10, between(0.99, 1.01)).flag == kNonActionable);
  CHECK(answer(10, between(1.1, 1.2)).flag == kNonActionable);
  CHECK(answer(1, std::nullopt, 1).flag == kNothingToSet);
}

TEST_CASE("where every other way missed its target, more measurements are not asked for",
          "[E-146][H-12]") {
  const auto flag = [](std::size_t tried, std::size_t missed, std::optional<Ratio> ratio) {
    return answer_of({.arms = 3, .tried = tried, .missed = missed, .ratio = ratio}, {}).flag;
  };
  CHECK(flag(3, 2, std::nullopt) == kOnlyDefault);
  // One failed, or was not measured.
  CHECK(flag(3, 1, std::nullopt) == kUndecided);
  CHECK(flag(2, 1, std::nullopt) == kUndecided);
  // One that missed once and was compared all the same.
  CHECK(flag(3, 2, between(0.9, 1.1)) == kUndecided);
}

TEST_CASE("verdict, guard and flag of a cell never contradict each other", "[E-146]") {
  for (const double low : {0.5, 0.9, 0.975, 0.985, 0.99, 1.01, 1.05, 1.5})
    for (const double width : {0.0, 0.01, 0.05, 0.5})
      for (const std::size_t tried : {std::size_t{2}, std::size_t{10}}) {
        const CellAnswer said = answer(tried, between(low, low + width));
        INFO(low << " to " << low + width << ": " << said.verdict << " " << name_of(said.guard)
                 << " " << said.flag);
        CHECK(said.kept == (said.verdict == "FASTER"));
        CHECK(said.kept == (said.guard == GuardVerdict::pass));
        CHECK(said.kept == said.flag.empty());
        CHECK((said.verdict == "SLOWER") == (said.guard == GuardVerdict::slower_than_default));
        // What is not clear is not known either.
        if (said.verdict == "UNCLEAR") CHECK(said.flag == kUndecided);
        if (said.flag == kNonActionable)
          CHECK((said.verdict == "SAME" || said.verdict == "SLOWER"));
      }
  // A guard of the search itself says all there is to say.
  const CellAnswer failed =
      answer_of({.arms = 9, .tried = 3, .guard = GuardVerdict::failed, .ratio = std::nullopt}, {});
  CHECK(failed.guard == GuardVerdict::failed);
  CHECK(failed.flag.empty());
  CHECK_FALSE(failed.kept);
}

TEST_CASE("every setting says who can load it, and a search of loadable ones has no other") {
  using enum Backend;
  CHECK(reach_of(openmpi, Architecture::ring, {}) == Reach::nothing);
  CHECK(reach_of(openmpi, Architecture::ring, {"own_ring", {}, {}}) == Reach::own);
  CHECK(reach_of(openmpi, Architecture::ring, {"ring", {}, {}}) == Reach::per_size);
  CHECK(reach_of(mpich, Architecture::ring, {"ring", {}, {}}) == Reach::per_process);
  CHECK(reach_of(gloo, Architecture::ring, {"bcube", {}, {}}) == Reach::own);
  CHECK(reach_of(gloo, Architecture::ring, {"library", {}, {{"malloc.keep", "1"}}}) ==
        Reach::per_process);
  CHECK(reach_of(nccl, Architecture::ring, {"ring", {}, {}}) == Reach::per_call);
  CHECK(reach_of(openmpi, Architecture::ps, {"library", {{"segment_bytes", "8192"}}, {}}) ==
        Reach::own);
  for (const Backend backend : {openmpi, mpich, gloo, cuda_aware_mpi})
    for (const Collective collective :
         {Collective::allreduce, Collective::broadcast, Collective::allgather, Collective::reduce,
          Collective::reduce_scatter, Collective::gather, Collective::alltoall}) {
      SpaceContext context{.backend = backend, .collective = collective};
      context.size = Bytes{1 << 20};
      SpaceOptions options;
      options.own = false;
      const ActionSpace space = make_space(context, options);
      for (const Action& arm : space.arms()) {
        const ActionSettings setting = space.setting(arm);
        INFO(name_of(backend) << " " << name_of(collective) << " " << space.text(arm));
        CHECK(is_loadable(reach_of(backend, Architecture::ring, setting)));
      }
      CHECK(space.arms().size() <= make_space(context).arms().size());
    }
}
