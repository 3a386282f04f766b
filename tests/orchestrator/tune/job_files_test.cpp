// What `tune -- COMMAND` keeps of a job's settings, read again.
#include "orchestrator/tune/job/job_files.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

#include "plugin/agreement/call_table.hpp"
#include "tests/containers/support.hpp"
#include "tuner/table/table.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a table that the settings file does not name is no part of a stored choice", "[E-102]") {
  const TempFolder folder;
  const std::string out = folder.path();
  const auto conf = [&](const std::string& text) { std::ofstream(out + "/nccl.conf") << text; };
  CallTable table;
  table.cells[4][20].channels = 2;
  std::ofstream(out + "/nccl.table") << to_text(call_rows(table, 2, 1));
  write_table({}, out + "/table.json");
  conf("# Written by dynamiccl\nNCCL_TUNER_PLUGIN=/p.so\nDYNAMICCL_TUNER_TABLE=" + out +
       "/nccl.table\n");
  CHECK(read_choice(out).choice.table == table);
  for (const char* damaged : {"garbage\n",
                              "# What NCCL would have read without it:\n"
                              "DYNAMICCL_TUNER_TABLE=/elsewhere\nNCCL_ALGO=Ring\n"}) {
    conf(damaged);
    CHECK_THROWS_WITH(read_choice(out), ContainsSubstring("no settings of a search"));
  }
  conf("# Written by dynamiccl\nNCCL_ALGO=Ring\n");
  CHECK(read_choice(out).choice.table == CallTable{});
}

TEST_CASE("what no file of NCCL's can set is kept beside what it can", "[C-39][E-102]") {
  const TempFolder folder;
  JobTuningResult result;
  result.choice.variables = {{"LD_PRELOAD", "/p/libdynamiccl-onehost.so"},
                             {"DYNAMICCL_SHARED_FOLDER", "/dev/shm/tuned/one-host"}};
  CHECK(write_choice(HeldFolder(folder.path(), ""), result, "/p/plugin.so", {}) ==
        "NCCL_CONF_FILE=" + folder.path() + "/nccl.conf");
  std::ifstream file(folder.path() + "/nccl.conf");
  const std::string conf{std::istreambuf_iterator<char>(file), {}};
  CHECK_THAT(conf, ContainsSubstring("\nDYNAMICCL_SHARED_FOLDER=/dev/shm/tuned/one-host\n"));
  CHECK_THAT(conf, ContainsSubstring("\n# In the environment of every rank: "
                                     "LD_PRELOAD=/p/libdynamiccl-onehost.so\n"));
  CHECK_THAT(conf, !ContainsSubstring("\nLD_PRELOAD"));
  CHECK(read_choice(folder.path()).choice.variables == result.choice.variables);
}
