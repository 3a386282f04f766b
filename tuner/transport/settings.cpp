#include "tuner/transport/settings.hpp"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace dynamiccl::transport {
namespace {

std::atomic<nccl_net::Logger> g_log{nullptr};

/// Reads numbers, and keeps the first problem.
class Numbers {
 public:
  Numbers(const Variables& variable, std::string& problem)
      : variable_(variable), problem_(problem) {}

  /// `otherwise` where the variable is not set; what is no number in bounds is a problem.
  unsigned long read(const char* name, unsigned long otherwise, unsigned long least,
                     unsigned long most) {
    const std::string text = variable_(name);
    if (text.empty()) return otherwise;
    char* end = nullptr;
    errno = 0;
    const unsigned long value = std::strtoul(text.c_str(), &end, 10);
    if (errno == 0 && *end == '\0' && text[0] != '-' && value >= least && value <= most)
      return value;
    refuse(std::string(name) + "=" + text + " is not a number from " + std::to_string(least) +
           " to " + std::to_string(most));
    return otherwise;
  }
  void refuse(const std::string& why) {
    if (problem_.empty()) problem_ = why;
  }

 private:
  const Variables& variable_;
  std::string& problem_;
};

/// GPUs of the machine, whether this container has their device nodes or not; 0: unknown.
unsigned machine_gpus() {
  DIR* folder = opendir("/proc/driver/nvidia/gpus");
  if (folder == nullptr) return 0;
  unsigned count = 0;
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.' ? 1U : 0U;
  closedir(folder);
  return count;
}

/// Whole cores of the cgroup's CPU quota; 0: no limit.
unsigned quota_cores() {
  std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "re");
  if (file == nullptr) return 0;
  char quota[32] = {};
  double period = 0;
  const int read = std::fscanf(file, "%31s %lf", quota, &period);
  std::fclose(file);
  if (read != 2 || period <= 0 || std::strcmp(quota, "max") == 0) return 0;
  return static_cast<unsigned>(std::max(1.0, std::strtod(quota, nullptr) / period));
}

unsigned default_threads() {
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  const unsigned all = online > 0 ? static_cast<unsigned>(online) : 1;
  cpu_set_t set;
  CPU_ZERO(&set);
  unsigned cores =
      sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : all;
  const unsigned quota = quota_cores();
  if (quota != 0) cores = std::min(cores, quota);
  // A container with a share of its own shares it with no other rank.
  return threads_for(cores, cores < all ? 1 : std::max(2U, machine_gpus()));
}

}  // namespace

unsigned threads_for(unsigned cores, unsigned ranks) {
  // On two cores a spinning copy thread would take NCCL's own thread's.
  if (cores <= 2) return 0;
  return std::clamp(cores * 3 / (4 * std::max(1U, ranks)), 1U, 12U);
}

Settings settings_from(const Variables& variable, std::string& problem) {
  Settings settings;
  Numbers numbers(variable, problem);
  settings.folder = variable("DYNAMICCL_SHARED_FOLDER");
  settings.threads =
      static_cast<unsigned>(numbers.read("DYNAMICCL_TRANSPORT_THREADS", default_threads(), 0, 64));
  settings.device = numbers.read("DYNAMICCL_TRANSPORT_DEVICE", 0, 0, 1) != 0;
  settings.tcp = numbers.read("DYNAMICCL_TRANSPORT_TCP", 1, 0, 1) != 0;
  settings.streams =
      static_cast<unsigned>(numbers.read("DYNAMICCL_TRANSPORT_STREAMS", settings.streams, 1, 64));
  settings.priority =
      static_cast<unsigned>(numbers.read("DYNAMICCL_TRANSPORT_PRIORITY", settings.priority, 0, 15));
  settings.interface_ = variable("NCCL_SOCKET_IFNAME");
  settings.report = variable("DYNAMICCL_TRANSPORT_REPORT");
  settings.cell_bytes =
      numbers.read("DYNAMICCL_TRANSPORT_CELL_KIB", settings.cell_bytes >> 10, 4, 4096) << 10;
  const unsigned long cells = numbers.read("DYNAMICCL_TRANSPORT_CELLS", settings.cells, 2, 64);
  if ((cells & (cells - 1)) != 0)
    numbers.refuse("DYNAMICCL_TRANSPORT_CELLS=" + std::to_string(cells) + " is no power of two");
  else
    settings.cells = static_cast<unsigned>(cells);
  return settings;
}

Settings settings_from_environment(std::string& problem) {
  return settings_from(
      [](const char* name) {
        const char* value = std::getenv(name);
        return value == nullptr ? std::string() : std::string(value);
      },
      problem);
}

void set_logger(nccl_net::Logger log) { g_log.store(log); }

void say(int level, const std::string& text) {
  const nccl_net::Logger log = g_log.load();
  if (log != nullptr)
    log(level, nccl_net::kNet | (level == nccl_net::kInfo ? 0UL : nccl_net::kInit), __FILE__,
        __LINE__, "DynamICCL: %s", text.c_str());
}

Result fail(Result result, const std::string& text) {
  say(nccl_net::kWarn, text);
  return result;
}

std::string errno_text(int number) {
  char text[128] = {};
  return ": " + std::string(strerror_r(number, text, sizeof text));
}

std::string advice_for(int number, const std::string& otherwise) {
  switch (number) {
    case EMFILE:
      return ". Raise the limit on open files: ulimit -n 65536 (docker run --ulimit nofile=65536).";
    case ENFILE:
      return ". The machine has no open files left: sysctl fs.file-max.";
    case EFBIG:
      return ". Raise the limit on file sizes: ulimit -f unlimited (docker run --ulimit fsize=-1).";
    default:
      return otherwise.empty() ? "" : ". " + otherwise;
  }
}

}  // namespace dynamiccl::transport
