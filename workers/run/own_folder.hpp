#pragma once

#include <string>

namespace dynamiccl {

/// A folder in $TMPDIR (/tmp) for a rank whose launch's folder is on another machine; goes with the
/// object. What killed ranks of this user have left there is removed when one is made.
class OwnFolder {
 public:
  OwnFolder() = default;
  ~OwnFolder() { remove(); }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

  /// @throws Error(environment) when it cannot be made
  std::string make();
  void remove();

 private:
  std::string path_;
  int lock_ = -1;  ///< held while this process lives, whatever its number is in whose namespace
};

}  // namespace dynamiccl
