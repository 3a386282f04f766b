// The folder that ranks meet in, and what is kept out of it.
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>

#include "tests/tuner/transport/in_child.hpp"
#include "tests/tuner/transport/loaded_net.hpp"
#include "tuner/nccl/nccl_tuner_abi.hpp"
#include "tuner/transport/control_group.hpp"
#include "tuner/transport/ring.hpp"
#include "tuner/transport/settings.hpp"
#include "tuner/transport/shared_folder.hpp"

using Catch::Matchers::ContainsSubstring;
using dynamiccl::FileDescriptor;
using dynamiccl::testing::in_child;
using dynamiccl::testing::TestFolder;
using namespace dynamiccl::transport;

namespace {

int files_in(const std::string& path) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

/// Channels that the tuner of the plugin allows an all-reduce of 64 KiB, 8 MiB and 64 MiB among two
/// ranks; 0: NCCL's own number. `net`: NCCL was offered the plugin's network before.
std::string channel_caps(bool net, std::size_t nodes) {
  const std::string library = dynamiccl::testing::plugin_library();
  if (net) static_cast<void>(dynamiccl::testing::LoadedNet(library, 11).init(nullptr));
  namespace abi = dynamiccl::nccl_tuner;
  const auto* tuner = static_cast<const abi::PluginV5*>(
      dlsym(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL), "ncclTunerPlugin_v5"));
  void* context = nullptr;
  static_cast<void>(tuner->init(&context, 1, 2, nodes, nullptr, nullptr, nullptr));
  std::string caps;
  for (const std::size_t bytes :
       {std::size_t{64} << 10, std::size_t{8} << 20, std::size_t{64} << 20}) {
    std::array<float, 7 * 3> costs{};
    int channels = 0;
    static_cast<void>(tuner->get_coll_info(
        context, 4, bytes, 1, reinterpret_cast<float**>(costs.data()), 7, 3, 0, &channels));
    caps += std::to_string(channels) + " ";
  }
  static_cast<void>(tuner->finalize(context));
  return caps;
}

}  // namespace

TEST_CASE("Small messages through the folder get few channels without a table") {
  const TestFolder folder;
  const auto caps = [&](bool net, std::size_t nodes, const char* wanted) {
    return in_child([&] {
      setenv("DYNAMICCL_SHARED_FOLDER", folder.path().c_str(), 1);
      if (wanted != nullptr) setenv("NCCL_NET", wanted, 1);
      return channel_caps(net, nodes);
    });
  };
  CHECK(caps(true, 2, nullptr) == "2 8 0 ");
  CHECK(caps(true, 2, "dynamiccl") == "2 8 0 ");
  // Both ranks on what NCCL takes for one host, another network, or ours never offered.
  CHECK(caps(true, 1, nullptr) == "0 0 0 ");
  CHECK(caps(true, 2, "Socket") == "0 0 0 ");
  CHECK(caps(false, 2, nullptr) == "0 0 0 ");
}

TEST_CASE(
    "Ranks on one cpu set of their own use most of it, sharing ranks a part, two cores none") {
  CHECK(threads_for(32, 2) == 12);
  CHECK(threads_for(128, 8) == 12);
  CHECK(threads_for(8, 2) == 3);
  CHECK(threads_for(8, 1) == 6);
  CHECK(threads_for(4, 8) == 1);
  CHECK(threads_for(2, 1) == 0);
}

TEST_CASE("Wrong settings are named with what is allowed") {
  const auto problem_of = [](const char* name, const char* value) {
    return in_child([&] {
      setenv(name, value, 1);
      std::string problem;
      static_cast<void>(settings_from_environment(problem));
      return problem;
    });
  };
  CHECK_THAT(problem_of("DYNAMICCL_TRANSPORT_THREADS", "many"), ContainsSubstring("0 to 64"));
  CHECK_THAT(problem_of("DYNAMICCL_TRANSPORT_THREADS", "-1"), ContainsSubstring("0 to 64"));
  CHECK_THAT(problem_of("DYNAMICCL_TRANSPORT_DEVICE", "yes"), ContainsSubstring("0 to 1"));
  CHECK_THAT(problem_of("DYNAMICCL_TRANSPORT_CELLS", "12"), ContainsSubstring("power of two"));
  CHECK(problem_of("DYNAMICCL_TRANSPORT_THREADS", "5").empty());
  std::string first;
  static_cast<void>(settings_from(
      [](const char* name) { return name == std::string("NCCL_SOCKET_IFNAME") ? "" : "none"; },
      first));
  CHECK(first == "DYNAMICCL_TRANSPORT_THREADS=none is not a number from 0 to 64");
}

TEST_CASE("A folder that others may change, or that is none, is refused with what to do") {
  const TestFolder folder;
  std::string problem;
  CHECK(SharedFolder::open(folder.path() + "/none", problem) == nullptr);
  CHECK_THAT(problem, ContainsSubstring("DYNAMICCL_SHARED_FOLDER"));
  REQUIRE(chmod(folder.path().c_str(), 0777) == 0);
  CHECK(SharedFolder::open(folder.path(), problem) == nullptr);
  CHECK_THAT(problem, ContainsSubstring("chmod 700"));
  // In a sticky folder, as /dev/shm is, nobody renames what is another's.
  REQUIRE(chmod(folder.path().c_str(), 01777) == 0);
  CHECK(SharedFolder::open(folder.path(), problem) != nullptr);
  REQUIRE(chmod(folder.path().c_str(), 0700) == 0);
  CHECK(SharedFolder::open(folder.path(), problem) != nullptr);
  if (geteuid() == 0) {
    REQUIRE(chown(folder.path().c_str(), 12345, 12345) == 0);
    CHECK(SharedFolder::open(folder.path(), problem) == nullptr);
    CHECK_THAT(problem, ContainsSubstring("12345") && ContainsSubstring("chown 0 "));
  }
}

TEST_CASE("A folder is the same by whatever path, however long") {
  const TestFolder folder;
  std::string deep = folder.path();
  for (int i = 0; i < 10; ++i) deep += "/a-part-of-a-long-path";
  std::filesystem::create_directories(deep);
  std::filesystem::create_directory_symlink(deep, folder.path() + "/short");
  std::string problem;
  const auto one = SharedFolder::open(deep, problem);
  const auto other = SharedFolder::open(folder.path() + "/short", problem);
  REQUIRE(one != nullptr);
  REQUIRE(other != nullptr);
  CHECK(one->identity() == other->identity());
  CHECK_FALSE(one->identity() == SharedFolder::open(folder.path(), problem)->identity());
  const FileDescriptor listener = one->listen(7, problem);
  INFO(problem);
  REQUIRE(listener.valid());
  int error = 0;
  CHECK(other->connect(7, error).valid());
  struct stat status {};
  REQUIRE(stat((deep + "/dynamiccl-0000000000000007.sock").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("Files of ended processes are swept, those that are listened at and other files stay") {
  const TestFolder folder;
  std::string problem;
  const auto open = SharedFolder::open(folder.path(), problem);
  REQUIRE(open != nullptr);
  const FileDescriptor alive = open->listen(1, problem);
  { const FileDescriptor dead = open->listen(2, problem); }
  ::close(::open((folder.path() + "/dynamiccl-0000000000000003.sock").c_str(), O_CREAT | O_WRONLY,
                 0600));
  CHECK(sweep_folder(folder.path(), std::chrono::hours(1)) == 0);
  CHECK(sweep_folder(folder.path(), std::chrono::seconds(0)) == 1);
  CHECK(files_in(folder.path()) == 2);
  CHECK(sweep_folder(folder.path() + "/none", std::chrono::seconds(0)) == 0);
}

TEST_CASE("A full folder is told before anything is sent") {
  if (geteuid() != 0) SKIP("mounting a small file system needs root");
  const TestFolder folder;
  const std::string found = in_child([&]() -> std::string {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "nr_inodes=1,mode=700") != 0)
      return "no mounts";
    std::string problem;
    const auto open = SharedFolder::open(folder.path(), problem);
    if (open != nullptr) static_cast<void>(open->listen(1, problem).valid());
    return problem;
  });
  if (found == "no mounts") SKIP("no mounts here");
  CHECK_THAT(found, ContainsSubstring("No space left"));
  CHECK_THAT(found, ContainsSubstring("room for a file"));
}

TEST_CASE("A ring is taken only whole, sealed and of the announced size") {
  std::string problem;
  const auto made = Ring::make(4, 4096, problem);
  REQUIRE(made != nullptr);
  const auto copy = [&] { return FileDescriptor(dup(made->file())); };
  CHECK(Ring::map(copy(), 4, 4096, problem) != nullptr);
  CHECK(Ring::map(copy(), 8, 4096, problem) == nullptr);
  CHECK(Ring::map(copy(), 3, 4096, problem) == nullptr);
  CHECK(Ring::map(copy(), 4, 0, problem) == nullptr);
  CHECK(Ring::map(copy(), 4, std::size_t{1} << 40, problem) == nullptr);
  CHECK(Ring::map(FileDescriptor(), 4, 4096, problem) == nullptr);
  // Its owner could cut it short later: a bus error here.
  FileDescriptor open(memfd_create("open", MFD_CLOEXEC));
  REQUIRE(ftruncate(open.get(), static_cast<off_t>(made->bytes())) == 0);
  CHECK(Ring::map(std::move(open), 4, 4096, problem) == nullptr);
  CHECK(ftruncate(made->file(), 4096) != 0);
}

TEST_CASE("No memory for a ring is an error before the first byte") {
  // A limit on file sizes holds for memory, too, and its signal would end the program.
  const std::string found = in_child([]() -> std::string {
    const rlimit limit{65536, 65536};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return "no limit";
    std::string problem;
    if (Ring::make(16, 65536, problem) != nullptr) return "made";
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    return problem + (sigismember(&blocked, SIGXFSZ) == 1 ? " still blocked" : "");
  });
  CHECK_THAT(found, ContainsSubstring("1032 KiB") && ContainsSubstring("File too large") &&
                        ContainsSubstring("ulimit -f unlimited") && !ContainsSubstring("blocked"));
}

namespace {

/// Puts files of a made-up machine below a folder.
class Machine {
 public:
  explicit Machine(const TestFolder& root) : root_(root.path()) {}
  void put(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = root_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }

 private:
  std::string root_;
};

}  // namespace

TEST_CASE("What control groups have left is a limit, less what is used for good, and swap space") {
  struct sysinfo info {};
  REQUIRE(sysinfo(&info) == 0);
  const std::uint64_t swap = std::uint64_t{info.freeswap} * info.mem_unit;
  const TestFolder root;
  const Machine machine(root);
  CHECK_FALSE(memory_room(root.path()));
  const std::string v1 = "sys/fs/cgroup/memory/";
  machine.put(v1 + "memory.limit_in_bytes", "9223372036854771712");
  machine.put(v1 + "memory.usage_in_bytes", "30000000");
  CHECK_FALSE(memory_room(root.path()));
  machine.put(v1 + "memory.limit_in_bytes", "40000000");
  machine.put(v1 + "memory.memsw.limit_in_bytes", "40000000");
  machine.put(v1 + "memory.stat", "inactive_file 1\ntotal_inactive_file 4000000\ntotal_rss 7");
  CHECK(memory_room(root.path()) == 14'000'000U);
  machine.put(v1 + "memory.memsw.limit_in_bytes", "9223372036854771712");
  CHECK(memory_room(root.path()) == 14'000'000U + swap);
  machine.put(v1 + "memory.memsw.limit_in_bytes", "50000000");
  machine.put(v1 + "memory.memsw.usage_in_bytes", "45000000");
  CHECK(memory_room(root.path()) == std::min<std::uint64_t>(14'000'000U + swap, 9'000'000U));
  machine.put(v1 + "memory.memsw.limit_in_bytes", "9223372036854771712");
  // Groups below the mounted one, as under Slurm: the least room of all levels.
  machine.put("proc/self/cgroup", "9:cpu,cpuacct:/none\n4:memory:/slurm/job_7/step\n0::/init");
  machine.put(v1 + "slurm/job_7/memory.limit_in_bytes", "5000000");
  machine.put(v1 + "slurm/job_7/memory.memsw.limit_in_bytes", "5000000");
  machine.put(v1 + "slurm/job_7/memory.usage_in_bytes", "1000000");
  machine.put(v1 + "slurm/job_7/step/memory.limit_in_bytes", "9223372036854771712");
  machine.put(v1 + "slurm/job_7/step/memory.usage_in_bytes", "1000000");
  CHECK(memory_room(root.path()) == 4'000'000U);
  // Version 2, too.
  const std::string v2 = "sys/fs/cgroup/init/";
  machine.put(v2 + "memory.max", "max");
  machine.put(v2 + "memory.current", "2500000");
  CHECK(memory_room(root.path()) == 4'000'000U);
  machine.put(v2 + "memory.max", "4000000");
  machine.put(v2 + "memory.swap.max", "0");
  machine.put(v2 + "memory.stat",
              "anon 9\nactive_file 100000\ninactive_file 200000\nslab_reclaimable 50");
  CHECK(memory_room(root.path()) == 1'800'050U);
  machine.put(v2 + "memory.current", "90000000");
  CHECK(memory_room(root.path()) == 0U);
}

TEST_CASE("The least CPU quota of all control groups counts") {
  const TestFolder root;
  const Machine machine(root);
  CHECK(quota_cores(root.path()) == 0);
  machine.put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  machine.put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  CHECK(quota_cores(root.path()) == 0);
  machine.put("proc/self/cgroup", "9:cpu,cpuacct:/pods/p1\n0::/u");
  machine.put("sys/fs/cgroup/cpu/pods/cpu.cfs_quota_us", "650000");
  machine.put("sys/fs/cgroup/cpu/pods/cpu.cfs_period_us", "100000");
  CHECK(quota_cores(root.path()) == 6);
  machine.put("sys/fs/cgroup/cpu.max", "max 100000");
  CHECK(quota_cores(root.path()) == 6);
  machine.put("sys/fs/cgroup/u/cpu.max", "50000 100000");
  CHECK(quota_cores(root.path()) == 1);
}
