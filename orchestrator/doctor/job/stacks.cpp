#include "orchestrator/doctor/job/stacks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "containers/command.hpp"
#include "core/vocabulary/file_descriptor.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// FNV-1a, to tell whether two looks saw the same.
class Mixer {
 public:
  void add(const void* bytes, std::size_t count) {
    const auto* byte = static_cast<const unsigned char*>(bytes);
    for (std::size_t i = 0; i < count; ++i) value_ = (value_ ^ byte[i]) * 1099511628211ULL;
  }
  /// Never 0, which means unknown.
  [[nodiscard]] std::uint64_t value() const { return value_ | 1; }

 private:
  std::uint64_t value_ = 14695981039346656037ULL;
};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return lower;
}

/// The kind of an MPI call by its name behind "MPI_", in lower case.
CallKind kind_of_mpi(const std::string& name) {
  static constexpr std::array kMessages{"send",  "recv",   "bsend",    "ssend",           "rsend",
                                        "isend", "irecv",  "ibsend",   "issend",          "irsend",
                                        "mrecv", "imrecv", "sendrecv", "sendrecv_replace"};
  if (name.starts_with("init")) return CallKind::start;
  if (name == "finalize" || name == "abort") return CallKind::finish;
  for (const char* word : {"wait", "test", "probe", "iprobe", "mprobe", "start", "psend", "precv"})
    if (name.starts_with(word)) return CallKind::point_to_point;
  if (std::find(kMessages.begin(), kMessages.end(), name) != kMessages.end())
    return CallKind::point_to_point;
  for (const char* word :
       {"allreduce",   "iallreduce", "bcast",      "ibcast",     "reduce",       "ireduce",
        "barrier",     "ibarrier",   "allgather",  "iallgather", "alltoall",     "ialltoall",
        "gather",      "igather",    "scatter",    "iscatter",   "scan",         "iscan",
        "exscan",      "iexscan",    "neighbor_",  "ineighbor_", "comm_split",   "comm_dup",
        "comm_create", "comm_free",  "win_create", "win_fence",  "win_allocate", "win_free",
        "cart_create", "intercomm_"})
    if (name.starts_with(word)) return CallKind::collective;
  return name.starts_with("file_") && name.ends_with("_all") ? CallKind::collective
                                                             : CallKind::outside;
}

KnownCall mpi_call(std::string_view function) {
  std::string name = lower_case(function.substr(function[0] == 'P' || function[0] == 'p' ? 5 : 4));
  const bool fortran = name.ends_with("_") || std::islower(function[0]) != 0;
  while (name.ends_with("_")) name.pop_back();
  if (name.ends_with("_c")) name.resize(name.size() - 2);
  const auto kind = kind_of_mpi(name);
  if (kind == CallKind::outside) return {};
  std::string words = "MPI_" + name;
  words[4] = static_cast<char>(std::toupper(static_cast<unsigned char>(words[4])));
  return {kind, words + (fortran ? " (Fortran)" : "")};
}

/// A name up to its arguments: "gloo::allreduce(gloo::AllreduceOptions const&)".
std::string_view without_arguments(std::string_view name) { return name.substr(0, name.find('(')); }

/// Where the interpreter runs; what a rank does in it has no name here.
bool is_python(const Frame& frame) {
  return frame.name.starts_with("_PyEval_") || frame.name.starts_with("PyEval_") ||
         frame.module.find("libpython") != std::string::npos;
}

Frame frame_of_line(std::string_view line) {
  Frame frame;
  auto rest = std::string(trim(line.substr(line.find_first_of(" \t"))));
  if (rest.starts_with("0x")) {
    frame.address = std::strtoull(rest.c_str(), nullptr, 16);
    const auto blank = rest.find(' ');
    rest = blank == std::string::npos ? "" : std::string(trim(rest.substr(blank)));
  }
  const bool gdb = rest.starts_with("in ") || rest.find(" (") != std::string::npos;
  if (rest.starts_with("in ")) rest = rest.substr(3);
  if (gdb) {
    if (const auto from = rest.rfind(" from "); from != std::string::npos)
      frame.module = rest.substr(from + 6);
    rest.resize(std::min(rest.size(), rest.find(" (")));
    if (rest == "??") rest.clear();
  } else if (rest.starts_with("- ")) {
    frame.module = rest.substr(2);
    rest.clear();
  } else if (const auto dash = rest.rfind(" - "); dash != std::string::npos) {
    frame.module = rest.substr(dash + 3);
    rest.resize(dash);
  }
  // "memcpy@@GLIBC_2.14"
  frame.name = rest.substr(0, rest.find('@'));
  return frame;
}

/// What a rank waits in for what it has queued on its GPU, collectives among it. Copies of memory
/// that is not locked wait, too.
bool waits_for_gpu(std::string_view name) {
  for (std::string_view prefix : {"cuda", "cu", "hip"}) {
    if (!name.starts_with(prefix)) continue;
    const auto rest = name.substr(prefix.size());
    for (std::string_view word :
         {"StreamSynchronize", "DeviceSynchronize", "EventSynchronize", "CtxSynchronize", "Memcpy"})
      if (rest.starts_with(word)) return true;
  }
  return false;
}

/// Index of the outermost frame that is a call of a library, or the stack's size.
std::size_t outermost_call(const std::vector<Frame>& frames, KnownCall& call) {
  for (std::size_t at = frames.size(); at-- > 0;) {
    call = call_named(frames[at].name);
    // Most of Gloo's are hidden behind names that its library does not export.
    if (frames[at].name.empty() && frames[at].module.find("libgloo") != std::string::npos)
      call = {CallKind::collective, "a collective of Gloo"};
    if (call.kind != CallKind::outside) return at;
  }
  return frames.size();
}

std::string place_text(const std::vector<Frame>& frames) {
  for (const auto& frame : frames) {
    if (frame.name.empty() || is_python(frame)) continue;
    const auto file = frame.module.substr(frame.module.rfind('/') + 1);
    return std::string(without_arguments(frame.name)) + (file.empty() ? "" : " of " + file);
  }
  return "";
}

/// What the callers of a library hold in the main thread's stack, while it stands in a call:
/// from a few words below the place that the call returns by up to the outermost frame.
std::uint64_t memory_of_callers(pid_t pid, std::uint64_t return_address) {
  constexpr std::uint64_t kMostBytes = 256 << 10;
  constexpr std::uint64_t kSavedRegisters = 6 * sizeof(std::uint64_t);
  for (const auto& line : split(file_text(fmt::format("/proc/{}/maps", pid)), '\n')) {
    if (!line.ends_with("[stack]")) continue;
    char* dash = nullptr;
    const std::uint64_t begin = std::strtoull(line.c_str(), &dash, 16);
    const std::uint64_t end = std::strtoull(dash + 1, nullptr, 16);
    const std::uint64_t from = end - std::min(end - begin, kMostBytes);
    const FileDescriptor memory(
        open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDONLY | O_CLOEXEC));
    std::vector<char> bytes(end - from);
    if (!memory.valid() || pread(memory.get(), bytes.data(), bytes.size(),
                                 static_cast<off_t>(from)) != static_cast<ssize_t>(bytes.size()))
      return 0;
    for (std::size_t at = bytes.size() - sizeof return_address;
         at >= kSavedRegisters + sizeof return_address; at -= sizeof return_address) {
      if (std::memcmp(bytes.data() + at, &return_address, sizeof return_address) != 0) continue;
      Mixer mixer;
      mixer.add(bytes.data() + at - kSavedRegisters, bytes.size() - at + kSavedRegisters);
      return mixer.value();
    }
  }
  return 0;
}

/// Whether a file that it runs is not the one that this process sees by that name.
bool has_other_files(pid_t pid) {
  for (const auto& line : split(file_text(fmt::format("/proc/{}/maps", pid)), '\n')) {
    // "begin-end r-xp offset device inode path"
    const auto slash = line.find('/');
    if (slash == std::string::npos || line.find(" r-xp ") == std::string::npos) continue;
    const auto fields = split(line, ' ');
    struct stat status {};
    if (fields.size() < 5 || stat(line.c_str() + slash, &status) != 0 ||
        std::to_string(status.st_ino) != fields[4])
      return true;
  }
  return false;
}

}  // namespace

KnownCall call_named(std::string_view function) {
  for (const char* prefix : {"MPI_", "PMPI_", "mpi_", "pmpi_"})
    if (function.starts_with(prefix) && function.size() > std::strlen(prefix))
      return mpi_call(function);
  const auto bare = std::string(without_arguments(function));
  if (bare.starts_with("gloo::")) {
    if (bare.find("connectFullMesh") != std::string::npos ||
        bare.find("rendezvous") != std::string::npos)
      return {CallKind::start, bare};
    for (const char* word : {"UnboundBuffer", "send", "recv", "transport::"})
      if (bare.find(word) != std::string::npos) return {CallKind::point_to_point, bare};
    return {
        bare.find("Options") == std::string::npos && std::count(bare.begin(), bare.end(), ':') == 2
            ? CallKind::collective
            : CallKind::outside,
        bare};
  }
  if (bare.starts_with("ncclCommInit")) return {CallKind::start, bare};
  if (bare == "ncclSend" || bare == "ncclRecv") return {CallKind::point_to_point, bare};
  for (const char* word :
       {"ncclAll", "ncclReduce", "ncclBroadcast", "ncclBcast", "ncclGroupEnd", "ncclCommSplit"})
    if (bare.starts_with(word)) return {CallKind::collective, bare};
  if (bare.starts_with("ncclComm")) return {CallKind::finish, bare};
  if (waits_for_gpu(bare)) return {CallKind::gpu, bare};
  if (bare.starts_with("c10d::") && (bare.ends_with("::wait") || bare.ends_with("::barrier")))
    return {CallKind::collective, bare};
  return {};
}

Threads read_stacks(const std::string& printed) {
  Threads threads;
  for (const auto& line : split(printed, '\n')) {
    if (line.starts_with("TID ") || line.starts_with("Thread ")) threads.emplace_back();
    if (!line.starts_with('#') || line.find(' ') == std::string::npos) continue;
    if (threads.empty()) threads.emplace_back();
    threads.back().push_back(frame_of_line(line));
  }
  std::erase_if(threads, [](const auto& frames) { return frames.empty(); });
  // gdb prints the main thread last.
  if (printed.find("\nThread ") != std::string::npos || printed.starts_with("Thread "))
    std::reverse(threads.begin(), threads.end());
  return threads;
}

PlaceInCode place_in_code(const Threads& threads) {
  PlaceInCode place;
  if (threads.empty()) return place;
  place.look.read = true;
  for (std::size_t thread = 0; thread < threads.size(); ++thread) {
    const auto& frames = threads[thread];
    KnownCall call;
    const auto at = outermost_call(frames, call);
    if (at == frames.size()) continue;
    // A helper's thread that moves bytes for it says nothing of the program's own.
    if (thread > 0 && call.kind != CallKind::collective) continue;
    place.look.kind = call.kind;
    // PyTorch's own waiting for a collective of NCCL ends in waiting for the GPU.
    if (call.name.starts_with("c10d::") &&
        std::any_of(frames.begin(), frames.begin() + static_cast<std::ptrdiff_t>(at),
                    [](const Frame& frame) { return waits_for_gpu(frame.name); }))
      place.look.kind = CallKind::gpu;
    place.look.call = call.name;
    place.main_thread = thread == 0;
    Mixer chain;
    for (std::size_t i = at + 1; i < frames.size(); ++i)
      chain.add(&frames[i].address, sizeof frames[i].address);
    place.look.chain = chain.value();
    if (at + 1 < frames.size()) place.caller = frames[at + 1].address;
    return place;
  }
  place.look.place = place_text(threads.front());
  place.look.in_python = std::any_of(threads.front().begin(), threads.front().end(), is_python);
  return place;
}

StackReader::StackReader() : eu_stack_(find_program("eu-stack")), gdb_(find_program("gdb")) {
  // eu-stack would ask a server for the names of each library, and wait for it.
  unsetenv("DEBUGINFOD_URLS");
  if (eu_stack_.empty() && gdb_.empty())
    problem_ =
        "no stack can be read, as neither eu-stack nor gdb is here: apt-get install elfutils";
}

bool StackReader::takes_long(pid_t pid) const {
  return !gdb_.empty() && (eu_stack_.empty() || has_other_files(pid));
}

StackLook StackReader::look(pid_t pid, bool main_alone, std::string& why) const {
  const bool by_gdb = takes_long(pid);
  std::vector<std::string> argv{eu_stack_, "--module", "-n", "64", "-p", std::to_string(pid)};
  if (main_alone) argv.insert(argv.begin() + 1, "-1");
  if (by_gdb)
    argv = {gdb_,
            "-batch",
            "-nx",
            "-iex",
            "set auto-load off",
            "-iex",
            "set debuginfod enabled off",
            "-p",
            std::to_string(pid),
            "-ex",
            "thread apply all bt 64"};
  CommandOptions options;
  options.timeout = std::chrono::seconds(by_gdb ? 20 : 5);
  const auto result = run_command(argv, options);
  // Killed while it attaches it leaves the process stopped.
  if (result.timed_out) kill(pid, SIGCONT);
  const auto place = place_in_code(read_stacks(result.out));
  StackLook look = place.look;
  if (!look.read) {
    why = result.timed_out ? "its stack could not be read in time"
                           : std::string(trim(result.err.substr(0, result.err.find('\n'))));
    if (why.empty()) why = "its stack is empty";
  }
  if (place.main_thread && place.caller != 0) look.memory = memory_of_callers(pid, place.caller);
  return look;
}

}  // namespace dynamiccl
