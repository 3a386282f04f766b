#pragma once

#include <map>
#include <string>
#include <vector>

#include "containers/engine.hpp"

namespace dynamiccl {

using Progress = void (*)(const std::string&);

/// The scripts and the package list that make the image and fetch Apptainer, carried by this
/// binary: file name to content.
const std::map<std::string, std::string>& recipe_files();

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
WorkerImage prepare_worker_image(Progress progress);

/// "dynamiccl-worker:ID", or $DYNAMICCL_DOCKER_IMAGE.
std::string engine_image_name();

bool engine_has_image(const Engine& engine);

/// Imports the worker image where the engine lacks it.
/// @throws Error(environment)
void import_image(const Engine& engine, Progress progress);

/// Id (digest of its settings) that the engine gives the image, "" when it has none.
std::string engine_image_id(const Engine& engine);

/// What Apptainer runs: $DYNAMICCL_APPTAINER_IMAGE, else the worker image's rootfs folder (also
/// when it is yet to be made).
std::string apptainer_image();

/// An Apptainer that starts: the installed one, or one fetched into a cache folder.
struct ApptainerInstall {
  std::string program;  ///< "" when there is none yet
  bool fetched = false;
  bool setuid = false;  ///< an ordinary user needs no user namespace
};

ApptainerInstall find_apptainer();

/// Fetches Apptainer where it is missing.
/// @throws Error(environment) with the exact command to repeat
ApptainerInstall prepare_apptainer(Progress progress);

}  // namespace dynamiccl
