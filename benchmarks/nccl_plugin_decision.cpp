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

#include "tuner/control/leader.hpp"
#include "tuner/nccl/nccl_tuner_abi.hpp"

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

}  // namespace

int main(int argc, char** argv) {
  std::string library =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libdynamiccl-nccl-plugin.so";
  long calls = 1'000'000;
  int switches = 1000;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--plugin") library = argv[i + 1];
    if (option == "--calls") calls = std::atol(argv[i + 1]);
    if (option == "--switches") switches = std::atoi(argv[i + 1]);
  }
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto* plugin =
      handle == nullptr
          ? nullptr
          : static_cast<const nccl_tuner::PluginV5*>(dlsym(handle, "ncclTunerPlugin_v5"));
  std::string folder = std::filesystem::temp_directory_path() / "nccl-plugin-decision-XXXXXX";
  if (plugin == nullptr || mkdtemp(folder.data()) == nullptr) {
    std::fprintf(stderr, "cannot load %s: %s\n", library.c_str(), dlerror());
    return 2;
  }
  setenv("DYNAMICCL_TUNER_FOLDER", folder.c_str(), 1);
  void* context = nullptr;
  plugin->init(&context, kCommunicator, 1, 1, nullptr, nullptr, nullptr);
  const std::uint32_t clock = clock_cost();
  const auto quiet = measure(*plugin, context, calls, clock);

  std::string problem;
  const std::shared_ptr<Region> region =
      Region::open(Region::path_of(folder, kCommunicator), problem);
  Leader leader(region);
  std::atomic<int> proposed{0};
  std::atomic<bool> stop{false};
  std::thread leading([&] {
    for (int i = 0; i < switches && !stop; ++i) {
      while (leader.poll() != Leader::Progress::free && !stop) std::this_thread::yield();
      proposed = i + 1;
      if (!stop) leader.propose(table_of(channels_of(i)), 100);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  const auto moving = measure(*plugin, context, calls, clock);
  stop = true;
  leading.join();

  long lost = region->slot(0).calls.load() == 2 * calls ? 0 : 1;
  int last = moving.front().channels;
  std::vector<std::uint32_t> quiet_times;
  std::vector<std::uint32_t> moving_times;
  std::vector<std::uint32_t> switch_times;
  for (const Sample& sample : quiet) quiet_times.push_back(sample.nanoseconds);
  for (const Sample& sample : moving) {
    moving_times.push_back(sample.nanoseconds);
    if (sample.channels != last) switch_times.push_back(sample.nanoseconds);
    const bool known = sample.channels == 0 || sample.channels <= channels_of(63);
    if (!known || (sample.channels == 0 && last != 0)) ++lost;
    last = sample.channels;
  }
  std::printf("{\"clock_ns\":%u,", clock);
  print_times("quiet", quiet_times);
  print_times("while_switching", moving_times);
  print_times("switching_calls", switch_times);
  std::printf("\"proposed\":%d,\"committed\":%u,\"aborted\":%u,\"lost\":%ld}\n", proposed.load(),
              region->header().committed.load(), region->header().aborted.load(), lost);
  plugin->finalize(context);
  std::filesystem::remove_all(folder);
  return lost == 0 ? 0 : 1;
}
