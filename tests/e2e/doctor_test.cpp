#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "containers/environment.hpp"
#include "tests/e2e/program.hpp"

using namespace dynamiccl;
using nlohmann::json;

namespace {

/// `doctor ENVIRONMENT --prove` of one cause by one backend with few launches.
json diagnosis(const Program& program, const std::string& environment, const std::string& backend,
               const std::string& cause, const std::string& launches = "3") {
  const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  if (const auto reason = unavailable_reason(profiles.at(environment)))
    SKIP(environment << ": " << *reason);
  const auto result = program.run({"doctor", "--environment", environment, "--backend", backend,
                                   "--prove", "--cause", cause, "--launches", launches, "--json"});
  INFO(result.err);
  REQUIRE(result.exit_code == 4);
  const auto all = json::parse(result.out);
  REQUIRE(all["environments"].size() == 1);
  CHECK(program.processes().empty());
  return all["environments"][0];
}

/// The proof of this cause, where the cause was found.
json proof_of(const json& environment, const std::string& cause) {
  INFO(environment.dump(1));
  for (std::size_t i = 0; i < environment["causes"].size(); ++i)
    if (environment["causes"][i]["cause"] == cause) return environment["proofs"].at(i);
  FAIL("cause " << cause << " was not found");
  return {};
}

/// Both sides ran and were judged. Which verdict a few launches give depends on what else this
/// machine does: `doctor --prove` with more launches is what shows the gain.
void check_judged(const json& proof) {
  CHECK(proof["verdict"] != "SLOWER");
  CHECK(proof["ratio_low"] < 1.0);
}

}  // namespace

TEST_CASE("CMA refused in one container is found, mended and proved with MPICH") {
  const Program program;
  const auto proof = proof_of(
      diagnosis(program, "single-docker-no-cma", "mpich", "cma-blocked", "4"), "cma-blocked");
  INFO(proof.dump(1));
  check_judged(proof);
  CHECK(proof["before"]["used_transport"] != "cma");
  CHECK(proof["before"]["asked_transport"] == "cma");
  CHECK(proof["after"]["used_transport"] == "cma");
  CHECK(program.value("SELECT count(*) FROM v_launch WHERE launch_status = 'ok'") == 8);
}

TEST_CASE("both containers bound to one core are found, mended and proved with Open MPI") {
  const Program program;
  const auto proof =
      proof_of(diagnosis(program, "cross-docker-bound", "openmpi", "one-core", "4"), "one-core");
  INFO(proof.dump(1));
  check_judged(proof);
  CHECK(proof["before"]["launches"] == 4);
}

TEST_CASE("Open MPI on docker0 is found, mended and proved: before, no launch ends") {
  if (!std::filesystem::exists("/sys/class/net/docker0"))
    SKIP("this machine's engine has no docker0");
  const Program program;
  const auto proof = proof_of(
      diagnosis(program, "cross-docker-docker0", "openmpi", "wrong-interface"), "wrong-interface");
  INFO(proof.dump(1));
  CHECK(proof["verdict"] == "FASTER");
  CHECK(proof["after"]["launches"] == 3);
}

TEST_CASE("a /dev/shm of 1 MiB is found, mended and proved with Open MPI") {
  const Program program;
  const auto proof = proof_of(
      diagnosis(program, "single-docker-small-shm", "openmpi", "small-shm", "4"), "small-shm");
  INFO(proof.dump(1));
  check_judged(proof);
}
