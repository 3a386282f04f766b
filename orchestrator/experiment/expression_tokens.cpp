#include "orchestrator/experiment/expression_tokens.hpp"

#include <fmt/format.h>

#include <cctype>

#include "core/vocabulary/error.hpp"

namespace dynamiccl::expression {
namespace {

/// Nothing that there is has so long a name, and a message repeats the word.
constexpr std::size_t kLongestWord = 200;

bool is_word_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ||
         c == ':';  // of a setting's old spelling
}

}  // namespace

void fail(std::size_t column, const std::string& message) {
  throw Error(ErrorKind::input, fmt::format("column {}: {}", column, message));
}

std::vector<Token> tokenize(std::string_view text) {
  std::vector<Token> tokens;
  std::size_t i = 0;
  while (i < text.size()) {
    const char c = text[i];
    const std::size_t column = i + 1;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++i;
    } else if (is_word_char(c)) {
      const std::size_t start = i;
      while (i < text.size() && is_word_char(text[i])) ++i;
      tokens.push_back({Token::Kind::word, std::string(text.substr(start, i - start)), column});
    } else if (c == '"' || c == '\'') {
      const std::size_t end = text.find(c, i + 1);
      if (end == std::string_view::npos) fail(column, "quoted text does not end");
      tokens.push_back({Token::Kind::text, std::string(text.substr(i + 1, end - i - 1)), column});
      i = end + 1;
    } else if (std::string_view("=!<>").find(c) != std::string_view::npos) {
      const bool two = i + 1 < text.size() && text[i + 1] == '=';
      const std::string op(text.substr(i, two ? 2 : 1));
      if (op == "=") fail(column, "found \"=\"; did you mean \"==\"?");
      if (op == "!") fail(column, "found \"!\"; did you mean \"!=\" or \"not\"?");
      tokens.push_back({Token::Kind::op, op, column});
      i += op.size();
    } else if (std::string_view("()[],").find(c) != std::string_view::npos) {
      tokens.push_back({Token::Kind::op, std::string(1, c), column});
      ++i;
    } else {
      fail(column, fmt::format("unexpected \"{}\"{}", c,
                               c == '&'   ? "; did you mean \"and\"?"
                               : c == '|' ? "; did you mean \"or\"?"
                                          : ""));
    }
  }
  for (const Token& token : tokens)
    if (token.text.size() > kLongestWord)
      fail(token.column, fmt::format("a word of {} bytes: no name is longer than {}",
                                     token.text.size(), kLongestWord));
  tokens.push_back({Token::Kind::end, "", text.size() + 1});
  return tokens;
}

}  // namespace dynamiccl::expression
