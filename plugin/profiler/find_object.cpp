// The compiler's unwinder, which the plugin carries with it, asks glibc for `_dl_find_object` where
// it was built with glibc 2.35 or newer. The plugin is loaded into programs of older systems too,
// so it brings its own; only exceptions need it.
#include <dlfcn.h>
#include <link.h>

#include <cstdint>

#ifdef DLFO_STRUCT_HAS_EH_DBASE
namespace {

struct Search {
  std::uintptr_t address;
  dl_find_object* found;
};

/// Fills in the object whose loaded segments hold the address. @returns 1 where this one does
int look_at(dl_phdr_info* info, std::size_t /*size*/, void* data) {
  auto& search = *static_cast<Search*>(data);
  bool holds = false;
  std::uintptr_t begin = UINTPTR_MAX;
  std::uintptr_t end = 0;
  void* frames = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const std::uintptr_t from = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_GNU_EH_FRAME) frames = reinterpret_cast<void*>(from);
    if (segment.p_type != PT_LOAD) continue;
    const std::uintptr_t to = from + segment.p_memsz;
    begin = from < begin ? from : begin;
    end = to > end ? to : end;
    holds = holds || (search.address >= from && search.address < to);
  }
  if (!holds || frames == nullptr) return 0;
  *search.found = {};
  search.found->dlfo_map_start = reinterpret_cast<void*>(begin);
  search.found->dlfo_map_end = reinterpret_cast<void*>(end);
  search.found->dlfo_eh_frame = frames;
  return 1;
}

}  // namespace

/// As glibc's manual has it: 0 and `result` filled in, or -1. Hidden: nobody else is to call it.
extern "C" __attribute__((visibility("hidden"))) int _dl_find_object(  // NOLINT
    void* address, dl_find_object* result) noexcept {
  Search search{reinterpret_cast<std::uintptr_t>(address), result};
  return dl_iterate_phdr(look_at, &search) == 1 ? 0 : -1;
}
#endif
