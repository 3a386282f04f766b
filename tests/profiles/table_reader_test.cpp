#include "profiles/table_reader.hpp"

#include <catch2/catch_test_macros.hpp>

#include "profiles/strict_toml.hpp"

using namespace dynamiccl;

namespace {

std::string raised(const Mistakes& mistakes) {
  try {
    mistakes.raise();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every wrong value of a table is reported with its place, all at once") {
  const auto table = parse_toml(
      "count = \"many\"\n"
      "flag = 1\n"
      "time = \"soon\"\n"
      "sizes = [\"4B\", \"big\", -1]\n"
      "kind = \"glo\"\n"
      "empty = []\n"
      "colour = 1\n",
      "x.toml");
  Mistakes mistakes("x.toml");
  TableReader reader(table, "", mistakes);
  CHECK_FALSE(reader.integer("count", 1));
  CHECK_FALSE(reader.boolean("flag"));
  CHECK_FALSE(reader.duration("time"));
  CHECK(reader.sizes("sizes") == std::vector<Bytes>{Bytes(4)});
  CHECK(reader.names<Backend>("kind").empty());
  CHECK(reader.texts("empty").empty());
  reader.texts("color");
  reader.finish();
  CHECK(raised(mistakes) ==
        "x.toml:1:9: count: expected a whole number from 1, found the text \"many\"\n"
        "x.toml:2:8: flag: expected true or false, found the number 1\n"
        "x.toml:3:8: time: expected a duration such as \"500ms\" or 2 (seconds), found the text "
        "\"soon\"\n"
        "x.toml:4:16: sizes: expected a size such as \"64KiB\" or 65536, found the text \"big\"\n"
        "x.toml:4:23: sizes: expected a size such as \"64KiB\" or 65536, found the number -1\n"
        "x.toml:5:8: unknown backend \"glo\"; known: openmpi, mpich, cuda-aware-mpi, gloo, nccl. "
        "Did you mean \"gloo\"?\n"
        "x.toml:6:9: empty: the list is empty\n"
        "x.toml:7:1: unknown key \"colour\"; known: color, count, empty, flag, kind, sizes, time. "
        "Did you mean \"color\"?");
}

TEST_CASE("a number above the largest one is told what that is") {
  const auto table = parse_toml("a = 99999999999\nb = [2, 99999999999]\n", "x.toml");
  Mistakes mistakes("x.toml");
  TableReader reader(table, "", mistakes);
  CHECK_FALSE(reader.integer("a", 1));
  reader.integers("b", 1);
  CHECK(raised(mistakes) ==
        "x.toml:1:5: a: expected a whole number 1..2147483647, found the number 99999999999\n"
        "x.toml:2:9: b: expected a whole number 1..2147483647, found the number 99999999999");
}

TEST_CASE("a whole number written with a point is told how to be written") {
  const auto table =
      parse_toml("seed = 1.0\nranks = [2, 4.0]\nhalf = 1.5\nsize = 1024.0\n", "x.toml");
  Mistakes mistakes("x.toml");
  TableReader reader(table, "", mistakes);
  CHECK_FALSE(reader.integer("seed", 0));
  CHECK(reader.integers("ranks", 1) == std::vector<int>{2});
  CHECK_FALSE(reader.integer("half", 0));
  CHECK(reader.sizes("size").empty());
  CHECK(raised(mistakes) ==
        "x.toml:1:8: seed: expected a whole number from 0 without a point, as 1, found the number "
        "1.0\n"
        "x.toml:2:13: ranks: expected a whole number from 1 without a point, as 4, found the "
        "number 4.0\n"
        "x.toml:3:8: half: expected a whole number from 0, found the number 1.5\n"
        "x.toml:4:8: size: expected a size such as \"64KiB\" or 65536, found the number 1024.0");
}

TEST_CASE("control characters are refused in every text, line ends only in one line") {
  const auto table = parse_toml(
      "nul = \"a\\u0000b\"\nescape = [\"a\", \"\\u001b[2J\"]\nline = \"a\\nb\"\n"
      "scalar = [1, \"a\\tb\"]\nlong = \"\"\"a\n\tb\"\"\"\n",
      "x.toml");
  Mistakes mistakes("x.toml");
  TableReader reader(table, "", mistakes);
  CHECK_FALSE(reader.text("nul"));
  CHECK(reader.texts("escape") == std::vector<std::string>{"a"});
  CHECK_FALSE(reader.text("line"));
  CHECK(reader.scalars("scalar") == std::vector<std::string>{"1"});
  CHECK(reader.text("long", Lines::many) == "a\n\tb");
  const std::string rest = ": leave it out, no name or setting has one";
  CHECK(raised(mistakes) ==
        "x.toml:1:7: nul: the text holds the control character U+0000" + rest +
            "\nx.toml:2:16: escape: the text holds the control character U+001B" + rest +
            "\nx.toml:3:8: line: the text holds the control character U+000A" + rest +
            "\nx.toml:4:14: scalar: the text holds the control character U+0009" + rest);
}

TEST_CASE("a duration that no deadline can hold is refused") {
  const auto table = parse_toml(
      "year = \"8784h\"\nlong = \"8785h\"\nmore = 1e300\nendless = inf\nnothing = nan\n"
      "before = -1\n",
      "x.toml");
  Mistakes mistakes("x.toml");
  TableReader reader(table, "", mistakes);
  CHECK(reader.duration("year") == Micros(366.0 * 24 * 3600 * 1e6));
  for (const char* key : {"long", "more", "endless", "nothing", "before"})
    CHECK_FALSE(reader.duration(key));
  CHECK(raised(mistakes) ==
        "x.toml:2:8: long: expected a duration of at most a year, found the text \"8785h\"\n"
        "x.toml:3:8: more: expected a duration of at most a year, found the number 1e+300\n"
        "x.toml:4:11: endless: expected a duration of at most a year, found the number inf\n"
        "x.toml:5:11: nothing: expected a duration such as \"500ms\" or 2 (seconds), found the "
        "number nan\n"
        "x.toml:6:10: before: expected a duration such as \"500ms\" or 2 (seconds), found the "
        "number -1");
}

TEST_CASE("size ranges step by their factor and keep both ends") {
  const auto table =
      parse_toml("size = [{ from = \"4B\", to = \"1KiB\", factor = 4 }, \"1MiB\"]", "x.toml");
  Mistakes mistakes("x.toml");
  TableReader reader(table, "work", mistakes);
  const std::vector<Bytes> expected{Bytes(4),   Bytes(16),   Bytes(64),
                                    Bytes(256), Bytes(1024), Bytes(1 << 20)};
  CHECK(reader.sizes("size") == expected);
  CHECK(mistakes.empty());
}

TEST_CASE("size ranges rise by steps of bytes, too") {
  const auto table = parse_toml(
      "size = { from = \"1MiB\", to = \"4.5MiB\", step = \"1MiB\" }\n"
      "end = { from = 9223372036854775800, to = 9223372036854775807, step = 4 }",
      "x.toml");
  Mistakes mistakes("x.toml");
  TableReader reader(table, "work", mistakes);
  const std::vector<Bytes> expected{Bytes(1 << 20), Bytes(2 << 20), Bytes(3 << 20), Bytes(4 << 20)};
  CHECK(reader.sizes("size") == expected);
  CHECK(reader.sizes("end").size() == 2);
  CHECK(mistakes.empty());
}

TEST_CASE("a size range up to the largest size ends") {
  const auto table =
      parse_toml("size = { from = 1, to = 9223372036854775807, factor = 2 }", "x.toml");
  Mistakes mistakes("x.toml");
  TableReader reader(table, "work", mistakes);
  CHECK(reader.sizes("size").size() == 63);
}

TEST_CASE("overrides reach nested keys, lists and new tables, and bare words are text") {
  auto table = parse_toml("[protocol]\niterations = 100\n[[work]]\nsize = 4\n", "x.toml");
  apply_overrides(table, {"protocol.iterations=5", "axes.backend=gloo", "work.0.size=[8, 16]",
                          "axes.environment=[\"a\", \"b\"]"});
  CHECK(table["protocol"]["iterations"].value<int>() == 5);
  CHECK(table["axes"]["backend"].value<std::string>() == "gloo");
  CHECK(table["axes"]["environment"].as_array()->size() == 2);
  CHECK(table["work"][0]["size"][1].value<int>() == 16);
}

TEST_CASE("an override of endless parts is refused before anything walks it") {
  std::string deep = "a";
  for (int i = 0; i < 20'000; ++i) deep += ".a";
  auto table = parse_toml("x = 1\n", "x.toml");
  for (const std::string& text : {deep + "=1", "x={" + deep + "=1}"}) {
    try {
      apply_overrides(table, {text});
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(std::string(error.what()).starts_with("--set "));
      CHECK(std::string(error.what())
                .ends_with("...: a key of more than 16 parts; none that is known has so many"));
    }
  }
  apply_overrides(table, {"x=1.5", "y=" + std::string(15, 'b') + ".c"});
  CHECK(table["x"].value<double>() == 1.5);
}

TEST_CASE("a wrong override is named as the user wrote it") {
  auto table = parse_toml("[[work]]\nsize = 4\n", "x.toml");
  const auto message = [&](const std::string& text) -> std::string {
    try {
      apply_overrides(table, {text});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message("iterations") ==
        "--set iterations: expected key=value, as in --set protocol.iterations=50");
  CHECK(message("work.7.size=4") ==
        "--set work.7.size=4: expected an index 0..0 and a key, as in work.0.size");
  apply_overrides(table, {"count=many"});
  Mistakes mistakes("x.toml");
  TableReader reader(table, "", mistakes);
  reader.integer("count", 0);
  CHECK(raised(mistakes) ==
        "--set count=many: count: expected a whole number from 0, found the text \"many\"");
}
