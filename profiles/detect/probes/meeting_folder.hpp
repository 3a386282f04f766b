#pragma once

#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cstdint>
#include <string>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// What keeps isolated ranks from meeting in a folder by socket files. The rules are those of the
/// network through a shared folder (tuner/transport), whose plugin uses this file, as the probe
/// does: what the doctor says of a folder is what a job will meet.
enum class FolderTrouble {
  none,
  missing,         ///< cannot be opened: not there, or not mounted here
  not_a_folder,    ///< a file
  too_long,        ///< its path
  forbidden,       ///< this user may not open it, or not make files in it
  another_users,   ///< belongs to a user who is neither this one nor root
  open_to_others,  ///< other users may rename what is in it
  not_writable,    ///< mounted read-only
  full,            ///< no room for a file
  no_sockets,      ///< its file system takes no UNIX sockets
};
template <>
struct NameTable<FolderTrouble> {
  static constexpr std::string_view what = "folder trouble";
  static constexpr std::array entries{Named{FolderTrouble::none, "none"},
                                      Named{FolderTrouble::missing, "missing"},
                                      Named{FolderTrouble::not_a_folder, "not a folder"},
                                      Named{FolderTrouble::too_long, "too long"},
                                      Named{FolderTrouble::forbidden, "forbidden"},
                                      Named{FolderTrouble::another_users, "another user's"},
                                      Named{FolderTrouble::open_to_others, "open to others"},
                                      Named{FolderTrouble::not_writable, "not writable"},
                                      Named{FolderTrouble::full, "full"},
                                      Named{FolderTrouble::no_sockets, "no sockets"}};
};

/// What a process finds in the folder that it was told to meet others in.
struct MeetingFolder {
  FolderTrouble trouble = FolderTrouble::none;
  std::string why;         ///< a clause, "" without trouble
  std::string filesystem;  ///< "tmpfs", "nfs", "ext4"; a number where it has no name here
  std::uint64_t owner = 0;
  unsigned mode = 0;       ///< permissions alone
  std::uint64_t user = 0;  ///< that this process runs as
};

/// Tries it as a rank would: makes a socket file there and removes it. Blocking: no.
MeetingFolder look_at_meeting_folder(const std::string& path);

/// Whether `user` may trust what is in a folder of this owner and mode.
/// @param why set to a clause where not
FolderTrouble unsafe_folder(const struct stat& status, std::uint64_t user, std::string& why);

/// Whether the number stands for one user here: in a user namespace all that it has no number for
/// look like the overflow user (user_namespaces(7)).
bool user_is_mapped(std::uint64_t user);

// Socket files in such a folder.
constexpr const char* kFolderSocketPrefix = "dynamiccl-";
std::string folder_socket_name(std::uint64_t name);
/// Paths longer than an address holds go by way of the opened folder.
/// @returns false: too long all the same
bool folder_socket_address(int directory, const std::string& path, const std::string& name,
                           sockaddr_un& address);

}  // namespace dynamiccl
