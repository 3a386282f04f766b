#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// A published time of one environment over the same on bare metal.
struct PublishedRatio {
  std::string backend;       ///< name of the vocabulary
  std::string architecture;  ///< name of the vocabulary
  std::string collective;    ///< name of the vocabulary
  std::string environment;   ///< name of the vocabulary
  double ratio = 0;          ///< above 1: slower than bare metal
  std::string where;         ///< "micro-benchmark" or "training"
  std::string table;         ///< its table in profiles/published/figures.toml
};

/// The best or the worst published choice for an operation.
struct PublishedExtreme {
  std::string architecture;
  std::string collective;
  std::string backend;  ///< as published: "mpi" stands for the family
  std::string environment;
  double seconds = 0;
  bool is_best = false;
};

/// Share of copies between host and device in an operation's time.
struct PublishedCopyShare {
  std::string backend;
  std::string architecture;
  std::string collective;
  double percent = 0;
};

/// Published seconds of a whole training run (the container study's training table).
struct PublishedTraining {
  std::string architecture;  ///< name of the vocabulary
  std::string backend;       ///< as published: "mpi" stands for the family
  double bare_metal_s = 0;
  double cross_docker_s = 0;
};

/// Backends in the order of their published times of one operation on bare metal.
struct PublishedRanking {
  struct Place {
    std::string backend;  ///< name of the vocabulary; "mpi": Open MPI or MPICH, whichever is faster
    double seconds = 0;
  };
  std::string collective;            ///< name of the vocabulary
  std::string where;                 ///< "micro-benchmark" or "training"
  std::string table;                 ///< its table in profiles/published/figures.toml
  std::vector<Place> fastest_first;  ///< two at least
};

/// What of profiles/published/figures.toml reports set beside measured figures: the container and
/// backend study, on one machine with 4 GPUs and 1 GiB messages.
struct ReferenceFigures {
  std::string testbed;  ///< in one line
  std::vector<PublishedRatio> ratios;
  std::vector<PublishedExtreme> extremes;
  std::vector<PublishedCopyShare> copy_shares;
  std::string extremes_note;
  std::vector<PublishedTraining> training_times;
  std::vector<PublishedRanking> rankings;
};

/// @param toml_text the text of profiles/published/figures.toml
/// @param source names it in errors
/// @throws Error(input) as source:line:col, Error(data) when a table or key is missing
ReferenceFigures parse_reference_figures(const std::string& toml_text, const std::string& source);

}  // namespace dynamiccl
