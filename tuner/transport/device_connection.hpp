#pragma once

#include <memory>
#include <string>

#include "tuner/transport/connection.hpp"
#include "tuner/transport/settings.hpp"

namespace dynamiccl::transport {

/// Whether this process may hand memory of its GPU to peers and copy into theirs. @param why it may
/// not
bool device_possible(const Settings& settings, std::string& why);

class DeviceConnection {
 public:
  static std::unique_ptr<Connection> make(bool sender, Descriptor socket,
                                          std::unique_ptr<Ring> ring, const Settings& settings,
                                          std::string& problem);
};

}  // namespace dynamiccl::transport
