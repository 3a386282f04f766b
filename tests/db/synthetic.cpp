#include "tests/db/synthetic.hpp"

#include <fmt/format.h>
#include <stdlib.h>  // NOLINT: mkdtemp is POSIX

#include <filesystem>
#include <map>

#include "core/vocabulary/digest.hpp"

namespace dynamiccl::testing {

ScratchFolder::ScratchFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "dynamiccl-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no scratch folder");
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

SyntheticPlan make_plan(const std::string& run_id, const std::vector<std::string>& environments,
                        const std::vector<std::string>& collectives,
                        const std::vector<std::uint64_t>& sizes, int ranks) {
  SyntheticPlan plan;
  plan.run.id = run_id;
  plan.run.name = "synthetic";
  plan.run.spec_path = "experiments/synthetic.toml";
  plan.run.spec_text = "name = \"synthetic\"";
  plan.run.seed = 18446744073709551615U;
  plan.run.argv = {"dynamiccl", "run", "experiments/synthetic.toml"};
  plan.run.tool_version = "0.1.0";
  plan.run.host_json = R"({"kernel":"6.1"})";
  plan.run.protocol_json = R"({"launches":3,"rank_aggregation":"max"})";
  for (const auto& environment : environments) {
    const std::string group = stable_id("group " + environment);
    plan.groups.push_back(
        {group, environment, R"({"kind":")" + environment + R"("})", "openmpi", "ring", ranks, ""});
    for (const auto& collective : collectives) {
      for (const auto size : sizes) {
        CellInfo cell;
        cell.id = stable_id(fmt::format("cell {} {} {}", environment, collective, size));
        cell.group_id = group;
        cell.collective = collective;
        cell.size_bytes = size;
        cell.datatype = "float32";
        cell.algorithm = "library";
        plan.cells.push_back(cell);
      }
    }
  }
  return plan;
}

std::vector<RecordFile> make_records(const std::vector<CellInfo>& cells,
                                     const std::string& group_id, const std::string& launch_id,
                                     int ranks, int iterations, const TimeOf& time_us) {
  std::vector<RecordFile> files;
  for (int rank = 0; rank < ranks; ++rank) {
    RecordFile file;
    HelloRecord hello;
    hello.rank = rank;
    hello.world_size = ranks;
    hello.launch_id = launch_id;
    hello.library = "Open MPI 4.1.4";
    hello.library_version = "4.1.4";
    file.records.emplace_back(hello);
    file.records.emplace_back(FactsRecord{rank, {{"hostname", "a"}}});
    int position = 0;
    for (const auto& cell : cells) {
      if (cell.group_id != group_id) continue;
      CellRecord record;
      record.cell_id = cell.id;
      record.rank = rank;
      record.position = position++;
      record.barrier = "dissemination";
      record.algorithm = "ring";
      record.checked = cell.size_bytes / 4;
      record.warmup.total_us = {1000.0, 900.0};
      double start = 0;
      for (int i = 0; i < iterations; ++i) {
        const double total = time_us(cell, rank, i);
        record.measured.start_us.push_back(start);
        record.measured.total_us.push_back(total);
        record.measured.collective_us.push_back(total * 0.75);
        record.measured.h2d_us.push_back(total * 0.25);
        start += total;
      }
      file.records.emplace_back(record);
    }
    TransportRecord transport;
    transport.rank = rank;
    transport.transport = "cma";
    transport.payload_bytes = 4096;
    transport.cma_bytes = 4096;
    transport.evidence = "process_vm_readv moved the payload";
    file.records.emplace_back(transport);
    file.records.emplace_back(DoneRecord{rank, 1.7e9, 1e7});
    files.push_back(std::move(file));
  }
  return files;
}

std::string text(const Reader& reader, const std::string& sql) {
  return std::get<std::string>(reader.query(sql).rows.at(0).at(0));
}

LaunchStart make_start(const std::string& group_id, int block, int attempt) {
  LaunchStart start;
  start.uuid = fmt::format("launch-{}-{}-{}", group_id, block, attempt);
  start.group_id = group_id;
  start.block = block;
  start.attempt = attempt;
  start.argv = {"mpirun", "-np", "2"};
  return start;
}

LaunchEnd make_end(LaunchStatus status, const std::string& reason) {
  LaunchEnd end;
  end.status = status;
  end.reason = reason;
  end.exit_code = status == LaunchStatus::ok ? 0 : 1;
  end.duration_s = 1.5;
  end.regime_id = "0123456789abcdef";
  end.regime_name = "host-shm";
  end.regime_json = "{}";
  return end;
}

std::int64_t store_launch(Store& store, const SyntheticPlan& plan, const GroupInfo& group,
                          int block, const TimeOf& time_us, int iterations) {
  auto start = make_start(group.id, block);
  start.uuid = plan.run.id + start.uuid;
  start.container_json = plan.container_json;
  const auto launch = store.begin_launch(plan.run.id, start);
  store.finish_launch(
      launch, make_end(),
      make_records(plan.cells, group.id, start.uuid, group.ranks, iterations, time_us));
  return launch;
}

SyntheticPlan store_training(Store& store, const SyntheticTraining& training,
                             const TrainingFigures& figures, int blocks) {
  return store_training(
      store, training, [&](std::size_t, int) { return figures; }, blocks);
}

SyntheticPlan store_training(Store& store, const SyntheticTraining& training,
                             const FiguresOf& figures, int blocks) {
  std::vector<std::uint64_t> sizes;
  for (std::size_t i = 0; i < training.methods.size(); ++i) sizes.push_back(1024 * (i + 1));
  auto plan = make_plan("trained", {"bare-metal"}, {"training"}, sizes);
  std::map<std::string, double> step_us;
  std::map<std::string, std::size_t> method_of;
  for (std::size_t i = 0; i < plan.cells.size(); ++i) {
    plan.cells[i].algorithm = training.methods[i].first;
    plan.cells[i].knobs_json = training.methods[i].second;
    plan.cells[i].size_bytes = 1024;  // one model's gradients
    step_us[plan.cells[i].id] = training.step_us[i];
    method_of[plan.cells[i].id] = i;
  }
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < blocks; ++block) {
    const auto start = make_start(plan.groups[0].id, block);
    const auto launch = store.begin_launch(plan.run.id, start);
    auto files = make_records(
        plan.cells, plan.groups[0].id, start.uuid, 2, 10,
        [&](const CellInfo& cell, int, int) { return step_us.at(cell.id) * (1 + 0.01 * block); });
    for (auto& file : files) {
      for (auto& record : file.records)
        if (auto* cell = std::get_if<CellRecord>(&record))
          cell->training = figures(method_of.at(cell->cell_id), block);
    }
    store.finish_launch(launch, make_end(), files);
  }
  return plan;
}

}  // namespace dynamiccl::testing
