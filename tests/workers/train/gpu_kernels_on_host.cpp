// The kernels' own text, compiled for the host.
#include "workers/train/compression/gpu_factor_kernels.cu"
#include "workers/train/compression/gpu_kernels.cu"
#include "workers/train/compression/gpu_sparse_kernels.cu"
#include "workers/train/exchange/server_kernels.cu"
