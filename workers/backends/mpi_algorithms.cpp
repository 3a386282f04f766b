#include "workers/backends/mpi_algorithms.hpp"

namespace dynamiccl {

MpiAlgorithms::MpiAlgorithms() = default;
MpiAlgorithms::~MpiAlgorithms() = default;
std::vector<std::string> MpiAlgorithms::names(Collective) const { return {"library"}; }
std::optional<std::string> MpiAlgorithms::unsupported(const CallShape& shape) const {
  if (shape.algorithm != "library") return "not offered by this library: " + shape.algorithm;
  return std::nullopt;
}
MpiChoice MpiAlgorithms::choose(const CallShape&) { return {MPI_COMM_WORLD, "library"}; }

}  // namespace dynamiccl
