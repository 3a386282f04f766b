#include "workers/run/record_writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {

RecordWriter::RecordWriter(const std::string& output_dir, int rank, Existing existing)
    : path_(output_dir + "/" + record_file_name(rank)) {
  if (const auto& endpoint = records_endpoint()) {
    link_ = std::make_unique<RecordLink>(*endpoint, rank,
                                         existing == Existing::refuse ? "refuse" : "append");
    return;
  }
  descriptor_ =
      open(path_.c_str(),
           O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (existing == Existing::refuse ? O_EXCL : 0),
           0644);
  if (descriptor_ >= 0) return;
  const char* next = errno == EEXIST
                         ? "another process claims this rank, or the folder belongs to an earlier "
                           "launch; give every launch a fresh output_dir"
                         : "output_dir must exist and be writable under this path for every rank";
  throw Error(ErrorKind::environment,
              fmt::format("{}: cannot be made: {}; {}", path_, std::strerror(errno), next));
}

RecordWriter::~RecordWriter() {
  if (descriptor_ >= 0) close(descriptor_);
}

void RecordWriter::write(const Record& record) {
  if (link_ != nullptr) return link_->write(to_json_line(record));
  const std::string line = to_json_line(record) + "\n";
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(descriptor_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw Error(ErrorKind::environment,
                  fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)));
    }
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace dynamiccl
