// The loop anybody would write: MPI_Barrier, clock, k all-reduces, clock. It shares no code with
// the worker, so that agreement means something.
//   plain-mpi-loop BYTES WARMUP ITERATIONS BATCH
// Rank 0 prints the median over iterations of the slowest rank's time for one call, in us.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s BYTES WARMUP ITERATIONS BATCH\n", argv[0]);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const auto count = static_cast<int>(std::strtoul(argv[1], nullptr, 10) / sizeof(float));
  const int warmup = std::atoi(argv[2]);
  const int iterations = std::atoi(argv[3]);
  const int batch = std::atoi(argv[4]);
  std::vector<float> in(static_cast<std::size_t>(count), 1.0F);
  std::vector<float> out(static_cast<std::size_t>(count), 0.0F);
  std::vector<double> local(static_cast<std::size_t>(iterations));
  for (int i = -warmup; i < iterations; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int k = 0; k < batch; ++k)
      MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double time = (MPI_Wtime() - start) / batch * 1e6;
    if (i >= 0) local[static_cast<std::size_t>(i)] = time;
  }
  std::vector<double> slowest(local.size());
  MPI_Reduce(local.data(), slowest.data(), iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    std::sort(slowest.begin(), slowest.end());
    const std::size_t n = slowest.size();
    std::printf("%.6f\n", (slowest[(n - 1) / 2] + slowest[n / 2]) / 2);
  }
  MPI_Finalize();
  return 0;
}
