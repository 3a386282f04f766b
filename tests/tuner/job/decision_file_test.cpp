// The file of a leader's choices, whose writer may be killed and whose disk may be full.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/vocabulary/error.hpp"
#include "tests/containers/support.hpp"
#include "tuner/job/decision_record.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

DecisionRecord choice(int step) {
  DecisionRecord record;
  record.author = {"bandit", "", 1};
  record.task_key = "nccl/ring/allreduce/2^20/r2n1";
  record.regime = "abcd";
  record.step = step;
  record.kind = "explore";
  record.arm = "channels=4";
  return record;
}

void write_choices(const std::string& path, int first, int last) {
  DecisionFile file(path);
  for (int step = first; step <= last; ++step) file.add(choice(step));
  CHECK(file.problem().empty());
}

void append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("what a killed leader left of a line spoils none of the next leader's", "[safety]") {
  const TempFolder folder;
  const std::string path = folder.path() + "/decisions.jsonl";
  const std::string line = decision_line(choice(3));
  for (const std::size_t torn : {std::size_t{1}, std::size_t{5}, line.size() / 2, line.size()}) {
    INFO(torn << " bytes");
    std::filesystem::remove(path);
    write_choices(path, 1, 2);
    append(path, line.substr(0, torn));
    CHECK(read_decisions(path).size() == 2);
    write_choices(path, 4, 5);
    const auto records = read_decisions(path);
    REQUIRE(records.size() == 4);
    CHECK(records[2].step == 4);
  }
  // Of a line before which there is none.
  std::filesystem::remove(path);
  append(path, line.substr(0, 20));
  write_choices(path, 1, 1);
  CHECK(read_decisions(path).size() == 1);
}

TEST_CASE("a leader takes nothing from a file that holds something else", "[safety]") {
  const TempFolder folder;
  const std::string path = folder.path() + "/notes.txt";
  append(path, "what I know\nof tuning");
  write_choices(path, 1, 1);
  CHECK_THAT(text_of(path), ContainsSubstring("what I know\nof tuning"));
}

TEST_CASE("a full disk costs choices, which is said, and no line that was written", "[safety]") {
  const TempFolder folder;
  const std::string path = folder.path() + "/decisions.jsonl";
  write_choices(path, 1, 2);
  const auto before = std::filesystem::file_size(path);
  rlimit usual{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &usual) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  {
    DecisionFile file(path);
    const rlimit full{before + 40, usual.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &full) == 0);
    file.add(choice(3));
    file.add(choice(4));
    REQUIRE(setrlimit(RLIMIT_FSIZE, &usual) == 0);
    CHECK(std::filesystem::file_size(path) == before);
    file.add(choice(5));
    // Some of the line was taken before the limit: what ended it is told, and no other reason.
    CHECK_THAT(file.problem(),
               ContainsSubstring("2 choices are not in it: " + std::string(std::strerror(EFBIG))));
  }
  static_cast<void>(std::signal(SIGXFSZ, handler));
  const auto records = read_decisions(path);
  REQUIRE(records.size() == 3);
  CHECK(records.back().step == 5);
}

TEST_CASE("choices can be kept nowhere, and a place that takes none is wrong input", "[safety]") {
  {
    DecisionFile file("/dev/null");
    file.add(choice(1));
    CHECK(file.problem().empty());
  }
  const TempFolder folder;
  const std::string pipe = folder.path() + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& place :
       {pipe, folder.path(), folder.path() + "/no/such", std::string("/dev/full")}) {
    INFO(place);
    // Where there is none, a file of that name would be made in its place.
    if (place == "/dev/full" && !std::filesystem::exists(place)) continue;
    try {
      const DecisionFile file(place);
      FAIL_CHECK("taken");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::input);
      CHECK_THAT(error.what(), ContainsSubstring(place + ": ") &&
                                   ContainsSubstring("choose another folder or file"));
    }
  }
}

TEST_CASE("a line that is no choice is named by its number", "[safety]") {
  const TempFolder folder;
  const std::string path = folder.path() + "/decisions.jsonl";
  write_choices(path, 1, 2);
  append(path, "{\"agent\": 7}\n");
  CHECK_THROWS_WITH(read_decisions(path), ContainsSubstring("decisions.jsonl:3: "));
}

TEST_CASE("what a choice tells of its state and candidates has names", "[safety]") {
  const auto line = [](const char* field, const nlohmann::json& value) {
    auto object = nlohmann::json::parse(decision_line(choice(1)));
    object[field] = value;
    return object.dump();
  };
  CHECK_NOTHROW(parse_decisions(line("state", nlohmann::json::object()) + "\n", "d"));
  for (const char* field : {"state", "candidates", "reward_terms"})
    for (const nlohmann::json& value : {nlohmann::json("x"), nlohmann::json(1)}) {
      INFO(field << " " << value);
      CHECK_THROWS_WITH(parse_decisions(line(field, value) + "\n", "d"),
                        ContainsSubstring("d:1: the line is no decision: a field is out of its "
                                          "range or of another kind"));
    }
}

TEST_CASE("a line that is no JSON is told by its column, in no library's words", "[safety]") {
  CHECK_THROWS_WITH(parse_decisions("{\"agent\": }\n", "d"),
                    ContainsSubstring("d:1: the line is no decision: no JSON from column 11 on;"));
}
