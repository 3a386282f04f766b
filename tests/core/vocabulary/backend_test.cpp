#include "core/vocabulary/backend.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace dynamiccl;

TEST_CASE("every backend has one row of facts") {
  CHECK(kBackendFacts.size() == all_names<Backend>().size());
  for (const auto& row : kBackendFacts) {
    INFO(name_of(row.backend));
    CHECK(&backend_facts(row.backend) == &row);
    CHECK(row.worker.starts_with("dynamiccl-worker"));
    // What takes another's algorithms is started by its program.
    CHECK(row.worker == backend_facts(row.library).worker);
    CHECK(row.is_mpi == backend_facts(row.library).is_mpi);
    // Open MPI's parameters are what names its interfaces.
    CHECK(row.mca == row.interface_variable.empty());
    if (row.gpu_per_rank) CHECK(row.on_gpu);
    if (row.gpu_queue) CHECK(row.on_gpu);
    // A backend that is another's with GPU memory is told algorithms as that one is.
    CHECK(row.algorithms == backend_facts(row.library).algorithms);
  }
}

TEST_CASE("one backend is the floor, and MPICH alone takes one algorithm for all sizes") {
  CHECK(floor_backend() == Backend::gloo);
  for (const auto& row : kBackendFacts)
    CHECK(is_for_all_sizes(row.backend) == (row.backend == Backend::mpich));
}

TEST_CASE("an MPI with tensors in host memory is told from one on GPUs") {
  CHECK(is_host_mpi(Backend::openmpi));
  CHECK(is_host_mpi(Backend::mpich));
  CHECK_FALSE(is_host_mpi(Backend::cuda_aware_mpi));
  CHECK_FALSE(is_host_mpi(Backend::gloo));
  CHECK_FALSE(is_host_mpi(Backend::nccl));
}
