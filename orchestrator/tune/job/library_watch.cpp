#include "orchestrator/tune/job/library_watch.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "containers/command.hpp"
#include "containers/processes.hpp"
#include "core/vocabulary/file_text.hpp"
#include "orchestrator/launch/process_states.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& maps, const char* file) { return maps.find(file) != std::string::npos; }

/// PyTorch's own build has Gloo within, and a GPU's libraries besides where it may use one.
std::optional<Backend> library_in(const std::string& maps) {
  if (has(maps, "/libmpi.so")) return Backend::openmpi;
  if (has(maps, "/libmpich.so")) return Backend::mpich;
  if (has(maps, "/libgloo.so") || has(maps, "/libtorch_cpu")) return Backend::gloo;
  return std::nullopt;
}

/// The program that a launcher's line starts: the first word after the options that is one.
std::string started_program(const std::vector<std::string>& argv) {
  for (std::size_t i = 1; i < argv.size(); ++i) {
    if (argv[i].empty() || argv[i].front() == '-') continue;
    const bool is_path = argv[i].find('/') != std::string::npos;
    const std::string path = is_path ? argv[i] : find_program(argv[i]);
    std::error_code unseen;
    if (!path.empty() && fs::is_regular_file(path, unseen) && access(path.c_str(), X_OK) == 0)
      return path;
  }
  return "";
}

/// Has a program of this machine's form no loader, which would preload anything?
bool is_static(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr head{};
  if (!file.read(reinterpret_cast<char*>(&head), sizeof(head))) return false;
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64)
    return false;
  for (int i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr part{};
    const std::uint64_t at = head.e_phoff + static_cast<std::uint64_t>(i) * head.e_phentsize;
    file.seekg(static_cast<std::streamoff>(at));
    if (!file.read(reinterpret_cast<char*>(&part), sizeof(part))) return false;
    if (part.p_type == PT_INTERP) return false;
  }
  return true;
}

}  // namespace

void LibraryWatch::look() {
  looked_ = Clock::now();
  std::optional<Backend> library;
  bool more = false;
  bool nccl = false;
  for (const pid_t pid : pids_of_processes(kMarkerVariable, marker_)) {
    const std::string maps = file_text(fmt::format("/proc/{}/maps", pid));
    for (const char* file : {"libnccl", "librccl", "libcuda"}) nccl = nccl || has(maps, file);
    for (const char* file : {"libtorch", "python"}) more = more || has(maps, file);
    const auto own = library_in(maps);
    // MPI is the first in the enumeration: what PyTorch has loaded besides it says less.
    if (own && (!library || *own < *library)) library = own;
  }
  if (nccl) library.reset();
  if (!library || library != seen_) since_ = looked_;
  // Processes that are gone have said what they had.
  if (library || nccl) seen_ = library;
  may_load_more_ = more;
}

std::optional<Backend> LibraryWatch::sure() {
  using std::chrono::milliseconds;
  if (Clock::now() - looked_ < milliseconds(250)) return std::nullopt;
  look();
  const auto timeout = may_load_more_ ? milliseconds(10'000)
                       : gpu_is_here_ ? milliseconds(5000)
                                      : milliseconds(1000);
  return seen_ && looked_ - since_ >= timeout ? seen_ : std::nullopt;
}

bool is_mpi_launcher(const std::string& program) {
  const std::string name = fs::path(program).filename().string();
  return name.starts_with("mpirun") || name.starts_with("mpiexec") || name == "orterun";
}

std::string why_unwatchable(const std::vector<std::string>& argv) {
  if (argv.empty() || !is_mpi_launcher(argv.front())) return "";
  const std::string program = started_program(argv);
  if (program.empty()) return "";
  struct stat status {};
  if (stat(program.c_str(), &status) == 0 && (status.st_mode & (S_ISUID | S_ISGID)) != 0)
    return program + " runs with its owner's rights, and such a program preloads nothing";
  if (is_static(program))
    return program +
           " is linked statically: nothing can be preloaded into it, and no plugin loaded, so that "
           "its calls are not to be seen; link it to shared libraries";
  return "";
}

}  // namespace dynamiccl
