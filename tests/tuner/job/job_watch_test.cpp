#include "tuner/job/job_watch.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>

using namespace dynamiccl;
namespace fs = std::filesystem;

TEST_CASE("the step under way is known to be longer before it has ended", "[E-108]") {
  std::string folder = fs::temp_directory_path() / "job-watch-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  std::string problem;
  const auto stream = CallStream::make(folder, {5, 0, 2, 1, 77}, problem);
  INFO(problem);
  REQUIRE(stream != nullptr);
  std::int64_t now = 1'000'000'000;
  const auto call = [&](std::uint64_t bytes, double ms) {
    CallRecord record{};
    record.host_ns = now;
    record.bytes = bytes;
    record.function = 4;
    record.device_ns = 1000;
    stream->append(record);
    now += static_cast<std::int64_t>(ms * 1e6);
  };
  const auto step = [&](double ms) {
    for (const std::uint64_t bytes : {4096, 65536, 1 << 20}) call(bytes, ms / 3);
  };
  JobWatch watch(folder);
  watch.refresh();
  CHECK_FALSE(watch.latest_step());
  for (int i = 0; i < 60; ++i) step(9);
  watch.refresh();
  REQUIRE(watch.rhythm().found());
  REQUIRE(watch.latest_step());
  CHECK(std::abs(watch.latest_step()->count() - 9000) < 10);
  // A step of three times the length begins; two of its calls have come.
  call(4096, 9);
  call(65536, 9);
  call(1 << 20, 9);
  watch.refresh();
  CHECK(watch.latest_step()->count() > 17'000);
  CHECK(watch.recent_step(0)->count() < 10'000);
  fs::remove_all(folder);
}
