#include "containers/image.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "containers/apptainer.hpp"
#include "containers/command.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "support.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

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

TEST_CASE("an image for training is another one, with libtorch") {
  // The wish stays with its process: a process of its own asks.
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::string plain = recipe_id();
    use_training_image();
    const std::string training = recipe_id();
    _exit(plain.size() == 16 && training.size() == 16 && plain != training &&
                  engine_image_name() == "dynamiccl-worker:" + training
              ? 0
              : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
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

TEST_CASE("provenance claims our digest for our image only") {
  const TempFolder cache;
  const ScopedVariable variable("DYNAMICCL_CACHE", cache.path());
  const std::string folder = cache.path() + "/images/" + recipe_id();
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/manifest.json") << R"({"content_sha256": "abc"})";
  auto facts = apptainer_image_facts();
  CHECK(facts["image"] == folder + "/rootfs");
  CHECK(facts["image_source"] == "package mirror");
  CHECK(facts["image_content_sha256"] == "abc");
  {
    std::ofstream(cache.path() + "/mine.sif") << "12345";
    const ScopedVariable named("DYNAMICCL_APPTAINER_IMAGE", cache.path() + "/mine.sif");
    facts = apptainer_image_facts();
    CHECK(facts["image"] == cache.path() + "/mine.sif");
    CHECK(facts["image_source"] == "DYNAMICCL_APPTAINER_IMAGE");
    CHECK(facts["image_content_sha256"].is_null());
    CHECK(facts["image_bytes"] == 5);
  }
  const ScopedVariable host_root("DYNAMICCL_IMAGE_SOURCE", "host-root");
  facts = apptainer_image_facts();
  CHECK(facts["image_source"] == "host-root");
  CHECK(facts["image_content_sha256"].is_null());
}

TEST_CASE("an engine's image has the digest that its own label carries") {
  const TempFolder folder;
  const auto answering = [&](const std::string& answer) {
    std::ofstream(folder.path() + "/answer") << answer;
    Engine engine;
    engine.command = {"sh", "-c", "cat " + folder.path() + "/answer", "docker"};
    return engine_image_facts(engine);
  };
  auto facts = answering(R"(sha256:12 {"Env":null,"Labels":{"dynamiccl.content":"abc"}})");
  CHECK(facts["image"] == "dynamiccl-worker:" + recipe_id());
  CHECK(facts["image_source"] == "package mirror");
  CHECK(facts["image_id"] == "sha256:12");
  CHECK(facts["image_content_sha256"] == "abc");
  const ScopedVariable named("DYNAMICCL_DOCKER_IMAGE", "mine:1");
  for (const char* config : {R"({"Labels":null})", R"({"Labels":{"other":"x"}})", "null", ""}) {
    CAPTURE(config);
    facts = answering(std::string("sha256:34 ") + config);
    CHECK(facts["image_source"] == "DYNAMICCL_DOCKER_IMAGE");
    CHECK(facts["image_id"] == "sha256:34");
    CHECK(facts["image_content_sha256"].is_null());
  }
}

TEST_CASE("a fetched Apptainer is known by its package") {
  const TempFolder cache;
  std::filesystem::create_directories(cache.path() + "/apptainer/bin");
  const ApptainerInstall fetched{cache.path() + "/apptainer/bin/apptainer", true, false};
  CHECK(apptainer_package_facts(fetched).is_null());
  std::ofstream(cache.path() + "/apptainer/manifest.json")
      << R"({"suite": "sid", "packages": {"apptainer": {"version": "1.4.1-2", "sha256": "ef"}}})";
  const auto facts = apptainer_package_facts(fetched);
  CHECK(facts["suite"] == "sid");
  CHECK(facts["version"] == "1.4.1-2");
  CHECK(facts["sha256"] == "ef");
  CHECK(facts["suite_expired"] == false);
  CHECK(apptainer_package_facts({"/usr/bin/apptainer", false, false}).is_null());
}

TEST_CASE("an image that a variable names must be there: nothing is made in its place") {
  const TempFolder cache;
  const ScopedVariable variable("DYNAMICCL_CACHE", cache.path());
  const ScopedVariable named("DYNAMICCL_APPTAINER_IMAGE", cache.path() + "/no.sif");
  try {
    prepare_apptainer_environment({});
    FAIL("a missing image was taken");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::environment);
    CHECK_THAT(error.what(), ContainsSubstring(cache.path() + "/no.sif") &&
                                 ContainsSubstring("DYNAMICCL_APPTAINER_IMAGE") &&
                                 ContainsSubstring("worker.def"));
  }
  CHECK(std::filesystem::is_empty(cache.path()));
}

TEST_CASE("what the mirror does not give is told from what broke here") {
  const std::string script =
      std::string(DYNAMICCL_SOURCE_DIR) + "/containers/images/install_apptainer.sh";
  if (find_program("patchelf").empty()) SKIP("needs patchelf: apt-get install patchelf");
  const TempFolder folder;
  // A mirror is in the sources, and every download ends with what `says`.
  const auto fetch = [&](const std::string& says, const std::string& before = "") {
    const std::string bin = folder.path() + "/bin";
    std::filesystem::create_directories(bin);
    std::ofstream(bin + "/apt-get")
        << "#!/bin/sh\ncase \"$1\" in indextargets) echo "
           "'http://mirror.invalid/debian|stable|main|Debian|/nowhere:1'; exit 0 ;; esac\n"
        << before << "echo '" + says + "'\nexit 100\n";
    std::filesystem::permissions(bin + "/apt-get", std::filesystem::perms(0755));
    CommandOptions options;
    options.environment = {{"PATH", bin + ":" + std::getenv("PATH")}};
    return run_command({script, folder.path() + "/apptainer"}, options);
  };
  const auto unreachable = fetch("E: Could not connect");
  INFO(unreachable.err);
  CHECK(unreachable.exit_code == 69);
  CHECK_THAT(unreachable.err, ContainsSubstring("suite sid") && ContainsSubstring("not connect"));
  CHECK(fetch("E: Write error - write (28: No space left on device)").exit_code == 1);

  // A mirror that was not renewed for long: its signature still counts, its age does not.
  const auto stale = fetch(
      "E: Unable to fetch some archives",
      "case \"$*\" in *Check-Valid-Until=false*update) exit 0 ;; *update) echo 'E: Release file "
      "for "
      "http://mirror.invalid/debian/dists/sid/InRelease is expired (invalid since 15d). More.'; "
      "exit 100 ;; esac\n");
  CHECK(stale.exit_code == 69);
  CHECK_THAT(stale.err, ContainsSubstring("is expired (invalid since 15d): taken as it is") &&
                            ContainsSubstring("cannot fetch apptainer: E: Unable to fetch"));
  CHECK(run_command({script, "/proc/nowhere/apptainer"}).exit_code == 1);
}
