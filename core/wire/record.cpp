#include "core/wire/record.hpp"

#include <fmt/format.h>

#include <fstream>
#include <limits>
#include <type_traits>

#include "core/vocabulary/json_problem.hpp"
#include "core/vocabulary/parsed_json.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

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

json samples_to_json(const SampleArrays& samples) {
  json object = json::object();
  for (const auto& field : kSampleFields) {
    if (!(samples.*field.values).empty()) object[field.name] = samples.*field.values;
  }
  return object;
}

SampleArrays samples_from_json(const json& object) {
  SampleArrays samples;
  for (const auto& field : kSampleFields) {
    if (object.contains(field.name)) object.at(field.name).get_to(samples.*field.values);
  }
  const std::size_t count = samples.total_us.size();
  for (const auto& field : kSampleFields) {
    const std::size_t have = (samples.*field.values).size();
    if (have != 0 && have != count) {
      throw Error(ErrorKind::data, fmt::format("record: {} has {} samples, total_us has {}",
                                               field.name, have, count));
    }
  }
  return samples;
}

json to_object(const HelloRecord& r) {
  return {{"type", "hello"},
          {"rank", r.rank},
          {"world_size", r.world_size},
          {"launch_id", r.launch_id},
          {"library", r.library},
          {"library_version", r.library_version},
          {"pid", r.pid},
          {"started_unix_s", r.started_unix_s},
          {"ready_unix_s", r.ready_unix_s},
          {"clock_ns", r.clock_ns}};
}

json to_object(const FactsRecord& r) {
  return {{"type", "facts"}, {"rank", r.rank}, {"facts", r.facts}};
}

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

json training_to_json(const TrainingFigures& figures) {
  json object = {{"role", figures.role},
                 {"parameters_sha256", figures.parameters_sha256},
                 {"details", figures.details}};
  for (const auto& field : kFigureFields) object[field.name] = figures.*field.value;
  return object;
}

TrainingFigures training_from_json(const json& object) {
  TrainingFigures figures;
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
  return figures;
}

json to_object(const CellRecord& r) {
  json object = {{"type", "cell"},
                 {"cell_id", r.cell_id},
                 {"rank", r.rank},
                 {"status", name_of(r.status)},
                 {"reason", r.reason},
                 {"position", r.position},
                 {"cadence", name_of(r.cadence)},
                 {"batch", r.batch},
                 {"barrier", r.barrier},
                 {"algorithm", r.algorithm},
                 {"checked", r.checked},
                 {"wrong", r.wrong},
                 {"warmup", samples_to_json(r.warmup)},
                 {"measured", samples_to_json(r.measured)}};
  if (r.training) object["training"] = training_to_json(*r.training);
  return object;
}

json to_object(const TransportRecord& r) {
  return {{"type", "transport"},        {"rank", r.rank},
          {"transport", r.transport},   {"payload_bytes", r.payload_bytes},
          {"tcp_bytes", r.tcp_bytes},   {"cma_bytes", r.cma_bytes},
          {"cma_errors", r.cma_errors}, {"evidence", r.evidence},
          {"details", r.details}};
}

json to_object(const ClockRecord& r) {
  return {{"type", "clock"},
          {"rank", r.rank},
          {"shared", r.shared},
          {"at_us", r.at_us},
          {"offset_us", r.offset_us},
          {"error_us", r.error_us},
          {"end_at_us", r.end_at_us},
          {"end_offset_us", r.end_offset_us},
          {"end_error_us", r.end_error_us},
          {"rounds", r.rounds}};
}

json to_object(const ErrorRecord& r) {
  return {{"type", "error"}, {"rank", r.rank}, {"message", r.message}};
}

json to_object(const DoneRecord& r) {
  return {{"type", "done"},
          {"rank", r.rank},
          {"ended_unix_s", r.ended_unix_s},
          {"peak_rss_bytes", r.peak_rss_bytes}};
}

HelloRecord hello_from(const json& o) {
  return {o.at("rank"),           o.at("world_size"),      o.at("launch_id"),
          o.at("library"),        o.at("library_version"), o.at("pid"),
          o.at("started_unix_s"), o.at("ready_unix_s"),    o.at("clock_ns")};
}

CellRecord cell_from(const json& o) {
  CellRecord r;
  r.cell_id = o.at("cell_id").get<std::string>();
  r.rank = o.at("rank").get<int>();
  r.status = parse_named<CellStatus>(o.at("status").get<std::string>());
  r.reason = o.at("reason").get<std::string>();
  r.position = o.at("position").get<int>();
  r.cadence = parse_named<Cadence>(o.at("cadence").get<std::string>());
  r.batch = o.at("batch").get<int>();
  r.barrier = o.at("barrier").get<std::string>();
  r.algorithm = o.at("algorithm").get<std::string>();
  r.checked = o.at("checked").get<std::uint64_t>();
  r.wrong = o.at("wrong").get<std::uint64_t>();
  r.warmup = samples_from_json(o.at("warmup"));
  r.measured = samples_from_json(o.at("measured"));
  if (o.contains("training")) r.training = training_from_json(o.at("training"));
  return r;
}

TransportRecord transport_from(const json& o) {
  return {o.at("rank"),      o.at("transport"),  o.at("payload_bytes"), o.at("tcp_bytes"),
          o.at("cma_bytes"), o.at("cma_errors"), o.at("evidence"),      o.at("details")};
}

ClockRecord clock_from(const json& o) {
  return {o.at("rank"),          o.at("shared"),       o.at("at_us"),
          o.at("offset_us"),     o.at("error_us"),     o.at("end_at_us"),
          o.at("end_offset_us"), o.at("end_error_us"), o.at("rounds")};
}

}  // namespace

std::string to_json_line(const Record& record) {
  // Foreign bytes (a host name, a library's message) must not make a record unwritable.
  return std::visit(
      [](const auto& r) {
        return to_object(r).dump(-1, ' ', false, json::error_handler_t::replace);
      },
      record);
}

Record record_from_json_line(const std::string& line) {
  try {
    const json object = parsed_json(line);
    const auto type = object.at("type").get<std::string>();
    if (type == "hello") return hello_from(object);
    if (type == "facts") return FactsRecord{object.at("rank"), object.at("facts")};
    if (type == "cell") return cell_from(object);
    if (type == "transport") return transport_from(object);
    if (type == "clock") return clock_from(object);
    if (type == "error") return ErrorRecord{object.at("rank"), object.at("message")};
    if (type == "done")
      return DoneRecord{object.at("rank"), object.at("ended_unix_s"), object.at("peak_rss_bytes")};
    throw Error(ErrorKind::data, fmt::format("record: unknown type \"{}\"", type));
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
