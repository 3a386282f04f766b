#include "workers/backends/cuda_queue.hpp"

#include <algorithm>

#include "core/vocabulary/error.hpp"
#include "workers/device/cuda_check.hpp"

namespace dynamiccl {
namespace {

double elapsed_us(cudaEvent_t from, cudaEvent_t to) {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, from, to), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e3;
}

}  // namespace

CudaQueue::CudaQueue() {
  set_lanes(1);
  check_cuda(cudaEventCreate(&start_), "cudaEventCreate");
  check_cuda(cudaEventCreate(&stop_), "cudaEventCreate");
  check_cuda(cudaEventCreateWithFlags(&followed_, cudaEventDisableTiming), "cudaEventCreate");
}

CudaQueue::~CudaQueue() {
  drop_graph();
  cudaEventDestroy(start_);
  cudaEventDestroy(stop_);
  cudaEventDestroy(followed_);
  for (const Note& note : notes_)
    for (cudaEvent_t event : note.events) cudaEventDestroy(event);
  for (cudaEvent_t event : stamps_) cudaEventDestroy(event);
  for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
}

void CudaQueue::set_lanes(std::size_t count) {
  // Computation next to it, which fills the GPU, must not keep other ranks waiting.
  int least = 0;
  int greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest),
             "cudaDeviceGetStreamPriorityRange");
  while (streams_.size() < count) {
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest),
               "cudaStreamCreateWithPriority");
    streams_.push_back(stream);
  }
  for (; streams_.size() > count; streams_.pop_back())
    check_cuda(cudaStreamDestroy(streams_.back()), "cudaStreamDestroy");
  lane_ = 0;
}

void CudaQueue::use_lane(std::size_t lane) {
  DYN_ASSERT(lane < streams_.size(), "a lane that was not opened");
  lane_ = lane;
}

bool CudaQueue::is_done() const {
  return std::all_of(streams_.begin(), streams_.end(), [](cudaStream_t stream) {
    const cudaError_t code = cudaStreamQuery(stream);
    if (code != cudaErrorNotReady) check_cuda(code, "cudaStreamQuery");
    return code == cudaSuccess;
  });
}

void CudaQueue::mark_start() { check_cuda(cudaEventRecord(start_, stream()), "cudaEventRecord"); }

void CudaQueue::mark_stop() { check_cuda(cudaEventRecord(stop_, stream()), "cudaEventRecord"); }

double CudaQueue::marked_us() { return elapsed_us(start_, stop_); }

void CudaQueue::begin_capture() {
  drop_graph();
  // NCCL's own threads may call CUDA meanwhile; only this thread's calls belong to the graph.
  check_cuda(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
}

void CudaQueue::end_capture() {
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(stream(), &graph), "cudaStreamEndCapture");
  const cudaError_t code = cudaGraphInstantiate(&graph_, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(code, "cudaGraphInstantiate");
}

void CudaQueue::replay() { check_cuda(cudaGraphLaunch(graph_, stream()), "cudaGraphLaunch"); }

void CudaQueue::follow(void* stream) {
  // The wait is for the event as it is now: it may be recorded anew at once.
  check_cuda(cudaEventRecord(followed_, static_cast<cudaStream_t>(stream)), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(streams_[lane_], followed_, 0), "cudaStreamWaitEvent");
}

void CudaQueue::note(std::size_t number) {
  if (notes_.size() <= number) notes_.resize(number + 1);
  notes_[number].lanes = 0;
  note_also(number);
}

void CudaQueue::note_also(std::size_t number) {
  Note& note = notes_.at(number);
  if (note.events.size() == note.lanes) {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    note.events.push_back(event);
  }
  check_cuda(cudaEventRecord(note.events[note.lanes++], stream()), "cudaEventRecord");
}

void CudaQueue::hold_back(void* stream, std::size_t number) {
  const Note& note = notes_.at(number);
  for (std::size_t i = 0; i < note.lanes; ++i)
    check_cuda(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), note.events[i], 0),
               "cudaStreamWaitEvent");
}

void CudaQueue::stamp(std::size_t number) {
  while (stamps_.size() <= number) {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreate(&event), "cudaEventCreate");
    stamps_.push_back(event);
  }
  check_cuda(cudaEventRecord(stamps_[number], stream()), "cudaEventRecord");
}

double CudaQueue::between_us(std::size_t from, std::size_t to) {
  return elapsed_us(stamps_.at(from), stamps_.at(to));
}

void CudaQueue::drop_graph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  graph_ = nullptr;
}

}  // namespace dynamiccl
