#include "profiles/detect/probes/elf.hpp"

#include <elf.h>

#include <cstring>

namespace dynamiccl {
namespace {

constexpr std::size_t kHeadBytes = 65536;
constexpr std::size_t kMaxIdBytes = 64;

/// Copies a structure out of the file's head; false where it does not lie inside.
template <class T>
bool copy_at(const std::string& head, std::uint64_t offset, T& into) {
  if (offset > head.size() || head.size() - offset < sizeof(T)) return false;
  std::memcpy(&into, head.data() + offset, sizeof(T));
  return true;
}

std::string hexadecimal(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 0xfU];
  }
  return text;
}

std::uint64_t padded(std::uint64_t size) { return (size + 3) & ~std::uint64_t{3}; }

/// The build-id among the notes in [offset, offset + size).
std::string find_note(const std::string& head, std::uint64_t offset, std::uint64_t size) {
  if (offset > head.size()) return "";
  const std::uint64_t end = offset + std::min<std::uint64_t>(size, head.size() - offset);
  Elf64_Nhdr note{};
  while (offset < end && copy_at(head, offset, note)) {
    const std::uint64_t name = offset + sizeof note;
    const std::uint64_t value = name + padded(note.n_namesz);
    const std::uint64_t next = value + padded(note.n_descsz);
    if (next > end) return "";
    const bool gnu = note.n_namesz == 4 && std::memcmp(head.data() + name, "GNU", 4) == 0;
    if (gnu && note.n_type == NT_GNU_BUILD_ID && note.n_descsz <= kMaxIdBytes)
      return hexadecimal(std::string_view(head).substr(value, note.n_descsz));
    offset = next;
  }
  return "";
}

}  // namespace

Known<std::string> elf_build_id(const ProbeRoot& root, const std::string& path) {
  using Result = Known<std::string>;
  const auto head = root.text(path, kHeadBytes);
  if (!head) return Result::unknown(head.reason);
  Elf64_Ehdr header{};
  if (!copy_at(*head, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64)
    return Result::unknown("no 64-bit ELF file");
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!copy_at(*head, header.e_phoff + std::uint64_t{i} * sizeof segment, segment)) break;
    if (segment.p_type != PT_NOTE) continue;
    if (auto id = find_note(*head, segment.p_offset, segment.p_filesz); !id.empty())
      return {std::move(id), ""};
  }
  return Result::unknown("the file carries no build-id");
}

}  // namespace dynamiccl
