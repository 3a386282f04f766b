#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "core/vocabulary/file_descriptor.hpp"

namespace dynamiccl::transport {

/// The one folder that isolated ranks of a host share: socket files by which they find each other;
/// data never lies in it. Names are random, and what is in a folder that others may write to is
/// never trusted by its name alone.
class SharedFolder {
 public:
  /// Which kernel and which folder: equal on both sides exactly where they can meet in it, whatever
  /// its path is there.
  struct Identity {
    std::uint64_t host = 0;
    std::uint64_t folder = 0;
    bool operator==(const Identity&) const = default;
  };

  /// @returns nullptr and a problem where the folder is none, is another user's, or may be changed
  /// by others
  static std::unique_ptr<SharedFolder> open(const std::string& path, std::string& problem);

  [[nodiscard]] const Identity& identity() const { return identity_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// A listening socket (SOCK_SEQPACKET, not blocking) that only this user may connect to.
  FileDescriptor listen(std::uint64_t name, std::string& problem) const;
  /// @returns an invalid one with errno_ set; EAGAIN: the listener is busy, try again
  FileDescriptor connect(std::uint64_t name, int& error) const;
  void remove(std::uint64_t name) const;

 private:
  SharedFolder() = default;

  std::string path_;
  FileDescriptor directory_;
  Identity identity_;
};

/// The kernel that runs here, as a number that differs between hosts and boots.
std::uint64_t host_identity();
/// Removes socket files that ended processes left in `path`: no one listens, and they are older
/// than `age`.
/// @returns how many
int sweep_folder(const std::string& path, std::chrono::seconds age);
/// The user at the other end of a Unix socket; -1 where it is not known.
uid_t peer_user(int socket);

}  // namespace dynamiccl::transport
