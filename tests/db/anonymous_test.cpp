#include "db/anonymous.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_descriptor.hpp"
#include "core/vocabulary/json.hpp"
#include "db/anonymous_words.hpp"
#include "db/reader.hpp"
#include "db/store.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Each stands for itself in one kind of place: JSON, a path, free text, a comment, an address.
const std::vector<std::string> kOriginals{
    "nodesecret17",     "example.internal",
    "alicesecret",      "bobsecret",
    "hiddenproject",    "carolcomment",
    "dataset secret",   "10.20.30.40",
    "stderrsecret",     "GPU-12345678-1234-1234-1234-123456789abc",
    "experimentsecret", "oldsecret",
    "dansecret",        "evesecret",
    "plantsecret",      "franksecret",
    "gracesecret",      "heidisecret"};

std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void make_telling_database(const std::string& path) {
  Store store(path);
  auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  plan.run.name = "smoke of hiddenproject";
  plan.run.spec_path = "/home/alicesecret/hiddenproject/experimentsecret.toml";
  plan.run.spec_text = "name = \"x # no comment\" # by carolcomment\n# carolcomment\nseed = 1\n";
  plan.run.argv = {"/opt/bobsecret/bin/dynamiccl", "run", "hiddenproject/experimentsecret.toml"};
  plan.run.host_json =
      R"({"hostname": "nodesecret17.example.internal", "user": "bobsecret", "cpu": "Xeon",)"
      R"( "gpus": ["GPU-12345678-1234-1234-1234-123456789abc"]})";
  plan.groups.front().profile_json =
      R"({"kind": "simulated", "machine": "dansecret/plantsecret.toml",)"
      R"( "description": "simulated on plantsecret (hall of franksecret): not measured",)"
      R"( "machine_toml": "description = \"hall of franksecret\"\nnodes = 4 # of evesecret\n)"
      R"(links.a = {latency = \"2us\", source = 'told by gracesecret'}\nsource = \"\"\"\nas)"
      R"( heidisecret\nsays\"\"\"\nshape = \"star\"\n"})";
  store.begin_run(plan.run, plan.groups, plan.cells);
  auto start = make_start(plan.groups.front().id, 0);
  start.argv = {"mpirun", "/srv/dataset secret/for alicesecret/run.json"};
  start.environment_json = R"({"DYNAMICCL_RUN_FOLDER": "/home/alicesecret/oldsecret"})";
  const auto row = store.begin_launch("run-1", start);
  auto end =
      make_end(LaunchStatus::failed,
               "rank 1 on nodesecret17: /srv/dataset secret/for alicesecret/run.json: no route "
               "to 10.20.30.40; alicesecret should look");
  end.stderr_tail = "stderrsecret says nothing that could be known";
  store.finish_launch(row, end, {});
  store.add_event("run-1", row, "note", "seen by nodesecret17 in /home/alicesecret/x: slow");
}

}  // namespace

TEST_CASE("nothing that tells a machine or a person is left in a database for sharing",
          "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("telling.sqlite");
  const auto shared = folder.file("shared.sqlite");
  make_telling_database(path);
  const auto before = text_of_file(path) + text_of_file(path + "-wal");
  for (const auto& original : kOriginals) {
    INFO(original);
    CHECK(before.find(original) != std::string::npos);
  }
  const auto summary = write_anonymous(path, shared, {"hiddenproject"});
  CHECK(summary.hosts >= 1);
  CHECK(summary.users >= 2);
  CHECK(summary.paths >= 3);
  CHECK(summary.addresses == 2);
  const auto after = text_of_file(shared);
  for (const auto& original : kOriginals) {
    INFO(original);
    CHECK(after.find(original) == std::string::npos);
  }
  // What is measured, and words that tell nobody, are there.
  const Reader reader(shared);
  CHECK(reader.query("SELECT 1 FROM run_cell WHERE collective = 'allreduce'").rows.size() == 1);
  CHECK(reader.query("SELECT 1 FROM run WHERE json_extract(host_json, '$.cpu') = 'Xeon'")
            .rows.size() == 1);
  CHECK(reader.query("SELECT 1 FROM profile WHERE profile_json LIKE '%nodes = 4%star%'")
            .rows.size() == 1);
  CHECK(reader.query("SELECT 1 FROM experiment WHERE spec_text LIKE '%x # no comment%'")
            .rows.size() == 1);
  CHECK(reader.query("SELECT 1 FROM launch WHERE reason LIKE 'rank 1 on host_: /%no route to ip%'")
            .rows.size() == 1);
  // The original is as it was, and another copy does not replace the first.
  CHECK(text_of_file(path) + text_of_file(path + "-wal") == before);
  CHECK_THROWS_WITH(write_anonymous(path, shared, {}), ContainsSubstring("is there already"));
  for (const auto& entry : std::filesystem::directory_iterator(folder.file("")))
    CHECK(entry.path().extension() != ".dynamiccl-draft");
}

TEST_CASE("of copies for sharing that are written to one file at once, one is there", "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("telling.sqlite");
  const auto shared = folder.file("shared.sqlite");
  make_telling_database(path);
  // Neither begun nor unfinished.
  const auto others = shared + ".part";
  std::ofstream(others) << "half";
  constexpr int kCopies = 4;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kCopies; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    char go = 0;
    close(ends[1]);
    if (read(ends[0], &go, 1) != 0) _exit(3);  // until the parent's end is closed: all at once
    try {
      write_anonymous(path, shared, {});
      _exit(0);
    } catch (const Error& error) {
      _exit(std::string(error.what()).find("is there already") == std::string::npos ? 2 : 1);
    }
  }
  close(ends[0]);
  close(ends[1]);
  int written = 0;
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) < 2);
    if (WEXITSTATUS(status) == 0) ++written;
  }
  CHECK(written == 1);
  CHECK(Reader(shared).query("SELECT 1 FROM launch").rows.size() == 1);
  CHECK(text_of_file(others) == "half");
}

TEST_CASE("a copy for sharing that is killed while it is written leaves nothing", "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("telling.sqlite");
  const auto shared = folder.file("shared.sqlite");
  make_telling_database(path);
  // The log is empty by then, and what is mapped beside it smaller.
  const auto most = static_cast<rlim_t>(std::filesystem::file_size(path) / 2);
  REQUIRE(most > 40'000);
  const pid_t child = fork();
  if (child == 0) {
    // What is written beyond it is answered by a signal that ends the writer.
    const rlimit limit{most, most};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || signal(SIGXFSZ, SIG_DFL) == SIG_ERR) _exit(3);
    write_anonymous(path, shared, {});
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGXFSZ);
  // What another process writes stays, what nobody does goes with the next one.
  const auto draft = [&](const char* number) {
    return folder.file(std::string(".shared.sqlite.") + number + ".dynamiccl-draft");
  };
  const auto others = draft("4194306");
  const auto dead = draft("4194307");
  // Neither of them is a draft of ours.
  const auto users = shared + ".4194307.part";
  const auto linked = draft("4194308");
  for (const auto& part : {others, dead, users}) std::ofstream(part) << "half";
  std::filesystem::create_hard_link(users, linked);
  const FileDescriptor lock(open(others.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(flock(lock.get(), LOCK_EX) == 0);
  const auto left = [&] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.file("")))
      if (const auto name = entry.path().string(); name.find("shared.sqlite") != std::string::npos)
        names.insert(name);
    return names;
  };
  std::set<std::string> expected{others, dead, users, linked};
  // On a file system without files that have no name the draft had one, and goes like the dead one.
  const FileDescriptor nameless(open(folder.file("").c_str(), O_TMPFILE | O_RDWR, 0600));
  if (nameless.valid()) CHECK(left() == expected);
  write_anonymous(path, shared, {});
  expected.erase(dead);
  expected.insert(shared);
  CHECK(left() == expected);
  CHECK((std::filesystem::status(shared).permissions() & std::filesystem::perms::mask) ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
}

TEST_CASE("JSON of another program that is too deep to be read is left out of a copy", "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("telling.sqlite");
  make_telling_database(path);
  {
    SQLite::Database db(path, SQLite::OPEN_READWRITE);
    SQLite::Statement deep(db, "UPDATE launch SET environment_json = ?");
    deep.bind(1, std::string(400, '[') + "\"ann-the-secret\"" + std::string(400, ']'));
    deep.exec();
  }
  write_anonymous(path, folder.file("shared.sqlite"), {});
  const auto rows =
      Reader(folder.file("shared.sqlite")).query("SELECT environment_json FROM launch").rows;
  REQUIRE(rows.size() == 1);
  CHECK(text_of_file(folder.file("shared.sqlite")).find("ann-the-secret") == std::string::npos);
}

TEST_CASE("equal things get equal names, and the structure of paths stays", "[safety]") {
  Anonymizer words;
  words.hide_host("node7.corp");
  const auto one = words.replaced(std::string("/home/ann/build/dynamiccl-worker /home/ann/x"));
  const auto folder = one.substr(0, one.find("/", one.find("/", 1) + 1));
  CHECK(one == folder + one.substr(folder.size(), one.find("/dynamiccl") - folder.size()) +
                   "/dynamiccl-worker " + folder + one.substr(one.rfind('/')));
  CHECK(words.replaced(std::string("node7 is node7.corp, node77 is not")) ==
        "host1 is host1, node77 is not");
  CHECK(words.replaced(
            std::string("1.51 GB/s, openmpi/ring/allreduce/2^16, /usr/lib/x.so 127.0.0.1")) ==
        "1.51 GB/s, openmpi/ring/allreduce/2^16, /usr/lib/x.so 127.0.0.1");
  CHECK(
      without_comments("source = 'x # y'\nb.source=\"p\\\"q\"\nsources = 'z' # n\n", {"source"}) ==
      "source = '(left out)'\nb.source=\"(left out)\"\nsources = 'z' \n");
  Anonymizer bare;
  bare.look_at(nlohmann::json{{"machine", "plantsecret.toml"}});
  CHECK(bare.replaced(std::string("simulated on plantsecret")).find("secret") == std::string::npos);
  // Files that are called as a machine's settings are: those, and JSON's keys, stay.
  for (const char* name : {"nodes", "star"}) {
    Anonymizer own;
    const nlohmann::json profile{{"machine", std::string("./") + name + ".toml"},
                                 {"machine_toml", "nodes = 4\nshape = \"star\"\n"},
                                 {"nodes", "star"}};
    own.look_at(profile);
    const auto shared = own.replaced(profile);
    CHECK(shared.at("machine_toml") == profile.at("machine_toml"));
    CHECK(shared.value("nodes", "") == "star");
    CHECK(shared.value("machine", name).find(name) == std::string::npos);
    const std::string called(name);
    CHECK(own.replaced("simulated-" + called + ": " + called + " is simulated with 2 to 8 ranks")
              .find(called) == std::string::npos);
  }
  bare.look_at(nlohmann::json{{"machine", "star-1024"}});
  CHECK(bare.replaced(std::string("on star-1024")) == "on star-1024");
  CHECK(without_comments("a = '#' # x\nb = \"\"\"#\n# in\"\"\"\n#y\nc = \"\\\"#\" #z") ==
        "a = '#' \nb = \"\"\"#\n# in\"\"\"\n\nc = \"\\\"#\" ");
}
