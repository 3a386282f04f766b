#include "workers/backends/cuda_queue.hpp"

#include "workers/device/cuda_check.hpp"

namespace dynamiccl {

CudaQueue::CudaQueue() {
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
  check_cuda(cudaEventCreate(&start_), "cudaEventCreate");
  check_cuda(cudaEventCreate(&stop_), "cudaEventCreate");
}

CudaQueue::~CudaQueue() {
  drop_graph();
  cudaEventDestroy(start_);
  cudaEventDestroy(stop_);
  cudaStreamDestroy(stream_);
}

void CudaQueue::mark_start() { check_cuda(cudaEventRecord(start_, stream_), "cudaEventRecord"); }

void CudaQueue::mark_stop() { check_cuda(cudaEventRecord(stop_, stream_), "cudaEventRecord"); }

double CudaQueue::marked_us() {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, start_, stop_), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e3;
}

void CudaQueue::begin_capture() {
  drop_graph();
  // NCCL's own threads may call CUDA meanwhile; only this thread's calls belong to the graph.
  check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
}

void CudaQueue::end_capture() {
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  const cudaError_t code = cudaGraphInstantiate(&graph_, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(code, "cudaGraphInstantiate");
}

void CudaQueue::replay() { check_cuda(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch"); }

void CudaQueue::drop_graph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  graph_ = nullptr;
}

}  // namespace dynamiccl
