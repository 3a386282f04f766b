#include "orchestrator/launch/smpi.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "containers/command.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "embedded/no_copies_c.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/launch/passing_folder.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

/// Longer than any that ended in a useful time: a ring of 1,024 ranks takes most of it.
constexpr std::chrono::milliseconds kPatience{60000};

struct Pair {
  Collective collective;
  std::string_view model;
  std::string_view smpi;
};
constexpr std::array kPairs{
    Pair{Collective::allreduce, "ring", "lr"},
    Pair{Collective::allreduce, "recursive_doubling", "rdb"},
    Pair{Collective::allreduce, "rabenseifner", "rab_rdb"},
    Pair{Collective::broadcast, "binomial", "binomial_tree"},
    Pair{Collective::broadcast, "scatter_allgather", "scatter_rdb_allgather"},
    Pair{Collective::broadcast, "scatter_allgather_ring", "scatter_LR_allgather"},
    Pair{Collective::reduce, "binomial", "binomial"},
    Pair{Collective::reduce, "rabenseifner", "scatter_gather"},
    Pair{Collective::allgather, "ring", "ring"},
    Pair{Collective::allgather, "bruck", "bruck"},
    Pair{Collective::allgather, "recursive_doubling", "rdb"},
    Pair{Collective::allgather, "neighbor", "ompi_neighborexchange"},
    Pair{Collective::reduce_scatter, "ring", "ompi_ring"},
    Pair{Collective::reduce_scatter, "recursive_halving", "ompi_basic_recursivehalving"},
    Pair{Collective::gather, "binomial", "ompi_binomial"},
    Pair{Collective::alltoall, "modified_bruck", "bruck"}};

/// What else SMPI has of these calls, and the model that its manual's words describe, if any: what
/// takes several ranks of a node for granted, and libraries' rules, have none. Left out are its
/// "default", another's name, and what it cannot run everywhere.
constexpr std::array kFurther{Pair{Collective::allreduce, "rabenseifner", "rab1"},
                              Pair{Collective::allreduce, "rabenseifner", "rab2"},
                              Pair{Collective::allreduce, "rabenseifner", "rab"},
                              Pair{Collective::allreduce, "", "smp_binomial"},
                              Pair{Collective::allreduce, "", "smp_binomial_pipeline"},
                              Pair{Collective::allreduce, "", "smp_rdb"},
                              Pair{Collective::allreduce, "", "smp_rsag"},
                              Pair{Collective::allreduce, "", "smp_rsag_lr"},
                              Pair{Collective::allreduce, "", "smp_rsag_rab"},
                              Pair{Collective::allreduce, "nonoverlapping", "redbcast"},
                              Pair{Collective::allreduce, "ring", "ompi_ring_segmented"},
                              Pair{Collective::allreduce, "", "ompi"},
                              Pair{Collective::allreduce, "", "mpich"},
                              Pair{Collective::allreduce, "", "mvapich2"},
                              Pair{Collective::allreduce, "rabenseifner", "mvapich2_rs"},
                              Pair{Collective::allreduce, "", "mvapich2_two_level"},
                              Pair{Collective::allreduce, "", "impi"},
                              Pair{Collective::broadcast, "", "flattree"},
                              Pair{Collective::broadcast, "", "flattree_pipeline"},
                              Pair{Collective::broadcast, "", "NTSB"},
                              Pair{Collective::broadcast, "", "NTSL"},
                              Pair{Collective::broadcast, "", "ompi_split_bintree"},
                              Pair{Collective::broadcast, "", "ompi_pipeline"},
                              Pair{Collective::broadcast, "", "ompi"},
                              Pair{Collective::broadcast, "", "mpich"},
                              Pair{Collective::broadcast, "", "mvapich2"},
                              Pair{Collective::broadcast, "", "impi"},
                              Pair{Collective::reduce, "", "ompi_chain"},
                              Pair{Collective::reduce, "", "ompi_pipeline"},
                              Pair{Collective::reduce, "", "ompi_basic_linear"},
                              Pair{Collective::reduce, "", "ompi_in_order_binary"},
                              Pair{Collective::reduce, "", "ompi_binary"},
                              Pair{Collective::reduce, "binomial", "ompi_binomial"},
                              Pair{Collective::reduce, "", "ompi"},
                              Pair{Collective::reduce, "", "mpich"},
                              Pair{Collective::reduce, "", "mvapich2"},
                              Pair{Collective::reduce, "", "impi"},
                              Pair{Collective::allgather, "", "pair"},
                              Pair{Collective::allgather, "", "rhv"},
                              Pair{Collective::allgather, "", "spreading_simple"},
                              Pair{Collective::allgather, "", "ompi"},
                              Pair{Collective::allgather, "", "mpich"},
                              Pair{Collective::allgather, "", "mvapich2"},
                              Pair{Collective::allgather, "", "impi"},
                              Pair{Collective::reduce_scatter, "", "ompi_butterfly"},
                              Pair{Collective::reduce_scatter, "", "mpich_pair"},
                              Pair{Collective::reduce_scatter, "", "mpich_rdb"},
                              Pair{Collective::reduce_scatter, "", "ompi"},
                              Pair{Collective::reduce_scatter, "", "mpich"},
                              Pair{Collective::reduce_scatter, "", "mvapich2"},
                              Pair{Collective::reduce_scatter, "", "impi"},
                              Pair{Collective::gather, "", "ompi_basic_linear"},
                              Pair{Collective::gather, "", "ompi_linear_sync"},
                              Pair{Collective::gather, "", "ompi"},
                              Pair{Collective::gather, "", "mpich"},
                              Pair{Collective::gather, "", "mvapich2"},
                              Pair{Collective::gather, "", "impi"},
                              Pair{Collective::alltoall, "", "basic_linear"},
                              Pair{Collective::alltoall, "", "pair"},
                              Pair{Collective::alltoall, "", "ring"},
                              Pair{Collective::alltoall, "", "ompi"},
                              Pair{Collective::alltoall, "", "mpich"},
                              Pair{Collective::alltoall, "", "mvapich2"},
                              Pair{Collective::alltoall, "", "impi"}};

/// What a trace's line and a C program say of a call, and what SMPI's option for its algorithm is
/// called. In lines {0} are all elements of 4 bytes, {1} a rank's share and {2} those of all ranks.
struct Traced {
  Collective collective;
  std::string_view option;
  std::string_view line;
  std::string_view call;
};
constexpr std::array kTraced{
    Traced{Collective::allreduce, "allreduce", "allreduce {0} 0 1",
           "MPI_Allreduce(from, to, all, MPI_FLOAT, op, MPI_COMM_WORLD)"},
    Traced{Collective::broadcast, "bcast", "bcast {0} 0 1",
           "MPI_Bcast(to, all, MPI_FLOAT, 0, MPI_COMM_WORLD)"},
    Traced{Collective::reduce, "reduce", "reduce {0} 0 0 1",
           "MPI_Reduce(from, to, all, MPI_FLOAT, op, 0, MPI_COMM_WORLD)"},
    Traced{Collective::allgather, "allgather", "allgather {1} {1} 1 1",
           "MPI_Allgather(from, part, MPI_FLOAT, to, part, MPI_FLOAT, MPI_COMM_WORLD)"},
    Traced{Collective::reduce_scatter, "reduce_scatter", "reducescatter {2} 0 1",
           "MPI_Reduce_scatter_block(from, to, part, MPI_FLOAT, op, MPI_COMM_WORLD)"},
    Traced{Collective::gather, "gather", "gather {1} {1} 0 1 1",
           "MPI_Gather(from, part, MPI_FLOAT, to, part, MPI_FLOAT, 0, MPI_COMM_WORLD)"},
    Traced{Collective::alltoall, "alltoall", "alltoall {1} {1} 1 1",
           "MPI_Alltoall(from, part, MPI_FLOAT, to, part, MPI_FLOAT, MPI_COMM_WORLD)"}};

/// A program of one kind of call. All ranks begin each at once, every 10,000 simulated seconds. It
/// prints how long the last one took, until the last rank had ended it, and then, in seconds, when
/// each rank began each call and how long it took. The first call warms up: rules that know of
/// nodes make communicators of them in it. Buffers of all ranks are one piece of memory, as nothing
/// is computed: sums are none.
constexpr std::string_view kProgram = R"(#include <mpi.h>
#include <simgrid/version.h>
#include <smpi/smpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double* every = NULL; /* ranks share the memory of the program */
static void nothing(void* from, void* to, int* count, MPI_Datatype* type) {
  (void)from, (void)to, (void)count, (void)type;
}
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Op op;
  MPI_Op_create(nothing, 1, &op);
  const int all = atoi(argv[1]), part = atoi(argv[2]), calls = atoi(argv[3]);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  float* from = SMPI_SHARED_MALLOC(4ul * all);
  float* to = SMPI_SHARED_MALLOC(4ul * all);
  if (every == NULL) every = malloc(2ul * calls * ranks * sizeof(double));
  double* own = every + 2ul * calls * rank;
  for (int i = 0; i < calls; ++i) {
    if (i > 0) {
      const double left = 1e4 * i - MPI_Wtime();
      struct timespec pause = {(time_t)left, (long)(1e9 * (left - (time_t)left))};
      nanosleep(&pause, NULL);
    }
    own[2 * i] = MPI_Wtime();
    CALL;
    own[2 * i + 1] = MPI_Wtime();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    const double* last = every + 2 * (calls - 1);
    double begin = last[0], end = last[1];
    for (int r = 1; r < ranks; ++r) {
      last += 2 * calls;
      if (last[0] < begin) begin = last[0];
      if (last[1] > end) end = last[1];
    }
    printf("SimGrid %d.%d\ntime=%.12g\n", SIMGRID_VERSION_MAJOR, SIMGRID_VERSION_MINOR,
           end - begin);
    for (int i = 0; i < calls * ranks; ++i)
      printf("call %d %.15g %.15g\n", i / calls, every[2 * i], every[2 * i + 1] - every[2 * i]);
  }
  if (rank == 0) free(every);
  SMPI_SHARED_FREE(from);
  SMPI_SHARED_FREE(to);
  return MPI_Finalize();
}
)";

/// More than these, and what the simulator itself has of its nodes may be as long as a message: it
/// would not be copied either.
constexpr int kMostNodesWithoutCopies = 1024;

/// Words of smpirun that load it where it may be, for ranks that share the program's memory.
/// @throws Error(environment) for a path that smpirun or the loader would take for several
std::vector<std::string> without_copies(const MachineModel& machine, const std::string& library) {
  if (machine.nodes > kMostNodesWithoutCopies) return {"-no-privatize"};
  if (library.find_first_of(" \t\n:;'\"\\$`") != std::string::npos)
    throw Error(ErrorKind::environment,
                library +
                    ": smpirun loads nothing whose path has a blank, colon or quote; TMPDIR "
                    "names another place for short-lived files");
  return {"-no-privatize", "-wrapper", "env LD_PRELOAD=" + library};
}

std::string program_text(const Traced& call) {
  std::string text(kProgram);
  const std::string_view place = "CALL;";
  text.replace(text.find(place), place.size(), std::string(call.call) + ";");
  return text;
}

const Traced* traced(Collective collective) {
  const auto found = std::find_if(kTraced.begin(), kTraced.end(),
                                  [&](const Traced& one) { return one.collective == collective; });
  return found == kTraced.end() ? nullptr : found;
}

/// @returns where it was written
std::string written(const fs::path& folder, const std::string& name, const std::string& text) {
  const std::string path = (folder / name).string();
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file)
    throw Error(ErrorKind::environment,
                path + ": cannot be written; TMPDIR names another place for short-lived files");
  return path;
}

struct Elements {
  std::int64_t all;
  std::int64_t part;
};
/// Of 4 bytes; at least one for each rank where each has a share.
Elements call_elements(const Traced& call, int ranks, double bytes) {
  const auto all = static_cast<std::int64_t>(std::ceil(bytes / 4));
  const bool shared = call.line.find("{0}") == std::string_view::npos;
  const std::int64_t part = std::max<std::int64_t>(1, all / ranks);
  return {shared ? part * ranks : all, part};
}

/// The words behind smpirun for a trace in which every rank makes the call.
std::vector<std::string> replay_of(const fs::path& folder, const Traced& call, int ranks,
                                   double bytes) {
  const Elements elements = call_elements(call, ranks, bytes);
  const std::vector<std::string> parts(static_cast<std::size_t>(ranks),
                                       std::to_string(elements.part));
  const std::string line =
      fmt::format(fmt::runtime(call.line), elements.all, elements.part, join(parts, " "));
  std::string trace;
  for (int rank = 0; rank < ranks; ++rank)
    trace += fmt::format("{0} init\n{0} {1}\n{0} finalize\n", rank, line);
  const std::string list = written(folder, "list", written(folder, "trace", trace) + "\n");
  return {"-no-privatize", "--log=smpi_replay.fmt:time=%.12r%n", "-replay", list};
}

/// One call to warm up and one that counts, as in experiments.
constexpr const char* kCalls = "2";

/// The same of a program, which is compiled for it.
std::vector<std::string> program_of(const fs::path& folder, const MachineModel& machine,
                                    const Traced& call, int ranks, double bytes) {
  const std::string source = written(folder, "call.c", program_text(call));
  const std::string program = (folder / "call").string();
  const std::string library = (folder / "no_copies.so").string();
  const std::string copies = written(folder, "no_copies.c", std::string(embedded::no_copies_c));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"smpicc", "-O1", source, "-o", program},
        {"gcc", "-O2", "-shared", "-fPIC", copies, "-o", library}}) {
    const CommandResult made = run_command(command);
    if (made.exit_code != 0)
      throw Error(ErrorKind::environment,
                  fmt::format("{} ended with {}; the package libsimgrid-dev brings smpicc, which "
                              "needs gcc: {}",
                              command.front(), made.exit_code, made.err));
  }
  const Elements elements = call_elements(call, ranks, bytes);
  auto words = without_copies(machine, library);
  words.insert(words.end(), {"--log=root.thres:critical", program, std::to_string(elements.all),
                             std::to_string(elements.part), kCalls});
  return words;
}

/// The link that the machine's classes are of: between nodes where there are several.
const MachineLink& main_link(const MachineModel& machine) {
  return machine.link(machine.nodes > 1 ? LinkTier::network : LinkTier::node);
}

/// "0:1;65536:1.5": a class's figure over the first one's.
template <class Figure>
std::string factors(const MachineModel& machine, Figure figure) {
  std::vector<std::string> parts;
  const auto& classes = main_link(machine).classes;
  for (const LinkClass& one : classes)
    parts.push_back(
        fmt::format("{:.0f}:{:.9g}", one.from_bytes, figure(one) / figure(classes.front())));
  return join(parts, ";");
}

std::string joined(const std::vector<int>& counts, const char* separator = ",") {
  std::vector<std::string> texts;
  for (const int count : counts) texts.push_back(std::to_string(count));
  return join(texts, separator);
}

std::string bandwidth(const LinkClass& link) {
  return fmt::format("{:.9g}Bps", link.bytes_per_us * 1e6);
}

/// A cluster element for the nodes from `first` on.
std::string cluster(const MachineModel& machine, int number, int first, int nodes,
                    const std::string& topology, double link_us) {
  const LinkClass none{0, 1, 1e5};
  const auto& node = machine.link(LinkTier::node);
  const LinkClass& inner = node.classes.empty() ? none : node.classes.front();
  const auto& network = machine.link(LinkTier::network);
  const LinkClass& outer = network.classes.empty() ? none : network.classes.front();
  return fmt::format(
      "<cluster id=\"c{}\" prefix=\"h\" suffix=\"\" radical=\"{}-{}\" speed=\"1Gf\" bw=\"{}\" "
      "lat=\"{:.9g}us\" sharing_policy=\"SPLITDUPLEX\" loopback_bw=\"{}\" "
      "loopback_lat=\"{:.9g}us\"{}"
      "{}/>\n",
      number, first, first + nodes - 1, bandwidth(outer), link_us, bandwidth(inner),
      inner.latency_us, topology,
      topology.empty() ? fmt::format(" router_id=\"r{}\"", number) : "");
}

std::string sites(const MachineModel& machine, double link_us) {
  const int count = machine.counts.front();
  const int nodes = machine.nodes / count;
  const LinkClass& wide = machine.link(LinkTier::wide).classes.front();
  std::string text = "<zone id=\"all\" routing=\"Full\">\n";
  for (int site = 0; site < count; ++site)
    text += cluster(machine, site, site * nodes, nodes, "", link_us);
  for (int site = 0; site < count; ++site)
    text += fmt::format(
        "<link id=\"w{}\" bandwidth=\"{}\" latency=\"{:.9g}us\" "
        "sharing_policy=\"SPLITDUPLEX\"/>\n",
        site, bandwidth(wide), wide.latency_us / 2);
  for (int a = 0; a < count; ++a)
    for (int b = a + 1; b < count; ++b)
      text += fmt::format(
          "<zoneRoute src=\"c{0}\" dst=\"c{1}\" gw_src=\"r{0}\" gw_dst=\"r{1}\">"
          "<link_ctn id=\"w{0}\" direction=\"UP\"/><link_ctn id=\"w{1}\" direction=\"DOWN\"/>"
          "</zoneRoute>\n",
          a, b);
  return text + "</zone>\n";
}

/// The simulated time is the first field of replay's last line, by the format we ask for.
SmpiTime read_time(const CommandResult& result) {
  if (result.interrupted) return {std::nullopt, "interrupted"};
  if (result.timed_out)
    return {std::nullopt, fmt::format("did not end in {} s", kPatience.count() / 1000)};
  const std::string text = result.out + "\n" + result.err;
  for (const auto& line : split(text, '\n')) {
    if (!line.starts_with("time=")) continue;
    double seconds = 0;
    const auto [end, error] = std::from_chars(line.data() + 5, line.data() + line.size(), seconds);
    if (result.exit_code == 0 && error == std::errc() && seconds > 0) return {seconds * 1e6, ""};
  }
  return {std::nullopt, fmt::format("smpirun ended with {}", result.exit_code)};
}

}  // namespace

std::string_view smpi_algorithm(std::string_view model, Collective collective) {
  for (const Pair& pair : kPairs)
    if (pair.collective == collective && pair.model == model) return pair.smpi;
  return "";
}

std::vector<SmpiAlgorithm> smpi_algorithms(Collective collective) {
  std::vector<SmpiAlgorithm> found;
  const auto add = [&](const Pair& pair) {
    if (pair.collective == collective) found.push_back({pair.smpi, pair.model});
  };
  for (const Pair& pair : kPairs) add(pair);
  for (const Pair& pair : kFurther) add(pair);
  return found;
}

std::string why_no_smpi(const MachineModel& machine, Collective collective) {
  if (find_program("smpirun").empty())
    return "smpirun is not on PATH: the Debian package libsimgrid-dev brings it";
  if (machine.shape == MachineShape::bcube) return "SimGrid has no BCube; the analytic models have";
  if (traced(collective) == nullptr) {
    std::vector<std::string> known;
    for (const Traced& one : kTraced) known.emplace_back(name_of(one.collective));
    return fmt::format("{} is not simulated: of MPI's calls {} are", name_of(collective),
                       join(known, ", "));
  }
  return "";
}

std::string smpi_platform(const MachineModel& machine) {
  using enum MachineShape;
  const auto& network = machine.link(LinkTier::network).classes;
  // A way between two nodes at a switch has two links; in a torus it is one.
  const double latency_us = network.empty() ? 1 : network.front().latency_us;
  const double link_us = machine.shape == torus ? latency_us : latency_us / 2;
  const auto shaped = [&](const char* name, const std::string& parameters) {
    return cluster(machine, 0, 0, machine.nodes,
                   fmt::format(" topology=\"{}\" topo_parameters=\"{}\"", name, parameters),
                   link_us);
  };
  std::string body;
  if (machine.shape == fat_tree)
    body =
        shaped("FAT_TREE", fmt::format("{};{};{};{}", machine.counts.size(), joined(machine.counts),
                                       joined(machine.up), joined(machine.cables)));
  else if (machine.shape == torus)
    body = shaped("TORUS", joined(machine.counts));
  else if (machine.shape == dragonfly)
    body =
        shaped("DRAGONFLY", fmt::format("{},{};{},{};{},{};{}", machine.counts[0],
                                        machine.cables[0], machine.counts[1], machine.cables[1],
                                        machine.counts[2], machine.cables[2], machine.counts[3]));
  else if (machine.shape == cross_site)
    body = sites(machine, link_us);
  else
    body = cluster(machine, 0, 0, machine.nodes, "", link_us);
  return "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
         "<platform version=\"4.1\">\n" +
         body + "</platform>\n";
}

namespace {

/// Writes what smpirun reads of the machine. @returns the command up to what it runs, without the
/// algorithm
std::vector<std::string> smpirun_words(const fs::path& folder, const MachineModel& machine,
                                       int ranks) {
  std::string hosts;
  for (int rank = 0; rank < ranks; ++rank)
    hosts += fmt::format("h{}\n", rank / machine.ranks_per_node);
  return {
      "smpirun", "-np", std::to_string(ranks), "-platform",
      written(folder, "platform.xml", smpi_platform(machine)), "-hostfile",
      written(folder, "hosts", hosts), "--cfg=smpi/simulate-computation:no",
      "--cfg=contexts/guard-size:0",
      // A flow is not held back by a window, and nothing is assumed of an old machine's links.
      "--cfg=network/TCP-gamma:0",
      "--cfg=smpi/lat-factor:" + factors(machine, [](const LinkClass& c) { return c.latency_us; }),
      "--cfg=smpi/bw-factor:" +
          factors(machine, [](const LinkClass& c) { return c.bytes_per_us; })};
}

std::string algorithm_word(const Traced& call, std::string_view algorithm) {
  return fmt::format("--cfg=smpi/{}:{}", call.option, algorithm);
}

}  // namespace

SmpiTime simulate_collective(const MachineModel& machine, Collective collective, int ranks,
                             double bytes, std::string_view algorithm) {
  const PassingFolder folder("smpi");
  const Traced& call = *traced(collective);
  const auto rules = std::find_if(kSmpiRules.begin(), kSmpiRules.end(),
                                  [&](const SmpiRules& one) { return one.name == algorithm; });
  const bool replayed = rules == kSmpiRules.end() || rules->replayed;
  auto command = smpirun_words(folder.path(), machine, ranks);
  command.push_back(algorithm_word(call, algorithm));
  const auto what = replayed ? replay_of(folder.path(), call, ranks, bytes)
                             : program_of(folder.path(), machine, call, ranks, bytes);
  command.insert(command.end(), what.begin(), what.end());
  CommandOptions options;
  options.timeout = kPatience;
  options.interrupted = [] { return interrupted(); };
  return read_time(run_command(command, options));
}

std::string smpi_script(const MachineModel& machine, int ranks, const std::vector<SmpiCall>& calls,
                        const std::string& folder) {
  const auto words = smpirun_words(folder, machine, ranks);
  std::string script = command_line({"cd", folder}) + "\n";
  if (!calls.empty()) {
    written(folder, "no_copies.c", std::string(embedded::no_copies_c));
    script += "gcc -O2 -shared -fPIC no_copies.c -o no_copies.so || exit 1\n";
  }
  for (const SmpiCall& one : calls) {
    const Traced& call = *traced(one.collective);
    const std::string program = "call-" + std::string(call.option);
    if (!fs::exists(fs::path(folder) / (program + ".c"))) {
      written(folder, program + ".c", program_text(call));
      script += fmt::format("smpicc -O1 {0}.c -o {0} || exit 1\n", program);
    }
    const Elements elements = call_elements(call, ranks, one.bytes);
    auto argv = words;
    argv.insert(argv.begin(), {"timeout", std::to_string(kPatience.count() / 1000)});
    const auto loaded = without_copies(machine, "./no_copies.so");
    argv.insert(argv.end(), loaded.begin(), loaded.end());
    argv.insert(argv.end(), {algorithm_word(call, one.algorithm), "--log=root.thres:critical",
                             "./" + program, std::to_string(elements.all),
                             std::to_string(elements.part), std::to_string(one.calls)});
    script += fmt::format("{} >{} 2>&1 || echo \"ended with $?\" >>{}\n", command_line(argv),
                          one.output, one.output);
  }
  return script;
}

SmpiSamples read_smpi_samples(const std::string& path, int ranks) {
  SmpiSamples samples;
  samples.of_ranks.resize(static_cast<std::size_t>(ranks));
  std::ifstream file(path);
  std::string line;
  std::string last;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word;
    SmpiSample sample;
    std::size_t rank = 0;
    if (line.starts_with("SimGrid ")) samples.version = line.substr(8);
    if (words >> word >> rank >> sample.start_us >> sample.us && word == "call" &&
        rank < samples.of_ranks.size())
      samples.of_ranks[rank].push_back({sample.start_us * 1e6, sample.us * 1e6});
    last = line;
  }
  const bool whole = std::none_of(samples.of_ranks.begin(), samples.of_ranks.end(),
                                  [](const auto& of_rank) { return of_rank.empty(); });
  if (last == "ended with 124")
    samples.reason = fmt::format("SMPI did not end in {} s", kPatience.count() / 1000);
  else if (!whole || last.starts_with("ended with "))
    samples.reason = "smpirun " + (last.empty() ? "left nothing" : last);
  return samples;
}

}  // namespace dynamiccl
