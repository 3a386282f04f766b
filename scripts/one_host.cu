// One rank of a job that calls NCCL directly, all results checked element by element: whether its operations are right, how long
// they take, and what happens when a peer is killed. Started once per rank with RANK, WORLD_SIZE and LOCAL_RANK set.
//   one_host ID_FILE calls                    every kind of call once or some times, also windows and NCCL's own memory
//   one_host ID_FILE check OPERATIONS SEED    random operations on three communicators, and graphs
//   one_host ID_FILE time CALLS SIZES         all-reduce of float32, SIZES as 1024,65536: median us of a call
//   one_host ID_FILE loop                     all-reduces until NCCL says that a peer is gone: exit code 10
// ID_FILE lies in a folder that all ranks have, a new name for every start. Prints one JSON line; built by scripts/gpu_one_host.sh.
#include <cuda_runtime.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#define CUDA(call) cuda((call), #call)
#define NCCL(call) nccl((call), #call)

namespace {

constexpr std::size_t kMost = (std::size_t{4} << 20) + 3;  // elements
int rank = 0, ranks = 1;
unsigned long long* wrong = nullptr;
unsigned long long calls = 0;

[[noreturn]] void fail(const char* call, const char* text) {
  std::fprintf(stderr, "one_host: rank %d: %s: %s: %s\n", rank, call, text, ncclGetLastError(nullptr));
  std::fflush(nullptr);
  _exit(1);  // the others wait in vain: nothing is to be destroyed
}
void cuda(cudaError_t code, const char* call) {
  if (code != cudaSuccess) fail(call, cudaGetErrorString(code));
}
void nccl(ncclResult_t code, const char* call) {
  if (code != ncclSuccess) fail(call, ncclGetErrorString(code));
}

// What a rank gives at an element: small whole numbers, so that sums are exact.
__device__ float element(unsigned of, unsigned long long index, unsigned seed) {
  unsigned long long value = index * 0x9e3779b97f4a7c15ULL + of * 0x94d049bb133111ebULL + seed;
  value = (value ^ (value >> 31)) * 0xbf58476d1ce4e5b9ULL;
  return static_cast<float>((value >> 40) & 15U);
}
__global__ void fill_kernel(float* data, std::size_t count, unsigned of, std::size_t first, unsigned seed) {
  for (std::size_t i = blockIdx.x * std::size_t{256} + threadIdx.x; i < count; i += gridDim.x * std::size_t{256})
    data[i] = element(of, first + i, seed);
}
__global__ void check_kernel(const float* data, std::size_t count, unsigned low, unsigned high, std::size_t first, unsigned seed,
                             unsigned long long* bad) {
  for (std::size_t i = blockIdx.x * std::size_t{256} + threadIdx.x; i < count; i += gridDim.x * std::size_t{256}) {
    float sum = 0;
    for (unsigned of = low; of < high; ++of) sum += element(of, first + i, seed);
    if (data[i] != sum) atomicAdd(bad, 1ULL);
  }
}
unsigned blocks(std::size_t count) { return static_cast<unsigned>(std::clamp<std::size_t>((count + 255) / 256, 1, 1024)); }

struct Lane {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* send = nullptr;
  float* receive = nullptr;
};
void fill(const Lane& l, float* data, std::size_t count, unsigned seed) {
  fill_kernel<<<blocks(count), 256, 0, l.stream>>>(data, count, static_cast<unsigned>(rank), 0, seed);
}
// The sum over ranks [low, high) of what they filled, from their element `first` on.
void check(const Lane& l, const float* data, std::size_t count, unsigned low, unsigned high, std::size_t first, unsigned seed) {
  check_kernel<<<blocks(count), 256, 0, l.stream>>>(data, count, low, high, first, seed, wrong);
}

ncclComm_t communicator(const std::string& file, int number) {
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  const std::string path = file + "." + std::to_string(number);
  if (rank == 0) {
    NCCL(ncclGetUniqueId(&id));
    FILE* out = std::fopen((path + ".new").c_str(), "wb");
    if (out == nullptr || std::fwrite(&id, sizeof id, 1, out) != 1 || std::fclose(out) != 0 ||
        std::rename((path + ".new").c_str(), path.c_str()) != 0)
      fail("id file", path.c_str());
  } else {
    FILE* in = nullptr;
    for (int i = 0; i < 6000 && (in = std::fopen(path.c_str(), "rb")) == nullptr; ++i) usleep(10'000);
    if (in == nullptr || std::fread(&id, sizeof id, 1, in) != 1) fail("id file", path.c_str());
    std::fclose(in);
  }
  NCCL(ncclCommInitRank(&comm, ranks, id, rank));
  return comm;
}

// Kinds of operations; all ranks call them with the same numbers.
enum { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kAllToAll, kExchange, kKinds };
void operate(const Lane& l, int kind, std::size_t n, bool in_place, int root, unsigned seed) {
  const unsigned all = static_cast<unsigned>(ranks), self = static_cast<unsigned>(rank), from = static_cast<unsigned>(root);
  float* const source = in_place ? l.receive : l.send;
  ++calls;
  if (kind == kAllReduce) {
    fill(l, source, n, seed);
    NCCL(ncclAllReduce(source, l.receive, n, ncclFloat, ncclSum, l.comm, l.stream));
    check(l, l.receive, n, 0, all, 0, seed);
  } else if (kind == kBroadcast) {
    fill(l, source, n, seed);
    NCCL(ncclBroadcast(source, l.receive, n, ncclFloat, root, l.comm, l.stream));
    check(l, l.receive, n, from, from + 1, 0, seed);
  } else if (kind == kReduce) {
    fill(l, source, n, seed);
    NCCL(ncclReduce(source, l.receive, n, ncclFloat, ncclSum, root, l.comm, l.stream));
    if (root == rank) check(l, l.receive, n, 0, all, 0, seed);
  } else if (kind == kAllGather) {
    float* const own = in_place ? l.receive + n * self : l.send;
    fill(l, own, n, seed);
    NCCL(ncclAllGather(own, l.receive, n, ncclFloat, l.comm, l.stream));
    for (unsigned r = 0; r < all; ++r) check(l, l.receive + n * r, n, r, r + 1, 0, seed);
  } else if (kind == kReduceScatter) {
    fill(l, l.send, n * all, seed);
    float* const to = in_place ? l.send + n * self : l.receive;
    NCCL(ncclReduceScatter(l.send, to, n, ncclFloat, ncclSum, l.comm, l.stream));
    check(l, to, n, 0, all, n * self, seed);
  } else {
    const bool ring = kind == kExchange;
    fill(l, l.send, ring ? n : n * all, seed);
    NCCL(ncclGroupStart());
    for (unsigned r = 0; r < all; ++r) {
      const unsigned to = (self + 1) % all, before = (self + all - 1) % all;
      if (ring && r > 0) break;
      NCCL(ncclSend(ring ? l.send : l.send + n * r, n, ncclFloat, static_cast<int>(ring ? to : r), l.comm, l.stream));
      NCCL(ncclRecv(ring ? l.receive : l.receive + n * r, n, ncclFloat, static_cast<int>(ring ? before : r), l.comm, l.stream));
    }
    NCCL(ncclGroupEnd());
    for (unsigned r = 0; r < all; ++r) {
      const unsigned before = (self + all - 1) % all;
      if (!ring) check(l, l.receive + n * r, n, r, r + 1, n * self, seed);
      if (ring && r == before) check(l, l.receive, n, r, r + 1, 0, seed);
    }
  }
}

struct Lanes {
  std::vector<Lane> all;
  Lanes(const std::string& file, std::size_t most) {
    // Two of their own and one split off the first, whose order of ranks is the other way round and back.
    for (int i = 0; i < 3; ++i) {
      Lane lane;
      if (i < 2) lane.comm = communicator(file, i);
      else NCCL(ncclCommSplit(all[0].comm, 0, rank, &lane.comm, nullptr));
      CUDA(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking));
      CUDA(cudaMalloc(&lane.send, most * sizeof(float) * static_cast<std::size_t>(ranks)));
      CUDA(cudaMalloc(&lane.receive, most * sizeof(float) * static_cast<std::size_t>(ranks)));
      all.push_back(lane);
    }
  }
  void synchronize() const {
    for (const Lane& lane : all) CUDA(cudaStreamSynchronize(lane.stream));
  }
  void destroy() {
    synchronize();
    for (std::size_t i = all.size(); i-- > 0;) NCCL(ncclCommDestroy(all[i].comm));
  }
};

void graph(const Lanes& lanes, int replays) {
  const Lane& lane = lanes.all[0];
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  CUDA(cudaStreamBeginCapture(lane.stream, cudaStreamCaptureModeThreadLocal));
  for (int kind = 0; kind < kKinds; ++kind) operate(lane, kind, 10'007, kind % 2 == 0, 0, 900U + static_cast<unsigned>(kind));
  CUDA(cudaStreamEndCapture(lane.stream, &graph));
  CUDA(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < replays; ++i) CUDA(cudaGraphLaunch(executable, lane.stream));
  CUDA(cudaStreamSynchronize(lane.stream));
  CUDA(cudaGraphExecDestroy(executable));
  CUDA(cudaGraphDestroy(graph));
  calls += static_cast<unsigned long long>(replays) * kKinds;
}

// How many elements were wrong after each kind of call, as JSON's fields.
std::string wrong_after;
void look(const char* after) {
  unsigned long long bad = 0;
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaMemcpy(&bad, wrong, sizeof bad, cudaMemcpyDeviceToHost));
  wrong_after += (wrong_after.empty() ? "" : ", ") + ('"' + std::string(after) + "\": " + std::to_string(bad));
}

// NCCL's own memory, registered in both ways. @return whether NCCL made windows of it
bool registered(const Lanes& lanes) {
  Lane lane = lanes.all[1];
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  void *send = nullptr, *receive = nullptr, *handles[2] = {};
  NCCL(ncclMemAlloc(&send, kBytes));
  NCCL(ncclMemAlloc(&receive, kBytes));
  lane.send = static_cast<float*>(send);
  lane.receive = static_cast<float*>(receive);
  const auto some = [&](unsigned seed) {
    for (const std::size_t n : {std::size_t{3}, std::size_t{4099}, kBytes / 4 / static_cast<std::size_t>(ranks)})
      for (int kind = 0; kind < kKinds; ++kind) operate(lane, kind, n, false, 0, seed + static_cast<unsigned>(kind));
    CUDA(cudaStreamSynchronize(lane.stream));
  };
  NCCL(ncclCommRegister(lane.comm, send, kBytes, &handles[0]));
  NCCL(ncclCommRegister(lane.comm, receive, kBytes, &handles[1]));
  some(1000);
  for (void* handle : handles) NCCL(ncclCommDeregister(lane.comm, handle));
  look("registered");
  bool made = false;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  ncclWindow_t windows[2] = {};
  NCCL(ncclCommWindowRegister(lane.comm, send, kBytes, &windows[0], NCCL_WIN_COLL_SYMMETRIC));
  NCCL(ncclCommWindowRegister(lane.comm, receive, kBytes, &windows[1], NCCL_WIN_COLL_SYMMETRIC));
  some(2000);
  look("windows");
  made = windows[0] != nullptr && windows[1] != nullptr;
  for (ncclWindow_t window : windows)
    if (window != nullptr) NCCL(ncclCommWindowDeregister(lane.comm, window));
#endif
  NCCL(ncclMemFree(send));
  NCCL(ncclMemFree(receive));
  return made;
}

int finish(const char* verb, double seconds, bool windows) {
  unsigned long long bad = 0;
  int version = 0;
  CUDA(cudaMemcpy(&bad, wrong, sizeof bad, cudaMemcpyDeviceToHost));
  NCCL(ncclGetVersion(&version));
  std::printf("{\"verb\": \"%s\", \"rank\": %d, \"calls\": %llu, \"wrong\": %llu, \"seconds\": %.1f, \"windows\": %s, \"nccl\": %d, \"wrong_after\": {%s}}\n",
              verb, rank, calls, bad, seconds, windows ? "true" : "false", version, wrong_after.c_str());
  return bad == 0 ? 0 : 1;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

int every_call(const std::string& file) {
  const double begin = now();
  constexpr std::size_t kLargest = std::size_t{64} << 20;  // elements
  Lanes lanes(file, kLargest / static_cast<std::size_t>(ranks));
  for (std::size_t bytes = 1 << 10; bytes <= kLargest * 4; bytes *= 4)
    operate(lanes.all[bytes / 1024 % 3], kAllReduce, std::min(bytes / 4, kLargest), bytes % 3 == 0, 0, static_cast<unsigned>(bytes % 97));
  lanes.synchronize();
  look("sizes");
  for (const std::size_t n : {1, 3, 255, 4097, 65'537, 1'000'003})
    for (int kind = 0; kind < kKinds; ++kind)
      for (unsigned i = 0; i < 3; ++i) operate(lanes.all[i], kind, n, i % 2 == 1, static_cast<int>(i) % ranks, 31 * i + 7);
  lanes.synchronize();
  look("kinds");
  graph(lanes, 10);
  look("graph");
  const bool windows = registered(lanes);
  lanes.destroy();
  return finish("calls", now() - begin, windows);
}

int random_calls(const std::string& file, unsigned long long operations, unsigned seed) {
  const double begin = now();
  Lanes lanes(file, kMost);
  std::mt19937 random(seed);
  constexpr std::size_t kOdd[] = {1, 2, 3, 7, 255, 1023, 4097, 65'537, 262'143, 1};
  for (unsigned long long i = 0; i < operations; ++i) {
    const unsigned which = random() % 16;
    std::size_t n = which < 10 ? kOdd[random() % 10] : 1 + random() % (std::size_t{1} << (random() % 17));
    if (which == 15 && random() % 24 == 0) n = kMost - random() % 5;
    const Lane& lane = lanes.all[random() % 3];
    const int kind = static_cast<int>(random() % kKinds), root = static_cast<int>(random() % static_cast<unsigned>(ranks));
    operate(lane, kind, n, random() % 2 == 0, root, static_cast<unsigned>(i));
    if (i % 64 == 63) lanes.synchronize();
    if (i % 20'000 == 19'999) graph(lanes, 20);
  }
  graph(lanes, 20);
  lanes.destroy();
  return finish("check", now() - begin, false);
}

int timed(const std::string& file, int count, const char* sizes) {
  Lane lane;
  lane.comm = communicator(file, 0);
  std::vector<std::size_t> all;
  for (const char* at = sizes; *at != '\0'; at += *at == ',') {
    char* end = nullptr;
    all.push_back(std::strtoull(at, &end, 10));
    at = end;
  }
  const std::size_t most = *std::max_element(all.begin(), all.end());
  CUDA(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking));
  CUDA(cudaMalloc(&lane.send, most));
  CUDA(cudaMalloc(&lane.receive, most));
  cudaEvent_t begin = nullptr, end = nullptr;
  CUDA(cudaEventCreate(&begin));
  CUDA(cudaEventCreate(&end));
  std::string text;
  for (const std::size_t bytes : all) {
    const std::size_t n = bytes / sizeof(float);
    const int timed = bytes > (std::size_t{32} << 20) ? std::max(7, count / 10) : count;
    std::vector<float> times;
    fill(lane, lane.send, n, 1);
    for (int i = 0; i < timed + 5; ++i) {
      float ms = 0;
      CUDA(cudaEventRecord(begin, lane.stream));
      NCCL(ncclAllReduce(lane.send, lane.receive, n, ncclFloat, ncclSum, lane.comm, lane.stream));
      CUDA(cudaEventRecord(end, lane.stream));
      CUDA(cudaStreamSynchronize(lane.stream));
      CUDA(cudaEventElapsedTime(&ms, begin, end));
      if (i >= 5) times.push_back(ms * 1e3F);
    }
    check(lane, lane.receive, n, 0, static_cast<unsigned>(ranks), 0, 1);
    std::nth_element(times.begin(), times.begin() + timed / 2, times.end());
    text += (text.empty() ? "\"" : ", \"") + std::to_string(bytes) + "\": " + std::to_string(times[static_cast<std::size_t>(timed) / 2]);
  }
  unsigned long long bad = 0;
  CUDA(cudaStreamSynchronize(lane.stream));
  CUDA(cudaMemcpy(&bad, wrong, sizeof bad, cudaMemcpyDeviceToHost));
  std::printf("{\"verb\": \"time\", \"rank\": %d, \"wrong\": %llu, \"median_us\": {%s}}\n", rank, bad, text.c_str());
  NCCL(ncclCommDestroy(lane.comm));
  return bad == 0 ? 0 : 1;
}

int loop(const std::string& file) {
  Lane lane;
  lane.comm = communicator(file, 0);
  CUDA(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking));
  CUDA(cudaMalloc(&lane.send, kMost * sizeof(float)));
  std::printf("looping %d\n", rank);
  std::fflush(stdout);
  for (;;) {
    NCCL(ncclAllReduce(lane.send, lane.send, kMost, ncclFloat, ncclSum, lane.comm, lane.stream));
    while (cudaStreamQuery(lane.stream) == cudaErrorNotReady) {
      ncclResult_t state = ncclSuccess;
      NCCL(ncclCommGetAsyncError(lane.comm, &state));
      if (state == ncclSuccess || state == ncclInProgress) continue;
      std::printf("told %.3f %s\n", now(), ncclGetErrorString(state));
      std::fflush(stdout);
      ncclCommAbort(lane.comm);
      return 10;
    }
  }
}

int environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) {
    std::fprintf(stderr, "one_host ID_FILE calls | check OPERATIONS SEED | time CALLS SIZES | loop\n");
    return 2;
  }
  const std::string file = words[1], verb = words[2];
  const auto word = [&](int i, const char* otherwise) { return count > i ? words[i] : otherwise; };
  rank = environment("RANK");
  ranks = environment("WORLD_SIZE");
  CUDA(cudaSetDevice(environment("LOCAL_RANK")));
  CUDA(cudaMalloc(&wrong, sizeof *wrong));
  CUDA(cudaMemset(wrong, 0, sizeof *wrong));
  if (verb == "calls") return every_call(file);
  if (verb == "check") return random_calls(file, std::strtoull(word(3, "2000"), nullptr, 10), static_cast<unsigned>(std::atoi(word(4, "1"))));
  if (verb == "time") return timed(file, std::atoi(word(3, "100")), word(4, "1024,65536,1048576"));
  if (verb == "loop") return loop(file);
  std::fprintf(stderr, "one_host: no verb %s\n", verb.c_str());
  return 2;
}
