#pragma once

#include <optional>
#include <string>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// What a library itself tells of the way its data takes.
struct TransportClaim {
  std::string transport;  ///< as in TransportRecord
  std::string evidence;
  nlohmann::json details = nlohmann::json::object();
};

/// What a library tells of itself: for the records that a rank leaves.
class LibraryFacts {
 public:
  LibraryFacts(const LibraryFacts&) = delete;
  LibraryFacts& operator=(const LibraryFacts&) = delete;
  virtual ~LibraryFacts() = default;

  /// What the loaded library calls itself, with its version, in one line.
  [[nodiscard]] virtual std::string library() const = 0;
  /// Bare version, "4.1.4".
  [[nodiscard]] virtual std::string library_version() const = 0;
  /// MPI's level of thread support, in small letters ("single"); "" with libraries that have none.
  [[nodiscard]] virtual std::string thread_level() const { return ""; }

  /// What the library that carries Messages calls itself: not library() where that
  /// sends no host memory (NCCL).
  [[nodiscard]] virtual std::string carrier() const = 0;
  /// What LibraryCalls' ranks are made to leave together by.
  [[nodiscard]] virtual std::string barrier_name() const = 0;
  /// Ranks: all, as they agree on one name.
  [[nodiscard]] virtual std::optional<TransportClaim> transport_claim() { return std::nullopt; }

 protected:
  LibraryFacts() = default;
};

}  // namespace dynamiccl
