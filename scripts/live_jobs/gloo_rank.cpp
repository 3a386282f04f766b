// A rank of a job over Gloo that goes well or meets a fault (scripts/live_jobs.py): the like of
// rank.c.
//   RANK=R WORLD_SIZE=N gloo_rank KIND FAULTY_RANK FOLDER ADDRESS
#include <fcntl.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace {

void compute(double ms) {
  static volatile double sink;
  double x = 1;
  for (long i = 0; i < static_cast<long>(ms * 100000); ++i) x = x * 1.0000001 + 1e-9;
  sink = x;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string kind = argv[1], folder = argv[3];
  const int faulty = std::atoi(argv[2]);
  const int rank = std::atoi(std::getenv("RANK")), ranks = std::atoi(std::getenv("WORLD_SIZE"));
  std::signal(SIGPIPE, SIG_IGN);
  gloo::transport::tcp::attr where;
  where.hostname = argv[4];
  auto device = gloo::transport::tcp::CreateDevice(where);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->setTimeout(std::chrono::seconds(300));
  gloo::rendezvous::FileStore store(folder);
  context->connectFullMesh(store, device);
  std::vector<float> values(kind == "fast" ? 256 : 64 << 10, 1);
  for (long n = 0;; ++n) {
    if (n == 5) std::ofstream(folder + "/ready." + std::to_string(rank));
    // A step that all ranks have reached: no rank is more than one ahead.
    const bool met = access((folder + "/go").c_str(), F_OK) == 0;
    if (kind != "fast") compute(15);
    if (met && rank == faulty) {
      if (kind == "slow-loader") usleep(150000);
      if (kind == "stuck-sleep") sleep(600);
      if (kind == "circle")
        for (;;) compute(1);
      if (kind == "other-collective") {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
      }
      if (kind == "more-work") compute(150);
    }
    gloo::AllreduceOptions options(context);
    options.setOutput(values.data(), values.size());
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(
        [](void* c, const void* a, const void* b, std::size_t count) {
          for (std::size_t i = 0; i < count; ++i)
            static_cast<float*>(c)[i] =
                static_cast<const float*>(a)[i] + static_cast<const float*>(b)[i];
        }));
    gloo::allreduce(options);
  }
}
