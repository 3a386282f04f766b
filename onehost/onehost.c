// libdynamiccl-onehost.so: containers of one machine that share a folder become one host to NCCL.
//
// NCCL takes two containers for two hosts and sends by TCP, because the names of its UNIX sockets
// belong to a network namespace, its files lie in a /dev/shm of the container's own, and its host
// id is the container's host name. Preloaded (LD_PRELOAD), this library moves those sockets and
// files into a tmpfs folder that the containers share, answers NCCL's stat of /dev/shm with the
// folder's device, and answers NCCL's getenv with a host id and with what the way of sending needs.
//
//   DYNAMICCL_SHARED_FOLDER  the folder; without it NVIDIA_DRA_LOCAL_IPC_DIR
//   DYNAMICCL_ONEHOST        0: do nothing; p2p, shm: this way, whatever the library would choose
//
// It decides once in a process, when NCCL first asks for one of the variables below: whether it
// acts at all, and whether NCCL sends from GPU to GPU (p2p) or through files (shm). All that must
// be equal for two processes to be one host is part of the host id, so that where they differ they
// stay two hosts, which use TCP as before. Nothing enters the environment, and variables of
// the user or of nccl.conf, which NCCL puts into the environment first, count more than answers.
//
// In the folder lie nccl-socket-* (removed by the process that bound them, or by the next start
// when nobody listens), nccl-shm-* (NCCL's own files) and nccl-gpu-* (who uses a GPU; locked while
// the process lives). docs/one-host.md tells how to use it and what it refuses.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
// glibc 2.34 moved them into libc.so.6 under a new version; the old one works everywhere.
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
#endif

#define EXPORTED __attribute__((visibility("default")))
enum {
  kTmpfs = 0x01021994,
  kMostGpus = 64,
  kMostChannels = 2048,
  kMostSockets = 1024,
  kRefused = -1
};
enum { kLongestName = 42, kSettledS = 10 };                             ///< letters, seconds
enum { kFirstNccl = 218, kFirstFused = 222, kFirstWithoutRdma = 224 };  ///< 100 * major + minor
static const unsigned long long kLeastFree = 64ULL << 20;
static const char kShm[] = "/dev/shm/nccl-";
static const char kSocket[] = "tmp/nccl-socket-";  ///< behind a zero or a slash

static enum { kUndecided, kOff, kFiles, kP2p } mode;  ///< written once, under hold()
static char folder[sizeof((struct sockaddr_un*)0)->sun_path];
static dev_t folder_device;
static char identity[1000];  ///< what must be equal for one host
static char host_id[sizeof identity + 64];
static uintptr_t nccl_begin, nccl_end;  ///< the loaded object that NCCL's code lies in

int __xstat(int version, const char* path, struct stat* status);
static void *next_getenv, *next_bind, *next_sendmsg, *next_open, *next_mkstemp, *next_unlink,
    *next_stat, *next___xstat, *next__exit;
/// The function behind this library's own, found at its first call.
#define NEXT(name) ((__typeof__(&name))found(&next_##name, #name))
static inline void* found(void** function, const char* name) {
  if (__builtin_expect(*function == NULL, 0)) *function = dlsym(RTLD_NEXT, name);
  return *function;
}

static int active(void) { return __atomic_load_n(&mode, __ATOMIC_ACQUIRE) > kOff; }

/// What is decided and made belongs to one thread at a time.
static int taken;
static void hold(void) {
  while (__atomic_exchange_n(&taken, 1, __ATOMIC_ACQUIRE) != 0) sched_yield();
}
static void let_go(void) { __atomic_store_n(&taken, 0, __ATOMIC_RELEASE); }

/// One line on standard error. @return kRefused
#define say(...) refused(dprintf(STDERR_FILENO, "dynamiccl-onehost: " __VA_ARGS__))
static int refused(int written) {
  (void)written;  // there is nobody else to tell
  return kRefused;
}

/// A small file's text without its last line's end; "" where it cannot be read.
static char* text_of(const char* path, char* text, size_t size) {
  const int fd = NEXT(open)(path, O_RDONLY | O_CLOEXEC);
  const ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
  if (fd >= 0) close(fd);
  text[length < 0 ? 0 : length] = '\0';
  text[strcspn(text, "\n")] = '\0';
  return text;
}

/// The kernel's own call, as glibc's has versions that old machines lack.
static int status_at(int at, const char* path, int flags, struct stat* status) {
  return (int)syscall(SYS_newfstatat, at, path, status, flags);
}

// --- What the folder holds. ---

/// The socket files and the mark of the GPU that this process made; its children leave them alone.
static struct {
  pid_t owner;
  int count;
  struct {
    ino_t inode;
    char path[sizeof folder];
  } sockets[kMostSockets];  ///< what has no place here goes with the next start
  char mark[sizeof folder + 32];
} made;

/// Nobody listens on the socket file. It is never true of a living one.
static int is_dead(const char* path) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  strncpy(to.sun_path, path, sizeof to.sun_path - 1);
  const int dead =
      fd >= 0 && connect(fd, (struct sockaddr*)&to, sizeof to) != 0 && errno == ECONNREFUSED;
  if (fd >= 0) close(fd);
  return dead;
}

/// Whoever removes a name looks and removes under this lock, so that nobody binds it in between.
/// @return a descriptor to close, or -1 where others do not let go of it
static int lock_folder(void) {
  const int fd = NEXT(open)(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int i = 0; fd >= 0 && i < 100; ++i) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
    nanosleep(&(struct timespec){0, 10000000}, NULL);
  }
  if (fd >= 0) close(fd);
  return -1;
}

static int remove_dead(const char* path) {
  const int held = lock_folder();
  if (held < 0) return 0;
  if (is_dead(path)) NEXT(unlink)(path);
  close(held);
  return 1;
}

/// Whether what was made is this process's: what a child by fork has in its memory is its parent's.
static int owns_made(int claim) {
  const pid_t self = getpid();
  if (made.owner != self && claim) made.owner = self, made.count = 0, made.mark[0] = '\0';
  return made.owner == self;
}

/// Also removes the names of sockets that this process has closed: close itself is left alone, as
/// children and whoever copies a descriptor call it, too.
static void remember(const char* path) {
  struct stat status;
  hold();
  owns_made(1);
  for (int i = made.count - 1; i >= 0; --i)
    if (is_dead(made.sockets[i].path) && remove_dead(made.sockets[i].path))
      memmove(&made.sockets[i], &made.sockets[--made.count], sizeof *made.sockets);
  if (made.count < kMostSockets && status_at(AT_FDCWD, path, 0, &status) == 0) {
    made.sockets[made.count].inode = status.st_ino;
    strcpy(made.sockets[made.count++].path, path);
  }
  let_go();
}

/// At the end of the process. A child by vfork comes here with its parent's memory.
__attribute__((destructor)) static void remove_made(void) {
  struct stat status;
  if (!active() || !owns_made(0) || __atomic_exchange_n(&taken, 1, __ATOMIC_ACQUIRE) != 0) return;
  for (int i = 0; i < made.count; ++i)
    if (status_at(AT_FDCWD, made.sockets[i].path, 0, &status) == 0 &&
        status.st_ino == made.sockets[i].inode)  // not another's of the same name
      NEXT(unlink)(made.sockets[i].path);
  if (made.mark[0] != '\0') NEXT(unlink)(made.mark);
  made.count = 0;
  let_go();
}

// --- What is decided, once. ---

/// The range of the loaded object that an address lies in, and NCCL's version by its text there.
struct object {
  uintptr_t address, begin, end;
  int version;  ///< 100 * major + minor; 0: it is not NCCL
};

static int look_at(struct dl_phdr_info* info, size_t size, void* into) {
  (void)size;
  static const char kText[] = "NCCL version 2.";
  struct object* object = into;
  uintptr_t begin = UINTPTR_MAX, end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &info->dlpi_phdr[i];
    const uintptr_t at = info->dlpi_addr + part->p_vaddr;
    if (part->p_type != PT_LOAD) continue;
    if (at < begin) begin = at;
    if (at + part->p_memsz > end) end = at + part->p_memsz;
  }
  if (object->address < begin || object->address >= end) return 0;
  object->begin = begin, object->end = end;
  for (int i = 0; i < info->dlpi_phnum && object->version == 0; ++i) {
    const ElfW(Phdr)* part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_W) != 0 || (part->p_flags & PF_R) == 0)
      continue;
    const char* at = (const char*)(info->dlpi_addr + part->p_vaddr);
    const char* const last = at + part->p_filesz;
    while (object->version == 0 &&
           (at = memmem(at, (size_t)(last - at), kText, sizeof kText - 1)) != NULL) {
      at += sizeof kText - 1;
      const int minor = atoi(at);
      if (minor > 0) object->version = 200 + minor;
    }
  }
  return 1;
}

/// Whether a device node opens, which is what container engines grant or not.
static int opens(const char* path) {
  const int fd = NEXT(open)(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

/// The GPUs whose nodes open, as "0,1". @return how many
static int visible_gpus(char* text, size_t size) {
  int count = 0;
  char path[32];
  text[0] = '\0';
  for (int i = 0; i < kMostGpus; ++i) {
    snprintf(path, sizeof path, "/dev/nvidia%d", i);
    if (!opens(path)) continue;
    const size_t used = strlen(text);
    snprintf(text + used, size - used, count++ == 0 ? "%d" : ",%d", i);
  }
  return count;
}

/// With a channel NCCL itself reaches the GPUs of other containers over NVLink.
static int has_imex_channel(void) {
  char path[64];
  for (int i = 0; i < kMostChannels; ++i) {
    snprintf(path, sizeof path, "/dev/nvidia-caps-imex-channels/channel%d", i);
    if (opens(path)) return 1;
  }
  return 0;
}

/// A function of the driver, which NCCL has loaded and started by then.
static void* driver(const char* name) {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return library == NULL ? NULL : dlsym(library, name);
}

/// Whether NCCL's memory has handles that travel by sockets, as NCCL itself finds out. Without, its
/// way from GPU to GPU fails between namespaces.
static int has_handles(int version) {
  enum { kHandles = 102, kRdmaToo = 110 };  // of CUdevice_attribute
  const char* set = NEXT(getenv)("NCCL_CUMEM_ENABLE");
  if (set != NULL && *set != '\0') {
    const long value = strtol(set, NULL, 0);
    if (value != -2) return value > 0;
  } else if (version == kFirstNccl) {
    return 0;
  }
  int (*attribute)(int*, int, int);
  *(void**)&attribute = driver("cuDeviceGetAttribute");
  int handles = 0, rdma = 1;
  if (attribute == NULL || attribute(&handles, kHandles, 0) != 0) return 0;
  if (version < kFirstWithoutRdma && attribute(&rdma, kRdmaToo, 0) != 0) return 0;
  return handles && rdma;
}

/// What must be equal for two processes to be able to use each other's files and sockets.
static int identify(const struct stat* status) {
  char boot[64], map[100], label[200];
  if (text_of("/proc/sys/kernel/random/boot_id", boot, sizeof boot)[0] == '\0')
    return say(
        "/proc/sys/kernel/random/boot_id cannot be read, which tells this machine from others\n");
  // SELinux keeps processes apart whose labels (user:role:type:level) differ.
  if (strchr(text_of("/proc/self/attr/current", label, sizeof label), ':') == NULL) label[0] = '\0';
  unsigned long inside = 0, outside = 0, count = 0;
  sscanf(text_of("/proc/self/uid_map", map, sizeof map), "%lu %lu %lu", &inside, &outside, &count);
  snprintf(identity, sizeof identity,
           "user %u of map %lu %lu %lu%s%s, boot %s, folder %lx:%lx of %u", geteuid(), inside,
           outside, count, label[0] == '\0' ? "" : ", label ", label, boot,
           (unsigned long)status->st_dev, (unsigned long)status->st_ino, status->st_uid);
  return 0;
}

static int find_folder(void) {
  const char* name = NEXT(getenv)("DYNAMICCL_SHARED_FOLDER");
  struct stat status;
  struct statfs system;
  if (name == NULL || *name == '\0') name = NEXT(getenv)("NVIDIA_DRA_LOCAL_IPC_DIR");
  if (name == NULL || *name == '\0')
    return say(
        "no folder: set DYNAMICCL_SHARED_FOLDER to a tmpfs folder that all containers have\n");
  if (*name != '/' || strlen(name) + 1 + kLongestName >= sizeof folder)
    return say("folder %s: mount it at a path of at most %zu letters that begins with /\n", name,
               sizeof folder - 2 - kLongestName);
  if (status_at(AT_FDCWD, name, 0, &status) != 0)
    return say("folder %s: %s: mount it in this container\n", name, strerror(errno));
  if (!S_ISDIR(status.st_mode) || statfs(name, &system) != 0 || system.f_type != kTmpfs)
    return say("folder %s is not on a tmpfs: make it below /dev/shm or /run of the machine\n",
               name);
  if (access(name, R_OK | W_OK | X_OK) != 0)
    return say("folder %s: %s: %s\n", name, strerror(errno),
               errno == EROFS ? "mount it without :ro" : "run the containers as its owner");
  const unsigned long long room =
      (unsigned long long)system.f_bavail * (unsigned long)system.f_bsize;
  if (room < kLeastFree && system.f_blocks != 0)  // 0: without a limit
    return say("folder %s has %llu MiB left, NCCL needs 64: make its tmpfs larger\n", name,
               room >> 20);
  strcpy(folder, name);
  folder_device = status.st_dev;
  return identify(&status);
}

/// What NCCL is given, unless the user gave it something.
static const struct answer {
  const char* name;  ///< behind NCCL_
  const char* value;
  int with_p2p;
} kAnswers[] = {
    {"HOSTID", NULL, 1},
    // Containers with CAP_SYS_NICE and those without would choose differently.
    {"CUMEM_HOST_ENABLE", "0", 1},
    // Multicast between containers was never tried.
    {"NVLS_ENABLE", "0", 1},
    // Its windows do not ask whether P2P is off, and a rank that has them waits for all others.
    {"WIN_ENABLE", "0", 1},
    {"P2P_DISABLE", "1", 0},
};
enum { kAnswerCount = sizeof kAnswers / sizeof *kAnswers, kWindows = 3 };
/// Also of a process that stays a host of its own: ranks with and without windows would wait for
/// each other without end. Written once, under hold().
static int without_windows;

/// Through files NCCL must not try what needs the other GPU, also where the user wants it to.
static int check_users_variables(void) {
  char name[40];
  for (int i = 1; i < kAnswerCount; ++i) {
    snprintf(name, sizeof name, "NCCL_%s", kAnswers[i].name);
    const char* set = NEXT(getenv)(name);
    if (set != NULL && *set != '\0' && strtol(set, NULL, 0) != strtol(kAnswers[i].value, NULL, 0))
      return say("%s=%s is set, which fails between these containers: unset it\n", name, set);
  }
  return 0;
}

/// @return the mode, or kRefused after a line that says why
static int choose(int version) {
  char gpus[4 * kMostGpus], rest[sizeof identity];
  const char* wanted = NEXT(getenv)("DYNAMICCL_ONEHOST");
  if (wanted == NULL || *wanted == '\0') wanted = "1";
  if (strcmp(wanted, "0") == 0 || getauxval(AT_SECURE) != 0) return kOff;
  const int p2p = strcmp(wanted, "p2p") == 0, files = strcmp(wanted, "shm") == 0;
  if (!p2p && !files && strcmp(wanted, "1") != 0)
    return say("DYNAMICCL_ONEHOST=%s: write 0 (off), 1 (on), p2p or shm\n", wanted);
  without_windows = 1;
  if (find_folder() == kRefused) return kRefused;
  if (version < kFirstNccl) return say("NCCL 2.%d is too old: take 2.18 or later\n", version - 200);
  if (!p2p && !files && has_imex_channel())
    return say("nothing to do: with its IMEX channel NCCL reaches other containers over NVLink\n");
  const int count = visible_gpus(gpus, sizeof gpus);
  if (count == 0)
    return say("no /dev/nvidia0, /dev/nvidia1, ... opens: give the container its GPU\n");
  const int chosen = p2p || (!files && count > 1 && has_handles(version)) ? kP2p : kFiles;
  if (chosen == kFiles && count == 1 && version < kFirstFused)
    return say("NCCL 2.%d needs to see all GPUs: take 2.22 or later, or give the container all\n",
               version - 200);
  if (chosen == kFiles && check_users_variables() == kRefused) return kRefused;
  // Containers with one GPU each are one host, whichever it is; otherwise all must see the same.
  memcpy(rest, identity, sizeof rest);
  if (snprintf(identity, sizeof identity, "%s, GPUs %s, %s", chosen == kP2p ? "p2p" : "shm",
               count == 1 ? "one each" : gpus, rest) >= (int)sizeof identity)
    return say("the identity of folder %s is too long\n", folder);
  return chosen;
}

static void decide(const void* caller) {
  struct object object = {.address = (uintptr_t)caller};
  const int saved = errno;
  hold();
  if (mode == kUndecided) dl_iterate_phdr(look_at, &object);
  if (object.version != 0) {
    const int chosen = choose(object.version);
    nccl_begin = object.begin, nccl_end = object.end;
    __atomic_store_n(&mode, chosen == kRefused ? kOff : chosen, __ATOMIC_RELEASE);
  }
  let_go();
  errno = saved;
}

// --- Who uses which GPU. ---

/// Of this process, while it lives: unlike flock's, children do not inherit it.
static int lock_file(int fd) {
  struct flock one = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  return fcntl(fd, F_SETLK, &one) == 0;
}

/// Removes what killed processes left: sockets that nobody listens on, NCCL's files whose maker is
/// gone (who lives holds a lock from some moments after it made the file), marks without a lock.
/// @return the identity of a living process that is another host to NCCL, or ""
static char* look_around(const char* own, char other[sizeof identity]) {
  char path[sizeof folder + sizeof((struct dirent*)0)->d_name], there[sizeof identity];
  struct stat status;
  const int fd_of_folder = lock_folder();
  DIR* entries = fd_of_folder < 0 ? NULL : opendir(folder);
  for (struct dirent* entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
    const char* name = entry->d_name;
    const int gpu = strncmp(name, "nccl-gpu-", 9) == 0, shm = strncmp(name, "nccl-shm-", 9) == 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (strncmp(name, "nccl-socket-", 12) == 0 && strlen(path) < sizeof folder && is_dead(path))
      NEXT(unlink)(path);
    if ((!gpu && !shm) || strcmp(name, own) == 0) continue;
    const int fd = NEXT(open)(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (gpu ? lock_file(fd)
            : flock(fd, LOCK_EX | LOCK_NB) == 0 && status_at(fd, "", AT_EMPTY_PATH, &status) == 0 &&
                  time(NULL) - status.st_mtime > kSettledS)
      NEXT(unlink)(path);
    else if (gpu && strcmp(text_of(path, there, sizeof there), identity) != 0 &&
             (there[0] != '\0' || (fd < 0 && access(path, F_OK) == 0)))
      strcpy(other, there[0] != '\0' ? there : "of another user or label");
    if (fd >= 0) close(fd);
  }
  if (entries != NULL) closedir(entries);
  if (fd_of_folder >= 0) close(fd_of_folder);
  return other;
}

/// Marks the GPU as this process's while it lives.
/// @return 0; 1: another process has it; 2: another user's mark is there, whose end cannot be seen
static int gpu_is_taken(const char* own) {
  char path[sizeof made.mark];
  struct stat mine, there;
  snprintf(path, sizeof path, "%s/%s", folder, own);
  for (int i = 0; i < 40; ++i) {  // who was just killed needs a moment to be gone
    const int fd = NEXT(open)(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) return errno == EACCES ? 2 : 0;
    if (lock_file(fd) && status_at(fd, "", AT_EMPTY_PATH, &mine) == 0 &&
        status_at(AT_FDCWD, path, 0, &there) == 0 && mine.st_ino == there.st_ino) {
      // The descriptor stays open: the lock goes with the process.
      if (ftruncate(fd, 0) != 0 || dprintf(fd, "%s", identity) < 0)
        say("%s: %s\n", path, strerror(errno));
      owns_made(1);
      strcpy(made.mark, path);
      return 0;
    }
    close(fd);
    nanosleep(&(struct timespec){0, 50000000}, NULL);
  }
  return 1;
}

/// NCCL refuses two ranks of one host on one GPU: the second stays a host of its own.
static void make_host_id(void) {
  int (*current)(int*), (*bus)(char*, int, int), device = 0;
  char own[32] = "nccl-gpu-", other[sizeof identity] = "";
  struct timespec now;
  const int saved = errno;
  hold();
  if (host_id[0] == '\0') {
    *(void**)&current = driver("cuCtxGetDevice");
    *(void**)&bus = driver("cuDeviceGetPCIBusId");
    const int known = current != NULL && bus != NULL && current(&device) == 0 &&
                      bus(own + 9, (int)sizeof own - 9, device) == 0;
    const int alone = known ? gpu_is_taken(own) : 0;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(host_id, sizeof host_id, alone ? "onehost %s, alone %d %ld.%09ld" : "onehost %s",
             identity, getpid(), (long)now.tv_sec, now.tv_nsec);
    if (alone == 2)
      say("GPU %s has another user's mark in folder %s: by TCP; if he has ended, remove the file\n",
          own + 9, folder);
    else if (alone)
      say("GPU %s is also another process's of folder %s: by TCP, as NCCL wants one a host\n",
          own + 9, folder);
    else if (look_around(own, other)[0] != '\0')
      say("two hosts to NCCL, by TCP, as they differ: this process (%s), another (%s)\n", identity,
          other);
  }
  let_go();
  errno = saved;
}

// --- The functions that programs call. ---

static char* answer(const char* name, char* value, const void* caller) {
  int row = 0;
  while (row < kAnswerCount && strcmp(kAnswers[row].name, name) != 0) ++row;
  if (row == kAnswerCount) return value;
  if (__atomic_load_n(&mode, __ATOMIC_ACQUIRE) == kUndecided) decide(caller);
  if (row == 0 && active()) make_host_id();
  if (value != NULL && *value != '\0') return value;
  if (!active()) return row == kWindows && without_windows ? (char*)kAnswers[row].value : value;
  if (row == 0) return host_id;
  return mode == kFiles || kAnswers[row].with_p2p ? (char*)kAnswers[row].value : NULL;
}

EXPORTED char* getenv(const char* name) {
  char* value = NEXT(getenv)(name);
  if (name[0] != 'N' || name[1] != 'C' || name[2] != 'C' || name[3] != 'L' || name[4] != '_')
    return value;
  return answer(name + 5, value, __builtin_return_address(0));
}

/// NCCL's socket names, the same in the folder. @return 0: it is another one
static int moved_socket(const void* address, socklen_t size, struct sockaddr_un* to) {
  const struct sockaddr_un* from = address;
  const size_t head = offsetof(struct sockaddr_un, sun_path), name = 5;
  if (!active() || from == NULL || size < head + sizeof kSocket || from->sun_family != AF_UNIX)
    return 0;
  if ((from->sun_path[0] != '\0' && from->sun_path[0] != '/') ||
      memcmp(from->sun_path + 1, kSocket, sizeof kSocket - 1) != 0)
    return 0;
  const size_t length = strnlen(from->sun_path + name, size - head - name);
  if (length > kLongestName || memchr(from->sun_path + name, '/', length) != NULL) return 0;
  memset(to, 0, sizeof *to);
  to->sun_family = AF_UNIX;
  const size_t begin = strlen(folder);
  memcpy(to->sun_path, folder, begin);
  to->sun_path[begin] = '/';
  memcpy(to->sun_path + begin + 1, from->sun_path + name, length);
  return 1;
}

EXPORTED int bind(int fd, const struct sockaddr* address, socklen_t size) {
  struct sockaddr_un to;
  if (!moved_socket(address, size, &to)) return NEXT(bind)(fd, address, size);
  int result = NEXT(bind)(fd, (struct sockaddr*)&to, sizeof to);
  if (result != 0 && errno == EADDRINUSE && remove_dead(to.sun_path))
    result = NEXT(bind)(fd, (struct sockaddr*)&to, sizeof to);
  if (result == 0) remember(to.sun_path);
  return result;
}

EXPORTED ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  struct sockaddr_un to;
  if (message == NULL || message->msg_name == NULL ||
      !moved_socket(message->msg_name, message->msg_namelen, &to))
    return NEXT(sendmsg)(fd, message, flags);
  struct msghdr moved = *message;
  moved.msg_name = &to;
  moved.msg_namelen = sizeof to;
  return NEXT(sendmsg)(fd, &moved, flags);
}

typedef char Path[sizeof folder + 64];

/// NCCL's files of /dev/shm, in the folder; other paths as they are.
static const char* moved_file(const char* path, Path to) {
  if (!active() || path == NULL || strncmp(path, kShm, sizeof kShm - 1) != 0) return path;
  const char* name = path + sizeof kShm - 1;
  if (strlen(name) > kLongestName || strchr(name, '/') != NULL) return path;
  snprintf(to, sizeof(Path), "%s/nccl-shm-%s", folder, name);
  return to;
}

EXPORTED int open(const char* path, int flags, ...) {
  Path to;
  mode_t permissions = 0;
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
    va_list rest;
    va_start(rest, flags);
    permissions = va_arg(rest, mode_t);
    va_end(rest);
  }
  return NEXT(open)(moved_file(path, to), flags, permissions);
}

EXPORTED int mkstemp(char* path) {
  Path to;
  if (moved_file(path, to) == path) return NEXT(mkstemp)(path);
  const int fd = NEXT(mkstemp)(to);
  if (fd < 0) return fd;
  memcpy(path + strlen(path) - 6, to + strlen(to) - 6, 6);
  flock(fd, LOCK_SH | LOCK_NB);  // its maker lives: see look_around()
  return fd;
}

static int is_socket(const char* path) {
  return active() && path != NULL && path[0] == '/' &&
         strncmp(path + 1, kSocket, sizeof kSocket - 1) == 0;
}
EXPORTED int unlink(const char* path) {
  Path to;
  const char* file = moved_file(path, to);
  if (file != path) return NEXT(unlink)(file) != 0 && errno != ENOENT ? -1 : 0;  // it may be swept
  // NCCL removes a socket's name before it binds it, whosever it is, and before it closes it:
  // remember() and remove_made() see to both.
  return is_socket(path) ? 0 : NEXT(unlink)(path);
}

/// Only NCCL is made to believe that /dev/shm is the folder's.
static int asks_for_shm(const char* path, const void* caller) {
  return active() && strcmp(path, "/dev/shm") == 0 && (uintptr_t)caller >= nccl_begin &&
         (uintptr_t)caller < nccl_end;
}
EXPORTED int stat(const char* path, struct stat* status) {
  const int result = NEXT(stat)(path, status);
  if (result == 0 && asks_for_shm(path, __builtin_return_address(0)))
    status->st_dev = folder_device;
  return result;
}
/// What stat was before glibc 2.33.
EXPORTED int __xstat(int version, const char* path, struct stat* status) {
  const int result = NEXT(__xstat)(version, path, status);
  if (result == 0 && asks_for_shm(path, __builtin_return_address(0)))
    status->st_dev = folder_device;
  return result;
}

// With 64 bits they are the same.
_Static_assert(sizeof(off_t) == 8 && sizeof(struct stat) == sizeof(struct stat64), "64 bits");
__asm__(".globl open64\n.set open64, open\n.globl mkstemp64\n.set mkstemp64, mkstemp");
__asm__(".globl stat64\n.set stat64, stat\n.globl __xstat64\n.set __xstat64, __xstat");

/// Processes that end without destructors, such as Python's by fork.
EXPORTED void _exit(int code) {
  remove_made();
  NEXT(_exit)(code);
  __builtin_unreachable();
}
EXPORTED void _Exit(int code) { _exit(code); }
