#include "core/wire/record.hpp"

#include <fmt/format.h>

#include <fstream>
#include <limits>

#include "core/vocabulary/json_problem.hpp"
#include "core/vocabulary/named_json.hpp"
#include "core/vocabulary/parsed_json.hpp"

namespace dynamiccl {
using nlohmann::json;

namespace {

struct SampleField {
  const char* name;
  std::vector<double> SampleArrays::*values;
};

constexpr std::array kSampleFields{SampleField{"start_us", &SampleArrays::start_us},
                                   SampleField{"total_us", &SampleArrays::total_us},
                                   SampleField{"collective_us", &SampleArrays::collective_us},
                                   SampleField{"h2d_us", &SampleArrays::h2d_us},
                                   SampleField{"d2h_us", &SampleArrays::d2h_us},
                                   SampleField{"send_us", &SampleArrays::send_us},
                                   SampleField{"compute_us", &SampleArrays::compute_us},
                                   SampleField{"device_us", &SampleArrays::device_us},
                                   SampleField{"waited_us", &SampleArrays::waited_us}};

struct FigureField {
  const char* name;
  double TrainingFigures::*value;
};

constexpr std::array kFigureFields{FigureField{"single_us", &TrainingFigures::single_us},
                                   FigureField{"compute_us", &TrainingFigures::compute_us},
                                   FigureField{"forward_us", &TrainingFigures::forward_us},
                                   FigureField{"backward_us", &TrainingFigures::backward_us},
                                   FigureField{"update_us", &TrainingFigures::update_us},
                                   FigureField{"exposed_us", &TrainingFigures::exposed_us},
                                   FigureField{"predicted_us", &TrainingFigures::predicted_us},
                                   FigureField{"wire_bytes", &TrainingFigures::wire_bytes},
                                   FigureField{"counted_bytes", &TrainingFigures::counted_bytes},
                                   FigureField{"c2c_predicted", &TrainingFigures::c2c_predicted},
                                   FigureField{"c2c_measured", &TrainingFigures::c2c_measured},
                                   FigureField{"intensity", &TrainingFigures::intensity},
                                   FigureField{"first_loss", &TrainingFigures::first_loss},
                                   FigureField{"last_loss", &TrainingFigures::last_loss},
                                   FigureField{"accuracy", &TrainingFigures::accuracy},
                                   FigureField{"max_difference", &TrainingFigures::max_difference}};

/// By their places in Record.
constexpr std::array kTypes{"hello", "facts", "cell", "transport", "clock", "error", "done"};
static_assert(kTypes.size() == std::variant_size_v<Record>);

template <std::size_t kType = 0>
Record read_as(const std::string& type, const json& object) {
  if constexpr (kType == kTypes.size()) {
    throw Error(ErrorKind::data, fmt::format("record: unknown type \"{}\"", type));
  } else {
    if (type == kTypes[kType]) return object.get<std::variant_alternative_t<kType, Record>>();
    return read_as<kType + 1>(type, object);
  }
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HelloRecord, rank, world_size, launch_id, library,
                                   library_version, pid, started_unix_s, ready_unix_s, clock_ns)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FactsRecord, rank, facts)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TransportRecord, rank, transport, payload_bytes, tcp_bytes,
                                   cma_bytes, cma_errors, evidence, details)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ClockRecord, rank, shared, at_us, offset_us, error_us, end_at_us,
                                   end_offset_us, end_error_us, rounds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ErrorRecord, rank, message)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DoneRecord, rank, ended_unix_s, peak_rss_bytes)

static void to_json(json& object, const SampleArrays& samples) {
  object = json::object();
  for (const auto& field : kSampleFields)
    if (!(samples.*field.values).empty()) object[field.name] = samples.*field.values;
}

static void from_json(const json& object, SampleArrays& samples) {
  for (const auto& field : kSampleFields)
    if (object.contains(field.name)) object.at(field.name).get_to(samples.*field.values);
  const std::size_t count = samples.total_us.size();
  for (const auto& field : kSampleFields) {
    const std::size_t have = (samples.*field.values).size();
    if (have != 0 && have != count)
      throw Error(ErrorKind::data, fmt::format("record: {} has {} samples, total_us has {}",
                                               field.name, have, count));
  }
}

static void to_json(json& object, const TrainingFigures& figures) {
  object = {{"role", figures.role},
            {"parameters_sha256", figures.parameters_sha256},
            {"details", figures.details}};
  for (const auto& field : kFigureFields) object[field.name] = figures.*field.value;
}

static void from_json(const json& object, TrainingFigures& figures) {
  object.at("role").get_to(figures.role);
  object.at("parameters_sha256").get_to(figures.parameters_sha256);
  figures.details = object.at("details");
  // JSON has no name for what is no number and writes null: one figure of a training that diverged
  // must not make the whole file of records unreadable.
  for (const auto& field : kFigureFields) {
    const json& value = object.at(field.name);
    figures.*field.value =
        value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  }
}

namespace cell_members {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CellRecord, cell_id, rank, status, reason, position, cadence,
                                   batch, barrier, algorithm, checked, wrong, warmup, measured)
}

static void to_json(json& object, const CellRecord& cell) {
  cell_members::to_json(object, cell);
  if (cell.training) object["training"] = *cell.training;
}

static void from_json(const json& object, CellRecord& cell) {
  cell_members::from_json(object, cell);
  if (object.contains("training")) cell.training = object.at("training").get<TrainingFigures>();
}

std::string to_json_line(const Record& record) {
  json object = std::visit([](const auto& r) { return json(r); }, record);
  object["type"] = kTypes.at(record.index());
  // Foreign bytes (a host name, a library's message) must not make a record unwritable.
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

Record record_from_json_line(const std::string& line) {
  try {
    const json object = parsed_json(line);
    return read_as(object.at("type").get<std::string>(), object);
  } catch (const json::exception& error) {
    throw Error(ErrorKind::data, fmt::format("record: {}", json_problem(error)));
  }
}

std::string record_file_name(int rank) { return fmt::format("rank{}.jsonl", rank); }

RecordFile read_record_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorKind::environment, fmt::format("{}: cannot be read", path));
  RecordFile result;
  std::string line;
  int number = 0;
  while (std::getline(file, line)) {
    ++number;
    // getline that met the end instead of a newline read a line that was never finished.
    if (file.eof()) {
      result.torn_line = line;
      break;
    }
    try {
      result.records.push_back(record_from_json_line(line));
    } catch (const Error& error) {
      throw error.with_context(fmt::format("{}:{}", path, number));
    }
  }
  return result;
}

}  // namespace dynamiccl
