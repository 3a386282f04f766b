#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace dynamiccl {

/// One process as /proc shows it: for cleaning up, and for naming who holds a resource.
struct ProcessInfo {
  pid_t pid = 0;
  std::string name;               ///< the kernel's, at most 15 letters
  std::vector<std::string> argv;  ///< empty for kernel threads
};

/// The processes this one can see, itself left out.
std::vector<ProcessInfo> list_processes();

/// Those whose program's file has this name, or which are called so where their file may not be
/// seen. Cheaper than all.
std::vector<ProcessInfo> list_processes_of(const std::string& program);

/// Value of a variable in the environment a process was started with; "" when it is not set or may
/// not be read.
std::string process_variable(pid_t pid, const std::string& name);

/// Mount points below the folder, deepest first.
std::vector<std::string> mounts_below(const std::string& folder);

/// The folder of its file system that the mount which holds `folder` shows: "/" where that is all
/// of it, "/job" where a folder of the machine was mounted; "" without /proc.
std::string mount_root(const std::string& folder);

}  // namespace dynamiccl
