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

#include "core/vocabulary/text.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "profiles/strict_toml.hpp"
#include "train/spec/training.hpp"

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
    if (axis.starts_with("matrix: ")) continue;
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
          "[C-09][C-10][C-16][C-41][C-42][C-43][C-44][C-53][C-57][D-08][D-09]"
          "[C-40][D-28][D-29][D-33][D-65][D-66][D-74][D-76][D-77][D-78][D-79][D-85]"
          "[D-104][D-105][D-106][D-107][D-108][D-109][D-110][D-113][F-15]") {
  std::set<std::string> known;
  for (const auto& row : taxonomy_rows()) known.insert(row.name);
  std::size_t looked_for = 0;
  for (const auto& line : split(read_input_file(kRoot + "/docs/reference/requirements.md"), '\n')) {
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

TEST_CASE("what surveys name outside their catalogues is a row of the taxonomy",
          "[D-26][D-32][D-114][F-27][F-29][H-18]") {
  std::set<std::string> axes;
  std::set<std::string> known;
  for (const auto& row : taxonomy_rows()) {
    axes.insert(row.axis);
    known.insert(row.name);
  }
  const std::string names =
      "AdaptiveRevision,D-ADMM,delayed block proximal gradient,3PC,OSP,Downpour,PS+,HSP,GSSP,A2S,"
      "ASHL,SwitchML,ATP,INAlloc,PANAMA,A2TP,NetReduce,SWARM,Oobleck,FTAR,GPT-3,BloombergGPT,"
      "Megatron-Turing NLG,LLaMA,higher compression levels,per-layer adaptive compression,"
      "fault-tolerant algorithms,LLMs as communication agents";
  for (const auto& name : split(names, ',')) {
    INFO(name);
    CHECK(known.contains(name));
  }
  for (const char* axis : {"Allocation, training", "Scheduling of jobs", "Sharing between jobs",
                           "SmartNIC", "Reconfigurable topologies"}) {
    INFO(axis);
    CHECK(axes.contains(axis));
  }
}

TEST_CASE("the matrices of tiers and of topologies are the published ones", "[F-11][F-17]") {
  const std::string figures = kRoot + "/profiles/published/figures.toml";
  const auto published = parse_toml(read_input_file(figures), figures);
  const std::string page = printed_by("sh " + kRoot + "/scripts/taxonomy.sh");
  for (const auto& [table, columns] : std::map<std::string, std::vector<std::string>>{
           {"decision_matrix", {"tier", "bsp", "local", "ps_async", "gossip", "three_d"}},
           {"topology_suitability",
            {"topology", "allreduce", "alltoall", "allgather", "llm_3d", "algorithm"}}}) {
    const auto* rows = published["s002"][table]["rows"].as_array();
    REQUIRE(rows != nullptr);
    REQUIRE(rows->size() >= 4);
    CHECK(page.find("| " + join(columns, " | ") + " |") != std::string::npos);
    for (const auto& row : *rows) {
      std::vector<std::string> cells;
      for (const auto& column : columns) {
        const auto& cell = *row.as_table()->get(column);
        cells.push_back(cell.is_integer() ? std::to_string(cell.as_integer()->get())
                                          : cell.as_string()->get());
      }
      INFO(join(cells, " | "));
      CHECK(page.find("| " + join(cells, " | ") + " |") != std::string::npos);
    }
  }
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

TEST_CASE("the printed taxonomy has every row", "[C-45][D-111]") {
  const std::string made = printed_by("sh " + kRoot + "/scripts/taxonomy.sh");
  for (const auto& row : taxonomy_rows()) CHECK(made.find("| " + row.name + " |") != made.npos);
}
