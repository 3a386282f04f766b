#include "containers/image.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "containers/command.hpp"
#include "containers/host_root.hpp"
#include "containers/paths.hpp"
#include "containers/unsupported.hpp"
#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_descriptor.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "embedded/apt_sh.hpp"
#include "embedded/build_rootfs_sh.hpp"
#include "embedded/install_apptainer_sh.hpp"
#include "embedded/packages_txt.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::minutes kBuildTimeout{20};
constexpr const char* kContentLabel = "dynamiccl.content";
/// install_apptainer.sh: the mirror does not give Apptainer (EX_UNAVAILABLE of sysexits.h).
constexpr int kUnavailable = 69;

/// One at a time makes a thing in the cache; the others wait and find it made.
class CacheTurn {
 public:
  /// @throws Error(environment) when the cache cannot be written or the wait is interrupted
  CacheTurn(const std::string& name, const Progress& progress) {
    std::error_code code;
    fs::create_directories(cache_folder(), code);
    const std::string path = cache_folder() + "/" + name + ".lock";
    handle_ = FileDescriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!handle_.valid())
      throw Error(ErrorKind::environment,
                  fmt::format("cannot write to the cache folder {}: {}; set DYNAMICCL_CACHE to a "
                              "folder you may write to",
                              cache_folder(), std::strerror(errno)));
    while (flock(handle_.get(), LOCK_EX | LOCK_NB) != 0 &&
           (errno == EINTR || errno == EWOULDBLOCK)) {
      if (progress.interrupted != nullptr && progress.interrupted())
        throw Error(ErrorKind::environment,
                    fmt::format("interrupted while another process made the {}", name));
      usleep(100000);
    }
  }

 private:
  FileDescriptor handle_;
};

std::string os_release() {
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("VERSION_CODENAME=", 0) == 0) return line;
  return "";
}

/// Set once, before the first environment starts.
bool image_trains = false;

/// The package list with the packages of the wanted image in the group `image`.
std::string image_packages() {
  std::string text;
  for (const std::string& line : split(recipe_files().at("packages.txt"), '\n')) {
    constexpr std::string_view kTraining = "image-train ";
    const bool added = image_trains && line.rfind(kTraining, 0) == 0;
    text += (added ? "image " + line.substr(kTraining.size()) : line) + "\n";
  }
  return text;
}

/// Writes the scripts next to what they make, so that a binary copied elsewhere still can.
std::string write_recipe() {
  std::string folder = cache_folder() + "/recipe-" + recipe_id();
  std::error_code code;
  fs::create_directories(folder, code);
  for (const auto& [name, content] : recipe_files()) {
    const std::string path = fmt::format("{}/{}", folder, name);
    std::ofstream file(path);
    file << (name == "packages.txt" ? image_packages() : content);
    file.close();
    if (!file || chmod(path.c_str(), 0755) != 0)
      throw Error(ErrorKind::environment,
                  fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  }
  return folder;
}

std::string image_folder(const std::string& cache) { return cache + "/images/" + recipe_id(); }

std::string content_sha256(const std::string& folder) {
  const auto manifest = json_or_discarded(file_text(folder + "/manifest.json"));
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

void say(const Progress& progress, const std::string& line) {
  if (progress.say != nullptr) progress.say(line);
}

CommandOptions patient(const Progress& progress) {
  CommandOptions options;
  options.timeout = kBuildTimeout;
  options.interrupted = progress.interrupted;
  return options;
}

std::string own_image_name() { return "dynamiccl-worker:" + recipe_id(); }

struct EngineImage {
  std::string id;                 ///< "" when the engine has no such image
  nlohmann::json content_sha256;  ///< of rootfs.tar; null when it is no image of ours
};

EngineImage look_at_image(const Engine& engine, const std::string& name = engine_image_name()) {
  const CommandResult result = run_command(
      engine_argv(engine, {"image", "inspect", "--format", "{{.Id}} {{json .Config}}", name}));
  EngineImage image;
  if (result.exit_code != 0) return image;
  const std::string text(trim(result.out));
  image.id = text.substr(0, text.find(' '));
  const auto config = json_or_discarded(text.substr(std::min(image.id.size() + 1, text.size())));
  const auto label = nlohmann::json::json_pointer(std::string("/Labels/") + kContentLabel);
  if (config.is_object() && config.contains(label)) image.content_sha256 = config[label];
  return image;
}

/// Where an image comes from, in words for provenance.
std::string image_source(const char* variable, bool named) {
  if (host_root_wanted()) return "host-root";
  return named ? variable : "package mirror";
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

void use_training_image() { image_trains = true; }

std::string recipe_id() {
  static std::map<bool, std::string> ids;
  std::string& id = ids[image_trains];
  if (!id.empty()) return id;
  std::string packages;
  for (const std::string& line : split(image_packages(), '\n'))
    if (line.rfind("image ", 0) == 0) packages += line + "\n";
  id = stable_id(recipe_files().at("build_rootfs.sh") + recipe_files().at("apt.sh") + packages +
                 os_release());
  return id;
}

WorkerImage find_worker_image() {
  for (const std::string& cache : cache_folders())
    if (const std::string sum = content_sha256(image_folder(cache)); !sum.empty())
      return {image_folder(cache), sum};
  return {};
}

WorkerImage prepare_worker_image(const Progress& progress) {
  if (WorkerImage image = find_worker_image(); !image.folder.empty()) return image;
  const CacheTurn turn("image", progress);
  if (WorkerImage image = find_worker_image(); !image.folder.empty()) return image;
  say(progress,
      image_trains
          ? "making the worker image for training from this machine's package mirror "
            "(once, a few minutes, 2 GB on disk)"
          : "making the worker image from this machine's package mirror (once, about 30 s)");
  checked_output("cannot make the worker image",
                 {write_recipe() + "/build_rootfs.sh", image_folder(cache_folder())},
                 patient(progress));
  return find_worker_image();
}

std::string engine_image_name() {
  if (host_root_wanted()) return kHostRootImage;
  return environment_or("DYNAMICCL_DOCKER_IMAGE", own_image_name());
}

std::string engine_image_id(const Engine& engine) { return look_at_image(engine).id; }

nlohmann::json engine_image_facts(const Engine& engine, const std::string& named) {
  const std::string name = named.empty() ? engine_image_name() : named;
  const EngineImage image = look_at_image(engine, name);
  const std::string source = image_source("DYNAMICCL_DOCKER_IMAGE", name != own_image_name());
  return {{"image", name},
          {"image_source", named.empty() ? source : "the profile's key image"},
          {"image_id", image.id},
          {"image_content_sha256", image.content_sha256}};
}

bool engine_has_image(const Engine& engine) { return !engine_image_id(engine).empty(); }

ImageArchive prepare_image_archive(const std::string& engine, const Progress& progress) {
  if (host_root_wanted()) {
    make_host_root();
    const std::string tar = cache_folder() + "/host-root.tar";
    checked_output("cannot pack the host-root image",
                   {"tar", "-C", host_root_folder(), "-cf", tar, "."}, patient(progress));
    return {tar, {}};
  }
  if (engine_image_name() != own_image_name())
    throw Error(ErrorKind::environment,
                fmt::format("{} has no image {}, which DYNAMICCL_DOCKER_IMAGE names: build it from "
                            "containers/images/Dockerfile, or unset the variable",
                            engine, engine_image_name()));
  const WorkerImage image = prepare_worker_image(progress);
  return {image.folder + "/rootfs.tar",
          {"--change", fmt::format("LABEL {}={}", kContentLabel, image.content_sha256)}};
}

void import_image(const Engine& engine, const Progress& progress) {
  if (engine_has_image(engine)) return;
  const ImageArchive archive = prepare_image_archive(engine.name(), progress);
  if (!host_root_wanted())
    say(progress,
        fmt::format("importing the worker image into {} (once, a few seconds)", engine.name()));
  std::vector<std::string> argv = engine_argv(engine, {"import"});
  argv.insert(argv.end(), archive.flags.begin(), archive.flags.end());
  argv.insert(argv.end(), {archive.file, engine_image_name()});
  checked_output("cannot import the worker image", argv, patient(progress));
}

std::string named_apptainer_image() {
  return host_root_wanted() ? "" : environment_or("DYNAMICCL_APPTAINER_IMAGE", "");
}

std::string apptainer_image() {
  if (host_root_wanted()) return host_root_folder();
  if (std::string named = named_apptainer_image(); !named.empty()) return named;
  const WorkerImage image = find_worker_image();
  return (image.folder.empty() ? image_folder(cache_folder()) : image.folder) + "/rootfs";
}

nlohmann::json apptainer_image_facts() {
  const std::string named = named_apptainer_image();
  const bool ours = named.empty() && !host_root_wanted();
  const std::string sum = ours ? find_worker_image().content_sha256 : "";
  nlohmann::json facts = {
      {"image", apptainer_image()},
      {"image_source", image_source("DYNAMICCL_APPTAINER_IMAGE", !named.empty())},
      {"image_content_sha256", sum.empty() ? nlohmann::json() : nlohmann::json(sum)}};
  std::error_code code;
  if (!named.empty() && fs::is_regular_file(named, code))
    facts["image_bytes"] = fs::file_size(named, code);
  return facts;
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

bool only_user_namespaces() { return !is_root() && !find_apptainer().setuid; }

ApptainerInstall prepare_apptainer(const Progress& progress) {
  if (ApptainerInstall found = find_apptainer(); !found.program.empty()) return found;
  const CacheTurn turn("apptainer", progress);
  if (ApptainerInstall found = find_apptainer(); !found.program.empty()) return found;
  say(progress,
      "fetching Apptainer from suite sid of this machine's package mirror (once, about 40 MB)");
  const std::vector<std::string> argv{write_recipe() + "/install_apptainer.sh",
                                      cache_folder() + "/apptainer"};
  const CommandOptions options = patient(progress);
  const CommandResult result = run_command(argv, options);
  if (!result.interrupted && !result.timed_out && result.exit_code == 0) {
    if (const auto note = trim(result.err); !note.empty()) say(progress, std::string(note));
    return find_apptainer();
  }
  const Error failure =
      command_failure("cannot fetch Apptainer (repeat the command, or install Apptainer yourself)",
                      argv, options, result);
  if (result.exit_code == kUnavailable) throw UnsupportedError(failure.what());
  throw failure;
}

nlohmann::json apptainer_package_facts(const ApptainerInstall& install) {
  if (!install.fetched) return nullptr;
  const auto folder = fs::path(install.program).parent_path().parent_path();
  const auto manifest = json_or_discarded(file_text(folder / "manifest.json"));
  const nlohmann::json::json_pointer package("/packages/apptainer");
  if (!manifest.is_object() || !manifest.contains(package)) return nullptr;
  nlohmann::json facts = manifest[package];
  facts["suite"] = manifest.value("suite", "");
  facts["suite_expired"] = manifest.value("expired", false);
  return facts;
}

}  // namespace dynamiccl
