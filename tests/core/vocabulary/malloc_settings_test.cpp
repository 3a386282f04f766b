#include "core/vocabulary/malloc_settings.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("settings of the allocator become tunables of glibc") {
  CHECK(with_malloc_settings("", {}).empty());
  CHECK(with_malloc_settings("", {{"keep", "true"}}) ==
        "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296:"
        "glibc.malloc.top_pad=67108864");
  CHECK(with_malloc_settings("", {{"huge_pages", "1"}}) == "glibc.malloc.hugetlb=1");
  const auto both = with_malloc_settings("", {{"huge_pages", "1"}, {"keep", "1"}});
  CHECK_THAT(both, ContainsSubstring("hugetlb=1") && ContainsSubstring("top_pad=67108864"));
}

TEST_CASE("tunables that a user has set stay, and those of a setting are replaced or taken out") {
  const std::string users = "glibc.malloc.arena_max=2:glibc.malloc.top_pad=4096";
  CHECK(with_malloc_settings(users, {{"huge_pages", "true"}}) == users + ":glibc.malloc.hugetlb=1");
  CHECK(with_malloc_settings(users, {{"keep", "true"}}) ==
        "glibc.malloc.arena_max=2:glibc.malloc.mmap_threshold=4294967296:"
        "glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=67108864");
  CHECK(with_malloc_settings(users, {{"keep", "false"}}) == "glibc.malloc.arena_max=2");
  CHECK(with_malloc_settings("glibc.malloc.hugetlb=2", {{"huge_pages", "0"}}).empty());
  // Twice the same makes it no longer.
  const auto once = with_malloc_settings("", {{"keep", "1"}, {"huge_pages", "1"}});
  CHECK(with_malloc_settings(once, {{"keep", "1"}, {"huge_pages", "1"}}).size() == once.size());
  CHECK(with_malloc_settings("::glibc.malloc.arena_max=2:", {}) == "glibc.malloc.arena_max=2");
}

TEST_CASE("a process knows from its tunables what was asked for") {
  using Names = std::vector<std::string>;
  const std::map<std::string, std::string> both{{"keep", "1"}, {"huge_pages", "1"}};
  CHECK(asked_malloc_settings("").empty());
  CHECK(asked_malloc_settings(with_malloc_settings("a.b.c=1", both)) ==
        Names{"keep", "huge_pages"});
  CHECK(asked_malloc_settings("glibc.malloc.hugetlb=1") == Names{"huge_pages"});
  // Half of a setting, or another value, is a user's own business.
  CHECK(asked_malloc_settings("glibc.malloc.top_pad=67108864:glibc.malloc.hugetlb=2").empty());
}

TEST_CASE("what is no setting of the allocator, or no value of it, is refused with what is") {
  CHECK(malloc_setting_mistake("keep", "false").empty());
  CHECK_THAT(malloc_setting_mistake("kepp", "true"), ContainsSubstring("Did you mean \"keep\"?"));
  CHECK(malloc_setting_mistake("huge_pages", "2M") ==
        "malloc huge_pages is \"2M\": expected true or false");
  CHECK(malloc_knob_mistake("malloc.keep", {"default", "1", "0"}).empty());
  CHECK(malloc_knob_mistake("env.A", {"64MiB"}).empty());
  CHECK_FALSE(malloc_knob_mistake("malloc.keep", {"default", "2"}).empty());
  CHECK_FALSE(malloc_knob_mistake("malloc.hugepages", {}).empty());
  CHECK_THROWS_WITH(with_malloc_settings("", {{"keep", "64MiB"}}),
                    ContainsSubstring("expected true or false"));
}

TEST_CASE("huge pages are worth asking for where the kernel waits to be asked") {
  CHECK(why_no_huge_pages("madvise").empty());
  CHECK_THAT(why_no_huge_pages("never"), ContainsSubstring("switched off"));
  CHECK_THAT(why_no_huge_pages("always"), ContainsSubstring("without asking"));
  CHECK(asks_for_huge_pages({{"malloc.huge_pages", "1"}, {"env.A", "1"}}));
  CHECK_FALSE(asks_for_huge_pages({{"malloc.huge_pages", "0"}, {"malloc.keep", "1"}}));
  CHECK_THAT(why_no_huge_pages(""), ContainsSubstring("no transparent huge pages"));
}
