// A job of MPI whose step makes its buffers anew: an all-reduce and an all-gather.  new_buffers
// DOUBLES STEPS
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int c, char** v) {
  long n = c > 1 ? atol(v[1]) : 700000;
  int steps = c > 2 ? atoi(v[2]) : 200;
  MPI_Init(&c, &v);
  int r, p;
  MPI_Comm_rank(MPI_COMM_WORLD, &r);
  MPI_Comm_size(MPI_COMM_WORLD, &p);
  double t0 = 0, total = 0;
  for (int s = 0; s < steps + 5; ++s) {
    if (s == 5) {
      MPI_Barrier(MPI_COMM_WORLD);
      t0 = MPI_Wtime();
    }
    double* g = malloc(n * 8);
    double* o = malloc(n * 8);
    for (long i = 0; i < n; ++i) g[i] = i + s;
    MPI_Allreduce(g, o, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    total += o[n / 2];
    double* all = malloc(n * 8 * p);
    MPI_Allgather(g, n, MPI_DOUBLE, all, n, MPI_DOUBLE, MPI_COMM_WORLD);
    total += all[n * p - 1];
    free(all);
    free(o);
    free(g);
  }
  if (r == 0) printf("%.4f ms a step, check %.6g\n", (MPI_Wtime() - t0) * 1e3 / steps, total);
  MPI_Finalize();
}
