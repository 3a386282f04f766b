// A rank of a job of MPI that goes well or meets a fault (scripts/live_jobs.py). One program for
// all libraries:
//   rank KIND FAULTY_RANK FOLDER
// Writes FOLDER/ready.RANK when its loop has begun, and meets the fault in the step after FOLDER/go
// is there. KIND says what it does; what its rank does otherwise stands at its place below.
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { kSmall = 4096, kLarge = 1 << 20 };
static double in[kLarge], out[kLarge];
static int rank, ranks, faulty, met;
static MPI_Comm other;
static const char *kind, *folder;

static int is(const char* word) { return strcmp(kind, word) == 0; }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// As much arithmetic as takes this long on a core of one's own.
__attribute__((noinline)) static void compute(double ms) {
  static volatile double sink;
  double x = 1;
  for (long i = 0; i < (long)(ms * 100000); ++i) x = x * 1.0000001 + 1e-9;
  sink = x;
  (void)sink;
}

static int there(const char* name) {
  char path[512];
  struct stat status;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return stat(path, &status) == 0;
}

static void touch(const char* name, int number) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s.%d", folder, name, number);
  close(open(path, O_CREAT | O_WRONLY, 0644));
}

__attribute__((noinline)) static void save_checkpoint(void) {
  char path[512];
  snprintf(path, sizeof path, "%s/checkpoint", folder);
  const int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  for (int i = 0; i < 12 && write(file, in, sizeof in) > 0; ++i) compute(4);
  fsync(file);
  close(file);
}

__attribute__((noinline)) static void evaluate(double seconds) {
  for (const double end = now() + seconds; now() < end;) compute(20);
}

static void all_reduce(int count) {
  MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void* keep_lock(void* none) {
  pthread_mutex_lock(&lock);
  pause();
  return none;
}

static int open_pipe(const char* name, int flags) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return open(path, flags);
}

// What the faulty rank does in place of, or before, the step's call. Returns 1 where the call is
// done with.
static int meet_fault(void) {
  static int pipe_end = -1;
  char bytes[4096];
  if (is("stuck-pipe")) {
    pipe_end = open_pipe("pipe", O_RDWR);
    if (read(pipe_end, bytes, sizeof bytes) < 0) exit(3);
  } else if (is("slow-pipe")) {
    if (pipe_end < 0) pipe_end = open_pipe("pipe", O_RDONLY);
    if (read(pipe_end, bytes, sizeof bytes) < 0) exit(3);
  } else if (is("slow-loader")) {
    usleep(150000);
  } else if (is("more-work")) {
    compute(160);
  } else if (is("stuck-lock")) {
    pthread_t thread;
    pthread_create(&thread, NULL, keep_lock, NULL);
    sleep(1);
    pthread_mutex_lock(&lock);
  } else if (is("stuck-child")) {
    if (system("sleep 600") < 0) exit(3);
  } else if (is("stuck-sleep")) {
    sleep(600);
  } else if (is("circle")) {
    for (;;) compute(1);
  } else if (is("left-early")) {
    MPI_Finalize();
    exit(0);
  } else if (is("other-collective")) {
    MPI_Barrier(MPI_COMM_WORLD);
    return 1;
  } else if (is("fewer-batches")) {
    return 1;
  } else if (is("larger-count")) {
    MPI_Allreduce(in, out, kLarge, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return 1;
  } else if (is("other-root")) {
    MPI_Reduce(in, out, kLarge, MPI_DOUBLE, MPI_SUM, (faulty + 1) % ranks, MPI_COMM_WORLD);
    return 1;
  } else if (is("other-communicator")) {
    MPI_Allreduce(in, out, kSmall, MPI_DOUBLE, MPI_SUM, other);
    return 1;
  } else if (is("lost-message")) {
    MPI_Recv(out, 1, MPI_DOUBLE, (faulty + 1) % ranks, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  return 0;
}

// What every rank does in a step of a job that goes well.
static void step(long n) {
  if (is("fast")) {
    all_reduce(128);
  } else if (is("large")) {
    all_reduce(kLarge);
  } else if (is("long-steps")) {
    compute(400);
    all_reduce(kSmall);
  } else if (is("checkpoint")) {
    compute(10);
    if (n % 60 == 59 && rank == 0) save_checkpoint();
    all_reduce(kSmall);
  } else if (is("evaluation")) {
    compute(10);
    all_reduce(kSmall);
    if (n % 200 == 199 && rank == 0) evaluate(2);
    if (n % 200 == 199) MPI_Barrier(MPI_COMM_WORLD);
  } else if (is("long-evaluation") || is("long-checkpoint")) {
    // Once, and for longer than anybody looks.
    static int done;
    compute(10);
    if (met && !done && rank == 0) {
      for (const double end = now() + 25; now() < end;)
        if (is("long-evaluation"))
          evaluate(1);
        else
          save_checkpoint();
    }
    done = done || met;
    MPI_Barrier(MPI_COMM_WORLD);
  } else if (is("reduce")) {
    compute(10);
    MPI_Reduce(in, out, kSmall, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) compute(3);
    MPI_Barrier(MPI_COMM_WORLD);
  } else if (is("pipeline")) {
    if (rank > 0) MPI_Recv(in, kSmall, MPI_DOUBLE, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    compute(15);
    if (rank + 1 < ranks) MPI_Send(in, kSmall, MPI_DOUBLE, rank + 1, 0, MPI_COMM_WORLD);
  } else if (is("first-epoch")) {
    // Files are read and kept for the first time; the first rank makes an index of them, once.
    if (n < 300 && n % 100 == 0 && rank == 0) evaluate(1.5);
    compute(n < 300 ? 25 : 10);
    MPI_Bcast(in, kSmall, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    all_reduce(kSmall);
  } else if (is("uneven")) {
    compute(5 + 20 * (rand() / (double)RAND_MAX));
    all_reduce(kSmall);
  } else if (is("reads-files")) {
    const int file = open("/proc/self/exe", O_RDONLY);
    while (read(file, out, sizeof out) > 0) {
    }
    close(file);
    usleep(2000);
    compute(8);
    all_reduce(kSmall);
  } else if (is("overlap")) {
    MPI_Request request;
    MPI_Iallreduce(in, out, kSmall, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    compute(15);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else if (is("other-root")) {
    compute(15);
    MPI_Reduce(in, out, kLarge, MPI_DOUBLE, MPI_SUM, faulty, MPI_COMM_WORLD);
    all_reduce(kSmall);
  } else {
    compute(20);
    all_reduce(kSmall);
  }
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  kind = argv[1], faulty = atoi(argv[2]), folder = argv[3];
  if (is("two-libraries") && getenv("SECOND_LIBRARY"))
    dlopen(getenv("SECOND_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  srand((unsigned)rank + 1);
  for (long n = 0;; ++n) {
    if (n == 5) touch("ready", rank);
    // All in the same step, so that nothing but the fault sets them apart.
    int go = rank == 0 && n % 4 == 0 && there("go");
    if (!met && n % 4 == 0 && !is("fast") && !is("large"))
      MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    met = met || go;
    if (met && rank == faulty && meet_fault()) continue;
    step(n);
  }
}
