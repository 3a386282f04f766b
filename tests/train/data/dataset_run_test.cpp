// The real trainers on files of their own: what ranks must agree on before they train.
#include "train/data/dataset.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/train/training_job.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Folders, each the current one of a rank, so that a relative path is another one for each.
class RankFolders {
 public:
  explicit RankFolders(const Job& job) : path_(job.config.output_dir) {
    for (int rank = 0; rank < job.config.ranks; ++rank) create_directories(folder(rank));
  }
  ~RankFolders() { current_path(home_); }
  RankFolders(const RankFolders&) = delete;
  RankFolders& operator=(const RankFolders&) = delete;
  /// CIFAR-10 records of one colour.
  void write(int rank, const std::string& name, int records, char colour) const {
    const auto path = folder(rank) / name;
    create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < records; ++i)
      file << static_cast<char>(i % 10) << std::string(3072, colour);
  }
  void start(Job& job) const {
    for (int rank = 0; rank < job.config.ranks; ++rank) {
      current_path(folder(rank));
      job.start_alone(rank);
    }
  }
  [[nodiscard]] std::filesystem::path folder(int rank) const {
    return path_ / ("rank-" + std::to_string(rank));
  }

 private:
  std::filesystem::path path_;
  std::filesystem::path home_ = std::filesystem::current_path();
};

}  // namespace

TEST_CASE("an accuracy to reach needs samples to see it by", "[a-12]") {
  auto job = job_of(Backend::gloo, 2, {TrainingMethod::bsp_a2a}, 0);
  const RankFolders folders(*job);
  for (const int rank : {0, 1}) folders.write(rank, "own/data_batch_1.bin", 16, '\x40');
  edit_specs(*job, [](TrainingSpec& spec) {
    spec.data = "own";
    spec.epochs = 2;
    spec.target = 0.5;
  });
  folders.start(*job);
  REQUIRE(job->wait(kTimeoutS) == 0);
  const auto records = job->records_of<CellRecord>(1);
  REQUIRE(records.size() == 1);
  CHECK(records[0].status == CellStatus::unsupported);
  CHECK_THAT(records[0].reason, ContainsSubstring("add test_batch.bin"));
}

TEST_CASE("data that one rank lacks is trained on by none, in that cell and in those after it") {
  auto job =
      job_of(Backend::gloo, 2,
             {TrainingMethod::bsp_a2a, TrainingMethod::wfbp_a2a, TrainingMethod::mg_wfbp}, 0);
  const RankFolders folders(*job);
  folders.write(0, "own/data_batch_1.bin", 16, '\x40');
  edit_specs(*job, [](TrainingSpec& spec) {
    if (spec.method == TrainingMethod::wfbp_a2a) spec.data = "own";
  });
  folders.start(*job);
  const int code = job->wait(kTimeoutS);
  INFO(job->errors());
  REQUIRE(code == 0);
  for (const int rank : {0, 1}) {
    const auto records = job->records_of<CellRecord>(rank);
    REQUIRE(records.size() == 3);
    CHECK(records[1].status == CellStatus::unsupported);
    CHECK_THAT(records[1].reason, ContainsSubstring("data = \"own\": neither data_batch_1.bin"));
    REQUIRE(records[2].status == CellStatus::ok);
    REQUIRE(records[0].training);
    REQUIRE(records[2].training);
    CHECK(records[2].training->details.at("data") == records[0].training->details.at("data"));
    // The sums of two ranks do not depend on the method.
    CHECK(records[2].training->parameters_sha256 == records[0].training->parameters_sha256);
    CHECK(records[2].training->details.at("losses") == records[0].training->details.at("losses"));
  }
}

TEST_CASE("ranks with different files do not train, and say whose digest is which") {
  const auto method = GENERATE(TrainingMethod::bsp_a2a, TrainingMethod::bsp_ps);
  const int servers = method == TrainingMethod::bsp_ps ? 1 : 0;
  auto job = job_of(Backend::gloo, 2, {method}, 0);
  const RankFolders folders(*job);
  for (const int rank : {0, 1, 2}) {
    folders.write(rank, "own/data_batch_1.bin", 16, '\x40');
    folders.write(rank, "own/data_batch_2.bin", 16, rank == 1 + servers ? '\x41' : '\x40');
  }
  edit_specs(*job, [](TrainingSpec& spec) { spec.data = "own"; });
  folders.start(*job);
  const int code = job->wait(kTimeoutS);
  INFO(job->errors());
  REQUIRE(code == 0);
  std::set<std::string> reasons;
  for (int rank = 0; rank < job->config.ranks; ++rank) {
    const auto records = job->records_of<CellRecord>(rank);
    REQUIRE(records.size() == 1);
    CHECK(records[0].status == CellStatus::unsupported);
    reasons.insert(records[0].reason);
  }
  REQUIRE(reasons.size() == 1);
  TrainingSpec spec;
  for (int worker = 0; worker < 2; ++worker) {
    spec.data = folders.folder(worker + servers) / "own";
    CHECK_THAT(*reasons.begin(), ContainsSubstring("rank " + std::to_string(worker + servers) +
                                                   " is " + open_dataset(spec)->digest()));
  }
  CHECK_THAT(*reasons.begin(), ContainsSubstring("give every host the same files"));
}
