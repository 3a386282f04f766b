#pragma once

#include <string>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {

/// What this machine cannot have as it is (no engine, a package out of reach): trying again does
/// not help, while any other Error(environment) is of something that is there and did not come up.
class UnsupportedError : public Error {
 public:
  explicit UnsupportedError(const std::string& message) : Error(ErrorKind::environment, message) {}
};

}  // namespace dynamiccl
