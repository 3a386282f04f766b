#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dynamiccl {

/// The columns that a text takes on a terminal, near enough: its code points.
std::size_t columns_of_text(std::string_view text);

/// A text in lines of at most `columns`, at least one of them: broken between words, else behind a
/// mark such as those of paths and lists, else anywhere. Blanks within a line stay.
std::vector<std::string> broken_lines(std::string_view text, std::size_t columns);

/// Lines of at most `columns`: what is longer goes on below itself, below the last column of a
/// line that has several ("  name   what it is").
/// @param columns 0 = no limit
std::string broken_text(std::string_view text, std::size_t columns);

/// A command in lines of at most `columns` that a shell takes as one: broken between its words, by
/// backslashes. A word that is longer stays whole.
/// @param words   quoted for the shell where they need it
/// @param head    before the first line; those after it are indented as far
/// @param columns 0 = no limit
/// @returns lines that end in a line break
std::string command_lines(std::string_view head, const std::vector<std::string>& words,
                          std::size_t columns);

}  // namespace dynamiccl
