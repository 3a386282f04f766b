#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dynamiccl {

// What frames of some values of a gradient are made of.

/// The `kept` values of the largest magnitude, of equals the first: their places in order, then
/// the values.
std::size_t encode_largest(const float* values, std::size_t count, std::size_t kept,
                           std::uint8_t* frame);
/// The places of those alone.
std::vector<std::uint32_t> largest_places(const float* values, std::size_t count, std::size_t kept);
/// Places of values of at least this magnitude, in order.
/// @param places has room for more
/// @returns how many there are
std::size_t find_places(const float* values, std::size_t count, float least,
                        std::vector<std::uint32_t>& places);
/// The first `kept` places, then the values there.
std::size_t store_sparse(const float* values, const std::vector<std::uint32_t>& places,
                         std::size_t kept, std::uint8_t* frame);
/// Of such frames. @throws Error(data) for a place beyond `count`
void add_sparse(const std::uint8_t* frame, std::size_t kept, std::size_t count, float scale,
                float* sum);
/// Of places one behind the other. @throws Error(data) for one beyond `count`
std::uint32_t checked_place(const std::uint8_t* places, std::size_t i, std::size_t count);
/// Bytes of a bit for each.
constexpr std::size_t sign_bytes(std::size_t kept) { return (kept + 7) / 8; }
/// Places, and a bit for each value there that is negative.
std::size_t store_signed_places(const float* values, const std::uint32_t* places, std::size_t kept,
                                std::uint8_t* to);
/// Of a magnitude, then signed places. @throws Error(data) for a place beyond `count`
void add_signed_places(const std::uint8_t* frame, std::size_t kept, std::size_t count, float scale,
                       float* sum);

}  // namespace dynamiccl
