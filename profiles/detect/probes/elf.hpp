#pragma once

#include <string>

#include "profiles/detect/probes/probe_root.hpp"

namespace dynamiccl {

/// The GNU build-id of an ELF file as hexadecimal digits. Looks at the file's first 64 KiB only.
Known<std::string> elf_build_id(const ProbeRoot& root, const std::string& path);

}  // namespace dynamiccl
