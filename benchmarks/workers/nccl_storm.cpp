// Many small and large NCCL all-reduces over several communicators at once, in one process that
// drives every GPU: shows what a plugin in NCCL costs per call, and that it survives.
//   nccl_storm CALLS COMMUNICATORS BYTES          all GPUs the process sees
// Prints {"calls", "communicators", "bytes", "gpus", "us_per_call", "wrong"}; exit code 1 when a
// result is wrong. Plugins are named to NCCL by its own variables, NCCL_PROFILER_PLUGIN and
// NCCL_TUNER_PLUGIN.
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: {} CALLS COMMUNICATORS BYTES\n", argv[0]);
    return 2;
  }
  const long calls = std::atol(argv[1]);
  const int communicators = std::atoi(argv[2]);
  const std::size_t bytes = std::strtoul(argv[3], nullptr, 10);
  const std::size_t count = bytes / sizeof(float);
  int gpus = 0;
  check(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  std::vector<std::vector<Seat>> comms;
  comms.reserve(static_cast<std::size_t>(communicators));
  for (int i = 0; i < communicators; ++i) comms.push_back(make_communicator(gpus, count));
  const auto run = [&](long number) {
    for (long i = 0; i < number; ++i) {
      all_reduce(comms[static_cast<std::size_t>(i) % comms.size()], count);
      // The queue stays short, so that every call pays what a waiting job pays.
      if (i % 64 == 63)
        for (const auto& seats : comms) synchronise(seats);
    }
    for (const auto& seats : comms) synchronise(seats);
  };
  run(200);
  const auto start = std::chrono::steady_clock::now();
  run(calls);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  long wrong = 0;
  for (const auto& seats : comms) wrong += wrong_values(seats, count);
  fmt::print(
      "{{\"calls\": {}, \"communicators\": {}, \"bytes\": {}, \"gpus\": {}, \"us_per_call\": "
      "{:.4f}, \"wrong\": {}}}\n",
      calls, communicators, bytes, gpus, took.count() / static_cast<double>(calls), wrong);
  for (auto& seats : comms)
    for (Seat& seat : seats)
      check(dynamiccl::nccl_api().comm_destroy(seat.comm), "ncclCommDestroy");
  return wrong == 0 ? 0 : 1;
}
