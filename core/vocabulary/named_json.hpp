#pragma once

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace nlohmann {

/// A value of an enum that has names is its name in JSON. For sources that list a struct's members
/// with NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE.
template <typename E>
struct adl_serializer<E, std::void_t<decltype(dynamiccl::NameTable<E>::entries)>> {
  template <typename Json>
  static void from_json(const Json& value, E& named) {
    named = dynamiccl::parse_named<E>(value.template get<std::string>());
  }

  template <typename Json>
  static void to_json(Json& value, E named) {
    value = dynamiccl::name_of(named);
  }
};

}  // namespace nlohmann
