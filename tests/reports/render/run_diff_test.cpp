#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "reports/model/leaf_difference.hpp"
#include "reports/render/render.hpp"
#include "reports/render/run_diff.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

TEST_CASE("documents are compared leaf by leaf, named lists by name") {
  const json a{{"cpu", {{"model", "EPYC"}, {"cores", 2}}},
               {"loaded", {{{"name", "mpi"}, {"build", "1"}}, {{"name", "libc"}, {"build", "7"}}}},
               {"flags", {1, 2}}};
  const json b{{"cpu", {{"model", "Xeon"}, {"cores", 2}}},
               {"loaded", {{{"name", "libc"}, {"build", "7"}}, {{"name", "mpi"}, {"build", "2"}}}},
               {"flags", {1, 3}},
               {"new", true}};
  const auto differences = leaf_differences(a, b);
  REQUIRE(differences.size() == 4);
  CHECK(differences[0].what == "cpu.model");
  CHECK(differences[0].a == "EPYC");
  CHECK(differences[0].b == "Xeon");
  CHECK(differences[1].what == "flags");
  CHECK(differences[2].what == "loaded.mpi.build");
  CHECK(differences[3].what == "new");
  CHECK(differences[3].a == "-");
  CHECK(leaf_differences(a, a).empty());
}

TEST_CASE("what passes on an unchanged machine is no difference") {
  const json a{{"memory", {{"available_bytes", 1}, {"total_bytes", 8}}},
               {"cgroup", {{"nr_throttled", 0}}},
               {"cpu", {{"unknown", {{"boost", "no file"}}}}},
               {"network", {{"interfaces", {{{"name", "veth12"}, {"mtu", 1}}}}}}};
  const json b{{"memory", {{"available_bytes", 2}, {"total_bytes", 16}}},
               {"cgroup", {{"nr_throttled", 9}}},
               {"cpu", {{"unknown", {{"boost", "other"}}}}},
               {"network", {{"interfaces", {{{"name", "veth34"}, {"mtu", 1}}}}}}};
  const auto differences = without_passing(leaf_differences(a, b));
  REQUIRE(differences.size() == 1);
  CHECK(differences[0].what == "memory.total_bytes");
}

TEST_CASE("two runs are set side by side: what differs, then the figures") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  for (const int number : {1, 2}) {
    auto plan = make_plan(number == 1 ? "run-1" : "other-2", {"bare-metal"}, {"allreduce"}, {1024});
    plan.run.protocol_json = number == 1 ? R"({"warmup":10})" : R"({"warmup":20})";
    plan.run.host_json =
        number == 1 ? R"({"cpu":{"model":"EPYC"}})" : R"({"cpu":{"model":"Xeon"}})";
    plan.run.spec_text = number == 1 ? "a\nb\nc" : "a\nB\nc";
    store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < 3; ++block) {
      store_launch(store, plan, plan.groups[0], block,
                   [&](const CellInfo&, int, int) { return number * (10.0 + 0.01 * block); });
    }
  }
  const Reader reader(folder.file("a.sqlite"));
  const auto text = render_run_diff(reader, "last~1", "last", OutputFormat::text);
  CHECK_THAT(text, ContainsSubstring("A run-1") && ContainsSubstring("B other-2"));
  CHECK_THAT(text, ContainsSubstring("warmup") && ContainsSubstring("cpu.model"));
  CHECK_THAT(text, ContainsSubstring("file line 2"));
  CHECK_THAT(text, ContainsSubstring("2.00"));
  const auto document =
      json::parse(render_run_diff(reader, "run-1", "other-2", OutputFormat::json));
  REQUIRE(document["figures"].size() == 1);
  CHECK(document["figures"][0]["A_us"] == 10.01);
  CHECK(document["figures"][0]["launches_B"] == 3);
  CHECK(document["cells_only_in_a"] == 0);
  const auto same = render_run_diff(reader, "last", "last", OutputFormat::text);
  CHECK_THAT(same, ContainsSubstring("nothing that is recorded differs"));
}
