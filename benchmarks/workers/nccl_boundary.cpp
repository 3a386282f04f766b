// One rank of a job whose ranks are isolated from each other: whether NCCL's operations are right
// across the boundary, how long they take, and what happens when a peer is killed. Started once per
// rank with RANK and WORLD_SIZE set.
//   nccl_boundary --id FILE check [OPERATIONS] [SEED]
// random operations, sizes, places; three communicators, graphs; fails on a wrong element, and
// where the second half leaves more descriptors, mappings, threads or memory of the GPU taken than
// the first
//   nccl_boundary --id FILE cycles [CYCLES] [SEED] [all]
// three communicators made, used and destroyed so often, while another one stays, or with "all"
// none does; fails where something is left of each
//   nccl_boundary --id FILE time [CALLS] [SIZES] [IDLE_SECONDS]
// all-reduce of float32, SIZES as 1024,65536,...: median time, and the process's CPU time a call;
// then the CPU time of so many seconds without a call
//   nccl_boundary --id FILE loop
// all-reduces until a peer is gone; exit code 10 when NCCL said so, and at which second since 1970
// FILE lies in a folder that all ranks share; a new name for every start. LOCAL_GPUS=2: the process
// has that many ranks, a thread and a GPU for each, of WORLD_SIZE times as many (check alone).
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/workers/boundary_kernels.hpp"
#include "benchmarks/workers/boundary_resources.hpp"
#include "workers/backends/nccl_api.hpp"

namespace {

using dynamiccl::nccl_api;
using dynamiccl::NcclApi;
using dynamiccl::boundary::Resources;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostElements = (std::size_t{4} << 20) + 3;
constexpr std::size_t kCommunicators = 3;
constexpr int kSomeUses = 8;  ///< NCCL's and CUDA's own buffers may come late in many operations

void cuda(cudaError_t result, const char* what) {
  if (result != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(result));
}
void nccl(ncclResult_t result, const char* what) {
  if (result != ncclSuccess)
    throw std::runtime_error(std::string(what) + ": " + nccl_api().get_error_string(result) + ", " +
                             nccl_api().get_last_error(nullptr));
}

struct Job {
  int rank = 0;
  int ranks = 1;
  std::string id_file;
  int local = 1;  ///< ranks of this process
};

ncclUniqueId unique_id(const Job& job, std::size_t number) {
  ncclUniqueId id{};
  const std::string path = job.id_file + "." + std::to_string(number);
  if (job.rank == 0) {
    nccl(nccl_api().get_unique_id(&id), "ncclGetUniqueId");
    std::ofstream(path + ".new", std::ios::binary).write(id.internal, sizeof id.internal);
    if (std::rename((path + ".new").c_str(), path.c_str()) != 0) throw std::runtime_error(path);
    return id;
  }
  for (int i = 0; i < 6000; ++i) {
    std::ifstream file(path, std::ios::binary);
    if (file.read(id.internal, sizeof id.internal)) return id;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw std::runtime_error("no " + path);
}

ncclComm_t communicator(const Job& job, std::size_t number) {
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  nccl(
      nccl_api().comm_init_rank_config(&comm, job.ranks, unique_id(job, number), job.rank, &config),
      "ncclCommInitRankConfig");
  return comm;
}

/// Says on standard error what this rank waits in, once nothing has gone on for a while: what it
/// asked NCCL for last, and which of its threads compute, wait or sleep in the kernel.
class Watch {
 public:
  explicit Watch(int rank) : rank_(rank), thread_([this] { run(); }) {}
  ~Watch() {
    over_.store(true);
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  /// The operation that is queued now; what was told before is done or under way.
  void at(std::uint64_t operation, std::size_t lane, bool waits) {
    at_.store(operation << 8 | lane << 1 | (waits ? 1 : 0));
  }

 private:
  void run() {
    constexpr int kPatienceS = 20;
    std::uint64_t last = 0;
    for (int still = 0; !over_.load(); std::this_thread::sleep_for(std::chrono::seconds(1))) {
      still = at_.load() == std::exchange(last, at_.load()) ? still + 1 : 0;
      if (still == kPatienceS) tell(last);
    }
  }
  void tell(std::uint64_t at) const {
    std::fprintf(stderr, "rank %d: nothing for 20 s, %s operation %llu, communicator %llu\n", rank_,
                 (at & 1) != 0 ? "waiting for all up to" : "in",
                 static_cast<unsigned long long>(at >> 8),
                 static_cast<unsigned long long>(at >> 1 & 127));
    for (const std::string& line : dynamiccl::boundary::threads())
      std::fprintf(stderr, "rank %d: thread %s\n", rank_, line.c_str());
    std::fprintf(stderr, "rank %d: transport: %s\n", rank_,
                 dynamiccl::boundary::transport_state().c_str());
    std::fflush(stderr);
  }

  int rank_;
  std::atomic<std::uint64_t> at_{0};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

/// Random operations, the same on all ranks, each with every element checked.
class Checker {
 public:
  /// @param first number of the first communicator of this start
  Checker(const Job& job, std::uint32_t seed, std::size_t first = 0)
      : job_(job), random_(seed), watch_(job.rank) {
    for (std::size_t c = 0; c < kCommunicators; ++c) {
      Lane& lane = lanes_[c];
      lane.comm = communicator(job, first + c);
      cuda(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking), "stream");
      const std::size_t bytes = kMostElements * sizeof(float) * static_cast<std::size_t>(job.ranks);
      cuda(cudaMalloc(&lane.send, bytes), "send buffer");
      cuda(cudaMalloc(&lane.receive, bytes), "receive buffer");
    }
    cuda(cudaMalloc(&wrong_, sizeof *wrong_), "counter");
    cuda(cudaMemset(wrong_, 0, sizeof *wrong_), "counter");
  }
  ~Checker() {
    for (Lane& lane : lanes_) {
      nccl_api().comm_destroy(lane.comm);
      cudaStreamDestroy(lane.stream);
      cudaFree(lane.send);
      cudaFree(lane.receive);
    }
    cudaFree(wrong_);
  }

  void run(std::uint64_t operations) {
    for (std::uint64_t i = 0; i < operations; ++i) {
      const std::size_t number = random_() % kCommunicators;
      watch_.at(++begun_, number, false);
      operate(lanes_[number], static_cast<std::uint32_t>(i));
      // Lanes run beside each other, but not without end.
      if (i % 64 == 63) synchronize();
      if (i % 50'000 == 49'999 && job_.rank == 0)
        std::fprintf(stderr, "%llu operations\n", static_cast<unsigned long long>(i + 1));
    }
    synchronize();
  }
  /// The same captured once and replayed.
  void run_graph(int replays) {
    Lane& lane = lanes_[0];
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cuda(cudaStreamBeginCapture(lane.stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (std::uint32_t i = 0; i < 6; ++i) operate(lane, 900'000 + i);
    cuda(cudaStreamEndCapture(lane.stream, &graph), "end of capture");
    cuda(cudaGraphInstantiate(&executable, graph, 0), "graph");
    for (int i = 0; i < replays; ++i) cuda(cudaGraphLaunch(executable, lane.stream), "replay");
    synchronize();
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
  [[nodiscard]] unsigned long long wrong() const {
    unsigned long long count = 0;
    cuda(cudaMemcpy(&count, wrong_, sizeof count, cudaMemcpyDeviceToHost), "counter");
    return count;
  }

 private:
  struct Lane {
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    float* send = nullptr;
    float* receive = nullptr;
  };

  void synchronize() {
    for (std::size_t c = 0; c < kCommunicators; ++c) {
      watch_.at(begun_, c, true);
      cuda(cudaStreamSynchronize(lanes_[c].stream), "synchronize");
    }
  }

  std::size_t random_count() {
    constexpr std::array<std::size_t, 10> kOdd{1, 2, 3, 7, 255, 1023, 4097, 65537, 262143, 0};
    const unsigned kind = random_() % 16;
    if (kind < 10) return std::max<std::size_t>(1, kOdd[random_() % kOdd.size()]);
    if (kind == 15 && random_() % 24 == 0) return kMostElements - random_() % 5;
    return 1 + random_() % (std::size_t{1} << (random_() % 17));
  }

  void operate(Lane& lane, std::uint32_t seed) {
    const std::size_t count = random_count();
    const bool in_place = random_() % 2 == 0;
    const int root = static_cast<int>(random_() % static_cast<unsigned>(job_.ranks));
    switch (random_() % 7) {
      case 0:
        return all_reduce(lane, count, in_place, seed);
      case 1:
        return broadcast(lane, count, in_place, root, seed);
      case 2:
        return reduce(lane, count, in_place, root, seed);
      case 3:
        return all_gather(lane, count, in_place, seed);
      case 4:
        return reduce_scatter(lane, count, in_place, seed);
      case 5:
        return all_to_all(lane, count, seed);
      default:
        return exchange(lane, count, seed);
    }
  }

  [[nodiscard]] std::uint32_t self() const { return static_cast<std::uint32_t>(job_.rank); }
  [[nodiscard]] std::uint32_t all() const { return static_cast<std::uint32_t>(job_.ranks); }

  void all_reduce(Lane& l, std::size_t n, bool in_place, std::uint32_t seed) {
    float* from = in_place ? l.receive : l.send;
    dynamiccl::boundary::fill(from, n, self(), 0, seed, l.stream);
    nccl(nccl_api().all_reduce(from, l.receive, n, ncclFloat, ncclSum, l.comm, l.stream),
         "ncclAllReduce");
    dynamiccl::boundary::check(l.receive, n, 0, all(), 0, seed, wrong_, l.stream);
  }
  void broadcast(Lane& l, std::size_t n, bool in_place, int root, std::uint32_t seed) {
    float* from = in_place ? l.receive : l.send;
    dynamiccl::boundary::fill(from, n, self(), 0, seed, l.stream);
    nccl(nccl_api().broadcast(from, l.receive, n, ncclFloat, root, l.comm, l.stream),
         "ncclBroadcast");
    const auto source = static_cast<std::uint32_t>(root);
    dynamiccl::boundary::check(l.receive, n, source, source + 1, 0, seed, wrong_, l.stream);
  }
  void reduce(Lane& l, std::size_t n, bool in_place, int root, std::uint32_t seed) {
    float* from = in_place ? l.receive : l.send;
    dynamiccl::boundary::fill(from, n, self(), 0, seed, l.stream);
    nccl(nccl_api().reduce(from, l.receive, n, ncclFloat, ncclSum, root, l.comm, l.stream),
         "ncclReduce");
    if (root == job_.rank)
      dynamiccl::boundary::check(l.receive, n, 0, all(), 0, seed, wrong_, l.stream);
  }
  void all_gather(Lane& l, std::size_t n, bool in_place, std::uint32_t seed) {
    float* from = in_place ? l.receive + n * self() : l.send;
    dynamiccl::boundary::fill(from, n, self(), 0, seed, l.stream);
    nccl(nccl_api().all_gather(from, l.receive, n, ncclFloat, l.comm, l.stream), "ncclAllGather");
    for (std::uint32_t r = 0; r < all(); ++r)
      dynamiccl::boundary::check(l.receive + n * r, n, r, r + 1, 0, seed, wrong_, l.stream);
  }
  void reduce_scatter(Lane& l, std::size_t n, bool in_place, std::uint32_t seed) {
    dynamiccl::boundary::fill(l.send, n * all(), self(), 0, seed, l.stream);
    float* to = in_place ? l.send + n * self() : l.receive;
    nccl(nccl_api().reduce_scatter(l.send, to, n, ncclFloat, ncclSum, l.comm, l.stream),
         "ncclReduceScatter");
    dynamiccl::boundary::check(to, n, 0, all(), n * self(), seed, wrong_, l.stream);
  }
  void all_to_all(Lane& l, std::size_t n, std::uint32_t seed) {
    dynamiccl::boundary::fill(l.send, n * all(), self(), 0, seed, l.stream);
    nccl(nccl_api().group_start(), "ncclGroupStart");
    for (std::uint32_t r = 0; r < all(); ++r) {
      nccl(nccl_api().send(l.send + n * r, n, ncclFloat, static_cast<int>(r), l.comm, l.stream),
           "ncclSend");
      nccl(nccl_api().recv(l.receive + n * r, n, ncclFloat, static_cast<int>(r), l.comm, l.stream),
           "ncclRecv");
    }
    nccl(nccl_api().group_end(), "ncclGroupEnd");
    for (std::uint32_t r = 0; r < all(); ++r)
      dynamiccl::boundary::check(l.receive + n * r, n, r, r + 1, n * self(), seed, wrong_,
                                 l.stream);
  }
  /// To the next rank and from the one before.
  void exchange(Lane& l, std::size_t n, std::uint32_t seed) {
    const std::uint32_t next = (self() + 1) % all();
    const std::uint32_t previous = (self() + all() - 1) % all();
    dynamiccl::boundary::fill(l.send, n, self(), 0, seed, l.stream);
    nccl(nccl_api().group_start(), "ncclGroupStart");
    nccl(nccl_api().send(l.send, n, ncclFloat, static_cast<int>(next), l.comm, l.stream),
         "ncclSend");
    nccl(nccl_api().recv(l.receive, n, ncclFloat, static_cast<int>(previous), l.comm, l.stream),
         "ncclRecv");
    nccl(nccl_api().group_end(), "ncclGroupEnd");
    dynamiccl::boundary::check(l.receive, n, previous, previous + 1, 0, seed, wrong_, l.stream);
  }

  Job job_;
  std::mt19937 random_;
  std::array<Lane, kCommunicators> lanes_{};
  unsigned long long* wrong_ = nullptr;
  std::uint64_t begun_ = 0;
  Watch watch_;
};

int check_all(const Job& job, std::uint64_t operations, std::uint32_t seed) {
  unsigned long long wrong = 0;
  Resources before;
  Resources after;
  const auto begin = Clock::now();
  {
    Checker checker(job, seed);
    // NCCL connects when it first needs to: what the first half leaves is what stays.
    checker.run(operations / 2);
    checker.run_graph(20);
    before = dynamiccl::boundary::resources();
    checker.run(operations - operations / 2);
    checker.run_graph(20);
    wrong = checker.wrong();
    after = dynamiccl::boundary::resources();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  // Other ranks of this process, or on this GPU, take and give back at moments of their own.
  const std::string left =
      job.local == 1 ? dynamiccl::boundary::grown(before, after, kSomeUses) : std::string();
  std::printf(
      "{\"rank\": %d, \"operations\": %llu, \"wrong\": %llu, \"seconds\": %.1f, "
      "\"half\": %s, \"end\": %s, \"left\": \"%s\"}\n",
      job.rank, static_cast<unsigned long long>(operations + 240), wrong, seconds,
      dynamiccl::boundary::text(before).c_str(), dynamiccl::boundary::text(after).c_str(),
      left.c_str());
  return wrong == 0 && left.empty() ? 0 : 1;
}

/// What is there after the second cycle is there for good: threads, NCCL's and CUDA's own.
/// @param all NCCL unloads its network in every cycle, as no communicator is left
int cycle_all(const Job& job, int cycles, std::uint32_t seed, bool all) {
  constexpr int kSettled = 2;
  constexpr std::uint64_t kOperations = 100;
  unsigned long long wrong = 0;
  Resources before;
  const auto begin = Clock::now();
  ncclComm_t stays = all ? nullptr : communicator(job, 0);
  for (int cycle = 0; cycle < cycles; ++cycle) {
    if (cycle == kSettled) before = dynamiccl::boundary::resources();
    const auto number = static_cast<std::size_t>(cycle);
    Checker checker(job, seed + static_cast<std::uint32_t>(cycle), 1 + number * kCommunicators);
    checker.run(kOperations);
    checker.run_graph(2);
    wrong += checker.wrong();
  }
  const Resources after = dynamiccl::boundary::resources();
  if (stays != nullptr) nccl(nccl_api().comm_destroy(stays), "ncclCommDestroy");
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const std::string left =
      dynamiccl::boundary::grown(before, after, std::max(1, cycles - kSettled));
  std::printf(
      "{\"rank\": %d, \"cycles\": %d, \"one_stays\": %s, \"communicators\": %zu, "
      "\"wrong\": %llu, \"seconds\": %.1f, \"begin\": %s, \"end\": %s, \"left\": \"%s\"}\n",
      job.rank, cycles, all ? "false" : "true", static_cast<std::size_t>(cycles) * kCommunicators,
      wrong, seconds, dynamiccl::boundary::text(before).c_str(),
      dynamiccl::boundary::text(after).c_str(), left.c_str());
  return wrong == 0 && left.empty() ? 0 : 1;
}

/// Of all threads of this process, user and system, microseconds.
double cpu_us() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec);
  };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

/// The communicator stays open, nothing is asked of it; milliseconds of CPU time a second.
double idle_cpu_ms(int seconds) {
  const double begin = cpu_us();
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  return (cpu_us() - begin) / 1e3 / seconds;
}

/// Median time of calls one by one, by events of the GPU; microseconds.
int time_all(const Job& job, int calls, const std::vector<std::size_t>& sizes, int idle_seconds) {
  ncclComm_t comm = communicator(job, 0);
  cudaStream_t stream = nullptr;
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  float* data = nullptr;
  float* result = nullptr;
  unsigned long long* wrong = nullptr;
  const std::size_t most = *std::max_element(sizes.begin(), sizes.end());
  cuda(cudaMalloc(&data, most), "buffer");
  cuda(cudaMalloc(&result, most), "buffer");
  cuda(cudaMalloc(&wrong, sizeof *wrong), "counter");
  cuda(cudaMemset(wrong, 0, sizeof *wrong), "counter");
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cuda(cudaEventCreate(&begin), "event");
  cuda(cudaEventCreate(&end), "event");
  std::string text;
  std::string cpu;
  for (const std::size_t bytes : sizes) {
    const std::size_t count = bytes / sizeof(float);
    dynamiccl::boundary::fill(data, count, static_cast<std::uint32_t>(job.rank), 0, 1, stream);
    const int timed = bytes > (std::size_t{32} << 20) ? std::max(5, calls / 10) : calls;
    std::vector<double> times;
    double cpu_begin = 0;
    for (int i = 0; i < timed + 5; ++i) {
      if (i == 5) cpu_begin = cpu_us();
      cuda(cudaEventRecord(begin, stream), "event");
      nccl(nccl_api().all_reduce(data, result, count, ncclFloat, ncclSum, comm, stream),
           "ncclAllReduce");
      cuda(cudaEventRecord(end, stream), "event");
      cuda(cudaStreamSynchronize(stream), "synchronize");
      float ms = 0;
      cuda(cudaEventElapsedTime(&ms, begin, end), "event");
      if (i >= 5) times.push_back(ms * 1e3);
    }
    const double cpu_per_call = (cpu_us() - cpu_begin) / timed;
    dynamiccl::boundary::check(result, count, 0, static_cast<std::uint32_t>(job.ranks), 0, 1, wrong,
                               stream);
    std::sort(times.begin(), times.end());
    text += (text.empty() ? "\"" : ", \"") + std::to_string(bytes) +
            "\": " + std::to_string(times[times.size() / 2]);
    cpu += (cpu.empty() ? "\"" : ", \"") + std::to_string(bytes) +
           "\": " + std::to_string(cpu_per_call);
  }
  cuda(cudaStreamSynchronize(stream), "synchronize");
  unsigned long long bad = 0;
  cuda(cudaMemcpy(&bad, wrong, sizeof bad, cudaMemcpyDeviceToHost), "counter");
  std::printf("{\"rank\": %d, \"wrong\": %llu, \"median_us\": {%s}, \"cpu_us\": {%s}", job.rank,
              bad, text.c_str(), cpu.c_str());
  if (idle_seconds > 0) std::printf(", \"idle_cpu_ms_per_s\": %.2f", idle_cpu_ms(idle_seconds));
  std::printf("}\n");
  nccl(nccl_api().comm_destroy(comm), "ncclCommDestroy");
  return bad == 0 ? 0 : 1;
}

int loop(const Job& job) {
  ncclComm_t comm = communicator(job, 0);
  cudaStream_t stream = nullptr;
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  float* data = nullptr;
  constexpr std::size_t kCount = std::size_t{4} << 20;
  cuda(cudaMalloc(&data, kCount * sizeof(float)), "buffer");
  std::printf("looping %d\n", job.rank);
  std::fflush(stdout);
  for (;;) {
    nccl(nccl_api().all_reduce(data, data, kCount, ncclFloat, ncclSum, comm, stream),
         "ncclAllReduce");
    while (cudaStreamQuery(stream) == cudaErrorNotReady) {
      ncclResult_t state = ncclSuccess;
      nccl(nccl_api().comm_get_async_error(comm, &state), "ncclCommGetAsyncError");
      if (state != ncclSuccess && state != ncclInProgress) {
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        std::printf("rank %d was told: %s\ntold %.3f\n", job.rank,
                    nccl_api().get_error_string(state), std::chrono::duration<double>(now).count());
        std::fflush(stdout);
        nccl_api().comm_abort(comm);
        return 10;
      }
    }
  }
}

std::vector<std::size_t> sizes_from(const std::string& text) {
  std::vector<std::size_t> sizes;
  for (std::size_t at = 0; at < text.size(); ++at) {
    sizes.push_back(std::strtoull(text.c_str() + at, nullptr, 10));
    at = std::min(text.find(',', at), text.size());
  }
  return sizes;
}

int environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) throw std::runtime_error(std::string(name) + " is not set");
  return std::atoi(text);
}

/// One rank's work, on the GPU of that number.
int rank_main(const Job& job, int gpu, const std::string& verb, const std::string& first,
              const std::string& second, const std::string& third) {
  const auto or_else = [](const std::string& word, const char* otherwise) {
    return word.empty() ? std::string(otherwise) : word;
  };
  cuda(cudaSetDevice(gpu), "cudaSetDevice");
  const auto seed = static_cast<std::uint32_t>(std::atoi(or_else(second, "1").c_str()));
  if (verb == "check")
    return check_all(job, std::strtoull(or_else(first, "2000").c_str(), nullptr, 10), seed);
  if (verb == "cycles")
    return cycle_all(job, std::atoi(or_else(first, "12").c_str()), seed, third == "all");
  if (verb == "time")
    return time_all(job, std::atoi(or_else(first, "200").c_str()),
                    sizes_from(or_else(second, "1024,65536,1048576,4194304,16777216,67108864")),
                    std::atoi(or_else(third, "0").c_str()));
  if (verb == "loop") return loop(job);
  throw std::runtime_error("no verb " + verb);
}

/// The ranks of this process beside each other. What one of them cannot do, the others wait for in
/// vain: the process ends.
template <typename Work>
int in_threads(int count, Work&& work) {
  std::vector<int> codes(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      try {
        codes[static_cast<std::size_t>(i)] = work(i);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "nccl_boundary, GPU %d: %s\n", i, error.what());
        std::fflush(nullptr);
        _exit(1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(codes.begin(), codes.end());
}

}  // namespace

int main(int count, char** words) {
  if (count < 4 || std::strcmp(words[1], "--id") != 0) {
    std::fprintf(stderr,
                 "nccl_boundary --id FILE check|cycles|time|loop; see the head of its source\n");
    return 2;
  }
  try {
    const auto word = [&](int i) { return std::string(count > i ? words[i] : ""); };
    const int rank = environment("RANK");
    const int ranks = environment("WORLD_SIZE");
    const int local = std::getenv("LOCAL_GPUS") == nullptr ? 1 : environment("LOCAL_GPUS");
    if (local == 1) {
      const int gpu = std::getenv("LOCAL_RANK") == nullptr ? 0 : environment("LOCAL_RANK");
      return rank_main({rank, ranks, word(2), 1}, gpu, word(3), word(4), word(5), word(6));
    }
    if (word(3) != "check") throw std::runtime_error("LOCAL_GPUS goes with check alone");
    return in_threads(local, [&](int gpu) {
      return rank_main({rank * local + gpu, ranks * local, word(2), local}, gpu, word(3), word(4),
                       word(5), word(6));
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_boundary: %s\n", error.what());
    return 1;
  }
}
