#pragma once

#include <string>

namespace dynamiccl::fuzz {

/// Makes a database of ours somebody else's, a line of the input at a time, and gives it to all
/// that open one. A line is a letter, a name and, behind a tab, SQL: v view, t trigger, g generated
/// column, x index, a table, o row of sqlite_master as it stands, m row of meta, n the run's name,
/// u the schema's version, s what else a writer could do to it. What it holds may be refused as
/// data; a syntax error in a statement of ours, a file that was not there and a change of another
/// database are finds.
void read_database(const std::string& input);

}  // namespace dynamiccl::fuzz
