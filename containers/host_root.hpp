#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// Image source "host-root" (DYNAMICCL_IMAGE_SOURCE=host-root), for machines that reach no package
/// mirror: an almost empty image into which the machine's own /usr, /etc, /opt and the folders of
/// the GPU driver are bound read-only. Containers have namespaces of their own all the same.
bool host_root_wanted();

inline constexpr const char* kHostRootImage = "dynamiccl-host-root:1";

/// Where the image's folder is, made or not.
std::string host_root_folder();

/// Makes the folder: links into /usr and empty mount points. Idempotent.
/// @throws Error(environment) when the cache cannot be written
void make_host_root();

/// Folders of the machine that are bound read-only, none below another; `root` as in find_gpus().
std::vector<std::string> host_root_binds(const std::string& root = "");

}  // namespace dynamiccl
