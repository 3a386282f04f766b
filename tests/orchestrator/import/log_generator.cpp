#include "tests/orchestrator/import/log_generator.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "core/vocabulary/text.hpp"

namespace dynamiccl::testing {
namespace {

struct NcclProgram {
  const char* program;
  const char* collective;
  bool reduces;
  bool rooted;
  int kind;  ///< 0: all-reduce, 1: factor 1, 2: (n - 1) / n
};

constexpr std::array kNcclPrograms{NcclProgram{"all_reduce", "allreduce", true, false, 0},
                                   NcclProgram{"all_gather", "allgather", false, false, 2},
                                   NcclProgram{"reduce_scatter", "reduce_scatter", true, false, 2},
                                   NcclProgram{"broadcast", "broadcast", false, true, 1},
                                   NcclProgram{"reduce", "reduce", true, true, 1},
                                   NcclProgram{"sendrecv", "sendrecv", false, false, 1},
                                   NcclProgram{"alltoall", "alltoall", false, false, 2},
                                   NcclProgram{"gather", "gather", false, true, 2},
                                   NcclProgram{"scatter", "scatter", false, true, 2}};

double factor_of(const NcclProgram& program, int ranks) {
  const double parts = (ranks - 1.0) / ranks;
  return program.kind == 0 ? 2 * parts : program.kind == 1 ? 1 : parts;
}

struct OsuProgram {
  const char* title;
  const char* collective;
  bool per_rank;
};

constexpr std::array kOsuPrograms{
    OsuProgram{"Allreduce Latency", "allreduce", false},
    OsuProgram{"Reduce Latency", "reduce", false},
    OsuProgram{"Broadcast Latency", "broadcast", false},
    OsuProgram{"Allgather Latency", "allgather", true},
    OsuProgram{"All-to-All Personalized Exchange Latency", "alltoall", true},
    OsuProgram{"Gather Latency", "gather", true},
    OsuProgram{"Latency", "sendrecv", false}};

struct ImbProgram {
  const char* title;
  const char* collective;
  bool per_rank;
};

constexpr std::array kImbPrograms{
    ImbProgram{"Allreduce", "allreduce", false}, ImbProgram{"Reduce", "reduce", false},
    ImbProgram{"Bcast", "broadcast", false},     ImbProgram{"Allgather", "allgather", true},
    ImbProgram{"Alltoall", "alltoall", true},    ImbProgram{"Gather", "gather", true},
    ImbProgram{"Scatter", "scatter", true},      ImbProgram{"PingPong", "sendrecv", false}};

}  // namespace

int LogGenerator::pick(int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random_);
}

bool LogGenerator::chance(int percent) { return pick(1, 100) <= percent; }

std::string LogGenerator::two_decimals(double value) { return fmt::format("{:.2f}", value); }

/// As a network would take, with two decimals as most programs print.
double LogGenerator::time_us(std::uint64_t size) {
  const double time = (5 + pick(0, 3000) / 100.0) + static_cast<double>(size) / pick(2000, 40000);
  return std::round(time * 100) / 100;
}

GeneratedLog LogGenerator::nccl_tests(bool rccl) {
  GeneratedLog log;
  const auto& program =
      kNcclPrograms[static_cast<std::size_t>(pick(0, static_cast<int>(kNcclPrograms.size()) - 1))];
  const int processes = 1 << pick(0, 4);
  const int gpus = 1 << pick(processes == 1 ? 1 : 0, 3);
  const int ranks = processes * gpus;
  const bool names_program = !rccl && chance(50);
  const bool groups = chance(50);
  const bool checks = chance(80);
  const bool stamps = rccl && chance(20);
  const int agg = chance(15) ? 4 : 1;
  const std::string redop = !program.reduces ? "none" : chance(80) ? "sum" : "max";
  log.description = fmt::format("{} {} ranks {} agg {} checks {}", rccl ? "rccl" : "nccl",
                                program.program, ranks, agg, checks);
  if (names_program) {
    log.text += "# nccl-tests version 2.17.6 nccl-headers=22703 nccl-library=22703\n";
    log.text += fmt::format("# Collective test starting: {}_perf\n", program.program);
  } else {
    log.options = {"--operation", program.program};
  }
  log.text += fmt::format(
      "# nThread 1 nGpus {} minBytes 8 maxBytes 16777216 step: 2(factor) warmup iters: 5 iters: {} "
      "agg iters: {} validation: {} graph: 0\n#\n",
      gpus, pick(1, 100), agg, checks ? 1 : 0);
  if (rccl) log.text += "rccl-tests: Version develop:b0a3841\n";
  log.text += "# Using devices\n";
  for (int rank = 0; rank < ranks; ++rank)
    log.text += fmt::format("#  Rank {:2} {}Pid {:6} on {:>10} device {:2} [0000:{:02x}:00] GPU\n",
                            rank, groups ? "Group  0 " : "", 100 + rank / gpus,
                            fmt::format("host{}", rank / 8), rank % gpus, rank % 8);
  log.text += fmt::format(
      "#\n# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6} {:>6}  {:>7}  {:>6}  {:>6} "
      "{:>6}{}\n",
      "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw",
      "busbw", "#wrong", stamps ? "  timestamp" : "");
  log.text += fmt::format("# {:>10}  {:>12}\n", "(B)", "(elements)");
  const std::uint64_t parts = program.kind == 2 ? static_cast<std::uint64_t>(ranks) : 1;
  const int sizes = pick(1, 12);
  double wrong_rows = 0;
  for (int i = 0; i < sizes; ++i) {
    const std::uint64_t count = std::uint64_t{2} << (i + pick(0, 1) * 0);
    const std::uint64_t size = count * 4 * parts;
    log.text += fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:>6}", size, count, "float", redop,
                            program.rooted ? "0" : "-1");
    for (const bool in_place : {false, true}) {
      if (in_place && std::string(program.program) == "alltoall" && chance(50)) {
        log.text += fmt::format("  {:>7}  {:>6}  {:>6} {:>6}", "N/A", "N/A", "N/A", "N/A");
        continue;
      }
      const double time = time_us(size);
      const double algbw = static_cast<double>(size) / time / 1e3;
      const bool wrong = checks && chance(2);
      wrong_rows += wrong ? 1 : 0;
      log.text += fmt::format("  {:>7}  {:>6}  {:>6} {:>6}", two_decimals(time),
                              two_decimals(algbw), two_decimals(algbw * factor_of(program, ranks)),
                              !checks ? "N/A"
                              : wrong ? "3"
                                      : "0");
      (wrong ? log.failed_us : log.times_us)[{program.collective, ranks, size, in_place,
                                              redop == "max" ? redop : ""}] = time;
    }
    log.text += stamps ? "  2026-02-16 10:00:00\n" : "\n";
  }
  if (chance(85)) {
    log.text += fmt::format("# Out of bounds values : {} {}\n# Avg bus bandwidth    : 12.5 \n#\n",
                            3 * wrong_rows, wrong_rows > 0 ? "FAILED" : "OK");
  } else {
    log.complete = false;
    log.description += " cut";
  }
  dress(log);
  return log;
}

GeneratedLog LogGenerator::osu() {
  GeneratedLog log;
  const int tests = pick(1, 3);
  const int ranks = 1 << pick(1, 7);
  const bool by_command = chance(40);
  if (!by_command) log.options = {"--ranks", std::to_string(ranks)};
  log.description = fmt::format("osu {} tests {} ranks by command {}", tests, ranks, by_command);
  const int first = pick(0, static_cast<int>(kOsuPrograms.size()) - 1);
  for (int test = 0; test < tests; ++test) {
    const auto& program =
        kOsuPrograms[static_cast<std::size_t>(first + test) % kOsuPrograms.size()];
    const bool pair = std::string(program.collective) == "sendrecv";
    const bool full = !pair && chance(40);
    const bool checks = chance(30);
    if (by_command)
      log.text += fmt::format("+ mpirun -np {} ./osu_test -i 100\n", pair ? 2 : ranks);
    log.text += fmt::format("\n# OSU MPI{} {} Test v{}\n", chance(20) ? "-CUDA" : "", program.title,
                            chance(50) ? "5.8" : "7.5");
    if (chance(50)) log.text += "# Datatype: MPI_CHAR.\n";
    log.text +=
        fmt::format("# {:<8}{:>20}{}{}\n", "Size", pair ? "Latency (us)" : "Avg Latency(us)",
                    full ? "   Min Latency(us)   Max Latency(us)  Iterations" : "",
                    checks ? "        Validation" : "");
    std::uint64_t size = 1ULL << pick(0, 3);
    for (int i = pick(1, 12); i > 0; --i, size *= 2) {
      const double time = time_us(size);
      const bool wrong = checks && chance(3);
      log.text += fmt::format("{:<10}{:>18}", size, two_decimals(time));
      if (full)
        log.text +=
            fmt::format("{:>18}{:>18}{:>12}", two_decimals(time / 2), two_decimals(time * 2), 1000);
      log.text += checks ? (wrong ? "             Fail\n" : "             Pass\n") : "\n";
      const auto ours = program.per_rank ? size * static_cast<std::uint64_t>(ranks) : size;
      (wrong ? log.failed_us
             : log.times_us)[{program.collective, pair ? 2 : ranks, ours, false, ""}] = time;
    }
    if (chance(20)) log.text += fmt::format("{} total processes killed (some possibly)\n", ranks);
    if (chance(20))
      log.text += "# OSU MPI Barrier Latency Test v5.8\n# Avg Latency(us)\n      0.5\n";
  }
  dress(log);
  return log;
}

GeneratedLog LogGenerator::imb() {
  GeneratedLog log;
  const int most = 1 << pick(1, 6);
  log.description = fmt::format("imb to {} processes", most);
  log.text =
      "#----------------------------------------------------------------\n"
      "#    Intel(R) MPI Benchmarks 2021.3, MPI-1 part\n"
      "#----------------------------------------------------------------\n"
      "# Date                  : Mon Feb 16 10:00:00 2026\n"
      "# Calling sequence was:\n# ./IMB-MPI1 -npmin 2\n"
      "# MPI_Datatype                   :   MPI_BYTE\n"
      "# MPI_Datatype for reductions    :   MPI_FLOAT\n"
      "# MPI_Op                         :   MPI_SUM\n#\n";
  const int first = pick(0, static_cast<int>(kImbPrograms.size()) - 1);
  for (int test = 0, tests = pick(1, 4); test < tests; ++test) {
    const auto& program =
        kImbPrograms[static_cast<std::size_t>(first + test) % kImbPrograms.size()];
    const bool pair = std::string(program.collective) == "sendrecv";
    for (int ranks = 2; ranks <= (pair ? 2 : most); ranks *= 2) {
      log.text += fmt::format(
          "\n#-----------------------------------------------------------------------------\n"
          "# Benchmarking {}\n# #processes = {}\n{}"
          "#-----------------------------------------------------------------------------\n",
          program.title, ranks,
          ranks < most
              ? fmt::format("# ( {} additional processes waiting in MPI_Barrier)\n", most - ranks)
              : "");
      log.text += pair ? "       #bytes #repetitions      t[usec]   Mbytes/sec\n"
                       : "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n";
      std::uint64_t size = 4;
      for (int i = pick(1, 8); i > 0; --i, size *= 2) {
        const double time = time_us(size);
        log.text += fmt::format("{:13} {:12} ", size, 1000);
        log.text += pair ? fmt::format("{:>12} {:>12}\n", two_decimals(time),
                                       two_decimals(static_cast<double>(size) / time))
                         : fmt::format("{:>12} {:>12} {:>12}\n", two_decimals(time / 2),
                                       two_decimals(time * 2), two_decimals(time));
        const auto ours = program.per_rank ? size * static_cast<std::uint64_t>(ranks) : size;
        log.times_us[{program.collective, ranks, ours, false, ""}] = time;
      }
    }
  }
  if (chance(30))
    log.text +=
        "\n# Benchmarking Barrier\n# #processes = 2\n#repetitions  t_min[usec]\n 1000 0.5\n";
  log.text += "\n\n# All processes entering MPI_Finalize\n\n";
  dress(log);
  return log;
}

void LogGenerator::dress(GeneratedLog& log) {
  static const std::vector<std::string> prefixes{"",
                                                 "",
                                                 "",
                                                 "",
                                                 "[1,0]<stdout>:",
                                                 "0: ",
                                                 "[0] ",
                                                 "worker-0 | ",
                                                 "2026-02-16T10:00:00.123456Z ",
                                                 "Feb 16 10:00:00 node7 job[99]: ",
                                                 "> ",
                                                 "    "};
  const auto& prefix =
      prefixes[static_cast<std::size_t>(pick(0, static_cast<int>(prefixes.size()) - 1))];
  const bool windows = chance(10);
  if (prefix.empty() && !windows) return;
  log.description += " behind \"" + prefix + "\"";
  std::string dressed;
  for (const auto& line : split(log.text, '\n'))
    dressed += prefix + line + (windows ? "\r\n" : "\n");
  log.text = dressed;
}

}  // namespace dynamiccl::testing
