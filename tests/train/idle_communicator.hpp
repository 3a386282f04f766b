#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "workers/communicator.hpp"

namespace dynamiccl::testing {

/// A library that does nothing: what fakes of single calls start from.
class IdleCommunicator : public Communicator {
 public:
  IdleCommunicator(int rank, int size) : rank_(rank), size_(size) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string library() const override { return ""; }
  [[nodiscard]] std::string library_version() const override { return ""; }
  [[nodiscard]] std::optional<std::string> unsupported(const CallShape&) const override {
    return std::nullopt;
  }
  [[nodiscard]] std::vector<std::string> algorithms(Collective) const override { return {}; }
  std::string choose(const CallShape&) override { return ""; }
  void broadcast(void*, std::size_t, DataType, int) override {}
  void reduce(const void*, void*, std::size_t, DataType, int) override {}
  void allreduce(const void*, void*, std::size_t, DataType) override {}
  void allgather(const void*, void*, std::size_t, DataType) override {}
  void reduce_scatter(const void*, void*, std::size_t, DataType) override {}
  void gather(const void*, void*, std::size_t, DataType, int) override {}
  void alltoall(const void*, void*, std::size_t, DataType) override {}
  void alltoallv(const void*, void*, const PairCounts&, DataType) override {}
  Request isend(const void*, std::size_t, int, int) override { return {}; }
  Request irecv(void*, std::size_t, int, int) override { return {}; }
  void wait(Request) override {}
  int receive_any(void*, std::size_t, const std::vector<int>& from, int, Micros) override {
    return from.front();
  }
  void finalize() override {}
  [[noreturn]] void abort(int) override { std::abort(); }

 private:
  int rank_;
  int size_;
};

}  // namespace dynamiccl::testing
