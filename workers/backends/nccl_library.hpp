#pragma once

namespace dynamiccl {

/// Loads libnccl.so.2: the one that this process has already (a trainer's comes with PyTorch), else
/// the file DYNAMICCL_NCCL_LIBRARY names, else by the loader's search path, else where it was when
/// this was built. Never unloaded.
/// @return handle for dlsym
/// @throws Error(environment) saying what was tried
void* open_nccl_library();

}  // namespace dynamiccl
