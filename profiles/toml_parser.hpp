#pragma once

#include <stdexcept>
#include <string>

namespace dynamiccl {

/// What toml++ takes for impossible and an input made true.
class TomlAssumption : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void throw_toml_assumption(const char* expression);

}  // namespace dynamiccl

// Where an assertion of toml++ 3.3 does not hold (a letter behind `[` that begins no key), it
// aborts, or with NDEBUG goes on as if it held. It throws here, in every build: include toml++ by
// this header alone.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expression) \
  (static_cast<bool>(expression) ? void() : ::dynamiccl::throw_toml_assumption(#expression))
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace dynamiccl {

/// As toml::parse. @throws toml::parse_error, in a TomlAssumption's place too
toml::table parse_toml_text(const std::string& text, const std::string& source);

}  // namespace dynamiccl
