#include "orchestrator/doctor/job/ras_port.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "core/vocabulary/file_descriptor.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string recorded(const std::string& name) {
  std::ifstream file(DYNAMICCL_SOURCE_DIR "/tests/fuzz/corpus/job-log/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

const auto kNever = [] { return false; };

/// Takes one connection, reads up to the last line of the question and sends what it is given, as a
/// process of NCCL does; "" = accepts and says nothing, as the kernel does for a stopped one.
class Port {
 public:
  explicit Port(std::string answer) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(socket_.get(), 8) == 0);
    REQUIRE(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    number_ = std::to_string(ntohs(address.sin_port));
    if (!answer.empty())
      server_ = std::thread([this, answer = std::move(answer)] { serve(answer); });
  }
  ~Port() {
    shutdown(socket_.get(), SHUT_RDWR);
    if (server_.joinable()) server_.join();
  }
  [[nodiscard]] RasTarget target(int rank, pid_t inner, int world = 0) const {
    return {rank, getpid(), inner, "127.0.0.1", number_, world};
  }
  [[nodiscard]] const std::string& question() const { return question_; }

 private:
  void serve(const std::string& answer) {
    for (;;) {
      const FileDescriptor client(accept(socket_.get(), nullptr, nullptr));
      if (!client.valid()) return;
      question_.clear();
      char part[256];
      while (question_.find("verbose status\n") == std::string::npos) {
        const auto got = read(client.get(), part, sizeof part);
        if (got <= 0) break;
        question_.append(part, static_cast<std::size_t>(got));
      }
      // In pieces, as a network brings it.
      for (std::size_t at = 0; at < answer.size(); at += 100)
        send(client.get(), answer.data() + at, std::min<std::size_t>(100, answer.size() - at),
             MSG_NOSIGNAL);
    }
  }
  FileDescriptor socket_;
  std::string number_;
  std::string question_;
  std::thread server_;
};

}  // namespace

TEST_CASE("what NCCL's RAS answers at its port is of the ranks whose processes it names") {
  // Ranks of a communicator whose numbers are not the job's.
  const Port port(recorded("ras-uneven.json"));
  const auto look =
      ask_ras({port.target(4, 800), port.target(2, 801), port.target(0, 802)}, kNever);
  REQUIRE(look.answers.size() == 1);
  const auto& launched = look.answers.front().launched;
  REQUIRE(launched.size() == 3);
  CHECK(launched.at(4).at("AllReduce") == 7492);
  CHECK(launched.at(2).at("AllReduce") == 7487);
  CHECK(launched.at(0).at("Broadcast") == 2);
  CHECK(port.question() == "client protocol 2\ntimeout 1\nset format json\nverbose status\n");
}

TEST_CASE("a rank that RAS misses keeps its number where the others have theirs") {
  const Port port(recorded("ras-missing.json"));
  const auto look = ask_ras({port.target(0, 800, 2)}, kNever);
  REQUIRE(look.answers.size() == 1);
  CHECK(look.answers.front().missing.at(1).unresponsive);
  CHECK(look.answers.front().processes.at(1).pid == 809);
  // As NCCL 2.28.9 wrote it of a rank that was killed, without a comma.
  const Port real(recorded("ras-killed.txt"));
  const auto killed = ask_ras({real.target(1, 725, 2)}, kNever);
  REQUIRE(killed.answers.size() == 1);
  CHECK(killed.answers.front().missing.at(0).where == "process 724 on node 192.0.2.2");
  CHECK(killed.answers.front().launched.at(1).at("AllReduce") == 1292);
  // Of a communicator of two in a job of four nobody knows which rank its other one is.
  const auto part = ask_ras({port.target(0, 800, 4)}, kNever);
  REQUIRE(part.answers.size() == 1);
  CHECK(part.answers.front().launched.at(0).at("AllReduce") == 7492);
  CHECK(part.answers.front().missing.empty());
}

TEST_CASE("processes that containers number alike are told apart by the whole job's ranks alone") {
  // Of three ranks the last two are process 801, each in its own container.
  auto text = recorded("ras-uneven.json");
  text.replace(text.find("802"), 3, "801");
  const Port port(text);
  const auto look =
      ask_ras({port.target(0, 800, 3), port.target(1, 801, 3), port.target(2, 801, 3)}, kNever);
  REQUIRE(look.answers.size() == 1);
  CHECK(look.answers.front().launched.at(1).at("AllReduce") == 7487);
  CHECK(look.answers.front().launched.at(2).at("AllReduce") == 7492);
  const auto part =
      ask_ras({port.target(4, 800, 6), port.target(1, 801, 6), port.target(2, 801, 6)}, kNever);
  REQUIRE(part.answers.size() == 1);
  CHECK(part.answers.front().launched.size() == 1);
  CHECK(part.answers.front().launched.contains(4));
}

TEST_CASE("an answer of RAS that does not come leaves unknown what is launched by now") {
  LiveJob job;
  job.ranks.resize(1);
  job.ranks.front().looks.emplace_back();
  RasAnswer answer;
  answer.launched[0]["AllReduce"] = 40;
  take_ras(job, {{answer}, ""});
  CHECK(job.ranks.front().looks.back().launched == 40);
  CHECK(job.ras_problem.empty());
  job.ranks.front().looks.emplace_back();
  take_ras(job, {{}, "does not answer"});
  CHECK(job.ranks.front().looks.back().launched == 0);
  CHECK(job.ras_problem == "does not answer");
  // A rank that is missed is over where its process would be on this machine, and is not.
  constexpr pid_t kNobody = 1 << 29;
  answer.processes = {
      {0, {"here", 1}}, {1, {"here", kNobody}}, {2, {"here", getpid()}}, {3, {"else", kNobody}}};
  for (const int rank : {1, 2, 3}) answer.missing[rank] = {"", false, true};
  answer.missing[4] = {"", true, true};
  answer.launched[5] = {};
  answer.processes[5] = {"else", 7};
  take_ras(job, {{answer}, ""});
  CHECK(job.gone == std::vector<int>{1, 4});
}

TEST_CASE("what RAS does not tell is said: silence, another job, an answer without JSON") {
  const Port other(recorded("ras-uneven.json"));
  CHECK_THAT(ask_ras({other.target(0, 4711)}, kNever).problem,
             ContainsSubstring("answers for another job"));
  const Port old("SERVER PROTOCOL 2\nOK\nERROR: Unknown command set format json\nJob summary\n");
  CHECK_THAT(ask_ras({old.target(0, 800)}, kNever).problem, ContainsSubstring("2.28"));
  const Port torn(recorded("ras-uneven.json").substr(0, 300));
  CHECK_THAT(ask_ras({torn.target(0, 800)}, kNever).problem,
             ContainsSubstring("breaks its answer off"));
  const Port idle(R"({"communicators": []})");
  CHECK_THAT(ask_ras({idle.target(0, 800)}, kNever).problem,
             ContainsSubstring("knows of no communicator"));
  // A name may take long to look up.
  auto named = other.target(0, 800);
  named.host = "ras.example.org";
  CHECK_THAT(ask_ras({named}, kNever).problem,
             ContainsSubstring("at ras.example.org:") && ContainsSubstring("not looked up"));
  named.host = "localhost";
  CHECK(ask_ras({named}, kNever).answers.size() == 1);
  const Port silent("");
  const auto begun = std::chrono::steady_clock::now();
  const auto look = ask_ras({silent.target(0, 800)}, kNever);
  CHECK(look.answers.empty());
  CHECK_THAT(look.problem, ContainsSubstring("does not answer"));
  CHECK(std::chrono::steady_clock::now() - begun > std::chrono::seconds(1));
  CHECK(ask_ras({}, kNever).problem.empty());
}

TEST_CASE("nobody waits for RAS any longer than the looks last") {
  const Port silent("");
  std::atomic<int> asked = 0;
  const auto begun = std::chrono::steady_clock::now();
  const auto look = ask_ras({silent.target(0, 800)}, [&] { return ++asked > 2; });
  CHECK(look.answers.empty());
  CHECK(asked >= 3);
  CHECK(asked < 6);
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::minutes(1));
}
