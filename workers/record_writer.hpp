#pragma once

#include <string>

#include "core/wire/record.hpp"

namespace dynamiccl {

/// Appends records to rank<r>.jsonl, each in one write, so that a killed worker leaves whole lines
/// and at most one torn one.
class RecordWriter {
 public:
  enum class Existing { refuse, append };

  /// @throws Error(environment) when the file cannot be made, or exists and Existing::refuse is
  /// given: another process claims the same rank, or the folder belongs to an earlier launch
  RecordWriter(const std::string& output_dir, int rank, Existing existing);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  /// @throws Error(environment) when the line cannot be written whole
  void write(const Record& record);

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace dynamiccl
