#include "containers/image.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "containers/command.hpp"
#include "containers/host_root.hpp"
#include "containers/paths.hpp"
#include "core/digest.hpp"
#include "core/error.hpp"
#include "core/text.hpp"
#include "embedded/apt_sh.hpp"
#include "embedded/build_rootfs_sh.hpp"
#include "embedded/install_apptainer_sh.hpp"
#include "embedded/packages_txt.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::minutes kBuildPatience{20};

/// One at a time makes a thing in the cache; the others wait and find it made.
class CacheTurn {
 public:
  explicit CacheTurn(const std::string& name) {
    std::error_code code;
    fs::create_directories(cache_folder(), code);
    const std::string path = cache_folder() + "/" + name + ".lock";
    handle_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (handle_ < 0)
      throw Error(ErrorKind::environment,
                  fmt::format("cannot write to the cache folder {}: {}; set DYNAMICCL_CACHE to a "
                              "folder you may write to",
                              cache_folder(), std::strerror(errno)));
    while (flock(handle_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~CacheTurn() { close(handle_); }
  CacheTurn(const CacheTurn&) = delete;
  CacheTurn& operator=(const CacheTurn&) = delete;

 private:
  int handle_ = -1;
};

std::string os_release() {
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("VERSION_CODENAME=", 0) == 0) return line;
  return "";
}

/// Writes the scripts beside what they make, so that a binary copied elsewhere still can.
std::string write_recipe() {
  const std::string folder = cache_folder() + "/recipe-" + recipe_id();
  std::error_code code;
  fs::create_directories(folder, code);
  for (const auto& [name, content] : recipe_files()) {
    const std::string path = folder + "/" + name;
    std::ofstream file(path);
    file << content;
    file.close();
    if (!file || chmod(path.c_str(), 0755) != 0)
      throw Error(ErrorKind::environment,
                  fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  }
  return folder;
}

std::string image_folder(const std::string& cache) { return cache + "/images/" + recipe_id(); }

std::string content_sha256(const std::string& folder) {
  std::ifstream file(folder + "/manifest.json");
  const auto manifest = nlohmann::json::parse(file, nullptr, false);
  return manifest.is_object() ? manifest.value("content_sha256", "") : "";
}

std::string environment_or(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

/// PREFIX/libexec/apptainer/bin (upstream) or PREFIX/lib/MULTIARCH/apptainer/bin (Debian).
bool is_setuid_install(const std::string& program) {
  const fs::path prefix = fs::path(program).parent_path().parent_path();
  std::vector<fs::path> parents{prefix / "libexec"};
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(prefix / "lib", code))
    parents.push_back(entry.path());
  for (const fs::path& parent : parents)
    for (const char* name : {"apptainer", "singularity"}) {
      struct stat status {};
      if (stat((parent / name / "bin/starter-suid").c_str(), &status) == 0 &&
          (status.st_mode & S_ISUID) != 0)
        return true;
    }
  return false;
}

void say(Progress progress, const std::string& line) {
  if (progress != nullptr) progress(line);
}

}  // namespace

const std::map<std::string, std::string>& recipe_files() {
  static const std::map<std::string, std::string> files{
      {"apt.sh", std::string(embedded::apt_sh)},
      {"build_rootfs.sh", std::string(embedded::build_rootfs_sh)},
      {"install_apptainer.sh", std::string(embedded::install_apptainer_sh)},
      {"packages.txt", std::string(embedded::packages_txt)}};
  return files;
}

std::string recipe_id() {
  static const std::string id = [] {
    std::string image_packages;
    for (const std::string& line : split(recipe_files().at("packages.txt"), '\n'))
      if (line.rfind("image ", 0) == 0) image_packages += line + "\n";
    return stable_id(recipe_files().at("build_rootfs.sh") + recipe_files().at("apt.sh") +
                     image_packages + os_release());
  }();
  return id;
}

WorkerImage find_worker_image() {
  for (const std::string& cache : cache_folders())
    if (const std::string sum = content_sha256(image_folder(cache)); !sum.empty())
      return {image_folder(cache), sum};
  return {};
}

WorkerImage prepare_worker_image(Progress progress) {
  if (WorkerImage image = find_worker_image(); !image.folder.empty()) return image;
  const CacheTurn turn("image");
  if (WorkerImage image = find_worker_image(); !image.folder.empty()) return image;
  say(progress, "making the worker image from this machine's package mirror (once, about 30 s)");
  CommandOptions patient;
  patient.timeout = kBuildPatience;
  checked_output("cannot make the worker image",
                 {write_recipe() + "/build_rootfs.sh", image_folder(cache_folder())}, patient);
  return find_worker_image();
}

std::string engine_image_name() {
  if (host_root_wanted()) return kHostRootImage;
  return environment_or("DYNAMICCL_DOCKER_IMAGE", "dynamiccl-worker:" + recipe_id());
}

std::string engine_image_id(const Engine& engine) {
  const CommandResult result = run_command(
      engine_argv(engine, {"image", "inspect", "--format", "{{.Id}}", engine_image_name()}));
  return result.exit_code == 0 ? std::string(trim(result.out)) : "";
}

bool engine_has_image(const Engine& engine) { return !engine_image_id(engine).empty(); }

void import_image(const Engine& engine, Progress progress) {
  if (engine_has_image(engine)) return;
  if (host_root_wanted()) {
    make_host_root();
    const std::string tar = cache_folder() + "/host-root.tar";
    checked_output("cannot pack the host-root image",
                   {"tar", "-C", host_root_folder(), "-cf", tar, "."});
    checked_output("cannot import the host-root image",
                   engine_argv(engine, {"import", tar, kHostRootImage}));
    return;
  }
  if (engine_image_name() != "dynamiccl-worker:" + recipe_id())
    throw Error(ErrorKind::environment,
                fmt::format("{} has no image {}, which DYNAMICCL_DOCKER_IMAGE names: build it from "
                            "containers/images/Dockerfile, or unset the variable",
                            engine.name(), engine_image_name()));
  const WorkerImage image = prepare_worker_image(progress);
  say(progress,
      fmt::format("importing the worker image into {} (once, a few seconds)", engine.name()));
  CommandOptions patient;
  patient.timeout = kBuildPatience;
  checked_output(
      "cannot import the worker image",
      engine_argv(engine, {"import", "--change", "LABEL dynamiccl.content=" + image.content_sha256,
                           image.folder + "/rootfs.tar", engine_image_name()}),
      patient);
}

std::string apptainer_image() {
  if (host_root_wanted()) return host_root_folder();
  const WorkerImage image = find_worker_image();
  const std::string folder = image.folder.empty() ? image_folder(cache_folder()) : image.folder;
  return environment_or("DYNAMICCL_APPTAINER_IMAGE", folder + "/rootfs");
}

ApptainerInstall find_apptainer() {
  for (const char* name : {"apptainer", "singularity"})
    if (const std::string program = find_program(name); !program.empty())
      return {program, false, is_setuid_install(fs::canonical(program).string())};
  for (const std::string& cache : cache_folders())
    if (const std::string program = cache + "/apptainer/bin/apptainer";
        access(program.c_str(), X_OK) == 0)
      return {program, true, false};
  return {};
}

ApptainerInstall prepare_apptainer(Progress progress) {
  if (ApptainerInstall found = find_apptainer(); !found.program.empty()) return found;
  const CacheTurn turn("apptainer");
  if (ApptainerInstall found = find_apptainer(); !found.program.empty()) return found;
  say(progress,
      "fetching Apptainer from suite sid of this machine's package mirror (once, about 40 MB)");
  CommandOptions patient;
  patient.timeout = kBuildPatience;
  const std::vector<std::string> argv{write_recipe() + "/install_apptainer.sh",
                                      cache_folder() + "/apptainer"};
  checked_output("cannot fetch Apptainer (repeat the command, or install Apptainer yourself)", argv,
                 patient);
  return find_apptainer();
}

}  // namespace dynamiccl
