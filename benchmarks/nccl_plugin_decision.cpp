// nccl_plugin_decision [--plugin FILE] [--calls N] [--switches N]: what the NCCL plugin costs
// inside a collective call, measured through its exported structure as NCCL calls it: quiet, and
// while a leader changes the table. Prints one JSON object; exit code 1 when a call was lost, i.e.
// got something else than a table that was proposed, or was not counted.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "plugin/agreement/leader.hpp"
#include "plugin/tuner/nccl_tuner_abi.hpp"

namespace {

using namespace dynamiccl;
using Clock = std::chrono::steady_clock;

constexpr int kAllReduce = 4;
constexpr std::size_t kBytes = std::size_t{4} << 20;
constexpr std::uint64_t kCommunicator = 0xbe7c;

struct Sample {
  std::uint32_t nanoseconds;
  std::int32_t channels;
};

double percentile(std::vector<std::uint32_t> times, double share) {
  if (times.empty()) return 0;
  const auto at = static_cast<std::size_t>(share * static_cast<double>(times.size() - 1));
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(at), times.end());
  return times[at];
}

/// What two readings of the clock cost, taken off every sample.
std::uint32_t clock_cost() {
  std::vector<std::uint32_t> times;
  for (int i = 0; i < 100'000; ++i) {
    const auto begin = Clock::now();
    times.push_back(static_cast<std::uint32_t>((Clock::now() - begin).count()));
  }
  return static_cast<std::uint32_t>(percentile(times, 0.5));
}

std::vector<Sample> measure(const nccl_tuner::PluginV5& plugin, void* context, long calls,
                            std::uint32_t clock) {
  std::array<float, 21> costs{};
  std::vector<Sample> samples;
  samples.reserve(static_cast<std::size_t>(calls));
  for (long i = 0; i < calls; ++i) {
    for (std::size_t c = 0; c < costs.size(); ++c) costs[c] = c < 6 ? 10.0F : nccl_tuner::kIgnored;
    int channels = 0;
    const auto begin = Clock::now();
    plugin.get_coll_info(context, kAllReduce, kBytes, 1, reinterpret_cast<float**>(costs.data()), 7,
                         3, 0, &channels);
    const auto taken = static_cast<std::uint32_t>((Clock::now() - begin).count());
    samples.push_back({taken > clock ? taken - clock : 0, channels});
  }
  return samples;
}

void print_times(const char* name, const std::vector<std::uint32_t>& times) {
  std::printf("\"%s\":{\"calls\":%zu,\"p50_ns\":%.0f,\"p99_ns\":%.0f,\"p999_ns\":%.0f},", name,
              times.size(), percentile(times, 0.5), percentile(times, 0.99),
              percentile(times, 0.999));
}

CallTable table_of(int channels) {
  CallTable table;
  for (auto& row : table.cells) row.fill({1, 2, static_cast<std::uint8_t>(channels), 0});
  return table;
}

int channels_of(int proposal) { return 1 + proposal % 64; }

struct Options {
  std::string library;
  long calls = 1'000'000;
  int switches = 1000;
};

Options options_of(int argc, char** argv) {
  Options options;
  options.library = (std::filesystem::read_symlink("/proc/self/exe").parent_path() /
                     "libdynamiccl-nccl-plugin.so")
                        .string();
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--plugin") options.library = argv[i + 1];
    if (option == "--calls") options.calls = std::atol(argv[i + 1]);
    if (option == "--switches") options.switches = std::atoi(argv[i + 1]);
  }
  return options;
}

const nccl_tuner::PluginV5* load(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return nullptr;
  return static_cast<const nccl_tuner::PluginV5*>(dlsym(handle, "ncclTunerPlugin_v5"));
}

struct Moving {
  std::vector<Sample> samples;
  int proposed = 0;
};

/// The calls while a leader proposes one table after the other.
Moving measure_while_switching(const nccl_tuner::PluginV5& plugin, void* context,
                               const std::shared_ptr<Region>& region, const Options& options,
                               std::uint32_t clock) {
  Leader leader(region);
  std::atomic<int> proposed{0};
  std::atomic<bool> stop{false};
  std::thread leading([&] {
    for (int i = 0; i < options.switches && !stop; ++i) {
      while (leader.poll() != Leader::Progress::free && !stop) std::this_thread::yield();
      proposed = i + 1;
      if (!stop) leader.propose(table_of(channels_of(i)), 100);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  Moving moving;
  moving.samples = measure(plugin, context, options.calls, clock);
  stop = true;
  leading.join();
  moving.proposed = proposed;
  return moving;
}

std::vector<std::uint32_t> times_of(const std::vector<Sample>& samples) {
  std::vector<std::uint32_t> times;
  for (const Sample& sample : samples) times.push_back(sample.nanoseconds);
  return times;
}

/// Times of the calls that were the first to see another table.
std::vector<std::uint32_t> switch_times(const std::vector<Sample>& samples) {
  std::vector<std::uint32_t> times;
  int last = samples.front().channels;
  for (const Sample& sample : samples) {
    if (sample.channels != last) times.push_back(sample.nanoseconds);
    last = sample.channels;
  }
  return times;
}

/// Calls that got something else than a table that was proposed.
long lost_calls(const std::vector<Sample>& samples) {
  long lost = 0;
  int last = samples.front().channels;
  for (const Sample& sample : samples) {
    const bool known = sample.channels == 0 || sample.channels <= channels_of(63);
    if (!known || (sample.channels == 0 && last != 0)) ++lost;
    last = sample.channels;
  }
  return lost;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  const auto* plugin = load(options.library);
  std::string folder = std::filesystem::temp_directory_path() / "nccl-plugin-decision-XXXXXX";
  if (plugin == nullptr || mkdtemp(folder.data()) == nullptr) {
    std::fprintf(stderr, "cannot load %s: %s\n", options.library.c_str(), dlerror());
    return 2;
  }
  setenv("DYNAMICCL_TUNER_FOLDER", folder.c_str(), 1);
  void* context = nullptr;
  plugin->init(&context, kCommunicator, 1, 1, nullptr, nullptr, nullptr);
  const std::uint32_t clock = clock_cost();
  const auto quiet = measure(*plugin, context, options.calls, clock);

  std::string problem;
  const std::shared_ptr<Region> region =
      Region::open(Region::path_of(folder, kCommunicator), problem);
  const auto moving = measure_while_switching(*plugin, context, region, options, clock);
  const bool counted = region->slot(0).calls.load() == 2 * options.calls;
  const long lost = lost_calls(moving.samples) + (counted ? 0 : 1);
  std::printf("{\"clock_ns\":%u,", clock);
  print_times("quiet", times_of(quiet));
  print_times("while_switching", times_of(moving.samples));
  print_times("switching_calls", switch_times(moving.samples));
  std::printf("\"proposed\":%d,\"committed\":%u,\"aborted\":%u,\"lost\":%ld}\n", moving.proposed,
              region->header().committed.load(), region->header().aborted.load(), lost);
  plugin->finalize(context);
  std::filesystem::remove_all(folder);
  return lost == 0 ? 0 : 1;
}
