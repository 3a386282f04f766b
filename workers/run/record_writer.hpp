#pragma once

#include <memory>
#include <string>

#include "core/wire/record.hpp"
#include "workers/run/record_link.hpp"

namespace dynamiccl {

/// Appends records to rank<r>.jsonl, each in one write, so that a killed worker leaves whole lines
/// and at most one torn one. Where records_endpoint() is set they go there instead, by a
/// RecordLink.
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
  /// How they go, where they go over a connection; nullptr: into the file.
  [[nodiscard]] RecordLink* link() const { return link_.get(); }

 private:
  std::string path_;
  int descriptor_ = -1;
  std::unique_ptr<RecordLink> link_;
};

}  // namespace dynamiccl
