#pragma once

#include <string>

#include "profiles/detect/probes/probe_root.hpp"

namespace dynamiccl {

/// Who gets transparent huge pages: "always" (every process), "madvise" (who asks) or "never"; the
/// fact cpu.transparent_huge_pages. The same inside containers (Linux, admin-guide/mm/transhuge).
Known<std::string> huge_page_mode(const ProbeRoot& root);

}  // namespace dynamiccl
