#include "workers/measure/memory_watch.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <cstring>

#include "core/vocabulary/malloc_settings.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("memory that is touched for the first time is counted, page by page") {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  // Its own mapping: above glibc's largest threshold.
  constexpr std::size_t kBytes = std::size_t{48} << 20;
  auto* block = static_cast<volatile char*>(std::malloc(kBytes));
  REQUIRE(block != nullptr);
  const auto before = minor_faults();
  for (std::size_t at = 0; at < kBytes; at += page) block[at] = 1;
  const auto faults = minor_faults() - before;
  const auto again_before = minor_faults();
  for (std::size_t at = 0; at < kBytes; at += page) block[at] = 2;
  const auto again = minor_faults() - again_before;
  std::free(const_cast<char*>(block));
  // A huge page is one fault; nothing is faulted twice.
  CHECK(faults >= kBytes / (std::size_t{2} << 20));
  CHECK(again < faults / 4 + 8);
}

TEST_CASE("a process tells its page size, allocator and huge pages") {
  MemoryWatch watch;
  watch.add_cell("a", 30, 10);
  const auto memory = watch.conclude();
  CHECK(memory.at("page_bytes") == sysconf(_SC_PAGESIZE));
  CHECK(memory.at("cells").at("a").at("minor_faults") == 30);
  CHECK(memory.at("cells").at("a").at("calls") == 10);
  CHECK_THAT(memory.at("allocator").at("libc").get<std::string>(), ContainsSubstring("glibc"));
  CHECK(memory.at("huge_pages").contains("mode"));
  CHECK(huge_page_bytes() >= -1);
}

TEST_CASE("what was asked for and did not come has a reason of its own") {
  const auto both = with_malloc_settings("", {{"keep", "1"}, {"huge_pages", "1"}});
  CHECK(not_effective("", 0, 0, "madvise", "glibc 2.36").empty());
  CHECK(not_effective(both, 1, 1 << 21, "madvise", "glibc 2.36").empty());
  const auto old = not_effective(both, 0, 0, "madvise", "glibc 2.31");
  CHECK_THAT(old.at("keep").get<std::string>(), ContainsSubstring("glibc 2.31 still maps"));
  CHECK_THAT(old.at("huge_pages").get<std::string>(), ContainsSubstring("no huge page"));
  const auto other = not_effective(both, -1, 1 << 21, "never", "glibc 2.36");
  CHECK_THAT(other.at("keep").get<std::string>(), ContainsSubstring("not glibc's"));
  CHECK_THAT(other.at("huge_pages").get<std::string>(), ContainsSubstring("switched off"));
  CHECK_THAT(
      not_effective(both, 1, -1, "madvise", "glibc 2.36").at("huge_pages").get<std::string>(),
      ContainsSubstring("smaps_rollup"));
}
