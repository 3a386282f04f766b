#pragma once

#include <string>
#include <vector>

#include "tuner/export/nccl_export.hpp"
#include "tuner/table/table.hpp"

namespace dynamiccl {

/// What libraries load: made from one regime's rows of a configuration table.
struct ExportedFile {
  std::string name;
  std::string text;
};
struct Export {
  std::vector<ExportedFile> files;
  std::vector<std::string> use;    ///< how a job loads them, one command or setting per line
  std::vector<std::string> notes;  ///< what the format cannot say, and what was left out
};

struct ExportOptions {
  std::string regime{};         ///< id or name, or their beginning; "" where the table has one
  int ranks = 0;                ///< only rows of this group size; 0: all
  std::string folder{};         ///< absolute: files name each other
  std::string plugin{};         ///< absolute path of libdynamiccl-nccl-plugin.so, as jobs see it
  std::string shared_folder{};  ///< as ranks see it; "": the table's own, else kUsualFolder
};

enum class ExportFormat { nccl, environment, openmpi, mpich, gloo, toml };
template <>
struct NameTable<ExportFormat> {
  static constexpr std::string_view what = "format";
  static constexpr std::array entries{
      Named{ExportFormat::nccl, "nccl"},       Named{ExportFormat::environment, "env"},
      Named{ExportFormat::openmpi, "openmpi"}, Named{ExportFormat::mpich, "mpich"},
      Named{ExportFormat::gloo, "gloo"},       Named{ExportFormat::toml, "toml"}};
};

/// Regimes of which the table has rows.
std::vector<const TableRegime*> regimes_with_rows(const ConfigurationTable& table);

/// Holds to the table's checks, where it has any: what lost there, or was not surely faster, is
/// left to the library.
/// @throws Error(input) when the regime is unknown or not unique, or nothing can be exported so
Export export_table(const ConfigurationTable& table, ExportFormat format,
                    const ExportOptions& options);

}  // namespace dynamiccl
