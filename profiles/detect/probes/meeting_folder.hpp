#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// What keeps a folder from making isolated ranks one host to NCCL. The rules are those of the
/// library that does it (docs/one-host.md): what the doctor says of a folder is what a job will
/// meet.
DYN_NAMED_ENUM(FolderTrouble, "folder trouble", ' ', none,
               missing,       ///< cannot be opened: not there, or not mounted here
               not_a_folder,  ///< a file
               too_long,      ///< its path
               forbidden,     ///< this user may not open it, or not make files in it
               not_writable,  ///< mounted read-only
               full,          ///< no room for a file
               no_sockets,    ///< its file system takes no UNIX sockets
               not_memory);   ///< its file system is no tmpfs, and may be another machine's too

/// What a process finds in the folder in which it is to meet others.
struct MeetingFolder {
  FolderTrouble trouble = FolderTrouble::none;
  std::string why;         ///< a clause, "" without trouble
  std::string filesystem;  ///< "tmpfs", "nfs", "ext4"; a number where it has no name here
  std::uint64_t owner = 0;
  unsigned mode = 0;             ///< permissions alone
  std::uint64_t user = 0;        ///< that this process runs as
  std::uint64_t size_bytes = 0;  ///< of its file system; 0 = it has no limit, or is not known
};

/// Tries it as a rank would: makes a socket file there and removes it. Blocking: no.
MeetingFolder look_at_meeting_folder(const std::string& path);

}  // namespace dynamiccl
