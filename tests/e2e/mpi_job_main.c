// A job of MPI as anybody writes it: steps that take their buffers anew, sum them up and tell each
// other whether to go on.
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const int steps = argc > 1 ? atoi(argv[1]) : 1000000;
  const int count = argc > 2 ? atoi(argv[2]) : 1 << 20;
  MPI_Init(&argc, &argv);
  for (int step = 0; step < steps; ++step) {
    float* gradients = malloc((size_t)count * sizeof(float));
    float* sums = malloc((size_t)count * sizeof(float));
    for (int i = 0; i < count; ++i) gradients[i] = (float)(i % 7 + step);
    MPI_Allreduce(gradients, sums, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    int go_on = sums[0] >= 0;
    MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free(gradients);
    free(sums);
    if (!go_on) break;
    usleep(2000);
  }
  MPI_Finalize();
  return 0;
}
