#include "workers/run/record_writer.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>

#include "core/vocabulary/error.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Existing = RecordWriter::Existing;

namespace {

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "writer-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

}  // namespace

TEST_CASE("records can be read back while the writer is still open") {
  const Folder folder;
  RecordWriter writer(folder.path, 3, Existing::refuse);
  writer.write(ErrorRecord{3, "first"});
  writer.write(DoneRecord{3, 1.5, 2.5});
  const auto file = read_record_file(folder.path / record_file_name(3));
  REQUIRE(file.records.size() == 2);
  CHECK(std::get<ErrorRecord>(file.records[0]).message == "first");
  CHECK(std::get<DoneRecord>(file.records[1]).ended_unix_s == 1.5);
  CHECK_FALSE(file.torn_line);
}

TEST_CASE("a second process with the same rank is refused, or appends when told so") {
  const Folder folder;
  RecordWriter first(folder.path, 0, Existing::refuse);
  first.write(ErrorRecord{0, "a"});
  CHECK_THROWS_MATCHES(RecordWriter(folder.path, 0, Existing::refuse), Error,
                       MessageMatches(ContainsSubstring("another process claims this rank")));
  RecordWriter(folder.path, 0, Existing::append).write(ErrorRecord{0, "b"});
  CHECK(read_record_file(folder.path / record_file_name(0)).records.size() == 2);
}

TEST_CASE("a missing output folder is named") {
  CHECK_THROWS_MATCHES(RecordWriter("/nowhere/at/all", 0, Existing::refuse), Error,
                       MessageMatches(ContainsSubstring("/nowhere/at/all/rank0.jsonl") &&
                                      ContainsSubstring("output_dir must exist")));
}
