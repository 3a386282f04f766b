#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace dynamiccl {

/// A technique as the quantitative survey's three-level taxonomy places it.
struct PublishedTechnique {
  double level = 0;       ///< 1 optimisation, 2 architecture and scheduling, 3 communication
  std::string dimension;  ///< "synchronisation", "compression", "architecture", ...
  std::string name;
  bool lossy = false;  ///< what its level is said to be
};

/// Throughput over one worker's with one method on one link.
struct PublishedSpeedup {
  std::string link;    ///< "100Gb-IB-RDMA", "100GbE-TCP", "10GbE-TCP"
  std::string model;   ///< name of the vocabulary
  std::string method;  ///< name of the vocabulary; "" = the best of the seven
  int workers = 0;
  double low = 0;  ///< equal to high, except where one range is published for all methods
  double high = 0;
  bool doubtful = false;  ///< probably not measured on that link
};

struct PublishedModel {
  std::string model;     ///< name of the vocabulary
  double intensity = 0;  ///< operations per sample and parameter, as published
  int batch = 0;         ///< samples per worker
};

/// What a survey says of one property of one technique.
struct PublishedLabel {
  std::string property;
  std::string technique;
  std::string label;
};

/// Where what wins for models of low intensity is published not to win.
struct PublishedException {
  std::string model;  ///< name of the vocabulary
  int workers = 0;
  std::string text;  ///< as published
};

/// Which of two methods the survey says to be faster, or of one and all others.
struct PublishedClaim {
  enum class Models { all, low_intensity, high_intensity };
  std::string text;    ///< as published
  std::string faster;  ///< name of the vocabulary; "" = every other one that the survey measured
  std::string slower;  ///< likewise
  Models models = Models::all;
};

/// The steps of the container study's training: equal samples by as many GPUs, with and without
/// one that serves.
struct PublishedBudget {
  int epochs = 0;
  int ring_steps = 0;           ///< of an epoch, 4 workers
  int server_steps = 0;         ///< of an epoch, 3 workers and a server
  double server_over_ring = 0;  ///< published ratio of training times, NCCL on bare metal
};

/// What the surveys say of one way to wait for each other, by its name there ("BSP", "SSP", "ASP",
/// "Local-SGD").
struct PublishedWaiting {
  std::string mode;
  std::string consistency;
  std::string per_step;  ///< progress of a step
  /// Accuracy less plain SGD's at 32 workers, percent points, from least to worst; 0 where BSP.
  double least_change = 0;
  double worst_change = 0;
};

/// A label for each tier of links, and the tiers that the mode is meant for.
struct PublishedByTier {
  std::string mode;  ///< "BSP", "stale-sync", "async", "local-sgd", "decentralised", "hybrid"
  std::array<std::string, 4> label;  ///< of tier 1, 2, 3, 4
  std::string gate;
};

/// How errors fall with steps T, workers n.
struct PublishedOrder {
  std::string method;
  std::string convex;
  std::string non_convex;  ///< "" where none is given
};

/// What of profiles/published/figures.toml is set beside training and its methods.
struct TrainingStudies {
  std::string survey_testbed;  ///< in one line
  std::vector<PublishedTechnique> taxonomy;
  double tuner_level = 0;  ///< where the taxonomy has a tuner
  std::vector<PublishedModel> models;
  std::vector<PublishedSpeedup> speedups;
  std::string speedups_note;
  std::vector<PublishedLabel> architecture;  ///< techniques "ps", "allreduce", "gossip"
  std::vector<PublishedLabel> scheduling;    ///< "wfbp", "mg_wfbp", "partition", "priority"
  std::vector<PublishedLabel> compression;   ///< by compression, of techniques "tier1" to "tier4"
  PublishedException low_intensity;          ///< to its winner, methods of best_below_intensity
  std::vector<PublishedClaim> claims;        ///< the order of methods, pair by pair
  PublishedBudget budget;
  std::vector<PublishedLabel> waiting_profile;  ///< four properties of "PS BSP", "gossip LSGD", ...
  std::vector<PublishedWaiting> waiting;
  std::vector<PublishedByTier> waiting_by_tier;
  std::vector<PublishedOrder> convergence;
  std::vector<std::string> tier4_options;  ///< what is left where plain synchronous steps are not
  int tier4_local_steps = 0;
};

/// @param toml_text the text of profiles/published/figures.toml
/// @param source names it in errors
/// @throws Error(input) as source:line:col, Error(data) when a table or key is missing, or a model
/// or method that the vocabulary does not have
TrainingStudies parse_training_studies(const std::string& toml_text, const std::string& source);

}  // namespace dynamiccl
