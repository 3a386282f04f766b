#include "profiles/strict_toml.hpp"

#include <catch2/catch_test_macros.hpp>

#include "core/vocabulary/error.hpp"

using namespace dynamiccl;

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

TEST_CASE("a header in which no key begins is refused with its line") {
  for (const char* header : {"[#", "[[  #[work]]", "[\nwork]", "[[ \nwork]]", "[=]"}) {
    INFO(header);
    try {
      parse_toml(std::string("a = 1\n\n") + header + "\nb = 1\n[c]\n", "x.toml");
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::input);
      CHECK(std::string(error.what()).starts_with("x.toml:3:"));
    }
  }
}

// Calls that toml++ by itself answers with __builtin_unreachable(), which no constant may reach.
static_assert(!toml::impl::is_non_ascii_horizontal_whitespace(U'\u00E9'));
static_assert(!toml::impl::is_non_ascii_horizontal_whitespace(U'\u0499'));
static_assert(!toml::impl::is_non_ascii_horizontal_whitespace(U'\u3001'));
static_assert(!toml::impl::is_non_ascii_horizontal_whitespace(U'\uFEFD'));
static_assert(toml::impl::is_non_ascii_horizontal_whitespace(U'\u00A0'));
static_assert(toml::impl::is_non_ascii_horizontal_whitespace(U'\u2003'));
static_assert(toml::impl::is_non_ascii_horizontal_whitespace(U'\u3000'));
static_assert(toml::impl::is_non_ascii_horizontal_whitespace(U'\uFEFF'));

TEST_CASE("letters of every script stand in texts and comments, and nowhere else") {
  for (const std::string letter :
       {"\u00E9", "\u0416", "\u3042", "\uFEFD", "\u4E2D", "\U0001F600"}) {
    INFO(letter);
    const auto table = parse_toml("# " + letter + "\na = \"" + letter + "\"\nb = \"\"\"\n" +
                                      letter + " \\\n  " + letter + "\"\"\"\n",
                                  "x.toml");
    CHECK(table["a"].value<std::string>() == letter);
    CHECK(table["b"].value<std::string>() == letter + " " + letter);
    for (const std::string& damaged :
         {letter, "a = 1 " + letter, "a = 1" + letter, "[" + letter + "]",
          "a = [1, " + letter + "]", "a = \"\"\"\\" + letter + "\"\"\"", "a" + letter + " = 1",
          "a = " + letter}) {
      INFO(damaged);
      try {
        parse_toml("z = 1\n" + damaged + "\n", "x.toml");
        FAIL("accepted");
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::input);
        CHECK(std::string(error.what()).starts_with("x.toml:2:"));
      }
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
