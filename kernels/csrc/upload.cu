// From mapped files to the GPU: threads copy parts into pinned buffers, from where the GPU fetches them.
//
//     file (page cache) --a processor--> pinned buffer --the bus--> device
//
// Each thread has a stream and two buffers of its own, and fills one while the other leaves. Nothing of it passes Python,
// whose lock threads handed over in 0.4 ms a part, where the bus takes 0.08 ms for 4 MiB. Parts are small, so that buffers
// stay in the processors' cache, from where the bus reads them too.
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr size_t kHugePage = 2 << 20;

// Rows of `width` bytes, `pitch` apart, one after another into `target`; `next` of their bytes are given out.
struct Copy {
  char *target;
  const char *source;
  int64_t pitch, width, size, next;
};

// Bytes [begin, end) of the rows, as if they lay together.
void gather(char *into, const Copy &from, int64_t begin, int64_t end) {
  if (from.pitch == from.width) {
    memcpy(into, from.source + begin, size_t(end - begin));
    return;
  }
  while (begin < end) {
    const int64_t row = begin / from.width, at = begin % from.width;
    const int64_t count = from.width - at < end - begin ? from.width - at : end - begin;
    memcpy(into, from.source + row * from.pitch + at, size_t(count));
    into += count;
    begin += count;
  }
}

// Fresh memory that the GPU reads. Of huge pages, where the kernel has them: by cudaHostAlloc, of small ones, the buffers of
// all threads take ten times as long, a tenth of what 8B's weights take.
cudaError_t pin(size_t bytes, char **made) {
  void *memory = nullptr;
  if (posix_memalign(&memory, kHugePage, bytes) != 0) return cudaErrorMemoryAllocation;
  madvise(memory, bytes, MADV_HUGEPAGE);
  const cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterDefault);
  if (error == cudaSuccess) *made = static_cast<char *>(memory);
  else free(memory);
  return error;
}

class Upload {
 public:
  Upload(int device, int threads, int64_t part) : device_(device), part_(part), most_(2 * threads * part) {
    for (int index = 0; index < threads; ++index) threads_.emplace_back(&Upload::work, this);
  }

  // Waits while much is waiting, so that who asks knows how far it is. The first error of any copy so far.
  cudaError_t add(const Copy &copy) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (copy.size > 0 && error_ == cudaSuccess) {
      left_ += copy.size;
      copies_.push_back(copy);
      given_.notify_all();
    }
    done_.wait(lock, [&] { return left_ <= most_ || error_ != cudaSuccess; });
    return error_;
  }

  // Until everything is on the device.
  cudaError_t wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return left_ == 0 || error_ != cudaSuccess; });
    return error_;
  }

  // Copies that have not begun are dropped.
  void close() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
      copies_.clear();
      given_.notify_all();
    }
    for (std::thread &thread : threads_) thread.join();
  }

 private:
  void work() {
    char *buffers = nullptr;
    cudaStream_t stream = nullptr;
    cudaEvent_t left[2] = {};  // the buffer has
    int64_t sent[2] = {};
    cudaError_t error = cudaSetDevice(device_);
    if (error == cudaSuccess) error = pin(size_t(2 * part_), &buffers);
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (cudaEvent_t &event : left)
      if (error == cudaSuccess) error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    Copy copy;
    int64_t begin, end;
    for (int buffer = 0; error == cudaSuccess; buffer ^= 1) {
      const bool any = take(sent[0] + sent[1] == 0, copy, begin, end);
      // What this buffer holds has to leave before it is filled anew; without more to do, what both hold.
      for (int which = 0; which < 2; ++which) {
        if (sent[which] == 0 || (any && which != buffer)) continue;
        error = cudaEventSynchronize(left[which]);
        if (error != cudaSuccess) break;
        arrived(sent[which]);
        sent[which] = 0;
      }
      if (error != cudaSuccess) break;
      if (!any) {
        if (closed()) break;
        continue;
      }
      char *staged = buffers + buffer * part_;
      gather(staged, copy, begin, end);
      error = cudaMemcpyAsync(copy.target + begin, staged, size_t(end - begin), cudaMemcpyHostToDevice, stream);
      if (error == cudaSuccess) error = cudaEventRecord(left[buffer], stream);
      sent[buffer] = end - begin;
    }
    if (error != cudaSuccess) failed(error);
    if (stream != nullptr) {
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    }
    for (cudaEvent_t event : left)
      if (event != nullptr) cudaEventDestroy(event);
    if (buffers != nullptr) {
      cudaHostUnregister(buffers);
      free(buffers);
    }
  }

  // The next part of all. Waits for one if `idle`, else, and at the end, false.
  bool take(bool idle, Copy &copy, int64_t &begin, int64_t &end) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (idle) given_.wait(lock, [&] { return closed_ || !copies_.empty(); });
    if (copies_.empty()) return false;
    Copy &first = copies_.front();
    begin = first.next;
    end = first.next = first.size - begin < part_ ? first.size : begin + part_;
    copy = first;
    if (end == first.size) copies_.pop_front();
    return true;
  }

  bool closed() {
    std::lock_guard<std::mutex> lock(mutex_);
    return closed_;
  }

  void arrived(int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    left_ -= bytes;
    done_.notify_all();
  }

  void failed(cudaError_t error) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (error_ == cudaSuccess) error_ = error;
    done_.notify_all();
  }

  const int device_;
  const int64_t part_, most_;
  std::mutex mutex_;
  std::condition_variable given_, done_;
  std::deque<Copy> copies_;  // of which a part or more is not given out
  int64_t left_ = 0;         // bytes that are not on the device
  bool closed_ = false;
  cudaError_t error_ = cudaSuccess;
  std::vector<std::thread> threads_;  // last: they use what stands above
};

}  // namespace

// threads: at least 1. part: bytes of a buffer.
extern "C" void *octavo_upload_open(int device, int threads, int64_t part) {
  return new Upload(device, threads, part);
}

// An error may be that of an earlier copy, or of memory that could not be pinned.
extern "C" int octavo_upload_copy(void *upload, void *target, const void *source, int64_t pitch, int64_t width,
                                  int64_t rows) {
  return int(static_cast<Upload *>(upload)->add({static_cast<char *>(target), static_cast<const char *>(source), pitch,
                                                 width, width * rows, 0}));
}

extern "C" int octavo_upload_wait(void *upload) { return int(static_cast<Upload *>(upload)->wait()); }

extern "C" void octavo_upload_close(void *upload) {
  Upload *const ended = static_cast<Upload *>(upload);
  ended->close();
  delete ended;
}
