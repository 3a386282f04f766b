#pragma once

// JSON, whose integers are checked. The library reads 1.5, -1 or 1e30 as an integer by a cast: a
// wrong value without a word, and undefined where the type cannot hold it. Here every conversion to
// an integer, get<int>() and value("key", 0) as much as a field of a vector, throws instead. All
// code must agree on that: include nlohmann/json.hpp by this header alone.

#include <cmath>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace dynamiccl {

/// Integers that are numbers, not truth values or letters.
template <typename T>
concept WholeNumber = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> &&
                      !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                      !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

/// @returns the value where it is a number without a fraction (8.0 is one) that T holds
template <WholeNumber T, typename Json>
std::optional<T> whole_number(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = *value.template get_ptr<const typename Json::number_unsigned_t*>();
    return std::in_range<T>(number) ? std::optional(static_cast<T>(number)) : std::nullopt;
  }
  if (value.is_number_integer()) {
    const auto number = *value.template get_ptr<const typename Json::number_integer_t*>();
    return std::in_range<T>(number) ? std::optional(static_cast<T>(number)) : std::nullopt;
  }
  if (!value.is_number_float()) return std::nullopt;
  const auto number = *value.template get_ptr<const typename Json::number_float_t*>();
  // A power of two, exact in any floating type; the greatest value itself may not be.
  const auto beyond = std::ldexp(1.0, std::numeric_limits<T>::digits);
  const bool fits = number < beyond && number >= (std::signed_integral<T> ? -beyond : 0.0);
  return fits && std::trunc(number) == number ? std::optional(static_cast<T>(number))
                                              : std::nullopt;
}

/// As a value of the wrong type.
class NoWholeNumber : public nlohmann::json::exception {
 public:
  explicit NoWholeNumber(const std::string& what) : exception(302, what.c_str()) {}
};

template <WholeNumber T, typename Json>
[[noreturn]] void throw_no_whole_number(const Json& value) {
  throw NoWholeNumber("a whole number from " + std::to_string(std::numeric_limits<T>::min()) +
                      " to " + std::to_string(std::numeric_limits<T>::max()) + " is needed, not " +
                      (value.is_number() ? value.dump() : std::string(value.type_name())));
}

}  // namespace dynamiccl

namespace nlohmann {

/// The library's own place for how a type is read.
template <typename T>
struct adl_serializer<T, std::enable_if_t<dynamiccl::WholeNumber<T>>> {
  template <typename Json>
  static void from_json(const Json& value, T& number) {
    const auto read = dynamiccl::whole_number<T>(value);
    if (!read) dynamiccl::throw_no_whole_number<T>(value);
    number = *read;
  }

  template <typename Json>
  static void to_json(Json& value, T number) noexcept {
    ::nlohmann::to_json(value, number);
  }
};

}  // namespace nlohmann
