#include "profiles/detect/probes/environment_probe.hpp"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tests/profiles/detect/fixture_tree.hpp"

using namespace dynamiccl;
using dynamiccl::test::FixtureTree;

TEST_CASE("only variables that steer communication are recorded") {
  for (const char* name :
       {"OMPI_MCA_btl", "NCCL_DEBUG", "UCX_TLS", "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM",
        "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "GLIBC_TUNABLES",
        "MALLOC_TOP_PAD_"})
    CHECK(is_recorded_variable(name));
  for (const char* name :
       {"HOME", "USER", "AWS_SECRET_ACCESS_KEY", "MY_NCCL_X", "PATH", "SSH_AUTH_SOCK"})
    CHECK_FALSE(is_recorded_variable(name));
}

TEST_CASE("of variables that nobody knows the name alone is recorded") {
  // What begins like a setting may be anybody's secret, in whichever words it says so.
  for (const std::string word :
       {"TOKEN",    "AUTH_TOKEN", "KEY",     "API_KEY", "SECRET",     "PASS",
        "PASSWORD", "PASSPHRASE", "AUTH",    "CRED",    "CREDENTIAL", "PW",
        "PWD",      "PSWD",       "ACCESS",  "CERT",    "PEM",        "COOKIE",
        "JWT",      "BEARER",     "OTP",     "PAT",     "SIGNATURE",  "SALT",
        "SESSION",  "PRIVATE",    "LICENSE", "WEBHOOK", "PROXY",      "CONNECTION_STRING"})
    for (const std::string prefix : {"NCCL_", "UCX_", "OMPI_MCA_", "SLURM_JOB_", "MPICH_"}) {
      const std::string name = prefix + word;
      CAPTURE(name);
      const auto kept = recorded_variables({{name, "hush"}});
      CHECK(kept == nlohmann::json{{name, std::string(kRedacted)}});
      CHECK(recorded_command(
                {"mpirun", "-x", name + "=hush", name + "=hush", "--env=" + name + "=a"}) ==
            std::vector<std::string>{"mpirun", "-x", name + "=<redacted>", name + "=<redacted>",
                                     "--env=" + name + "=<redacted>"});
    }
  for (const char* name :
       {"OMPI_MCA_sec_key", "NCCL_Secret", "nccl_net", "NCCL_NE", "NCCL_NETS", "NCCL_"})
    CHECK(recorded_value(name, "hush") == kRedacted);
  CHECK(recorded_value("NCCL_NET", "Socket") == "Socket");
  CHECK(recorded_value("UCX_TLS", "tcp://me:hush@host/x, tcp://you@b") ==
        "tcp://<redacted>@host/x, tcp://<redacted>@b");
  CHECK(recorded_value("UCX_TLS", "tcp://host/a@b") == "tcp://host/a@b");
}

TEST_CASE("a user's name in a URL is no password, what may be a token is one") {
  for (const char* text : {"https://me:hush@host/x", "see tcp://a@b, tcp://me:hush@host",
                           "https://github_pat_11ABCDEFG0@github.com/x", "x://:hush@host"}) {
    CAPTURE(text);
    CHECK(carries_password(text));
  }
  for (const char* text : {"ssh://git@host/x", "https://me:@host", "https://me@host, x:y@z",
                           "https://<redacted>@host", "tcp://host/a:b@c", "x://@host", ""}) {
    CAPTURE(text);
    CHECK_FALSE(carries_password(text));
  }
}

TEST_CASE("a recorded command shows everything but secrets") {
  using Argv = std::vector<std::string>;
  CHECK(recorded_command({"mpirun", "-x", "HF_TOKEN=hush", "-x", "NCCL_NET=Socket", "-n", "2"}) ==
        Argv{"mpirun", "-x", "HF_TOKEN=<redacted>", "-x", "NCCL_NET=Socket", "-n", "2"});
  CHECK(recorded_command({"mpiexec", "-genv", "UCX_PASSWORD", "hush", "-genv", "UCX_TLS", "tcp"}) ==
        Argv{"mpiexec", "-genv", "UCX_PASSWORD", "<redacted>", "-genv", "UCX_TLS", "tcp"});
  CHECK(recorded_command({"docker", "exec", "--env", "api_key=hush", "--env=MY_SECRET=a=b"}) ==
        Argv{"docker", "exec", "--env", "api_key=<redacted>", "--env=MY_SECRET=<redacted>"});
  CHECK(recorded_command({"env", "https_proxy=x", "-e", "https_proxy=me", "LR=1", "lr=1"}) ==
        Argv{"env", "https_proxy=x", "-e", "https_proxy=<redacted>", "LR=<redacted>", "lr=1"});
  for (const auto& [script, kept] : std::map<std::string, std::string>{
           {"cd / && HF_TOKEN=hush ./a", "cd / && HF_TOKEN=<redacted> ./a"},
           {"export NCCL_COOKIE=hush; NCCL_ALGO=Ring ./a",
            "export NCCL_COOKIE=<redacted> NCCL_ALGO=Ring ./a"},
           {"env X_PW='hush hush' ./a \"b c\"", "env X_PW=<redacted> ./a \"b c\""},
           {"NCCL_ALGO=Ring HF_TOKEN=hush ./a", "NCCL_ALGO=Ring HF_TOKEN=<redacted> ./a"},
           {"HF_TOKEN=hush hush ./a", "HF_TOKEN=<redacted>"},
           {"X_PW=\"hush", "X_PW=<redacted>"},
           {"cd a;api_key=hush", "cd a;api_key=<redacted>"},
           {"(MY_PAT=hush)", "(MY_PAT=<redacted>)"},
           {"./a --password hush -genv MY_KEY hush lr=1",
            "./a --password <redacted> -genv MY_KEY <redacted> lr=1"},
           {"./a --mca sec_key hush|tee b", "./a --mca sec_key <redacted> b"},
           {"HF_TOKEN=", "HF_TOKEN=<redacted>"},
           {"a=1;b==c == d", "a=1;b==c == d"}})
    CHECK(recorded_command({"sh", "-c", script}) == std::vector<std::string>{"sh", "-c", kept});
  CHECK(recorded_command({"-gmca", "sec_key", "hush", "--gmca", "btl", "self"}) ==
        std::vector<std::string>{"-gmca", "sec_key", "<redacted>", "--gmca", "btl", "self"});
  CHECK(recorded_command({"--mca", "sec_key", "hush", "--mca", "btl", "^vader"}) ==
        Argv{"--mca", "sec_key", "<redacted>", "--mca", "btl", "^vader"});
  CHECK(recorded_command({"run", "--password", "hush", "--token=hush", "-xDB_PW=hush"}) ==
        Argv{"run", "--password", "<redacted>", "--token=<redacted>", "-xDB_PW=<redacted>"});
  // Several after one option; commas of a value that is hidden are hidden with it.
  CHECK(recorded_command({"srun", "--export=ALL,UCX_TLS=tcp,self,MY_KEY=a,b,NCCL_NET=IB,"}) ==
        Argv{"srun", "--export=ALL,UCX_TLS=tcp,self,MY_KEY=<redacted>,NCCL_NET=IB,"});
  CHECK(recorded_command({"--set", "name=https://me:hush@host/x"}) ==
        Argv{"--set", "name=https://<redacted>@host/x"});
  CHECK(recorded_command({"-x", "UCX_TLS=tcp://me:hush@host"}) ==
        Argv{"-x", "UCX_TLS=tcp://<redacted>@host"});
  // Neither a path nor an option's own value is a variable; nothing is cut short.
  const Argv plain{"/keys/a=b", "--key", "value", "--token-file=x", std::string(5000, 'a')};
  CHECK(recorded_command(plain) == plain);
}

TEST_CASE("settings that libraries read from files are found as the variables would set them") {
  const FixtureTree tree("nothing");
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((tree.path() / path).parent_path());
    std::ofstream(tree.path() / path) << text;
  };
  write("live.json",
        R"({"environment": {"HOME": "/home/me", "UCX_CONFIG_DIR": "/opt/ucx",
             "UCX_POSIX_DIR": "/home/me", "OMPI_MCA_orte_tmpdir_base": "/gone"}})");
  write("etc/openmpi/openmpi-mca-params.conf", "# of the site\nbtl = ^openib\npml=^ucx # so\n\n");
  write("home/me/.openmpi/mca-params.conf",
        "  btl = tcp,self\nbtl_vader_backing_directory = /nosuch\nsec_key = hush\nno setting\n");
  write("etc/ucx/ucx.conf", "UCX_TLS=tcp\n[some machine]\nUCX_TLS=rc\n");
  write("opt/ucx/ucx.conf", "UCX_TLS = tcp,self\nOTHER = 1\n");
  const auto facts = tree.facts()["environment"];
  const auto& files = facts["files"];
  CHECK(files["OMPI_MCA_btl"]["value"] == "tcp,self");
  CHECK(files["OMPI_MCA_btl"]["file"] == "/home/me/.openmpi/mca-params.conf");
  CHECK(files["OMPI_MCA_pml"]["value"] == "^ucx");
  CHECK(files["OMPI_MCA_pml"]["file"] == "/etc/openmpi/openmpi-mca-params.conf");
  CHECK(files["UCX_TLS"]["value"] == "tcp,self");
  CHECK(files["UCX_TLS"]["file"] == "/opt/ucx/ucx.conf");
  CHECK_FALSE(files.contains("OTHER"));
  CHECK(files.dump().find("hush") == std::string::npos);
  const auto absent = facts["absent_folders"].get<std::set<std::string>>();
  CHECK(absent == std::set<std::string>{"/gone", "/nosuch"});
}

TEST_CASE("values are bounded and printable") {
  CHECK(recorded_value("NCCL_NET", std::string(5000, 'a')).size() < 1100);
  CHECK(recorded_value("NCCL_NET", "a\x01\xff") == "a??");
  std::vector<std::pair<std::string, std::string>> many;
  for (int i = 0; i < 2000; ++i) many.emplace_back("NCCL_" + std::to_string(i), "x");
  CHECK(recorded_variables(many).size() == 512);
}
