#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "core/vocabulary/json.hpp"
#include "reports/render/humanise.hpp"
#include "reports/render/render.hpp"
#include "reports/render/report.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

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

TEST_CASE("a text of megabytes is broken into a narrow table in time that grows with its length") {
  std::string text;
  while (text.size() < 8'000'000) text += "\x1b]0;x\x07 ";
  const Table table{{"name", "note", "id"}, {{text, text, std::int64_t{1}}}};
  const auto shown = render_table(table, OutputFormat::text, {}, 80);
  CHECK(shown.find('\x1b') == std::string::npos);
  std::size_t widest = 0;
  for (std::size_t at = 0; at < shown.size();) {
    const auto end = shown.find('\n', at);
    widest = std::max(widest, end - at);
    at = end + 1;
  }
  CHECK(widest == 80);
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

TEST_CASE("where a bound of an interval has another unit, each has its own") {
  const Table times{{"t_us", "t_low_us", "t_high_us"},
                    {{3680.0, 60.4, 52300.0}, {3680.0, 60.4, 9000.0}, {3680.0, 2000.0, 52300.0}}};
  const auto columns = parse_columns(
      "t_us | us, real, interval | a time\nr_bytes_per_s | bytes_per_s, real, interval | a rate\n"
      "s_bytes | bytes, integer, interval | a size",
      "test");
  const auto human = humanise(times, columns);
  CHECK(human.rows[0][0] == "3.68 ms [60.4 us, 52.3 ms]");
  CHECK(human.rows[1][0] == "3.68 ms [60.4 us, 9.00 ms]");
  CHECK(human.rows[2][0] == "3.68 ms [2.00, 52.3]");
  const Table rates{{"r_bytes_per_s", "r_low_bytes_per_s", "r_high_bytes_per_s"},
                    {{2.72e6, 11.4e3, 94e6}}};
  CHECK(humanise(rates, columns).rows[0][0] == "2.72 MB/s [11.4 kB/s, 94.0 MB/s]");
  const Table sizes{{"s_bytes", "s_low_bytes", "s_high_bytes"},
                    {{std::int64_t{294} << 10, std::int64_t{64} << 10, std::int64_t{4} << 20}}};
  CHECK(humanise(sizes, columns).rows[0][0] == "294 KiB [64 KiB, 4 MiB]");
}

TEST_CASE("sums of bytes are rounded to three digits, sizes of cells stay exact") {
  const auto columns = parse_columns("size_bytes\ntcp_bytes | bytes, integer | by TCP", "test");
  const auto shown = [&](std::int64_t bytes) {
    return humanise(Table{{"size_bytes", "tcp_bytes"}, {{bytes, bytes}}}, columns).rows[0];
  };
  CHECK(shown(619512808) == std::vector<std::string>{"619512808 B", "591 MiB"});
  CHECK(shown(604288 << 10) == std::vector<std::string>{"604288 KiB", "590 MiB"});
  CHECK(shown(1 << 20) == std::vector<std::string>{"1 MiB", "1 MiB"});
  CHECK(shown(0) == std::vector<std::string>{"0 B", "0 B"});
  CHECK(shown(1500) == std::vector<std::string>{"1500 B", "1500 B"});
  CHECK(shown(std::int64_t{3} << 39) == std::vector<std::string>{"1536 GiB", "1.50 TiB"});
}

TEST_CASE("bytes that tell rows apart are exact whatever their column is called") {
  const auto columns = parse_columns(
      "message_bytes | bytes, integer, exact | of each call\ntold_bytes | bytes, integer | a sum",
      "test");
  const std::int64_t near_294_kib = (std::int64_t{294} << 10) + 12;
  CHECK(humanise(Table{{"message_bytes", "told_bytes"}, {{near_294_kib, near_294_kib}}}, columns)
            .rows[0] == std::vector<std::string>{"301068 B", "294 KiB"});
}

TEST_CASE("settings are shown as they are typed, in CSV as they are stored") {
  const auto columns = parse_columns("who | text | x\nsettings | json | y\ncell_knobs", "test");
  const Table table{{"who", "settings", "cell_knobs"},
                    {{std::string("a"), std::string(R"({"batch":"32","model":"cnn"})"),
                      std::string(R"({"depth":2})")},
                     {std::string("b"), std::string("{}"), std::string(R"({"depth":2})")}}};
  const auto human = humanise(table, columns);
  CHECK(human.rows[0][1] == "batch=32 model=cnn");
  CHECK(human.rows[1][1] == "-");
  CHECK(human.held_fixed == "cell knobs depth=2");
  CHECK(render_table(table, OutputFormat::csv).find(R"({""batch"":""32"")") != std::string::npos);
}

TEST_CASE("a unit is what the column says, never what its name looks like") {
  const Table table{{"wait_us"}, {{2500.0}}};
  Column plain;
  plain.name = plain.heading = "wait_us";
  CHECK(humanise(table, {plain}).rows[0][0] == "2500");
  CHECK(humanise(table, parse_columns("wait_us | us, real | a time", "test")).rows[0][0] ==
        "2.50 ms");
}

TEST_CASE("a run's name adds no HTML to its Markdown report") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  plan.run.name = "mine <img src=x>";
  store.begin_run(plan.run, plan.groups, plan.cells);
  const auto report = render_report_markdown(Reader(folder.file("a.sqlite")), "run-1");
  CHECK(report.starts_with("# mine &lt;img src=x>\n"));
}
