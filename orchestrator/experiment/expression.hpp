#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dynamiccl {

/// What an expression sees of a cell. Names are as in the vocabulary; `knobs` holds "env.X",
/// "mca.X", "malloc.X", "call.X" and a training cell's settings ("model"), absent = "default"; its
/// method is the algorithm.
struct CellView {
  std::string_view environment;
  std::string_view backend;
  std::string_view architecture;
  std::string_view collective;
  std::string_view datatype;
  std::string_view algorithm;
  std::int64_t ranks = 0;
  std::uint64_t size_bytes = 0;
  bool in_place = false;
  const std::map<std::string, std::string>* knobs = nullptr;
};

/// A filter over cells: `backend == gloo and size >= 1MiB and not (ranks in [2, 4])`.
/// Operators: == != < <= > >= in, `not in`, and, or, not, parentheses. The left side of a
/// comparison is a field, the right side a value: a name (quotes are optional), a number, a size
/// with suffix, true or false. Training cells have their method and settings as fields too:
/// `training in [dear, ddp] and packing == none`. Copying is cheap.
class Expression {
 public:
  /// @param environments known profile names, against which names of environments are checked
  /// @throws Error(input) `column N: ...` with what was expected, N counted from 1
  static Expression parse(std::string_view text, const std::vector<std::string>& environments);

  [[nodiscard]] bool matches(const CellView& cell) const;
  [[nodiscard]] const std::string& text() const { return text_; }
  /// "column N: ..." of each name that reads but should be written anew.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  struct Node;

 private:
  std::string text_;
  std::vector<std::string> notes_;
  std::shared_ptr<const Node> root_;
};

}  // namespace dynamiccl
