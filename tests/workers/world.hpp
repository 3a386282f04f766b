#pragma once

#include "workers/communicator.hpp"

namespace dynamiccl::testing {

/// The ranks of this test program. Every rank runs the same test cases in the same order; a failed
/// check must not make a rank leave the others alone in a call, so test cases use CHECK.
Communicator& world();

/// Name of the backend under test.
Backend world_backend();

}  // namespace dynamiccl::testing
