#pragma once

#include <cstddef>
#include <cstdint>

namespace dynamiccl {

/// Gradients in fewer bytes, bit for bit what they were. Of a fp32 value the sign and the fraction
/// are noise; its exponent is not: the exponents of one tensor lie close together, 2.4 to 2.8 bits
/// of information in eight. A frame holds one exponent for all its values and of each value sign
/// and fraction (24 bits) and how far above that exponent it lies (3 bits); the few that lie
/// elsewhere follow with theirs (8 bits). ResNet-18's gradients take 0.85 of their bytes;
/// values that would take more than all of theirs travel as they are.

/// Which loops work on a frame: the processor's widest, or plain ones. The frame is the same.
enum class PackLoops { widest, plain };

/// Most bytes of a frame of so many values, while it is being packed and afterwards.
std::size_t packed_limit(std::size_t count);

/// @param to room for packed_limit(count)
/// @returns bytes of the frame
std::size_t pack_exponents(const float* values, std::size_t count, std::uint8_t* to,
                           PackLoops loops = PackLoops::widest);

/// @param from packed_limit(count) bytes that begin with the frame
/// @throws Error(data) for a frame of another count, or with other escapes than it says
void unpack_exponents(const std::uint8_t* from, std::size_t count, float* values,
                      PackLoops loops = PackLoops::widest);

}  // namespace dynamiccl
