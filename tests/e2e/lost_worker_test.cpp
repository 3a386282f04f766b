// A rank of a training that is killed or stopped, in every way of waiting for others.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "containers/processes.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/wire/standing.hpp"
#include "tests/e2e/program.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

/// A way of waiting, and a rank of it that something happens to.
struct Way {
  const char* name;
  const char* settings;  ///< of the cell
  bool served;
  int ranks;
  int lost;  ///< the rank
};

const Way kWays[] = {
    {"bsp", "training = \"bsp-a2a\"\n", false, 2, 1},
    {"bsp, its server", "training = \"bsp-ps\"\n", true, 3, 0},
    {"local", "training = \"bsp-a2a\"\nsynchronisation = \"local\"\nlocal_steps = 3\n", false, 2,
     1},
    {"local, at a server", "training = \"bsp-ps\"\nsynchronisation = \"local\"\nlocal_steps = 3\n",
     true, 3, 2},
    {"post-local",
     "training = \"bsp-a2a\"\nsynchronisation = \"post-local\"\nlocal_steps = 3\nlocal_after = 4\n",
     false, 2, 0},
    {"FedAvg",
     "training = \"bsp-a2a\"\nsynchronisation = \"local\"\nlocal_steps = 3\nshares = \"linear\"\n"
     "participants = 1\n",
     false, 2, 1},
    {"adacomm", "training = \"bsp-a2a\"\nsynchronisation = \"adacomm\"\nlocal_steps = 4\n", false,
     2, 1},
    {"easgd", "training = \"bsp-a2a\"\nsynchronisation = \"easgd\"\nlocal_steps = 2\n", false, 2,
     1},
    {"ssp", "training = \"bsp-ps\"\nsynchronisation = \"ssp\"\n", true, 3, 2},
    {"ssp, its server", "training = \"bsp-ps\"\nsynchronisation = \"ssp\"\n", true, 3, 0},
    {"asp", "training = \"bsp-ps\"\nsynchronisation = \"asp\"\n", true, 3, 1},
    {"staggered", "training = \"bsp-ps\"\nsynchronisation = \"staggered\"\n", true, 3, 2},
    {"backup", "training = \"bsp-ps\"\nsynchronisation = \"backup\"\n", true, 3, 2},
    {"lag", "training = \"bsp-ps\"\nsynchronisation = \"lag\"\n", true, 3, 2},
    {"groups", "training = \"bsp-ps\"\nsynchronisation = \"asp\"\ngroup_size = 2\n", true, 5, 4},
    {"gossip", "training = \"d-psgd\"\n", false, 3, 2},
    {"shards", "training = \"bsp-ps\"\nsynchronisation = \"asp\"\nservers = 2\n", true, 4, 3}};

std::string experiment(const Way& way, const std::string& backend) {
  return std::string("name = \"lost\"\n[axes]\nenvironment = \"bare-metal\"\nbackend = \"") +
         backend + "\"\narchitecture = \"" + (way.served ? "ps" : "ring") +
         "\"\nranks = " + std::to_string(way.ranks) + "\n[[work]]\n" + way.settings +
         "model = \"cnn-small\"\nbatch = 4\nsamples = 64\nthreads = 1\nsteps = 100000000\n"
         "oracle = 0\n[protocol]\nwarmup = 1\nlaunches = 1\nretries = 0\nverify = false\n";
}

/// Asks every now and then until it is so, for three minutes at most; of a run that is over nothing
/// comes true any more.
bool comes_true(pid_t run, const std::function<bool()>& is_so) {
  for (int i = 0; i < 1800; ++i) {
    if (is_so()) return true;
    if (Program::has_ended(run)) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

/// The file in which a rank of the program's launch says where it stands; "": not there yet.
std::string standing_of(const Program& program, int rank) {
  std::error_code gone;
  // Folders go while they are read.
  for (fs::recursive_directory_iterator
           at(program.folder(), fs::directory_options::skip_permission_denied, gone),
       end;
       !gone && at != end; at.increment(gone))
    if (at->path().filename() == standing_file_name(rank)) return file_text(at->path());
  return "";
}

bool trains(const Program& program, int rank) {
  const std::string words = words_of_standing(standing_of(program, rank));
  return words.find(" of round ") != std::string::npos && words.find("check") == std::string::npos;
}

/// The process that is this rank of the program's launch; 0: there is none.
pid_t process_of(const Program& program, int rank) {
  const auto number = std::to_string(rank);
  for (const auto& process : list_processes()) {
    if (!process.name.starts_with("dynamiccl-train") || process.argv.empty() ||
        process.argv.back().find(program.folder()) == std::string::npos ||
        process.argv.front().find("dynamiccl-trainer") == std::string::npos)
      continue;
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "DYNAMICCL_RANK"})
      if (process_variable(process.pid, name) == number) return process.pid;
  }
  return 0;
}

std::set<std::string> shared_memory() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator("/dev/shm")) names.insert(entry.path().string());
  return names;
}

/// A run that came to nothing, and its ranks with it.
void end_run(pid_t run) {
  kill(run, SIGTERM);
  Program::wait(run);
}

void lose_a_rank(const Way& way, const std::string& backend, bool stopped) {
  INFO(way.name << " over " << backend << (stopped ? ", stopped" : ", killed"));
  const auto before = shared_memory();
  const Program program;
  const pid_t run = program.start({"run", program.file("lost.toml", experiment(way, backend))});
  pid_t lost = 0;
  if (!comes_true(run, [&] { return trains(program, way.lost); }) ||
      !comes_true(run, [&] { return (lost = process_of(program, way.lost)) > 0; })) {
    end_run(run);
    FAIL("rank " << way.lost << " did not come to train; the run said: " << program.said());
  }
  kill(lost, stopped ? SIGSTOP : SIGKILL);
  CHECK(Program::wait(run) == 1);
  INFO(program.said());
  const auto reason = program.value("SELECT reason FROM launch").get<std::string>();
  CAPTURE(reason);
  if (stopped) {
    // Who, its state, where it and others stood, what to do.
    CHECK_THAT(reason, ContainsSubstring("rank " + std::to_string(way.lost) + ", dynamiccl-train"));
    CHECK_THAT(reason, ContainsSubstring("was stopped by a signal and not continued for 2 s"));
    CHECK_THAT(reason, ContainsSubstring("(pid " + std::to_string(lost) + "): stopped, in "));
    CHECK_THAT(reason, ContainsSubstring("run again with --resume"));
    for (int rank = 0; rank < way.ranks; ++rank)
      CHECK_THAT(reason, ContainsSubstring("rank " + std::to_string(rank) +
                                           " had measured 0 of 1 cell, next training"));
    CHECK_THAT(reason, ContainsSubstring(" of round "));
  } else {
    CHECK_THAT(reason, !ContainsSubstring("launch_timeout"));
  }
  CHECK(program.processes().empty());
  CHECK(shared_memory() == before);
}

bool is_built(const std::string& backend) {
  return fs::exists(DYNAMICCL_BINARY_DIR "/dynamiccl-trainer" +
                    (backend == "gloo" ? "" : "-" + backend));
}

/// What the program that a test starts finds in its environment.
class ShortSilence {
 public:
  explicit ShortSilence(const char* seconds = "2") { setenv("DYNAMICCL_STOPPED_S", seconds, 1); }
  ~ShortSilence() { unsetenv("DYNAMICCL_STOPPED_S"); }
};

}  // namespace

TEST_CASE("a rank that is killed or stopped ends its training with an error, however others wait",
          "[d-06][d-13][d-14][safety]") {
  const ShortSilence silence;
  const auto& way = GENERATE(from_range(kWays));
  // Each way over one library, every fourth killed over another too; the long case has them all.
  const char* libraries[] = {"openmpi", "mpich", "gloo"};
  const auto at = static_cast<std::size_t>(&way - kWays);
  for (const bool stopped : {true, false}) {
    const std::string backend = libraries[(at + (stopped ? 0 : 1)) % 3];
    if (is_built(backend) && (stopped || at % 4 == 0)) lose_a_rank(way, backend, stopped);
  }
}

TEST_CASE("a killed or stopped rank ends its training over every library",
          "[d-06][d-13][d-14][safety][long]") {
  const ShortSilence silence;
  const auto& way = GENERATE(from_range(kWays));
  const std::string backend = GENERATE("openmpi", "mpich", "gloo");
  if (!is_built(backend)) return;
  for (const bool stopped : {true, false}) lose_a_rank(way, backend, stopped);
}

TEST_CASE("a slow worker is not taken for stopped", "[d-13][safety]") {
  const ShortSilence silence("1");
  const Program program;
  // Each of its steps takes longer than anybody may be stopped.
  const auto slow = [](const std::string& synchronisation) {
    return "[[work]]\ntraining = \"bsp-ps\"\n" + synchronisation + R"(model = "cnn-small"
batch = 4
samples = 64
threads = 1
steps = 1
pace = 400
slow_factor = 3
slow_worker = 1
)";
  };
  const auto run = program.run({"run", program.file("slow.toml", R"(name = "slow"
[axes]
environment = "bare-metal"
backend = "gloo"
architecture = "ps"
ranks = 3
)" + slow("synchronisation = \"ssp\"\n") + slow("synchronisation = \"local\"\nlocal_steps = 2\n") +
                                                                     R"([protocol]
warmup = 0
iterations = 1
launches = 1
retries = 0
verify = false
)")});
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(program.value(kOkLaunches) == 1);
  CHECK(program.value("SELECT count(*) FROM measurement WHERE status = 'ok'") == 2);
}

TEST_CASE("a start that failed by an interface that was gone says so, and what to do", "[safety]") {
#ifdef DYNAMICCL_INTERFACES_THAT_GO
  const Program program;
  const auto run = program.run(
      {"run", program.file("gone.toml", one_cell("\"bare-metal\"", "mpich") +
                                            "[knobs.mpich.env]\nLD_PRELOAD = "
                                            "\"" DYNAMICCL_INTERFACES_THAT_GO "\"\n"
                                            "[protocol]\nlaunches = 1\nretries = 3\n")});
  INFO(run.err);
  // Of all attempts: MPICH's launcher loses now and then what its ranks said.
  const auto reason =
      program.value("SELECT coalesce(group_concat(reason), '') FROM launch").get<std::string>();
  if (reason.find("ucx function returned") == std::string::npos)
    SKIP("this MPICH is not over UCX, or the machine has no interface but lo: " + reason);
  CHECK(run.exit_code == 1);
  CHECK_THAT(reason, ContainsSubstring("UCX opens every"));
  CHECK_THAT(reason, ContainsSubstring("run again with --resume"));
  CHECK_THAT(reason, ContainsSubstring("UCX_NET_DEVICES = \""));
#else
  SKIP("this build has no trainer of MPICH, or sanitizers that must be loaded first");
#endif
}
