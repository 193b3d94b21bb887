// Memory of one GPU that processes of other GPUs of the host read and write: cudaMalloc, exported by a handle of 64
// bytes that may travel by any means. PyTorch's own allocations cannot be used: a handle names a whole one, and theirs
// hold many tensors.
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

static_assert(sizeof(cudaIpcMemHandle_t) == 64, "kernels/cuda/collectives/ipc.py knows this size");

// Fresh memory, all zeros, and its handle. It is zero for everybody before this returns.
extern "C" int octavo_ipc_make(int64_t bytes, void **at, void *handle, cudaStream_t stream) {
  cudaError_t error = cudaMalloc(at, size_t(bytes));
  if (error != cudaSuccess) return int(error);
  error = cudaMemsetAsync(*at, 0, size_t(bytes), stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  cudaIpcMemHandle_t made;
  if (error == cudaSuccess) error = cudaIpcGetMemHandle(&made, *at);
  if (error != cudaSuccess) {
    cudaFree(*at);
    cudaGetLastError();
    return int(error);
  }
  memcpy(handle, &made, sizeof made);
  return 0;
}

// The memory behind another process's handle, as this GPU reaches it.
extern "C" int octavo_ipc_open(const void *handle, void **at, cudaStream_t) {
  cudaIpcMemHandle_t given;
  memcpy(&given, handle, sizeof given);
  const cudaError_t error = cudaIpcOpenMemHandle(at, given, cudaIpcMemLazyEnablePeerAccess);
  if (error != cudaSuccess) cudaGetLastError();  // it is told here, and nobody else shall trip over it
  return int(error);
}

// A word of memory that this GPU reaches; both wait until it is there.
extern "C" int octavo_ipc_write(void *at, unsigned word, cudaStream_t stream) {
  const cudaError_t error = cudaMemcpyAsync(at, &word, sizeof word, cudaMemcpyDefault, stream);
  return int(error == cudaSuccess ? cudaStreamSynchronize(stream) : error);
}

extern "C" int octavo_ipc_read(const void *at, unsigned *word, cudaStream_t stream) {
  const cudaError_t error = cudaMemcpyAsync(word, at, sizeof *word, cudaMemcpyDefault, stream);
  return int(error == cudaSuccess ? cudaStreamSynchronize(stream) : error);
}
