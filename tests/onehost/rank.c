// Stands for a process with NCCL in it: has NCCL's version as text, and does with the system what
// NCCL does, one command per line of standard input, one answer per line of standard output. Errors
// are answered as "errno NUMBER".
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;
/// What NCCL's own text looks like; in memory that is not written.
__attribute__((used)) static const char kVersion[] = "NCCL version " NCCL_VERSION_TEXT;

static struct sockaddr_un address(const char* rank, const char* hash, int abstract) {
  struct sockaddr_un to;
  memset(&to, 0, sizeof to);
  to.sun_family = AF_UNIX;
  snprintf(to.sun_path, sizeof to.sun_path, "/tmp/nccl-socket-%s-%s", rank, hash);
  if (abstract) to.sun_path[0] = '\0';
  return to;
}

static int bind_socket(const char* rank, const char* hash, int abstract) {
  const struct sockaddr_un to = address(rank, hash, abstract);
  const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  if (!abstract) unlink(to.sun_path);
  if (bind(fd, (const struct sockaddr*)&to, sizeof to) == 0) return fd;
  const int code = errno;
  close(fd);
  errno = code;
  return -1;
}

static int send_fd(int from, const char* rank, const char* hash, int abstract, int fd) {
  struct sockaddr_un to = address(rank, hash, abstract);
  char letter = 0, control[CMSG_SPACE(sizeof fd)];
  memset(control, 0, sizeof control);
  struct iovec data = {&letter, 1};
  struct msghdr message = {&to, sizeof to, &data, 1, control, sizeof control, 0};
  struct cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_len = CMSG_LEN(sizeof fd);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  memcpy(CMSG_DATA(head), &fd, sizeof fd);
  return (int)sendmsg(from, &message, 0);
}

/// @return the text of the file whose descriptor came
static const char* receive_fd(int at) {
  static char text[64];
  char letter, control[CMSG_SPACE(sizeof(int))];
  struct iovec data = {&letter, 1};
  struct msghdr message = {NULL, 0, &data, 1, control, sizeof control, 0};
  int fd = -1;
  if (recvmsg(at, &message, MSG_DONTWAIT) < 0 || CMSG_FIRSTHDR(&message) == NULL) return NULL;
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  const ssize_t length = pread(fd, text, sizeof text - 1, 0);
  close(fd);
  text[length < 0 ? 0 : length] = '\0';
  return text;
}

static void answer_number(long value) {
  if (value < 0)
    printf("errno %d\n", errno);
  else
    printf("%ld\n", value);
}

static int child(const char* how, int fd) {
  const pid_t pid = strcmp(how, "vfork") == 0 ? vfork() : fork();
  if (pid == 0) {
    close(fd);
    if (strcmp(how, "fork") == 0) exit(0);
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

static void files(int count, char** words) {
  char path[64] = "/dev/shm/nccl-XXXXXX", text[64] = "";
  struct stat status;
  if (strcmp(words[0], "shm") == 0) {
    const int fd = mkstemp(path);
    if (fd >= 0 && write(fd, words[1], strlen(words[1])) > 0)
      printf("%s\n", path);
    else
      printf("errno %d\n", errno);
  } else if (strcmp(words[0], "read") == 0) {
    const int fd = open(words[1], O_RDWR, 0600);
    const ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (length < 0)
      printf("errno %d\n", errno);
    else
      printf("%s\n", text);
  } else if (strcmp(words[0], "unlink") == 0) {
    answer_number(unlink(words[1]));
  } else if (strcmp(words[0], "dev") == 0) {
    const int code = stat(count > 1 ? words[1] : "/dev/shm", &status);
    answer_number(code != 0 ? -1 : (long)status.st_dev);
  }
}

static void sockets(int count, char** words) {
  const char* verb = words[0];
  if (strcmp(verb, "bind") == 0)
    answer_number(bind_socket(words[1], words[2], count < 4));
  else if (strcmp(verb, "send") == 0)
    answer_number(send_fd(atoi(words[1]), words[2], words[3], count < 6, atoi(words[4])));
  else if (strcmp(verb, "receive") == 0) {
    const char* text = receive_fd(atoi(words[1]));
    if (text == NULL)
      printf("errno %d\n", errno);
    else
      printf("%s\n", text);
  } else if (strcmp(verb, "memory") == 0) {
    const int fd = memfd_create("memory", 0);
    answer_number(write(fd, words[1], strlen(words[1])) < 0 ? -1 : fd);
  } else if (strcmp(verb, "close") == 0)
    answer_number(close(atoi(words[1])));
  else if (strcmp(verb, "dup2") == 0)
    answer_number(dup2(atoi(words[1]), atoi(words[2])));
  else if (strcmp(verb, "child") == 0)
    answer_number(child(words[1], atoi(words[2])));
  else if (strcmp(verb, "system") == 0) {
    fflush(stdout);
    answer_number(system(words[1]));
  }
}

static void variables(char** words) {
  const char* value = NULL;
  if (strcmp(words[0], "getenv") == 0) {
    value = getenv(words[1]);
  } else if (strcmp(words[0], "setenv") == 0) {  // as for nccl.conf: what is set already stays
    setenv(words[1], words[2], 0);
  } else if (strcmp(words[0], "environ") == 0) {
    for (char** line = environ; *line != NULL; ++line)
      if (strncmp(*line, "NCCL_", 5) == 0) value = *line;
  }
  printf("%s\n", value == NULL ? "-" : value);
}

int main(void) {
  char line[512];
  dlopen("libcuda.so.1", RTLD_NOW);
  while (fgets(line, sizeof line, stdin) != NULL) {
    char* words[8] = {0};
    int count = 0;
    line[strcspn(line, "\n")] = '\0';
    const int whole = strncmp(line, "system ", 7) == 0;
    for (char* at = strtok(line, whole ? "\n" : " "); at != NULL && count < 8;
         at = strtok(NULL, " "))
      words[count++] = at;
    if (whole) words[0][6] = '\0', words[1] = words[0] + 7;
    if (count == 0) continue;
    if (strcmp(words[0], "exit") == 0) return 0;
    if (strcmp(words[0], "_exit") == 0) _exit(0);
    if (strstr("shm read unlink dev", words[0]) != NULL)
      files(count, words);
    else if (strstr("getenv setenv environ", words[0]) != NULL)
      variables(words);
    else
      sockets(count, words);
    fflush(stdout);
  }
  return 0;
}
