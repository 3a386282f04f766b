// What nodes say of themselves, or ssh of them, and what the user is told of it.
#include "containers/cluster/node_report.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>

#include "embedded/survey_node_sh.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

namespace {

std::string problem_of(const NodeResult& result) {
  return read_node_report("n", result, std::chrono::seconds(60)).problem;
}

NodeResult failed(const std::string& err, int exit_code = 255) {
  NodeResult result;
  result.exit_code = exit_code;
  result.err = err;
  return result;
}

NodeReport machine(const std::string& name, const std::string& host, int network) {
  NodeReport report;
  report.name = name;
  report.boot_id = "one-boot";
  report.facts = {{"system", {{"hostname", host}}}, {"namespaces", {{"net", network}}}};
  return report;
}

}  // namespace

TEST_CASE("a node that cannot be reached is told with what can be done") {
  CHECK(problem_of(failed("ssh: Could not resolve hostname nodee1: Name or service not known\n")) ==
        "cannot be reached: ssh: Could not resolve hostname nodee1: Name or service not known (is "
        "the name right? Nobody here knows such a host)");
  CHECK_THAT(problem_of(failed("root@n: Permission denied (publickey,password).")),
             EndsWith("(ssh has to log in there without a question: ssh-copy-id, or an agent)"));
  CHECK_THAT(problem_of(failed("connect to host n port 22: Connection timed out")),
             ContainsSubstring("firewall"));
  // A node that goes away meanwhile may leave no word.
  CHECK(problem_of(failed("\n", 137)) ==
        "cannot be reached: the connection ended without a word (exit code 137)");
  CHECK(problem_of(failed("what nobody knows")) == "cannot be reached: what nobody knows");
  NodeResult silent = failed("");
  silent.timed_out = true;
  CHECK(problem_of(silent) == "did not answer within 60 s");
}

TEST_CASE("what a node lacks is told, and once what to do") {
  NodeResult result;
  result.out =
      "boot_id x\nmissing /opt/a\nmissing /opt/b\ntemporary /tmp: No space left on device\n";
  CHECK(problem_of(result) ==
        "has no /opt/a, where this machine has the program: copy it there under the same path, or "
        "start it from a folder that all nodes share; has no /opt/b; cannot write a temporary file "
        "of 64 KiB (/tmp: No space left on device), as Open MPI and PMIx do: make room there, or "
        "set TMPDIR for logins");
  result.out = "boot_id x\n";
  CHECK(problem_of(result).empty());
}

TEST_CASE("a node says whether temporary files can be written there, and leaves none") {
  std::string folder = std::filesystem::temp_directory_path() / "survey-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  const auto survey = [&](const std::string& temporary) {
    CommandOptions options;
    options.environment = {{"TMPDIR", temporary}};
    return run_command({"sh", "-c", std::string(embedded::survey_node_sh), "sh", folder + "/nonce",
                        "x", folder + "/probe", "--"},
                       options)
        .out;
  };
  CHECK_THAT(survey(folder), !ContainsSubstring("temporary"));
  CHECK(std::filesystem::is_empty(folder));
  CHECK_THAT(survey(folder + "/none"),
             ContainsSubstring("temporary " + folder + "/none: No such file or directory\n"));
  // A file that takes nothing stands for a disk that is full.
  std::filesystem::create_symlink("/dev/full", folder + "/full");
  CommandOptions options;
  options.environment = {{"TMPDIR", folder}};
  const std::string line =
      "mktemp() { echo " + folder + "/full; }; " + std::string(embedded::survey_node_sh);
  const auto full = run_command({"sh", "-c", line, "sh", "/nonce", "x", "/probe", "--"}, options);
  CHECK_THAT(full.out, ContainsSubstring("temporary " + folder + ": No space left on device\n"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("one machine under two names is told, hosts that share a kernel are not") {
  const auto told = named_twice({machine("a", "node1", 7), machine("b", "node2", 8),
                                 machine("10.0.0.1", "node1", 7), machine("c", "node1", 9)});
  CHECK(told ==
        std::map<std::string, std::string>{
            {"10.0.0.1", "is the same machine as a: name it once, with the slots of both"}});
  NodeReport unknown;
  unknown.boot_id = "one-boot";
  CHECK(named_twice({unknown, unknown}).empty());
}

TEST_CASE("of many nodes with problems the first are told in whole, others by name") {
  std::vector<NodeReport> reports(3);
  CHECK(problems_text(reports).empty());
  for (int i = 0; i < 200; ++i) {
    reports.emplace_back();
    reports.back().name = "n" + std::to_string(i);
    reports.back().problem = "is gone";
  }
  const auto text = problems_text(reports);
  CHECK_THAT(text, StartsWith("n0 is gone\n  n1 is gone\n"));
  CHECK_THAT(text, ContainsSubstring("n9 is gone\n  and 190 more: n10, n11, "));
  CHECK_THAT(text, EndsWith("n49, ..."));
}
