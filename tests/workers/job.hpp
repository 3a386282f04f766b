#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "core/wire/record.hpp"
#include "core/wire/run_config.hpp"

namespace dynamiccl::testing {

/// A launch of a real worker in a folder of its own; nothing of it outlives the object.
class Job {
 public:
  explicit Job(Backend backend, int ranks);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  RunConfig config;                                ///< written to run.json by start()
  std::vector<std::string> launcher_flags;         ///< MPI only
  std::map<std::string, std::string> environment;  ///< for the launcher and the ranks
  bool faulty = false;                             ///< start the build with planted faults
  bool trains = false;                             ///< start the trainer, not the worker
  /// NCCL takes each rank for a host of its own: over sockets, several of them may use one GPU.
  bool hosts_apart = false;

  /// Starts the launcher, or one process per rank where there is none.
  void start();
  /// Starts the worker itself, without a launcher.
  void start_alone(int rank);
  /// @returns the worst exit code, 128 + signal for a killed process; -1 (and everything killed)
  /// when it takes longer
  int wait(double timeout_s);

  [[nodiscard]] std::vector<Record> records(int rank) const;
  template <class R>
  [[nodiscard]] std::vector<R> records_of(int rank) const {
    std::vector<R> found;
    for (const auto& record : records(rank)) {
      if (const auto* r = std::get_if<R>(&record)) found.push_back(*r);
    }
    return found;
  }
  /// What the processes printed on stderr.
  [[nodiscard]] std::string errors() const;
  [[nodiscard]] std::string run_json() const { return config.output_dir + "/run.json"; }

 private:
  [[nodiscard]] std::string worker() const;
  void spawn(const std::vector<std::string>& arguments,
             const std::map<std::string, std::string>& more_environment);

  std::vector<pid_t> processes_;
};

/// The backends whose programs this build has.
inline const std::vector<Backend> kBackends{
#ifdef DYNAMICCL_TEST_OPENMPI
    Backend::openmpi,
#endif
#ifdef DYNAMICCL_TEST_MPICH
    Backend::mpich,
#endif
#ifdef DYNAMICCL_TEST_GLOO
    Backend::gloo,
#endif
};

/// Waits up to a minute until the rank has said hello; its pid is in the record, 0 when it did not.
HelloRecord wait_for_hello(const Job& job, int rank);

/// A cell with defaults.
WorkCell cell_of(Collective collective, std::uint64_t size, DataType type = DataType::float32,
                 const std::string& algorithm = "library");

}  // namespace dynamiccl::testing
