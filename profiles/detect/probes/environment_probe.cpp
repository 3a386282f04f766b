#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "profiles/detect/probes/environment_probe.hpp"
#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kMaxVariables = 512;
constexpr std::size_t kMaxValueBytes = 1024;

// What steers communication; nothing else of the environment is looked at.
constexpr std::array kPrefixes{"OMPI_",      "OPAL_",      "PRTE_",      "PMIX_MCA_", "MPICH_",
                               "MPIR_CVAR_", "HYDRA_",     "FI_",        "UCX_",      "UCC_",
                               "HCOLL_",     "SHARP_",     "NCCL_",      "GLOO_",     "RCCL_",
                               "OMP_",       "DYNAMICCL_", "SLURM_JOB_", "CUDA_MPS_", "MALLOC_"};
constexpr std::array kNames{"CUDA_VISIBLE_DEVICES",
                            "NVIDIA_VISIBLE_DEVICES",
                            "LD_LIBRARY_PATH",
                            "LD_PRELOAD",
                            "GLIBC_TUNABLES",
                            "PMI_RANK",
                            "PMI_SIZE",
                            "PMIX_RANK",
                            "SLURM_PROCID",
                            "SLURM_NTASKS",
                            "APPTAINER_CONTAINER",
                            "APPTAINER_NAME",
                            "SINGULARITY_CONTAINER",
                            "SINGULARITY_NAME",
                            "container"};
constexpr std::array kSecretWords{"TOKEN", "KEY", "SECRET", "PASS", "AUTH", "CRED"};

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

/// Short words that are secrets as a part of a name only: UCX_PW, DB_PWD.
constexpr std::array<std::string_view, 3> kSecretParts{"PW", "PWD", "PSWD"};

}  // namespace

bool speaks_of_secret(std::string_view name) {
  const std::string shouted = upper(name);
  std::size_t begin = 0;
  while (begin < shouted.size()) {
    const auto end = std::min(shouted.find_first_of("_-.", begin), shouted.size());
    const auto part = std::string_view(shouted).substr(begin, end - begin);
    if (std::find(kSecretParts.begin(), kSecretParts.end(), part) != kSecretParts.end())
      return true;
    begin = end + 1;
  }
  return std::any_of(kSecretWords.begin(), kSecretWords.end(),
                     [&](const char* word) { return shouted.find(word) != std::string::npos; });
}

namespace {

/// From here on a "user" may be an access token, which Git's hosts take in its place.
constexpr std::size_t kTokenLetters = 20;

/// "--password hush", "--api-key=hush": options that are nothing but a secret's name.
bool is_secret_option(std::string_view argument) {
  constexpr std::array<std::string_view, 9> kOptions{
      "--password", "--passwd",     "--passphrase", "--token",     "--secret",
      "--api-key",  "--auth-token", "--access-key", "--credential"};
  return std::find(kOptions.begin(), kOptions.end(), argument) != kOptions.end();
}

bool is_variable_name(std::string_view text) {
  const auto letter = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) == 0 &&
         std::all_of(text.begin(), text.end(), letter);
}

/// What stands before "@" in the first URL from `start` on that has such; its place is in `text`.
std::optional<std::string_view> next_user_info(std::string_view text, std::size_t start) {
  for (std::size_t at = text.find("://", start); at != std::string_view::npos;
       at = text.find("://", at + 3)) {
    const std::string_view rest = text.substr(at + 3);
    const std::string_view authority = rest.substr(0, rest.find_first_of("/?# \t,;"));
    const std::size_t user_end = authority.rfind('@');
    if (user_end != std::string_view::npos) return authority.substr(0, user_end);
  }
  return std::nullopt;
}

std::size_t place_of(std::string_view part, std::string_view text) {
  return static_cast<std::size_t>(part.data() - text.data());
}

/// "tcp://user:word@host" as "tcp://<redacted>@host".
std::string without_user_info(std::string value) {
  for (auto info = next_user_info(value, 0); info;) {
    const std::size_t place = place_of(*info, value);
    value.replace(place, info->size(), kRedacted);
    info = next_user_info(value, place);
  }
  return value;
}

}  // namespace

bool carries_password(std::string_view text) {
  for (auto info = next_user_info(text, 0); info;
       info = next_user_info(text, place_of(*info, text)))
    if (info->find(':') < info->size() - 1 || info->size() >= kTokenLetters) return true;
  return false;
}

bool is_recorded_variable(std::string_view name) {
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](const char* prefix) { return name.starts_with(prefix); }) ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::string recorded_value(std::string_view name, std::string_view value) {
  if (speaks_of_secret(name)) return std::string(kRedacted);
  return clean_text(without_user_info(std::string(value)), kMaxValueBytes);
}

std::vector<std::string> recorded_command(const std::vector<std::string>& argv) {
  constexpr std::array<std::string_view, 4> kNameFollows{"-genv", "-env", "--mca", "-mca"};
  std::vector<std::string> recorded;
  recorded.reserve(argv.size());
  for (std::size_t i = 0; i < argv.size(); ++i) {
    std::string argument = without_user_info(argv[i]);
    std::size_t start = 0;
    // --env=NAME=VALUE: the name stands behind the option's own sign.
    if (argument.starts_with("--") && argument.find('=') != std::string::npos)
      start = argument.find('=') + 1;
    // -xNAME=VALUE and -eNAME=VALUE
    if (argument.size() > 2 && (argument.starts_with("-x") || argument.starts_with("-e")) &&
        std::isupper(static_cast<unsigned char>(argument[2])) != 0)
      start = 2;
    const std::size_t equals = argument.find('=', start);
    const auto name = std::string_view(argument).substr(start, equals - start);
    const bool named_before = i >= 2 && std::find(kNameFollows.begin(), kNameFollows.end(),
                                                  argv[i - 2]) != kNameFollows.end();
    const bool option_before = i >= 1 && is_secret_option(argv[i - 1]);
    const bool own_option = start > 0 && is_secret_option(argument.substr(0, start - 1));
    if (option_before || (named_before && speaks_of_secret(argv[i - 1])))
      argument = kRedacted;
    else if (own_option)
      argument.replace(start, std::string::npos, kRedacted);
    else if (equals != std::string::npos && is_variable_name(name) && speaks_of_secret(name))
      argument.replace(equals + 1, std::string::npos, kRedacted);
    recorded.push_back(std::move(argument));
  }
  return recorded;
}

nlohmann::json recorded_variables(const std::vector<std::pair<std::string, std::string>>& all) {
  nlohmann::json kept = nlohmann::json::object();
  for (const auto& [name, value] : all)
    if (kept.size() < kMaxVariables && is_recorded_variable(name))
      kept[clean_text(name, 256)] = recorded_value(name, value);
  return kept;
}

nlohmann::json probe_environment(const ProbeContext& context) {
  Section section;
  const auto all = context.live.environment();
  if (all)
    section.set("variables", recorded_variables(*all));
  else
    section.unknown("variables", all.reason);
  return std::move(section).take();
}

}  // namespace dynamiccl
