#include "orchestrator/doctor/job/call_sizes.hpp"

#include <dlfcn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <cstdlib>

using namespace dynamiccl;

namespace {

std::string own_libc() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&std::qsort), &info);
  return info.dli_fname == nullptr ? "" : info.dli_fname;
}

int equal(const void*, const void*) { return 0; }

std::optional<std::uint64_t> no_memory(std::uint64_t) { return std::nullopt; }

}  // namespace

TEST_CASE("functions are found in a library by its own symbols, and in nothing else") {
  const auto libc = own_libc();
  REQUIRE_FALSE(libc.empty());
  CHECK(place_in_file(libc, "qsort"));
  CHECK(place_in_file(libc, "qsort") != place_in_file(libc, "bsearch"));
  CHECK_FALSE(place_in_file(libc, "qsor"));
  CHECK_FALSE(place_in_file(libc, "MPI_Allreduce"));
  CHECK_FALSE(place_in_file("/proc/self/maps", "qsort"));
  CHECK_FALSE(place_in_file("/no/such/file", "qsort"));
}

TEST_CASE("a process's calls are seen with their arguments as they begin, and it goes on") {
  const auto other_place = place_in_file(own_libc(), "bsearch");
  const auto place = place_in_file(own_libc(), "qsort");
  REQUIRE((place && other_place));
  const pid_t parent = getpid();
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    std::array<double, 7> values{};
    for (;;) {
      std::qsort(values.data(), values.size(), sizeof values[0], equal);
      usleep(2000);
    }
  }
  std::string problem;
  std::vector<SeenEntry> seen;
  {
    const auto file = "/proc/" + std::to_string(pid) + "/root" + own_libc();
    EntryWatch watch(pid, file, {*other_place, *place});
    problem = watch.problem();
    for (int i = 0; problem.empty() && seen.empty() && i < 600; ++i) {
      usleep(50'000);
      seen = watch.take();
    }
  }
  int status = 0;
  CHECK(waitpid(pid, &status, WNOHANG) == 0);
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  if (!problem.empty()) SKIP(problem);
  REQUIRE_FALSE(seen.empty());
  CHECK(seen.front().function == 1);
  CHECK(seen.front().first != 0);
  CHECK(seen.front().second == 7);
  CHECK(seen.front().third == sizeof(double));
  CHECK(seen.front().fourth == reinterpret_cast<std::uintptr_t>(&equal));
}

TEST_CASE("bytes of a call are its count times its datatype's size, by each library's datatypes") {
  // What lies above 32 bits of a register is nobody's.
  const std::uint64_t junk = std::uint64_t{7} << 32;
  const SeenEntry mpich{0, 1, junk | 4096, junk | 0x4c00080b};
  CHECK(bytes_of_call("MPI_Allreduce", "MPICH", mpich, no_memory) == 32768);
  // A datatype that a program has made, and one of two values.
  CHECK_FALSE(bytes_of_call("MPI_Allreduce", "MPICH", {0, 1, 9, 0xcc000000}, no_memory));
  CHECK_FALSE(bytes_of_call("MPI_Allreduce", "MPICH", {0, 1, 9, 0x8c000000}, no_memory));
  CHECK(bytes_of_call("MPI_Bcast", "MPICH", {0, 3, 0x4c000405, 0}, no_memory) == 12);
  const auto memory = [](std::uint64_t address) -> std::optional<std::uint64_t> {
    return address == 0x7f0018 ? 8 : 4096;
  };
  CHECK(bytes_of_call("MPI_Allreduce", "Open MPI", {0, 1, 100, 0x7f0000}, memory) == 800);
  CHECK_FALSE(bytes_of_call("MPI_Allreduce", "Open MPI", {0, 1, 100, 0x7f0100}, memory));
  CHECK_FALSE(bytes_of_call("MPI_Allreduce", "Open MPI", {0, 1, 100, 0x7f0000}, no_memory));
  const std::uint64_t many = std::uint64_t{3} << 30;
  CHECK(bytes_of_call("ncclAllReduce", "NCCL", {0, 1, many, 7}, no_memory) == 4 * many);
  CHECK(bytes_of_call("ncclAllGather", "NCCL", {0, 1, 10, 9}, no_memory) == 20);
  CHECK_FALSE(bytes_of_call("ncclAllReduce", "NCCL", {0, 1, 10, 12}, no_memory));
  CHECK_FALSE(bytes_of_call("MPI_Barrier", "MPICH", mpich, no_memory));
}

TEST_CASE("a call in place names no bytes where its count is then ignored") {
  constexpr std::uint64_t kMpich = ~std::uint64_t{0};
  const auto bytes = [](const char* call, const char* library, std::uint64_t first) {
    const std::uint64_t datatype = std::string(library) == "MPICH" ? 0x4c00080b : 0x7f0000;
    return bytes_of_call(call, library, {0, 10, datatype, 0, first},
                         [](std::uint64_t) { return std::uint64_t{8}; });
  };
  for (const char* call : {"MPI_Allgather", "MPI_Iallgather", "MPI_Alltoall", "MPI_Gather"}) {
    CHECK(bytes(call, "MPICH", 0x5000) == 80);
    CHECK(bytes(call, "Open MPI", 0x5000) == 80);
    CHECK_FALSE(bytes(call, "MPICH", kMpich));
    CHECK_FALSE(bytes(call, "Open MPI", 1));
  }
  // Of others the count is the same in place; a scatter's is its root's alone.
  CHECK(bytes_of_call("MPI_Allreduce", "MPICH", {0, 1, 10, 0x4c00080b, kMpich}, no_memory) == 80);
  CHECK_FALSE(bytes("MPI_Scatter", "MPICH", 0x5000));
}

TEST_CASE("calls of all ranks are told in a line for each size") {
  std::vector<LiveRank> ranks(3);
  for (int i = 0; i < 3; ++i) {
    auto& rank = ranks[static_cast<std::size_t>(i)];
    rank.rank = i;
    rank.calls = {{"MPI_Allreduce", 32768, i == 1 ? 25U : 24U, 0.6}};
  }
  ranks[0].calls.front().seconds = 0.7;
  ranks[2].calls.push_back({"MPI_Alltoall", 1024, 2, 0.6});
  ranks[2].calls.push_back({"MPI_Bcast", 0, 1, 0.6});
  CHECK(lines_of_calls(ranks) ==
        std::vector<std::string>{
            "ranks 0, 1 and 2 began MPI_Allreduce of 32 KiB 24 to 25 times in 0.7 s",
            "rank 2 began MPI_Alltoall of 1 KiB a part 2 times in 0.6 s",
            "rank 2 began MPI_Bcast 1 time in 0.6 s"});
  CHECK(lines_of_calls({}).empty());
}
