#include "core/vocabulary/json.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/vocabulary/json_problem.hpp"
#include "core/vocabulary/parsed_json.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

TEST_CASE("a number of JSON that a type does not hold is no integer of it") {
  for (const char* text : {"1.5", "-0.5", "1e30", "-1e30", "4294967296", "-2147483649", "true",
                           "null", "\"1\"", "[1]", "18446744073709551616", "2147483648.0"}) {
    INFO(text);
    const auto value = json::parse(text);
    CHECK(whole_number<int>(value) == std::nullopt);
    CHECK_THROWS_AS(value.get<int>(), json::exception);
  }
  for (const char* text : {"-1", "-1.0", "18446744073709551616", "129021649070524881561"}) {
    INFO(text);
    CHECK_THROWS_AS(json::parse(text).get<std::uint64_t>(), json::exception);
  }
  // 2^63 as a fraction is the first that is too large, -2^63 the last that is not.
  CHECK_THROWS_AS(json(9223372036854775808.0).get<std::int64_t>(), json::exception);
  CHECK(json(-9223372036854775808.0).get<std::int64_t>() == INT64_MIN);
  CHECK_THROWS_AS(json(std::uint64_t{1} << 63).get<std::int64_t>(), json::exception);
}

TEST_CASE("integers of JSON are read to the last one that their type holds") {
  CHECK(json::parse("18446744073709551615").get<std::uint64_t>() == UINT64_MAX);
  CHECK(json::parse("-9223372036854775808").get<std::int64_t>() == INT64_MIN);
  CHECK(json::parse("-2147483648").get<int>() == INT32_MIN);
  CHECK(json::parse("255").get<std::uint8_t>() == 255);
  CHECK(json::parse("8.0").get<int>() == 8);
  CHECK(json::parse("2e3").get<std::size_t>() == 2000);
  CHECK(json::parse("-0.0").get<unsigned>() == 0);
  CHECK(json::parse("1.5").get<double>() == 1.5);
  CHECK(json::parse("true").get<bool>());
  CHECK(json(std::vector<std::uint64_t>{1, UINT64_MAX}).dump() == "[1,18446744073709551615]");
}

TEST_CASE("every way to an integer of JSON is checked") {
  const auto object = json::parse(R"({"half": 1.5, "list": [1, 1e30], "map": {"a": -1}})");
  CHECK_THROWS_AS(object.value("half", 0), json::exception);
  CHECK(object.value("none", 7) == 7);
  CHECK_THROWS_AS(object.at("list").get<std::vector<long>>(), json::exception);
  CHECK_THROWS_AS((object.at("map").get<std::map<std::string, unsigned>>()), json::exception);
  CHECK_THROWS_AS((object.at("list").get<std::pair<int, int>>()), json::exception);
  int number = 0;
  CHECK_THROWS_AS(object.at("half").get_to(number), json::exception);
  CHECK_THROWS_AS(number = object.at("half"), json::exception);
  const auto ordered = nlohmann::ordered_json::parse("1.5");
  CHECK_THROWS_AS(ordered.get<int>(), json::exception);
}

TEST_CASE("the complaint says what is needed and what is there") {
  CHECK_THROWS_WITH(json::parse("300").get<std::uint8_t>(),
                    ContainsSubstring("a whole number from 0 to 255 is needed, not 300"));
  CHECK_THROWS_WITH(json::parse("{}").get<std::uint8_t>(), ContainsSubstring("not object"));
}

TEST_CASE("what a document lacks is told by its place") {
  const auto told = [](const char* text) {
    try {
      static_cast<void>(json::parse(text).get<std::string>());
    } catch (const json::exception& error) {
      return json_problem(error);
    }
    return std::string("nothing");
  };
  CHECK(told("\"a\"") == "nothing");
  CHECK(told("[1,\n 2,,") == "no JSON from line 2, column 4 on");
  CHECK(told("[1,,") == "no JSON from column 4 on");
  CHECK(told("") == "no JSON from column 1 on");
  CHECK(told("7") == "type must be string, but is number");
}

TEST_CASE("a document may be nested so deep and no deeper", "[safety]") {
  const auto nested = [](int depth, const std::string& inside) {
    const auto levels = static_cast<std::size_t>(depth);
    return std::string(levels, '[') + inside + std::string(levels, ']');
  };
  CHECK(parsed_json(nested(kMostNestedJson, "7")).is_array());
  CHECK(json_or_discarded(nested(kMostNestedJson, "7")).is_array());
  for (const int depth : {kMostNestedJson + 1, 2'000'000}) {
    CHECK_THROWS_WITH(parsed_json(nested(depth, "7")),
                      ContainsSubstring("nested deeper than 256 levels"));
    CHECK(json_or_discarded(nested(depth, "7")).is_discarded());
  }
  // Beside each other they are no levels, and in a text no brackets.
  std::string beside = "[[]";
  for (int i = 0; i < 2 * kMostNestedJson; ++i) beside += ",[{}]";
  CHECK(parsed_json(beside + "]").size() == std::size_t{2} * kMostNestedJson + 1);
  const std::string text = std::string(1000, '[') + R"(\"{\\)";
  CHECK(parsed_json("[\"" + text + "\"]").size() == 1);
  CHECK_THROWS_WITH(parsed_json("[1,,"), ContainsSubstring("column 4"));
}
