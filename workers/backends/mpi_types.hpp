#pragma once
// For files that include mpi.h of one library: each is compiled once per library.
#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <string>

#include "core/vocabulary/error.hpp"
#include "workers/collectives/sum.hpp"
#include "workers/library_calls.hpp"

namespace dynamiccl {

/// @throws NotApplicable where the library refuses a forced algorithm, Error otherwise
[[noreturn]] inline void fail_mpi(int code, const char* call) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  const std::string why(text.data(), static_cast<std::size_t>(length));
  // Open MPI's error class and MPICH's text for a forced algorithm that does not suit the call.
  int error_class = MPI_SUCCESS;
  MPI_Error_class(code, &error_class);
  if (error_class == MPI_ERR_UNSUPPORTED_OPERATION ||
      why.find("algorithm is not usable") != std::string::npos) {
    throw NotApplicable(fmt::format("{} refuses the chosen algorithm for these arguments", call));
  }
  throw Error(ErrorKind::environment, fmt::format("{} failed: {}", call, why));
}

inline void check(int code, const char* call) {
  if (code != MPI_SUCCESS) fail_mpi(code, call);
}

template <DataType type>
void sum_16_bit(void* in, void* in_out, int* count, MPI_Datatype* /*datatype*/) {
  sum_elements(in_out, in_out, in, static_cast<std::size_t>(*count), type);
}

/// The library's type and sum for ours. 16-bit floats travel as 16-bit words and are added by our
/// own function: Open MPI 4.1 has no such type and MPICH 4.0's aborts in MPI_Allreduce.
class MpiTypes {
 public:
  MpiTypes() {
    check(MPI_Op_create(sum_16_bit<DataType::float16>, 1, &sum_float16_), "MPI_Op_create");
    check(MPI_Op_create(sum_16_bit<DataType::bfloat16>, 1, &sum_bfloat16_), "MPI_Op_create");
  }
  void free() {
    MPI_Op_free(&sum_float16_);
    MPI_Op_free(&sum_bfloat16_);
  }
  static MPI_Datatype type(DataType type) {
    switch (type) {
      case DataType::float32:
        return MPI_FLOAT;
      case DataType::float64:
        return MPI_DOUBLE;
      case DataType::int32:
        return MPI_INT32_T;
      case DataType::float16:
      case DataType::bfloat16:
        return MPI_UINT16_T;
    }
    return MPI_BYTE;
  }
  /// 16-bit floats have sums alone (work_settings_misfit()).
  [[nodiscard]] MPI_Op operation(DataType type, ReduceOp op) const {
    if (op == ReduceOp::max) return MPI_MAX;
    if (op == ReduceOp::min) return MPI_MIN;
    if (op == ReduceOp::prod) return MPI_PROD;
    if (type == DataType::float16) return sum_float16_;
    if (type == DataType::bfloat16) return sum_bfloat16_;
    return MPI_SUM;
  }

 private:
  MPI_Op sum_float16_ = MPI_OP_NULL;
  MPI_Op sum_bfloat16_ = MPI_OP_NULL;
};

}  // namespace dynamiccl
