#include "core/vocabulary/file_text.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>

namespace dynamiccl {
namespace {

TEST_CASE("a file is read whole, or its first bytes") {
  const auto path =
      (std::filesystem::temp_directory_path() / ("dyn-text-" + std::to_string(getpid()))).string();
  const std::string content = std::string(40000, 'a') + std::string("\0\nb", 3);
  std::ofstream(path, std::ios::binary) << content;
  CHECK(read_file(path) == content);
  CHECK(file_text(path, 7) == "aaaaaaa");
  CHECK(file_text(path, content.size()) == content);
  CHECK(file_text(path, 0).empty());
  std::ofstream{path};
  CHECK(read_file(path) == "");
  std::filesystem::remove(path);
}

TEST_CASE("what cannot be read is no exception", "[safety]") {
  CHECK_FALSE(read_file("/no/such/file").has_value());
  // It opens and does not read, as a file of a process does that ends meanwhile.
  CHECK_FALSE(read_file("/").has_value());
  CHECK(file_text("/no/such/file").empty());
}

}  // namespace
}  // namespace dynamiccl
