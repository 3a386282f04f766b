#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/pooling.hpp"
#include "reports/model/published.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kPsAgainstRingColumns = R"(
run_id environment backend model batch
schedule | text | the method without its architecture
basis | text | equal ranks, as published, or equal workers
settings
server_workers | integer | workers of the runs with servers
ring_workers | integer | workers of the ring
samples | integer | samples that the times are of
server_steps | integer | steps with a server
ring_steps | integer | steps of the ring
launches
server_s | s, real | time with a server
ring_s | s, real | time of the ring
ratio
server_is | text | the verdict on the server
published_server_s | s, real | published time with a server
published_ring_s | s, real | published time of the ring
published_ratio | real | published, server over ring
deviation | real | ratio here over the published one
note
)";

// CIFAR-10's training set, of which the published steps of an epoch are made: ceil(50000 / (32 N)).
constexpr std::int64_t kEpochSamples = 50'000;
constexpr const char* kNotOverNccl =
    ", not by NCCL: no setting of NCCL's is to be had there (non_actionable_regime), a ring is";
constexpr std::array kPublishedEnvironments{"bare-metal", "cross-docker"};

struct TrainedSide {
  CellFigure figure;
  TrainedCell cell;
  std::string schedule;  ///< the method without -ps and -a2a
  bool server = false;
};

std::vector<TrainedSide> load_sides(const std::vector<CellFigure>& figures) {
  std::vector<TrainedSide> trained;
  for (const auto& figure : figures) {
    if (figure.collective != "training" || !trained_as_one(figure)) continue;
    TrainedSide one{figure, trained_cell(figure), figure.algorithm, figure.architecture == "ps"};
    const auto dash = one.schedule.rfind('-');
    const auto family = dash == std::string::npos ? "" : one.schedule.substr(dash);
    if (family != "-ps" && family != "-a2a") continue;  // no partner with a server
    one.schedule.resize(dash);
    if (one.cell.batch > 0 && one.cell.workers > 0) trained.push_back(std::move(one));
  }
  return trained;
}

/// What must be equal for two to have trained the same.
std::string side_task(const TrainedSide& t) {
  const auto of = [&](const char* name) { return t.cell.settings.value(name, std::string()); };
  return join({t.figure.environment, t.figure.backend, t.cell.model, std::to_string(t.cell.batch),
               of("sequence"), of("data"), of("precision"), of("pace"), of("slow_factor"),
               of("slow_worker"), t.figure.group_knobs, t.schedule},
              "|");
}

std::int64_t budget_steps(const TrainedSide& t) {
  const std::int64_t per_step = t.cell.batch * t.cell.workers;
  return training_studies().budget.epochs * ((kEpochSamples + per_step - 1) / per_step);
}

/// The whole training, of each launch: its step times the steps of the budget.
CellFigure whole_training(const TrainedSide& t) {
  CellFigure figure = t.figure;
  for (auto& launch : figure.launches) launch.median_us *= static_cast<double>(budget_steps(t));
  return figure;
}

std::string published_family(const std::string& backend) {
  const auto known = find_named<Backend>(backend);
  return known && backend_facts(*known).is_mpi ? "mpi" : backend;
}

struct PublishedPair {
  double server_s = 0;
  double ring_s = 0;
};

/// By backend's family and environment.
std::map<std::pair<std::string, std::string>, PublishedPair> published_pairs() {
  std::map<std::pair<std::string, std::string>, PublishedPair> pairs;
  for (const auto& row : published_figures().training_times) {
    for (const char* environment : kPublishedEnvironments) {
      PublishedPair& pair = pairs[{row.backend, environment}];
      const double seconds =
          std::string_view(environment) == "bare-metal" ? row.bare_metal_s : row.cross_docker_s;
      (row.architecture == "ps" ? pair.server_s : pair.ring_s) = seconds;
    }
  }
  return pairs;
}

/// @param ratio here, nullopt where nothing was measured
void add_published_times(std::vector<Value>& row, const std::optional<PublishedPair>& pair,
                         std::optional<double> ratio, const std::string& note) {
  row.push_back(or_null(pair ? std::optional(pair->server_s) : std::nullopt));
  row.push_back(or_null(pair ? std::optional(pair->ring_s) : std::nullopt));
  const auto published = pair ? std::optional(pair->server_s / pair->ring_s) : std::nullopt;
  row.push_back(or_null(published));
  row.push_back(or_null(published && ratio ? std::optional(*ratio / *published) : std::nullopt));
  row.push_back(or_null(note));
}

/// The fastest ring of the same task for one number of ranks, or of workers.
const TrainedSide* ring_partner(const std::vector<TrainedSide>& all, const TrainedSide& server,
                                bool equal_ranks) {
  const TrainedSide* best = nullptr;
  for (const auto& ring : all) {
    if (ring.server || side_task(ring) != side_task(server)) continue;
    if (equal_ranks ? ring.figure.ranks != server.figure.ranks
                    : ring.cell.workers != server.cell.workers)
      continue;
    if (best == nullptr || ring.figure.median_us() < best->figure.median_us()) best = &ring;
  }
  return best;
}

/// Who moved a server's gradients, and what follows where that was not the backend itself.
/// @param carrier as it was measured; "" where that is not known
std::string carrier_note(const CellFigure& server, const std::string& carrier) {
  if (carrier.empty()) return "";
  const bool elsewhere = server.backend == name_of(Backend::nccl) && !carrier.starts_with("NCCL");
  return "server's gradients carried by " + carrier + (elsewhere ? kNotOverNccl : "");
}

/// Collects rows, whose verdicts come when all ratios of the run are known.
class ServerRingRows {
 public:
  /// @param carrier the library that moved the server's gradients
  void add(const TrainedSide& server, const TrainedSide& ring, const char* basis,
           const std::string& carrier) {
    const CellFigure a = whole_training(server);
    const CellFigure b = whole_training(ring);
    ratios_.push_back(time_ratio(a, b));
    const auto seconds = [](double us) { return us / 1e6; };
    std::vector<Value> row{
        a.run_id,
        a.environment,
        a.backend,
        server.cell.model,
        server.cell.batch,
        server.schedule,
        std::string(basis),
        or_null(server.cell.settings.empty() ? "" : server.cell.settings.dump()),
        server.cell.workers,
        ring.cell.workers,
        training_studies().budget.epochs * kEpochSamples,
        budget_steps(server),
        budget_steps(ring),
        static_cast<std::int64_t>(std::min(a.launches.size(), b.launches.size())),
        seconds(a.median_us()),
        seconds(b.median_us()),
        ratios_.back().value};
    add_bounds(row, ratios_.back().interval);
    rows_.push_back(std::move(row));
    carriers_.push_back(carrier_note(a, carrier));
  }

  void finish(Table& table) {
    auto published = published_pairs();
    std::set<std::pair<std::string, std::string>> seen;
    std::vector<std::string> runs;
    for (const auto& row : rows_) runs.push_back(plain_text(row.front()));
    const auto verdicts = judge_by_run(runs, ratios_);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      auto& row = rows_[i];
      const std::pair place{published_family(plain_text(row[2])), plain_text(row[1])};
      const auto known = published.find(place);
      row.emplace_back(std::string(name_of(verdicts[i])));
      add_published_times(row,
                          known == published.end() ? std::nullopt : std::optional(known->second),
                          ratios_[i].value, carriers_[i]);
      seen.insert(place);
      table.rows.push_back(std::move(row));
    }
    for (const auto& [place, pair] : published) {
      if (seen.contains(place)) continue;
      std::vector<Value> row(table.columns.size() - 5);
      row[0] = run_id;
      row[1] = place.second;
      row[2] = place.first;
      add_published_times(row, pair, std::nullopt, "not measured in this run");
      table.rows.push_back(std::move(row));
    }
  }

  std::string run_id;

 private:
  std::vector<std::vector<Value>> rows_;
  std::vector<Ratio> ratios_;
  std::vector<std::string> carriers_;
};

std::string cell_of_any_run(CellFigure figure) {
  figure.run_id.clear();
  return key_without(figure, "");
}

/// The library that moved a cell's gradients, by cell_of_any_run().
std::map<std::string, std::string> carriers_of(const Reader& reader,
                                               const std::vector<std::int64_t>& runs) {
  std::map<std::string, std::string> carriers;
  for (const std::int64_t run : runs) {
    const Table table = reader.query(
        "SELECT m.*, max(CASE t.role WHEN 'worker' THEN "
        "json_extract(t.details_json, '$.carried_by') END) AS carrier "
        "FROM v_measurement m JOIN training t ON t.measurement_id = m.measurement_row "
        "WHERE m.run_row = ?1 AND m.counts GROUP BY m.cell_row",
        {run});
    const TableView rows(table);
    for (std::size_t i = 0; i < rows.size(); ++i)
      carriers.try_emplace(cell_of_any_run(figure_cell(rows, i)), rows.text(i, "carrier"));
  }
  return carriers;
}

/// The rows of runs that count as one, the newest first.
void add_rows(Table& table, const Reader& reader, const std::vector<std::int64_t>& runs) {
  const Table named = reader.query("SELECT uuid FROM run WHERE id = ?1", {runs.front()});
  const auto trained = load_sides(pool_runs(reader, runs, load_figures(reader, runs)));
  ServerRingRows pairs;
  pairs.run_id = TableView(named).text(0, "uuid");
  const auto carriers = carriers_of(reader, runs);
  for (const auto& server : trained) {
    if (!server.server) continue;
    const auto known = carriers.find(cell_of_any_run(server.figure));
    const std::string carrier = known == carriers.end() ? "" : known->second;
    if (const auto* ring = ring_partner(trained, server, true))
      pairs.add(server, *ring, "equal ranks", carrier);
    if (const auto* ring = ring_partner(trained, server, false))
      pairs.add(server, *ring, "equal workers", carrier);
  }
  pairs.finish(table);
}

Table ps_against_ring_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                            const QueryScope& scope) {
  Table table = empty_table(kPsAgainstRingColumns);
  if (scope.pool && !runs.empty())
    add_rows(table, reader, runs);
  else
    for (const std::int64_t run : runs) add_rows(table, reader, {run});
  return table;
}

}  // namespace

Query ps_against_ring_query() {
  return {.title = "Parameter server against ring",
          .row =
              "one method with a server against the same without: time of equal samples (the "
              "published 10 epochs of CIFAR-10 as steps here), at equal ranks as published and at "
              "equal workers, with the published times",
          .columns = kPsAgainstRingColumns,
          .method = verdict_method(),
          .of_runs = ps_against_ring_table,
          .pools = true};
}

}  // namespace dynamiccl
