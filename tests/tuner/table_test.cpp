#include "tuner/table/table.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

TableEntry entry_for(const std::string& key, const std::string& algorithm,
                     const std::string& regime = "aaaa") {
  TableEntry entry;
  entry.key = {regime, TaskKey::parse(key)};
  entry.size = entry.key.task.bin.first();
  entry.setting.algorithm = algorithm;
  entry.setting.call_knobs["segment"] = "8192";
  entry.setting.launch_knobs["env.X"] = "1";
  entry.arm = algorithm;
  entry.flags = {"lossless_saturated"};
  entry.evidence = {10, 5, "ring", 0.5, 0.4, 0.6, 7, "FASTER"};
  return entry;
}

ConfigurationTable sample() {
  ConfigurationTable table;
  table.epoch = 3;
  table.provenance = {{"agent", "bandit"}};
  table.put_regime({"aaaa", "bare", {{"ingredients", {{"intra_link", "shm"}}}}});
  table.put_regime({"bbbb", "cross", {{"ingredients", {{"intra_link", "none"}}}}});
  table.put(entry_for("openmpi/ring/allreduce/2^20/r2n1", "ring"));
  table.put(entry_for("openmpi/ring/allreduce/2^10/r2n1", "recursive_doubling"));
  table.put(entry_for("openmpi/ring/allreduce/2^21/r4n1", "rabenseifner"));
  return table;
}

RegimeKey key(const std::string& text, const std::string& regime = "aaaa") {
  return {regime, TaskKey::parse(text)};
}

}  // namespace

TEST_CASE("a configuration table survives its file") {
  const auto path = std::filesystem::temp_directory_path() / "dynamiccl_table_test.json";
  write_table(sample(), path.string());
  CHECK(read_table(path.string()) == sample());
  std::filesystem::remove(path);
  CHECK_THROWS_WITH(read_table(path.string()), ContainsSubstring("dynamiccl tune"));
  CHECK_THROWS_WITH(write_table(sample(), "/no/such/folder/t.json"),
                    ContainsSubstring("cannot be written"));
}

TEST_CASE("a torn, changed or foreign table is refused") {
  const std::string text = to_json(sample());
  for (std::size_t length = 0; length + 2 < text.size(); length += 97)
    CHECK_THROWS_AS(table_from_json(text.substr(0, length), "t"), Error);
  std::string changed = text;
  changed.replace(changed.find("rabenseifner"), 12, "recursivexxx");
  CHECK_THROWS_WITH(table_from_json(changed, "t"), ContainsSubstring("digest"));
  std::string newer = text;
  newer.replace(newer.find("\"version\": 1"), 12, "\"version\": 9");
  CHECK_THROWS_WITH(table_from_json(newer, "t"), ContainsSubstring("has version 9"));
  CHECK_THROWS_WITH(table_from_json("{}", "t"), ContainsSubstring("no whole configuration table"));
}

TEST_CASE("a second row for a key replaces the first and rows stay sorted") {
  ConfigurationTable table = sample();
  table.put(entry_for("openmpi/ring/allreduce/2^20/r2n1", "segmented_ring"));
  REQUIRE(table.entries.size() == 3);
  CHECK(table.entries[0].key < table.entries[1].key);
  CHECK(table.entries[1].key < table.entries[2].key);
  CHECK(find_entry(table, key("openmpi/ring/allreduce/2^20/r2n1"))->entry->setting.algorithm ==
        "segmented_ring");
}

TEST_CASE("look-up falls back to the nearest row of the same regime and says so", "[E-128]") {
  const ConfigurationTable table = sample();
  const auto exact = find_entry(table, key("openmpi/ring/allreduce/2^20/r2n1"));
  REQUIRE(exact);
  CHECK(exact->exact);
  CHECK(exact->text == "exact");
  // The group size goes before the size.
  const auto near = find_entry(table, key("openmpi/ring/allreduce/2^21/r2n1"));
  REQUIRE(near);
  CHECK_FALSE(near->exact);
  CHECK(near->entry->setting.algorithm == "ring");
  CHECK_THAT(near->text, ContainsSubstring("2^20"));
  CHECK_FALSE(find_entry(table, key("mpich/ring/allreduce/2^20/r2n1")));
  CHECK_FALSE(find_entry(table, key("openmpi/ring/broadcast/2^20/r2n1")));
  CHECK_FALSE(find_entry(table, key("openmpi/ring/allreduce/2^20/r2n1", "bbbb")));
}

TEST_CASE("the nearest regime of a table is found by what differs least") {
  Regime detected;
  detected.id = "bbbb";
  CHECK(nearest_regime(sample(), detected)->exact);
  detected.id = "cccc";
  detected.json = {{"ingredients", {{"intra_link", "none"}}}};
  const auto match = nearest_regime(sample(), detected);
  REQUIRE(match);
  CHECK(match->index == 1);
  CHECK_FALSE(nearest_regime(ConfigurationTable{}, detected));
}
