// Compares the worker with a plain MPI loop: same launcher flags, ranks, cadence, aggregator,
// warm-up and iterations; launches alternate in an order that is shuffled per block.
//   build/release/fidelity FLAVOUR [BLOCKS [RANKS]]
// BLOCKS count four times at 64 MiB and thirty times at 1 KiB.
// Prints per size the ratio worker/loop with its 95 % interval, and loop/loop from the same blocks:
// what this machine's noise alone makes of a ratio. Exit code 0 when every worker/loop interval
// lies inside 0.95-1.05, widened to the loop/loop interval where that is wider.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/error.hpp"
#include "core/wire/record.hpp"
#include "core/wire/run_config.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

struct Case {
  Bytes size;
  int warmup;
  int iterations;
  int batch;
  int blocks_factor;  ///< blocks measured for each block asked for
};
// 1 KiB in batches of the same length on both sides, 64 MiB call by call. Launches of small
// messages fall into groups that lie far apart (where the shared pages happen to lie), and are
// short: more of them. Launches of 64 MiB differ by a tenth: many short ones
// say more than few long ones.
constexpr std::array kCases{Case{Bytes(1024), 10, 200, 64, 30},
                            Case{Bytes(64 << 20), 3, 10, 1, 12}};

struct Setup {
  std::string launcher;  ///< with its flags, up to the program
  std::string folder;    ///< where the programs are
  std::string flavour;
  int ranks;
  double quiet = 10;  ///< percent of CPU pressure below which a block starts
  int wait_s = 30;    ///< a block starts anyway after this long, and the output shows the pressure
};

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) throw Error(ErrorKind::environment, command + ": cannot be started");
  std::string text;
  std::array<char, 256> part{};
  while (std::fgets(part.data(), part.size(), pipe.get()) != nullptr) text += part.data();
  return text;
}

double plain_loop_us(const Setup& setup, const Case& what) {
  const std::string command =
      fmt::format("{} {}/plain-mpi-loop-{} {} {} {} {}", setup.launcher, setup.folder,
                  setup.flavour, what.size.count(), what.warmup, what.iterations, what.batch);
  const double us = std::strtod(output_of(command).c_str(), nullptr);
  if (us <= 0) throw Error(ErrorKind::environment, command + ": printed no time");
  return us;
}

RunConfig config_of(const Setup& setup, const Case& what, const fs::path& folder) {
  RunConfig config;
  config.launch_id = "fidelity";
  config.backend = parse_named<Backend>(setup.flavour);
  config.ranks = setup.ranks;
  config.seed = std::random_device{}();
  config.output_dir = folder.string();
  config.protocol.warmup = what.warmup;
  config.protocol.iterations = what.iterations;
  config.protocol.min_iterations = what.iterations;
  config.protocol.max_batch = what.batch;
  // Any call is faster than this, so the batch is what max_batch allows.
  config.protocol.batch_target = Micros(what.batch > 1 ? 1e9 : 0);
  config.protocol.cell_time_cap = Micros(600e6);
  config.cells.push_back(
      {"cell", Collective::allreduce, what.size, DataType::float32, "library", false, {}});
  return config;
}

/// Median over iterations of the slowest rank, as the plain loop computes it.
double median_of_records(const RunConfig& config) {
  std::vector<double> slowest;
  for (int rank = 0; rank < config.ranks; ++rank) {
    for (const auto& record :
         read_record_file(config.output_dir + "/" + record_file_name(rank)).records) {
      const auto* cell = std::get_if<CellRecord>(&record);
      if (cell == nullptr) continue;
      if (cell->status != CellStatus::ok) throw Error(ErrorKind::environment, cell->reason);
      slowest.resize(cell->measured.total_us.size());
      for (std::size_t i = 0; i < slowest.size(); ++i)
        slowest[i] = std::max(slowest[i], cell->measured.total_us[i]);
    }
  }
  return median(slowest);
}

double worker_us(const Setup& setup, const Case& what) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("fidelity-{}", getpid());
  fs::create_directories(folder);
  const RunConfig config = config_of(setup, what, folder);
  std::ofstream(folder / "run.json") << to_json(config);
  output_of(fmt::format("{} {}/dynamiccl-worker-{} {}/run.json", setup.launcher, setup.folder,
                        setup.flavour, folder.string()));
  const double us = median_of_records(config);
  fs::remove_all(folder);
  return us;
}

std::string show(const Ratio& ratio) {
  return fmt::format("{:.4f} [{:.4f}, {:.4f}]", ratio.value, ratio.interval->low,
                     ratio.interval->high);
}

/// Share of the last 10 s in which a runnable task had to wait, in percent; 0 where the kernel
/// does not tell.
double cpu_pressure() {
  std::ifstream file("/proc/pressure/cpu");
  std::string line;
  std::getline(file, line);
  const std::size_t at = line.find("avg10=");
  return at == std::string::npos ? 0 : std::strtod(line.c_str() + at + 6, nullptr);
}

/// Blocks start only on a quiet machine: a rule that looks at the pressure, never at the times.
/// @returns the pressure at the end of waiting
double wait_for_quiet(double limit, int seconds) {
  double pressure = cpu_pressure();
  for (int i = 0; i < seconds && pressure > limit; ++i) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    pressure = cpu_pressure();
  }
  return pressure;
}

bool compare(const Setup& setup, const Case& what, int asked_blocks) {
  const int blocks = asked_blocks * what.blocks_factor;
  std::mt19937 shuffle(std::random_device{}());
  // Worker, loop, and the loop again: the third shows what noise alone does to a ratio.
  std::array<std::vector<double>, 3> times;
  double pressure = 0;
  for (int block = 0; block < blocks; ++block) {
    std::array order{0, 1, 2};
    std::shuffle(order.begin(), order.end(), shuffle);
    pressure = std::max(pressure, wait_for_quiet(setup.quiet, setup.wait_s));
    for (const int which : order) {
      times[static_cast<std::size_t>(which)].push_back(which == 0 ? worker_us(setup, what)
                                                                  : plain_loop_us(setup, what));
    }
  }
  const Ratio worker = ratio_paired(times[0], times[1]);
  const Ratio loop = ratio_paired(times[2], times[1]);
  const double low = std::min(0.95, loop.interval->low);
  const double high = std::max(1.05, loop.interval->high);
  const bool inside = worker.interval->low >= low && worker.interval->high <= high;
  fmt::print("{} allreduce {}, {} ranks, batch {}, {} iterations, {} blocks: worker {} loop {}\n",
             setup.flavour, format_bytes(what.size), setup.ranks, what.batch, what.iterations,
             blocks, format_micros(Micros(median(times[0]))),
             format_micros(Micros(median(times[1]))));
  fmt::print("  highest CPU pressure before a block: {:.0f} %\n", pressure);
  fmt::print("  worker/loop {}   loop/loop {}   allowed [{:.4f}, {:.4f}]   {}\n", show(worker),
             show(loop), low, high, inside ? "inside" : "OUTSIDE");
  std::fflush(stdout);
  return inside;
}

int run(int argc, char** argv) {
  if (argc < 2 || (std::string(argv[1]) != "openmpi" && std::string(argv[1]) != "mpich")) {
    fmt::print(stderr, "usage: {} openmpi|mpich [BLOCKS [RANKS]]\n", argv[0]);
    return 2;
  }
  Setup setup;
  setup.flavour = argv[1];
  const int blocks = std::max(2, argc > 2 ? std::atoi(argv[2]) : 10);
  setup.ranks = std::max(1, argc > 3 ? std::atoi(argv[3]) : 2);
  setup.folder = fs::canonical("/proc/self/exe").parent_path();
  setup.launcher = setup.flavour == "openmpi"
                       ? fmt::format("mpirun.openmpi --allow-run-as-root -n {}", setup.ranks)
                       : fmt::format("mpirun.mpich -n {}", setup.ranks);
  bool all_inside = true;
  for (const auto& what : kCases) all_inside = compare(setup, what, blocks) && all_inside;
  return all_inside ? 0 : 1;
}

}  // namespace
}  // namespace dynamiccl

int main(int argc, char** argv) {
  try {
    return dynamiccl::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 1;
  }
}
