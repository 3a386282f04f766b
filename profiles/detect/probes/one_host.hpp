#pragma once

#include <array>
#include <string_view>

namespace dynamiccl {

/// The library that makes ranks of one machine that share a folder alone one host to NCCL, where it
/// is preloaded (docs/one-host.md).
inline constexpr std::string_view kOneHostLibrary = "libdynamiccl-onehost.so";
/// What tells it the folder.
inline constexpr const char* kOneHostFolder = "DYNAMICCL_SHARED_FOLDER";

/// What it answers to NCCL in the environment's place.
inline constexpr std::array kOneHostAnswers{"NCCL_HOSTID", "NCCL_P2P_DISABLE",
                                            "NCCL_CUMEM_HOST_ENABLE", "NCCL_NVLS_ENABLE",
                                            "NCCL_WIN_ENABLE"};
/// Begins the NCCL_HOSTID that it answers.
inline constexpr std::string_view kOneHostIdBegin = "onehost ";

/// @param preload what LD_PRELOAD says
inline bool preloads_one_host(std::string_view preload) {
  return preload.find(kOneHostLibrary) != std::string_view::npos;
}

}  // namespace dynamiccl
