// What `tune -- COMMAND` keeps of a job's settings, read again.
#include "orchestrator/tune/job/job_files.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

#include "tests/containers/support.hpp"
#include "tuner/control/call_table.hpp"
#include "tuner/table/table.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a table that the settings file does not name is no part of a stored choice", "[E-102]") {
  const TempFolder folder;
  const std::string out = folder.path();
  const auto conf = [&](const std::string& text) { std::ofstream(out + "/nccl.conf") << text; };
  std::ofstream(out + "/nccl.table") << to_text(call_rows(shared_folder_caps(), 2, 1));
  write_table({}, out + "/table.json");
  conf("# Written by dynamiccl\nNCCL_TUNER_PLUGIN=/p.so\nDYNAMICCL_TUNER_TABLE=" + out +
       "/nccl.table\n");
  CHECK(read_choice(out).choice.table == shared_folder_caps());
  for (const char* damaged : {"garbage\n",
                              "# What NCCL would have read without it:\n"
                              "DYNAMICCL_TUNER_TABLE=/elsewhere\nNCCL_ALGO=Ring\n"}) {
    conf(damaged);
    CHECK_THROWS_WITH(read_choice(out), ContainsSubstring("no settings of a search"));
  }
  conf("# Written by dynamiccl\nNCCL_ALGO=Ring\n");
  CHECK(read_choice(out).choice.table == CallTable{});
}
