#include "train/spec/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/vocabulary/error.hpp"
#include "train/spec/removed_settings.hpp"

namespace dynamiccl {
namespace {

/// In the order in which settings are printed and combined.
const std::array<SettingPart, 8>& setting_parts() {
  static const std::array parts{task_part(),    optimizer_part(), message_part(), server_part(),
                                meeting_part(), codec_part(),     pace_part(),    rank_part()};
  return parts;
}

/// The name's row; nullptr when there is none.
const SettingRow* setting_row(std::string_view name) {
  for (const SettingPart& part : setting_parts())
    for (const SettingRow& row : part.rows)
      if (row.name == name) return &row;
  return nullptr;
}

/// What to say to somebody who names a setting that there is not.
std::string other_than(const std::string& name) {
  for (const auto& [removed, holds] : kRemovedSettings)
    if (removed == name) return std::string(holds);
  return suggestion(name, training_settings());
}

constexpr std::uint64_t kVocabulary = 30522;
constexpr std::uint64_t kFloatBytes = 4;

ModelFacts image_model(std::uint64_t parameters, double macs, std::uint64_t side, int classes) {
  return {parameters, macs, 3 * side * side * kFloatBytes, false, classes};
}

/// Encoder with a tied masked-language head: embeddings, `layers` blocks of 12 h^2 weights, and the
/// head's transform and bias.
ModelFacts bert(std::uint64_t layers, std::uint64_t h, std::uint64_t s) {
  const std::uint64_t embeddings = (kVocabulary + kPositions + 2) * h + 2 * h;
  const std::uint64_t block = 12 * h * h + 13 * h;
  const std::uint64_t head = h * h + h + 2 * h + kVocabulary;
  const double tokens = static_cast<double>(s);
  const double width = static_cast<double>(h);
  const double macs =
      static_cast<double>(layers) * (12 * tokens * width * width + 2 * tokens * tokens * width) +
      tokens * width * (width + static_cast<double>(kVocabulary));
  return {embeddings + layers * block + head, macs, s * 8, true, static_cast<int>(kVocabulary)};
}

double steps_per_epoch(const TrainingSpec& spec, int workers) {
  const double samples = is_generated(spec.data) ? spec.samples : 60'000;
  return std::max(1.0, std::floor(samples / (1.0 * workers * spec.batch)));
}

}  // namespace

std::vector<TrainingSetting> training_setting_rows() {
  std::vector<TrainingSetting> settings;
  for (const SettingPart& part : setting_parts())
    for (const SettingRow& row : part.rows)
      settings.push_back({std::string(row.name), std::string(row.about), row.write({})});
  return settings;
}

std::vector<std::string> training_settings() {
  std::vector<std::string> names;
  for (auto& setting : training_setting_rows()) names.push_back(std::move(setting.name));
  return names;
}

const std::vector<std::string>& training_task_settings() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const SettingPart& part : setting_parts())
      for (const SettingRow& row : part.rows)
        if (part.of_task) all.emplace_back(row.name);
    return all;
  }();
  return names;
}

TrainingSpec parsed_training(const Settings& settings, TrainingMethod method) {
  TrainingSpec spec;
  spec.method = method;
  for (const auto& [name, value] : settings) {
    const SettingRow* row = setting_row(name);
    if (row == nullptr)
      throw Error(ErrorKind::input,
                  fmt::format("training has no setting \"{}\"; {}", name, other_than(name)));
    row->read(spec, *row, value);
  }
  return spec;
}

TrainingSpec parsed_training(const WorkCell& cell) {
  Settings settings = cell.knobs;
  settings.erase("aggregator");  // the launch's, where it has one
  return parsed_training(settings, parse_named<TrainingMethod>(cell.algorithm));
}

const TrainingSpec& training_spec(const WorkCell& cell) {
  DYN_ASSERT(cell.training != nullptr, "planned training cells carry what they are to do");
  return *cell.training;
}

WorkCell training_cell(const TrainingSpec& spec) {
  static const TrainingSpec defaults;
  WorkCell cell;
  cell.collective = Collective::training;
  cell.algorithm = name_of(spec.method);
  cell.size = Bytes(facts_of(spec.model, spec.sequence).parameters * sizeof(float));
  for (const SettingPart& part : setting_parts())
    for (const SettingRow& row : part.rows) {
      const std::string value = row.write(spec);
      if (row.name == "model" || row.name == "batch" || value != row.write(defaults))
        cell.knobs[std::string(row.name)] = value;
    }
  // As every rank will read it: settings that nothing needs to be said for are gone.
  cell.training = std::make_shared<const TrainingSpec>(parsed_training(cell));
  return cell;
}

std::string training_contradiction(const TrainingSpec& spec) {
  for (const SettingPart& part : setting_parts())
    if (auto reason = part.misfit(spec); !reason.empty()) return reason;
  return "";
}

ModelFacts facts_of(TrainingModel model, int sequence) {
  const auto tokens = static_cast<std::uint64_t>(sequence);
  switch (model) {
    case TrainingModel::mlp:
      return image_model(1'707'274, 1'706'496, 32, 10);
    case TrainingModel::cnn:
      return image_model(545'098, 6'128'896, 32, 10);
    case TrainingModel::cnn_small:
      return image_model(100'154, 148'416, 32, 10);
    case TrainingModel::resnet18:
      return image_model(11'173'962, 555'422'720, 32, 10);
    case TrainingModel::resnet50:
      return image_model(25'557'032, 4'089'184'256, 224, 1000);
    case TrainingModel::bert_base:
      return bert(12, 768, tokens);
    case TrainingModel::bert_large:
      return bert(24, 1024, tokens);
  }
  return {};
}

bool trains_as_one(const TrainingSpec& spec) {
  return spec.compression == Codec::none && !spec.switch_to &&
         agreement_of(spec.method, spec.synchronisation) == WeightAgreement::every_step;
}

bool is_plain_sgd(const TrainingSpec& spec) {
  return trains_as_one(spec) && spec.lars == 0 && spec.rate_warmup == 0;
}

double budgeted_steps(const TrainingSpec& spec, int workers) {
  if (spec.epochs == 0) return spec.steps;
  const double steps = steps_per_epoch(spec, workers);
  if (spec.switch_to) {
    const double before = spec.switch_after * steps / round_steps(leg_of(spec, false));
    const double after =
        (spec.epochs - spec.switch_after) * steps / round_steps(leg_of(spec, true));
    return std::max(1.0, std::floor(before) + std::floor(after));
  }
  // AdaComm's rounds may shorten to single steps.
  const int of_round = spec.synchronisation == Synchronisation::adacomm ? 1 : round_steps(spec);
  return std::max(1.0, std::floor(spec.epochs * steps / of_round));
}

double budgeted_worker_steps(const TrainingSpec& spec, int workers) {
  const int longest = std::max(round_steps(leg_of(spec, false)), round_steps(leg_of(spec, true)));
  if (spec.epochs == 0) return 1.0 * spec.steps * longest;
  // A round is done to its end.
  return std::max(budgeted_steps(spec, workers), spec.epochs * steps_per_epoch(spec, workers)) +
         longest - 1;
}

}  // namespace dynamiccl
