#include "workers/measure/fault.hpp"

namespace dynamiccl {

#ifdef DYNAMICCL_FAULT_FLIP_BYTE
extern const bool kFlipsByte = true;
#else
extern const bool kFlipsByte = false;
#endif

}  // namespace dynamiccl
