#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// What is typed to start this program again: what the script in front of it was started as
/// ($DYNAMICCL_STARTED_AS), else `dynamiccl` where $PATH has this very program, else the name by
/// which it was started.
/// @param argv0 the first word of the command line
std::string started_as(const std::string& argv0);

/// A text whose commands can be pasted: `dynamiccl VERB` at a line's begin, or behind "next: ", is
/// started as this program was.
std::string with_pasteable_commands(const std::string& text, const std::string& argv0);

/// A sentence whose commands work on the database that the command it answers worked on: those in
/// backquotes that read or write one and name none get these words.
/// @param words as db_words() has them, "" = none are needed
std::string with_database(const std::string& text, const std::string& words);

}  // namespace dynamiccl
