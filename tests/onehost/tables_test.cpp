// What scripts/gpu_one_host.sh says of what it measured.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <string>

#include "tests/onehost/job.hpp"

using namespace dynamiccl::onehost;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string table_of(const std::string& kind, const std::string& lines) {
  const SharedFolder folder;
  const std::string path = (folder.path() / "rows.jsonl").string();
  std::ofstream(path) << lines;
  return output_of("python3 " DYNAMICCL_SOURCE_DIR "/scripts/one_host_tables.py " + kind + " " +
                   path);
}

std::string cell(const std::string& side, const std::string& codes, int wrong, int left) {
  const std::string rank = "{\"wrong\": " + std::to_string(wrong) + "}";
  return "{\"nccl\": \"torch\", \"cumem\": 0, \"nodes\": \"own\", \"side\": \"" + side +
         "\", \"codes\": \"" + codes +
         "\", \"ways\": \" 2 via SHM\", \"files_left\": " + std::to_string(left) +
         ", \"ranks\": [" + rank + ", " + rank + "]}\n";
}

}  // namespace

TEST_CASE("what ran without and does not with the library counts as broken") {
  const std::string none = cell("none", "0 0", 0, 0);
  CHECK_THAT(
      table_of("matrix", none + cell("library", "0 0", 0, 0) + cell("recipe", "0 0", 0, 0)),
      ContainsSubstring("broken by library or recipe: 0; files left by those that ended right: 0"));
  CHECK_THAT(table_of("matrix", none + cell("library", "0 0", 3, 0) + cell("recipe", "1 0", 0, 0)),
             ContainsSubstring("broken by library or recipe: 2"));
  CHECK_THAT(table_of("matrix", none + cell("library", "0 0", 0, 4)),
             ContainsSubstring("ended right: 4"));
  // What failed without it may fail with it.
  CHECK_THAT(table_of("matrix", cell("none", "1 1", 0, 0) + cell("library", "1 1", 0, 0)),
             ContainsSubstring("broken by library or recipe: 0"));
}

TEST_CASE("ratios are of launches made in turn") {
  std::string lines;
  for (int launch = 0; launch < 3; ++launch)
    for (const auto& [side, us] :
         {std::pair{"none:bare", 20 + launch}, std::pair{"library:all", 2 * (20 + launch)}})
      lines += "{\"side\": \"" + std::string(side) + "\", \"launch\": " + std::to_string(launch) +
               ", \"rank0\": {\"median_us\": {\"1024\": " + std::to_string(us) + "}}}\n";
  const std::string table = table_of("sizes", lines);
  CHECK_THAT(table, ContainsSubstring("| 1024 | 3 | 42.0 | 21.0 |"));
  CHECK_THAT(table, ContainsSubstring("| 1024 | 2.000 [2.000, 2.000] |"));
}
