#include "tuner/transport/shared_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "profiles/detect/probes/meeting_folder.hpp"
#include "tuner/transport/settings.hpp"

namespace dynamiccl::transport {
namespace {

constexpr int kBacklog = 16;

std::uint64_t hash(const char* text, std::size_t size) {
  std::uint64_t value = 14695981039346656037ULL;  // FNV-1a
  for (std::size_t i = 0; i < size; ++i)
    value = (value ^ static_cast<unsigned char>(text[i])) * 1099511628211ULL;
  return value;
}

const sockaddr* generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

}  // namespace

std::uint64_t host_identity() {
  std::array<char, 64> id{};
  std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "re");
  std::size_t size = 0;
  if (file != nullptr) {
    size = std::fread(id.data(), 1, id.size(), file);
    std::fclose(file);
  }
  return hash(id.data(), size);
}

std::unique_ptr<SharedFolder> SharedFolder::open(const std::string& path, std::string& problem) {
  std::unique_ptr<SharedFolder> folder(new SharedFolder);
  folder->directory_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!folder->directory_.valid() || fstat(folder->directory_.get(), &status) != 0) {
    problem = "cannot open the shared folder " + path + errno_text(errno) +
              advice_for(errno,
                         "Mount one folder of the host at DYNAMICCL_SHARED_FOLDER in every "
                         "container.");
    return nullptr;
  }
  std::string why;
  if (const FolderTrouble found = unsafe_folder(status, geteuid(), why);
      found != FolderTrouble::none) {
    const std::string user = std::to_string(geteuid());
    problem =
        "the shared folder " + path + " is not used: " + why + ". Make it this user's own: " +
        (found == FolderTrouble::another_users
             ? "chown " + user + " " + path + " on the host, or start the container as its owner"
             : "chmod 700 " + path);
    return nullptr;
  }
  if (!user_is_mapped(geteuid())) {
    problem = "the shared folder " + path +
              " is not used: this process's user has no number in its user namespace, so that "
              "others cannot be told from it. Start the container as a user that its mapping has "
              "(docker run --user, podman run --userns).";
    return nullptr;
  }
  folder->path_ = path;
  const std::array<std::uint64_t, 2> place{status.st_dev, status.st_ino};
  folder->identity_ = {host_identity(),
                       hash(reinterpret_cast<const char*>(place.data()), sizeof place)};
  return folder;
}

FileDescriptor SharedFolder::listen(std::uint64_t name, std::string& problem) const {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  if (!folder_socket_address(directory_.get(), path_, folder_socket_name(name), address)) {
    problem = "the path of the shared folder is too long: " + path_;
    return {};
  }
  // The file gets the mode that the socket has when it is bound.
  if (!socket.valid() || fchmod(socket.get(), 0600) != 0 ||
      bind(socket.get(), generic(address), sizeof address) != 0) {
    problem = "cannot make a socket file in " + path_ + errno_text(errno) +
              advice_for(errno, "The folder must be writable, with room for a file.");
    return {};
  }
  if (::listen(socket.get(), kBacklog) != 0) {
    problem = "cannot listen in " + path_ + errno_text(errno);
    remove(name);
    return {};
  }
  return socket;
}

FileDescriptor SharedFolder::connect(std::uint64_t name, int& error) const {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  error = ENAMETOOLONG;
  if (!folder_socket_address(directory_.get(), path_, folder_socket_name(name), address)) return {};
  error = 0;
  if (!socket.valid() || ::connect(socket.get(), generic(address), sizeof address) != 0) {
    error = errno;
    return {};
  }
  return socket;
}

void SharedFolder::remove(std::uint64_t name) const {
  unlinkat(directory_.get(), folder_socket_name(name).c_str(), 0);
}

int sweep_folder(const std::string& path, std::chrono::seconds age) {
  const FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return 0;
  DIR* entries = fdopendir(dup(directory.get()));
  if (entries == nullptr) return 0;
  int removed = 0;
  const std::size_t size = folder_socket_name(0).size();
  while (const dirent* entry = readdir(entries)) {
    const std::string name = entry->d_name;
    struct stat status {};
    if (name.size() != size || name.rfind(kFolderSocketPrefix, 0) != 0 ||
        fstatat(directory.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISSOCK(status.st_mode) || status.st_mtime + age.count() > std::time(nullptr))
      continue;
    sockaddr_un address{};
    if (!folder_socket_address(directory.get(), path, name, address)) continue;
    const FileDescriptor socket(
        ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // A listener takes the connection, and drops it as it says nothing.
    if (socket.valid() && ::connect(socket.get(), generic(address), sizeof address) != 0 &&
        errno == ECONNREFUSED && unlinkat(directory.get(), name.c_str(), 0) == 0)
      ++removed;
  }
  closedir(entries);
  return removed;
}

uid_t peer_user(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return static_cast<uid_t>(-1);
  return credentials.uid;
}

}  // namespace dynamiccl::transport
