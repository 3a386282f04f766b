// The real functions' place is taken by some that do nothing, so that what stands before them is
// all that is measured.
#define EXPORTED __attribute__((visibility("default")))
struct sockaddr;
struct msghdr;
struct stat;
EXPORTED char* getenv(const char* name) { return (char*)name; }
EXPORTED int bind(int fd, const struct sockaddr* address, unsigned size) {
  return fd + (address != 0) + (int)size;
}
EXPORTED long sendmsg(int fd, const struct msghdr* message, int flags) {
  return fd + (message != 0) + flags;
}
EXPORTED int open(const char* path, int flags, ...) { return (path != 0) + flags; }
EXPORTED int unlink(const char* path) { return path != 0; }
EXPORTED int stat(const char* path, struct stat* status) { return (path != 0) + (status != 0); }
