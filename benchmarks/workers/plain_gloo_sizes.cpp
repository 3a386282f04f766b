// A program that knows nothing of DynamICCL: every size of Gloo's all-reduce or another collective,
// one after the other, as a job calls them. It tells what a file of settings does to a Gloo program
// that loads it. Started once per rank:
//   plain-gloo-sizes FOLDER RANK RANKS COLLECTIVE MILLISECONDS [SIZE_BYTES...]
// FOLDER is empty at the start and where ranks meet, over the loopback interface. COLLECTIVE is
// allreduce, broadcast, allgather or alltoall; the rest as plain-mpi-sizes: rank 0 prints
// SIZE_BYTES and the median over calls of the slowest rank's time in us.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Context = std::shared_ptr<gloo::rendezvous::Context>;

struct Buffers {
  std::vector<float> in;
  std::vector<float> out;
};

template <class Options>
void set_sums(Options& options) {
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
}

void call(const Context& context, const std::string& collective, Buffers& b) {
  const std::size_t ranks = static_cast<std::size_t>(context->size);
  const std::size_t part = b.in.size() / ranks;
  if (collective == "allreduce") {
    gloo::AllreduceOptions options(context);
    options.setInput(b.in.data(), b.in.size());
    options.setOutput(b.out.data(), b.out.size());
    set_sums(options);
    gloo::allreduce(options);
  } else if (collective == "broadcast") {
    gloo::BroadcastOptions options(context);
    options.setOutput(b.in.data(), b.in.size());
    options.setRoot(0);
    gloo::broadcast(options);
  } else if (collective == "allgather") {
    gloo::AllgatherOptions options(context);
    options.setInput(b.in.data(), part);
    options.setOutput(b.out.data(), part * ranks);
    gloo::allgather(options);
  } else if (collective == "alltoall") {
    gloo::AlltoallOptions options(context);
    options.setInput(b.in.data(), part * ranks);
    options.setOutput(b.out.data(), part * ranks);
    gloo::alltoall(options);
  } else {
    throw std::invalid_argument("no collective \"" + collective + "\"");
  }
}

/// Each rank's number, the largest of them on all.
void largest(const Context& context, std::vector<double>& values) {
  gloo::AllreduceOptions options(context);
  options.setOutput(values.data(), values.size());
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::max<double>));
  gloo::allreduce(options);
}

double timed_us(const Context& context, const std::string& collective, Buffers& b) {
  gloo::BarrierOptions options(context);
  gloo::barrier(options);
  const auto start = std::chrono::steady_clock::now();
  call(context, collective, b);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

/// How often a call of this length fits into this time, by the slowest rank.
std::size_t agreed_calls(const Context& context, double budget_us, double one_us, int least) {
  std::vector<double> one{one_us};
  largest(context, one);
  return static_cast<std::size_t>(
      std::clamp(static_cast<int>(budget_us / std::max(one[0], 0.05)), least, 5000));
}

void measure(const Context& context, const std::string& collective, long bytes, double budget_us) {
  const std::size_t total = static_cast<std::size_t>(bytes) / sizeof(float);
  if (total < static_cast<std::size_t>(context->size) && collective.substr(0, 3) == "all" &&
      collective != "allreduce")
    return;
  Buffers b{std::vector<float>(total, 1.0F), std::vector<float>(total, 0.0F)};
  double one = 0;
  for (int i = 0; i < 3; ++i) one = timed_us(context, collective, b);
  for (std::size_t i = agreed_calls(context, budget_us / 5, one, 0); i > 0; --i)
    one = timed_us(context, collective, b);
  std::vector<double> slowest(agreed_calls(context, budget_us, one, 5));
  for (double& time : slowest) time = timed_us(context, collective, b);
  largest(context, slowest);
  if (context->rank != 0) return;
  std::sort(slowest.begin(), slowest.end());
  std::printf("%ld %.4f\n", bytes,
              (slowest[(slowest.size() - 1) / 2] + slowest[slowest.size() / 2]) / 2);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  gloo::transport::tcp::attr attributes;
  attributes.iface = "lo";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(argv[1]);
  const auto context =
      std::make_shared<gloo::rendezvous::Context>(std::atoi(argv[2]), std::atoi(argv[3]));
  context->connectFullMesh(store, device);
  std::vector<long> sizes;
  for (int i = 6; i < argc; ++i) sizes.push_back(std::strtol(argv[i], nullptr, 10));
  if (sizes.empty()) {
    sizes = {4, 16, 64, 256, 1024, 4096};
    for (long size = 8192; size <= 64L << 20; size *= 2) sizes.push_back(size);
  }
  for (const long size : sizes) measure(context, argv[4], size, std::atof(argv[5]) * 1000);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: %s FOLDER RANK RANKS COLLECTIVE MILLISECONDS [SIZE_BYTES...]\n",
                 argv[0]);
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plain-gloo-sizes: rank %s: %s\n", argv[2], error.what());
    return 1;
  }
}
