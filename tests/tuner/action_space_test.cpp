#include "tuner/action/action_space.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "tuner/action/ll128.hpp"
#include "tuner/action/reach.hpp"
#include "tuner/action/spaces.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

bool offers(const ActionSpace& space, std::string_view knob, std::string_view value) {
  for (const Action& arm : space.arms())
    if (space.value(arm, knob) == value) return true;
  return false;
}

Action action_of(const ActionSpace& space, const std::map<std::string, std::string>& wanted) {
  for (const Action& arm : space.arms()) {
    bool equal = true;
    for (const Knob& knob : space.knobs()) {
      const auto value = wanted.find(knob.name);
      equal = equal &&
              space.value(arm, knob.name) == (value == wanted.end() ? "default" : value->second);
    }
    if (equal) return arm;
  }
  FAIL("no such arm");
  return {};
}

}  // namespace

TEST_CASE("masks of the heads lead to every arm and to nothing else", "[E-70][E-72]") {
  const ActionSpace space =
      make_space({.backend = Backend::openmpi, .collective = Collective::broadcast, .ranks = 4});
  REQUIRE(space.arms().size() >= 24);
  CHECK(ActionSpace::is_default(space.arms().front()));
  CHECK(space.knobs().front().role == KnobRole::implementation);

  std::set<Action> reached;
  std::vector<Action> open{{}};
  while (!open.empty()) {
    const Action prefix = open.back();
    open.pop_back();
    if (prefix.size() == space.knobs().size()) {
      CHECK(space.find(prefix).has_value());
      reached.insert(prefix);
      continue;
    }
    const std::vector<bool> mask = space.mask(prefix);
    for (std::size_t v = 0; v < mask.size(); ++v) {
      if (!mask[v]) continue;
      Action longer = prefix;
      longer.push_back(static_cast<std::uint8_t>(v));
      open.push_back(longer);
    }
  }
  CHECK(reached.size() == space.arms().size());
}

TEST_CASE("segment and fan-out exist only where the algorithm reads them") {
  const ActionSpace space =
      make_space({.backend = Backend::openmpi, .collective = Collective::broadcast, .ranks = 4});
  for (const Action& arm : space.arms()) {
    const auto algorithm = space.value(arm, "algorithm");
    if (algorithm == "scatter_allgather" || algorithm == "default") {
      CHECK(space.value(arm, "segment_bytes") == "default");
      CHECK(space.value(arm, "fanout") == "default");
    }
    if (algorithm == "binomial") CHECK(space.value(arm, "fanout") == "default");
  }
}

TEST_CASE("between nodes Open MPI has two levels and an order of ranks to choose", "[C-30][E-75]") {
  SpaceContext nodes{.backend = Backend::openmpi, .ranks = 8, .nodes = 2};
  const ActionSpace flat = make_space({.backend = Backend::openmpi, .ranks = 8});
  CHECK_FALSE(flat.knob_index("two_levels"));
  const ActionSpace two = make_space(nodes);
  CHECK_FALSE(two.knob_index("ranking"));
  CHECK(two.arms().size() == flat.arms().size() + 1);
  CHECK(two.setting(action_of(two, {{"two_levels", "100"}})) ==
        ActionSettings{"library", {}, {{"mca.coll_han_priority", "100"}}});
  nodes.dealt = true;
  const ActionSpace dealt = make_space(nodes);
  CHECK(dealt.setting(action_of(dealt, {{"ranking", "slot"}})).launch_knobs ==
        std::map<std::string, std::string>{{"mca.rmaps_base_ranking_policy", "slot"}});
  // A rank on each node, what coll_han does not do, and where launches stay as they are.
  nodes.dealt = false;
  nodes.nodes = 8;
  CHECK_FALSE(make_space(nodes).knob_index("two_levels"));
  nodes.nodes = 2;
  nodes.collective = Collective::alltoall;
  CHECK_FALSE(make_space(nodes).knob_index("two_levels"));
  nodes.collective = Collective::allreduce;
  SpaceOptions own;
  own.scopes = {KnobScope::communicator};
  CHECK_FALSE(make_space(nodes, own).knob_index("two_levels"));
  own = {};
  own.launch = {{"mca.coll_han_priority", {"90"}}};
  CHECK_FALSE(make_space(nodes, own).knob_index("two_levels"));
}

TEST_CASE("a segment as large as the message is no arm of its own") {
  const ActionSpace small = make_space({.backend = Backend::openmpi,
                                        .collective = Collective::broadcast,
                                        .ranks = 4,
                                        .size = Bytes{32768}});
  CHECK(offers(small, "segment_bytes", "8192"));
  CHECK_FALSE(offers(small, "segment_bytes", "32768"));
}

TEST_CASE("our own ring and server offer how they cut and overlap, and only what they read",
          "[E-74][E-77]") {
  SpaceContext server{.backend = Backend::gloo,
                      .collective = Collective::push_pull,
                      .architecture = Architecture::ps,
                      .ranks = 2};
  SpaceOptions lists;
  lists.depths = {"1", "4"};
  lists.shards = {"2"};
  const ActionSpace push_pull = make_space(server, lists);
  CHECK(push_pull.arms().size() == 5 * 3 * 2);
  const ActionSettings all = push_pull.setting(
      action_of(push_pull, {{"segment_bytes", "8192"}, {"pipeline_depth", "4"}, {"shards", "2"}}));
  CHECK(all.call_knobs == std::map<std::string, std::string>{
                              {"segment_bytes", "8192"}, {"pipeline_depth", "4"}, {"shards", "2"}});
  server.collective = Collective::push;
  CHECK_FALSE(make_space(server).knob_index("shards"));
  server.collective = Collective::pull;
  CHECK(make_space(server).arms().size() == 1);

  const SpaceContext ring{
      .backend = Backend::gloo, .collective = Collective::allreduce, .ranks = 2};
  CHECK_FALSE(make_space(ring).knob_index("pipeline_depth"));
  const ActionSpace deep = make_space(ring, lists);
  for (const Action& arm : deep.arms())
    if (deep.value(arm, "algorithm") != "own_ring")
      CHECK(deep.value(arm, "pipeline_depth") == "default");
  CHECK(offers(deep, "pipeline_depth", "4"));
}

TEST_CASE("our two levels are an arm where several ranks share a node of several", "[C-30]") {
  const auto space = [](Backend backend, int ranks, int nodes, const SpaceOptions& options = {}) {
    return make_space({.backend = backend, .ranks = ranks, .nodes = nodes}, options);
  };
  const ActionSpace gloo = space(Backend::gloo, 8, 2);
  const Action ours = action_of(gloo, {{"algorithm", "two_level"}, {"segment_bytes", "131072"}});
  CHECK(gloo.setting(ours) == ActionSettings{"two_level", {{"segment_bytes", "131072"}}, {}});
  CHECK(is_hierarchical(gloo, ours));
  CHECK_FALSE(is_hierarchical(gloo, action_of(gloo, {{"algorithm", "bcube"}})));
  CHECK(reach_of(Backend::gloo, Architecture::ring, gloo.setting(ours)) == Reach::own);
  CHECK_FALSE(offers(space(Backend::gloo, 8, 1), "algorithm", "two_level"));
  CHECK_FALSE(offers(space(Backend::gloo, 8, 8), "algorithm", "two_level"));
  // MPIs have levels of their own: ours is for who names it.
  for (const Backend mpi : {Backend::openmpi, Backend::mpich, Backend::cuda_aware_mpi})
    CHECK_FALSE(offers(space(mpi, 8, 2), "algorithm", "two_level"));
  SpaceOptions named;
  named.algorithms = {"two_level"};
  const ActionSpace openmpi = space(Backend::openmpi, 8, 2, named);
  CHECK(is_hierarchical(openmpi, action_of(openmpi, {{"two_levels", "100"}})));
  CHECK(is_hierarchical(openmpi, action_of(openmpi, {{"algorithm", "two_level"}})));
}

TEST_CASE("algorithms for another number of ranks are masked") {
  const auto at = [](Backend backend, int ranks) {
    return make_space({.backend = backend, .collective = Collective::allgather, .ranks = ranks});
  };
  CHECK(offers(at(Backend::openmpi, 2), "algorithm", "two_proc"));
  CHECK_FALSE(offers(at(Backend::openmpi, 3), "algorithm", "two_proc"));
  CHECK_FALSE(offers(at(Backend::openmpi, 3), "algorithm", "neighbor"));
  CHECK_FALSE(offers(at(Backend::mpich, 6), "algorithm", "recursive_doubling"));
  CHECK(offers(at(Backend::mpich, 8), "algorithm", "recursive_doubling"));
}

TEST_CASE("a setting names the knob that the algorithm reads") {
  const ActionSpace space =
      make_space({.backend = Backend::openmpi, .collective = Collective::broadcast, .ranks = 4});
  const ActionSettings chain = space.setting(
      action_of(space, {{"algorithm", "chain"}, {"fanout", "2"}, {"segment_bytes", "8192"}}));
  CHECK(chain.algorithm == "chain");
  CHECK(chain.call_knobs ==
        std::map<std::string, std::string>{{"coll_tuned_bcast_algorithm_chain_fanout", "2"},
                                           {"coll_tuned_bcast_algorithm_segmentsize", "8192"}});
  const ActionSettings knomial =
      space.setting(action_of(space, {{"algorithm", "knomial"}, {"fanout", "8"}}));
  CHECK(knomial.call_knobs ==
        std::map<std::string, std::string>{{"coll_tuned_bcast_algorithm_knomial_radix", "8"}});
  CHECK(space.setting(space.arms().front()) == ActionSettings{});
  CHECK(space.text(space.arms().front()) == "library");

  const ActionSpace gloo =
      make_space({.backend = Backend::gloo, .collective = Collective::allreduce, .ranks = 2});
  CHECK(gloo.setting(action_of(gloo, {{"algorithm", "ring"}, {"segment_bytes", "32768"}}))
            .call_knobs.contains("max_segment_bytes"));
  const Action own = action_of(gloo, {{"algorithm", "own_ring"}, {"segment_bytes", "32768"}});
  CHECK(gloo.setting(own).call_knobs.contains("segment_bytes"));
  CHECK(gloo.text(own) == "own_ring segment_bytes=32768");
  CHECK_FALSE(offers(gloo, "fanout", "2"));
}

TEST_CASE("NCCL's unsafe combinations do not exist", "[E-72][X-55][X-56]") {
  const SpaceContext machine{.backend = Backend::nccl,
                             .collective = Collective::allreduce,
                             .ranks = 4,
                             .nvlink = true,
                             .peer_to_peer = true};
  const ActionSpace space = make_space(machine);
  for (const char* name : {"nvls", "nvls_tree", "collnet_direct", "collnet_chain"})
    CHECK_FALSE(offers(space, "algorithm", name));
  CHECK(offers(space, "protocol", "LL128"));
  std::set<std::string> implementations;
  for (const auto& [first, last] : space.subspaces()) {
    const Action& arm = space.arms()[first];
    CHECK((space.value(arm, "algorithm") == "default") ==
          (space.value(arm, "protocol") == "default"));
    if (space.value(arm, "transport") == "P2P" || space.value(arm, "transport") == "SHM")
      implementations.insert(std::string(space.value(arm, "algorithm")) +
                             std::string(space.value(arm, "protocol")) +
                             std::string(space.value(arm, "transport")));
  }
  // 2 x 3 by P2P, 2 x 2 by SHM, which has no LL128, and the two transports under NCCL's choice.
  CHECK(implementations.size() == 12);
  for (const Action& arm : space.arms())
    if (space.value(arm, "protocol") == "LL128")
      CHECK((space.value(arm, "transport") == "P2P" || space.value(arm, "transport") == "default"));
  for (const Action& arm : space.arms())
    if (space.value(arm, "transport") == "P2P")
      CHECK(space.value(arm, "socket_threads") == "default");

  SpaceContext apart = machine;
  apart.nvlink = apart.peer_to_peer = apart.shared_memory = false;
  const ActionSpace network = make_space(apart);
  CHECK_FALSE(offers(network, "protocol", "LL128"));
  CHECK_FALSE(offers(network, "transport", "P2P"));
  CHECK(offers(network, "socket_threads", "1"));

  SpaceContext gather = machine;
  gather.collective = Collective::allgather;
  CHECK_FALSE(offers(make_space(gather), "algorithm", "tree"));
  CHECK_FALSE(offers(make_space(gather), "algorithm", "pat"));
}

TEST_CASE("LL128 may be asked for where NCCL takes it by itself", "[C-38][E-65]") {
  const auto facts = [](const std::vector<std::string>& names, const char* path) {
    nlohmann::json devices = nlohmann::json::array();
    nlohmann::json paths = nlohmann::json::array();
    for (std::size_t from = 0; from < names.size(); ++from) {
      devices.push_back({{"name", names[from]}});
      nlohmann::json row = nlohmann::json::array();
      for (std::size_t to = 0; to < names.size(); ++to) row.push_back(from == to ? "self" : path);
      paths.push_back(row);
    }
    return nlohmann::json{{"gpu", {{"nvml", {{"devices", devices}, {"p2p", paths}}}}}};
  };
  const std::string h100 = "NVIDIA H100 80GB HBM3";
  CHECK(why_no_ll128(facts({h100, h100}, "nvlink")).empty());
  CHECK(why_no_ll128(facts({"Tesla V100-SXM2-16GB", "Tesla V100-SXM2-16GB"}, "nvlink")).empty());
  CHECK_THAT(why_no_ll128(facts({h100, h100}, "pcie")), ContainsSubstring("not joined by NVLink"));
  CHECK_THAT(why_no_ll128(facts({h100, "NVIDIA A100-SXM4-80GB"}, "nvlink")),
             ContainsSubstring("several models"));
  // NVLink by a bridge, an architecture that NCCL leaves out.
  CHECK_THAT(why_no_ll128(facts({"NVIDIA RTX A6000", "NVIDIA RTX A6000"}, "nvlink")),
             ContainsSubstring("RTX A6000"));
  CHECK_THAT(why_no_ll128(facts({h100}, "nvlink")), ContainsSubstring("no two GPUs"));
  auto one_pair = facts({h100, h100, h100}, "nvlink");
  one_pair["gpu"]["nvml"]["p2p"][2][0] = "none";
  CHECK_THAT(why_no_ll128(one_pair), ContainsSubstring("not joined"));
  for (const char* damaged : {"null", "[]", R"({"gpu": 3})", R"({"gpu": {"nvml": null}})",
                              R"({"gpu": {"nvml": {"devices": [1, 2], "p2p": [[], []]}}})",
                              R"({"gpu": {"nvml": {"devices": [{"name": 3}, 2], "p2p": [1, 2]}}})"})
    CHECK_FALSE(why_no_ll128(nlohmann::json::parse(damaged)).empty());
}

TEST_CASE("NCCL knobs go to the plugin per call or to the environment at launch",
          "[E-65][E-66][E-68]") {
  SpaceContext machine{.backend = Backend::nccl,
                       .collective = Collective::allreduce,
                       .ranks = 4,
                       .nvlink = true,
                       .peer_to_peer = true,
                       .nccl_plugin = true};
  const std::map<std::string, std::string> wanted{{"algorithm", "tree"},
                                                  {"protocol", "LL"},
                                                  {"transport", "NET"},
                                                  {"channels", "4"},
                                                  {"socket_threads", "1"}};
  const ActionSpace plugin = make_space(machine);
  const ActionSettings per_call = plugin.setting(action_of(plugin, wanted));
  CHECK(per_call.algorithm == "tree");
  CHECK(per_call.call_knobs ==
        std::map<std::string, std::string>{{"protocol", "LL"}, {"channels", "4"}});
  CHECK(per_call.launch_knobs ==
        std::map<std::string, std::string>{{"env.NCCL_P2P_DISABLE", "1"},
                                           {"env.NCCL_SHM_DISABLE", "1"},
                                           {"env.NCCL_SOCKET_NTHREADS", "1"},
                                           {"env.NCCL_NSOCKS_PERTHREAD", "1"}});

  machine.nccl_plugin = false;
  const ActionSpace launch = make_space(machine);
  const ActionSettings by_variable = launch.setting(action_of(launch, wanted));
  CHECK(by_variable.algorithm == "library");
  CHECK(by_variable.launch_knobs.at("env.NCCL_ALGO") == "ring;allreduce:tree");
  CHECK(by_variable.launch_knobs.at("env.NCCL_PROTO") == "LL,Simple;allreduce:LL");

  SpaceOptions call_only;
  call_only.scopes = {KnobScope::call};
  machine.nccl_plugin = true;
  CHECK(make_space(machine, call_only).knobs().size() == 3);
}

TEST_CASE("in-network aggregation leaves the default alone", "[E-144][E-145]") {
  const ActionSpace space = make_space({.backend = Backend::nccl, .ina_active = true});
  CHECK(space.arms().size() == 1);
  CHECK(space.setting(space.arms()[0]) == ActionSettings{});
}

TEST_CASE("lists of an experiment are checked") {
  SpaceOptions options;
  options.algorithms = {"ringg"};
  CHECK_THROWS_WITH(make_space({.backend = Backend::openmpi}, options),
                    ContainsSubstring("Did you mean \"ring\""));
  options.algorithms = {"ring", "segmented_ring"};
  options.segments = {"64KiB", "16KiB"};
  CHECK_THROWS_WITH(make_space({.backend = Backend::openmpi}, options),
                    ContainsSubstring("values must rise"));
  options.segments = {"16KiB", "64KiB"};
  options.launch = {{"mca.btl_tcp_sndbuf", {"65536", "1048576"}}};
  const ActionSpace space = make_space({.backend = Backend::openmpi}, options);
  CHECK(space.arms().size() == (1 + 1 + 3) * 3);
  const ActionSettings setting = space.setting(space.arms().back());
  CHECK(setting.launch_knobs.at("mca.btl_tcp_sndbuf") == "1048576");
  CHECK(setting.call_knobs.at("coll_tuned_allreduce_algorithm_segmentsize") == "64KiB");
}

TEST_CASE("the allocator's settings are launch resources, where they can change something") {
  SpaceOptions options;
  options.algorithms = {"ring"};
  options.launch = {{"malloc.keep", {"1"}}, {"malloc.huge_pages", {"1"}}};
  SpaceContext context{.backend = Backend::openmpi, .size = Bytes{1 << 20}};
  const ActionSpace space = make_space(context, options);
  // Default and ring, with and without each.
  CHECK(space.arms().size() == 8);
  const ActionSettings setting = space.setting(space.arms().back());
  CHECK(setting.launch_knobs ==
        std::map<std::string, std::string>{{"malloc.keep", "1"}, {"malloc.huge_pages", "1"}});
  const auto keep = space.knob_index("malloc.keep");
  REQUIRE(keep);
  CHECK(space.knobs()[*keep].role == KnobRole::resource);
  CHECK(space.knobs()[*keep].scope == KnobScope::launch);
  // Where the kernel gives no huge pages, or gives them to everybody.
  context.huge_pages = false;
  CHECK(make_space(context, options).arms().size() == 4);
  CHECK_FALSE(make_space(context, options).knob_index("malloc.huge_pages"));
  // glibc keeps small blocks anyway.
  context.size = Bytes{64 << 10};
  CHECK(make_space(context, options).arms().size() == 2);
  options.scopes = {KnobScope::communicator};
  context.size = Bytes{1 << 20};
  CHECK(make_space(context, options).arms().size() == 2);
}

TEST_CASE("what our plugin sets by call needs no launch", "[E-83][E-114]") {
  SpaceContext context;
  context.backend = Backend::nccl;
  context.nccl_plugin = true;
  SpaceOptions options;
  options.scopes = {KnobScope::call};
  const ActionSpace space = make_space(context, options);
  std::set<std::string> algorithms;
  CHECK(space.setting(space.arms().front()) == ActionSettings{});
  for (const Action& action : space.arms()) {
    const ActionSettings setting = space.setting(action);
    INFO(space.text(action));
    CHECK(setting.launch_knobs.empty());
    for (const auto& [knob, value] : setting.call_knobs)
      CHECK((knob == "protocol" || knob == "channels"));
    // An algorithm without a protocol would leave NCCL a choice of three.
    CHECK((setting.algorithm == "library") == !setting.call_knobs.contains("protocol"));
    algorithms.insert(setting.algorithm);
  }
  CHECK(algorithms == std::set<std::string>{"library", "ring", "tree"});
}
