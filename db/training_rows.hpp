#pragma once

#include <string>
#include <string_view>

namespace dynamiccl {

/// The views with the rows of facts of this program's methods, synchronisations and codecs in the
/// places that name them ("@methods@", ...): SQL asks a row, as C++ does, and knows no name.
std::string with_training_rows(std::string_view views);

}  // namespace dynamiccl
