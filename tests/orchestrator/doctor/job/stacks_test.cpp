#include "orchestrator/doctor/job/stacks.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace dynamiccl;

TEST_CASE("names of functions are calls of MPI, NCCL, Gloo and PyTorch, or none") {
  struct Row {
    const char* function;
    CallKind kind;
    const char* name;
  };
  for (const Row& row :
       {Row{"PMPI_Allreduce", CallKind::collective, "MPI_Allreduce"},
        Row{"MPI_Bcast", CallKind::collective, "MPI_Bcast"},
        Row{"MPI_Alltoallv_c", CallKind::collective, "MPI_Alltoallv"},
        Row{"pmpi_allreduce_", CallKind::collective, "MPI_Allreduce (Fortran)"},
        Row{"PMPI_Reduce_scatter_block", CallKind::collective, "MPI_Reduce_scatter_block"},
        Row{"MPI_Waitall", CallKind::point_to_point, "MPI_Waitall"},
        Row{"PMPI_Recv", CallKind::point_to_point, "MPI_Recv"},
        Row{"MPI_Init_thread", CallKind::start, "MPI_Init_thread"},
        Row{"PMPI_Finalize", CallKind::finish, "MPI_Finalize"},
        Row{"MPI_Comm_rank", CallKind::outside, ""},
        Row{"MPI_", CallKind::outside, ""},
        Row{"MPIDI_progress_test", CallKind::outside, ""},
        Row{"ncclAllReduce", CallKind::collective, "ncclAllReduce"},
        Row{"ncclCommInitRank", CallKind::start, "ncclCommInitRank"},
        Row{"ncclSend", CallKind::point_to_point, "ncclSend"},
        Row{"gloo::allreduce(gloo::AllreduceOptions const&)", CallKind::collective,
            "gloo::allreduce"},
        Row{"gloo::transport::tcp::UnboundBuffer::waitRecv(int*)", CallKind::point_to_point,
            "gloo::transport::tcp::UnboundBuffer::waitRecv"},
        Row{"c10d::Work::wait(std::chrono::duration<long>)", CallKind::collective,
            "c10d::Work::wait"},
        Row{"cudaStreamSynchronize", CallKind::gpu, "cudaStreamSynchronize"},
        Row{"cuMemcpyHtoDAsync_v2", CallKind::gpu, "cuMemcpyHtoDAsync_v2"},
        Row{"cudaLaunchKernel", CallKind::outside, ""},
        Row{"main", CallKind::outside, ""}}) {
    INFO(row.function);
    CHECK(call_named(row.function).kind == row.kind);
    if (row.kind != CallKind::outside) CHECK(call_named(row.function).name == row.name);
  }
}

TEST_CASE("a stack of eu-stack is read, and its outermost call is where the rank is") {
  const auto threads = read_stacks(
      "PID 7 - process\nTID 7:\n"
      "#0  0x00007f05 - /usr/lib/libopen-pal.so.40\n"
      "#1  0x00007f04 opal_progress - /usr/lib/libopen-pal.so.40\n"
      "#2  0x00007f03 PMPI_Recv - /usr/lib/libmpi.so.40\n"
      "#3  0x00007f02 PMPI_Allreduce - /usr/lib/libmpi.so.40\n"
      "#4  0x00005501 main - /home/job\n"
      "#5  0x00007f01 __libc_start_main@@GLIBC_2.34 - /usr/lib/libc.so.6\n"
      "TID 8:\n#0  0x00007f09 epoll_wait - /usr/lib/libc.so.6\n");
  REQUIRE(threads.size() == 2);
  CHECK(threads[0][0].name.empty());
  CHECK(threads[0][0].module == "/usr/lib/libopen-pal.so.40");
  CHECK(threads[0][5].name == "__libc_start_main");
  const auto place = place_in_code(threads);
  CHECK(place.look.call == "MPI_Allreduce");
  CHECK(place.look.kind == CallKind::collective);
  CHECK(place.main_thread);
  CHECK(place.caller == 0x5501);
  CHECK(place.look.chain != 0);
}

TEST_CASE("a stack of gdb is read with the main thread first") {
  const auto threads = read_stacks(
      "[New LWP 9]\n\nThread 2 (Thread 0x7f (LWP 9) \"job\"):\n"
      "#0  0x00007f09 in poll () from /lib/libc.so.6\n"
      "\nThread 1 (Thread 0x7e (LWP 7) \"job\"):\n"
      "#0  0x00007f02 in PMPI_Barrier () from /usr/lib/libmpi.so.40\n"
      "#1  0x00005501 in ?? ()\n"
      "#2  step (n=3) at job.c:12\n");
  REQUIRE(threads.size() == 2);
  CHECK(threads[0][0].name == "PMPI_Barrier");
  CHECK(threads[0][0].module == "/usr/lib/libmpi.so.40");
  CHECK(threads[0][1].name.empty());
  CHECK(threads[0][2].name == "step");
  CHECK(place_in_code(threads).look.call == "MPI_Barrier");
}

TEST_CASE("outside of calls the innermost function is told, and whether Python runs it") {
  const auto plain = place_in_code(
      read_stacks("TID 7:\n#0  0x01 compute - /home/job\n#1  0x02 main - /home/job\n"));
  CHECK(plain.look.read);
  CHECK(plain.look.kind == CallKind::outside);
  CHECK(plain.look.place == "compute of job");
  CHECK_FALSE(plain.look.in_python);
  const auto python = place_in_code(read_stacks(
      "TID 7:\n#0  0x01 _PyEval_EvalFrameDefault - /usr/bin/python3.11\n#1  0x02 main - /p\n"));
  CHECK(python.look.in_python);
  // Gloo's own functions have no names; a thread that moves its bytes is no rank's place.
  const auto gloo = place_in_code(read_stacks(
      "TID 7:\n#0  0x01 pthread_cond_wait - /lib/libc.so.6\n"
      "#1  0x02 gloo::transport::tcp::UnboundBuffer::waitRecv(int*) - /usr/lib/libgloo.so.0\n"
      "#2  0x03 - /usr/lib/libgloo.so.0\n#3  0x04 main - /home/job\n"
      "TID 8:\n#0  0x05 gloo::transport::tcp::Loop::run() - /usr/lib/libgloo.so.0\n"));
  CHECK(gloo.look.call == "a collective of Gloo");
  CHECK(gloo.look.kind == CallKind::collective);
  CHECK_FALSE(place_in_code(read_stacks("eu-stack: no such process\n")).look.read);
  // A collective that another thread makes, as PyTorch's do.
  const auto other = place_in_code(read_stacks(
      "TID 7:\n#0  0x01 poll - /lib/libc.so.6\nTID 8:\n#0  0x02 ncclAllReduce - /l/libnccl.so.2\n"
      "#1  0x03 run - /home/job\n"));
  CHECK(other.look.call == "ncclAllReduce");
  CHECK_FALSE(other.main_thread);
  // PyTorch's wait for a barrier of NCCL is one for the GPU; that of Gloo is not.
  const auto barrier = place_in_code(read_stacks(
      "TID 7:\n#0  0x01 - /l/libcuda.so.1\n#1  0x02 cudaStreamSynchronize - /l/libcudart.so.13\n"
      "#2  0x03 c10d::ProcessGroupNCCL::WorkNCCL::wait(long) - /l/libtorch_cuda.so\n"));
  CHECK(barrier.look.kind == CallKind::gpu);
}
