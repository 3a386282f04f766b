#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <optional>

#include "profiles/detect/probes/environment_probe.hpp"
#include "profiles/detect/probes/known_variables.hpp"
#include "profiles/detect/probes/probe.hpp"
#include "profiles/detect/probes/settings_files.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kMaxRecordedVariables = 512;
constexpr std::size_t kMaxValueBytes = 1024;

// How names of settings of communication begin: those that nobody knows are recorded without their
// values, and nothing else of the environment is looked at.
constexpr std::array kPrefixes{"OMPI_",      "OPAL_",      "PRTE_",      "PMIX_MCA_", "MPICH_",
                               "MPIR_CVAR_", "HYDRA_",     "FI_",        "UCX_",      "UCC_",
                               "HCOLL_",     "SHARP_",     "NCCL_",      "GLOO_",     "RCCL_",
                               "OMP_",       "DYNAMICCL_", "SLURM_JOB_", "CUDA_MPS_", "MALLOC_"};
constexpr std::array kSecretWords{"TOKEN", "KEY",    "SECRET", "PASS",    "AUTH",
                                  "CRED",  "COOKIE", "BEARER", "WEBHOOK", "SIGNATURE"};

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

/// Short words that are secrets as a part of a name only: db_pw, my-pwd.
constexpr std::array<std::string_view, 6> kSecretParts{"PW", "PWD", "PSWD", "JWT", "OTP", "PAT"};

/// True for names of options and of settings in a command whose values are secrets, whatever their
/// case: what is no variable has no list of known names.
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
         is_known_variable(name);
}

std::string recorded_value(std::string_view name, std::string_view value) {
  if (!is_known_variable(name)) return std::string(kRedacted);
  return clean_text(without_user_info(std::string(value)), kMaxValueBytes);
}

namespace {

/// As the environment's variables are written: what else stands before "=" may be anything.
bool is_shouted(std::string_view name) { return upper(name) == name; }

/// "NAME=VALUE", or several with commas between them, with the values that may be recorded.
/// @param variables they are variables by their place: small letters too
std::string recorded_assignments(const std::string& text, bool variables) {
  std::string out;
  bool hidden = false;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const bool begins = equals != std::string::npos && is_variable_name(name);
    const bool may_stand = !begins && hidden               ? false
                           : !begins                       ? true
                           : variables || is_shouted(name) ? is_known_variable(name)
                                                           : !speaks_of_secret(name);
    if (begins) hidden = !may_stand;
    // What follows a comma is still the value that is hidden.
    if (may_stand || begins) out += at == 0 ? "" : ",";
    if (may_stand)
      out += part;
    else if (begins)
      out += name + "=" + std::string(kRedacted);
    at = end + 1;
  }
  return out;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Whether the next two words are a parameter of Open MPI and its value.
bool names_parameter(std::string_view option) {
  return is_one_of(option, {"--mca", "-mca", "--gmca", "-gmca", "--prtemca", "--pmixmca"});
}

/// The value of a variable or parameter whose name is the word before it.
std::string recorded_named(const std::string& option, const std::string& name,
                           const std::string& value) {
  return is_known_variable(names_parameter(option) ? "OMPI_MCA_" + name : name)
             ? value
             : std::string(kRedacted);
}

/// Whether a word is several to a shell, as in `sh -c 'cd x && NAME=VALUE program'`.
bool is_script(std::string_view word) {
  return word.find_first_of(" \t\n;&|(`") != std::string_view::npos;
}

/// Where the value of an assignment in a script ends: with its quotes, else its word.
std::size_t end_of_value(std::string_view script, std::size_t begin) {
  if (begin == script.size()) return begin;
  const char first = script[begin];
  const bool quoted = first == '"' || first == '\'';
  const auto end =
      quoted ? script.find(first, begin + 1) : script.find_first_of(" \t\n;&|()`\"'", begin);
  return end == std::string_view::npos ? script.size() : end + (quoted ? 1 : 0);
}

/// A script without the values of assignments that may not be recorded.
std::string without_hidden_values(const std::string& script) {
  const auto in_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  std::string out;
  std::size_t name_begin = 0;
  for (std::size_t at = 0; at < script.size(); ++at) {
    if (in_name(static_cast<unsigned char>(script[at]))) continue;
    const auto name = script.substr(name_begin, at - name_begin);
    out += name + script[at];
    name_begin = at + 1;
    if (script[at] != '=' || !is_variable_name(name) ||
        (is_shouted(name) ? is_known_variable(name) : !speaks_of_secret(name)))
      continue;
    out += kRedacted;
    name_begin = end_of_value(script, at + 1);
    at = name_begin - 1;
  }
  return out + script.substr(std::min(name_begin, script.size()));
}

/// A word that is several to a shell: what stands there is a command of its own.
std::string recorded_script(const std::string& word) {
  if (!is_script(word)) return word;
  const auto kept = without_hidden_values(word);
  return kept.find(' ') == std::string::npos ? kept : join(recorded_command(split(kept, ' ')), " ");
}

}  // namespace

std::vector<std::string> recorded_command(const std::vector<std::string>& argv) {
  std::vector<std::string> recorded;
  recorded.reserve(argv.size());
  for (std::size_t i = 0; i < argv.size(); ++i) {
    const std::string argument = without_user_info(argv[i]);
    const std::string before = i >= 1 ? argv[i - 1] : "";
    const std::string option = i >= 2 ? argv[i - 2] : "";
    std::size_t start = 0;
    // --env=NAME=VALUE: the name stands behind the option's own sign.
    if (argument.starts_with("--") && argument.find('=') != std::string::npos)
      start = argument.find('=') + 1;
    // -xNAME=VALUE and -eNAME=VALUE
    if (argument.size() > 2 && (argument.starts_with("-x") || argument.starts_with("-e")) &&
        std::isupper(static_cast<unsigned char>(argument[2])) != 0)
      start = 2;
    const std::string own = argument.substr(0, start);
    if (is_secret_option(before))
      recorded.emplace_back(kRedacted);
    else if (!own.empty() && is_secret_option(own.substr(0, own.size() - 1)))
      recorded.push_back(own + std::string(kRedacted));
    else if (is_one_of(option, {"-genv", "-env"}) || names_parameter(option))
      recorded.push_back(recorded_named(option, before, argument));
    else
      recorded.push_back(recorded_script(
          own + recorded_assignments(
                    argument.substr(start),
                    is_one_of(before, {"-x", "-e", "--env", "-genv", "--export"}) ||
                        is_one_of(own, {"--env=", "--export=", "--container-env=", "-x", "-e"}))));
  }
  return recorded;
}

nlohmann::json recorded_variables(const std::vector<std::pair<std::string, std::string>>& all) {
  nlohmann::json kept = nlohmann::json::object();
  for (const auto& [name, value] : all)
    if (kept.size() < kMaxRecordedVariables && is_recorded_variable(name))
      kept[clean_text(name, 256)] = recorded_value(name, value);
  return kept;
}

namespace {

/// What names a folder in which a library keeps memory that ranks share.
constexpr std::array<std::string_view, 4> kFolderSettings{
    "OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory",
    "OMPI_MCA_orte_tmpdir_base", "UCX_POSIX_DIR"};

/// Folders that settings name and that are not there, as they are named.
nlohmann::json absent_folders(const ProbeRoot& root,
                              const std::vector<std::pair<std::string, std::string>>& variables,
                              const std::map<std::string, FiledSetting>& filed) {
  nlohmann::json absent = nlohmann::json::array();
  const auto look = [&](std::string_view name, const std::string& folder) {
    const bool names_one =
        std::find(kFolderSettings.begin(), kFolderSettings.end(), name) != kFolderSettings.end();
    if (names_one && folder.starts_with('/') && !root.exists(folder))
      absent.push_back(recorded_value(name, folder));
  };
  for (const auto& [name, value] : variables) look(name, value);
  for (const auto& [name, setting] : filed) look(name, setting.value);
  return absent;
}

}  // namespace

nlohmann::json probe_environment(const ProbeContext& context) {
  Section section;
  const auto all = context.live.environment();
  if (all)
    section.set("variables", recorded_variables(*all));
  else
    section.unknown("variables", all.reason);
  const auto known = all ? *all : std::vector<std::pair<std::string, std::string>>();
  const auto filed = filed_settings(context.root, known);
  nlohmann::json files = nlohmann::json::object();
  for (const auto& [name, setting] : filed)
    if (is_recorded_variable(name))
      files[clean_text(name, 256)] = {{"value", recorded_value(name, setting.value)},
                                      {"file", clean_text(setting.file)}};
  section.set("files", files);
  section.set("absent_folders", absent_folders(context.root, known, filed));
  return std::move(section).take();
}

}  // namespace dynamiccl
