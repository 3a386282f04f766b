/* A plain MPI program: one all-reduce of argv[1] floats after MPI_Init, nothing about any tuner. With further
 * arguments it prints these control variables as MPI_T gives them: "NAME VALUE"; page_faults is no variable but the
 * page faults that a further call costs. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static long page_faults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

static void print_page_faults(const float* in, float* out, int count, int rank) {
  const int calls = 4;
  const long before = page_faults();
  int i;
  for (i = 0; i < calls; ++i) MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("page_faults %g\n", (double)(page_faults() - before) / calls);
}

static void print_variable(const char* name) {
  int index, count, value = 0, verbosity, bind, scope, length = 0, described = 0;
  char text[4096] = "";
  MPI_Datatype type;
  MPI_T_enum items;
  MPI_T_cvar_handle handle;
  if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS) {
    printf("%s unknown\n", name);
    return;
  }
  MPI_T_cvar_get_info(index, NULL, &length, &verbosity, &type, &items, NULL, &described, &bind, &scope);
  MPI_T_cvar_handle_alloc(index, NULL, &handle, &count);
  if (type == MPI_CHAR) {
    if (count < (int)sizeof(text)) MPI_T_cvar_read(handle, text);
    printf("%s %s\n", name, text);
  } else {
    MPI_T_cvar_read(handle, &value);
    printf("%s %d\n", name, value);
  }
  MPI_T_cvar_handle_free(&handle);
}

int main(int argc, char** argv) {
  int rank, provided, i;
  const int count = argc > 1 ? atoi(argv[1]) : 1;
  float* in = calloc((size_t)count, sizeof(float));
  float* out = calloc((size_t)count, sizeof(float));
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  for (i = 2; i < argc; ++i) {
    if (strcmp(argv[i], "page_faults") == 0)
      print_page_faults(in, out, count, rank);
    else if (rank == 0)
      print_variable(argv[i]);
  }
  MPI_T_finalize();
  MPI_Finalize();
  free(in);
  free(out);
  return 0;
}
