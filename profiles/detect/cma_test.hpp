#pragma once

#include "profiles/detect/live_system.hpp"

namespace dynamiccl {

/// Tries to read a child's memory with process_vm_readv, as MPI libraries do between ranks.
Known<CmaTest> test_cma();

}  // namespace dynamiccl
