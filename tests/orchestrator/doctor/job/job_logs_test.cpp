#include "orchestrator/doctor/job/job_logs.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "core/vocabulary/error.hpp"
#include "orchestrator/doctor/job/plain_pickle.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

// Retyped in the form of public threads (NVIDIA/nccl 296, 377, 719, 1063, 1111, 1324, 1730, 1911,
// ROCm/rccl 429) and of PyTorch's tutorial on its recorder; names and numbers are others.
std::string kept(const std::string& name) {
  return DYNAMICCL_SOURCE_DIR "/tests/fuzz/corpus/job-log/" + name;
}

LogLook look_at(const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  for (const auto& name : names) paths.push_back(kept(name));
  return look_at_logs(paths);
}

JobVerdict verdict_of(const std::string& text) {
  LoggedJob job;
  read_log_text(job, text);
  return verdict(job);
}

std::string call_line(int gpu, const std::string& call, const std::string& op, int count,
                      const std::string& comm = "0x55") {
  const auto number = std::to_string(gpu);
  return "n1:45" + number + ":46" + number + " [" + number + "] NCCL INFO " + call + ": opCount " +
         op + " sendbuff 0x7f recvbuff 0x7e count " + std::to_string(count) +
         " datatype 7 op 0 root 0 comm " + comm + " [nranks=2] stream 0x1\n";
}

struct Expected {
  JobState state;
  std::string id;
  std::vector<int> ranks;
};

void check(const JobVerdict& said, const Expected& expected, const std::string& words = "") {
  INFO(said.says);
  CHECK(said.state == expected.state);
  CHECK(said.id == expected.id);
  CHECK(said.ranks == expected.ranks);
  CHECK_THAT(said.says, ContainsSubstring(words));
}

}  // namespace

TEST_CASE("where RAS is content a watchdog's lines say who has not come to the call") {
  const auto said = look_at({"ras-content.txt"}).verdict;
  check(said, {JobState::hung, "absent", {2}}, "ALLREDUCE (8652160 elements in");
  CHECK_THAT(said.evidence.back(), ContainsSubstring("RAS is content"));
}

TEST_CASE("RAS's text names ranks that do not answer and those that are a call ahead") {
  check(look_at({"ras-incomplete.txt"}).verdict, {JobState::hung, "stopped", {1}});
  check(look_at({"ras-mismatch.txt"}).verdict, {JobState::waiting, "other-call", {4, 5}},
        "14 ranks up to 640");
}

TEST_CASE("RAS's JSON is a hang where a rank is missing or two answers are the same") {
  check(look_at({"ras-missing.json"}).verdict, {JobState::hung, "stopped", {1}});
  check(look_at({"ras-killed.txt"}).verdict, {JobState::hung, "stopped", {0}});
  check(look_at({"ras-uneven.json"}).verdict, {JobState::waiting, "absent", {1}});
  check(look_at({"ras-uneven.json", "ras-uneven.json"}).verdict, {JobState::hung, "absent", {1}},
        "rank 1 up to 7487, ranks 0 and 2 up to 7492");
}

TEST_CASE("NCCL's log says which rank makes another call, or with another count") {
  check(look_at({"calls-other.txt"}).verdict, {JobState::hung, "other-call", {2}},
        "rank 2 in AllGather, ranks 0, 1 and 3 in AllReduce");
  check(look_at({"calls-count.txt"}).verdict, {JobState::hung, "same-call", {3}}, "count 128");
}

TEST_CASE("NCCL's log says who has not come, by ranks of its start, also where opCount stays 0") {
  check(look_at({"calls-behind.txt"}).verdict, {JobState::waiting, "absent", {2}},
        "Broadcast (count 1056");
  check(look_at({"start-hangs.txt"}).verdict, {JobState::hung, "absent", {2}}, "ncclCommInitRank");
}

TEST_CASE("a watchdog of older PyTorch tells who is not through a call that another is through") {
  check(look_at({"watchdog-old.txt"}).verdict, {JobState::hung, "same-call", {64, 65}},
        "_REDUCE_SCATTER_BASE");
}

TEST_CASE("ranks that have made the same calls are not called hung") {
  std::string text;
  for (const char* op : {"1", "2", "2"})
    for (const int gpu : {0, 1}) text += call_line(gpu, "AllReduce", op, 64);
  check(verdict_of(text), {JobState::unknown, "unseen", {}});
  check(verdict_of(""), {JobState::unknown, "unseen", {}});
}

TEST_CASE("two communicators of one size whose start was not logged are not mixed") {
  const auto text =
      call_line(0, "AllReduce", "1", 64, "0x1") + call_line(0, "AllGather", "1", 64, "0x2") +
      call_line(1, "AllReduce", "1", 64, "0x3") + call_line(1, "AllGather", "1", 64, "0x4");
  check(verdict_of(text), {JobState::unknown, "unseen", {}});
}

TEST_CASE("of a flight recorder's dumps the first call that differs or that a rank misses") {
  const auto apart = look_at({"recorded_0", "recorded_1"});
  check(apart.verdict, {JobState::hung, "same-call", {0, 1}}, "20 elements in");
  CHECK(apart.ranks == 2);
  check(look_at({"late_0.json", "late_1.json", "late_2.json"}).verdict,
        {JobState::hung, "absent", {2}}, "(call 7)");
}

TEST_CASE("who is missed in one group and waits in another is not the cause") {
  LoggedJob job;
  const auto add = [&](const char* group, int rank, std::uint64_t entered, std::uint64_t ended) {
    auto& one = job.groups[group];
    one.name = group;
    one.tells_ends = true;
    auto& member = one.members[std::to_string(rank)];
    member.rank = rank;
    member.enter({entered, 0}, {"all_reduce", "", true, entered <= ended});
    member.ended = CallPlace{ended, 0};
  };
  add("a", 0, 5, 4), add("a", 1, 4, 4);  // 0 waits for 1
  add("b", 1, 9, 8), add("b", 2, 8, 8);  // which waits for 2
  check(verdict(job), {JobState::hung, "absent", {2}});
}

TEST_CASE("NCCL's warning of a peer that is gone is said where nothing else is known") {
  check(look_at({"warned.txt"}).verdict, {JobState::hung, "ended", {}}, "node8<43211>");
}

TEST_CASE("the kernel's folders are no logs, named or inside of what is named") {
  CHECK_THROWS_WITH(look_at_logs({"/proc"}), ContainsSubstring("name the process by its number"));
  CHECK_THROWS_WITH(look_at_logs({"/proc/self"}),
                    ContainsSubstring("/proc/self: a folder or file"));
  CHECK_THROWS_WITH(look_at_logs({"/proc/self/maps"}), ContainsSubstring("of the kernel's"));
}

TEST_CASE("a pickle is read as plain types, and what would call or grow is refused") {
  using namespace std::string_literals;
  CHECK(read_plain_pickle("\x80\x02}(\x8c\x01"
                          "aK\x05\x8c\x01"
                          "b](NJ\xff\xff\xff\xff\x88"
                          "eu."s)
            .dump() == R"({"a":5,"b":[null,-1,true]})");
  CHECK(read_plain_pickle("\x80\x02\x8a\x08\x2f\x56\x66\x98\x94\xa5\xef\x17."s).dump() ==
        "1724779239936775727");
  for (const char* name : {"calls-something", "refers-to-itself", "grows-by-references"})
    CHECK_THROWS_AS(look_at({name}), Error);
  CHECK_THROWS_WITH(read_plain_pickle("\x80\x02"
                                      "cposix\nsystem\n."s),
                    ContainsSubstring("would import, call or build"));
  for (const char* cut : {"\x80\x02X\xff\xff\xff\x7f", "\x80\x02(", "\x80\x02.", "\x80\x02h\x05."})
    CHECK_THROWS_AS(read_plain_pickle(cut), Error);
}

TEST_CASE("a small file of a stranger takes no memory without an end") {
  using namespace std::string_literals;
  // One text of 1 MiB, referred to a thousand times, as value and as key.
  const auto text = "X\x00\x00\x10\x00"s + std::string(std::size_t{1} << 20, 'a') + "q\x00"s;
  std::string values, keys;
  for (int i = 0; i < 1000; ++i) values += "h\x00"s, keys += "h\x00K\x01"s;
  CHECK_THROWS_WITH(read_plain_pickle("\x80\x02]("s + text + values + "e."),
                    ContainsSubstring("too large by references"));
  CHECK_THROWS_WITH(read_plain_pickle("\x80\x02}("s + text + "K\x01"s + keys + "u."),
                    ContainsSubstring("too large by references"));
  // What takes dozens of bytes for each of the file's.
  for (const auto& [begin, again] : {std::pair{"\x80\x02N"s, '\x94'}, std::pair{"\x80\x02"s, '('}})
    CHECK_THROWS_WITH(read_plain_pickle(begin + std::string(9'000'000, again) + "."),
                      ContainsSubstring("too many values"));
  // Ranks that are only counted are not written out: each group's may be 65,536.
  LoggedJob job;
  read_log_text(job,
                "h1:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 65536 cudaDev 0 "
                "commId 0x2 - Init START\n");
  REQUIRE(job.groups.size() == 1);
  CHECK(job.groups.begin()->second.expected.empty());
  CHECK(job.groups.begin()->second.size == 65536);
}

TEST_CASE("an answer of RAS that lacks a comma again and again is mended in one pass") {
  const auto few =
      parse_ras_answer(R"({"missing_ranks":[{"a":0"status":1},{"a":2 "status":3},4]})");
  CHECK(few.dump() == R"({"missing_ranks":[{"a":0,"status":1},{"a":2,"status":3},4]})");
  std::string many = R"({"missing_ranks":)";
  for (int i = 0; i < 460'000; ++i) many += R"(0"status")";
  const auto used_s = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  };
  const double before = used_s();
  CHECK(parse_ras_answer(many).is_discarded());
  // Moved for each comma, the 4 MB behind it would take a minute.
  CHECK(used_s() - before < 15);
}

TEST_CASE("what is left out of a folder, and a torn dump, is said") {
  const auto folder = std::filesystem::temp_directory_path() / "dynamiccl-job-many-test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "torn_0.json") << R"({"entries": [{"collective_seq_id": 1)";
  CHECK_THROWS_WITH(look_at_logs({folder.string()}), ContainsSubstring("torn"));
  for (int i = 0; i < 4100; ++i) std::ofstream(folder / std::to_string(i)) << "x\n";
  const auto look = look_at_logs({folder.string()});
  CHECK_THAT(look.not_read.front(), ContainsSubstring("more than 4096 files"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("files that are none, or that say nothing of whose they are, are named") {
  const auto folder = std::filesystem::temp_directory_path() / "dynamiccl-job-logs-test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "dump.json") << R"({"entries": []})";
  CHECK_THROWS_WITH(look_at_logs({folder.string()}), ContainsSubstring("ends with the rank") ||
                                                         ContainsSubstring("end with the rank"));
  std::ofstream(folder / "log") << "nothing\x1b[31m\n";
  const auto look = look_at_logs({folder.string()});
  CHECK(look.files == 1);
  CHECK(look.not_read.size() == 1);
  CHECK_THROWS_AS(look_at_logs({(folder / "none").string()}), Error);
  CHECK(names_logs(folder.string()));
  CHECK_FALSE(names_logs("4711"));
  CHECK_FALSE(names_logs("slurm:12"));
  std::filesystem::remove_all(folder);
}
