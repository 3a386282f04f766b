#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "core/vocabulary/file_text.hpp"
#include "workers/clock.hpp"
#include "workers/measure/neighbour.hpp"
#include "workers/run/backend_table.hpp"
#include "workers/run/own_folder.hpp"
#include "workers/run/record_writer.hpp"
#include "workers/run/worker.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kHelp =
    "usage: {0} RUN_JSON\n"
    "One rank of a launch: measures the cells of RUN_JSON and writes rank<r>.jsonl into its\n"
    "output_dir; tcp://ADDRESS:PORT in its place is where it is fetched and records are sent.\n"
    "Started by dynamiccl; by hand, for example:\n"
    "  mpirun -n 2 {0} run.json\n"
    "Backends in this executable: {1}\n";

std::string backend_names() {
  std::vector<std::string> names;
  for (const auto& row : backend_table()) names.emplace_back(name_of(row.backend));
  return join(names, ", ");
}

/// A launch whose folder this machine does not see: run.json and what lies next to it come by a
/// connection, and records go back by one.
RunConfig fetch_config(const std::string& place, OwnFolder& folder) {
  const char* token = std::getenv(kRecordsToken);
  records_endpoint() = parse_records_endpoint(place, token != nullptr ? token : "");
  // Nothing that this process records of its environment may hold it.
  unsetenv(kRecordsToken);
  const FetchedRun run = fetch_run(*records_endpoint());
  // Records and the rendezvous need not find out again which address leads there.
  auto& addresses = records_endpoint()->addresses;
  std::stable_partition(addresses.begin(), addresses.end(),
                        [&](const std::string& address) { return address == run.address; });
  RunConfig config = run_config_from_json(run.run_json);
  config.output_dir = folder.make();
  if (!config.rendezvous_dir.empty()) config.rendezvous_dir = config.output_dir;
  keep_files(run, config.output_dir);
  return config;
}

RunConfig read_config(const std::string& path, OwnFolder& folder) {
  if (path.starts_with(kRecordsScheme)) return fetch_config(path, folder);
  const auto text = read_file(path);
  if (!text) throw Error(ErrorKind::input, fmt::format("{}: cannot be read", path));
  return run_config_from_json(*text);
}

Connect find_backend(Backend backend) {
  for (const auto& row : backend_table()) {
    if (row.backend == backend) return row.connect;
  }
  throw Error(ErrorKind::input, fmt::format("run.json asks for backend {}, this worker has: {}",
                                            name_of(backend), backend_names()));
}

/// A rank that could not be joined still leaves its last words where its number is known.
std::unique_ptr<Communicator> connect(const RunConfig& config) {
  try {
    return find_backend(config.backend)(config);
  } catch (const Error& error) {
    if (std::getenv("DYNAMICCL_RANK") != nullptr) {
      const int rank = rank_from_environment(config.ranks);
      RecordWriter(config.output_dir, rank, RecordWriter::Existing::append)
          .write(ErrorRecord{rank, error.what()});
    }
    throw;
  }
}

int work(const std::string& path, double started_unix_s) {
  OwnFolder folder;
  const RunConfig config = read_config(path, folder);
  const auto comm = connect(config);
  try {
    run_worker(*comm, config, started_unix_s, training_maker());
    // MPICH's ends that hang are ended without any destructor, see mpi_finish.cpp. The folder is
    // this rank's alone, so none of the others needs it.
    folder.remove();
    comm->finalize();
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", comm->rank(), error.what());
    // MPICH's launcher drops what it has not yet passed on when a rank aborts (3 of 100 last
    // words).
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    folder.remove();
    // The others would wait for this rank for ever.
    comm->abort(1);
  }
  return 0;
}

}  // namespace
}  // namespace dynamiccl

int main(int argc, char** argv) {
  const double started_unix_s = dynamiccl::unix_now_s();
  const std::string_view argument = argc == 2 ? argv[1] : "";
  if (argc > 2 && argv[1] == std::string_view(dynamiccl::kNeighbourArgument))
    return dynamiccl::be_neighbour(argc - 2, argv + 2);
  if (argc != 2 || argument == "--help" || argument == "-h") {
    const bool asked = argc == 2;
    fmt::print(asked ? stdout : stderr, fmt::runtime(dynamiccl::kHelp), argv[0],
               dynamiccl::backend_names());
    return asked ? 0 : 2;
  }
  try {
    return dynamiccl::work(std::string(argument), started_unix_s);
  } catch (const dynamiccl::Error& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    const bool users =
        error.kind() == dynamiccl::ErrorKind::input || error.kind() == dynamiccl::ErrorKind::data;
    return users ? 2 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 1;
  }
}
