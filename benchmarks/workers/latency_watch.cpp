// Latencies of an all-reduce call by call, with other load that begins at a known call:
//   --record FILE   appends a trace for the trigger's tests (benchmarks/latency_trace.hpp)
//   --watch FILE    searches the call's settings, freezes the best, watches it, and searches anew
//                   when the trigger finds a change; prints each event and appends it to FILE
// Started by scripts/record_traces.sh and scripts/trigger_demo.sh, one process per rank.

#include <fmt/format.h>

#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "benchmarks/latency_trace.hpp"
#include "benchmarks/workers/other_load.hpp"
#include "benchmarks/workers/watched_key.hpp"
#include "workers/clock.hpp"
#include "workers/run/backend_table.hpp"

namespace dynamiccl {
namespace {

struct WatchOptions {
  std::string folder;  ///< where the ranks meet
  std::string record;
  std::string watch;
  std::string algorithm = "library";
  std::string load = "cores";  ///< see OtherLoad
  Bytes size{65536};
  int ranks = 2;
  int repeat = 1;  ///< --record: traces, one after the other
  long calls = 10'000;
  long load_at = -1;    ///< call; --watch: counted from when the key was frozen first
  long load_calls = 0;  ///< 0 = until the end
};

WatchOptions parse(int argc, char** argv) {
  WatchOptions options;
  const std::map<std::string, std::function<void(const std::string&)>> table{
      {"--folder", [&](const std::string& v) { options.folder = v; }},
      {"--record", [&](const std::string& v) { options.record = v; }},
      {"--watch", [&](const std::string& v) { options.watch = v; }},
      {"--algorithm", [&](const std::string& v) { options.algorithm = v; }},
      {"--load", [&](const std::string& v) { options.load = v; }},
      {"--size", [&](const std::string& v) { options.size = parse_bytes(v); }},
      {"--ranks", [&](const std::string& v) { options.ranks = std::stoi(v); }},
      {"--repeat", [&](const std::string& v) { options.repeat = std::stoi(v); }},
      {"--calls", [&](const std::string& v) { options.calls = std::stol(v); }},
      {"--load-at", [&](const std::string& v) { options.load_at = std::stol(v); }},
      {"--load-calls", [&](const std::string& v) { options.load_calls = std::stol(v); }}};
  for (int i = 1; i < argc; i += 2) {
    const auto row = table.find(argv[i]);
    if (row == table.end() || i + 1 == argc)
      throw Error(ErrorKind::input, fmt::format("{}: unknown or without a value", argv[i]));
    row->second(argv[i + 1]);
  }
  if (options.record.empty() == options.watch.empty())
    throw Error(ErrorKind::input, "give one of --record FILE and --watch FILE");
  return options;
}

/// "some avg10=1.23 ..." of /proc/pressure/cpu; "" where the kernel does not tell.
std::string cpu_pressure() {
  std::ifstream file("/proc/pressure/cpu");
  std::string line;
  std::getline(file, line);
  return line;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

/// One all-reduce after the ranks have met; microseconds on this rank.
class TimedCall {
 public:
  TimedCall(Communicator& comm, Bytes size)
      : comm_(comm), in_(size.count() / sizeof(float), 1.0F), out_(in_.size()) {}
  Micros operator()() {
    comm_.synchronise();
    const double start = now_us();
    comm_.allreduce(in_.data(), out_.data(), in_.size(), DataType::float32);
    return Micros{now_us() - start};
  }
  [[nodiscard]] CallShape shape() const {
    CallShape shape;
    shape.count = in_.size();
    return shape;
  }

 private:
  Communicator& comm_;
  std::vector<float> in_;
  std::vector<float> out_;
};

/// One trace; the load, if there is any, ends with it.
LatencyTrace record_one(Communicator& comm, TimedCall& call, const WatchOptions& options,
                        Backend backend, const OtherLoad* load, int number) {
  LatencyTrace trace;
  trace.backend = name_of(backend);
  trace.algorithm = options.algorithm;
  trace.size = options.size;
  trace.ranks = comm.size();
  // At another place of the trigger's blocks in every trace.
  if (options.load_at >= 0) trace.load_at = static_cast<std::size_t>(options.load_at + number % 17);
  const std::string before = cpu_pressure();
  for (int i = 0; i < 200; ++i) call();
  for (std::size_t i = 0; i < static_cast<std::size_t>(options.calls); ++i) {
    if (i == trace.load_at && load != nullptr) load->start();
    trace.codes.push_back(trace_code(call()));
  }
  if (trace.load_at && load != nullptr) load->stop();
  trace.conditions = {{"processor", processor()},
                      {"cores", std::thread::hardware_concurrency()},
                      {"library", comm.library()},
                      {"cpu_pressure_before", before},
                      {"cpu_pressure_after", cpu_pressure()}};
  if (trace.load_at && load != nullptr) trace.conditions["load"] = load->said();
  return trace;
}

void record(Communicator& comm, const WatchOptions& options, Backend backend,
            const OtherLoad* load) {
  TimedCall call(comm, options.size);
  CallShape shape = call.shape();
  shape.algorithm = options.algorithm;
  comm.choose(shape);
  std::string text;
  for (int number = 0; number < options.repeat; ++number)
    text += trace_text(record_one(comm, call, options, backend, load, number));
  if (comm.rank() != 0) return;
  std::ofstream file(options.record, std::ios::binary | std::ios::app);
  file << text;
  if (!file) throw Error(ErrorKind::environment, options.record + ": cannot be written");
}

constexpr std::uint32_t kStop = 0xffffffff;

/// Rank 0 decides before every call, the others follow.
void watch(Communicator& comm, const WatchOptions& options, Backend backend,
           const OtherLoad* load) {
  TimedCall call(comm, options.size);
  WatchedKey key(backend, comm.size(), options.size, options.watch);
  const bool leads = comm.rank() == 0;
  std::uint32_t in_force = kStop;
  for (long i = 0;; ++i) {
    std::uint32_t arm = leads ? (i < options.calls ? key.arm() : kStop) : 0;
    comm.broadcast(&arm, 1, DataType::int32, 0);
    if (arm == kStop) break;
    if (arm != in_force) {
      const ActionSettings setting = key.setting(arm);
      CallShape shape = call.shape();
      shape.algorithm = setting.algorithm;
      shape.knobs = setting.call_knobs;
      comm.choose(shape);
      in_force = arm;
    }
    const Micros latency = call();
    if (!leads) continue;
    key.add(latency);
    if (load == nullptr || options.load_at < 0) continue;
    const long since = key.calls_since_first_freeze();
    if (since == options.load_at) {
      key.event("load", load->said() + " begins");
      load->start();
    }
    if (options.load_calls > 0 && since == options.load_at + options.load_calls) {
      key.event("load", "it ends");
      load->stop();
    }
  }
  if (leads) key.event("end", "");
}

int run(int argc, char** argv) {
  const WatchOptions options = parse(argc, argv);
  RunConfig config;
  config.launch_id = "latency-watch";
  config.ranks = options.ranks;
  config.output_dir = config.rendezvous_dir = options.folder;
  if (options.load == "link") config.interface = "lo";
  const BackendRow& row = backend_table().front();
  config.backend = row.backend;
  // Only the first rank holds load; which one that is, MPI tells after the fork is made.
  const OtherLoad load(options.load);
  const auto comm = row.connect(config);
  const OtherLoad* own = comm->rank() == 0 ? &load : nullptr;
  (options.record.empty() ? watch : record)(*comm, options, row.backend, own);
  comm->finalize();
  return 0;
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
