#include "profiles/detect/regime.hpp"

#include <catch2/catch_test_macros.hpp>

#include "profiles/detect/link_rates.hpp"
#include "profiles/detect/link_tier.hpp"
#include "tests/profiles/detect/fixture_tree.hpp"

using namespace dynamiccl;
using dynamiccl::test::FixtureTree;
using nlohmann::json;

namespace {

/// `facts` as another container of the same machine sees it.
json other_container(json facts, std::uint64_t offset) {
  for (const char* name : {"net", "ipc", "uts", "pid", "mnt"})
    facts["namespaces"][name] = facts["namespaces"][name].get<std::uint64_t>() + offset;
  facts["shm"]["device"] = facts["shm"]["device"].get<std::uint64_t>() + offset;
  facts["system"]["hostname"] = "w" + std::to_string(offset);
  return facts;
}

RegimeContext with(Backend backend, const char* version) {
  RegimeContext context;
  context.backend = backend;
  context.library_version = version;
  return context;
}

}  // namespace

TEST_CASE("containers apart on one host are cross-docker over a virtual link",
          "[B-08][E-01][E-05]") {
  const auto facts = FixtureTree("docker-container").facts();
  const auto regime =
      derive_regime({facts, other_container(facts, 10)}, with(Backend::openmpi, "4.1.4"));
  CHECK(regime.name ==
        "cross-docker / apart: net ipc uts pid / no shared link / tcp eth-virtual / no GPU / "
        "openmpi-4.1");
  CHECK(regime.id.size() == 16);
  const auto& features = regime.json["features"];
  CHECK(features["is_cross_container"] == true);
  CHECK(features["is_bare_metal"] == false);
  CHECK(features["container_runtime"] == 3);
  CHECK(features["kernel_bypass"] == false);
}

TEST_CASE("ranks, patch version and rank order are no part of a regime, the namespaces are") {
  const auto facts = FixtureTree("docker-container").facts();
  const auto context = with(Backend::openmpi, "4.1.4");
  const auto two = derive_regime({facts, other_container(facts, 1)}, context);
  const auto three =
      derive_regime({other_container(facts, 2), facts, other_container(facts, 1)}, context);
  CHECK(two.id == three.id);
  CHECK(two.id ==
        derive_regime({facts, other_container(facts, 1)}, with(Backend::openmpi, "4.1.9")).id);
  CHECK(two.id !=
        derive_regime({facts, other_container(facts, 1)}, with(Backend::openmpi, "4.2.0")).id);
  CHECK(two.id !=
        derive_regime({facts, other_container(facts, 1)}, with(Backend::mpich, "4.1.4")).id);
  const auto one_container = derive_regime({facts, facts}, context);
  CHECK(one_container.id != two.id);
  CHECK(one_container.name ==
        "single-docker / all shared / shm / tcp eth-virtual / no GPU / openmpi-4.1");
  CHECK(one_container.json["features"]["container_runtime"] == 2);
}

TEST_CASE("each shared namespace leaves the list of what is apart") {
  const auto facts = FixtureTree("docker-container").facts();
  auto other = other_container(facts, 5);
  other["namespaces"]["net"] = facts["namespaces"]["net"];
  other["namespaces"]["ipc"] = facts["namespaces"]["ipc"];
  other["shm"]["device"] = facts["shm"]["device"];
  const auto regime = derive_regime({facts, other}, with(Backend::gloo, "0.5"));
  CHECK(regime.name == "cross-docker / apart: uts pid / shm / tcp eth-virtual / no GPU / gloo-0.5");
}

TEST_CASE("bare metal with CMA, and a small /dev/shm or refused CMA is another regime",
          "[B-10][B-24][E-03]") {
  auto facts = FixtureTree("roce").facts();
  const auto context = with(Backend::gloo, "0.5");
  const auto regime = derive_regime({facts, facts}, context);
  CHECK(regime.name == "bare-metal / all shared / shm+cma / tcp eth-100GbE / no GPU / gloo-0.5");
  CHECK(regime.json["features"]["is_bare_metal"] == true);
  facts["shm"]["size_bytes"] = 1 << 20;
  CHECK(derive_regime({facts, facts}, context).id != regime.id);
  facts["cma"]["allowed"] = false;
  CHECK(derive_regime({facts, facts}, context).name ==
        "bare-metal / all shared / shm (small /dev/shm) / tcp eth-100GbE / no GPU / gloo-0.5");
}

TEST_CASE("RDMA is the outer link where the library can use it", "[B-16][B-18][B-19]") {
  const auto roce = FixtureTree("roce").facts();
  const auto mpi = derive_regime({roce, roce}, with(Backend::mpich, "4.0.2"));
  CHECK(mpi.json["ingredients"]["inter_link"] == "roce-v2");
  CHECK(mpi.json["ingredients"]["inter_tier"] == "100Gb/s");
  CHECK(mpi.json["features"]["kernel_bypass"] == true);
  auto closed = roce;  // a container without the device files
  closed["rdma"]["usable_devices"] = 0;
  CHECK(derive_regime({closed, closed}, with(Backend::mpich, "4.0.2"))
            .json["ingredients"]["inter_link"] == "tcp");
}

TEST_CASE("RDMA reaches GPU memory where every rank's machine lets it", "[B-16][E-39]") {
  const auto ib = FixtureTree("infiniband-sharp").facts();
  const auto feature = [](const std::vector<json>& facts, Backend backend) {
    return derive_regime(facts, with(backend, "2.28.9")).json["features"]["gpudirect_rdma"];
  };
  CHECK(feature({ib, ib}, Backend::nccl) == true);
  CHECK(feature({ib, ib}, Backend::mpich) == false);  // computes on no GPU
  auto closed = ib;
  closed["rdma"]["gpudirect_peermem"] = closed["rdma"]["gpudirect_dmabuf_possible"] = false;
  CHECK(feature({ib, closed}, Backend::nccl) == false);
  closed["rdma"]["gpudirect_peermem"] = nullptr;
  CHECK(feature({ib, closed}, Backend::nccl).is_null());
}

TEST_CASE("a library and a folder make one host of ranks that stay apart", "[B-17][E-04]") {
  const auto nccl = with(Backend::nccl, "2.28.9");
  const auto link_of = [&](const json& a, const json& b) {
    return derive_regime({a, b}, nccl).json["ingredients"]["intra_link"];
  };
  auto one = FixtureTree("nvswitch").facts();
  auto other = one;
  other["system"]["hostname"] = "other";
  for (const char* name : {"net", "uts", "ipc", "pid", "mnt"}) other["namespaces"][name] = 7;
  other["shm"]["device"] = 77;
  CHECK(link_of(one, other) == "none");
  // As a probe sees it before NCCL is there: the library is preloaded, the folder is fit.
  for (json* facts : {&one, &other}) {
    (*facts)["environment"]["variables"]["LD_PRELOAD"] = "/p/libdynamiccl-onehost.so";
    (*facts)["shm"]["folder"] = {{"device", 51}, {"inode", 9}};
    (*facts)["shm"]["meeting"] = {{"trouble", "none"}};
  }
  CHECK(link_of(one, other) == "nvlink");
  const auto regime = derive_regime({one, other}, nccl);
  CHECK(regime.name.find("/ nvlink (one host by library) /") != std::string::npos);
  CHECK(regime.json["one_host"] == "library");
  CHECK(regime.json["ingredients"]["apart"] == json({"net", "ipc", "uts", "pid", "shm"}));
  // No other library's ranks are one host by it.
  CHECK(derive_regime({one, other}, with(Backend::gloo, "0.5")).name.find("one host") ==
        std::string::npos);
  const auto changed = [&](const auto& change) {
    auto a = one;
    auto b = other;
    change(a, b);
    return link_of(a, b);
  };
  CHECK(changed([](json&, json& b) { b["shm"]["folder"]["inode"] = 10; }) == "none");
  CHECK(changed([](json&, json& b) { b["shm"]["meeting"]["trouble"] = "not memory"; }) == "none");
  CHECK(changed([](json&, json& b) { b["gpu"]["usable"] = 1; }) == "none");
  CHECK(changed([](json& a, json& b) {
          a["gpu"]["imex_channels"] = b["gpu"]["imex_channels"] = 1;
        }) == "none");
  CHECK(changed([](json& a, json& b) { a["gpu"]["usable"] = b["gpu"]["usable"] = 1; }) == "shm");
  // As it has answered NCCL.
  const auto answered = [&](const char* a, const char* b) {
    return changed([&](json& x, json& y) {
      for (json* facts : {&x, &y}) {
        (*facts)["environment"]["variables"]["NCCL_HOSTID"] = facts == &x ? a : b;
        (*facts)["environment"]["variables"]["NCCL_P2P_DISABLE"] = "1";
      }
    });
  };
  CHECK(answered("onehost shm, GPUs one each", "onehost shm, GPUs one each") == "shm");
  CHECK(answered("onehost shm, GPUs one each", "onehost alone 1 shm, GPUs one each") == "none");
}

TEST_CASE("one name and one /dev/shm make one host of ranks that stay apart", "[B-17][E-04]") {
  const auto nccl = with(Backend::nccl, "2.28.9");
  auto one = FixtureTree("nvswitch").facts();
  auto other = one;
  other["system"]["hostname"] = "other";
  for (const char* name : {"net", "uts", "ipc", "pid", "mnt"}) other["namespaces"][name] = 7;
  for (json* facts : {&one, &other}) {
    (*facts)["environment"]["variables"]["NCCL_HOSTID"] = "one-host";
    (*facts)["environment"]["variables"]["NCCL_P2P_DISABLE"] = "1";
  }
  const auto regime = derive_regime({one, other}, nccl);
  CHECK(regime.json["ingredients"]["intra_link"] == "shm");
  CHECK(regime.name.find("/ shm (one host by settings) /") != std::string::npos);
  CHECK(regime.json["one_host"] == "settings");
  other["environment"]["variables"]["NCCL_HOSTID"] = "another";
  CHECK_FALSE(derive_regime({one, other}, nccl).json.contains("one_host"));
}

TEST_CASE("NVLink, PCIe and what stands in their way",
          "[B-13][B-14][B-15][B-17][E-04][E-11][E-23][E-38]") {
  const auto switched = FixtureTree("nvswitch").facts();
  const auto nccl = with(Backend::nccl, "2.28.9");
  const auto nvlink = derive_regime({switched, switched}, nccl);
  CHECK(nvlink.name ==
        "bare-metal / all shared / nvlink / tcp eth-100GbE / GPU dedicated / nccl-2.28");
  CHECK(nvlink.json["features"]["has_nvlink"] == true);
  CHECK(nvlink.json["features"]["is_pcie_only_intra"] == false);
  CHECK(nvlink.json["features"]["cluster_class"] == "specialised");
  const auto plain = FixtureTree("pcie-only").facts();
  const auto pcie = derive_regime({plain, plain}, nccl);
  CHECK(pcie.json["ingredients"]["intra_link"] == "pcie");
  CHECK(pcie.json["features"]["is_pcie_only_intra"] == true);
  CHECK(pcie.json["features"]["cluster_class"] == "commodity");
  // NCCL takes other host names for other machines, and needs one /dev/shm and network namespace.
  auto renamed = switched;
  renamed["system"]["hostname"] = "other";
  CHECK(derive_regime({switched, renamed}, nccl).json["ingredients"]["intra_link"] == "none");
  for (auto* facts : {&renamed}) (*facts)["environment"]["variables"]["NCCL_HOSTID"] = "h";
  auto named = switched;
  named["environment"]["variables"]["NCCL_HOSTID"] = "h";
  CHECK(derive_regime({named, renamed}, nccl).json["ingredients"]["intra_link"] == "nvlink");
  auto other_net = switched;
  other_net["namespaces"]["net"] = 7;
  CHECK(derive_regime({switched, other_net}, nccl).json["ingredients"]["intra_link"] == "shm");
  auto forbidden = switched;
  forbidden["environment"]["variables"]["NCCL_P2P_DISABLE"] = "1";
  CHECK(derive_regime({forbidden, forbidden}, nccl).json["ingredients"]["intra_link"] == "shm");
  forbidden["environment"]["variables"]["NCCL_SHM_DISABLE"] = "1";
  CHECK(derive_regime({forbidden, forbidden}, nccl).json["ingredients"]["intra_link"] == "none");
}

TEST_CASE("a container that sees one GPU only cannot use NVLink") {
  auto first = FixtureTree("nvswitch").facts();
  first["gpu"]["usable"] = 1;
  auto second = first;
  second["namespaces"]["mnt"] = 99;
  const auto regime = derive_regime({first, second}, with(Backend::nccl, "2.28.9"));
  CHECK(regime.json["ingredients"]["intra_link"] == "shm");
  CHECK(regime.json["evidence"]["intra_link"].get<std::string>().find("one GPU only") !=
        std::string::npos);
}

TEST_CASE("ranks that name the same GPU take turns on it", "[B-23][E-49]") {
  auto first = FixtureTree("nvswitch").facts();
  first["gpu"]["nvml"] = {{"devices",
                           {{{"pci", "00000000:1B:00.0"}, {"uuid", "GPU-one"}},
                            {{"pci", "00000000:1C:00.0"}, {"uuid", "GPU-two"}}}}};
  first["gpu"]["sharing_mode"] = "dedicated";
  auto second = first;
  first["gpu"]["own_pci"] = "0000:1b:00.0";
  second["gpu"]["own_pci"] = "0000:1c:00.0";
  const auto nccl = with(Backend::nccl, "2.28.9");
  const auto gpu = [&] { return derive_regime({first, second}, nccl).json; };
  CHECK(gpu()["ingredients"]["gpu"] == "dedicated");
  second["gpu"]["own_pci"] = "0000:1b:00.0";
  CHECK(gpu()["ingredients"]["gpu"] == "time-slice");
  CHECK(gpu()["evidence"]["gpu"] == "ranks share the GPU GPU-one");
  // One container each, so that each numbers its GPUs anew.
  second["namespaces"]["mnt"] = 99;
  CHECK(gpu()["ingredients"]["gpu"] == "time-slice");
  // Where NVML names none, address and host do; other hosts have other GPUs at the same address.
  first["gpu"]["nvml"] = second["gpu"]["nvml"] = nullptr;
  CHECK(gpu()["ingredients"]["gpu"] == "time-slice");
  first["gpu"]["sharing_mode"] = second["gpu"]["sharing_mode"] = "mps";
  CHECK(gpu()["ingredients"]["gpu"] == "mps");
  CHECK(derive_regime({first, second}, with(Backend::gloo, "0.5")).json["ingredients"]["gpu"] ==
        "none");
}

TEST_CASE("aggregation is detected, or declared and marked, or possible", "[B-20][E-43][E-44]") {
  auto ib = FixtureTree("infiniband-sharp").facts();
  const auto nccl = with(Backend::nccl, "2.28.9");
  auto regime = derive_regime({ib, ib}, nccl);
  CHECK(regime.json["ingredients"]["ina"] == "sharp");
  CHECK(regime.json["evidence"]["ina"].get<std::string>().starts_with("detected: "));
  CHECK(regime.json["features"]["is_ina_active"] == true);
  CHECK(regime.name.find(" / INA sharp / ") != std::string::npos);
  auto declared = nccl;
  declared.declared_aggregation = "switchml";
  const auto roce = FixtureTree("roce").facts();
  regime = derive_regime({roce, roce}, declared);
  CHECK(regime.json["ingredients"]["ina"] == "declared:switchml");
  CHECK(regime.json["evidence"]["ina"] == "declared, not detected");
  auto switched = FixtureTree("nvswitch").facts();
  CHECK(derive_regime({switched, switched}, nccl).json["ingredients"]["ina"] == "none");
  switched["aggregation"]["nvls_setting"] = "default";
  CHECK(derive_regime({switched, switched}, nccl).json["ingredients"]["ina"] == "nvls-possible");
}

TEST_CASE("a shaped link is part of the regime and marked as declared") {
  const auto facts = FixtureTree("docker-container").facts();
  auto context = with(Backend::gloo, "0.5");
  context.declared_link_bits_per_s = 300e6;
  const auto regime = derive_regime({facts, other_container(facts, 3)}, context);
  CHECK(regime.json["ingredients"]["inter_tier"] == "shaped-300Mbit/s");
  CHECK(regime.json["evidence"]["inter_tier"].get<std::string>().starts_with("declared"));
}

TEST_CASE("nodes of one NVLink fabric are joined by it, others by their network", "[B-16][E-39]") {
  const auto node = [](const char* boot_id, const char* cluster, int clique) {
    auto facts = FixtureTree("nvswitch").facts();
    facts["system"]["boot_id"] = boot_id;
    for (auto& device : facts["gpu"]["nvml"]["devices"])
      device["fabric"] = {
          {"ready", true}, {"multi_node", true}, {"cluster", cluster}, {"clique", clique}};
    return facts;
  };
  const auto nccl = with(Backend::nccl, "2.28.9");
  const auto link = [](const std::vector<json>& facts, const RegimeContext& context) {
    return derive_regime(facts, context).json["ingredients"]["inter_link"];
  };
  const auto joined = derive_regime({node("a", "one", 1), node("b", "one", 1)}, nccl);
  CHECK(joined.json["ingredients"]["inter_link"] == "nvswitch");
  CHECK(joined.json["ingredients"]["inter_tier"] == "3824Gb/s");  // 18 links of 26562 MB/s
  CHECK(link_tier(joined.json, 2) == 1);
  CHECK(link({node("a", "one", 1), node("b", "one", 2)}, nccl) != "nvswitch");
  CHECK(link({node("a", "one", 1), node("b", "two", 1)}, nccl) != "nvswitch");
  CHECK(link({node("a", "one", 1), node("a", "one", 1)}, nccl) != "nvswitch");
  CHECK(link({node("a", "one", 1), node("b", "one", 1)}, with(Backend::gloo, "0.5")) != "nvswitch");
  auto off = node("b", "one", 1);
  off["environment"]["variables"]["NCCL_MNNVL_ENABLE"] = "0";
  CHECK(link({node("a", "one", 1), off}, nccl) != "nvswitch");
  const auto plain = FixtureTree("nvswitch").facts();
  auto other = plain;
  other["system"]["boot_id"] = "b";
  CHECK(link({plain, other}, nccl) != "nvswitch");
}

TEST_CASE("a flat interconnect is told from stated rates alone", "[B-29]") {
  const auto plain = FixtureTree("pcie-only").facts();
  auto context = with(Backend::nccl, "2.28.9");
  context.declared_link_bits_per_s = 100e9;
  // PCIe 3.0 x16 carries 15.75 GB/s, the link 12.5 GB/s.
  const auto flat = derive_regime({plain, plain}, context).json["features"];
  CHECK(flat["intra_bytes_per_s"].get<double>() > 15.7e9);
  CHECK(flat["intra_bytes_per_s"].get<double>() < 15.8e9);
  CHECK(flat["inter_bytes_per_s"] == 12.5e9);
  CHECK(flat["is_flat_interconnect"] == true);
  auto idle = plain;  // a card that saves power shows a lower generation
  idle["gpu"]["devices"][0]["pcie_generation"] = 1;
  CHECK(derive_regime({plain, idle}, context).json["features"]["is_flat_interconnect"].is_null());

  const auto switched = FixtureTree("nvswitch").facts();
  const auto steep =
      derive_regime({switched, switched}, with(Backend::nccl, "2.28.9")).json["features"];
  CHECK(steep["intra_bytes_per_s"] == 18 * 26562e6);
  CHECK(steep["is_flat_interconnect"] == false);
  CHECK(steep["intra_over_inter"].get<double>() > 38);

  // Shared memory states no rate, a veth claims one that it does not have.
  const auto roce = FixtureTree("roce").facts();
  const auto shm = derive_regime({roce, roce}, with(Backend::gloo, "0.5")).json["features"];
  CHECK(shm["intra_bytes_per_s"].is_null());
  CHECK(shm["inter_bytes_per_s"] == 12.5e9);
  CHECK(shm["is_flat_interconnect"].is_null());
  for (const char* tier : {"virtual", "unknown", "none", "mixed", "GbE", "xGbE", "-1GbE", ""})
    CHECK_FALSE(inter_rate(tier));
  CHECK(inter_rate("2.5GbE")->bytes_per_s == 312.5e6);
  CHECK(inter_rate("shaped-300Mbit/s")->bytes_per_s == 37.5e6);
  CHECK(inter_rate("400Gb/s")->bytes_per_s == 50e9);
}

TEST_CASE("without usable facts the regime says unknown and nothing throws") {
  for (const auto& facts :
       std::vector<std::vector<json>>{{}, {nullptr}, {7, "x"}, {json::object()}}) {
    const auto regime = derive_regime(facts, {});
    CHECK(regime.json["ingredients"]["boundary"] == "unknown");
    CHECK(regime.json["ingredients"]["intra_link"] == "unknown");
    CHECK(regime.name.find("unknown") != std::string::npos);
  }
}

TEST_CASE("a look-up finds the equal regime, else the nearest, and says which") {
  const auto facts = FixtureTree("docker-container").facts();
  const auto cross =
      derive_regime({facts, other_container(facts, 1)}, with(Backend::openmpi, "4.1.4"));
  const auto single = derive_regime({facts, facts}, with(Backend::openmpi, "4.1.4"));
  const auto mpich =
      derive_regime({facts, other_container(facts, 1)}, with(Backend::mpich, "4.0.2"));
  CHECK_FALSE(match_regime(cross.json, {}));
  const auto exact = match_regime(cross.json, {single.json, cross.json});
  REQUIRE(exact);
  CHECK(exact->index == 1);
  CHECK(exact->exact);
  CHECK(exact->text == "exact");
  auto shaped_context = with(Backend::openmpi, "4.1.4");
  shaped_context.declared_link_bits_per_s = 1e9;
  const auto shaped = derive_regime({facts, other_container(facts, 1)}, shaped_context);
  const auto nearest = match_regime(shaped.json, {single.json, mpich.json, cross.json});
  REQUIRE(nearest);
  CHECK(nearest->index == 2);
  CHECK_FALSE(nearest->exact);
  CHECK(nearest->text == "nearest: differs in inter_tier (virtual, wanted shaped-1000Mbit/s)");
  // One difference each: another library is further away than another link tier.
  const auto tie = match_regime(cross.json, {mpich.json, shaped.json});
  CHECK(tie->index == 1);
}

TEST_CASE("the tier of the farthest pair follows from the links", "[E-41][F-06]") {
  const auto tier = [](const char* inside, const char* outside, const char* rated, int nodes) {
    return link_tier(
        {{"ingredients", {{"intra_link", inside}, {"inter_link", outside}, {"inter_tier", rated}}}},
        nodes);
  };
  CHECK(tier("nvlink", "infiniband", "400Gb/s", 1) == 1);
  CHECK(tier("shm", "tcp", "virtual", 1) == 1);
  CHECK(tier("pcie", "tcp", "100GbE", 1) == 2);
  CHECK(tier("none", "tcp", "virtual", 1) == 2);
  CHECK(tier("nvlink", "infiniband", "400Gb/s", 2) == 2);
  CHECK(tier("nvlink", "roce-v2", "25Gb/s", 2) == 3);
  CHECK(tier("shm", "tcp", "25GbE", 2) == 3);
  CHECK(tier("shm", "tcp", "10GbE", 2) == 4);
  CHECK(tier("none", "tcp", "shaped-300Mbit/s", 1) == 4);
  CHECK(tier("none", "tcp", "shaped-25000Mbit/s", 1) == 3);
  // A cap on the containers' links is none for ranks that share memory.
  CHECK(tier("shm", "tcp", "shaped-300Mbit/s", 1) == 1);
  CHECK_FALSE(tier("unknown", "tcp", "virtual", 1));
  CHECK_FALSE(tier("shm", "mixed", "mixed", 2));
  for (const char* damaged : {"null", "[]", "{\"ingredients\": 3}", "{\"ingredients\": {}}"})
    CHECK_FALSE(link_tier(json::parse(damaged), 1));
}
