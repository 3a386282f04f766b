#pragma once

#include <cstdlib>
#include <string>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {

/// Where runs are stored that nobody gave a place, from the working directory.
inline constexpr const char* kUsualDb = "results/dynamiccl.sqlite";

/// What a command without --db works on: $DYNAMICCL_DB, else kUsualDb.
inline std::string usual_db() {
  const char* said = std::getenv("DYNAMICCL_DB");
  return said != nullptr && *said != '\0' ? said : kUsualDb;
}

/// What a command to be pasted needs to work on this database: " --db PATH", "" for the usual one.
inline std::string db_words(const std::string& path) {
  return path == usual_db() ? "" : " --db " + shell_quote(path);
}

}  // namespace dynamiccl
