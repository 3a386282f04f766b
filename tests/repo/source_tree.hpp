#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

struct SourceFile {
  std::string path;  ///< from the repository root
  std::string text;
};

/// The files below these folders of the repository whose names end in one of the endings, sorted.
std::vector<SourceFile> source_files(const std::vector<std::string>& folders,
                                     const std::vector<std::string>& endings);

/// The folders that hold C++ of the product, in layer order.
const std::vector<std::string>& product_folders();

}  // namespace dynamiccl
