#include "core/vocabulary/terminal_lines.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace dynamiccl;
using Lines = std::vector<std::string>;

TEST_CASE("a text is broken between words, else behind a mark, else anywhere") {
  CHECK(broken_lines("one two three", 7) == Lines{"one two", "three"});
  CHECK(broken_lines("one two", 7) == Lines{"one two"});
  CHECK(broken_lines("shm+single-copy/tcp", 12) == Lines{"shm+single-", "copy/tcp"});
  CHECK(broken_lines("abcdefgh", 3) == Lines{"abc", "def", "gh"});
  // No word is torn that has room in a line of its own.
  CHECK(broken_lines("a singularity", 11) == Lines{"a", "singularity"});
  CHECK(broken_lines("best_architecture", 13) == Lines{"best_", "architecture"});
  CHECK(broken_lines("a singularities", 11) == Lines{"a singulari", "ties"});
  CHECK(broken_lines("abc", 0) == Lines{"a", "b", "c"});
  CHECK(broken_lines("", 5) == Lines{""});
}

TEST_CASE("lines are as long as they look: a letter of several bytes is one column") {
  CHECK(columns_of_text("\u00e4\u20ac1") == 3);
  CHECK(broken_lines("\u00e4\u00f6\u00fc\u20ac", 2) == Lines{"\u00e4\u00f6", "\u00fc\u20ac"});
}

TEST_CASE("the time to break a text grows with its length, and no faster") {
  // With the square of it these would take an hour.
  for (const char* piece : {"a", "a b", "abcde-", "\u00e4"}) {
    std::string text;
    while (text.size() < 8'000'000) text += piece;
    std::size_t bytes = 0;
    for (const auto& line : broken_lines(text, 10)) bytes += line.size();
    CHECK(bytes > text.size() / 2);
  }
}

TEST_CASE("a long line goes on below its last column") {
  const std::string text =
      "Options:\n"
      "  --db TEXT   the file that is read and written\n"
      "a paragraph that is longer than all of the others\n";
  CHECK(broken_text(text, 30) ==
        "Options:\n"
        "  --db TEXT   the file that is\n"
        "              read and written\n"
        "a paragraph that is longer\n"
        "than all of the others\n");
  CHECK(broken_text(text, 0) == text);
  CHECK(broken_text("", 30).empty());
}

TEST_CASE("a last column that has no room goes on from the left") {
  CHECK(broken_text("  a command with some options    what it does", 40) ==
        "  a command with some options    what it\n"
        "    does");
}

TEST_CASE("a command goes on behind a backslash, so that it can be copied") {
  const std::vector<std::string> words{"docker", "exec", "'two words'", "x"};
  CHECK(command_lines("  $ ", words, 20) ==
        "  $ docker exec \\\n"
        "    'two words' x\n");
  CHECK(command_lines("", words, 0) == "docker exec 'two words' x\n");
  CHECK(command_lines("$ ", {"a-word-that-is-longer", "b"}, 10) ==
        "$ a-word-that-is-longer \\\n"
        "  b\n");
}
