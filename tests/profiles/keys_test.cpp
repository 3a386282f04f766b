#include "profiles/keys.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "profiles/keys_output.hpp"
#include "profiles/profile_toml.hpp"
#include "profiles/strict_toml.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

const ValueRule kDeep = rule::table(TableKeys{{{"share", rule::number(0, 1), "of it"}}});
const TableKeys kKeys{
    {{"name", rule::filled_text(), "what it is called", "", true},
     {"count", rule::whole(1, 9), "how many", "3"},
     {"kinds", rule::word<Backend>().some(), "which"},
     {"cpus", rule::text_like("^[0-9,-]*$", "CPU numbers as in \"0-3,8\""), ""},
     {"options", rule::text().list(), "may be none"},
     {"buffer", rule::size(0), "0 for none"},
     {"limit", rule::positive_duration(), ""},
     {"deep", kDeep, "more"},
     {"deeper", kDeep, "the same again"},
     {"mine", rule::chosen(rule::scalar().some(), rule::kVariable), "own names"}}};

/// Reads every key of kKeys. @returns the mistakes
std::string read_all(const std::string& text) {
  const auto table = parse_toml(text, "x.toml");
  Mistakes mistakes("x.toml");
  TableReader reader(table, "", mistakes, &kKeys);
  reader.text("name");
  reader.integer("count");
  reader.names<Backend>("kinds");
  reader.text("cpus");
  reader.texts("options");
  reader.size("buffer");
  reader.duration("limit");
  for (const char* key : {"deep", "deeper"})
    if (auto deep = reader.table(key)) {
      deep->number("share");
      deep->finish();
    }
  if (auto mine = reader.table("mine"))
    for (const auto& key : mine->keys()) mine->scalars(key);
  reader.finish();
  try {
    mistakes.raise();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a reader takes its checks from the table of keys") {
  CHECK(read_all(
            "name = \"a\"\ncount = 9\nkinds = \"gloo\"\ncpus = \"0-3\"\noptions = []\n"
            "buffer = 0\nlimit = \"1ms\"\ndeep.share = 1\nmine = {a = 1, b = [\"x\", true]}\n") ==
        "");
  CHECK(
      read_all("cuont = 1\ncount = 10\nkinds = []\ncpus = \"all\"\noptions = \"a\"\nbuffer = -1\n"
               "limit = 0\ndeep.share = 1.5\n") ==
      "x.toml:1:1: unknown key \"cuont\"; known: buffer, count, cpus, deep, deeper, kinds, limit, "
      "mine, name, options. Did you mean \"count\"?\n"
      "x.toml:1:1: the file needs the key name: what it is called\n"
      "x.toml:2:9: count: expected a whole number 1..9, found the number 10\n"
      "x.toml:3:9: kinds: the list is empty\n"
      "x.toml:4:8: cpus: expected CPU numbers as in \"0-3,8\", found the text \"all\"\n"
      "x.toml:5:11: options: expected a list, found the text \"a\"\n"
      "x.toml:6:10: buffer: expected a size such as \"64KiB\" or 65536, found the number -1\n"
      "x.toml:7:9: limit: expected more than 0\n"
      "x.toml:8:14: deep.share: expected a number 0..1, found the number 1.5");
  CHECK(read_all("name = \" \"\n") == "x.toml:1:8: name: the text is empty");
  CHECK_THAT(read_all("name = \"a\"\ncpus = \"" + std::string(100'000, '1') + "\"\n"),
             ContainsSubstring("x.toml:2:8: cpus: expected CPU numbers"));
}

TEST_CASE("a key that the table has and nobody reads is a bug, and so is one read otherwise") {
  const auto table = parse_toml("name = \"a\"\ncount = 1\n", "x.toml");
  Mistakes mistakes("x.toml");
  TableReader unread(table, "", mistakes, &kKeys);
  unread.text("name");
  CHECK_THROWS_AS(unread.finish(), Error);
  TableReader wrong(table, "", mistakes, &kKeys);
  CHECK_THROWS_AS(wrong.text("count"), Error);
  CHECK_THROWS_AS(wrong.text("colour"), Error);
}

TEST_CASE("the schema and the page are printed from the table of keys") {
  const auto schema = json_schema(kKeys);
  CHECK(schema["required"] == nlohmann::ordered_json::array({"name"}));
  CHECK(schema["properties"]["count"].dump() ==
        R"({"type":"integer","minimum":1,"maximum":9,"description":"how many; where absent: 3"})");
  CHECK(schema["properties"]["mine"]["propertyNames"]["pattern"] == rule::kVariable);
  CHECK(schema["additionalProperties"] == false);
  const std::string page = keys_markdown(kKeys, "The file");
  CHECK_THAT(page, ContainsSubstring("| `name` | text | **needed** | what it is called |\n"));
  CHECK_THAT(page, ContainsSubstring("| `count` | whole number 1 to 9 | 3 | how many |\n"));
  CHECK_THAT(page, ContainsSubstring("## [deep], the same for `deeper`\n"));
  CHECK_THAT(page, !ContainsSubstring("## [deeper]"));
  CHECK_THAT(page, ContainsSubstring("Any `NAME`: text, number, true or false; one or a list."));
}

TEST_CASE("every key of a profile is read and checked") {
  for (const Key& key : profile_file_keys().keys) {
    INFO(key.name);
    const std::string rest = key.name == "name" ? "" : "name = \"x\"\n";
    try {
      parse_profile(rest + key.name + " = 1979-05-27\n", "p.toml");
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::input);
      CHECK_THAT(error.what(), ContainsSubstring(key.name + ": expected") &&
                                   ContainsSubstring("found a date or time"));
    }
  }
}
