// A program that knows nothing of DynamICCL: every size of one collective after the other, as a job
// calls them. It tells what a file of settings does to an MPI program that loads it.
//   plain-mpi-sizes COLLECTIVE MILLISECONDS [SIZE_BYTES...]
// COLLECTIVE is allreduce, broadcast, allgather, reduce_scatter or alltoall; SIZE_BYTES count all
// ranks' parts together (twenty from 4 B to 64 MiB unless said). A size gets a fifth of
// MILLISECONDS to warm up and MILLISECONDS to be timed, three and five calls at least. Rank 0
// prints a line per size: SIZE_BYTES and the median over calls of the slowest rank's time in us.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Buffers {
  std::vector<float> in;
  std::vector<float> out;
};

int ranks() {
  int n = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  return n;
}

void call(const std::string& collective, int total, Buffers& b) {
  const int part = total / ranks();
  if (collective == "allreduce")
    MPI_Allreduce(b.in.data(), b.out.data(), total, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  else if (collective == "broadcast")
    MPI_Bcast(b.in.data(), total, MPI_FLOAT, 0, MPI_COMM_WORLD);
  else if (collective == "allgather")
    MPI_Allgather(b.in.data(), part, MPI_FLOAT, b.out.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
  else if (collective == "reduce_scatter")
    MPI_Reduce_scatter_block(b.in.data(), b.out.data(), part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  else if (collective == "alltoall")
    MPI_Alltoall(b.in.data(), part, MPI_FLOAT, b.out.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
  else {
    std::fprintf(stderr, "plain-mpi-sizes: no collective \"%s\"\n", collective.c_str());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
}

/// How often rank 0 says that a call of this length fits into this time.
int agreed_calls(double budget_us, double one_us, int least) {
  int calls = std::clamp(static_cast<int>(budget_us / std::max(one_us, 0.05)), least, 5000);
  MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return calls;
}

double timed_us(const std::string& collective, int total, Buffers& b) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  call(collective, total, b);
  return (MPI_Wtime() - start) * 1e6;
}

void measure(const std::string& collective, long bytes, double budget_us) {
  const int total = static_cast<int>(static_cast<std::size_t>(bytes) / sizeof(float));
  if (total < ranks() && collective != "allreduce" && collective != "broadcast") return;
  Buffers b{std::vector<float>(static_cast<std::size_t>(total), 1.0F),
            std::vector<float>(static_cast<std::size_t>(total), 0.0F)};
  double one = 0;
  for (int i = 0; i < 3; ++i) one = timed_us(collective, total, b);
  for (int i = agreed_calls(budget_us / 5, one, 0); i > 0; --i)
    one = timed_us(collective, total, b);
  std::vector<double> local(static_cast<std::size_t>(agreed_calls(budget_us, one, 5)));
  for (double& time : local) time = timed_us(collective, total, b);
  std::vector<double> slowest(local.size());
  MPI_Reduce(local.data(), slowest.data(), static_cast<int>(local.size()), MPI_DOUBLE, MPI_MAX, 0,
             MPI_COMM_WORLD);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) return;
  std::sort(slowest.begin(), slowest.end());
  std::printf("%ld %.4f\n", bytes,
              (slowest[(slowest.size() - 1) / 2] + slowest[slowest.size() / 2]) / 2);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s COLLECTIVE MILLISECONDS [SIZE_BYTES...]\n", argv[0]);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const double budget_us = std::atof(argv[2]) * 1000;
  std::vector<long> sizes;
  for (int i = 3; i < argc; ++i) sizes.push_back(std::strtol(argv[i], nullptr, 10));
  if (sizes.empty()) {
    sizes = {4, 16, 64, 256, 1024, 4096};
    for (long size = 8192; size <= 64L << 20; size *= 2) sizes.push_back(size);
  }
  for (const long size : sizes) measure(argv[1], size, budget_us);
  MPI_Finalize();
  return 0;
}
