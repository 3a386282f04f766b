#pragma once

#include <map>
#include <string>
#include <vector>

#include "containers/engine.hpp"
#include "containers/progress.hpp"
#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// The scripts and the package list that make the image and fetch Apptainer, carried by this
/// binary: file name to content.
const std::map<std::string, std::string>& recipe_files();

/// From now on this process's worker image also holds what trainers load (libtorch, OpenBLAS): an
/// image of its own, so that nobody else waits for it.
void use_training_image();

/// Id of the image these files make on this release and architecture: 16 hexadecimal digits.
std::string recipe_id();

/// One worker image on disk: rootfs.tar (Docker, Podman), rootfs/ (Apptainer), manifest.json.
struct WorkerImage {
  std::string folder;          ///< "" when there is none yet
  std::string content_sha256;  ///< of rootfs.tar
};

/// Looks in every cache folder.
WorkerImage find_worker_image();

/// Builds the image where it is missing; processes that ask at the same time wait for one build.
/// @throws Error(environment)
WorkerImage prepare_worker_image(const Progress& progress);

/// "dynamiccl-worker:ID", or $DYNAMICCL_DOCKER_IMAGE.
std::string engine_image_name();

bool engine_has_image(const Engine& engine);

/// The worker image as an engine takes it: `import FLAGS... FILE engine_image_name()`.
struct ImageArchive {
  std::string file;  ///< a tar
  std::vector<std::string> flags;
};

/// Makes the archive where it is missing.
/// @throws Error(environment), also where DYNAMICCL_DOCKER_IMAGE names an image, which is nobody's
/// to make
ImageArchive prepare_image_archive(const std::string& engine, const Progress& progress);

/// Imports the worker image where the engine lacks it.
/// @throws Error(environment)
void import_image(const Engine& engine, const Progress& progress);

/// Id (digest of its settings) that the engine gives the image, "" when it has none.
std::string engine_image_id(const Engine& engine);

/// What is known of the image an engine runs, for provenance: image, image_source (a worker image
/// of ours, this machine's own files, or the variable that names another), image_id and
/// image_content_sha256, which only an image of ours carries (a label); null otherwise.
/// @param named the image that a profile names, "" = none
nlohmann::json engine_image_facts(const Engine& engine, const std::string& named = "");

/// What Apptainer runs: $DYNAMICCL_APPTAINER_IMAGE, else the worker image's rootfs folder (also
/// when it is yet to be made).
std::string apptainer_image();

/// $DYNAMICCL_APPTAINER_IMAGE, "" when it is not set or the machine's own files are used.
std::string named_apptainer_image();

/// The same facts of Apptainer's image; image_bytes of a named file instead of an id.
nlohmann::json apptainer_image_facts();

/// An Apptainer that starts: the installed one, or one fetched into a cache folder.
struct ApptainerInstall {
  std::string program;  ///< "" when there is none yet
  bool fetched = false;
  bool setuid = false;  ///< an ordinary user needs no user namespace
};

ApptainerInstall find_apptainer();

/// True for a user who can only make user namespaces (not root, no setuid Apptainer): such a user
/// runs a profile's unprivileged_variant, see profile_for_user().
bool only_user_namespaces();

/// Fetches Apptainer where it is missing.
/// @throws UnsupportedError when this machine's mirror does not give it, Error(environment) when
/// the fetch broke; both with the exact command to repeat
ApptainerInstall prepare_apptainer(const Progress& progress);

/// Suite, version and SHA-256 of the package that a fetched Apptainer comes from; null for one that
/// was installed here.
nlohmann::json apptainer_package_facts(const ApptainerInstall& install);

}  // namespace dynamiccl
