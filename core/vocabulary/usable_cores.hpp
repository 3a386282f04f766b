#pragma once

namespace dynamiccl {

/// Cores this process may run on (its affinity), at least 1.
int usable_cores();

}  // namespace dynamiccl
