#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// A value, or the reason why it is not known. A probe never guesses.
template <class T>
struct Known {
  std::optional<T> value;
  std::string reason;  ///< set where `value` is not

  static Known unknown(std::string why) { return {std::nullopt, std::move(why)}; }
  explicit operator bool() const { return value.has_value(); }
  const T& operator*() const { return *value; }
  const T* operator->() const { return &*value; }
};

/// Printable UTF-8: other bytes become '?', and what is longer than `limit` bytes is cut. What is
/// read from a machine may be anything, and JSON holds text only.
std::string clean_text(std::string_view text, std::size_t limit = 4096);

/// One probe's JSON object. What is not known is null under its own name, with the reason under
/// `unknown`.
class Section {
 public:
  /// A value, a text (made printable) or a Known.
  template <class T>
  void set(const std::string& key, const T& value) {
    if constexpr (requires { value.reason; }) {
      if (value)
        set(key, *value);
      else
        unknown(key, value.reason);
    } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      object_[key] = clean_text(value);
    } else {
      object_[key] = value;
    }
  }
  void unknown(const std::string& key, const std::string& reason) {
    object_[key] = nullptr;
    object_["unknown"][key] = clean_text(reason);
  }
  [[nodiscard]] nlohmann::json take() && { return std::move(object_); }

 private:
  nlohmann::json object_ = nlohmann::json::object();
};

/// after[key] - before[key] of a counter; nullopt where either is no number or the counter went
/// back.
std::optional<double> grown(const nlohmann::json& before, const nlohmann::json& after,
                            const char* key);

}  // namespace dynamiccl
