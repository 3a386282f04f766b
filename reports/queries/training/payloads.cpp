#include <fmt/format.h>

#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/group_tiers.hpp"
#include "reports/model/published.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "train/spec/payload.hpp"
#include "train/spec/removed_settings.hpp"

namespace dynamiccl {
namespace {

constexpr double kBitsOfFloat = 32;
// A sign and what stands next to it; two bits are something else.
constexpr double kMostOfOneBit = 1.5;
// Of the bytes, where the survey's codec sends a thousandth of the values: 0.002 with their places,
// nearer to it than to a hundredth's 0.02.
constexpr double kThousandth = 0.0063;

/// The row of the survey's table that a payload falls under; "" where none is like it.
std::string published_class(const TrainingSpec& spec, const Payload& payload) {
  // Of a value, with what stands next to the values of large gradients.
  const double bits = kBitsOfFloat * payload.share();
  switch (codec_row(spec.compression).kind) {
    case CodecKind::dense:
      return spec.compression == Codec::none ? "none-fp32" : "fp16";
    case CodecKind::quantised:
      if (!payload.effective_bytes) return "";
      if (bits >= 7.5) return "int8";
      return bits < kMostOfOneBit && codec_settings(spec).feedback ? "1bit-ef" : "";
    case CodecKind::sparse:
      return payload.share() < kThousandth ? "topk-1000x" : "";
    case CodecKind::low_rank:
    case CodecKind::sketched:
      break;
  }
  return "";
}

const nlohmann::json& published_rows(const char* table) {
  return published_figures().at("s002").at(table).at("rows");
}

std::string tier_key(int tier) { return fmt::format("tier{}", tier); }

/// What the survey says of such a codec over links of that tier.
std::string label_in_tier(const std::string& of, const std::optional<int>& tier) {
  for (const auto& row : published_rows("compression_by_tier"))
    if (tier && row.at("method") == of) return row.at(tier_key(*tier));
  return "";
}

/// Where the survey would have another codec there: what it calls good, or better than that.
std::string better_in_tier(const std::string& of, const std::optional<int>& tier) {
  if (of.empty() || !tier) return "";
  const std::string own = label_in_tier(of, tier);
  if (own != "bad" && own != "infeasible" && own != "wasted") return "";
  std::string better;
  for (const auto& row : published_rows("compression_by_tier")) {
    const std::string label = row.at(tier_key(*tier));
    if (label == "good" || label == "optimal" || label == "mandatory" || label == "useful")
      better += (better.empty() ? "" : ", ") + row.at("method").get<std::string>() + " " + label;
  }
  return fmt::format("published in this tier: {}", better);
}

template <class T>
Value whole(const std::optional<T>& number) {
  return number ? Value(static_cast<std::int64_t>(*number)) : Value();
}

/// A cell of a database that knows other models, methods or settings has no row.
std::optional<TrainingSpec> spec_of(const CellFigure& figure, const TrainedCell& cell) {
  Settings said;
  for (const auto& [name, value] : cell.settings.items())
    if (value.is_string()) said[name] = value.get<std::string>();
  // None of them changes what is sent.
  for (const auto& removed : kRemovedSettings) said.erase(std::string(removed.first));
  said["model"] = cell.model;
  said["batch"] = std::to_string(cell.batch);
  try {
    return parsed_training(said, parse_named<TrainingMethod>(figure.algorithm));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// As v_training says it.
std::string waiting_of(const TrainingSpec& spec) {
  std::string text = spec.group_size > 1 ? "grouped " : "";
  if (method_row(spec.method).sums == SumPlace::neighbours) text = "gossip ";
  text += name_of(spec.synchronisation);
  if (spec.switch_to) text += ", then " + std::string(name_of(*spec.switch_to));
  return text;
}

/// What the survey says of waiting for each other like that over links of that tier.
std::string waiting_in_tier(const std::string& waiting, const std::optional<int>& tier) {
  for (const auto& row : published_rows("sync_by_tier"))
    for (const auto& ours : row.at("here"))
      if (tier && (ours == waiting || ours == waiting.substr(0, waiting.find(' '))))
        return row.at(tier_key(*tier));
  return "";
}

Table payloads_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                     const QueryScope& /*scope*/) {
  Table table;
  for (const std::int64_t run : runs) {
    const auto tiers = tiers_of_groups(reader, run);
    for (const CellFigure& figure : load_figures(reader, {run})) {
      if (figure.collective != name_of(Collective::training)) continue;
      const TrainedCell cell = trained_cell(figure);
      const auto spec = spec_of(figure, cell);
      if (!spec) continue;
      const int workers = static_cast<int>(cell.workers);
      const Payload payload = payload_of(*spec);
      const auto found = tiers.find(group_key(figure));
      const auto tier = found == tiers.end() ? std::nullopt : found->second;
      const std::string published = published_class(*spec, payload);
      const std::string waiting = waiting_of(*spec);
      table.rows.push_back({figure.run_id,
                            figure.environment,
                            figure.backend,
                            cell.model,
                            cell.batch,
                            figure.algorithm,
                            waiting,
                            std::string(name_of(spec->compression)),
                            cell.workers,
                            figure.group_knobs,
                            std::string(name_of(payload.firing)),
                            payload.exchanges,
                            static_cast<std::int64_t>(payload.nominal_bytes),
                            whole(payload.effective_bytes),
                            c2c_predicted(*spec, workers),
                            or_null(c2c_effective(*spec, workers)),
                            whole(tier),
                            or_null(label_in_tier(published, tier)),
                            or_null(waiting_in_tier(waiting, tier)),
                            or_null(better_in_tier(published, tier)),
                            or_null(cell.settings.empty() ? "" : cell.settings.dump())});
    }
  }
  return table;
}

}  // namespace

Query payloads_query() {
  return {.title = "What a library sees of training",
          .row =
              "one training cell: how much a worker gives to the library at once and how often, "
              "C2C of that, and what a survey says of such a compression and synchronisation over "
              "such links",
          .columns = R"(
run_id environment backend model batch method
synchronisation | text | when workers wait for each other
compression | text | codec of what travels
workers group_knobs
fires | text | when workers call: every step, every round of their own steps, or each when it is done (push and pull)
exchanges | real | in a step of a worker; less than 1 with steps of their own, as many as rounds have in the beginning
nominal_bytes | bytes, integer | all gradients, or weights, as plain values
effective_bytes | bytes, integer | the same encoded, by formula as if all were one gradient; NULL: depends on values or shapes
c2c_predicted
c2c_effective | real | C2C of what is sent; NULL: not known before
tier | integer | how far apart the ranks are: 1 NVLink or shared memory, 2 PCIe or the machine's network, 3, 4 slower networks
plausible | text, optional | what the survey says of such a compression in that tier; NULL: it has none like it
waiting_plausible | text, optional | what it says there of such a synchronisation
note | text, optional | where the compression is published as bad or wasted, what suits that tier
settings
)",
          .of_runs = payloads_table};
}

}  // namespace dynamiccl
