// The plugin as NCCL loads it: by dlopen, through its exported structures, with NCCL's flat tables.
#include <dlfcn.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "plugin/agreement/call_table.hpp"
#include "plugin/agreement/leader.hpp"
#include "plugin/tuner/nccl_tuner_abi.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

constexpr int kAllReduce = 4;
constexpr std::size_t kMiB = std::size_t{1} << 20;

/// The two symbols that the tests call; the profiler's ABI is tests/plugin/profiler's.
std::string g_plugin = DYNAMICCL_PLUGIN_LIBRARY;
struct Library {
  void* handle = dlopen(g_plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  template <class T>
  const T* plugin(const char* name) const {
    return static_cast<const T*>(dlsym(handle, name));
  }
  const nccl_tuner::PluginV5* v5() const {
    return plugin<nccl_tuner::PluginV5>("ncclTunerPlugin_v5");
  }
};

std::string g_said;
void log_text(int level, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
              const char* format, ...) {
  std::array<char, 1024> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  g_said += std::to_string(level) + ": " + text.data() + "\n";
}

/// NCCL's table: flat, with guards behind it; tree and ring exist, all else is ruled out.
struct Costs {
  std::array<float, 7 * 3 + 4> cells{};
  Costs() {
    cells.fill(nccl_tuner::kIgnored);
    for (int i = 0; i < 6; ++i) cells[static_cast<std::size_t>(i)] = 10.0F + static_cast<float>(i);
  }
  float** as_nccl_passes_it() { return reinterpret_cast<float**>(cells.data()); }
  float& at(int algorithm, int protocol) {
    return cells[static_cast<std::size_t>(algorithm) * 3 + static_cast<std::size_t>(protocol)];
  }
  bool operator==(const Costs&) const = default;
};

struct Folder {
  std::string path = fs::temp_directory_path() / "nccl-plugin-XXXXXX";
  bool sets = true;  ///< the plugin's variables, until it goes
  explicit Folder(bool sets_variables = true) : sets(sets_variables) {
    REQUIRE(mkdtemp(path.data()) != nullptr);
  }
  ~Folder() {
    fs::remove_all(path);
    if (sets) unsetenv("DYNAMICCL_TUNER_TABLE");
    if (sets) unsetenv("DYNAMICCL_TUNER_FOLDER");
  }
  void table(const std::string& text) const {
    std::ofstream(path + "/table") << text;
    setenv("DYNAMICCL_TUNER_TABLE", (path + "/table").c_str(), 1);
  }
  void share() const { setenv("DYNAMICCL_TUNER_FOLDER", path.c_str(), 1); }
};

std::string small_and_large() {
  return to_text({{0, 0, kAllReduce, 0, 19, {CallCell::kAny, CallCell::kAny, 2, 0}},
                  {0, 0, kAllReduce, 20, 30, {1, 2, 16, 0}},
                  {0, 0, 0, 0, 47, {4, 2, 8, 0}}});
}

struct Communicator {
  const nccl_tuner::PluginV5* plugin;
  void* context = nullptr;
  Communicator(const nccl_tuner::PluginV5* tuner, std::uint64_t id, std::size_t ranks,
               std::size_t nodes = 1)
      : plugin(tuner) {
    CHECK(plugin->init(&context, id, ranks, nodes, log_text, nullptr, nullptr) ==
          nccl_tuner::kSuccess);
  }
  ~Communicator() { CHECK(plugin->finalize(context) == nccl_tuner::kSuccess); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  int call(Costs& costs, std::size_t bytes, int function = kAllReduce) const {
    int channels = 0;
    CHECK(plugin->get_coll_info(context, function, bytes, 1, costs.as_nccl_passes_it(), 7, 3, 0,
                                &channels) == nccl_tuner::kSuccess);
    return channels;
  }
};

}  // namespace

TEST_CASE("calls get what the table says for their function and size", "[E-114][E-121]") {
  const Folder folder;
  folder.table(small_and_large());
  const Library library;
  REQUIRE(library.handle != nullptr);
  const Communicator comm(library.v5(), 1, 4);
  Costs costs;
  const Costs untouched;
  CHECK(comm.call(costs, 1024) == 2);
  CHECK(costs == untouched);
  CHECK(comm.call(costs, 64 * kMiB) == 16);
  Costs expected;
  expected.at(1, 2) = 0.0F;
  CHECK(costs == expected);
  // Outside the table.
  Costs other;
  CHECK(comm.call(other, kMiB, 3) == 0);
  CHECK(comm.call(other, kMiB, 77) == 0);
  CHECK(comm.call(other, kMiB, -1) == 0);
  CHECK(other == untouched);
}

TEST_CASE("what NCCL has ruled out is left alone, channels too", "[E-114]") {
  const Folder folder;
  folder.table(small_and_large());
  const Library library;
  const Communicator comm(library.v5(), 1, 4);
  Costs costs;
  CHECK(comm.call(costs, kMiB, 0) == 0);
  CHECK(costs == Costs());
  Costs no_ring;
  for (int protocol = 0; protocol < 3; ++protocol) no_ring.at(1, protocol) = nccl_tuner::kIgnored;
  const Costs before = no_ring;
  CHECK(comm.call(no_ring, kMiB) == 0);
  CHECK(no_ring == before);
}

TEST_CASE("an algorithm alone takes its cheapest protocol", "[E-114]") {
  const Folder folder;
  folder.table(to_text({{0, 0, kAllReduce, 0, 47, {0, CallCell::kAny, 0, 0}}}));
  const Library library;
  const Communicator comm(library.v5(), 1, 4);
  Costs costs;
  costs.at(0, 1) = 3.0F;
  CHECK(comm.call(costs, kMiB) == 0);
  CHECK(costs.at(0, 1) == 0.0F);
  CHECK(costs.at(0, 0) == 10.0F);
}

TEST_CASE("a program sets its own calls, before any table, and hears what NCCL has ruled out",
          "[E-83][E-114]") {
  const Folder folder;
  folder.table(small_and_large());
  const Library library;
  const auto take_over =
      reinterpret_cast<void (*)(int)>(dlsym(library.handle, "dynamiccl_tuner_take_over"));
  const auto choose = reinterpret_cast<int (*)(int, const char*, const char*, int)>(
      dlsym(library.handle, "dynamiccl_tuner_choose"));
  const auto possible =
      reinterpret_cast<std::uint32_t (*)(int)>(dlsym(library.handle, "dynamiccl_tuner_possible"));
  REQUIRE((take_over != nullptr && choose != nullptr && possible != nullptr));
  const Communicator comm(library.v5(), 1, 4);
  CHECK(possible(kAllReduce) == 0);
  take_over(1);
  // Until it has chosen, NCCL does: not the table.
  Costs costs;
  CHECK(comm.call(costs, 64 * kMiB) == 0);
  CHECK(costs == Costs());
  CHECK(possible(kAllReduce) == 0b111'111);
  REQUIRE(choose(kAllReduce, "tree", "LL128", 4) == 1);
  Costs chosen;
  CHECK(comm.call(chosen, 64 * kMiB) == 4);
  Costs expected;
  expected.at(0, 1) = 0.0F;
  CHECK(chosen == expected);
  // From call to call, and of this collective alone.
  REQUIRE(choose(kAllReduce, "", "", 16) == 1);
  Costs capped;
  CHECK(comm.call(capped, 64 * kMiB) == 16);
  CHECK(capped == Costs());
  CHECK(comm.call(capped, kMiB, 3) == 0);
  REQUIRE(choose(kAllReduce, "nvls", "Simple", 2) == 1);
  Costs ruled_out;
  CHECK(comm.call(ruled_out, kMiB) == 0);
  CHECK(ruled_out == Costs());
  CHECK((possible(kAllReduce) >> (4 * 3 + 2) & 1U) == 0);
  // Nothing that is not known, and nothing changes by it.
  CHECK(choose(kAllReduce, "rings", "", 0) == 0);
  CHECK(choose(kAllReduce, "", "", 65) == 0);
  CHECK(choose(9, "ring", "LL", 0) == 0);
  CHECK(possible(9) == 0);
  REQUIRE(choose(kAllReduce, "", "", 0) == 1);
  take_over(0);
  CHECK(comm.call(costs, 64 * kMiB) == 16);
}

TEST_CASE("a missing, torn or foreign table leaves NCCL's choices and says so", "[E-114]") {
  const Folder folder;
  const Library library;
  const auto check_untouched = [&](const char* why) {
    g_said.clear();
    const Communicator comm(library.v5(), 1, 4);
    Costs costs;
    CHECK(comm.call(costs, kMiB) == 0);
    CHECK(costs == Costs());
    INFO(g_said);
    CHECK(g_said.find(why) != std::string::npos);
    CHECK(g_said.find("2: ") != std::string::npos);
  };
  setenv("DYNAMICCL_TUNER_TABLE", (folder.path + "/none").c_str(), 1);
  check_untouched("No such file");
  const std::string whole = small_and_large();
  folder.table(whole.substr(0, whole.rfind("checksum")));
  check_untouched("not written to the end");
  folder.table(whole.substr(0, whole.size() / 2) + std::string(4096, '\xff'));
  check_untouched("is no row");
  // A sound checksum over what no NCCL could do.
  folder.table(to_text({{0, 0, kAllReduce, 0, 47, {1, 2, 65, 0}}}));
  check_untouched("is no row");
  folder.table(to_text({{0, 0, kAllReduce, 0, 47, {1, 2, 255, 0}}}));
  check_untouched("is no row");
  folder.table("");
  check_untouched("not written to the end");
  setenv("DYNAMICCL_TUNER_TABLE", folder.path.c_str(), 1);
  check_untouched("not used");
  // A pipe that nobody writes to holds up no job.
  const std::string pipe = folder.path + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  setenv("DYNAMICCL_TUNER_TABLE", pipe.c_str(), 1);
  check_untouched("no regular file");
}

namespace {

bool said(const std::string& text) { return g_said.find(text) != std::string::npos; }

/// In a process of its own, with the plugin under another name: it says a thing once per process,
/// and what was loaded before the fork leaves the child alone.
template <class Body>
void in_own_process(const Body& body) {
  const Folder copy(false);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    bool fine = false;
    try {
      g_said.clear();
      g_plugin = copy.path + "/plugin.so";
      fs::copy_file(DYNAMICCL_PLUGIN_LIBRARY, g_plugin);
      fine = body();
    } catch (...) {
    }
    if (!fine) std::fprintf(stderr, "%s", g_said.c_str());
    _exit(fine ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

/// Without Catch's checks, whose state is the parent's.
int channels_of(const nccl_tuner::PluginV5* plugin, std::size_t ranks, std::size_t nodes,
                Costs costs, std::size_t bytes) {
  void* context = nullptr;
  plugin->init(&context, 7, ranks, nodes, log_text, nullptr, nullptr);
  int channels = 0;
  plugin->get_coll_info(context, kAllReduce, bytes, 1, costs.as_nccl_passes_it(), 7, 3, 0,
                        &channels);
  plugin->finalize(context);
  return channels;
}

const CallCell kSixteen{1, 2, 16, 0};

}  // namespace

TEST_CASE("a table of other ranks or nodes is left alone, and NCCL's log says so once", "[E-127]") {
  const Folder folder;
  folder.table(to_text({{2, 2, kAllReduce, 0, 47, kSixteen}}));
  in_own_process([] {
    const Library library;
    // One node of two ranks: NVLink, where the table is of two containers' sockets.
    for (int i = 0; i < 3; ++i)
      if (channels_of(library.v5(), 2, 1, Costs(), kMiB) != 0) return false;
    const std::string why =
        "it was made for 2 ranks on 2 nodes, this communicator has 2 ranks on 1 node";
    const auto at = g_said.find(why);
    if (at == std::string::npos || g_said.find(why, at + 1) != std::string::npos) return false;
    if (!said("2: DynamICCL: table ") || !said("NCCL's own choices stay")) return false;
    if (channels_of(library.v5(), 4, 2, Costs(), kMiB) != 0 || !said("has 4 ranks on 2 nodes"))
      return false;
    return channels_of(library.v5(), 2, 2, Costs(), kMiB) == 16;
  });
}

TEST_CASE("a job's smaller groups are no warning where its largest one has the table", "[E-127]") {
  const Folder folder;
  folder.table(to_text({{4, 0, kAllReduce, 0, 47, kSixteen}}));
  in_own_process([] {
    const Library library;
    return channels_of(library.v5(), 4, 1, Costs(), kMiB) == 16 &&
           channels_of(library.v5(), 2, 1, Costs(), kMiB) == 0 && said("3: DynamICCL: table ") &&
           said("this communicator has 2 ranks on 1 node") && !said("2: DynamICCL");
  });
}

TEST_CASE("of a table for several sizes of communicators the rows that fit are used", "[E-127]") {
  const Folder folder;
  folder.table(to_text({{2, 1, kAllReduce, 0, 47, {1, 2, 2, 0}},
                        {4, 1, kAllReduce, 0, 47, kSixteen},
                        {4, 2, kAllReduce, 0, 47, {1, 2, 8, 0}}}));
  in_own_process([] {
    const Library library;
    return channels_of(library.v5(), 2, 1, Costs(), kMiB) == 2 &&
           channels_of(library.v5(), 4, 1, Costs(), kMiB) == 16 &&
           channels_of(library.v5(), 8, 1, Costs(), kMiB) == 0 && !said("2: DynamICCL") &&
           said("for 2 ranks on 1 node, 4 ranks on 1 node, 4 ranks on 2 nodes");
  });
}

TEST_CASE("a table made with another NCCL is left alone", "[E-127]") {
  const Folder folder;
  const auto with = [&](const char* made) {
    folder.table(to_text({{0, 0, kAllReduce, 0, 47, kSixteen}}, {made, "", {}}));
    return [] {
      const Library library;
      void* nccl = dlopen(DYNAMICCL_NAMED_NCCL, RTLD_NOW | RTLD_LOCAL);
      return nccl == nullptr ? -1 : channels_of(library.v5(), 2, 1, Costs(), kMiB);
    };
  };
  const auto same = with("2.28");
  in_own_process([&] { return same() == 16 && !said("2: "); });
  const auto other = with("2.27");
  in_own_process([&] {
    return other() == 0 && said("it was made with NCCL 2.27, this is 2.28") &&
           said("`dynamiccl tune --recheck`");
  });
  // The program has NCCL linked in, or it was not found: nothing to hold against.
  in_own_process([&] {
    const Library library;
    return channels_of(library.v5(), 2, 1, Costs(), kMiB) == 16;
  });
}

TEST_CASE("a table is left alone where NCCL expects other times than where it was made",
          "[E-127]") {
  const Folder folder;
  // Of sockets: NCCL expected 34 ms of 64 MiB, and nothing is known of 1 KiB.
  folder.table(
      to_text({{2, 1, kAllReduce, 0, 47, kSixteen}}, {"", "", {{kAllReduce, 26, 1, 2, 33882.0F}}}));
  const auto call = [](float us, std::size_t bytes, int function = kAllReduce) {
    const Library library;
    void* context = nullptr;
    library.v5()->init(&context, 7, 2, 1, log_text, nullptr, nullptr);
    std::array<int, 3> channels{};
    for (int& one : channels) {
      Costs costs;
      costs.at(1, 2) = us;
      library.v5()->get_coll_info(context, function, bytes, 1, costs.as_nccl_passes_it(), 7, 3, 0,
                                  &one);
    }
    library.v5()->finalize(context);
    return channels;
  };
  const std::array<int, 3> all{16, 16, 16};
  const std::array<int, 3> none{};
  in_own_process([&] { return call(33882.0F, 64 * kMiB) == all && !said("2: "); });
  // The largest message of its bin.
  in_own_process([&] { return call(67700.0F, 128 * kMiB - 1) == all; });
  in_own_process([&] { return call(12.0F, 1024) == all; });
  // NVLink.
  in_own_process([&] {
    return call(263.0F, 64 * kMiB) == none && said("2: DynamICCL: the table is not used") &&
           said("ring/Simple of allreduce of 2^26 bytes") && said("3.39e+04 us") &&
           said("263 us here") && said("NCCL's own choices stay");
  });
  in_own_process(
      [&] { return call(nccl_tuner::kIgnored, 64 * kMiB) == none && said("is ruled out here"); });
}

TEST_CASE("a table made on other GPUs is used, and NCCL's log says so", "[E-127]") {
  const Folder folder;
  folder.table(to_text({{0, 0, kAllReduce, 0, 47, kSixteen}}, {"", "NVIDIA H200", {}}));
  in_own_process([] {
    // The driver's files, as a machine with GPUs has them.
    const std::string gpus = "/proc/driver";
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", gpus.c_str(), "tmpfs", 0, nullptr) != 0)
      return true;
    fs::create_directories(gpus + "/nvidia/gpus/0000:01:00.0");
    std::ofstream(gpus + "/nvidia/gpus/0000:01:00.0/information")
        << "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t 16\n";
    const Library library;
    return channels_of(library.v5(), 2, 1, Costs(), kMiB) == 16 && said("2: DynamICCL: table ") &&
           said("was made on NVIDIA H200, this is NVIDIA H100 80GB HBM3");
  });
}

TEST_CASE("older NCCLs get the same by versions 4 to 2", "[E-114]") {
  const Folder folder;
  folder.table(small_and_large());
  const Library library;
  void* context = nullptr;
  int channels = 0;
  const auto* v4 = library.plugin<nccl_tuner::PluginV4>("ncclTunerPlugin_v4");
  REQUIRE(v4->init(4, 1, log_text, &context) == nccl_tuner::kSuccess);
  Costs costs;
  v4->get_coll_info(context, kAllReduce, kMiB, 1, costs.as_nccl_passes_it(), 7, 3, 0, &channels);
  CHECK(channels == 16);
  CHECK(costs.at(1, 2) == 0.0F);
  v4->destroy(context);
  const auto* v3 = library.plugin<nccl_tuner::PluginV3>("ncclTunerPlugin_v3");
  REQUIRE(v3->init(4, 1, log_text, &context) == nccl_tuner::kSuccess);
  channels = 0;
  v3->get_coll_info(context, kAllReduce, 4096, 1, costs.as_nccl_passes_it(), 6, 3, &channels);
  CHECK(channels == 2);
  v3->destroy(context);
  // Without a cost table only channels are safe.
  const auto* v2 = library.plugin<nccl_tuner::PluginV2>("ncclTunerPlugin_v2");
  REQUIRE(v2->init(4, 1, log_text, &context) == nccl_tuner::kSuccess);
  channels = 0;
  int algorithm = -7;
  int protocol = -7;
  v2->get_coll_info(context, kAllReduce, 4096, 0, 0, 1, &algorithm, &protocol, &channels);
  CHECK(channels == 2);
  CHECK(algorithm == -7);
  CHECK(protocol == -7);
  v2->destroy(context);
}

TEST_CASE("two ranks of a communicator switch at the same call under a leader", "[E-117][E-118]") {
  const Folder folder;
  folder.table(small_and_large());
  folder.share();
  const Library library;
  const Communicator a(library.v5(), 9, 2);
  const Communicator b(library.v5(), 9, 2);
  const Communicator alone(library.v5(), 10, 1);
  Costs costs;
  CHECK(a.call(costs, kMiB) == 16);
  CHECK(b.call(costs, kMiB) == 16);
  const auto regions = regions_in(folder.path);
  REQUIRE(regions.size() == 2);
  std::string problem;
  Leader leader(std::shared_ptr<Region>(Region::open(Region::path_of(folder.path, 9), problem)));
  REQUIRE(leader.poll() == Leader::Progress::free);
  CallTable next;
  next.cells[kAllReduce].fill({CallCell::kAny, CallCell::kAny, 32, 0});
  leader.propose(next, 2);
  std::vector<int> first;
  std::vector<int> second;
  for (int i = 0; i < 4; ++i) {
    first.push_back(a.call(costs, kMiB));
    leader.poll();
    second.push_back(b.call(costs, kMiB));
    leader.poll();
  }
  CHECK(first == std::vector<int>{16, 16, 32, 32});
  CHECK(second == first);
  CHECK(alone.call(costs, kMiB) == 16);
}

TEST_CASE("a folder that is not there costs the agreement, not the job", "[E-118]") {
  const Folder folder;
  folder.table(small_and_large());
  setenv("DYNAMICCL_TUNER_FOLDER", (folder.path + "/none").c_str(), 1);
  const Library library;
  g_said.clear();
  const Communicator comm(library.v5(), 9, 2);
  Costs costs;
  // The other ranks wait in vain for this one's word and keep NCCL's choices as well.
  CHECK(comm.call(costs, kMiB) == 0);
  CHECK(g_said.find("no agreement") != std::string::npos);
}

TEST_CASE("a forked child leaves the parent's communicator alone", "[E-118]") {
  const Folder folder;
  folder.table(small_and_large());
  folder.share();
  const Library library;
  const Communicator comm(library.v5(), 9, 1);
  Costs costs;
  CHECK(comm.call(costs, kMiB) == 16);
  std::string problem;
  const auto region = Region::open(Region::path_of(folder.path, 9), problem);
  const pid_t child = fork();
  if (child == 0) {
    Costs own;
    int channels = 0;
    comm.plugin->get_coll_info(comm.context, kAllReduce, kMiB, 1, own.as_nccl_passes_it(), 7, 3, 0,
                               &channels);
    _exit(channels == 0 && own == Costs() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(region->slot(0).calls == 1);
  CHECK(comm.call(costs, kMiB) == 16);
}

TEST_CASE("many communicators on many threads do not disturb each other", "[E-114][threads]") {
  const Folder folder;
  folder.table(small_and_large());
  folder.share();
  const Library library;
  std::array<int, 8> wrong{};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t round = 0; round < 20; ++round) {
        void* context = nullptr;
        library.v5()->init(&context, 1000 * (t + 1) + round, 1, 1, nullptr, nullptr, nullptr);
        for (int i = 0; i < 500; ++i) {
          Costs costs;
          int channels = 0;
          library.v5()->get_coll_info(context, kAllReduce, i % 2 == 0 ? kMiB : 64, 1,
                                      costs.as_nccl_passes_it(), 7, 3, 0, &channels);
          if (channels != (i % 2 == 0 ? 16 : 2)) ++wrong[t];
        }
        library.v5()->finalize(context);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == std::array<int, 8>{});
}
