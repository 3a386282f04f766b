#include "core/text.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace dynamiccl;

TEST_CASE("the nearest known word is offered, a far one is not") {
  CHECK(nearest_word("glo", {"gloo", "nccl"}) == "gloo");
  CHECK(nearest_word("zebra", {"gloo", "nccl"}).empty());
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("arguments are quoted only where a shell needs it") {
  CHECK(shell_quote("--mca") == "--mca");
  CHECK(shell_quote("a b") == "'a b'");
  CHECK(shell_quote("it's") == "'it'\\''s'");
  CHECK(shell_quote("") == "''");
}

TEST_CASE("split keeps empty parts and trim takes blanks") {
  CHECK(split("a,,b", ',') == std::vector<std::string>{"a", "", "b"});
  CHECK(trim("  x \n") == "x");
}
