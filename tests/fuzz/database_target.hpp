#pragma once

#include <cstddef>
#include <string>

namespace dynamiccl::fuzz {

inline constexpr std::size_t kDatabaseWays = 5;

/// Makes a database of ours somebody else's, a line of the input at a time, and opens it. A line is
/// a letter, a name and, behind a tab, SQL: v view, t trigger, g generated column, x index, a
/// table, o row of sqlite_master as it stands, m row of meta, n the run's name, u the schema's
/// version, s what else a writer could do to it. What it holds may be refused as data; a syntax
/// error in a statement of ours, a file that was not there and a change of another database are
/// finds.
/// @param way 0: a small one in memory, by what decides on schemas; 1 to 4: a file, as a reader, a
/// writer, an import and a copy for sharing open it
void read_database(const std::string& input, std::size_t way);

/// In memory for 127 of 128 lengths of the input, else as a file in one of the ways: those cost a
/// hundred times as much.
void read_database(const std::string& input);

}  // namespace dynamiccl::fuzz
