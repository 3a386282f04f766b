#include "profiles/strict_toml.hpp"

#include <catch2/catch_test_macros.hpp>
#include <functional>

using namespace dynamiccl;

namespace {
std::string message_of(const std::string& text, const std::function<void(StrictTable&)>& read) {
  const toml::table table = parse_toml(text, "a.toml");
  StrictTable keys(table, "a.toml", "the test");
  try {
    read(keys);
    keys.finish();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "";
}
}  // namespace

TEST_CASE("values of the asked type and range are returned, absent keys are nullopt") {
  const toml::table table = parse_toml(
      "t = \"x\"\nb = true\ni = 3\nd = 1.5\ns = \"64KiB\"\nn = 512\nl = [\"a\", \"b\"]\n[sub]\nk = "
      "1\n",
      "a.toml");
  StrictTable keys(table, "a.toml", "the test");
  CHECK(keys.text("t") == "x");
  CHECK(keys.boolean("b") == true);
  CHECK(keys.integer("i", 0, 9) == 3);
  CHECK(keys.number("d", 0, 9) == 1.5);
  CHECK(keys.number("i", 0, 9) == 3.0);
  CHECK(keys.size("s") == Bytes(65536));
  CHECK(keys.size("n") == Bytes(512));
  CHECK(keys.texts("l") == std::vector<std::string>{"a", "b"});
  CHECK(keys.table("sub")->integer("k", 0, 9) == 1);
  CHECK(keys.text("absent") == std::nullopt);
  CHECK_NOTHROW(keys.finish());
}

TEST_CASE("a wrong key, type or range names file, line, column and what was expected") {
  struct Case {
    const char* text;
    std::function<void(StrictTable&)> read;
    const char* expected;
  };
  const Case cases[] = {
      {"warmup = 1\nwarmpu = 2\n", [](StrictTable& k) { k.integer("warmup", 0, 9); },
       "a.toml:2:1: unknown key \"warmpu\" in the test; known: warmup. Did you mean \"warmup\"?"},
      {"\n  n = \"2\"\n", [](StrictTable& k) { k.integer("n", 0, 9); },
       "a.toml:2:7: \"n\" in the test must be an integer, not a string"},
      {"n = 12\n", [](StrictTable& k) { k.integer("n", 0, 9); },
       "a.toml:1:5: \"n\" in the test is 12, outside 0..9"},
      {"n = nan\n", [](StrictTable& k) { k.number("n", 0, 9); },
       "a.toml:1:5: \"n\" in the test is nan, outside 0..9"},
      {"l = [\"a\", 2]\n", [](StrictTable& k) { k.texts("l"); },
       "a.toml:1:11: \"l\" in the test must hold strings only, not an integer"},
      {"e = \"open-mpi\"\n", [](StrictTable& k) { k.named<Backend>("e"); },
       "a.toml:1:5: unknown backend \"open-mpi\"; known: openmpi, mpich, cuda-aware-mpi, gloo, "
       "nccl. "
       "Did you mean \"openmpi\"?"},
      {"[t]\n[[t.x]]\n", [](StrictTable& k) { k.tables("t"); },
       "a.toml:1:1: \"t\" in the test must be an array of tables, not a table"},
      {"s = -1\n", [](StrictTable& k) { k.size("s"); },
       "a.toml:1:5: \"s\" in the test is negative"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    CHECK(message_of(c.text, c.read) == c.expected);
  }
}

TEST_CASE("text that is no TOML names the line and column of the damage") {
  try {
    parse_toml("a = 1\nb = [1,\n", "bad.toml");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).starts_with("bad.toml:"));
  }
}

TEST_CASE("a key or header of endless parts is refused with its place") {
  std::string deep = "a";
  for (int i = 0; i < 20'000; ++i) deep += i % 2 == 0 ? ".a" : ".\"a\"";
  for (const std::string& text :
       {deep + " = 1", "[" + deep + "]", "x = { y = 1, " + deep + " = 1 }",
        "x = [{a = \"\"\"q\"\"\"\"\", " + deep + " = 1}]"}) {
    try {
      parse_toml("z = 1 # " + std::string(50, '.') + "\n" + text, "deep.toml");
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(std::string(error.what()).starts_with("deep.toml:2:"));
      CHECK(std::string(error.what())
                .ends_with(": a key of more than 16 parts; none that is known has so many"));
    }
  }
}

TEST_CASE("dots in texts, comments and numbers are no parts of a key") {
  const std::string dots(50, '.');
  const auto table =
      parse_toml("a = \"" + dots + "\" # " + dots + "\nb = '" + dots + "\\'\n" + "c = \"\"\"\n" +
                     dots + "\"\\\"" + dots + "\"\"\"\nd = [" +
                     "1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, " +
                     "1.5, 1.5, 1.5, 1.5, 1.5, 1.5]\n[a1.b.c.d.e.f.g.h]\ni.j.k = 1\n",
                 "x.toml");
  CHECK(table["a"].value<std::string>() == dots);
  CHECK(table["b"].value<std::string>() == dots + "\\");
  CHECK(table["d"].as_array()->size() == 18);
}

TEST_CASE("a file that is not there is an input error that names it") {
  CHECK_THROWS_AS(read_input_file("/nonexistent/x.toml"), Error);
}
