#pragma once

#include <string>

#include "orchestrator/import/foreign_table.hpp"

namespace dynamiccl {

/// What the user adds has to be something, in the words that the tables have.
/// @throws Error(input) for an empty environment, an unknown backend or operation
void check_import_options(const ImportOptions& options);

/// The collective of a table: as the file says, else as --operation does.
/// @param named the program or collective that the file names, "" = none
/// @param where "x.txt:18", for the message
/// @throws Error(input) when neither says it and when they contradict each other
std::string settled_collective(const std::string& named, const std::string& where,
                               const ImportOptions& options);

/// The ranks of a start, as settled_collective(). OSU's point-to-point tests have two, also where
/// --ranks tells those of the collectives.
/// @throws Error(input) as settled_collective()
int settled_ranks(const ForeignStart& start, const std::string& path, const std::string& format,
                  const ImportOptions& options);

/// The backend of a start: --backend, else what its format lets one expect.
/// @throws Error(input) when --backend is no library that can print such a table
std::string settled_backend(const ForeignStart& start, const std::string& path,
                            const std::string& format, const ImportOptions& options);

}  // namespace dynamiccl
