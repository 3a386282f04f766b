#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace dynamiccl {

/// One value of a result: NULL, INTEGER, REAL or TEXT.
using Value = std::variant<std::monostate, std::int64_t, double, std::string>;

/// A query's result. Every row has as many values as there are columns.
struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<Value>> rows;
};

}  // namespace dynamiccl
