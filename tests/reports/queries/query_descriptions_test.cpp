#include <SQLiteCpp/SQLiteCpp.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "reports/model/column.hpp"
#include "reports/queries/registry.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

TEST_CASE("a query's description is told to its end, however many lines its file gives it") {
  const auto described = [](const std::string& name) { return query_named(name).row; };
  CHECK_THAT(described("architecture"), ContainsSubstring("is expected to be the highest from") &&
                                            EndsWith("and the best that was measured"));
  CHECK_THAT(described("training"), EndsWith("what was expected"));
  // A line that goes on is indented; what follows at the margin is a remark of its own.
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(DYNAMICCL_SOURCE_DIR "/reports/queries")) {
    if (file.path().extension() != ".sql") continue;
    INFO(file.path());
    std::ifstream text(file.path());
    std::string line;
    bool row = false;
    while (std::getline(text, line) && line.starts_with("--")) {
      if (row && !line.starts_with("--   ")) {
        const auto word = line.substr(3, line.find(' ', 3) - 3);
        CHECK((std::isupper(static_cast<unsigned char>(line[3])) != 0 || word.ends_with(":")));
        break;
      }
      row = row || line.starts_with("-- row: ");
    }
  }
}

TEST_CASE("every query is of a theme and every column has a meaning, a type and its own name") {
  std::set<std::string> names;
  for (const auto& query : all_queries()) {
    INFO(query.name);
    CHECK(names.insert(query.name).second);
    const auto& themes = query_themes();
    CHECK(std::any_of(themes.begin(), themes.end(),
                      [&](const auto& theme) { return theme.folder == query.theme; }));
    const auto columns = parse_columns(query.columns, query.name);
    CHECK_FALSE(columns.empty());
    std::set<std::string> own;
    for (const auto& column : columns) {
      INFO(column.name);
      CHECK(own.insert(column.name).second);
      CHECK_FALSE(column.meaning.empty());
    }
    const int ways = (query.of_figures != nullptr) + (query.of_runs != nullptr) +
                     (query.of_database != nullptr) + (query.sql.empty() ? 0 : 1);
    CHECK(ways == 1);
  }
}

TEST_CASE("a query's table has the columns that it writes down") {
  const ScratchFolder folder;
  const Store store(folder.file("a.sqlite"));
  const Reader reader(folder.file("a.sqlite"));
  QueryScope scope;
  scope.all_runs = true;
  for (const auto& query : all_queries()) {
    if (query.takes_vary) continue;  // columns depend on the axis and on what was measured
    INFO(query.name);
    auto written = empty_table(query.columns).columns;
    std::erase(written, "run_id");
    auto made = named_query(reader, query.name, scope).columns;
    std::erase(made, "run_id");
    CHECK(made == written);
  }
}

TEST_CASE("every query answers the same of a file whose views an earlier build made") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  {
    Store store(path);
    TrainingFigures figures;
    figures.role = "worker";
    store_training(
        store,
        {{{"bsp-a2a", R"({"model":"mlp","batch":"8"})"},
          {"dear", R"({"model":"mlp","batch":"8"})"},
          {"bsp-a2a", R"({"model":"mlp","batch":"8","synchronisation":"asp","epochs":"2"})"}},
         {9, 8, 7}},
        figures, 3);
  }
  QueryScope scope;
  scope.all_runs = true;
  const auto answers = [&] {
    const Reader reader(path);
    std::map<std::string, Table> tables;
    for (const auto& query : all_queries())
      if (!query.takes_vary) tables[query.name] = named_query(reader, query.name, scope);
    return tables;
  };
  const auto now = answers();
  REQUIRE(now.size() > 30);
  CHECK_FALSE(now.at("training").rows.empty());
  SQLite::Database(path, SQLite::OPEN_READWRITE)
      .exec(
          "DROP VIEW v_time_to_target; DROP VIEW v_training;"
          "CREATE VIEW v_training AS SELECT id AS measurement_row FROM measurement;"
          "UPDATE meta SET value = 'earlier' WHERE key = 'views_sha256'");
  for (const auto& [name, table] : answers()) {
    INFO(name);
    CHECK(table.columns == now.at(name).columns);
    CHECK(table.rows == now.at(name).rows);
  }
}

TEST_CASE("columns that depend on what was measured have the unit of the column for all values") {
  const Table table{{"run_id", "collective", "gloo_us", "winner"}, {}};
  const auto columns = columns_of("axis", table);
  REQUIRE(columns.size() == 4);
  CHECK(columns[2].unit == Unit::microseconds);
  CHECK(columns[2].heading == "gloo");
  CHECK(columns[1].unit == Unit::none);
  CHECK(columns_of("SELECT 1 AS x_us", Table{{"x_us"}, {}})[0].unit == Unit::none);
}

TEST_CASE("a mistake in a query's columns says where") {
  CHECK_THROWS_WITH(parse_columns("no_such_column", "query x"),
                    ContainsSubstring("query x") && ContainsSubstring("no_such_column"));
  CHECK_THROWS_WITH(parse_columns("a | parsec, real | far", "query x"),
                    ContainsSubstring("parsec"));
}

TEST_CASE("the printed page of queries has every query with its columns") {
  const std::string text = queries_markdown();
  for (const auto& query : all_queries()) CHECK(text.find("### `" + query.name + "`") != text.npos);
}
