#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dynamiccl::expression {

/// A piece of an expression of `--only` or of a rule, for expression.cpp alone.
struct Token {
  enum class Kind { word, text, op, end } kind = Kind::end;
  std::string text;
  std::size_t column = 1;
};

/// @throws Error(input) `column N: message`
[[noreturn]] void fail(std::size_t column, const std::string& message);

/// Words, quoted texts and operators; the last token is an end.
/// @throws Error(input) `column N: ...` for what is none of them
std::vector<Token> tokenize(std::string_view text);

}  // namespace dynamiccl::expression
