#include "containers/image.hpp"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "containers/command.hpp"
#include "core/text.hpp"
#include "support.hpp"

using namespace dynamiccl;

namespace {

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream stream;
  stream << file.rdbuf();
  return stream.str();
}

}  // namespace

TEST_CASE("the binary carries exactly the scripts of the repository") {
  const std::string folder = std::string(DYNAMICCL_SOURCE_DIR) + "/containers/";
  for (const auto& [name, content] : recipe_files())
    CHECK(content == file_text(folder + (name == "packages.txt" ? name : "images/" + name)));
  CHECK(recipe_id().size() == 16);
}

TEST_CASE("Dockerfile, Apptainer definition and script take their packages from the one list") {
  const std::string folder = std::string(DYNAMICCL_SOURCE_DIR) + "/containers/images/";
  for (const char* name : {"Dockerfile", "worker.def", "build_rootfs.sh"}) {
    const std::string text = file_text(folder + name);
    INFO(name);
    CHECK(text.find("$1 == \"image\"") != std::string::npos);
    CHECK(text.find("libgloo0") == std::string::npos);
  }
}

TEST_CASE("scripts are valid shell") {
  const std::string folder = std::string(DYNAMICCL_SOURCE_DIR) + "/containers/";
  for (const char* name :
       {"images/apt.sh", "images/build_rootfs.sh", "images/install_apptainer.sh"})
    CHECK(run_command({"bash", "-n", folder + name}).exit_code == 0);
  for (const char* name : {"scripts/end_container_ranks.sh", "scripts/end_marked_ranks.sh"})
    CHECK(run_command({"sh", "-n", folder + name}).exit_code == 0);
}

TEST_CASE("no script names a mirror: it is read from the machine's own sources") {
  for (const auto& [name, content] : recipe_files()) {
    INFO(name);
    CHECK(content.find("http") == std::string::npos);
  }
}

TEST_CASE("an image in the cache is found without asking any engine") {
  const TempFolder cache;
  const ScopedVariable variable("DYNAMICCL_CACHE", cache.path());
  CHECK(find_worker_image().folder.empty());
  const std::string folder = cache.path() + "/images/" + recipe_id();
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/manifest.json") << R"({"content_sha256": "abc"})";
  CHECK(find_worker_image().folder == folder);
  CHECK(find_worker_image().content_sha256 == "abc");
  std::ofstream(folder + "/manifest.json") << "{half";
  CHECK(find_worker_image().folder.empty());
}

TEST_CASE("people with a registry name their own images") {
  const ScopedVariable docker("DYNAMICCL_DOCKER_IMAGE", "mine:1");
  const ScopedVariable apptainer("DYNAMICCL_APPTAINER_IMAGE", "/mine.sif");
  CHECK(engine_image_name() == "mine:1");
  CHECK(apptainer_image() == "/mine.sif");
}
