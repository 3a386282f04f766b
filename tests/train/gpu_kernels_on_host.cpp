// The kernels' own text, compiled for the host.
#include "train/codecs/queued/gpu_factor_kernels.cu"
#include "train/codecs/queued/gpu_kernels.cu"
#include "train/codecs/queued/gpu_sparse_kernels.cu"
#include "train/exchange/server_kernels.cu"
