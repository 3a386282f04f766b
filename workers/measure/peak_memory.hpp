#pragma once

namespace dynamiccl {

/// Largest resident memory of this process since the last restart_peak_memory(), bytes.
double peak_memory_bytes();
/// The same since the process began.
double whole_peak_memory_bytes();
/// Lets the peak begin anew from what is resident now (proc(5), clear_refs). One thread.
/// @returns false where the kernel does not allow it
bool restart_peak_memory();

}  // namespace dynamiccl
