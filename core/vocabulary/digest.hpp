#pragma once

#include <string>
#include <string_view>

namespace dynamiccl {

/// SHA-256 of the bytes as 64 lower-case hexadecimal digits (FIPS 180-4).
std::string sha256_hex(std::string_view bytes);

/// First 16 digits of the SHA-256: the stable id of a cell, a group or a regime made from its
/// canonical key.
std::string stable_id(std::string_view canonical_key);

}  // namespace dynamiccl
