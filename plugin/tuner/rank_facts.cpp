#include "plugin/tuner/rank_facts.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>
#include <string_view>

#include "core/vocabulary/file_limit.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/host_name.hpp"
#include "core/vocabulary/splitmix64.hpp"
#include "profiles/detect/probes/known_variables.hpp"
#include "profiles/detect/probes/one_host.hpp"
#include "profiles/detect/probes/root_mount.hpp"

extern char** environ;  // NOLINT: POSIX has it in no header

namespace dynamiccl {
namespace {

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    std::array<char, 8> escape{};
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      // Not UTF-8, perhaps: the reader must be able to parse it.
      std::snprintf(escape.data(), escape.size(), "\\u%04x", byte);
      out += escape.data();
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string first_line(const char* path) {
  std::array<char, 256> line{};
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return "";
  if (std::fgets(line.data(), line.size(), file) == nullptr) line[0] = '\0';
  std::fclose(file);
  line[std::strcspn(line.data(), "\n")] = '\0';
  return line.data();
}

/// "net:[4026531840]" as 4026531840.
std::string namespaces_json() {
  std::string out = "{";
  for (const char* name : {"net", "ipc", "uts", "pid", "mnt", "user"}) {
    struct stat status {};
    if (stat((std::string("/proc/self/ns/") + name).c_str(), &status) != 0) continue;
    if (out.size() > 1) out += ",";
    out += json_text(name) + ":" + std::to_string(status.st_ino);
  }
  return out + "}";
}

std::string shm_json() {
  struct stat status {};
  struct statvfs space {};
  if (stat("/dev/shm", &status) != 0 || statvfs("/dev/shm", &space) != 0) return "{}";
  return "{\"device\":" + std::to_string(status.st_dev) +
         ",\"size_bytes\":" + std::to_string(std::uint64_t{space.f_blocks} * space.f_frsize) + "}";
}

const char* runtime() {
  if (is_whole_disk(root_mount(file_text("/proc/self/mountinfo")))) return "none";
  if (access("/.dockerenv", F_OK) == 0) return "docker";
  if (access("/run/.containerenv", F_OK) == 0) return "podman";
  if (access("/.singularity.d", F_OK) == 0) return "singularity";
  return "none";
}

/// Whose device files are here.
int gpus() {
  int count = 0;
  for (int i = 0; i < 64; ++i)
    if (access(("/dev/nvidia" + std::to_string(i)).c_str(), F_OK) == 0) ++count;
  return count;
}

/// NCCL's own settings alone, as it was answered: others may be secrets.
std::string variables_json() {
  std::string out = "{";
  std::set<std::string_view> told;
  const auto tell = [&](std::string_view name, std::string_view value) {
    if (!told.insert(name).second) return;
    if (out.size() > 1) out += ",";
    out += json_text(name) + ":" + json_text(value);
  };
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (name.starts_with("NCCL_") && is_known_variable(name)) tell(name, text.substr(equals + 1));
    // Whether one library is among those that are preloaded; not which others are.
    if (name == "LD_PRELOAD" && preloads_one_host(text)) tell(name, kOneHostLibrary);
  }
  // What a preloaded library has answered in the environment's place.
  for (const char* name : kOneHostAnswers)
    if (const char* value = std::getenv(name); value != nullptr) tell(name, value);
  return out + "}";
}

}  // namespace

std::uint64_t process_key() {
  static const std::uint64_t kKey = [] {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    // Process numbers repeat over containers; the time and the layout of memory hardly with them.
    const std::uint64_t x = static_cast<std::uint64_t>(now.tv_nsec) ^
                            (static_cast<std::uint64_t>(now.tv_sec) << 30) ^
                            (static_cast<std::uint64_t>(getpid()) << 44) ^
                            (reinterpret_cast<std::uintptr_t>(&now) >> 4);
    return splitmix64_mixed(x);
  }();
  return kKey;
}

int loaded_nccl_version() {
  // Programs may have loaded it without giving its names to others.
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        const bool nccl =
            info->dlpi_name != nullptr && std::strstr(info->dlpi_name, "libnccl.so") != nullptr;
        if (nccl) *static_cast<std::string*>(found) = info->dlpi_name;
        return nccl ? 1 : 0;
      },
      &path);
  void* library = dlopen(path.empty() ? nullptr : path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  int version = 0;
  using GetVersion = int (*)(int*);
  if (auto* get = reinterpret_cast<GetVersion>(dlsym(library, "ncclGetVersion")); get != nullptr)
    get(&version);
  dlclose(library);
  return version;
}

std::string nccl_release(int version) {
  if (version <= 0) return "";
  const int base = version >= 10000 ? 10000 : 1000;
  return std::to_string(version / base) + "." + std::to_string(version % base / 100);
}

std::string gpu_model() {
  constexpr const char* kFolder = "/proc/driver/nvidia/gpus";
  constexpr std::string_view kField = "Model:";
  std::string model;
  DIR* folder = opendir(kFolder);
  if (folder == nullptr) return model;
  for (const dirent* entry = readdir(folder); entry != nullptr; entry = readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    const std::string line =
        first_line((std::string(kFolder) + "/" + entry->d_name + "/information").c_str());
    const auto begin = line.find_first_not_of(" \t", kField.size());
    const bool named = line.starts_with(kField) && begin != std::string::npos;
    const std::string own = named ? line.substr(begin) : "";
    if (own.empty() || (!model.empty() && own != model)) {
      closedir(folder);
      return "";
    }
    model = own;
  }
  closedir(folder);
  return model;
}

void write_rank_facts(const std::string& folder, std::uint64_t communicator, int rank,
                      const std::string& mpi) noexcept {
  try {
    std::array<char, 48> name{};
    std::snprintf(name.data(), name.size(), "/rank-%016" PRIx64 "-%d.json", communicator, rank);
    const std::string path = folder + name.data();
    const std::string draft = path + "." + std::to_string(process_key());
    const std::string text =
        "{\"system\":{\"hostname\":" + json_text(host_name()) +
        ",\"boot_id\":" + json_text(first_line("/proc/sys/kernel/random/boot_id")) +
        "},\"namespaces\":" + namespaces_json() + ",\"shm\":" + shm_json() +
        ",\"container\":{\"runtime\":" + json_text(runtime()) +
        "},\"process\":{\"pid\":" + std::to_string(getpid()) +
        "},\"rank\":" + std::to_string(rank) +
        ",\"nccl_version\":" + std::to_string(loaded_nccl_version()) +
        (mpi.empty() ? "" : ",\"mpi\":{\"says\":" + json_text(mpi) + "}") +
        ",\"gpu\":{\"usable\":" + std::to_string(gpus()) +
        "},\"environment\":{\"variables\":" + variables_json() + "}}\n";
    const FileLimitSignal held;
    std::FILE* file = std::fopen(draft.c_str(), "wxe");
    if (file == nullptr) return;
    const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    // Readers never see half of it.
    if (std::fclose(file) != 0 || !whole || rename(draft.c_str(), path.c_str()) != 0)
      unlink(draft.c_str());
  } catch (const std::exception&) {
    // Out of memory: nobody hears where this rank runs.
  }
}

}  // namespace dynamiccl
