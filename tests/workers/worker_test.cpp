// The real worker programs under the real launchers, judged by the files they leave.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/vocabulary/malloc_settings.hpp"
#include "tests/workers/job.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr double kTimeoutS = 60;

bool has(Backend backend) {
  return std::find(kBackends.begin(), kBackends.end(), backend) != kBackends.end();
}

TransportRecord transport_of(Backend backend, const std::vector<std::string>& flags,
                             const std::map<std::string, std::string>& environment) {
  Job job(backend, 2);
  job.launcher_flags = flags;
  job.environment = environment;
  job.config.cells = {cell_of(Collective::allreduce, 4 << 20)};
  job.start();
  const int code = job.wait(kTimeoutS);
  INFO(job.errors());
  CHECK(code == 0);
  const auto records = job.records_of<TransportRecord>(1);
  return records.empty() ? TransportRecord{} : records[0];
}

bool has_argument(const std::filesystem::path& process, const std::string& argument) {
  std::ifstream line(process / "cmdline");
  for (std::string one; std::getline(line, one, '\0');)
    if (one == argument) return true;
  return false;
}

int parent_of(const std::filesystem::path& process) {
  std::ifstream status(process / "status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("PPid:")) return std::stoi(line.substr(5));
  return 0;
}

/// A child of `parent` that has `argument`; 0 when none comes within 10 s.
int child_of(int parent, const std::string& argument) {
  for (int tries = 0; tries < 1000; ++tries) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      if (parent_of(entry.path()) == parent && has_argument(entry.path(), argument))
        return std::stoi(name);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return 0;
}

}  // namespace

TEST_CASE("cells are measured beside a neighbour that works as long as they do", "[E-140][D-112]") {
  const auto backend = GENERATE(from_range(kBackends));
  for (const char* kind : {"compute", "link", "training"}) {
    INFO(name_of(backend) << " beside " << kind);
    const TransportRecord record = transport_of(backend, {}, {{"DYNAMICCL_NEIGHBOUR", kind}});
    REQUIRE(record.details.contains("neighbour"));
    CHECK(record.details["neighbour"]["kind"] == kind);
    // A share of a core on a machine where others take most: one that waits has none.
    const double beside_s = record.details["neighbour"]["beside_s"];
    CHECK(beside_s > 0);
    CHECK(record.details["neighbour"]["cpu_s"].get<double>() > 0.01 * beside_s);
  }
}

TEST_CASE("a launch whose neighbour ends before its cells fails and says so", "[E-140]") {
  const Backend backend = kBackends.front();
  const std::string kind = GENERATE("compute", "link");
  INFO(name_of(backend) << " beside " << kind);
  Job job(backend, 2);
  job.environment = {{"DYNAMICCL_NEIGHBOUR", kind}};
  job.config.cells = {cell_of(Collective::allreduce, 4 << 20)};
  job.config.protocol.iterations = 2000;
  job.start();
  const auto rank = static_cast<int>(wait_for_hello(job, 1).pid);
  REQUIRE(rank > 0);
  const int neighbour = child_of(rank, "--neighbour");
  REQUIRE(neighbour > 0);
  REQUIRE(kill(neighbour, SIGKILL) == 0);
  // On a busy machine spinning ranks take minutes for what is seconds otherwise, and a launch that
  // is cut off says nothing.
  const int code = job.wait(3 * kTimeoutS);
  INFO("exit code " << code << "\n" << job.errors());
  CHECK(code > 0);
  CHECK_THAT(job.errors(), ContainsSubstring("DYNAMICCL_NEIGHBOUR = " + kind));
  CHECK(job.records_of<TransportRecord>(1).empty());
}

TEST_CASE("without a neighbour none is started, and an unknown one is named") {
  const Backend backend = kBackends.front();
  CHECK(
      !transport_of(backend, {}, {{"DYNAMICCL_NEIGHBOUR", "none"}}).details.contains("neighbour"));
  Job job(backend, 2);
  job.environment = {{"DYNAMICCL_NEIGHBOUR", "gem"}};
  job.config.cells = {cell_of(Collective::allreduce, 4)};
  job.start();
  CHECK(job.wait(kTimeoutS) != 0);
  CHECK_THAT(job.errors(), ContainsSubstring("known are none, compute, link, training"));
}

TEST_CASE("a launch leaves who, where, every cell in order, the transport and an end", "[a-01]") {
  const auto backend = GENERATE(from_range(kBackends));
  Job job(backend, 2);
  job.config.cells = {cell_of(Collective::allreduce, 4096),
                      cell_of(Collective::allgather, 4, DataType::float64),
                      cell_of(Collective::broadcast, 1000, DataType::int32)};
  job.start();
  const int code = job.wait(kTimeoutS);
  INFO(name_of(backend) << "\n" << job.errors());
  REQUIRE(code == 0);
  for (const int rank : {0, 1}) {
    const auto records = job.records(rank);
    REQUIRE(records.size() == 8);
    const auto& hello = std::get<HelloRecord>(records[0]);
    CHECK(hello.rank == rank);
    CHECK(hello.world_size == 2);
    CHECK(hello.launch_id == "job");
    CHECK(hello.pid > 0);
    CHECK(hello.started_unix_s <= hello.ready_unix_s);
    CHECK_THAT(hello.library, ContainsSubstring(hello.library_version));
    CHECK(std::get<FactsRecord>(records[1]).facts.contains("namespaces"));
    for (std::size_t i = 0; i < 3; ++i) {
      const auto& cell = std::get<CellRecord>(records[2 + i]);
      CHECK(cell.cell_id == job.config.cells[i].id);
      CHECK(cell.position == static_cast<int>(i));
      CHECK(cell.rank == rank);
      CHECK(cell.barrier == "dissemination");
    }
    const auto& first = std::get<CellRecord>(records[2]);
    CHECK(first.status == CellStatus::ok);
    CHECK(first.checked == 2 * 1024);
    CHECK(first.wrong == 0);
    CHECK(first.measured.total_us.size() == 5);
    CHECK(first.measured.collective_us == first.measured.total_us);
    CHECK(first.warmup.total_us.size() == 2);
    CHECK(first.measured.start_us.front() > first.warmup.start_us.back());
    const auto& second = std::get<CellRecord>(records[3]);
    CHECK(second.status == CellStatus::unsupported);
    CHECK_THAT(second.reason, ContainsSubstring("less than one float64 for each of 2 parts"));
    CHECK(second.measured.total_us.empty());
    const auto& transport = std::get<TransportRecord>(records[5]);
    CHECK_FALSE(transport.evidence.empty());
    CHECK(transport.details.at("cells").contains(first.cell_id));
    CHECK(transport.details.at("noise").at("own_cpu_s") > 0);
    // Any higher level would slow down small messages, and is training's alone.
    if (backend != Backend::gloo) CHECK(transport.details.at("thread_level") == "single");
    const auto& clock = std::get<ClockRecord>(records[6]);
    CHECK(clock.shared);
    CHECK((rank == 0 || clock.error_us > 0));
    CHECK(std::get<DoneRecord>(records[7]).peak_rss_bytes > 1e6);
  }
}

TEST_CASE("a build that flips one received byte fails every cell", "[a-03]") {
  const auto backend = GENERATE(from_range(kBackends));
  for (const auto architecture : {Architecture::ring, Architecture::ps}) {
    Job job(backend, 2);
    job.faulty = true;
    job.config.architecture = architecture;
    for (const auto& entry : NameTable<Collective>::entries) {
      if (belongs_to(entry.value, architecture))
        job.config.cells.push_back(cell_of(entry.value, 4096));
    }
    job.start();
    const int code = job.wait(kTimeoutS);
    INFO(name_of(backend) << "\n" << job.errors());
    REQUIRE(code == 0);
    const auto zero = job.records_of<CellRecord>(0);
    const auto one = job.records_of<CellRecord>(1);
    REQUIRE(zero.size() == job.config.cells.size());
    REQUIRE(one.size() == job.config.cells.size());
    for (std::size_t i = 0; i < zero.size(); ++i) {
      const CellRecord& failed = zero[i].status == CellStatus::failed ? zero[i] : one[i];
      INFO(zero[i].cell_id);
      CHECK(failed.status == CellStatus::failed);
      CHECK(failed.wrong == 2);
      CHECK_THAT(failed.reason, ContainsSubstring("wrong data on rank") &&
                                    ContainsSubstring("must be") &&
                                    ContainsSubstring("elements wrong)"));
    }
  }
}

TEST_CASE("a rank that is killed ends the others and leaves whole records") {
  const auto backend = GENERATE(from_range(kBackends));
  Job job(backend, 2);
  job.config.cells = {cell_of(Collective::allreduce, 64), cell_of(Collective::allreduce, 1 << 20)};
  job.config.protocol.iterations = 100000000;
  job.config.protocol.cell_time_cap = Micros(300e6);
  job.start();
  const HelloRecord hello = wait_for_hello(job, 1);
  REQUIRE(hello.pid > 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill(static_cast<pid_t>(hello.pid), SIGKILL);
  // On a busy machine it may die while the ranks connect, of which they learn by that limit alone.
  const int code = job.wait(job.config.connect_timeout.count() / 1e6 + kTimeoutS);
  INFO(name_of(backend) << ": exit code " << code << "\n" << job.errors());
  CHECK(code > 0);
  CHECK(job.records_of<HelloRecord>(0).size() == 1);
  CHECK(job.records_of<DoneRecord>(0).empty());
  if (backend == Backend::gloo) {
    REQUIRE(job.records_of<ErrorRecord>(0).size() == 1);
    CHECK_FALSE(job.records_of<ErrorRecord>(0)[0].message.empty());
  }
}

TEST_CASE("ranks that were not joined into one job are an error, not a small success") {
  const auto backend = GENERATE(from_range(kBackends));
  if (backend == Backend::gloo) return;  // Gloo's world is what it is told, or does not connect
  Job job(backend, 2);
  job.config.cells = {cell_of(Collective::allreduce, 64)};
  job.start_alone(0);
  job.start_alone(1);
  CHECK(job.wait(kTimeoutS) > 0);
  const auto errors = job.records_of<ErrorRecord>(0);
  INFO(job.errors());
  REQUIRE(errors.size() == 2);
  CHECK_THAT(errors[0].message, ContainsSubstring("world size is 1 but run.json says 2 ranks"));
  CHECK(job.records_of<CellRecord>(0).empty());
}

TEST_CASE("an output folder of an earlier launch is refused") {
  const auto backend = GENERATE(from_range(kBackends));
  Job job(backend, 2);
  std::ofstream(job.config.output_dir + "/" + record_file_name(1)) << "old\n";
  job.start();
  const int code = job.wait(kTimeoutS);
  INFO(name_of(backend) << ": exit code " << code);
  CHECK(code > 0);
  CHECK_THAT(job.errors(), ContainsSubstring("another process claims this rank"));
}

TEST_CASE("a run.json that cannot be used ends with code 2 and says what is wrong") {
  const auto backend = GENERATE(from_range(kBackends));
  Job job(backend, 1);
  job.start_alone(0);
  job.wait(kTimeoutS);
  SECTION("another backend") {
    Job other(backend, 1);
    other.config.backend = backend == Backend::openmpi ? Backend::mpich : Backend::openmpi;
    const std::string text = to_json(other.config);
    other.config.backend = backend;
    std::ofstream(other.run_json()) << text;
    const std::string program = backend == Backend::gloo
                                    ? std::string("dynamiccl-worker")
                                    : fmt::format("dynamiccl-worker-{}", name_of(backend));
    const int status = std::system(fmt::format("{}/{} {} 2>{}/stderr", DYNAMICCL_BINARY_DIR,
                                               program, other.run_json(), other.config.output_dir)
                                       .c_str());
    CHECK(WEXITSTATUS(status) == 2);
    CHECK_THAT(other.errors(), ContainsSubstring("this worker has: "));
  }
  SECTION("damaged") {
    std::ofstream(job.run_json()) << "{\"protocol_version\": 1";
    const std::string program = backend == Backend::gloo
                                    ? std::string("dynamiccl-worker")
                                    : fmt::format("dynamiccl-worker-{}", name_of(backend));
    const int status = std::system(fmt::format("{}/{} {} 2>>{}/stderr", DYNAMICCL_BINARY_DIR,
                                               program, job.run_json(), job.config.output_dir)
                                       .c_str());
    CHECK(WEXITSTATUS(status) == 2);
    CHECK_THAT(job.errors(), ContainsSubstring("run.json: "));
  }
}

TEST_CASE("Gloo gives up when a rank never comes") {
  if (!has(Backend::gloo)) SKIP("built without Gloo");
  Job job(Backend::gloo, 2);
  job.config.connect_timeout = Micros(1e6);
  job.start_alone(0);
  CHECK(job.wait(kTimeoutS) == 1);
  REQUIRE(job.records_of<ErrorRecord>(0).size() == 1);
  CHECK_THAT(job.records_of<ErrorRecord>(0)[0].message, ContainsSubstring("connecting Gloo"));
}

TEST_CASE("a backend without a launcher needs to be told its rank") {
  if (!has(Backend::gloo)) SKIP("built without Gloo");
  Job job(Backend::gloo, 2);
  job.environment["DYNAMICCL_RANK"] = "2";
  job.start_alone(2);
  CHECK(job.wait(kTimeoutS) == 2);
  CHECK_THAT(job.errors(),
             ContainsSubstring("DYNAMICCL_RANK is \"2\"") && ContainsSubstring("0 to 1"));
}

TEST_CASE("the transport record names the way the bytes really went") {
  if (has(Backend::openmpi)) {
    CHECK(transport_of(Backend::openmpi,
                       {"--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"}, {})
              .transport == "tcp");
    CHECK(transport_of(Backend::openmpi, {"--mca", "btl_vader_single_copy_mechanism", "none"}, {})
              .transport == "shm");
    const auto cma = transport_of(Backend::openmpi, {}, {});
    if (cma.cma_errors == 0) {
      CHECK(cma.transport == "cma");
      CHECK(cma.details.at("exchange").at("transport") == "cma");
    }
  }
  if (has(Backend::mpich)) {
    // Only the loopback: UCX otherwise tries bridges of containers that come and go.
    CHECK(transport_of(Backend::mpich, {}, {{"UCX_TLS", "tcp,self"}, {"UCX_NET_DEVICES", "lo"}})
              .transport == "tcp");
    CHECK(transport_of(Backend::mpich, {}, {{"UCX_TLS", "posix,self"}}).transport == "shm");
  }
  if (has(Backend::gloo)) CHECK(transport_of(Backend::gloo, {}, {}).transport == "tcp");
}

TEST_CASE("one rank alone measures, and sends nothing") {
  const auto backend = GENERATE(from_range(kBackends));
  Job job(backend, 1);
  job.config.cells = {cell_of(Collective::allreduce, 4096)};
  job.start();
  CHECK(job.wait(kTimeoutS) == 0);
  REQUIRE(job.records_of<CellRecord>(0).size() == 1);
  CHECK(job.records_of<CellRecord>(0)[0].status == CellStatus::ok);
  CHECK(job.records_of<TransportRecord>(0)[0].transport == "self");
}

TEST_CASE("kept memory ends the faults of every call, and huge pages come where they are asked") {
  if (!has(Backend::openmpi)) SKIP("built without Open MPI");
  const auto memory = [](const std::map<std::string, std::string>& settings) {
    Job job(Backend::openmpi, 2);
    // Given in any case: somebody's own must not mix in.
    job.environment = {{std::string(kTunablesVariable), with_malloc_settings("", settings)}};
    job.config.cells = {cell_of(Collective::allreduce, std::uint64_t{64} << 20)};
    job.start();
    const int code = job.wait(kTimeoutS);
    INFO(job.errors());
    REQUIRE(code == 0);
    return job.records_of<TransportRecord>(0).at(0).details.at("memory");
  };
  const auto faults = [](const nlohmann::json& left) {
    const auto& cell = left.at("cells").front();
    return cell.at("minor_faults").get<double>() / cell.at("calls").get<double>();
  };
  const auto plain = memory({});
  if (plain.at("allocator").at("keeps").is_null()) SKIP("this build's allocator is not glibc's");
  CHECK(plain.at("allocator").at("keeps") == false);
  // Open MPI's temporary buffer is half of the message: 8192 pages of 4 KiB.
  CHECK(faults(plain) > 4096);
  const auto kept = memory({{"keep", "1"}});
  INFO("faults per call: " << faults(plain) << " and kept " << faults(kept));
  CHECK(kept.at("not_effective").empty());
  CHECK(kept.at("allocator").at("keeps") == true);
  CHECK(faults(kept) * 10 < faults(plain));
  const auto huge = memory({{"huge_pages", "1"}});
  const auto mode = plain.at("huge_pages").at("mode");
  if (mode != "madvise") SKIP("transparent huge pages are not there for the asking: " << mode);
  CHECK(plain.at("huge_pages").at("bytes") == 0);
  // Input and output are 128 MiB; memory in small pieces may leave some of it out.
  CHECK(huge.at("huge_pages").at("bytes").get<double>() > double{32 << 20});
  CHECK(huge.at("not_effective").empty());
}
