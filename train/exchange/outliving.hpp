#pragma once

#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace dynamiccl {

/// Ends what it owns unless an error is ending the cell: messages that were started then may still
/// be under way, and the library reads and writes their buffers until the process ends, which it
/// does next (workers/run/main.cpp).
struct UnlessFailing {
  template <class T>
  void operator()(T* object) const {
    if (std::uncaught_exceptions() == 0) {
      delete object;
    } else {
      left_to_library().push_back(object);
    }
  }

 private:
  /// Known to somebody, as leak checkers ask.
  static std::vector<void*>& left_to_library() {
    static auto* left = new std::vector<void*>;
    return *left;
  }
};

template <class T>
using Outliving = std::unique_ptr<T, UnlessFailing>;

template <class T, class... Arguments>
Outliving<T> make_outliving(Arguments&&... arguments) {
  return Outliving<T>(new T(std::forward<Arguments>(arguments)...));
}

}  // namespace dynamiccl
