#include "profiles/profile.hpp"

#include <unistd.h>

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/vocabulary/json.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr const char* kCross = R"(name = "x"
kind = "cross-docker"
ranks_per_container = 1
network = "private"
ipc = "private"
uts = "private"
pid = "private"
shm_size = "64MiB"
capabilities = [{ name = "SYS_PTRACE", reason = "CMA" }]
)";

std::string error_of(const std::string& text) {
  try {
    parse_profile(text, "p.toml");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "accepted";
}

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("dynamiccl-profiles-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string folder(const std::string& name) const {
    std::filesystem::create_directories(path_ / name);
    return (path_ / name).string();
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("a profile's keys become its fields") {
  const auto profile = parse_profile(
      std::string(kCross) +
          "gpus = \"one-per-rank\"\nlink_bits_per_s = 1e9\n[environment]\nA = \"b\"\n" +
          "[[backend.openmpi]]\nname = \"mca.btl_tcp_if_include\"\nvalue = \"{subnet}\"\nreason = "
          "\"r\"\n",
      "p.toml");
  CHECK(profile.name == "x");
  CHECK(profile.kind == EnvironmentKind::cross_docker);
  CHECK(profile.ranks_per_container == 1);
  CHECK(profile.ipc == Sharing::private_);
  CHECK(profile.shm_size == Bytes(std::uint64_t{64} << 20));
  REQUIRE(profile.capabilities.size() == 1);
  CHECK(profile.capabilities[0].reason == "CMA");
  CHECK(profile.gpus == GpuVisibility::one_per_rank);
  CHECK(profile.link_bits_per_s == 1e9);
  CHECK(profile.environment.at("A") == "b");
  CHECK(profile.backend_settings.at(Backend::openmpi)[0].value == "{subnet}");
}

TEST_CASE("privileged stands for capabilities and security options that it gives one by one") {
  const auto profile = parse_profile(
      std::string(kCross) + "privileged = true\nsecurity_options = [\"seccomp=unconfined\"]\n",
      "p.toml");
  CHECK(profile.security_options ==
        std::vector<std::string>{"seccomp=unconfined", "apparmor=unconfined"});
  std::set<std::string> names;
  for (const auto& capability : profile.capabilities) CHECK(names.insert(capability.name).second);
  CHECK(names.contains("SYS_ADMIN"));
  CHECK_FALSE(names.contains("CHOWN"));  // which every container has
  CHECK(profile.capabilities.at(0).reason == "CMA");
  CHECK(parse_profile(std::string(kCross) + "privileged = false\n", "p.toml").capabilities.size() ==
        1);
}

TEST_CASE("a wrong profile is refused with its place, the reason and the nearest word") {
  struct Case {
    std::string text;
    const char* expected;
  };
  const std::string cross = kCross;
  const Case cases[] = {
      {cross + "netwrok = \"host\"\n",
       "p.toml:10:1: unknown key \"netwrok\"; known: backend, capabilities"},
      {cross + "netwrok = \"host\"\n", "Did you mean \"network\"?"},
      {"name = \"x\"\nkind = \"cross-doker\"\n", "Did you mean \"cross-docker\"?"},
      {"kind = \"bare-metal\"\n", "the file needs the key name: what experiments call it"},
      {"name = \"x\"\n", "the profile needs the key kind or extends; kinds: bare-metal"},
      {"name = \"x\"\nkind = \"bare-metal\"\nipc = \"private\"\n",
       "p.toml:3:7: profile \"x\" (bare-metal): \"ipc\" must be \"host\""},
      {"name = \"x\"\nkind = \"bare-metal\"\nshm_size = \"1GiB\"\n", "needs a /dev/shm"},
      {"name = \"x\"\nkind = \"singularity\"\nranks_per_container = 1\nipc = \"shared\"\n",
       "p.toml:4:7: profile \"x\" (singularity): \"ipc\" cannot be \"shared\""},
      {"name = \"x\"\nkind = \"single-docker\"\n", "\"launcher\" must be \"inside\""},
      {cross + "launcher = \"inside\"\n", "\"launcher\" must be \"outside\""},
      {"name = \"x\"\nkind = \"cross-docker\"\n", "\"ranks_per_container\" must be at least 1"},
      {"name = \"x\"\nkind = \"cross-docker\"\nranks_per_container = -1\n",
       "p.toml:3:23: ranks_per_container: expected a whole number 0..65536, found the number -1"},
      {"name = \"x\"\nkind = \"cross-docker\"\nranks_per_container = 1\nlink_bits_per_s = 1e9\n",
       "p.toml:4:19: profile \"x\" (cross-docker): a link rate needs containers with network "
       "links"},
      {"name = \"x\"\nkind = \"cross-docker\"\nranks_per_container = 1\nlink_bits_per_s = 5\n",
       "expected a number 8000..1e+13, found the number 5"},
      {"name = \"x\"\nkind = \"single-docker\"\ncapabilities = [{ name = \"SYS_PTRACE\" }]\n",
       "p.toml:3:17: [capabilities] needs the key reason"},
      {"name = \"x\"\nkind = \"single-docker\"\ncapabilities = [{ name = \"SYS_PTRAC\", reason = "
       "\"r\" }]\n",
       "did you mean \"SYS_PTRACE\"?"},
      {"name = \"x\"\nkind = \"single-docker\"\ncapabilities = [{ name = \"ALL\", reason = \"r\" "
       "}]\n",
       "a container gets no ALL"},
      {"name = \"x\"\nkind = \"single-docker\"\nsecurity_options = [\"privileged\"]\n",
       "unknown security option \"privileged\""},
      {cross + "[[backend.mpich]]\nname = \"mca.btl\"\nvalue = \"tcp\"\nreason = \"r\"\n",
       "\"mca.btl\" is an Open MPI parameter, but the backend is mpich"},
      {cross + "[[backend.openmpi]]\nname = \"mca.btl\"\nvalue = \"{subnett}\"\nreason = \"r\"\n",
       "p.toml:12:9: unknown placeholder \"{subnett}\"; known: subnet, interface, host_address, "
       "run_folder, program_folder. Did you mean \"subnet\"?"},
      {cross + "[[backend.gloo]]\nname = \"malloc.keep\"\nvalue = \"64MiB\"\nreason = \"r\"\n",
       "malloc keep is \"64MiB\": expected true or false"},
      {cross + "[[backend.gloo]]\nname = \"malloc.kepp\"\nvalue = \"true\"\nreason = \"r\"\n",
       "Did you mean \"keep\"?"},
      {cross + "[[backend.gloo]]\nname = \"call.segment\"\nvalue = \"1\"\nreason = \"r\"\n",
       "p.toml:11:8: \"call.segment\" is neither an environment variable nor \"mca.PARAMETER\" nor "
       "\"malloc.SETTING\""},
      {cross + "[[backend.opnmpi]]\nname = \"A\"\nvalue = \"b\"\nreason = \"r\"\n",
       "Did you mean \"openmpi\"?"},
      {cross + "[environment]\n\"9A\" = \"b\"\n", "\"9A\" is no environment variable name"},
      {"name = \"x\"\nkind = \"cross-docker\"\nshm_size = 1\n",
       "p.toml:3:12: \"shm_size\" is 1 B; at least 4 KiB"},
      {cross + "shm_size = \"1MiB\"\n", "p.toml:10:12: "},
      {"name = \"x\"\nextends = \"bare-metal\"\n", "unknown profile \"bare-metal\" to extend"},
      {"name = \"x\"\nkind = \"bare-metal\"\nuser = \"private\"\n", "\"user\" must be \"host\""},
      {"name = 3\n", "p.toml:1:8: name: expected a text in quotes, found the number 3"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    CHECK_THAT(error_of(c.text), ContainsSubstring(c.expected));
  }
}

TEST_CASE("all mistakes of a profile are told at once") {
  CHECK(error_of("name = \"x\"\nkind = \"bare-metal\"\nnetwrok = \"host\"\nipc = 3\n"
                 "capabilities = [{ name = \"ALL\", reason = \"r\" }]\n[[backend.gloo]]\nname = "
                 "\"9A\"\nvalue = \"{net}\"\nreason = \"r\"\n")
            .find("p.toml:3:1: ") == 0);
  const std::string all = error_of(
      "name = \"x\"\nkind = \"bare-metal\"\nnetwrok = \"host\"\nipc = 3\n[[backend.gloo]]\n"
      "name = \"9A\"\nvalue = \"{net}\"\nreason = \"r\"\n");
  for (const char* part : {"p.toml:3:1: unknown key", "\np.toml:4:7: ipc: expected a name",
                           "\np.toml:6:8: \"9A\"", "\np.toml:7:9: unknown placeholder"})
    CHECK_THAT(all, ContainsSubstring(part));
}

TEST_CASE("settings in the first spelling read as those of today, with a note") {
  const auto text = [](const char* between) {
    std::string all = kCross;
    for (const char* setting : {"mca{}btl", "malloc{}keep"})
      all += fmt::format("[[backend.openmpi]]\nname = \"{}\"\nvalue = \"true\"\nreason = \"r\"\n",
                         fmt::format(fmt::runtime(setting), between));
    return all + "[[backend.gloo]]\nname = \"GLOO_X\"\nvalue = \"1\"\nreason = \"r\"\n";
  };
  std::vector<std::string> notes;
  const auto today = parse_profile(text("."), "p.toml", {}, &notes);
  CHECK(notes == std::vector<std::string>{});
  const auto first = parse_profile(text(":"), "p.toml", {}, &notes);
  CHECK(notes ==
        std::vector<std::string>{
            "p.toml:11:8: \"mca:btl\" is an old spelling that still reads: write \"mca.btl\"",
            "p.toml:15:8: \"malloc:keep\" is an old spelling that still reads: write "
            "\"malloc.keep\""});
  CHECK(to_json(first) == to_json(today));
  CHECK(to_toml_keys(first) == to_toml_keys(today));
  CHECK_THAT(to_toml_keys(first), ContainsSubstring("name = \"mca.btl\""));
  // Stored rows and ids of every version are alike, whatever was written.
  CHECK_THAT(to_json(today), ContainsSubstring("\"name\":\"mca:btl\""));
  CHECK(to_json(profile_from_json(to_json(today))) == to_json(today));
  const auto shown = shown_profile(nlohmann::json::parse(to_json(today)));
  CHECK(shown["backend"]["openmpi"][0]["name"] == "mca.btl");
  CHECK(shown["backend"]["gloo"][0]["name"] == "GLOO_X");
  CHECK(to_json(profile_from_json(shown.dump())) == to_json(today));
  for (const char* other : {"{}", "[]", "null", R"({"backend":{"gloo":[{"name":1}]}})"})
    CHECK(shown_profile(nlohmann::json::parse(other)) == nlohmann::json::parse(other));
}

TEST_CASE("a profile extends another and merges its settings by name") {
  const TemporaryFolder temporary;
  const std::string first = temporary.folder("first");
  const std::string second = temporary.folder("second");
  const std::string setting =
      "[[backend.openmpi]]\nname = \"mca.a\"\nvalue = \"1\"\nreason = \"r\"\n";
  temporary.write("first/base.toml", std::string(kCross) + setting);
  temporary.write("first/child.toml",
                  "name = \"child\"\nextends = \"x\"\nnetwork = \"host\"\ncapabilities = []\n"
                  "[[backend.openmpi]]\nname = \"mca.a\"\nvalue = \"2\"\nreason = \"r\"\n"
                  "[[backend.openmpi]]\nname = \"mca.b\"\nvalue = \"3\"\nreason = \"r\"\n");
  // The same name in a later folder refines the earlier one.
  temporary.write("second/x.toml", "name = \"x\"\nextends = \"x\"\nuts = \"host\"\n");
  const auto profiles = load_profiles({first, second});
  REQUIRE(profiles.size() == 2);
  const auto& child = profiles.at("child");
  CHECK(child.network == Sharing::host);
  CHECK(child.ipc == Sharing::private_);
  CHECK(child.capabilities.empty());
  const auto& settings = child.backend_settings.at(Backend::openmpi);
  REQUIRE(settings.size() == 2);
  CHECK(settings[0].value == "2");
  CHECK(profiles.at("x").uts == Sharing::host);
  CHECK(profiles.at("x").capabilities.size() == 1);
}

TEST_CASE("profiles that extend each other in a circle, or share a name, are refused") {
  const TemporaryFolder temporary;
  const std::string folder = temporary.folder("circle");
  temporary.write("circle/a.toml", "name = \"a\"\nextends = \"b\"\n");
  temporary.write("circle/b.toml", "name = \"b\"\nextends = \"a\"\n");
  CHECK_THROWS_WITH(load_profiles({folder}), ContainsSubstring("in a circle: a -> b -> a"));
  const std::string twice = temporary.folder("twice");
  temporary.write("twice/a.toml", kCross);
  temporary.write("twice/b.toml", kCross);
  CHECK_THROWS_WITH(load_profiles({twice}), ContainsSubstring("is already defined by"));
  CHECK_THROWS_WITH(load_profiles({"/nonexistent"}), ContainsSubstring("/nonexistent"));
}

TEST_CASE("the canonical text of a profile is JSON and the same for equal profiles") {
  const auto profile = parse_profile(kCross, "p.toml");
  const auto json = nlohmann::json::parse(to_json(profile));
  CHECK(json.at("shm_size_bytes") == 64 * 1024 * 1024);
  CHECK(json.at("link_bits_per_s").is_null());
  CHECK(to_json(profile) == to_json(parse_profile(kCross, "other.toml")));
  CHECK(to_json(profile_from_json(to_json(profile))) == to_json(profile));
}

namespace {

NamespacePromise find(const ProfilePromise& promise, const std::string& name) {
  for (const auto& promised : promise.namespaces)
    if (promised.name == name) return promised;
  FAIL("no promise on " << name);
  return NamespacePromise{};
}

}  // namespace

TEST_CASE("a promise says which namespaces are the host's and which the ranks share") {
  const auto cross = promise_of(parse_profile(kCross, "p.toml"));
  CHECK(cross.runtimes == std::vector<std::string>{"docker", "podman"});
  CHECK(cross.containers(4) == 4);
  CHECK(find(cross, "net").with_host == false);
  CHECK(find(cross, "net").between_ranks == false);
  CHECK(find(cross, "shm").between_ranks == false);
  CHECK(find(cross, "user").with_host == std::nullopt);
  const auto bare = promise_of(parse_profile("name = \"b\"\nkind = \"bare-metal\"\n", "p.toml"));
  CHECK(bare.containers(4) == 0);
  CHECK(find(bare, "mnt").with_host == true);
  const auto single = promise_of(parse_profile(
      "name = \"s\"\nkind = \"single-docker\"\nlauncher = \"inside\"\nnetwork = \"private\"\n"
      "ipc = \"private\"\n",
      "p.toml"));
  CHECK(single.containers(4) == 1);
  CHECK(find(single, "ipc").with_host == false);
  CHECK(find(single, "ipc").between_ranks == true);
  CHECK(find(single, "uts").with_host == true);
}

TEST_CASE("CPUs are a key of containers, and without them the canonical text is as before") {
  const auto plain = parse_profile(kCross, "p.toml");
  CHECK(to_json(plain).find("cpu") == std::string::npos);
  CHECK_FALSE(promise_of(plain).binding_is_its_own);
  const auto bound =
      parse_profile(std::string(kCross) + "cpus = \"0-1\"\ncpu_limit = 0.5\n", "p.toml");
  CHECK(bound.cpus == "0-1");
  CHECK(bound.cpu_limit == 0.5);
  CHECK(promise_of(bound).binding_is_its_own);
  CHECK_THAT(to_json(bound), ContainsSubstring("\"cpus\":\"0-1\""));
  CHECK_THAT(error_of(std::string(kCross) + "cpus = \"all\"\n"),
             ContainsSubstring("expected CPU numbers as in \"0-3,8\""));
  CHECK_THAT(error_of("name = \"b\"\nkind = \"bare-metal\"\ncpus = \"0\"\n"),
             ContainsSubstring("CPUs are given to Docker or Podman containers only"));
}

TEST_CASE("what an engine gives its containers besides is keys, and no others change an id") {
  const auto plain = parse_profile(kCross, "p.toml");
  CHECK(to_json(plain).find("\"options\"") == std::string::npos);
  const auto given =
      parse_profile(std::string(kCross) +
                        "memory = \"64MiB\"\npids = 64\nulimits = [\"nofile=64:128\"]\nmtu = 576\n"
                        "image = \"reg.example/a:1\"\nmounts = [\"/data:/data:ro\"]\n"
                        "docker_args = [\"--hostname\", \"a\"]\n",
                    "p.toml");
  CHECK(given.options.memory == Bytes(64U << 20));
  CHECK(given.options.docker_args == std::vector<std::string>{"--hostname", "a"});
  CHECK(profile_from_json(to_json(given)).options == given.options);
  // Written as TOML they read as the same.
  CHECK(parse_profile("name = \"cross-docker\"\n" + to_toml_keys(given), "q.toml").options ==
        given.options);
  const auto refused = [](const std::string& line) { return error_of(kCross + line + "\n"); };
  CHECK_THAT(refused("memory = 4096"), ContainsSubstring("memory"));
  CHECK_THAT(refused("ulimits = [\"64\"]"), ContainsSubstring("a limit as in \"nofile=64\""));
  CHECK_THAT(refused("mounts = [\"data:/data\"]"), ContainsSubstring("\"/FROM:/TO:ro\""));
  CHECK_THAT(refused("docker_args = [\"--user\", \"1000\"]"),
             ContainsSubstring("\"--user\" is DynamICCL's own"));
  CHECK_THAT(refused("docker_args = [\"--name=x\"]"), ContainsSubstring("is DynamICCL's own"));
  for (const char* words :
       {"\"--privileged\"", "\"--privileged=true\"", "\"--sysctl\", \"a=1\", \"--privileged=1\""})
    CHECK_THAT(refused(fmt::format("docker_args = [{}]", words)),
               ContainsSubstring("no container is started with --privileged"));
  for (const char* words : {"\"-u0\"", "\"-u=0\"", "\"-Pu0\"", "\"-itd\"", "\"--label-file=x\""})
    CHECK_THAT(refused(fmt::format("docker_args = [{}]", words)),
               ContainsSubstring("is DynamICCL's own"));
  for (const char* words :
       {"\"--cap-add\", \"ALL\"", "\"--cap-add=ALL\"", "\"-v/:/host\"", "\"-v\", \"/:/host\"",
        "\"--pid=host\"", "\"--security-opt\", \"seccomp=unconfined\"", "\"--net=host\""})
    CHECK_THAT(refused(fmt::format("docker_args = [{}]", words)),
               ContainsSubstring("is what the key"));
  CHECK_THAT(refused("docker_args = [\"--use-api-socket\"]"), ContainsSubstring("socket"));
  for (const char* words :
       {"\"other-image\"", "\"--dns=1.1.1.1\", \"other-image\"", "\"--dns\", \"1.1.1.1\", \"sh\""})
    CHECK_THAT(refused(fmt::format("docker_args = [{}]", words)),
               ContainsSubstring("for an image"));
  // A stored launch is replayed by its profile: it may be somebody else's.
  auto stored = to_json(given);
  stored.replace(stored.find("--hostname"), 10, "--privileged");
  CHECK_THROWS_WITH(profile_from_json(stored), ContainsSubstring("--privileged"));
  CHECK_THAT(error_of("name = \"b\"\nkind = \"bare-metal\"\npids = 64\n"),
             ContainsSubstring("Docker or Podman containers only"));
  CHECK_THAT(error_of("name = \"s\"\nkind = \"single-docker\"\nlauncher = \"inside\"\nmtu = 576\n"),
             ContainsSubstring("an MTU needs a network of the containers' own"));
}

TEST_CASE("one memory folder for all containers is a key, and /dev/shm is then the machine's") {
  const auto plain = parse_profile(kCross, "p.toml");
  CHECK(to_json(plain).find("tmpfs") == std::string::npos);
  CHECK(find(promise_of(plain), "shm").between_ranks == false);
  auto shared = parse_profile(std::string(kCross) + "shared_tmpfs = \"/run/job\"\n", "p.toml");
  CHECK(shared.shared_tmpfs == "/run/job");
  CHECK(find(promise_of(shared), "shm").between_ranks == false);
  CHECK(to_json(profile_from_json(to_json(shared))) == to_json(shared));
  CHECK_THAT(to_toml_keys(shared), ContainsSubstring("shared_tmpfs = \"/run/job\"\n"));
  const std::string at_shm = std::string(kCross) + "shared_tmpfs = \"/dev/shm\"\n";
  CHECK_THAT(error_of(at_shm), ContainsSubstring("no container has its own"));
  std::string unsized = at_shm;
  unsized.erase(unsized.find("shm_size"), std::string_view("shm_size = \"64MiB\"\n").size());
  CHECK(find(promise_of(parse_profile(unsized, "p.toml")), "shm").with_host == true);
  CHECK_THAT(error_of(std::string(kCross) + "shared_tmpfs = \"run job\"\n"),
             ContainsSubstring("expected an absolute path"));
  CHECK_THAT(error_of("name = \"b\"\nkind = \"bare-metal\"\nshared_tmpfs = \"/run/job\"\n"),
             ContainsSubstring("is for containers"));
}

TEST_CASE("an ordinary user gets a profile's unprivileged variant where it has one") {
  std::map<std::string, EnvironmentProfile> profiles;
  profiles["a"].name = "a";
  profiles["a"].unprivileged_variant = "b";
  profiles["b"].name = "b";
  CHECK(profile_for_user(profiles, "a", false).name == "a");
  CHECK(profile_for_user(profiles, "a", true).name == "b");
  CHECK(profile_for_user(profiles, "b", true).name == "b");
  CHECK_THROWS_WITH(find_profile(profiles, "c"),
                    ContainsSubstring("unknown environment profile \"c\""));
}

TEST_CASE("every profile of the tree comes back from what is stored of it") {
  for (const auto& [name, profile] :
       load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"})) {
    INFO(name);
    CHECK(to_json(profile_from_json(to_json(profile))) == to_json(profile));
  }
  CHECK_THROWS_AS(profile_from_json("{}"), Error);
  CHECK_THROWS_AS(profile_from_json("no json"), Error);
  auto stored = nlohmann::json::parse(to_json(parse_profile(kCross, "p.toml")));
  stored["shm_size_bytes"] = -1;
  CHECK_THROWS_WITH(profile_from_json(stored.dump()),
                    ContainsSubstring("stored profile: a whole number from 0 to"));
}

TEST_CASE("a simulated profile has nothing of ranks that the one it extends has", "[A-14]") {
  std::map<std::string, EnvironmentProfile> known;
  known["a"].name = "a";
  known["a"].unprivileged_variant = "b";
  known["a"].environment["X"] = "1";
  const auto profile = parse_profile(
      "name = \"simulated-a\"\nextends = \"a\"\nkind = \"simulated\"\nmachine = \"m\"\n", "p.toml",
      known);
  CHECK(profile.unprivileged_variant.empty());
  CHECK(profile.environment.empty());
  CHECK_THROWS_WITH(
      parse_profile("name = \"simulated-a\"\nextends = \"a\"\nmachine = \"m\"\n", "p.toml", known),
      ContainsSubstring("\"machine\" goes with kind = \"simulated\""));
}
