#pragma once

#include <sys/types.h>

#include <string>

#include "core/vocabulary/file_descriptor.hpp"

namespace dynamiccl {

/// Makes a folder and those above it.
/// @param remedy what to do instead, for the error
/// @throws Error(input) when it cannot be made
void make_folder(const std::string& path, const std::string& remedy);

/// The same of a folder that nobody else may exchange.
/// @throws Error(input) also when another user made one of them in a folder of everybody
void make_own_folder(const std::string& path, const std::string& remedy);

/// A folder that nobody else may exchange or write to, held open: what is written through held()
/// goes into that folder, whatever has taken its name since.
class HeldFolder {
 public:
  /// Makes it and those above it.
  /// @param remedy what to do instead, for errors
  /// @throws Error(input) when it cannot be made, is another user's or open to others, or another
  /// user made one of those above it, or a link to one, in a folder of everybody
  HeldFolder(const std::string& path, std::string remedy);
  /// A folder in it, made where it is not there. Links are not followed.
  /// @param mode that it is given; 0: as it is, and 0755 at most for a new one
  /// @throws Error(environment) when it cannot be had, or is another user's
  [[nodiscard]] HeldFolder below(const std::string& name, mode_t mode) const;

  /// To be asked before others are sent there by its name.
  /// @throws Error(environment) when the name leads elsewhere by now, or others may write there
  void require_same() const;
  /// For whoever is sent there.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// The same folder by a name that holds in this process alone, while this object lives.
  [[nodiscard]] std::string held() const;
  [[nodiscard]] int descriptor() const { return folder_.get(); }
  /// Whether its user has opened it to all users, who may not exchange what others have made there.
  [[nodiscard]] bool is_open_to_all() const;
  /// Renamed into place, so that nobody reads half of it; a link of that name is replaced.
  /// @throws Error(environment) when it cannot be written
  void write(const std::string& name, const std::string& text) const;

 private:
  HeldFolder(FileDescriptor folder, std::string path, std::string remedy);
  [[nodiscard]] std::string why_not_own() const;
  FileDescriptor folder_;
  std::string path_;  ///< without links
  std::string remedy_;
};

/// @throws Error(input) when files that jobs load are not safe there: below a folder where
/// everybody may rename what others have made
void require_no_exchange(const HeldFolder& folder, const std::string& remedy);

}  // namespace dynamiccl
