#include "tuner/transport/device_connection.hpp"

namespace dynamiccl::transport {

bool device_possible(const Settings& /*settings*/, std::string& why) {
  why = "no copies between GPUs in this build";
  return false;
}

std::unique_ptr<Connection> DeviceConnection::make(bool /*sender*/, Descriptor /*socket*/,
                                                   std::unique_ptr<Ring> /*ring*/,
                                                   const Settings& /*settings*/,
                                                   std::string& problem) {
  problem = "no copies between GPUs in this build";
  return nullptr;
}

}  // namespace dynamiccl::transport
