#include "db/launch_ingest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

namespace dynamiccl {
namespace {

/// Rows per INSERT: beyond ten the statement itself costs more than it saves.
constexpr std::size_t kRowsPerInsert = 10;
/// Values of a row of `sample` behind its key.
constexpr std::size_t kSampleColumns = 9;

std::string sample_insert(std::size_t rows) {
  // The key's first parts are the same for all rows of a statement and are bound once.
  std::string sql = "INSERT INTO sample VALUES ";
  for (std::size_t row = 0; row < rows; ++row) {
    sql += fmt::format("{}(?1,?2,?3,?4+{}", row == 0 ? "" : ",", row);
    for (std::size_t column = 0; column < kSampleColumns; ++column) {
      sql += fmt::format(",?{}", 5 + row * kSampleColumns + column);
    }
    sql += ")";
  }
  return sql;
}

std::int64_t to_signed(std::uint64_t value) {
  return static_cast<std::int64_t>(
      std::min<std::uint64_t>(value, std::numeric_limits<std::int64_t>::max()));
}

/// Binds the parameters of a row one after the other.
class Binder {
 public:
  explicit Binder(SQLite::Statement& statement) : statement_(statement) {
    statement_.reset();
    statement_.clearBindings();
  }
  template <class T>
  Binder& operator<<(const T& value) {
    statement_.bind(next_++, value);
    return *this;
  }
  template <class T>
  Binder& operator<<(const std::optional<T>& value) {
    if (value) return *this << *value;
    ++next_;
    return *this;
  }
  void exec() { statement_.exec(); }

 private:
  SQLite::Statement& statement_;
  int next_ = 1;
};

std::optional<std::string> known(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

/// Every row of `samples` at `index`; the arrays were checked to fit.
void bind_sample(SQLite::Statement& statement, int first, const SampleArrays& samples,
                 std::size_t index) {
  const std::array<const std::vector<double>*, kSampleColumns> columns{
      &samples.start_us,   &samples.total_us,  &samples.collective_us,
      &samples.h2d_us,     &samples.d2h_us,    &samples.send_us,
      &samples.compute_us, &samples.device_us, &samples.waited_us};
  for (const auto* column : columns) {
    if (!column->empty()) statement.bind(first, (*column)[index]);
    ++first;
  }
}

CellStatus inherited(LaunchStatus status) {
  switch (status) {
    case LaunchStatus::timed_out:
      return CellStatus::timed_out;
    case LaunchStatus::interrupted:
      return CellStatus::interrupted;
    default:
      return CellStatus::failed;
  }
}

}  // namespace

/// One rank's records, distinguished by kind.
struct LaunchIngest::Rank {
  const HelloRecord* hello = nullptr;
  const FactsRecord* facts = nullptr;
  const TransportRecord* transport = nullptr;
  const ClockRecord* clock = nullptr;
  const ErrorRecord* error = nullptr;
  const DoneRecord* done = nullptr;
  std::map<std::string, const CellRecord*> cells;
  bool torn = false;
};

LaunchIngest::LaunchIngest(SQLite::Database& db)
    : db_(db),
      cells_(db, "SELECT id, key, unsupported_reason IS NULL FROM run_cell WHERE group_id = ?"),
      insert_rank_(db, "INSERT INTO launch_rank VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"),
      insert_transport_(db, "INSERT INTO transport VALUES (?,?,?,?,?,?,?,?,?)"),
      insert_measurement_(db,
                          "INSERT INTO measurement VALUES "
                          "(NULL,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,"
                          "?,?,?,?,?,?)"),
      insert_sample_(db, sample_insert(1)),
      insert_samples_(db, sample_insert(kRowsPerInsert)),
      insert_training_(db,
                       "INSERT INTO training VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)") {}

std::vector<LaunchIngest::Rank> LaunchIngest::sort_by_rank(const Launch& launch,
                                                           const std::vector<RecordFile>& files,
                                                           const Report& report) const {
  std::vector<Rank> ranks(static_cast<std::size_t>(launch.ranks));
  const auto keep = [&](auto*& place, const auto& record, const char* what) {
    if (place != nullptr) {
      report("repeated_record",
             fmt::format("rank {} wrote a second {} record; the first counts", record.rank, what));
      return;
    }
    place = &record;
  };
  for (std::size_t index = 0; index < files.size(); ++index) {
    for (const auto& record : files[index].records) {
      const int rank = std::visit([](const auto& r) { return r.rank; }, record);
      if (rank < 0 || rank >= launch.ranks) {
        report("unknown_record", fmt::format("a record of rank {} in a launch of {} ranks; ignored",
                                             rank, launch.ranks));
        continue;
      }
      auto& data = ranks[static_cast<std::size_t>(rank)];
      if (const auto* hello = std::get_if<HelloRecord>(&record)) {
        keep(data.hello, *hello, "hello");
      } else if (const auto* facts = std::get_if<FactsRecord>(&record)) {
        keep(data.facts, *facts, "facts");
      } else if (const auto* transport = std::get_if<TransportRecord>(&record)) {
        keep(data.transport, *transport, "transport");
      } else if (const auto* clock = std::get_if<ClockRecord>(&record)) {
        keep(data.clock, *clock, "clock");
      } else if (const auto* error = std::get_if<ErrorRecord>(&record)) {
        keep(data.error, *error, "error");
      } else if (const auto* done = std::get_if<DoneRecord>(&record)) {
        keep(data.done, *done, "done");
      } else if (const auto* cell = std::get_if<CellRecord>(&record)) {
        keep(data.cells[cell->cell_id], *cell, "cell");
      }
    }
    if (!files[index].torn_line) continue;
    report("torn_record", fmt::format("rank {}: its last record was cut off after {} bytes", index,
                                      files[index].torn_line->size()));
    if (index < ranks.size()) ranks[index].torn = true;
  }
  return ranks;
}

void LaunchIngest::store(const Launch& launch, const LaunchEnd& end,
                         const std::vector<RecordFile>& files, const Report& report) {
  auto ranks = sort_by_rank(launch, files, report);
  clocks_.clear();
  for (const auto& rank : ranks) clocks_.push_back(rank_clock(rank.hello, rank.clock));
  for (int rank = 0; rank < launch.ranks; ++rank) {
    store_rank(launch, rank, ranks[static_cast<std::size_t>(rank)]);
  }
  struct PlannedCell {
    std::int64_t id = 0;
    std::string key;
    bool to_measure = false;
  };
  std::vector<PlannedCell> planned;
  Binder(cells_) << launch.group_id;
  while (cells_.executeStep()) {
    planned.push_back({cells_.getColumn(0).getInt64(), cells_.getColumn(1).getString(),
                       cells_.getColumn(2).getInt() != 0});
  }
  cells_.reset();
  for (const auto& cell : planned) {
    std::vector<RankCell> records;
    for (int rank = 0; rank < launch.ranks; ++rank) {
      auto& mine = ranks[static_cast<std::size_t>(rank)].cells;
      const auto found = mine.find(cell.key);
      if (found == mine.end()) continue;
      records.push_back({rank, found->second});
      mine.erase(found);
    }
    if (cell.to_measure || !records.empty()) store_cell(launch, end, cell.id, records, report);
  }
  for (int rank = 0; rank < launch.ranks; ++rank) {
    for (const auto& [key, record] : ranks[static_cast<std::size_t>(rank)].cells) {
      report("unknown_record",
             fmt::format("rank {} measured cell \"{}\", which the plan does not have; ignored",
                         rank, key));
    }
  }
}

void LaunchIngest::store_rank(const Launch& launch, int rank, const Rank& data) {
  Binder row(insert_rank_);
  row << launch.id << rank;
  if (const auto* h = data.hello) {
    row << h->world_size << known(h->library) << known(h->library_version) << h->pid
        << h->started_unix_s << h->ready_unix_s;
  } else {
    for (int i = 0; i < 6; ++i) row << std::optional<int>{};
  }
  row << (data.done ? std::optional(data.done->ended_unix_s) : std::nullopt)
      << (data.hello ? std::optional(data.hello->clock_ns) : std::nullopt)
      << (data.done ? std::optional(data.done->peak_rss_bytes) : std::nullopt)
      << (data.error ? known(data.error->message) : std::nullopt) << (data.torn ? 1 : 0);
  const auto dump = [](const nlohmann::json& document) {
    return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  row << (data.facts ? std::optional(dump(data.facts->facts)) : std::nullopt);
  if (const auto* c = data.clock) {
    row << (c->shared ? 1 : 0) << c->offset_us << c->error_us << c->end_offset_us
        << c->end_error_us;
  }
  row.exec();
  if (const auto* t = data.transport) {
    Binder(insert_transport_) << launch.id << rank << t->transport << to_signed(t->payload_bytes)
                              << to_signed(t->tcp_bytes) << to_signed(t->cma_bytes)
                              << to_signed(t->cma_errors) << t->evidence << dump(t->details);
    insert_transport_.exec();
  }
}

void LaunchIngest::store_cell(const Launch& launch, const LaunchEnd& end, std::int64_t cell,
                              const std::vector<RankCell>& records, const Report& report) {
  MeasurementOutcome outcome;
  if (records.empty()) {
    const bool launch_ok = end.status == LaunchStatus::ok;
    outcome.status = inherited(end.status);
    outcome.reason = launch_ok ? "no rank left a record of this cell" : end.reason;
  } else {
    outcome = judge(records);
    // A cell that only some ranks came to is no measurement of the cell.
    if (records.size() < static_cast<std::size_t>(launch.ranks) &&
        outcome.status == CellStatus::ok) {
      outcome.status = inherited(end.status);
      outcome.reason =
          fmt::format("only {} of {} ranks left a record of this cell{}{}", records.size(),
                      launch.ranks, end.reason.empty() ? "" : ": ", end.reason);
    }
  }
  const std::int64_t measurement = insert_measurement(launch, cell, outcome, records);
  for (const auto& [rank, record] : records) {
    if (record->training) store_training(measurement, rank, *record->training);
  }
  if (!outcome.samples_sound) {
    report("unsound_samples",
           fmt::format("measurement {}: samples left out: {}", measurement, outcome.reason));
    return;
  }
  for (int phase = 0; phase < 2; ++phase) {
    for (const auto& [rank, record] : records) {
      store_samples(measurement, phase, rank, phase == 0 ? record->warmup : record->measured);
    }
  }
}

std::int64_t LaunchIngest::insert_measurement(const Launch& launch, std::int64_t cell,
                                              const MeasurementOutcome& outcome,
                                              const std::vector<RankCell>& records) {
  Binder row(insert_measurement_);
  row << launch.id << cell << std::string(name_of(outcome.status)) << known(outcome.reason);
  if (records.empty()) {
    for (int i = 0; i < 4; ++i) row << std::optional<int>{};
  } else {
    const CellRecord& first = *records.front().record;
    row << first.position << std::string(name_of(first.cadence)) << first.batch
        << known(first.barrier);
  }
  row << std::string(name_of(launch.aggregation))
      << (records.empty() ? std::nullopt : known(records.front().record->algorithm));
  std::uint64_t checked = 0;
  std::uint64_t wrong = 0;
  for (const auto& cell_record : records) {
    checked += cell_record.record->checked;
    wrong += cell_record.record->wrong;
  }
  row << to_signed(checked) << to_signed(wrong);
  const auto summary = outcome.samples_sound ? summarise(records, launch.aggregation)
                                             : std::optional<MeasurementSummary>{};
  if (const auto& s = summary) {
    row << s->n << s->median_us << s->min_us << s->mean_us << s->p95_us << s->p99_us << s->max_us
        << s->mad_us << s->lag1 << s->outliers << (s->not_stationary ? 1 : 0) << s->collective_us
        << s->h2d_us << s->d2h_us << s->send_us << s->compute_us << s->device_us << s->settled_at;
    const auto skew = arrival_skew(records, clocks_);
    const auto of_skew = [&](double ArrivalSkew::*part) {
      return skew ? std::optional((*skew).*part) : std::nullopt;
    };
    row << of_skew(&ArrivalSkew::median_us) << of_skew(&ArrivalSkew::max_us)
        << of_skew(&ArrivalSkew::error_us) << s->waited_share << s->unwaited_us;
  } else {
    row << std::int64_t{0};
  }
  row.exec();
  return db_.getLastInsertRowid();
}

void LaunchIngest::store_training(std::int64_t measurement, int rank,
                                  const TrainingFigures& figures) {
  const auto if_known = [](double value) {
    return std::isfinite(value) && value >= 0 ? std::optional(value) : std::nullopt;
  };
  const auto sound = [](double value) { return std::isfinite(value) ? value : 0.0; };
  Binder row(insert_training_);
  row << measurement << rank << figures.role;
  for (const double value : {figures.single_us, figures.compute_us, figures.forward_us,
                             figures.backward_us, figures.update_us, figures.exposed_us})
    row << sound(value);
  row << (figures.predicted_us > 0 ? if_known(figures.predicted_us) : std::nullopt);
  row << sound(figures.wire_bytes) << if_known(figures.counted_bytes)
      << sound(figures.c2c_predicted) << if_known(figures.c2c_measured) << sound(figures.intensity);
  row << if_known(figures.first_loss) << if_known(figures.last_loss) << if_known(figures.accuracy)
      << if_known(figures.max_difference) << figures.parameters_sha256
      << figures.details.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  row.exec();
}

void LaunchIngest::store_samples(std::int64_t measurement, int phase, int rank,
                                 const SampleArrays& samples) {
  const std::size_t n = samples.total_us.size();
  const auto insert = [&](SQLite::Statement& statement, std::size_t from, std::size_t rows) {
    statement.bind(1, measurement);
    statement.bind(2, phase);
    statement.bind(3, rank);
    statement.bind(4, static_cast<std::int64_t>(from));
    for (std::size_t row = 0; row < rows; ++row) {
      bind_sample(statement, static_cast<int>(5 + row * kSampleColumns), samples, from + row);
    }
    statement.exec();
    statement.reset();
  };
  // What an earlier cell bound for an array that this one lacks must not stay.
  insert_samples_.clearBindings();
  insert_sample_.clearBindings();
  std::size_t from = 0;
  for (; from + kRowsPerInsert <= n; from += kRowsPerInsert) {
    insert(insert_samples_, from, kRowsPerInsert);
  }
  for (; from < n; ++from) insert(insert_sample_, from, 1);
}

}  // namespace dynamiccl
