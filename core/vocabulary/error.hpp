#pragma once

#include <stdexcept>
#include <string>

namespace dynamiccl {

/// What kind of failure ends a command; decides the exit code.
enum class ErrorKind {
  input,        ///< the user's file, flag or data is wrong (exit 2)
  environment,  ///< something the machine should have is missing or refuses (exit 1)
  data,         ///< stored or exchanged data is damaged or of another version (exit 2)
  bug           ///< our own mistake (exit 1)
};

/// The one exception type. The message says what failed, where, why and what to do next.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] ErrorKind kind() const { return kind_; }
  /// @returns the same error with `context: ` before its message
  [[nodiscard]] Error with_context(const std::string& context) const {
    return Error(kind_, context + ": " + what());
  }

 private:
  ErrorKind kind_;
};

/// @throws Error(bug) naming the broken rule and its place
[[noreturn]] void fail_assertion(const char* condition, const char* why, const char* file,
                                 int line);

}  // namespace dynamiccl

/// A rule only our own mistake can break; on in every build.
#define DYN_ASSERT(condition, why)    \
  ((condition) ? static_cast<void>(0) \
               : ::dynamiccl::fail_assertion(#condition, why, __FILE__, __LINE__))
