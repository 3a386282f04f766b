// libdynamiccl-mpi-watch.so: preloaded (LD_PRELOAD) into the ranks of a job, it tells what they
// call of MPI and how long they stay inside, in the files that the NCCL plugin tells its calls in.
// It stands where a PMPI tool stands, in front of MPI's own functions, which it then calls.
//   DYNAMICCL_MPI_FOLDER  where it writes; unset: nothing is recorded
//
// One library for Open MPI and for MPICH and its relatives: a handle (communicator, datatype,
// operation) is a pointer in one and an int in the other, and it is handed on as it came, in the
// whole register or place on the stack that the platform's calling convention has for either.
// Nothing of MPI is linked: its functions are looked up where the program has loaded it.
#include <dlfcn.h>
#include <link.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <mutex>
#include <string>

#include "plugin/agreement/call_stream.hpp"
#include "plugin/tuner/rank_facts.hpp"

#define DYN_EXPORT __attribute__((visibility("default")))

namespace dynamiccl {
namespace {

using Handle = void*;
using Large = long long;  ///< MPI_Count of the functions that end in _c

constexpr std::uint8_t kBroadcast = 0;
constexpr std::uint8_t kReduce = 1;
constexpr std::uint8_t kAllgather = 2;
constexpr std::uint8_t kReduceScatter = 3;
constexpr std::uint8_t kAllreduce = 4;

std::int64_t monotonic_now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// MPI's library where a program has loaded it for itself alone, as interpreters do.
void* loaded_mpi() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        const char* name =
            info->dlpi_name == nullptr ? nullptr : std::strrchr(info->dlpi_name, '/');
        const bool mpi = name != nullptr && (std::strncmp(name, "/libmpi.so", 10) == 0 ||
                                             std::strncmp(name, "/libmpich.so", 12) == 0);
        if (mpi) *static_cast<std::string*>(found) = info->dlpi_name;
        return mpi ? 1 : 0;
      },
      &path);
  return path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
}

void* find_function(const char* name) {
  // Whoever else is in front of MPI has his turn.
  if (void* next = dlsym(RTLD_NEXT, name); next != nullptr) return next;
  void* library = loaded_mpi();
  return library == nullptr ? nullptr : dlsym(library, name);
}

template <class Function>
Function* function_of(const char* name) {
  return reinterpret_cast<Function*>(find_function(name));
}

/// In Open MPI the address of an object, in MPICH and its relatives a number.
Handle world() {
  static Handle const kWorld = [] {
    constexpr std::uintptr_t kMpichWorld = 0x44000000;
    // A program that was linked to it has a copy of its own, which is the one in use.
    void* own = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
    if (own == nullptr) own = find_function("ompi_mpi_comm_world");
    return own != nullptr ? own : reinterpret_cast<Handle>(kMpichWorld);
  }();
  return kWorld;
}

std::uint64_t size_of(Handle type) {
  static auto* const kSize = function_of<int(Handle, int*)>("PMPI_Type_size");
  int bytes = 0;
  if (kSize != nullptr) kSize(type, &bytes);
  return bytes > 0 ? static_cast<std::uint64_t>(bytes) : 0;
}

std::uint64_t ranks_of(Handle communicator) {
  static auto* const kSize = function_of<int(Handle, int*)>("PMPI_Comm_size");
  int ranks = 0;
  if (kSize != nullptr) kSize(communicator, &ranks);
  return ranks > 0 ? static_cast<std::uint64_t>(ranks) : 1;
}

/// Fortran's datatypes are numbers of their own.
std::uint64_t fortran_size_of(int* type) {
  static auto* const kSize = function_of<void(int*, int*, int*)>("pmpi_type_size_");
  int bytes = 0;
  int error = 0;
  if (kSize != nullptr) kSize(type, &bytes, &error);
  return bytes > 0 ? static_cast<std::uint64_t>(bytes) : 0;
}

std::uint64_t fortran_ranks_of(int* communicator) {
  static auto* const kSize = function_of<void(int*, int*, int*)>("pmpi_comm_size_");
  int ranks = 0;
  int error = 0;
  if (kSize != nullptr) kSize(communicator, &ranks, &error);
  return ranks > 0 ? static_cast<std::uint64_t>(ranks) : 1;
}

/// Parts that differ from call to call are one kind of call: their sum's power of two.
template <class Count>
std::uint64_t sum_of(const Count* counts, Handle type, Handle communicator) {
  std::uint64_t sum = 0;
  if (counts == nullptr) return 0;
  for (std::uint64_t i = 0; i < ranks_of(communicator); ++i)
    sum += counts[i] > 0 ? static_cast<std::uint64_t>(counts[i]) : 0;
  return std::bit_floor(sum * size_of(type));
}

template <class Count>
std::uint64_t times(Count count, std::uint64_t bytes) {
  return count > 0 ? static_cast<std::uint64_t>(count) * bytes : 0;
}

std::string library_version() {
  constexpr std::size_t kMost = 8192;  // MPI_MAX_LIBRARY_VERSION_STRING of MPICH
  std::array<char, kMost> text{};
  int length = 0;
  auto* const version = function_of<int(char*, int*)>("PMPI_Get_library_version");
  if (version == nullptr || version(text.data(), &length) != 0) return "";
  return std::string(text.data()).substr(0, 256);
}

int local_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (const char* text = std::getenv(name); text != nullptr) return std::atoi(text);
  return 0;
}

/// Where this process tells; nullptr: nowhere. Made at the first call, when MPI has begun.
CallStream* stream() {
  static CallStream* const kStream = []() -> CallStream* {
    const char* folder = std::getenv("DYNAMICCL_MPI_FOLDER");
    auto* const rank_of = function_of<int(Handle, int*)>("PMPI_Comm_rank");
    if (folder == nullptr || *folder == '\0' || rank_of == nullptr) return nullptr;
    int rank = 0;
    if (rank_of(world(), &rank) != 0) return nullptr;
    const int ranks = static_cast<int>(ranks_of(world()));
    const int local = local_ranks();
    constexpr std::uint64_t kWorldOfRanks = 1;
    write_rank_facts(folder, kWorldOfRanks, rank, library_version());
    std::string problem;
    return CallStream::make(folder,
                            {kWorldOfRanks, rank, ranks,
                             local > 0 ? (ranks + local - 1) / local : 1, process_key()},
                            problem)
        .release();
  }();
  return kStream;
}

std::mutex g_mutex;
thread_local int g_depth = 0;  // MPI's own functions, Fortran's first of all, call each other

/// One call from its beginning to the end of its scope.
class Told {
 public:
  template <class Bytes>
  Told(std::uint8_t function, Bytes&& bytes) {
    if (g_depth++ > 0 || stream() == nullptr) return;
    record_.function = function;
    record_.bytes = bytes();
    record_.host_ns = monotonic_now_ns();
  }
  ~Told() {
    if (--g_depth > 0 || record_.host_ns == 0) return;
    const std::int64_t inside = monotonic_now_ns() - record_.host_ns;
    constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
    record_.device_ns = static_cast<std::uint32_t>(inside < kMost ? inside : kMost);
    const std::lock_guard lock(g_mutex);
    stream()->append(record_);
    // Nobody is asked about these calls, so that none was forgotten.
    stream()->note_decided();
  }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

 private:
  CallRecord record_;
};

}  // namespace
}  // namespace dynamiccl

using namespace dynamiccl;

// MPI's order of parameters, in C and in Fortran; names as the standard has them.
#define TOLD(name, kind, bytes, parameters, arguments)               \
  extern "C" DYN_EXPORT int name parameters {                        \
    static auto* const next = function_of<int parameters>(#name);    \
    const Told told(kind, [&]() -> std::uint64_t { return bytes; }); \
    return next == nullptr ? 1 : next arguments;                     \
  }
#define TOLD_FORTRAN(name, kind, bytes, parameters, arguments)       \
  extern "C" DYN_EXPORT void name parameters {                       \
    static auto* const next = function_of<void parameters>(#name);   \
    const Told told(kind, [&]() -> std::uint64_t { return bytes; }); \
    if (next != nullptr) next arguments;                             \
  }
/// Each call in its forms: counts of 32 and of 64 bits.
#define TOLD_ALL(name, kind, bytes, head, count, tail, arguments)               \
  TOLD(name, kind, bytes, (DYN_JOIN head, int count, DYN_JOIN tail), arguments) \
  TOLD(name##_c, kind, bytes, (DYN_JOIN head, Large count, DYN_JOIN tail), arguments)
#define DYN_JOIN(...) __VA_ARGS__

// NOLINTBEGIN(bugprone-easily-swappable-parameters)
TOLD_ALL(MPI_Allreduce, kAllreduce, times(n, size_of(t)), (const void* s, void* r), n,
         (Handle t, Handle op, Handle c), (s, r, n, t, op, c))
TOLD_ALL(MPI_Iallreduce, kAllreduce, times(n, size_of(t)), (const void* s, void* r), n,
         (Handle t, Handle op, Handle c, void* q), (s, r, n, t, op, c, q))
TOLD_ALL(MPI_Bcast, kBroadcast, times(n, size_of(t)), (void* b), n, (Handle t, int root, Handle c),
         (b, n, t, root, c))
TOLD_ALL(MPI_Ibcast, kBroadcast, times(n, size_of(t)), (void* b), n,
         (Handle t, int root, Handle c, void* q), (b, n, t, root, c, q))
TOLD_ALL(MPI_Reduce, kReduce, times(n, size_of(t)), (const void* s, void* r), n,
         (Handle t, Handle op, int root, Handle c), (s, r, n, t, op, root, c))
TOLD_ALL(MPI_Ireduce, kReduce, times(n, size_of(t)), (const void* s, void* r), n,
         (Handle t, Handle op, int root, Handle c, void* q), (s, r, n, t, op, root, c, q))
TOLD_ALL(MPI_Reduce_scatter_block, kReduceScatter, times(n, size_of(t)) * ranks_of(c),
         (const void* s, void* r), n, (Handle t, Handle op, Handle c), (s, r, n, t, op, c))
TOLD(MPI_Reduce_scatter, kReduceScatter, sum_of(n, t, c),
     (const void* s, void* r, const int* n, Handle t, Handle op, Handle c), (s, r, n, t, op, c))
TOLD_ALL(MPI_Scan, told_scan, times(n, size_of(t)), (const void* s, void* r), n,
         (Handle t, Handle op, Handle c), (s, r, n, t, op, c))
TOLD_ALL(MPI_Exscan, told_scan, times(n, size_of(t)), (const void* s, void* r), n,
         (Handle t, Handle op, Handle c), (s, r, n, t, op, c))

#define TOLD_PARTS(name, kind, bytes, more, argument, last)                             \
  TOLD(name, kind, bytes,                                                               \
       (const void* s, int sn, Handle st, void* r, int rn, Handle rt DYN_JOIN more,     \
        Handle c DYN_JOIN last),                                                        \
       (s, sn, st, r, rn, rt DYN_JOIN argument))                                        \
  TOLD(name##_c, kind, bytes,                                                           \
       (const void* s, Large sn, Handle st, void* r, Large rn, Handle rt DYN_JOIN more, \
        Handle c DYN_JOIN last),                                                        \
       (s, sn, st, r, rn, rt DYN_JOIN argument))
#define DYN_REQUEST (, void* q)
TOLD_PARTS(MPI_Allgather, kAllgather, times(rn, size_of(rt)) * ranks_of(c), (), (, c), ())
TOLD_PARTS(MPI_Iallgather, kAllgather, times(rn, size_of(rt)) * ranks_of(c), (), (, c, q),
           DYN_REQUEST)
TOLD_PARTS(MPI_Alltoall, told_alltoall, times(rn, size_of(rt)) * ranks_of(c), (), (, c), ())
TOLD_PARTS(MPI_Ialltoall, told_alltoall, times(rn, size_of(rt)) * ranks_of(c), (), (, c, q),
           DYN_REQUEST)
TOLD_PARTS(MPI_Gather, told_gather, times(sn, size_of(st)), (, int root), (, root, c), ())
TOLD_PARTS(MPI_Igather, told_gather, times(sn, size_of(st)), (, int root), (, root, c, q),
           DYN_REQUEST)
TOLD_PARTS(MPI_Scatter, told_scatter, times(rn, size_of(rt)), (, int root), (, root, c), ())
TOLD_PARTS(MPI_Iscatter, told_scatter, times(rn, size_of(rt)), (, int root), (, root, c, q),
           DYN_REQUEST)
TOLD(MPI_Allgatherv, kAllgather, sum_of(rn, rt, c),
     (const void* s, int sn, Handle st, void* r, const int* rn, const int* rd, Handle rt, Handle c),
     (s, sn, st, r, rn, rd, rt, c))
TOLD(MPI_Alltoallv, told_alltoall, sum_of(rn, rt, c),
     (const void* s, const int* sn, const int* sd, Handle st, void* r, const int* rn, const int* rd,
      Handle rt, Handle c),
     (s, sn, sd, st, r, rn, rd, rt, c))
TOLD(MPI_Barrier, told_barrier, 0, (Handle c), (c))
TOLD(MPI_Ibarrier, told_barrier, 0, (Handle c, void* q), (c, q))

TOLD_ALL(MPI_Send, told_message, times(n, size_of(t)), (const void* b), n,
         (Handle t, int to, int tag, Handle c), (b, n, t, to, tag, c))
TOLD_ALL(MPI_Ssend, told_message, times(n, size_of(t)), (const void* b), n,
         (Handle t, int to, int tag, Handle c), (b, n, t, to, tag, c))
TOLD_ALL(MPI_Isend, told_message, times(n, size_of(t)), (const void* b), n,
         (Handle t, int to, int tag, Handle c, void* q), (b, n, t, to, tag, c, q))
TOLD_ALL(MPI_Recv, told_message, times(n, size_of(t)), (void* b), n,
         (Handle t, int from, int tag, Handle c, void* status), (b, n, t, from, tag, c, status))
TOLD_ALL(MPI_Irecv, told_message, times(n, size_of(t)), (void* b), n,
         (Handle t, int from, int tag, Handle c, void* q), (b, n, t, from, tag, c, q))
TOLD(MPI_Sendrecv, told_message, times(sn, size_of(st)),
     (const void* s, int sn, Handle st, int to, int stag, void* r, int rn, Handle rt, int from,
      int rtag, Handle c, void* status),
     (s, sn, st, to, stag, r, rn, rt, from, rtag, c, status))
// What was prepared once is started again and again.
TOLD(MPI_Start, told_message, 0, (void* q), (q))
TOLD(MPI_Startall, told_message, static_cast<std::uint64_t>(n > 0 ? n : 0), (int n, void* q),
     (n, q))

// Open MPI's Fortran functions call its inner C functions; MPICH's call those above, once more.
TOLD_FORTRAN(mpi_allreduce_, kAllreduce, times(*n, fortran_size_of(t)),
             (void* s, void* r, int* n, int* t, int* op, int* c, int* e), (s, r, n, t, op, c, e))
TOLD_FORTRAN(mpi_iallreduce_, kAllreduce, times(*n, fortran_size_of(t)),
             (void* s, void* r, int* n, int* t, int* op, int* c, int* q, int* e),
             (s, r, n, t, op, c, q, e))
TOLD_FORTRAN(mpi_bcast_, kBroadcast, times(*n, fortran_size_of(t)),
             (void* b, int* n, int* t, int* root, int* c, int* e), (b, n, t, root, c, e))
TOLD_FORTRAN(mpi_reduce_, kReduce, times(*n, fortran_size_of(t)),
             (void* s, void* r, int* n, int* t, int* op, int* root, int* c, int* e),
             (s, r, n, t, op, root, c, e))
TOLD_FORTRAN(mpi_allgather_, kAllgather, times(*rn, fortran_size_of(rt)) * fortran_ranks_of(c),
             (void* s, int* sn, int* st, void* r, int* rn, int* rt, int* c, int* e),
             (s, sn, st, r, rn, rt, c, e))
TOLD_FORTRAN(mpi_alltoall_, told_alltoall, times(*rn, fortran_size_of(rt)) * fortran_ranks_of(c),
             (void* s, int* sn, int* st, void* r, int* rn, int* rt, int* c, int* e),
             (s, sn, st, r, rn, rt, c, e))
TOLD_FORTRAN(mpi_barrier_, told_barrier, 0, (int* c, int* e), (c, e))
TOLD_FORTRAN(mpi_send_, told_message, times(*n, fortran_size_of(t)),
             (void* b, int* n, int* t, int* to, int* tag, int* c, int* e), (b, n, t, to, tag, c, e))
TOLD_FORTRAN(mpi_isend_, told_message, times(*n, fortran_size_of(t)),
             (void* b, int* n, int* t, int* to, int* tag, int* c, int* q, int* e),
             (b, n, t, to, tag, c, q, e))
TOLD_FORTRAN(mpi_recv_, told_message, times(*n, fortran_size_of(t)),
             (void* b, int* n, int* t, int* from, int* tag, int* c, int* status, int* e),
             (b, n, t, from, tag, c, status, e))
TOLD_FORTRAN(mpi_irecv_, told_message, times(*n, fortran_size_of(t)),
             (void* b, int* n, int* t, int* from, int* tag, int* c, int* q, int* e),
             (b, n, t, from, tag, c, q, e))
TOLD_FORTRAN(mpi_sendrecv_, told_message, times(*sn, fortran_size_of(st)),
             (void* s, int* sn, int* st, int* to, int* stag, void* r, int* rn, int* rt, int* from,
              int* rtag, int* c, int* status, int* e),
             (s, sn, st, to, stag, r, rn, rt, from, rtag, c, status, e))
// NOLINTEND(bugprone-easily-swappable-parameters)
