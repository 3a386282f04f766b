#include "core/vocabulary/text.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace dynamiccl;

TEST_CASE("the nearest known word is offered, a far one is not") {
  CHECK(nearest_word("glo", {"gloo", "nccl"}) == "gloo");
  CHECK(nearest_word("zebra", {"gloo", "nccl"}).empty());
  CHECK(nearest_word("TopK", {"qsgd", "top-k"}) == "top-k");
  CHECK(nearest_word("NCCL", {"gloo", "nccl"}) == "nccl");
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("two neighbouring letters in the wrong order are one mistake") {
  CHECK(edit_distance("ab", "ba") == 1);
  CHECK(edit_distance("golo", "gloo") == 1);
  CHECK(edit_distance("mpcih", "mpich") == 1);
  CHECK(edit_distance("", "ab") == 2);
  CHECK(nearest_word("golo", {"gloo", "nccl"}) == "gloo");
  CHECK(nearest_word("mpchi", {"openmpi", "mpich", "nccl"}) == "mpich");
  CHECK(nearest_word("nncl", {"gloo", "nccl"}) == "nccl");
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
