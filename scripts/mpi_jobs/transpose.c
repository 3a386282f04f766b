// A job of MPI as a spectral solver: a transpose through new buffers, then a norm.  transpose ROWS
// STEPS
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int c, char** v) {
  long n = c > 1 ? atol(v[1]) : 1100;
  int steps = c > 2 ? atoi(v[2]) : 200;
  MPI_Init(&c, &v);
  int r, p;
  MPI_Comm_rank(MPI_COMM_WORLD, &r);
  MPI_Comm_size(MPI_COMM_WORLD, &p);
  long rows = n / p, block = rows * rows;
  double* field = malloc(block * p * 8);
  for (long i = 0; i < block * p; ++i) field[i] = 1.0 / (1 + i + r);
  double t0 = 0, norm = 0;
  for (int s = 0; s < steps + 5; ++s) {
    if (s == 5) {
      MPI_Barrier(MPI_COMM_WORLD);
      t0 = MPI_Wtime();
    }
    double* a = malloc(block * p * 8);
    double* b = malloc(block * p * 8);
    for (long i = 0; i < block * p; ++i) a[i] = field[i] * 1.0001;
    MPI_Alltoall(a, block, MPI_DOUBLE, b, block, MPI_DOUBLE, MPI_COMM_WORLD);
    double mine = 0;
    for (long i = 0; i < block * p; ++i) {
      field[i] = b[i];
      mine += b[i] * b[i];
    }
    free(a);
    free(b);
    MPI_Allreduce(&mine, &norm, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  if (r == 0) printf("%.4f ms a step, check %.6g\n", (MPI_Wtime() - t0) * 1e3 / steps, norm);
  MPI_Finalize();
}
