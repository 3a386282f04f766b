#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// First line of every rank's file: who am I and in what world do I think I run.
struct HelloRecord {
  int rank = 0;
  int world_size = 0;
  std::string launch_id;
  std::string library;          ///< what the loaded library calls itself, with its version
  std::string library_version;  ///< "4.1.4"
  std::int64_t pid = 0;         ///< as seen in the rank's own PID namespace
  double started_unix_s = 0;    ///< wall clock at the start of main
  double ready_unix_s = 0;      ///< wall clock once connected to all ranks
  double clock_ns = 0;          ///< CLOCK_MONOTONIC at ready_unix_s
};

/// What the rank sees of its surroundings: the output of profiles/detect, opaque to core.
struct FactsRecord {
  int rank = 0;
  nlohmann::json facts;
};

/// One array per component; all arrays of a cell have the same length. Empty = does not apply here.
struct SampleArrays {
  std::vector<double>
      start_us;  ///< start of the sample, CLOCK_MONOTONIC since HelloRecord::clock_ns
  std::vector<double> total_us;       ///< one call (a batch's time divided by its calls)
  std::vector<double> collective_us;  ///< inside the library's collective
  std::vector<double> h2d_us;         ///< copy host to device
  std::vector<double> d2h_us;         ///< copy device to host
  std::vector<double> send_us;        ///< point-to-point between workers and server
  std::vector<double> compute_us;     ///< the server's own reduction
  std::vector<double> device_us;  ///< the same calls by the GPU's clock (CUDA events); no component
  /// The process's threads were ready to run and had no core, summed over them, from before the
  /// ranks meet to the sample's end (a batch's time divided by its calls); no component.
  std::vector<double> waited_us;
};

/// What a training cell records besides its step times. Times are medians over the measured steps.
struct TrainingFigures {
  std::string role;         ///< "worker" or "server"
  double single_us = 0;     ///< one step of a worker alone: no other rank computes or sends
  double compute_us = 0;    ///< one step without communication, all ranks computing at once
  double forward_us = 0;    ///< forward pass without waiting
  double backward_us = 0;   ///< backward pass
  double update_us = 0;     ///< optimizer
  double exposed_us = 0;    ///< computation stands still until gradients arrive
  double predicted_us = 0;  ///< step expected from the profile and the measured cost table
  /// Payload that this rank sends in one step; of a library's all-reduce what a ring would send.
  double wire_bytes = 0;
  double counted_bytes = -1;   ///< moved in one measured step by sockets and CMA; < 0: another way
  double c2c_predicted = 0;    ///< parameters communicated per FLOP, by formula, unpacked
  double c2c_measured = -1;    ///< the same from bytes that were counted; < 0: none were
  double intensity = 0;        ///< I = C / D, FLOP per sample and parameter
  double first_loss = 0;       ///< of the first step from the weights at the start
  double last_loss = 0;        ///< mean of the last ten steps
  double accuracy = -1;        ///< on held-out samples after the last step, 0 to 1; < 0: not asked
  double max_difference = -1;  ///< from the sequential oracle; < 0: not asked
  /// Digest of this worker's own parameters after the last step; empty on a server.
  std::string parameters_sha256;
  nlohmann::json details =
      nlohmann::json::object();  ///< plan, cost table, losses, one step's trace
};

/// Result of one cell on one rank, written as soon as its timed part ends.
struct CellRecord {
  std::string cell_id;
  int rank = 0;
  CellStatus status = CellStatus::ok;  ///< ok, failed or unsupported
  std::string reason;                  ///< why not ok
  int position = 0;                    ///< place in the launch's random order
  Cadence cadence = Cadence::isolated;
  int batch = 1;  ///< calls per sample
  std::string
      barrier;  ///< what synchronises the ranks before a sample: "mpi_barrier", "dissemination"
  std::string algorithm;      ///< what ran, as far as it can be known
  std::uint64_t checked = 0;  ///< elements compared
  std::uint64_t wrong = 0;    ///< elements that differ
  SampleArrays warmup;        ///< discarded from statistics, kept in the store
  SampleArrays measured;
  std::optional<TrainingFigures> training;  ///< training cells only
};

/// Proof of the transport really used over the cells of a launch, per rank.
struct TransportRecord {
  int rank = 0;
  std::string transport;            ///< "tcp", "cma", "shm", "p2p", "net", "self", or "mixed"
  std::uint64_t payload_bytes = 0;  ///< what the cells asked the library to move
  std::uint64_t tcp_bytes = 0;      ///< sent over this process's TCP sockets (TCP_INFO)
  std::uint64_t cma_bytes = 0;      ///< read or written by process_vm_readv/writev
  std::uint64_t cma_errors = 0;     ///< refused process_vm_readv/writev calls
  std::string evidence;             ///< one sentence: how this is known
  nlohmann::json details = nlohmann::json::object();
};

/// A rank's CLOCK_MONOTONIC against rank 0's, by ping-pong before and after the cells. The smallest
/// round trip counts: offset = the rank's reading - the middle of that trip (SKaMPI, NTP).
struct ClockRecord {
  int rank = 0;
  bool shared = false;   ///< one kernel and time namespace with rank 0: one clock, offset 0
  double at_us = 0;      ///< this rank's clock at the first comparison
  double offset_us = 0;  ///< this rank's clock minus rank 0's there
  double error_us = 0;   ///< half the smallest round trip: the offset is within it
  double end_at_us = 0;  ///< the same after the cells
  double end_offset_us = 0;
  double end_error_us = 0;
  int rounds = 0;  ///< round trips of one comparison
};

/// Last words of a rank that cannot go on.
struct ErrorRecord {
  int rank = 0;
  std::string message;
};

/// Last line of a rank that ended as it should.
struct DoneRecord {
  int rank = 0;
  double ended_unix_s = 0;
  double peak_rss_bytes = 0;
};

using Record = std::variant<HelloRecord, FactsRecord, CellRecord, TransportRecord, ClockRecord,
                            ErrorRecord, DoneRecord>;

/// @returns one line of JSON without the newline
std::string to_json_line(const Record& record);

/// @throws Error(data) on damaged JSON or an unknown record type
Record record_from_json_line(const std::string& line);

/// Name of a rank's record file inside RunConfig::output_dir.
std::string record_file_name(int rank);

struct RecordFile {
  std::vector<Record> records;
  /// Set when the last line is cut off (a killed rank); everything before it is in `records`.
  std::optional<std::string> torn_line;
};

/// Reads rank<r>.jsonl. A torn last line is reported, not thrown: a killed worker leaves a readable
/// prefix.
/// @throws Error(data) on a damaged line that is not the last, Error(environment) when it cannot be
/// read
RecordFile read_record_file(const std::string& path);

}  // namespace dynamiccl
