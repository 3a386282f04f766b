#include "workers/backends/nccl.hpp"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/vocabulary/file_text.hpp"
#include "train/spec/training.hpp"
#include "workers/backends/nccl_log.hpp"
#include "workers/clock.hpp"
#include "workers/device/cuda_check.hpp"
#include "workers/run/backend_table.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

// A communicator holds buffers of some hundred MiB, and making one takes a third of a second, while
// the cells of a sweep come in random order: more than these stay while there is memory.
constexpr std::size_t kKeptCommunicators = 12;

/// Sets a variable for as long as a communicator is made, then puts back what was there.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(value.empty() ? nullptr : name) {
    if (name_ == nullptr) return;
    if (const char* before = std::getenv(name_)) before_ = before;
    setenv(name_, value.c_str(), 1);
  }
  ~Variable() {
    if (name_ == nullptr) return;
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// NCCL tells its choices only in its log: one file per rank, unless the user directs it elsewhere.
std::string direct_log(const RunConfig& config, int rank) {
  std::string path = fmt::format("{}/nccl.rank{}.log", config.output_dir, rank);
  if (std::getenv("NCCL_DEBUG") != nullptr || std::getenv("NCCL_DEBUG_FILE") != nullptr) return "";
  setenv("NCCL_DEBUG", "INFO", 1);
  // Only what is logged when connections are made: nothing is written while cells are timed.
  setenv("NCCL_DEBUG_SUBSYS", "INIT,GRAPH,P2P,SHM,NET,ENV", 0);
  setenv("NCCL_DEBUG_FILE", path.c_str(), 1);
  return path;
}

/// Whether a cell's all-reduces are set step by step, by our tuner plugin.
bool tunes_calls(const RunConfig& config) {
  return std::any_of(config.cells.begin(), config.cells.end(), [](const WorkCell& cell) {
    return cell.collective == Collective::training && is_tuned(parsed_training(cell));
  });
}

/// Of this rank's GPU, or of the memory files that NCCL's sockets and shared memory lie in: a
/// container may have few of these.
bool half_is_used() {
  std::size_t free = 0;
  std::size_t total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  struct statvfs files {};
  const bool many = statvfs("/dev/shm", &files) != 0 || files.f_bavail >= files.f_blocks / 2;
  return free < total / 2 || !many;
}

std::string version_text(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code % 10000 / 100, code % 100);
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::unique_ptr<Communicator> host, const RunConfig& config)
    : host_(std::move(host)) {
  const auto server = static_cast<std::size_t>(config.server_rank);
  if (config.architecture == Architecture::ps && server < config.gpu_of_rank.size() &&
      config.gpu_of_rank[server] < 0)
    apart_ = config.server_rank;
  nccl_rank_ = in_nccl() ? nccl_rank_of(rank()) : -1;
  nccl_size_ = size() - (server_apart() ? 1 : 0);
  try {
    open(config);
  } catch (const Error& error) {
    unusable_ = error.what();
  }
  // One rank without GPU or library leaves every cell out; otherwise the others would wait for it.
  const double failed = sum_over_ranks(*host_, {unusable_.empty() ? 0.0 : 1.0})[0];
  if (failed > 0 && unusable_.empty())
    unusable_ = fmt::format("{} of {} ranks cannot use NCCL", failed, size());
  if (!unusable_.empty()) return;
  comm_ = make({});
  pool_[{}] = comm_;
  // The first all-reduce tells the tuner what NCCL has ruled out here.
  if (!call_tuner_.loaded()) return;
  NcclCommunicator::synchronise();
  call_tuner_.require_asked();
}

NcclCommunicator::~NcclCommunicator() = default;

void NcclCommunicator::open(const RunConfig& config) {
  if (!in_nccl()) return;
  device_ = open_device(planned_gpu(config.gpu_of_rank, rank(), nccl_rank_));
  log_path_ = direct_log(config, rank());
  witness_.load();
  if (tunes_calls(config)) call_tuner_.load(plugin_path());
  api_ = &nccl_api();
  int code = 0;
  check(api_->get_version(&code), "ncclGetVersion");
  version_ = version_text(code);
  queue_ = std::make_unique<CudaQueue>();
  barrier_word_ = device_->allocate(sizeof(std::int32_t));
}

void NcclCommunicator::check(ncclResult_t code, const char* call) const {
  if (code == ncclSuccess || code == ncclInProgress) return;
  throw Error(ErrorKind::environment,
              fmt::format("{} failed: {}: {}{}", call, api_->get_error_string(code),
                          api_->get_last_error(nullptr),
                          log_path_.empty() ? "" : "; NCCL's log: " + log_path_));
}

std::string NcclCommunicator::library() const {
  if (!in_nccl()) return fmt::format("server without GPU, over {}", host_->library());
  if (api_ == nullptr) return "NCCL (not usable here)";
  return fmt::format("NCCL {} on {} at {}, joined over {}", version_, device_->name(),
                     device_->pci(), host_->library());
}

std::optional<std::string> NcclCommunicator::unsupported(const CallShape& shape) const {
  if (!unusable_.empty()) return unusable_;
  if (server_apart() && !belongs_to(shape.collective, Architecture::ps))
    return "the server has no GPU, so that only the parameter server's operations reach it";
  if (server_apart() && shape.collective == Collective::scatter)
    return "a server without a GPU scatters nothing; nearest is broadcast";
  if (call_tuner_.loaded() && NcclCallTuner::is_per_call(shape))
    return call_tuner_.unsupported(shape);
  return nccl_unsupported(shape);
}

ncclUniqueId NcclCommunicator::share_id() {
  ncclUniqueId id{};
  if (is_chief()) {
    check(api_->get_unique_id(&id), "ncclGetUniqueId");
    for (int to = 0; to < size(); ++to) {
      if (to != rank() && to != apart_) host_->wait(host_->isend(&id, sizeof id, to, kControlTag));
    }
  } else {
    host_->wait(host_->irecv(&id, sizeof id, chief(), kControlTag));
  }
  return id;
}

ncclComm_t NcclCommunicator::make(const NcclSettings& settings) {
  if (!in_nccl()) return nullptr;
  const ncclUniqueId id = share_id();
  const Variable algorithm("NCCL_ALGO", settings.algorithm);
  const Variable protocol("NCCL_PROTO", settings.protocol);
  const Variable thresholds("NCCL_THREAD_THRESHOLDS", settings.thread_thresholds);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (settings.min_ctas) config.minCTAs = *settings.min_ctas;
  if (settings.max_ctas) config.maxCTAs = *settings.max_ctas;
  // NCCL 2.28 takes an unset maximum for one below every minimum.
  if (settings.min_ctas && !settings.max_ctas) config.maxCTAs = kMostCtas;
  if (settings.cga_cluster_size) config.cgaClusterSize = *settings.cga_cluster_size;
  ncclComm_t made = nullptr;
  const ncclResult_t code = api_->comm_init_rank_config(&made, nccl_size_, id, nccl_rank_, &config);
  // Every rank meets refused settings alike, before it speaks to another.
  if (code == ncclInvalidArgument && settings != NcclSettings{})
    throw Error(ErrorKind::input, fmt::format("NCCL refuses {}", describe(settings)));
  check(code, "ncclCommInitRankConfig");
  return made;
}

std::string NcclCommunicator::choose(const CallShape& shape) {
  if (call_tuner_.loaded() && NcclCallTuner::is_per_call(shape)) {
    // Its communicator stays: nothing is made or connected anew but what NCCL itself connects.
    comm_ = pool_.at({});
    call_tuner_.choose(shape);
    return "by call";
  }
  if (call_tuner_.clear() && nccl_settings(shape) == NcclSettings{}) return "library";
  const NcclSettings settings = nccl_settings(shape);
  if (queue_) queue_->drop_graph();
  witness_.watch();
  watching_ = true;
  const auto found = pool_.find(settings);
  if (found != pool_.end()) {
    comm_ = found->second;
    return describe(settings);
  }
  // All ranks alike: each makes its part of what is missing.
  if (pool_.size() >= kKeptCommunicators &&
      sum_over_ranks(*host_, {in_nccl() && half_is_used() ? 1.0 : 0.0})[0] > 0) {
    // All but the plain one, which the barrier uses.
    const ncclComm_t plain = pool_.at({});
    for (const auto& [other, comm] : pool_) {
      if (comm != plain) check(api_->comm_destroy(comm), "ncclCommDestroy");
    }
    pool_ = {{NcclSettings{}, plain}};
  }
  comm_ = make(settings);
  pool_[settings] = comm_;
  return describe(settings);
}

void NcclCommunicator::complete() {
  if (!queue_) return;
  for (unsigned turn = 1; !queue_->is_done(); ++turn)
    if (turn % kTurnsPerCheck == 0) check_queued();
}

/// A rank that failed elsewhere shows as an asynchronous error only.
void NcclCommunicator::check_queued() const {
  if (comm_ == nullptr) return;
  check_state(comm_);
  for (const ncclComm_t lane : lanes_) check_state(lane);
}

void NcclCommunicator::check_state(ncclComm_t comm) const {
  ncclResult_t state = ncclSuccess;
  check(api_->comm_get_async_error(comm, &state), "ncclCommGetAsyncError");
  check(state, "an NCCL collective");
}

std::size_t NcclCommunicator::open_lanes(std::size_t count) {
  if (!queue_ || server_apart()) return 1;
  complete();
  queue_->drop_graph();
  comm_ = pool_.at({});
  for (; lanes_.size() + 1 > count; lanes_.pop_back())
    check(api_->comm_destroy(lanes_.back()), "ncclCommDestroy");
  while (lanes_.size() + 1 < count && add_lane()) {
  }
  queue_->set_lanes(lanes_.size() + 1);
  return lanes_.size() + 1;
}

bool NcclCommunicator::add_lane() {
  ncclComm_t made = nullptr;
  try {
    made = make({});
  } catch (const Error&) {
    // The lanes that are there do; NCCL's log has the reason.
  }
  const bool failed = sum_over_ranks(*host_, {made == nullptr ? 1.0 : 0.0})[0] > 0;
  if (!failed) {
    lanes_.push_back(made);
  } else if (made != nullptr) {
    // Destroying waits for the other ranks, of which one has no part in it.
    check(api_->comm_abort(made), "ncclCommAbort");
  }
  return !failed;
}

ncclComm_t NcclCommunicator::now() const {
  const std::size_t lane = queue_->lane();
  return lane == 0 ? comm_ : lanes_[lane - 1];
}

void NcclCommunicator::synchronise() {
  if (server_apart()) return host_->synchronise();
  // Host messages leave the ranks tens of microseconds apart, more than a small collective takes.
  check(api_->all_reduce(barrier_word_.get(), barrier_word_.get(), 1, ncclInt32, ncclSum,
                         pool_.at({}), queue_->stream()),
        "ncclAllReduce");
  complete();
  if (watching_) witness_.forget();
}

/// The first call of a cell has run: the timed ones are left alone.
std::optional<std::string> NcclCommunicator::applied() {
  watching_ = false;
  std::string seen = witness_.conclude();
  return seen.empty() ? std::nullopt : std::optional(std::move(seen));
}

std::string NcclCommunicator::barrier_name() const {
  return server_apart() ? host_->barrier_name() : "nccl_allreduce_4B";
}

std::optional<PhaseTimes> NcclCommunicator::take_phases() {
  if (!server_apart()) return std::nullopt;
  return std::exchange(phases_, {});
}

void NcclCommunicator::allreduce(const void* in, void* out, std::size_t count, DataType type) {
  check(api_->all_reduce(in, out, count, nccl_type(type), ncclSum, now(), queue_->stream()),
        "ncclAllReduce");
}

void NcclCommunicator::allgather(const void* in, void* out, std::size_t count, DataType type) {
  check(api_->all_gather(in, out, count, nccl_type(type), now(), queue_->stream()),
        "ncclAllGather");
}

void NcclCommunicator::reduce_scatter(const void* in, void* out, std::size_t count, DataType type) {
  check(api_->reduce_scatter(in, out, count, nccl_type(type), ncclSum, now(), queue_->stream()),
        "ncclReduceScatter");
}

void NcclCommunicator::alltoall(const void* in, void* out, std::size_t count, DataType type) {
  const std::size_t bytes = count * element_bytes(type);
  check(api_->group_start(), "ncclGroupStart");
  for (int peer = 0; peer < nccl_size_; ++peer) {
    const std::size_t at = static_cast<std::size_t>(peer) * bytes;
    check(api_->send(static_cast<const std::byte*>(in) + at, count, nccl_type(type), peer, comm_,
                     queue_->stream()),
          "ncclSend");
    check(api_->recv(static_cast<std::byte*>(out) + at, count, nccl_type(type), peer, comm_,
                     queue_->stream()),
          "ncclRecv");
  }
  check(api_->group_end(), "ncclGroupEnd");
}

void NcclCommunicator::alltoallv(const void* in, void* out, const PairCounts& counts,
                                 DataType type) {
  const std::size_t width = element_bytes(type);
  const auto part = [&](const std::vector<int>& numbers, int peer) {
    return static_cast<std::size_t>(numbers[static_cast<std::size_t>(peer)]);
  };
  check(api_->group_start(), "ncclGroupStart");
  for (int peer = 0; peer < nccl_size_; ++peer) {
    check(api_->send(static_cast<const std::byte*>(in) + part(counts.send_at, peer) * width,
                     part(counts.send, peer), nccl_type(type), peer, comm_, queue_->stream()),
          "ncclSend");
    check(api_->recv(static_cast<std::byte*>(out) + part(counts.receive_at, peer) * width,
                     part(counts.receive, peer), nccl_type(type), peer, comm_, queue_->stream()),
          "ncclRecv");
  }
  check(api_->group_end(), "ncclGroupEnd");
}

void NcclCommunicator::scatter(const void* in, void* out, std::size_t count, DataType type,
                               int root) {
  const std::size_t bytes = count * element_bytes(type);
  check(api_->group_start(), "ncclGroupStart");
  for (int peer = 0; rank() == root && peer < nccl_size_; ++peer)
    check(api_->send(static_cast<const std::byte*>(in) + static_cast<std::size_t>(peer) * bytes,
                     count, nccl_type(type), peer, comm_, queue_->stream()),
          "ncclSend");
  check(api_->recv(out, count, nccl_type(type), root, comm_, queue_->stream()), "ncclRecv");
  check(api_->group_end(), "ncclGroupEnd");
}

void NcclCommunicator::send_receive(const void* send, int to, void* receive, int from,
                                    std::size_t bytes) {
  check(api_->group_start(), "ncclGroupStart");
  check(api_->send(send, bytes, ncclInt8, nccl_rank_of(to), comm_, queue_->stream()), "ncclSend");
  check(api_->recv(receive, bytes, ncclInt8, nccl_rank_of(from), comm_, queue_->stream()),
        "ncclRecv");
  check(api_->group_end(), "ncclGroupEnd");
}

/// The counts of connections of all ranks decide on one name; a rank's own pairs are its details.
std::optional<TransportClaim> NcclCommunicator::transport_claim() {
  NcclConnections found;
  if (!log_path_.empty()) found = parse_nccl_log(file_text(log_path_));
  std::map<std::string, double> counts;
  for (const auto& [way, count] : found.ways) counts[transport_of_way(way)] += count;
  const auto sums = sum_over_ranks(
      *host_, {counts["p2p"], counts["shm"], counts["net"], log_path_.empty() ? 0.0 : 1.0});
  // Without a log (the user directs it, or NCCL is not usable) bytes must do as witness.
  if (sums[3] == 0) return std::nullopt;
  TransportClaim claim;
  nlohmann::json pairs = nlohmann::json::array();
  for (const auto& [pair, ways] : found.pairs)
    pairs.push_back({{"from", pair.first}, {"to", pair.second}, {"ways", ways}});
  claim.details = {{"connections", found.ways},    {"pairs", pairs},
                   {"networks", found.networks},   {"warnings", found.warnings},
                   {"profiler", witness_.state()}, {"log", log_path_}};
  if (nccl_size_ == 1) {
    claim.transport = "self";
    claim.evidence = "one NCCL rank, nothing leaves its GPU";
    return claim;
  }
  claim.transport = transport_of_counts(sums[0], sums[1], sums[2]);
  claim.evidence = fmt::format(
      "NCCL's log names {} P2P, {} SHM and {} NET connections over all ranks and communicators",
      sums[0], sums[1], sums[2]);
  if (!found.host.empty()) claim.details["host"] = found.host;
  return claim;
}

void NcclCommunicator::destroy_all() {
  if (queue_) queue_->drop_graph();
  for (const auto& [settings, comm] : pool_) {
    if (comm != nullptr) check(api_->comm_destroy(comm), "ncclCommDestroy");
  }
  pool_.clear();
  for (const ncclComm_t lane : lanes_) check(api_->comm_destroy(lane), "ncclCommDestroy");
  lanes_.clear();
}

void NcclCommunicator::finalize() {
  destroy_all();
  host_->finalize();
}

std::unique_ptr<Communicator> connect_nccl(const RunConfig& config) {
  return std::make_unique<NcclCommunicator>(connect_host(config), config);
}

// Rooted operations: those that reach a server without a GPU by the chief.

/// Page-locked host memory of the chief, grown by the untimed first call.
std::byte* NcclCommunicator::staging(std::size_t bytes) {
  if (staging_bytes_ < bytes) {
    staging_.reset();
    staging_ = device_->allocate_pinned(bytes);
    staging_bytes_ = bytes;
  }
  return staging_.get();
}

/// GPU memory for all workers' parts.
std::byte* NcclCommunicator::gathered(std::size_t bytes) {
  if (gathered_bytes_ < bytes) {
    gathered_.reset();
    gathered_ = device_->allocate(bytes);
    gathered_bytes_ = bytes;
  }
  return gathered_.get();
}

/// Chief: what the workers' collective left on its GPU goes to the server.
void NcclCommunicator::send_down(const void* device, std::size_t bytes) {
  complete();
  const double start_us = now_us();
  device_->copy_to_host(staging_.get(), device, bytes);
  const double copied_us = now_us();
  host_->wait(host_->isend(staging_.get(), bytes, apart_, kPushTag));
  phases_.d2h_us += copied_us - start_us;
  phases_.send_us += now_us() - copied_us;
}

/// Chief: what the server sends comes onto its GPU.
void NcclCommunicator::receive_up(void* device, std::size_t bytes) {
  const double start_us = now_us();
  host_->wait(host_->irecv(staging_.get(), bytes, apart_, kPullTag));
  const double received_us = now_us();
  device_->copy_to_device(device, staging_.get(), bytes);
  phases_.send_us += received_us - start_us;
  phases_.h2d_us += now_us() - received_us;
}

void NcclCommunicator::broadcast(void* data, std::size_t count, DataType type, int root) {
  const std::size_t bytes = count * element_bytes(type);
  int nccl_root = nccl_rank_of(root);
  if (root == apart_) {
    nccl_root = 0;
    if (!in_nccl()) {
      const double start_us = now_us();
      host_->wait(host_->isend(data, bytes, chief(), kPullTag));
      phases_.send_us += now_us() - start_us;
      return;
    }
    if (is_chief()) {
      staging(bytes);
      receive_up(data, bytes);
    }
  }
  check(api_->broadcast(data, data, count, nccl_type(type), nccl_root, comm_, queue_->stream()),
        "ncclBroadcast");
}

void NcclCommunicator::reduce(const void* in, void* out, std::size_t count, DataType type,
                              int root) {
  const std::size_t bytes = count * element_bytes(type);
  if (root != apart_) {
    check(api_->reduce(in, out, count, nccl_type(type), ncclSum, nccl_rank_of(root), comm_,
                       queue_->stream()),
          "ncclReduce");
    return;
  }
  if (!in_nccl()) {
    const double start_us = now_us();
    host_->wait(host_->irecv(out, bytes, chief(), kPushTag));
    phases_.send_us += now_us() - start_us;
    return;
  }
  if (is_chief()) staging(bytes);
  std::byte* sum = is_chief() ? gathered(bytes) : nullptr;
  check(api_->reduce(in, sum, count, nccl_type(type), ncclSum, 0, comm_, queue_->stream()),
        "ncclReduce");
  if (is_chief()) send_down(sum, bytes);
}

void NcclCommunicator::gather(const void* in, void* out, std::size_t count, DataType type,
                              int root) {
  const std::size_t bytes = count * element_bytes(type);
  if (root != apart_) {
    check(api_->group_start(), "ncclGroupStart");
    check(api_->send(in, count, nccl_type(type), nccl_rank_of(root), comm_, queue_->stream()),
          "ncclSend");
    for (int peer = 0; rank() == root && peer < nccl_size_; ++peer) {
      check(api_->recv(static_cast<std::byte*>(out) + static_cast<std::size_t>(peer) * bytes, count,
                       nccl_type(type), peer, comm_, queue_->stream()),
            "ncclRecv");
    }
    check(api_->group_end(), "ncclGroupEnd");
    return;
  }
  const std::size_t all = bytes * static_cast<std::size_t>(nccl_size_);
  const std::size_t before = bytes * static_cast<std::size_t>(apart_);
  if (!in_nccl()) {
    auto* to = static_cast<std::byte*>(out);
    const double start_us = now_us();
    // The workers' parts come as one message, the server's own belongs between them.
    std::byte* landing = apart_ == 0 ? to + bytes : to;
    host_->wait(host_->irecv(landing, all, chief(), kPushTag));
    phases_.send_us += now_us() - start_us;
    if (apart_ != 0) std::memmove(to + before + bytes, to + before, all - before);
    if (in != to + before) std::memcpy(to + before, in, bytes);
    return;
  }
  if (is_chief()) staging(all);
  std::byte* parts = gathered(all);
  check(api_->all_gather(in, parts, count, nccl_type(type), comm_, queue_->stream()),
        "ncclAllGather");
  if (is_chief()) send_down(parts, all);
}

}  // namespace dynamiccl
