#include "core/vocabulary/error.hpp"
#include "workers/device/device.hpp"

namespace dynamiccl {

std::unique_ptr<Device> open_device_at(const std::string& /*pci*/) { return open_device(0); }

std::unique_ptr<Device> open_device(int /*index*/) {
  throw Error(ErrorKind::environment,
              "this worker was built without CUDA: configure again where the CUDA toolkit is "
              "installed (cmake says \"CUDA: yes\")");
}

}  // namespace dynamiccl
