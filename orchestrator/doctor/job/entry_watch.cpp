#include "orchestrator/doctor/job/entry_watch.hpp"

#include <asm/perf_regs.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/vocabulary/file_text.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kLargestTable = std::size_t{64} << 20;
constexpr std::size_t kRingPages = 16;

/// Whole, or empty where the file is shorter or the part too large.
template <class T>
std::vector<T> table_of(int file, std::uint64_t offset, std::uint64_t size) {
  if (size > kLargestTable) return {};
  std::vector<T> table(size / sizeof(T));
  const auto bytes = table.size() * sizeof(T);
  if (pread(file, table.data(), bytes, static_cast<off_t>(offset)) != static_cast<ssize_t>(bytes))
    return {};
  return table;
}

/// Where an address of the file's own numbering lies in the file.
std::optional<std::uint64_t> file_offset(const std::vector<Elf64_Phdr>& segments,
                                         std::uint64_t address) {
  for (const auto& one : segments)
    if (one.p_type == PT_LOAD && (one.p_flags & PF_X) != 0 && address >= one.p_vaddr &&
        address - one.p_vaddr < one.p_filesz)
      return address - one.p_vaddr + one.p_offset;
  return std::nullopt;
}

std::string why_not(int error) {
  if (error == EACCES || error == EPERM)
    return "sizes of calls are seen as root or with CAP_PERFMON alone";
  return fmt::format("the kernel sets no probe on the ranks' calls: {}", std::strerror(error));
}

#if defined(__x86_64__)
// In the order in which the kernel writes them, that of their numbers.
constexpr std::uint64_t kRegisters =
    std::uint64_t{1} << PERF_REG_X86_CX | std::uint64_t{1} << PERF_REG_X86_DX |
    std::uint64_t{1} << PERF_REG_X86_SI | std::uint64_t{1} << PERF_REG_X86_DI;
constexpr bool kKnowsRegisters = true;
#else
constexpr std::uint64_t kRegisters = 0;
constexpr bool kKnowsRegisters = false;
#endif

int open_probe(int type, const std::string& file, std::uint64_t place, pid_t thread) {
  perf_event_attr attributes{};
  attributes.type = static_cast<std::uint32_t>(type);
  attributes.size = sizeof attributes;
  attributes.config1 = reinterpret_cast<std::uintptr_t>(file.c_str());
  attributes.config2 = place;
  attributes.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_REGS_USER;
  attributes.sample_regs_user = kRegisters;
  attributes.sample_period = 1;
  return static_cast<int>(
      syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

}  // namespace

std::optional<std::uint64_t> place_in_file(const std::string& file, const std::string& function) {
  const FileDescriptor opened(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  const auto headers = table_of<Elf64_Ehdr>(opened.get(), 0, sizeof(Elf64_Ehdr));
  if (headers.empty() || std::memcmp(headers[0].e_ident, ELFMAG, SELFMAG) != 0 ||
      headers[0].e_ident[EI_CLASS] != ELFCLASS64)
    return std::nullopt;
  const auto& head = headers[0];
  const auto segments = table_of<Elf64_Phdr>(opened.get(), head.e_phoff,
                                             std::uint64_t{head.e_phnum} * sizeof(Elf64_Phdr));
  const auto sections = table_of<Elf64_Shdr>(opened.get(), head.e_shoff,
                                             std::uint64_t{head.e_shnum} * sizeof(Elf64_Shdr));
  for (const auto& section : sections) {
    if (section.sh_type != SHT_DYNSYM || section.sh_link >= sections.size()) continue;
    const auto& names_at = sections[section.sh_link];
    const auto names = table_of<char>(opened.get(), names_at.sh_offset, names_at.sh_size);
    for (const auto& symbol :
         table_of<Elf64_Sym>(opened.get(), section.sh_offset, section.sh_size)) {
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF &&
          symbol.st_name < names.size() && names.size() - symbol.st_name > function.size() &&
          std::memcmp(&names[symbol.st_name], function.c_str(), function.size() + 1) == 0)
        return file_offset(segments, symbol.st_value);
    }
  }
  return std::nullopt;
}

EntryWatch::EntryWatch(pid_t thread, const std::string& file,
                       const std::vector<std::uint64_t>& places) {
  const auto type = file_text("/sys/bus/event_source/devices/uprobe/type");
  if (type.empty() || !kKnowsRegisters) {
    problem_ = "this kernel shows no arguments of calls, so their sizes are not seen";
    return;
  }
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (const auto place : places) {
    FileDescriptor probe(open_probe(std::atoi(type.c_str()), file, place, thread));
    std::uint64_t id = 0;
    bool works = probe.valid() && ioctl(probe.get(), PERF_EVENT_IOC_ID, &id) == 0;
    if (works && ring_ != nullptr)
      works = ioctl(probe.get(), PERF_EVENT_IOC_SET_OUTPUT, probes_.front().get()) == 0;
    if (works && ring_ == nullptr) {
      bytes_ = page * (1 + kRingPages);
      ring_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, probe.get(), 0);
      if (works = ring_ != MAP_FAILED; !works) ring_ = nullptr;
    }
    if (!works) {
      over_ = errno == ESRCH;
      problem_ = why_not(errno);
      probes_.clear();
      return;
    }
    probes_.push_back(std::move(probe));
    ids_.push_back(id);
  }
}

EntryWatch::~EntryWatch() {
  if (ring_ != nullptr) munmap(ring_, bytes_);
}

std::vector<SeenEntry> EntryWatch::take() {
  std::vector<SeenEntry> seen;
  if (ring_ == nullptr) return seen;
  auto* page = static_cast<perf_event_mmap_page*>(ring_);
  const auto head = std::atomic_ref(page->data_head).load(std::memory_order_acquire);
  const auto size = bytes_ - static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto* data = static_cast<const char*>(ring_) + (bytes_ - size);
  const auto word = [&](std::uint64_t at) {
    std::uint64_t value = 0;  // of eight bytes, as all are, so none goes over the ring's end
    std::memcpy(&value, data + at % size, sizeof value);
    return value;
  };
  for (auto tail = page->data_tail; tail < head;) {
    const auto header = word(tail);
    const auto length = header >> 48;
    // Header, identifier, kind of registers, and the registers; the kernel has none where it is
    // interrupted.
    constexpr std::uint64_t kLength = 56;
    const auto which = std::find(ids_.begin(), ids_.end(), word(tail + 8));
    if (static_cast<std::uint32_t>(header) == PERF_RECORD_SAMPLE && length == kLength &&
        which != ids_.end())
      seen.push_back({static_cast<std::size_t>(which - ids_.begin()), word(tail + 40),
                      word(tail + 32), word(tail + 24), word(tail + 48)});
    tail += std::max<std::uint64_t>(length, 8);
  }
  std::atomic_ref(page->data_tail).store(head, std::memory_order_release);
  return seen;
}

}  // namespace dynamiccl
