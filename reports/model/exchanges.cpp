#include "reports/model/exchanges.hpp"

#include <charconv>
#include <set>
#include <string_view>

#include "core/vocabulary/parsed_json.hpp"

namespace dynamiccl {
namespace {

std::string without_suffix(const std::string& text, std::string_view suffix) {
  return text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text;
}

}  // namespace

TrainedCell trained_cell(const CellFigure& figure) {
  TrainedCell cell;
  cell.settings = json_or_discarded(figure.cell_knobs);
  if (!cell.settings.is_object()) cell.settings = nlohmann::json::object();
  const auto text_of = [&](const char* name) {
    const auto found = cell.settings.find(name);
    if (found == cell.settings.end()) return std::string();
    return found->is_string() ? found->get<std::string>() : found->dump();
  };
  // An imported database may say anything: what is no number stays as it was.
  const auto number = [&](const char* name, std::int64_t otherwise) {
    const auto text = text_of(name);
    std::from_chars(text.data(), text.data() + text.size(), otherwise);
    return otherwise;
  };
  cell.model = text_of("model");
  cell.batch = number("batch", 0);
  const bool dedicated = figure.architecture == "ps" && text_of("placement") != "colocated";
  cell.workers = figure.ranks - (dedicated ? number("servers", 1) : 0);
  cell.settings.erase("model");
  cell.settings.erase("batch");
  return cell;
}

Synchronisation synchronisation_in(const nlohmann::json& settings) {
  const auto found = settings.find("synchronisation");
  if (found == settings.end() || !found->is_string()) return Synchronisation::bsp;
  // What a newer program may have written is taken for what waits least.
  return find_named<Synchronisation>(found->get<std::string>()).value_or(Synchronisation::asp);
}

bool trained_as_one(const CellFigure& figure) {
  const auto method = find_named<TrainingMethod>(figure.algorithm);
  if (!method) return true;
  const auto settings = trained_cell(figure).settings;
  return settings.value("compression", std::string("none")) == "none" &&
         !settings.contains("switch_to") &&
         agreement_of(*method, synchronisation_in(settings)) == WeightAgreement::every_step;
}

bool is_plain_sgd(const CellFigure& figure) {
  const auto settings = trained_cell(figure).settings;
  return trained_as_one(figure) && !settings.contains("lars") && !settings.contains("rate_warmup");
}

bool compares_by_time(const CellFigure& figure) {
  return figure.collective != "training" || trained_as_one(figure);
}

std::vector<CellFigure> as_exchanges(const std::vector<CellFigure>& figures) {
  std::vector<CellFigure> result;
  std::set<std::string> seen;
  for (CellFigure figure : figures) {
    const bool server = figure.architecture == "ps";
    const bool exchange = figure.collective == (server ? "push_pull" : "allreduce");
    const bool training = figure.collective == "training";
    if (exchange && figure.algorithm != "library") continue;
    if (!exchange && !training && !figure.collective.empty()) continue;
    if (exchange) figure.collective = "exchange";
    figure.algorithm = without_suffix(without_suffix(figure.algorithm, "-ps"), "-a2a");
    if (training) {
      figure.ranks = trained_cell(figure).workers;
    } else if (server) {
      --figure.ranks;  // rank 0 serves
    }
    if (seen.insert(key_without(figure, "")).second) result.push_back(std::move(figure));
  }
  return result;
}

}  // namespace dynamiccl
