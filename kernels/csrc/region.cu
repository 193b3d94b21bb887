// Memory of the GPU that can be given back and had again at the same addresses, so that graphs and tensor maps which name
// them stay right: a reserved range of addresses, physical memory mapped into it in parts, and a copy on the host.
//
//     addresses  |  part 0  |  part 1  |  part 2  | reserved ...
//     device        memory     memory     memory          asleep: none
//     host          pinned     pinned     pinned          once `hold` was called, until `close`
//
// Host memory is made, pinned and filled part by part, by several threads: of 16 GB the kernel has to zero every page, and
// one thread takes seconds for that.
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <sys/mman.h>

#include <atomic>
#include <thread>
#include <vector>

namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers do not know

// Functions of the driver, found at run time: what is built needs no driver to link with.
struct Driver {
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_addresses = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  bool whole = true;

  Driver() {
    find("cuMemAddressReserve", &reserve);
    find("cuMemAddressFree", &free_addresses);
    find("cuMemCreate", &create);
    find("cuMemRelease", &release);
    find("cuMemMap", &map);
    find("cuMemUnmap", &unmap);
    find("cuMemSetAccess", &set_access);
    find("cuMemGetAllocationGranularity", &granularity);
  }

  template <typename F>
  void find(const char *name, F *function) {
    cudaDriverEntryPointQueryResult result;
    void *found = nullptr;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
    whole = whole && error == cudaSuccess && result == cudaDriverEntryPointSuccess && found != nullptr;
    *function = reinterpret_cast<F>(found);
  }
};

const Driver &driver() {
  static const Driver found;
  return found;
}

class Region {
 public:
  // Addresses for `bytes`, none of which is backed. part: bytes that are made at once.
  int open(int device, size_t bytes, size_t part) {
    if (!driver().whole) return cudaErrorNotSupported;
    device_ = device;
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties_.location.id = device;
    size_t unit = 0;
    int code = driver().granularity(&unit, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (code != 0) return code;
    part_ = (part + unit - 1) / unit * unit;
    reserved_ = (bytes + part_ - 1) / part_ * part_;
    return driver().reserve(&base_, reserved_, 0, 0, 0);
  }

  CUdeviceptr base() const { return base_; }
  int64_t bytes() const { return int64_t(parts_.size() * part_); }

  // The first `bytes` are backed, by fresh memory where none was. On an error the region has what it had, or some more.
  int grow(size_t bytes) {
    if (bytes > reserved_) return cudaErrorMemoryAllocation;
    while (parts_.size() * part_ < bytes) {
      parts_.emplace_back();
      const int code = back(backed_);
      if (code != 0) {
        parts_.pop_back();
        return code;
      }
      ++backed_;
    }
    return 0;
  }

  // The host has a copy of what lies here, from now on. What lies here must not change any more.
  int hold(int threads) {
    if (held_ == parts_.size()) return 0;
    const size_t bytes = parts_.size() * part_;
    if (host_ == nullptr) {
      constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
      void *made = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, kFlags, -1, 0);
      if (made == MAP_FAILED) return cudaErrorMemoryAllocation;
      mapping_ = made, mapping_bytes_ = bytes + kHugePage;
      host_ = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(made) + kHugePage - 1) / kHugePage * kHugePage);
      madvise(host_, bytes, MADV_HUGEPAGE);
      registered_.assign(parts_.size(), 0);
    }
    std::atomic<size_t> next{0};
    std::atomic<int> first{0};
    std::vector<std::thread> workers;
    for (int index = 0; index < threads; ++index) workers.emplace_back([&] {
      cudaStream_t stream = nullptr;
      cudaError_t error = cudaSetDevice(device_);
      if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      for (size_t part; error == cudaSuccess && first == 0 && (part = next++) < parts_.size();) {
        error = pin(part);
        if (error == cudaSuccess)
          error = cudaMemcpyAsync(host_ + part * part_, at(part), part_, cudaMemcpyDeviceToHost, stream);
      }
      if (stream != nullptr) {
        const cudaError_t late = cudaStreamSynchronize(stream);
        if (error == cudaSuccess) error = late;
        cudaStreamDestroy(stream);
      }
      int none = 0;
      if (error != cudaSuccess) first.compare_exchange_strong(none, int(error));
    });
    for (std::thread &worker : workers) worker.join();
    if (first != 0) {
      forget();
      cudaGetLastError();
      return first;
    }
    held_ = parts_.size();
    return 0;
  }

  // The device's memory is given back; the addresses stay reserved.
  int release() {
    for (; backed_ > 0; --backed_) {
      const int code = unback(backed_ - 1);
      if (code != 0) return code;
    }
    return 0;
  }

  // It is backed again, by memory with anything in it. On an error none of it is.
  int back() {
    for (int code; backed_ < parts_.size(); ++backed_) {
      if ((code = back(backed_)) == 0) continue;
      release();
      return code;
    }
    return 0;
  }

  // What the host holds comes back by `stream`, else zeros. All is backed before: to map memory while copies are under way
  // takes as long as they do.
  int fill(cudaStream_t stream) {
    cudaError_t error = cudaSuccess;
    for (size_t part = 0; error == cudaSuccess && part < parts_.size(); ++part)
      error = held_ > 0 ? cudaMemcpyAsync(at(part), host_ + part * part_, part_, cudaMemcpyHostToDevice, stream)
                        : cudaMemsetAsync(at(part), 0, part_, stream);
    return int(error);
  }

  void close() {
    cudaDeviceSynchronize();
    release();
    forget();
    if (base_ != 0) driver().free_addresses(base_, reserved_);
  }

 private:
  void *at(size_t part) const { return reinterpret_cast<void *>(base_ + part * part_); }

  int back(size_t part) {
    const CUdeviceptr begin = base_ + part * part_;
    int code = driver().create(&parts_[part], part_, &properties_, 0);
    if (code != 0) return code;
    code = driver().map(begin, part_, 0, parts_[part], 0);
    if (code == 0) {
      CUmemAccessDesc access = {};
      access.location = properties_.location;
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      code = driver().set_access(begin, part_, &access, 1);
      if (code == 0) return 0;
      driver().unmap(begin, part_);
    }
    driver().release(parts_[part]);
    return code;
  }

  int unback(size_t part) {
    const int code = driver().unmap(base_ + part * part_, part_);
    return code != 0 ? code : driver().release(parts_[part]);
  }

  cudaError_t pin(size_t part) {
    char *const begin = host_ + part * part_;
    if (registered_[part]) return cudaSuccess;
    if (madvise(begin, part_, kPopulateWrite) != 0)
      for (size_t page = 0; page < part_; page += 4096) static_cast<volatile char *>(begin)[page] = 0;
    const cudaError_t error = cudaHostRegister(begin, part_, cudaHostRegisterDefault);
    if (error == cudaSuccess) registered_[part] = 1;
    return error;
  }

  void forget() {
    for (size_t part = 0; part < registered_.size(); ++part)
      if (registered_[part]) cudaHostUnregister(host_ + part * part_);
    registered_.clear();
    if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
    mapping_ = nullptr, host_ = nullptr, held_ = 0;
  }

  int device_ = 0;
  CUmemAllocationProp properties_ = {};
  CUdeviceptr base_ = 0;
  size_t part_ = 0, reserved_ = 0;
  std::vector<CUmemGenericAllocationHandle> parts_;
  size_t backed_ = 0;  // parts that have memory
  void *mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  char *host_ = nullptr;
  std::vector<char> registered_;  // not bool: threads write neighbours
  size_t held_ = 0;               // parts that the host has: none, or all
};

}  // namespace

// Every function but `open` and `close` returns 0, or an error of CUDA's runtime or driver, which have the same numbers.
extern "C" void *octavo_region_open(int device, int64_t bytes, int64_t part, int *code) {
  Region *const made = new Region;
  *code = made->open(device, size_t(bytes), size_t(part));
  if (*code == 0) return made;
  delete made;
  return nullptr;
}

extern "C" void *octavo_region_base(void *region) {
  return reinterpret_cast<void *>(static_cast<Region *>(region)->base());
}

extern "C" int64_t octavo_region_bytes(void *region) { return static_cast<Region *>(region)->bytes(); }

extern "C" int octavo_region_grow(void *region, int64_t bytes) {
  return static_cast<Region *>(region)->grow(size_t(bytes));
}

extern "C" int octavo_region_hold(void *region, int threads) { return static_cast<Region *>(region)->hold(threads); }

extern "C" int octavo_region_release(void *region) { return static_cast<Region *>(region)->release(); }

extern "C" int octavo_region_back(void *region) { return static_cast<Region *>(region)->back(); }

extern "C" int octavo_region_fill(void *region, cudaStream_t stream) {
  return static_cast<Region *>(region)->fill(stream);
}

extern "C" void octavo_region_close(void *region) {
  static_cast<Region *>(region)->close();
  delete static_cast<Region *>(region);
}
