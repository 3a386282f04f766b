#include "tuner/job/job_watch.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

/// A job that tells its calls into a folder of its own.
class ToldJob {
 public:
  ToldJob() : folder_(fs::temp_directory_path() / "job-watch-XXXXXX") {
    REQUIRE(mkdtemp(folder_.data()) != nullptr);
    std::string problem;
    stream_ = CallStream::make(folder_, {5, 0, 2, 1, 77}, problem);
    INFO(problem);
    REQUIRE(stream_ != nullptr);
  }
  ~ToldJob() { fs::remove_all(folder_); }
  ToldJob(const ToldJob&) = delete;
  ToldJob& operator=(const ToldJob&) = delete;

  void call(std::uint64_t bytes, double ms, std::uint8_t function = 4) {
    CallRecord record{};
    record.host_ns = now_;
    record.bytes = bytes;
    record.function = function;
    record.device_ns = 1000;
    stream_->append(record);
    now_ += static_cast<std::int64_t>(ms * 1e6);
  }
  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  std::unique_ptr<CallStream> stream_;
  std::int64_t now_ = 1'000'000'000;
};

/// Steps of 25 calls: a small one after a pause, then a layer's two in turn.
void tell_steps(ToldJob& job, int& told, int calls) {
  for (; calls > 0; --calls, ++told) {
    const int at = told % 25;
    job.call(at == 0 ? 4 : at % 2 == 1 ? 8192 : 16384, at == 0 ? 20 : 2);
  }
}

}  // namespace

TEST_CASE("layers are not believed to be the step once several steps were heard", "[E-105]") {
  ToldJob job;
  JobWatch watch(job.folder());
  int told = 0;
  const auto tell = [&](int calls) {
    tell_steps(job, told, calls);
    watch.refresh();
  };
  for (int i = 0; i < 300; ++i) job.call(4096, 1, 0);
  tell(40);
  CHECK(watch.rhythm().pattern.size() == 2);
  CHECK(watch.interruptions() == 1);
  CHECK_FALSE(watch.confirmed());
  // Two calls have outlived as many as they were found in; so has what they are a part of been
  // heard often enough to be found.
  tell(75);
  CHECK(watch.rhythm().pattern.size() == 25);
  CHECK_FALSE(watch.confirmed());
  tell(130);
  CHECK(watch.rhythm().pattern.size() == 25);
  CHECK(watch.interruptions() == 0);
  CHECK(watch.confirmed());
}

TEST_CASE("layers that were believed give way to the step when they are asked for once more",
          "[E-105]") {
  ToldJob job;
  JobWatch watch(job.folder());
  int told = 0;
  const auto tell = [&](int calls) {
    tell_steps(job, told, calls);
    watch.refresh();
    static_cast<void>(watch.rhythm());
  };
  for (int i = 0; i < 300; ++i) job.call(4096, 1, 0);
  tell(40);
  tell(45);
  tell(25);
  // Four steps were heard, but nobody has looked since there were three.
  REQUIRE(watch.rhythm().pattern.size() == 2);
  REQUIRE(watch.confirmed());
  CHECK(watch.outgrown());
  CHECK(watch.rhythm().pattern.size() == 25);
  CHECK_FALSE(watch.confirmed());
  CHECK_FALSE(watch.outgrown());
}

TEST_CASE("the step under way is known to be longer before it has ended", "[E-108]") {
  ToldJob job;
  const auto call = [&](std::uint64_t bytes, double ms) { job.call(bytes, ms); };
  const auto step = [&](double ms) {
    for (const std::uint64_t bytes : {4096, 65536, 1 << 20}) call(bytes, ms / 3);
  };
  JobWatch watch(job.folder());
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
}
