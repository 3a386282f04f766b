#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "db/table.hpp"

namespace dynamiccl {

/// Reads the database; cannot write, whatever SQL it is given. Its views are this program's, also
/// in a file of another build. Readers and the writer do not wait for each other. Not thread-safe.
class Reader {
 public:
  /// @throws Error(environment) when the file does not exist or cannot be read, Error(data) when it
  /// is no database of ours or of another schema version
  explicit Reader(const std::string& path);
  ~Reader();
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;

  /// One SELECT. Blobs come out as text.
  /// @param params values of ?1, ?2, ...
  /// @throws Error(input) with SQLite's message when the SQL is wrong, holds no
  /// statement or several, or tries to write
  [[nodiscard]] Table query(const std::string& sql, const std::vector<Value>& params = {}) const;

  /// Id of the newest run of any kind but a try that failed before anything was measured; "" where
  /// there is none.
  [[nodiscard]] std::string newest_run() const;

  /// Full id of a run from a unique prefix of it, "last" or "last~N" (N before the last) of what
  /// `run` measured (no repeated launch, no second look of a gate, no proof of the doctor's),
  /// "last-tune" or "last-import" of the others, likewise. Where nothing was measured by `run`,
  /// "last" is the newest of all.
  /// @throws Error(input) when there is no such run or the prefix fits several
  [[nodiscard]] std::string resolve_run(const std::string& name) const;

  /// A statement that runs longer from now on ends with Error(input) of what late_query() says:
  /// what users write may have no end. Without it only the answer's size is limited (1 GiB).
  /// @param hung called by another thread where a single step of SQLite's goes on a second later,
  /// which nothing ends but the end of the program
  void end_after(std::chrono::seconds time, std::function<void()> hung);
  static const char* late_query();

  [[nodiscard]] const std::string& path() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dynamiccl
