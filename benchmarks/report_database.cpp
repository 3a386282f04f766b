// report_database FILE [SAMPLES]: a database with one run of at least SAMPLES (1,000,000) raw
// samples, shaped like the quickstart: four environments, three backends, both architectures, five
// operations, eight sizes, ten launches. Times follow a start-up time, a bandwidth and log-normal
// noise by a fixed seed.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "core/vocabulary/digest.hpp"
#include "db/store.hpp"

namespace {

using namespace dynamiccl;

constexpr int kRanks = 2;
constexpr int kBlocks = 10;

struct Plan {
  RunInfo run;
  std::vector<GroupInfo> groups;
  std::vector<CellInfo> cells;
};

Plan make_plan() {
  Plan plan;
  plan.run.id = "report-benchmark";
  plan.run.name = "report-benchmark";
  plan.run.spec_path = "benchmarks/report_database.cpp";
  plan.run.host_json = "{}";
  plan.run.protocol_json = "{}";
  for (const char* environment : {"bare-metal", "singularity", "single-docker", "cross-docker"}) {
    for (const char* backend : {"openmpi", "mpich", "gloo"}) {
      for (const char* architecture : {"ring", "ps"}) {
        const auto id = stable_id(fmt::format("{} {} {}", environment, backend, architecture));
        plan.groups.push_back({id, environment, "{}", backend, architecture, kRanks, "{}"});
        const bool ring = std::string(architecture) == "ring";
        for (const char* collective :
             {"broadcast", ring ? "allreduce" : "gather", ring ? "allgather" : "push",
              ring ? "reduce" : "pull", ring ? "reduce_scatter" : "push_pull"}) {
          for (std::uint64_t size = 1024; size <= (std::uint64_t{16} << 20); size *= 4) {
            CellInfo cell;
            cell.id = stable_id(fmt::format("{} {} {}", id, collective, size));
            cell.group_id = id;
            cell.collective = collective;
            cell.size_bytes = size;
            cell.datatype = "float32";
            cell.algorithm = "library";
            plan.cells.push_back(cell);
          }
        }
      }
    }
  }
  return plan;
}

double typical_us(const GroupInfo& group, const CellInfo& cell) {
  const double slow = group.environment == "cross-docker" ? 3.0
                      : group.environment == "bare-metal" ? 1.0
                                                          : 1.05;
  return slow * (5.0 + static_cast<double>(cell.size_bytes) / 4000.0);
}

std::vector<RecordFile> make_records(const Plan& plan, const GroupInfo& group, int iterations,
                                     std::mt19937_64& random) {
  std::lognormal_distribution<double> within(0, 0.05);
  const double launch = std::lognormal_distribution<double>(0, 0.03)(random);
  std::vector<RecordFile> files;
  for (int rank = 0; rank < kRanks; ++rank) {
    RecordFile file;
    for (const auto& cell : plan.cells) {
      if (cell.group_id != group.id) continue;
      CellRecord record;
      record.cell_id = cell.id;
      record.rank = rank;
      record.barrier = "dissemination";
      for (int i = 0; i < iterations; ++i) {
        const double total = typical_us(group, cell) * launch * within(random);
        record.measured.start_us.push_back(i * 1000.0);
        record.measured.total_us.push_back(total);
        record.measured.collective_us.push_back(0.9 * total);
      }
      file.records.emplace_back(std::move(record));
    }
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "report_database FILE [SAMPLES]\n");
    return 2;
  }
  const double samples = argc > 2 ? std::atof(argv[2]) : 1e6;
  std::filesystem::remove(argv[1]);
  Store store(argv[1]);
  const Plan plan = make_plan();
  const int iterations = std::max(
      5, static_cast<int>(
             std::ceil(samples / (static_cast<double>(plan.cells.size()) * kRanks * kBlocks))));
  store.begin_run(plan.run, plan.groups, plan.cells);
  std::mt19937_64 random(1);
  for (int block = 0; block < kBlocks; ++block) {
    for (const auto& group : plan.groups) {
      LaunchStart start;
      start.uuid = fmt::format("{}-{}", group.id, block);
      start.group_id = group.id;
      start.block = block;
      store.finish_launch(store.begin_launch(plan.run.id, start), LaunchEnd{},
                          make_records(plan, group, iterations, random));
    }
  }
  store.end_run(plan.run.id, "complete");
}
