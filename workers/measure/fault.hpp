#pragma once

namespace dynamiccl {

/// True in builds that flip one byte of a received buffer before it is verified
/// (DYNAMICCL_FAULT_FLIP_BYTE): such a build proves that verification sees a wrong byte.
extern const bool kFlipsByte;

}  // namespace dynamiccl
