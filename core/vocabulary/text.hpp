#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dynamiccl {

/// Number of edits between two texts: a letter more, fewer or another, two neighbours swapped.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// @returns the known word nearest to `word`, or "" when none is near enough to be meant
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

/// @returns `known: a, b, c. Did you mean "b"?` for the end of an error message
std::string suggestion(std::string_view word, const std::vector<std::string>& known);

std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);

/// Quotes one argument for a POSIX shell, only where it is needed.
std::string shell_quote(std::string_view argument);

}  // namespace dynamiccl
