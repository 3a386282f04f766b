#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <cstdio>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "core/training/training.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "profiles/strict_toml.hpp"

using namespace dynamiccl;

namespace {

const std::string kRoot = DYNAMICCL_SOURCE_DIR;

struct TaxonomyRow {
  std::string axis;
  std::string name;
  std::string published;
  std::string here;
  std::string why_not;
};

std::vector<TaxonomyRow> taxonomy_rows() {
  std::vector<TaxonomyRow> rows;
  std::string axis;
  for (const auto& line :
       split(read_input_file(kRoot + "/profiles/published/taxonomy.txt"), '\n')) {
    if (line.empty() || line.starts_with("#")) continue;
    if (line.starts_with("[")) {
      axis = line.substr(1, line.size() - 2);
      continue;
    }
    const auto parts = split(line, '|');
    if (axis == "matrix") continue;
    INFO(line);
    REQUIRE(parts.size() == 4);
    const auto part = [&](std::size_t i) { return std::string(trim(parts[i])); };
    rows.push_back({axis, part(0), part(1), part(2), part(3)});
  }
  return rows;
}

/// The names in the text of a row of the checklist that catalogues something: words between commas,
/// colons and brackets that have a capital letter and are no remark.
std::vector<std::string> catalogued_names(const std::string& text) {
  const std::set<std::string> remarks{
      "INA",      "OCS",         "GPU-tuned",
      "A2A side", "FL-tailored", "Position the tuner against learning-based systems"};
  std::vector<std::string> names;
  std::string word;
  const auto colon = text.find(':');
  for (const char c : text.substr(colon == std::string::npos ? 0 : colon + 1) + ",") {
    if (std::string(",();:").find(c) == std::string::npos) {
      word += c;
      continue;
    }
    std::string name(trim(word));
    word.clear();
    for (const char* joiner : {"and ", "also "})
      if (name.starts_with(joiner)) name.erase(0, std::string(joiner).size());
    const bool named = std::any_of(name.begin(), name.end(),
                                   [](unsigned char letter) { return std::isupper(letter) != 0; });
    if (named && !remarks.contains(name)) names.push_back(name);
  }
  return names;
}

std::string printed_by(const std::string& command) {
  std::string text;
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), n);
  CHECK(pclose(pipe) == 0);
  return text;
}

}  // namespace

TEST_CASE("every name of the checklist's catalogue rows is a row of the taxonomy",
          "[C-09][C-10][C-16][C-40][C-41][C-42][C-43][C-44][C-53][C-57][D-08][D-09]"
          "[D-65][D-66][D-74][D-76][D-77][D-78][D-79][D-85]") {
  std::set<std::string> known;
  for (const auto& row : taxonomy_rows()) known.insert(row.name);
  std::size_t looked_for = 0;
  for (const auto& line : split(read_input_file(kRoot + "/docs/requirements.md"), '\n')) {
    const auto parts = split(line, '|');
    if (parts.size() < 5) continue;
    const std::string text(trim(parts[2]));
    if (text.find("atalogue") == std::string::npos || text.find(':') == std::string::npos ||
        text.find("Catalogue general libraries") != std::string::npos ||
        std::string(trim(parts[1])).starts_with("X-"))
      continue;
    for (const auto& name : catalogued_names(text)) {
      INFO(text);
      INFO(name);
      CHECK(known.contains(name));
      ++looked_for;
    }
  }
  CHECK(looked_for > 100);
  for (const char* name : {"MPI", "Gloo", "Horovod", "NCCL", "BytePS", "RDMA", "FSDP", "MSCCLang",
                           "AQG", "AdaGQ", "BCD", "IBCD", "ResFed", "LGC"})
    CHECK(known.contains(name));
}

TEST_CASE("a row of the taxonomy says what runs here, else why nothing does") {
  std::set<std::pair<std::string, std::string>> seen;
  for (const auto& row : taxonomy_rows()) {
    INFO(row.axis << ": " << row.name);
    CHECK(seen.insert({row.axis, row.name}).second);
    CHECK_FALSE(row.published.empty());
    if (row.axis.starts_with("Advice")) continue;
    CHECK(row.here.empty() != row.why_not.empty());
  }
}

TEST_CASE("what the taxonomy says runs here bears the names under which it runs") {
  std::string here;
  for (const auto& row : taxonomy_rows()) here += row.here + " ";
  for (const auto& method : all_names<TrainingMethod>()) {
    INFO(method);
    CHECK(here.find(method) != std::string::npos);
  }
  for (const auto& codec : all_names<Codec>()) {
    INFO(codec);
    CHECK((codec == "none" || here.find("\"" + std::string(codec) + "\"") != std::string::npos));
  }
  for (const auto& backend : all_names<Backend>()) {
    INFO(backend);
    CHECK(here.find(backend) != std::string::npos);
  }
}

TEST_CASE("docs/taxonomy.md is made of the taxonomy", "[C-45][D-111]") {
  const std::string made = printed_by("sh " + kRoot + "/scripts/taxonomy.sh");
  CHECK(made == read_input_file(kRoot + "/docs/taxonomy.md"));
  for (const auto& row : taxonomy_rows()) CHECK(made.find("| " + row.name + " |") != made.npos);
}
