#pragma once

#include <map>
#include <string>
#include <vector>

namespace dynamiccl {

/// The MPI library's control variables through MPI_T. One per process, made after MPI_Init and
/// destroyed before MPI_Finalize (Open MPI 4.1.4 crashes when MPI_T ends later).
class MpiControl {
 public:
  MpiControl();
  ~MpiControl();
  MpiControl(const MpiControl&) = delete;
  MpiControl& operator=(const MpiControl&) = delete;

  [[nodiscard]] bool has(const std::string& name) const;
  /// Nearest names for an error message.
  [[nodiscard]] std::string suggest(const std::string& name) const;
  /// Value as text: a number, or the string of a string variable.
  /// @throws Error(environment) when the library has no such variable or does not let it be read
  [[nodiscard]] std::string read(const std::string& name) const;
  /// @param value a number for a number, a name for an enumeration that has names
  /// @throws Error(input) when the value does not fit, Error(environment) when it cannot be set now
  void write(const std::string& name, const std::string& value) const;
  /// Names of an enumeration's values in the library's order; empty when it has none.
  [[nodiscard]] std::vector<std::string> enumerators(const std::string& name) const;
};

/// Control variables set to other values for as long as this lives.
class ControlOverrides {
 public:
  /// @throws as MpiControl::write, having set back what was set before
  ControlOverrides(const MpiControl& control, const std::map<std::string, std::string>& values);
  ~ControlOverrides();
  ControlOverrides(const ControlOverrides&) = delete;
  ControlOverrides& operator=(const ControlOverrides&) = delete;

 private:
  void set_back();

  const MpiControl& control_;
  std::map<std::string, std::string> originals_;
};

}  // namespace dynamiccl
