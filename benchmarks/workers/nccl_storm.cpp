// Many small and large NCCL all-reduces over several communicators at once, in one process that
// drives every GPU: shows what a plugin in NCCL costs per call, and that it survives.
//   nccl_storm CALLS COMMUNICATORS BYTES [BLOCK]  all GPUs the process sees
// Prints {"calls", "communicators", "bytes", "gpus", "us_per_call", "wrong"}; exit code 1 when a
// result is wrong. Plugins are named to NCCL by its own variables, NCCL_PROFILER_PLUGIN and
// NCCL_TUNER_PLUGIN.
// With BLOCK the profiler plugin's events are off and on in turn, BLOCK calls each, in one process:
// launches differ by more than events cost. Prints, too, "us_without" (median over blocks) and
// "us_added", "us_added_low", "us_added_high": the median of the differences between neighbouring
// blocks per call of all GPUs, and its 95 % interval by order statistics.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "workers/backends/nccl_api.hpp"

namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  fmt::print(stderr, "nccl_storm: {}: {}\n", what, cudaGetErrorString(status));
  std::exit(2);
}

void check(ncclResult_t status, const char* what) {
  if (status == ncclSuccess) return;
  fmt::print(stderr, "nccl_storm: {}: {}\n", what, dynamiccl::nccl_api().get_error_string(status));
  std::exit(2);
}

/// One GPU in one communicator.
struct Seat {
  int gpu = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* in = nullptr;
  float* out = nullptr;
};

/// A communicator over all GPUs, with buffers of its own: in[i] = gpu + 1.
std::vector<Seat> make_communicator(int gpus, std::size_t count) {
  const auto& nccl = dynamiccl::nccl_api();
  std::vector<Seat> seats(static_cast<std::size_t>(gpus));
  ncclUniqueId id{};
  check(nccl.get_unique_id(&id), "ncclGetUniqueId");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  check(nccl.group_start(), "ncclGroupStart");
  for (int gpu = 0; gpu < gpus; ++gpu) {
    Seat& seat = seats[static_cast<std::size_t>(gpu)];
    seat.gpu = gpu;
    check(cudaSetDevice(gpu), "cudaSetDevice");
    check(nccl.comm_init_rank_config(&seat.comm, gpus, id, gpu, &config), "ncclCommInitRankConfig");
  }
  check(nccl.group_end(), "ncclGroupEnd");
  for (Seat& seat : seats) {
    check(cudaSetDevice(seat.gpu), "cudaSetDevice");
    check(cudaStreamCreate(&seat.stream), "cudaStreamCreate");
    check(cudaMalloc(&seat.in, count * sizeof(float)), "cudaMalloc");
    check(cudaMalloc(&seat.out, count * sizeof(float)), "cudaMalloc");
    const std::vector<float> data(count, static_cast<float>(seat.gpu + 1));
    check(cudaMemcpy(seat.in, data.data(), count * sizeof(float), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  return seats;
}

void all_reduce(std::vector<Seat>& seats, std::size_t count) {
  const auto& nccl = dynamiccl::nccl_api();
  check(nccl.group_start(), "ncclGroupStart");
  for (Seat& seat : seats)
    check(nccl.all_reduce(seat.in, seat.out, count, ncclFloat32, ncclSum, seat.comm, seat.stream),
          "ncclAllReduce");
  check(nccl.group_end(), "ncclGroupEnd");
}

void synchronise(const std::vector<Seat>& seats) {
  for (const Seat& seat : seats) {
    check(cudaSetDevice(seat.gpu), "cudaSetDevice");
    check(cudaStreamSynchronize(seat.stream), "cudaStreamSynchronize");
  }
}

long wrong_values(const std::vector<Seat>& seats, std::size_t count) {
  const auto gpus = static_cast<float>(seats.size());
  const float expected = gpus * (gpus + 1) / 2;
  long wrong = 0;
  std::vector<float> host(count);
  for (const Seat& seat : seats) {
    check(cudaSetDevice(seat.gpu), "cudaSetDevice");
    check(cudaMemcpy(host.data(), seat.out, count * sizeof(float), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    for (const float value : host) wrong += value == expected ? 0 : 1;
  }
  return wrong;
}

/// Microseconds per call of `number` calls, the communicators in turn.
double time_calls(std::vector<std::vector<Seat>>& comms, std::size_t count, long number) {
  const auto start = std::chrono::steady_clock::now();
  for (long i = 0; i < number; ++i) {
    all_reduce(comms[static_cast<std::size_t>(i) % comms.size()], count);
    // The queue stays short, so that every call pays what a waiting job pays.
    if (i % 64 == 63)
      for (const auto& seats : comms) synchronise(seats);
  }
  for (const auto& seats : comms) synchronise(seats);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return took.count() / static_cast<double>(number);
}

using SwitchEvents = void (*)(int on);

/// NCCL has loaded the plugin already.
SwitchEvents find_switch() {
  const char* path = std::getenv("NCCL_PROFILER_PLUGIN");
  void* plugin = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  void* found = plugin == nullptr ? nullptr : dlsym(plugin, "dynamiccl_profiler_events");
  if (found == nullptr) {
    fmt::print(stderr,
               "nccl_storm: BLOCK wants NCCL_PROFILER_PLUGIN=libdynamiccl-nccl-plugin.so\n");
    std::exit(2);
  }
  return reinterpret_cast<SwitchEvents>(found);
}

struct Added {
  double us_per_call = 0;  ///< over all calls
  double without = 0;
  double median = 0;
  double low = 0;
  double high = 0;
};

/// Off, on, on, off, ...: a drift falls on both sides alike.
Added time_in_turn(std::vector<std::vector<Seat>>& comms, std::size_t count, long calls,
                   long block) {
  const SwitchEvents events = find_switch();
  std::vector<double> without;
  std::vector<double> added;
  double sum = 0;
  for (long pair = 0; pair < std::max(1L, calls / (2 * block)); ++pair) {
    double us[2] = {0, 0};
    for (const int turn : {0, 1}) {
      const int on = (turn + static_cast<int>(pair)) % 2;
      events(on);
      us[on] = time_calls(comms, count, block);
    }
    without.push_back(us[0]);
    added.push_back(us[1] - us[0]);
    sum += us[0] + us[1];
  }
  events(1);
  std::sort(without.begin(), without.end());
  std::sort(added.begin(), added.end());
  const auto n = added.size();
  const auto reach = static_cast<std::size_t>(0.98 * std::sqrt(static_cast<double>(n)));
  const std::size_t middle = n / 2;
  return {sum / static_cast<double>(2 * n), without[middle], added[middle],
          added[middle > reach ? middle - reach : 0], added[std::min(middle + reach, n - 1)]};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    fmt::print(stderr, "usage: {} CALLS COMMUNICATORS BYTES [BLOCK]\n", argv[0]);
    return 2;
  }
  const long calls = std::atol(argv[1]);
  const int communicators = std::atoi(argv[2]);
  const std::size_t bytes = std::strtoul(argv[3], nullptr, 10);
  const long block = argc == 5 ? std::max(1L, std::atol(argv[4])) : 0;
  const std::size_t count = bytes / sizeof(float);
  int gpus = 0;
  check(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  std::vector<std::vector<Seat>> comms;
  comms.reserve(static_cast<std::size_t>(communicators));
  for (int i = 0; i < communicators; ++i) comms.push_back(make_communicator(gpus, count));
  time_calls(comms, count, 200);
  Added added;
  if (block > 0)
    added = time_in_turn(comms, count, calls, block);
  else
    added.us_per_call = time_calls(comms, count, calls);
  long wrong = 0;
  for (const auto& seats : comms) wrong += wrong_values(seats, count);
  const std::string in_turn =
      block == 0 ? ""
                 : fmt::format(
                       "\"us_without\": {:.4f}, \"us_added\": {:.4f}, \"us_added_low\": {:.4f}, "
                       "\"us_added_high\": {:.4f}, ",
                       added.without, added.median, added.low, added.high);
  fmt::print(
      "{{\"calls\": {}, \"communicators\": {}, \"bytes\": {}, \"gpus\": {}, \"us_per_call\": "
      "{:.4f}, {}\"wrong\": {}}}\n",
      calls, communicators, bytes, gpus, added.us_per_call, in_turn, wrong);
  for (auto& seats : comms)
    for (Seat& seat : seats)
      check(dynamiccl::nccl_api().comm_destroy(seat.comm), "ncclCommDestroy");
  return wrong == 0 ? 0 : 1;
}
