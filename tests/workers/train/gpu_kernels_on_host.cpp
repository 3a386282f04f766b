// The kernels' own text, compiled for the host.
#include "workers/train/compression/gpu_kernels.cu"
