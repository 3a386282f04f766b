#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "reports/humanise.hpp"
#include "reports/reports.hpp"

using namespace dynamiccl;

TEST_CASE("CSV quotes commas, quotes and line ends as RFC 4180 says") {
  const Table table{{"name", "a,b"},
                    {{std::string("plain"), std::int64_t{7}},
                     {std::string("say \"no\", twice"), 0.1},
                     {std::string("two\nlines"), std::monostate{}}}};
  CHECK(render_table(table, OutputFormat::csv) ==
        "name,\"a,b\"\r\n"
        "plain,7\r\n"
        "\"say \"\"no\"\", twice\",0.1\r\n"
        "\"two\nlines\",\r\n");
}

TEST_CASE("JSON keeps types, order and NULL, and survives foreign bytes") {
  const Table table{{"b", "a"}, {{std::int64_t{1}, std::monostate{}}, {2.5, std::string("\xff")}}};
  const auto text = render_table(table, OutputFormat::json);
  const auto list = nlohmann::ordered_json::parse(text);
  CHECK(list.size() == 2);
  CHECK(list[0]["b"] == 1);
  CHECK(list[0]["a"].is_null());
  CHECK(list[0].begin().key() == "b");
  CHECK(list[1]["b"] == 2.5);
  CHECK(render_table(Table{{"a"}, {}}, OutputFormat::json) == "[]\n");
}

TEST_CASE("text aligns numbers right, gives units and joins intervals") {
  const Table table{
      {"size_bytes", "who", "median_us", "median_low_us", "median_high_us"},
      {{std::int64_t{4}, std::string("a"), 9.5, 9.0, 10.0},
       {std::int64_t{65536}, std::string("long"), 1234.5, std::monostate{}, std::monostate{}}}};
  CHECK(render_table(table, OutputFormat::text) ==
        "  size  who      median [interval]\n"
        "------  ----  --------------------\n"
        "   4 B  a     9.50 us [9.00, 10.0]\n"
        "64 KiB  long               1.23 ms\n");
}

TEST_CASE("settings that never change leave the rows and are named once") {
  const Table table{{"ranks", "datatype", "x"},
                    {{std::int64_t{2}, std::string("float32"), std::int64_t{1}},
                     {std::int64_t{2}, std::string("float64"), std::int64_t{1}}}};
  const auto human = humanise(table);
  CHECK(human.columns == std::vector<std::string>{"datatype", "x"});
  CHECK(human.held_fixed == "ranks 2");
}

TEST_CASE("Markdown cells cannot break their table") {
  const Table table{{"reason"}, {{std::string("a|b\n<script>")}}};
  CHECK(render_table(table, OutputFormat::markdown) ==
        "| reason |\n|---|\n| a\\|b &lt;script> |\n");
}

TEST_CASE("control characters of a library's message do not reach the terminal") {
  const Table table{{"reason"}, {{std::string("red\x1b[31m\rback")}}};
  CHECK(render_table(table, OutputFormat::text) == "reason\n-------------\nred [31m back\n");
}

TEST_CASE("numbers keep three digits") {
  CHECK(format_number(0) == "0");
  CHECK(format_number(12.345) == "12.3");
  CHECK(format_number(0.012345) == "0.0123");
  CHECK(format_number(-1.5) == "-1.50");
  CHECK(format_bandwidth(1.234e9) == "1.23 GB/s");
  CHECK(format_bandwidth(12) == "12.0 B/s");
}
