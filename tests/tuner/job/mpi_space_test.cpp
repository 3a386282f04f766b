// Which launch settings a job of MPI or Gloo has, and as which variables they are given.

#include "tuner/job/mpi_space.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

using namespace dynamiccl;

namespace {

/// Ranks of one machine that share its memory.
JobFacts within_a_machine(Backend library, int ranks) {
  JobFacts facts;
  facts.library = library;
  facts.ranks = facts.ranks_per_host = ranks;
  facts.cores = 4;
  facts.shared_memory = true;
  facts.huge_pages = true;
  facts.ucx = library == Backend::mpich;
  return facts;
}

const MainTraffic kAllreduce{Collective::allreduce, Bytes{8 << 20}};

struct OfferedVariables {
  std::vector<std::string> left_out;
  ActionSpace space;
  explicit OfferedVariables(const JobFacts& facts, bool may_bind = true,
                            const std::set<std::string>& taken = {},
                            const std::optional<MainTraffic>& traffic = kAllreduce)
      : space(mpi_launch_space(facts, traffic, may_bind, taken, left_out)) {}
  [[nodiscard]] bool has(const char* knob) const { return space.knob_index(knob).has_value(); }
  /// Variables of the arm with this text.
  [[nodiscard]] std::map<std::string, std::string> variables(const std::string& text) const {
    for (const Action& action : space.arms())
      if (space.text(action) == text)
        return launch_variables(space.setting(action).launch_knobs, "");
    return {{"no arm", text}};
  }
};

using Variables = std::map<std::string, std::string>;

}  // namespace

TEST_CASE("a job of Open MPI gets its algorithms, copies, binding and memory as variables",
          "[C-39]") {
  const OfferedVariables offered(within_a_machine(Backend::openmpi, 2));
  CHECK(offered.variables("library algorithm=ring") ==
        Variables{{"OMPI_MCA_coll_tuned_use_dynamic_rules", "1"},
                  {"OMPI_MCA_coll_tuned_allreduce_algorithm", "4"}});
  CHECK(offered.variables("library single_copy=none") ==
        Variables{{"OMPI_MCA_btl_vader_single_copy_mechanism", "none"}});
  CHECK(offered.variables("library keep=true").at("GLIBC_TUNABLES").find("mmap_threshold") !=
        std::string::npos);
  CHECK(offered.has("binding"));
  CHECK_FALSE(OfferedVariables(within_a_machine(Backend::openmpi, 2), false).has("binding"));
  // Between machines its sockets matter, and no memory is shared.
  JobFacts apart = within_a_machine(Backend::openmpi, 2);
  apart.shared_memory = false;
  apart.network = true;
  const OfferedVariables network(apart);
  CHECK(network.has("links"));
  CHECK_FALSE(network.has("single_copy"));
  CHECK(network.variables("library socket_buffers=4194304").size() == 2);
}

TEST_CASE("a job of MPICH gets its algorithms and UCX's settings", "[C-39]") {
  const OfferedVariables two(within_a_machine(Backend::mpich, 2));
  CHECK(two.variables("library algorithm=recursive_doubling") ==
        Variables{{"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "recursive_doubling"}});
  CHECK(two.variables("library transports=posix") == Variables{{"UCX_TLS", "posix"}});
  CHECK_FALSE(two.has("single_copy"));
  // A list of transports within a machine would cut off the others.
  JobFacts several = within_a_machine(Backend::mpich, 2);
  several.network = true;
  CHECK_FALSE(OfferedVariables(several).has("transports"));
  JobFacts other = within_a_machine(Backend::mpich, 2);
  other.ucx = false;
  CHECK_FALSE(OfferedVariables(other).has("rendezvous_bytes"));
}

TEST_CASE("of Gloo, and of calls that nobody saw, memory alone is a setting") {
  const OfferedVariables gloo(within_a_machine(Backend::gloo, 2), true, {}, std::nullopt);
  CHECK(gloo.space.arms().size() == 4);
  JobFacts without = within_a_machine(Backend::gloo, 2);
  without.huge_pages = false;
  CHECK(OfferedVariables(without, true, {}, std::nullopt).space.arms().size() == 2);
}

TEST_CASE("what the user sets himself stays his, whichever part of a setting it is") {
  const OfferedVariables offered(
      within_a_machine(Backend::openmpi, 2), true,
      {"OMPI_MCA_coll_tuned_use_dynamic_rules", "OMPI_MCA_btl_vader_eager_limit"});
  CHECK_FALSE(offered.has("algorithm"));
  CHECK_FALSE(offered.has("eager_bytes"));
  CHECK(offered.has("keep"));
  CHECK(offered.left_out.size() == 2);
}

TEST_CASE("others' tunables stay beside ours") {
  CHECK(launch_variables({{"malloc.huge_pages", "true"}}, "glibc.malloc.arena_max=1")
            .at("GLIBC_TUNABLES") == "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1");
}

TEST_CASE("settings of the library are tried one at a time, and memory first") {
  const OfferedVariables offered(within_a_machine(Backend::openmpi, 2));
  const auto& arms = offered.space.arms();
  const std::vector<double> prior = mpi_launch_prior(offered.space, Micros(1000));
  const auto first = std::min_element(prior.begin(), prior.end()) - prior.begin();
  CHECK(offered.space.text(arms[static_cast<std::size_t>(first)]) ==
        "library keep=true huge_pages=true");
  CHECK(prior.front() == std::log(1000.0));
  for (const Action& action : arms) {
    const std::string text = offered.space.text(action);
    CHECK_FALSE((text.find("algorithm") != std::string::npos &&
                 text.find("single_copy") != std::string::npos));
  }
}
