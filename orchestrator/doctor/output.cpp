#include "orchestrator/doctor/output.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "profiles/detect/fact_access.hpp"
#include "profiles/detect/pair_places.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

/// A probe speaks no library: the last part of its regime's name says nothing.
std::string without_library(const std::string& regime) {
  return regime.substr(0, regime.rfind(" / "));
}

std::string names(const std::vector<Backend>& backends) {
  std::vector<std::string> words;
  words.reserve(backends.size());
  for (const Backend backend : backends) words.emplace_back(name_of(backend));
  return join(words, ", ");
}

/// What is printed of an environment without findings: only of what ran in it anything is known.
std::string all_clear(const Symptoms& symptoms) {
  if (!symptoms.any_ran()) return "  no backend ran in it: what slows it is not known\n";
  std::vector<Backend> ran;
  for (const auto& look : symptoms.looks)
    if (look.ran()) ran.push_back(look.backend);
  return ran.size() == symptoms.looks.size()
             ? "  nothing found that slows it\n"
             : fmt::format("  nothing found that slows {} in it\n", names(ran));
}

std::string transport_text(const BackendLook& look) {
  if (look.used.empty()) return "transport not known";
  if (look.asked.empty()) return fmt::format("transport {}", look.used);
  if (look.asked == look.used) return fmt::format("transport {}, as asked", look.used);
  return fmt::format("transport {}, asked was {}", look.used, look.asked);
}

std::string look_line(const BackendLook& look) {
  if (!look.impossible.empty())
    return fmt::format("  {}: cannot run: {}\n", name_of(look.backend), look.impossible);
  if (!look.failure.empty())
    return fmt::format("  {}: {}\n", name_of(look.backend),
                       look.unjudged.empty()
                           ? "its launch failed: " + look.failure.substr(0, look.failure.find('\n'))
                           : look.unjudged);
  const std::string refused =
      look.cma_refused > 0 ? fmt::format("; {} CMA calls refused", look.cma_refused) : "";
  const std::string known =
      look.used_evidence.empty() ? "" : fmt::format(" ({})", look.used_evidence);
  const std::string open = look.unjudged.empty() ? "" : "; " + look.unjudged;
  return fmt::format("  {}: {}{}{}; regime {}{}\n", name_of(look.backend), transport_text(look),
                     known, refused, look.regime.id, open);
}

std::string finding_text(const Finding& finding) {
  return fmt::format(
      "  {} {}: {}{}\n    seen: {}\n    fix: {}\n", finding.cause->doubtful ? "DOUBT" : "CAUSE",
      finding.cause->id, finding.cause->title,
      finding.symptom.backends.empty() ? "" : fmt::format(" ({})", names(finding.symptom.backends)),
      finding.symptom.evidence, finding.fix.flag);
}

std::string side_text(const ProofSide& side) {
  const std::string time =
      side.launches > 0 ? format_micros(Micros(side.median_us)) : std::string("no time");
  const std::string used = side.used.empty()         ? "not known"
                           : side.used == side.asked ? side.used + ", as asked"
                                                     : side.used + ", asked was " + side.asked;
  std::string launches = counted(side.launches, "launch");
  if (side.failed > 0) launches += fmt::format(", {} failed", side.failed);
  if (side.noisy > 0) launches += fmt::format(", {} disturbed by other work", side.noisy);
  return fmt::format("{} ({}; transport {})", time, launches, used);
}

json to_json(const BackendLook& look) {
  return {{"backend", name_of(look.backend)},
          {"impossible", look.impossible.empty() ? json() : json(look.impossible)},
          {"failure", look.failure.empty() ? json() : json(look.failure)},
          {"unjudged", look.unjudged.empty() ? json() : json(look.unjudged)},
          {"asked_transport", look.asked},
          {"used_transport", look.used.empty() ? json() : json(look.used)},
          {"evidence", look.used_evidence},
          {"cma_refused", look.cma_refused},
          {"page_faults", look.pages ? json{{"size_bytes", look.pages->size.count()},
                                            {"per_call", look.pages->faults},
                                            {"message_pages", look.pages->message_pages()},
                                            {"kept", look.pages->kept}}
                                     : json()},
          {"regime_id", look.regime.id},
          {"regime", look.regime.name}};
}

json to_json(const ProofSide& side) {
  return {{"environment", side.environment},
          {"median_us", side.launches > 0 ? json(side.median_us) : json()},
          {"launches", side.launches},
          {"failed", side.failed},
          {"noisy", side.noisy},
          {"timed_out", side.timed_out},
          {"reason", side.reason.empty() ? json() : json(side.reason)},
          {"asked_transport", side.asked},
          {"used_transport", side.used.empty() ? json() : json(side.used)}};
}

json to_json(const ProofResult& proof) {
  if (!proof.impossible.empty())
    return {{"cause", proof.cause}, {"impossible", proof.impossible}, {"verdict", nullptr}};
  const auto& interval = proof.ratio.interval;
  return {{"cause", proof.cause},
          {"verdict", name_of(proof.verdict)},
          {"ratio", proof.ratio.value > 0 ? json(proof.ratio.value) : json()},
          {"ratio_low", interval ? json(interval->low) : json()},
          {"ratio_high", interval ? json(interval->high) : json()},
          {"method", interval ? json(interval->method) : json()},
          {"run_id", proof.run_id},
          {"backend", name_of(proof.backend)},
          {"collective", name_of(proof.collective)},
          {"size_bytes", proof.size.count()},
          {"ranks", proof.ranks},
          {"before", to_json(proof.before)},
          {"after", to_json(proof.after)},
          {"note", proof.note.empty() ? json() : json(proof.note)}};
}

json to_json(const Finding& finding) {
  json backends = json::array();
  for (const Backend backend : finding.symptom.backends) backends.push_back(name_of(backend));
  return {
      {"cause", finding.cause->id},
      {"title", finding.cause->title},
      {"backends", backends},
      {"evidence", finding.symptom.evidence},
      {"fix", finding.fix.flag},
      {"fixed_profile", finding.fix.profile
                            ? shown_profile(parsed_json(dynamiccl::to_json(*finding.fix.profile)))
                            : json()}};
}

}  // namespace

std::string machine_line(const json& host) {
  std::vector<std::string> parts;
  if (const auto model = fact_text(host, "cpu", "model"); !model.empty()) parts.push_back(model);
  if (const auto cores = whole_number<int>(fact(host, "cpu", "cores")))
    parts.push_back(counted(*cores, "core"));
  if (const json& memory = fact(host, "memory", "total_bytes"); memory.is_number())
    parts.push_back(fmt::format("{:.0f} GiB", memory.get<double>() / (1U << 30)));
  if (const auto kernel = fact_text(host, "system", "kernel"); !kernel.empty())
    parts.push_back("Linux " + kernel);
  const int count = whole_number<int>(fact(host, "gpu", "usable")).value_or(0);
  parts.push_back(count == 0 ? "no GPU" : counted(count, "GPU"));
  return join(parts, ", ");
}

std::string to_text(const ProofResult& proof) {
  if (!proof.impossible.empty()) return fmt::format("    proof: none, {}\n", proof.impossible);
  std::string ratio;
  if (proof.ratio.value > 0 && proof.ratio.interval)
    ratio = fmt::format(", fixed / as it is {:.3f} [{:.3f}, {:.3f}]", proof.ratio.value,
                        proof.ratio.interval->low, proof.ratio.interval->high);
  else if (proof.ratio.value > 0)
    ratio = fmt::format(", fixed / as it is {:.3f}, no interval", proof.ratio.value);
  return fmt::format(
      "    proof: {}{}{}\n      {} {} {}, {} ranks, run {}\n      as it is: {}\n"
      "      fixed:   {}\n",
      name_of(proof.verdict), ratio, proof.note.empty() ? "" : "; " + proof.note,
      name_of(proof.backend), name_of(proof.collective), format_bytes(proof.size), proof.ranks,
      proof.run_id.substr(0, 8), side_text(proof.before), side_text(proof.after));
}

namespace {

/// Where pairs of ranks are, and what is declared besides.
std::string places_line(const json& regime) {
  if (!regime.is_object()) return "";
  std::string text;
  if (const auto pairs = pair_places_text(regime.value("pairs", json())); !pairs.empty())
    text = fmt::format("  pairs of ranks share: {}\n", pairs);
  const json declared = regime.value("declared", json::object());
  for (const auto& [what, value] : declared.items())
    text += fmt::format("  {}: {} (declared)\n", what, value.get<std::string>());
  return text;
}

}  // namespace

std::string to_text(const Diagnosis& diagnosis) {
  const Symptoms& symptoms = diagnosis.symptoms;
  std::string text = symptoms.profile.name + "\n";
  if (!symptoms.unavailable.empty())
    text += fmt::format("  cannot run here: {}\n", symptoms.unavailable);
  if (!symptoms.regime.name.empty())
    text += fmt::format("  regime: {}\n", without_library(symptoms.regime.name));
  text += places_line(symptoms.regime.json);
  for (const auto& look : symptoms.looks) text += look_line(look);
  if (diagnosis.gpu.path != GpuPath::none)
    text += fmt::format("  nccl, foretold: {} ({})\n", name_of(diagnosis.gpu.path),
                        diagnosis.gpu.summary);
  for (const auto& line : {folder_line(symptoms), imex_line(symptoms)})
    if (!line.empty()) text += "  " + line + "\n";
  for (const auto& problem : symptoms.problems) text += fmt::format("  PROBLEM {}\n", problem);
  for (std::size_t i = 0; i < diagnosis.findings.size(); ++i) {
    text += finding_text(diagnosis.findings[i]);
    if (i < diagnosis.proofs.size()) text += to_text(diagnosis.proofs[i]);
  }
  const bool failed = std::any_of(symptoms.looks.begin(), symptoms.looks.end(),
                                  [](const auto& look) { return !look.failure.empty(); });
  if (!failed && symptoms.unavailable.empty() && symptoms.problems.empty() &&
      diagnosis.findings.empty())
    text += all_clear(symptoms);
  return text;
}

json to_json(const GpuPrediction& prediction) {
  json obstacles = json::array();
  for (const auto& obstacle : prediction.obstacles)
    obstacles.push_back({{"what", obstacle.what},
                         {"why", obstacle.why},
                         {"flag", obstacle.flag.empty() ? json() : json(obstacle.flag)}});
  return {{"transport", name_of(prediction.path)},
          {"link", prediction.link.empty() ? json() : json(prediction.link)},
          {"summary", prediction.summary},
          {"obstacles", obstacles}};
}

std::string to_text(const EnvironmentProfile& profile, const GpuPrediction& prediction) {
  std::string text = fmt::format("{}\n  nccl, foretold: {} ({})\n", profile.name,
                                 name_of(prediction.path), prediction.summary);
  for (const auto& obstacle : prediction.obstacles)
    text += fmt::format("  {}: {}\n    fix: {}\n", obstacle.what, obstacle.why,
                        obstacle.flag.empty() ? "nothing in the profile" : obstacle.flag);
  return text;
}

json to_json(const Diagnosis& diagnosis) {
  const Symptoms& symptoms = diagnosis.symptoms;
  json looks = json::array();
  for (const auto& look : symptoms.looks) looks.push_back(to_json(look));
  json findings = json::array();
  for (const auto& finding : diagnosis.findings) findings.push_back(to_json(finding));
  json proofs = json::array();
  for (const auto& proof : diagnosis.proofs) proofs.push_back(to_json(proof));
  return {{"environment", symptoms.profile.name},
          {"unavailable", symptoms.unavailable.empty() ? json() : json(symptoms.unavailable)},
          {"regime", without_library(symptoms.regime.name)},
          {"derivation", symptoms.regime.json},
          {"backends", looks},
          {"gpu_prediction", to_json(diagnosis.gpu)},
          {"problems", symptoms.problems},
          {"causes", findings},
          {"proofs", proofs},
          {"facts", symptoms.facts}};
}

}  // namespace dynamiccl
