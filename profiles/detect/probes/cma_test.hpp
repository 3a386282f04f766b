#pragma once

#include <string>

#include "profiles/detect/probes/known.hpp"

namespace dynamiccl {

/// What reading another process's memory gave here.
struct CmaTest {
  bool allowed = false;
  std::string outcome;  ///< "read 8 bytes of a child process" or the error's text
};

/// Tries to read a child's memory with process_vm_readv, as MPI libraries do between ranks.
Known<CmaTest> test_cma();

}  // namespace dynamiccl
