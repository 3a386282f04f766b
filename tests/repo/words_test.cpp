#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <string>
#include <string_view>

#include "core/vocabulary/file_text.hpp"
#include "tests/repo/source_tree.hpp"

using namespace dynamiccl;

namespace {

/// A word that this project once used in a sense of its own, and what others say.
struct PrivateWord {
  std::string_view word;
  std::string_view plain;
};
constexpr std::array kPrivateWords{PrivateWord{"told", "given, sent, printed, recorded, known"},
                                   PrivateWord{"beside", "next to, besides, at the same time as"},
                                   PrivateWord{"held against", "compared with"},
                                   PrivateWord{"hold against", "compare with"},
                                   PrivateWord{"goes by", "follows, uses, goes through"},
                                   PrivateWord{"speak by", "use"},
                                   PrivateWord{"speaks by", "uses"},
                                   PrivateWord{"patience", "timeout, deadline"}};

/// A migration is never changed.
constexpr std::string_view kMigrations = "db/migrations/";

/// The end of the literal or comment that begins at `at`; `at` itself where none does.
std::size_t end_of_prose(const std::string& text, std::size_t at) {
  const auto behind = [&](const std::string& close, std::size_t from) {
    const auto end = text.find(close, from);
    return end == std::string::npos ? text.size() : end + close.size();
  };
  if (text.compare(at, 2, "//") == 0) return std::min(text.find('\n', at), text.size());
  if (text.compare(at, 2, "/*") == 0) return behind("*/", at + 2);
  if (text.compare(at, 2, "R\"") == 0) {
    const auto open = text.find('(', at);
    return behind(")" + text.substr(at + 2, open - at - 2) + "\"", open);
  }
  if (text[at] != '"' && text[at] != '\'') return at;
  // A digit separator is no quote.
  if (text[at] == '\'' && at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0)
    return at;
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != text[at] && text[end] != '\n')
    end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

/// What of a file is read by people: all of a document, comments and literals of a source. In lower
/// case, with a blank for each break, so that a phrase is found across lines.
std::string prose_of(const SourceFile& file) {
  std::string prose;
  const auto add = [&](std::string_view part) {
    for (const char c : part)
      prose += c == '\n' || c == '/' || c == '"' || c == '*'
                   ? ' '
                   : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    prose += ' ';
  };
  if (!file.path.ends_with("pp") && !file.path.ends_with(".cu") && !file.path.ends_with(".h")) {
    add(file.text);
  } else {
    for (std::size_t at = 0; at < file.text.size(); ++at) {
      const auto end = end_of_prose(file.text, at);
      if (end == at) continue;
      add(std::string_view(file.text).substr(at, end - at));
      at = end - 1;
    }
  }
  prose.erase(
      std::unique(prose.begin(), prose.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
      prose.end());
  return prose;
}

/// "FILE: word (say: others)" for each place.
std::vector<std::string> private_words_in(const SourceFile& file) {
  std::vector<std::string> found;
  const auto prose = prose_of(file);
  const auto in_word = [&](std::size_t at) {
    return at < prose.size() &&
           (std::isalnum(static_cast<unsigned char>(prose[at])) != 0 || prose[at] == '_');
  };
  for (const auto& [word, plain] : kPrivateWords)
    for (auto at = prose.find(word); at != std::string::npos; at = prose.find(word, at + 1))
      if ((at == 0 || !in_word(at - 1)) && !in_word(at + word.size()))
        found.push_back(file.path + ": \"" + prose.substr(at < 30 ? 0 : at - 30, 60) + "\"; say " +
                        std::string(plain));
  return found;
}

}  // namespace

TEST_CASE("comments, messages and documents use words as others do") {
  auto files = source_files(product_folders(), {".hpp", ".cpp", ".cu", ".h", ".sql", ".js", ".md"});
  for (const auto& document : source_files({"docs"}, {".md"}))
    if (!document.path.starts_with("docs/reference/")) files.push_back(document);
  for (const std::string name :
       {"README.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"}) {
    files.push_back({name, file_text(DYNAMICCL_SOURCE_DIR "/" + name)});
    REQUIRE_FALSE(files.back().text.empty());
  }
  std::vector<std::string> found;
  for (const auto& file : files) {
    if (file.path.starts_with("reports/measured/") || file.path.starts_with(kMigrations)) continue;
    const auto words = private_words_in(file);
    found.insert(found.end(), words.begin(), words.end());
  }
  CHECK(found == std::vector<std::string>{});
}

TEST_CASE("the rule of words reads comments and literals across lines, and no names") {
  const auto of = [](const std::string& text) {
    return private_words_in({"db/a.cpp", text}).size();
  };
  CHECK(of("int told = 1'000;  // Who said so.\n") == 0);
  CHECK(of("// Told once.\n") == 1);
  CHECK(of("/// What is held\n/// against it.\n") == 1);
  CHECK(of("call(\"which one is \"\n     \"told\");\n") == 1);
  CHECK(of("const char* sql = R\"(SELECT 1 -- beside it)\";\n") == 1);
  CHECK(of("int runs_beside(char c = '\"');  // \"beside_neighbour\"\n") == 0);
  CHECK(private_words_in({"docs/a.md", "It lies beside it."}).size() == 1);
}
