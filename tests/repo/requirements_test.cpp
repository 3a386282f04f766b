#include <catch2/catch_test_macros.hpp>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/repo/source_tree.hpp"

using namespace dynamiccl;

namespace {

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

/// Ids that tests carry as tags.
std::set<std::string> tagged() {
  const std::regex tag("\\[([A-Ha-h]-[0-9]+)\\]");
  std::set<std::string> found;
  for (const auto& file : source_files({"tests"}, {".cpp", ".hpp"}))
    for (std::sregex_iterator match(file.text.begin(), file.text.end(), tag), end; match != end;
         ++match)
      found.insert(upper((*match)[1]));
  return found;
}

/// Status of every requirement: the last column of its row.
std::map<std::string, std::string> statuses() {
  const auto files = source_files({"docs"}, {".md"});
  std::map<std::string, std::string> found;
  const std::regex id("^\\| ([A-H]-[0-9]+) \\|.*");
  for (const auto& file : files) {
    if (file.path != "docs/reference/requirements.md") continue;
    std::istringstream lines(file.text);
    for (std::string line; std::getline(lines, line);) {
      // Only the line's head: a whole line would be too long for this library's matcher.
      std::smatch match;
      const std::string head = line.substr(0, 16);
      if (!std::regex_match(head, match, id)) continue;
      const auto end = line.rfind(" |");
      const auto begin = line.rfind("| ", end - 1);
      found[match[1]] = line.substr(begin + 2, end - begin - 2);
    }
  }
  return found;
}

/// "partial, tested: why" -> "partial"
std::string word_of(const std::string& status) {
  return status.substr(0, status.find_first_of(",:"));
}

bool says_tested(const std::string& status) {
  return status.substr(0, status.find(':')).find(", tested") != std::string::npos;
}

/// Places that name one of the requirements.
std::vector<std::string> that_name_requirements(const std::vector<SourceFile>& files,
                                                const std::map<std::string, std::string>& all) {
  const std::regex id("\\b[A-H]-[0-9]+\\b");
  std::vector<std::string> found;
  for (const auto& file : files)
    for (std::sregex_iterator match(file.text.begin(), file.text.end(), id), end; match != end;
         ++match)
      if (all.contains(match->str())) found.push_back(file.path + ": " + match->str());
  return found;
}

}  // namespace

TEST_CASE("every requirement has a status, and what lacks something says what") {
  const std::set<std::string> known{"done",      "partial",  "missing", "simulated", "state-only",
                                    "catalogue", "declared", "unused",  "refuted"};
  const auto all = statuses();
  REQUIRE(all.size() == 556);
  for (const auto& [id, status] : all) {
    INFO(id << ": " << status);
    CHECK(known.contains(word_of(status)));
    if (word_of(status) == "partial") CHECK(status.find(": ") != std::string::npos);
  }
}

TEST_CASE("the statuses of requirements go with the tags of the tests") {
  const auto all = statuses();
  const auto tags = tagged();
  REQUIRE(tags.size() > 100);
  for (const auto& tag : tags) {
    INFO("a test is tagged " << tag);
    REQUIRE(all.contains(tag));
    CHECK(word_of(all.at(tag)) != "missing");
  }
  for (const auto& [id, status] : all) {
    INFO(id << ": " << status);
    CHECK(says_tested(status) == tags.contains(id));
  }
}

TEST_CASE("requirements are named by the tags of tests alone") {
  std::vector<std::string> folders = product_folders();
  for (const char* folder : {"benchmarks", "docs", "experiments", "scripts"})
    folders.emplace_back(folder);
  auto files = source_files(
      folders, {".hpp", ".cpp", ".h", ".cu", ".sql", ".html", ".js", ".toml", ".md", ".py", ".sh"});
  std::erase_if(files,
                [](const auto& file) { return file.path == "docs/reference/requirements.md"; });
  const auto all = statuses();
  CHECK(that_name_requirements(files, all) == std::vector<std::string>{});
  CHECK(that_name_requirements({{"db/a.cpp", "// counts rounds (E-87).\n"}}, all).size() == 1);
  CHECK(that_name_requirements({{"db/a.cpp", "// 2^(L-1) of A-0 and SHA-256\n"}}, all).empty());
}
