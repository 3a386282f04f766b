#include "core/vocabulary/units.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"

using namespace dynamiccl;

TEST_CASE("sizes are read with binary and decimal suffixes", "[A-54]") {
  CHECK(parse_bytes("8").count() == 8);
  CHECK(parse_bytes("4B").count() == 4);
  CHECK(parse_bytes("64KiB").count() == 65536);
  CHECK(parse_bytes("64 K").count() == 65536);
  CHECK(parse_bytes("1MB").count() == 1000000);
  CHECK(parse_bytes("0.5KiB").count() == 512);
  CHECK(parse_bytes("1GiB").count() == 1073741824);
}

TEST_CASE("what is no size is refused with an example") {
  for (const char* text : {"", "x", "-4", "4 apples", "1.5B", "1e30GiB", "nan"}) {
    CHECK_THROWS_AS(parse_bytes(text), Error);
  }
  CHECK_THROWS_WITH(parse_bytes("4 apples"), Catch::Matchers::ContainsSubstring("64KiB"));
  for (const char* text : {"16EiB", "1T", "2 PiB"})
    CHECK_THROWS_WITH(parse_bytes(text), Catch::Matchers::ContainsSubstring("1024GiB"));
}

TEST_CASE("sizes are printed in the largest exact unit") {
  CHECK(format_bytes(Bytes(4)) == "4 B");
  CHECK(format_bytes(Bytes(65536)) == "64 KiB");
  CHECK(format_bytes(Bytes(1000000)) == "1000000 B");
  CHECK(format_bytes(Bytes(1ULL << 30)) == "1 GiB");
}

TEST_CASE("times are printed with three digits and a unit") {
  CHECK(format_micros(Micros(0.123)) == "0.12 us");
  CHECK(format_micros(Micros(12.34)) == "12.3 us");
  CHECK(format_micros(Micros(4567)) == "4.57 ms");
  CHECK(format_micros(Micros(7.5e6)) == "7.50 s");
}

TEST_CASE("durations are read; a bare number is seconds") {
  CHECK(parse_duration("250us").count() == 250);
  CHECK(parse_duration("2").count() == 2e6);
  CHECK(parse_duration("3m").seconds() == 180);
  CHECK_THROWS_AS(parse_duration("soon"), Error);
}
