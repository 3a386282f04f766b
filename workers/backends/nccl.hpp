#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/wire/run_config.hpp"
#include "workers/backends/cuda_queue.hpp"
#include "workers/backends/nccl_api.hpp"
#include "workers/backends/nccl_call_tuner.hpp"
#include "workers/backends/nccl_settings.hpp"
#include "workers/backends/nccl_witness.hpp"
#include "workers/communicator.hpp"
#include "workers/device/device.hpp"

namespace dynamiccl {

/// NCCL with one process per GPU. `host` joins the same ranks over host memory: it carries the
/// unique ids, the control messages, and what goes to a server that has no GPU.
///
/// Without such a server every rank is an NCCL rank. With one (gpu_of_rank of the server is -1,
/// parameter-server architecture) the N-1 workers are, and the first worker, the chief, copies what
/// the server sends or gets between GPU and host memory and moves it with `host`, timed apart.
class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, const RunConfig& config);
  ~NcclCommunicator() override;

  [[nodiscard]] int rank() const override { return host_->rank(); }
  [[nodiscard]] int size() const override { return host_->size(); }
  [[nodiscard]] std::string library() const override;
  [[nodiscard]] std::string library_version() const override { return version_; }
  [[nodiscard]] std::optional<std::string> unsupported(const CallShape& shape) const override;
  [[nodiscard]] std::vector<std::string> algorithms(Collective collective) const override {
    return nccl_algorithms(collective);
  }
  std::string choose(const CallShape& shape) override;

  void broadcast(void* data, std::size_t count, DataType type, int root) override;
  void reduce(const void* in, void* out, std::size_t count, DataType type, int root) override;
  void allreduce(const void* in, void* out, std::size_t count, DataType type) override;
  void allgather(const void* in, void* out, std::size_t count, DataType type) override;
  void reduce_scatter(const void* in, void* out, std::size_t count, DataType type) override;
  void gather(const void* in, void* out, std::size_t count, DataType type, int root) override;
  void alltoall(const void* in, void* out, std::size_t count, DataType type) override;
  void alltoallv(const void* in, void* out, const PairCounts& counts, DataType type) override;
  void scatter(const void* in, void* out, std::size_t count, DataType type, int root) override;
  void send_receive(const void* send, int to, void* receive, int from, std::size_t bytes) override;

  Request isend(const void* data, std::size_t bytes, int to, int tag) override {
    return host_->isend(data, bytes, to, tag);
  }
  Request irecv(void* data, std::size_t bytes, int from, int tag) override {
    return host_->irecv(data, bytes, from, tag);
  }
  void wait(Request request) override { host_->wait(request); }
  void wait_within(Request request, int peer, Micros limit) override {
    host_->wait_within(request, peer, limit);
  }
  void wait_for_as_long_as(Micros limit) override { host_->wait_for_as_long_as(limit); }
  int receive_any(void* data, std::size_t bytes, const std::vector<int>& from, int tag,
                  Micros limit) override {
    return host_->receive_any(data, bytes, from, tag, limit);
  }
  [[nodiscard]] std::string carrier() const override { return host_->carrier(); }
  void progress() override { host_->progress(); }

  [[nodiscard]] bool works_on_gpu() const override { return true; }
  [[nodiscard]] Device* device() override { return device_.get(); }
  void complete() override;
  void check_queued() const override;
  void watch_channels(ChannelDetail detail) override { witness_.watch_channels(detail); }
  std::vector<ChannelTimes> take_channels() override { return witness_.take_channels(); }
  [[nodiscard]] GpuQueue* queue() override { return queue_.get(); }
  std::size_t open_lanes(std::size_t count) override;
  void synchronise() override;
  [[nodiscard]] std::string barrier_name() const override;
  std::optional<PhaseTimes> take_phases() override;
  [[nodiscard]] std::optional<std::string> applied() override;
  [[nodiscard]] std::optional<TransportClaim> transport_claim() override;

  void finalize() override;
  [[noreturn]] void abort(int exit_code) override {
    host_->abort(exit_code);
    std::_Exit(exit_code);
  }

 private:
  [[nodiscard]] bool server_apart() const { return apart_ >= 0; }
  [[nodiscard]] bool in_nccl() const { return rank() != apart_; }
  [[nodiscard]] bool is_chief() const { return nccl_rank_ == 0; }
  [[nodiscard]] int nccl_rank_of(int rank) const { return rank - (apart_ >= 0 && rank > apart_); }
  [[nodiscard]] int chief() const { return apart_ == 0 ? 1 : 0; }
  void open(const RunConfig& config);
  ncclComm_t make(const NcclSettings& settings);
  /// One more lane, unless a rank cannot have it.
  bool add_lane();
  /// Of the queue's lane in use.
  [[nodiscard]] ncclComm_t now() const;
  ncclUniqueId share_id();
  void destroy_all();
  void check(ncclResult_t code, const char* call) const;
  void check_state(ncclComm_t comm) const;
  std::byte* staging(std::size_t bytes);
  std::byte* gathered(std::size_t bytes);
  void send_down(const void* device, std::size_t bytes);
  void receive_up(void* device, std::size_t bytes);

  std::unique_ptr<Communicator> host_;
  const NcclApi* api_ = nullptr;
  std::unique_ptr<Device> device_;
  std::unique_ptr<CudaQueue> queue_;
  std::string unusable_;  ///< why no cell can run; the same on every rank or says which others fail
  std::string version_;
  std::string log_path_;
  NcclWitness witness_;
  NcclCallTuner call_tuner_;  ///< loaded where a cell of the launch is tuned step by step
  bool watching_ = false;
  int apart_ = -1;  ///< the server without a GPU
  int nccl_rank_ = 0;
  int nccl_size_ = 1;
  ncclComm_t comm_ = nullptr;
  std::map<NcclSettings, ncclComm_t> pool_;
  std::vector<ncclComm_t> lanes_;  ///< of lane 1 and above
  std::shared_ptr<std::byte> barrier_word_;
  std::shared_ptr<std::byte> staging_;
  std::size_t staging_bytes_ = 0;
  std::shared_ptr<std::byte> gathered_;
  std::size_t gathered_bytes_ = 0;
  PhaseTimes phases_;
};

}  // namespace dynamiccl
