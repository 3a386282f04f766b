#include "tuner/agents/policy_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/statistics/fast_random.hpp"
#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/others_files.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "tuner/agents/policy_features.hpp"
#include "tuner/state/features.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "policy files are little-endian");

constexpr std::string_view kMagic = "DYNAMICCL-POLICY ";
// A network of 64 hidden units has 130 KB; anything much larger is damage.
constexpr int kLargestSide = 4096;

std::string blob_of(const NetworkShape& shape, const Weights& weights) {
  std::string blob;
  for (const WeightShape& expected : weight_shapes(shape)) {
    const Eigen::MatrixXf& matrix = weights.at(expected.name);
    blob.append(reinterpret_cast<const char*>(matrix.data()),
                static_cast<std::size_t>(matrix.size()) * sizeof(float));
  }
  return blob;
}

[[noreturn]] void damaged(const std::string& path, const std::string& why) {
  throw Error(ErrorKind::data,
              path + ": " + why + "; train the policy anew with `dynamiccl train`");
}

int side(const json& object, const char* key, const std::string& path) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number())
    damaged(path, "no whole number " + std::string(key));
  const auto value = whole_number<std::int64_t>(*found);
  if (!value || *value < 1 || *value > kLargestSide)
    damaged(path, fmt::format("{} is {}", key, found->dump()));
  return static_cast<int>(*value);
}

/// The header line of a file whose blob has the digest that the header names.
json checked_header(const std::string& line, const std::string& blob, const std::string& path) {
  json header = json_or_discarded(line);
  if (!header.is_object() || !header.contains("shape") || !header["shape"].is_object() ||
      !header.contains("sha256") || !header["sha256"].is_string() || !header.contains("features") ||
      !header["features"].is_string())
    damaged(path, "has a damaged header");
  if (sha256_hex(blob) != header["sha256"].get<std::string>())
    damaged(path, "its weights do not have the digest in its header");
  return header;
}

Policy parse(const std::string& text, const std::string& path) {
  const std::size_t first = text.find('\n');
  const std::size_t second = first == std::string::npos ? first : text.find('\n', first + 1);
  if (!text.starts_with(kMagic) || second == std::string::npos) damaged(path, "is no policy file");
  const std::string version = text.substr(kMagic.size(), first - kMagic.size());
  if (version != std::to_string(kPolicyFileVersion))
    damaged(path,
            fmt::format("has version {}, this program reads {}", version, kPolicyFileVersion));
  const std::string blob = text.substr(second + 1);
  const json header = checked_header(text.substr(first + 1, second - first - 1), blob, path);
  Policy policy;
  const json& shape = header["shape"];
  policy.shape = {side(shape, "input", path), side(shape, "candidate", path),
                  side(shape, "hidden", path), side(shape, "scorer", path)};
  policy.features = header["features"].get<std::string>();
  if (header.contains("provenance")) policy.provenance = header["provenance"];
  std::size_t offset = 0;
  for (const WeightShape& expected : weight_shapes(policy.shape)) {
    const std::size_t bytes = static_cast<std::size_t>(expected.rows) *
                              static_cast<std::size_t>(expected.columns) * sizeof(float);
    if (bytes > blob.size() - offset) damaged(path, "ends within weight " + expected.name);
    Eigen::MatrixXf matrix(expected.rows, expected.columns);
    std::memcpy(matrix.data(), blob.data() + offset, bytes);
    policy.weights.emplace(expected.name, std::move(matrix));
    offset += bytes;
  }
  if (offset != blob.size()) damaged(path, "has more weights than its shape needs");
  return policy;
}

}  // namespace

std::string Policy::version() const { return stable_id(blob_of(shape, weights)); }

namespace {

/// What is not kept has no weight, and as it is not seen in training either it never gets one.
void drop_features(Policy& policy, int columns) {
  std::vector<const Feature*> seen;
  for (const Feature& feature : feature_table())
    if (feature.source.in_policy) seen.push_back(&feature);
  const std::vector<const Feature*> kept = keep_features(std::move(seen), columns);
  Eigen::MatrixXf& weights = policy.weights.at("in_w");
  json names = json::array();
  Eigen::Index column = 0;
  for (const Feature& feature : feature_table()) {
    if (std::find(kept.begin(), kept.end(), &feature) == kept.end())
      weights.middleCols(column, feature.width).setZero();
    else
      names.push_back(feature.name);
    column += feature.width;
  }
  policy.provenance["sees"] = std::move(names);
}

}  // namespace

Policy untrained_policy(std::uint64_t seed, int columns) {
  Policy policy;
  policy.shape = {state_width() + kFeedbackFeatures, kCandidateFeatures, 64, 32};
  policy.features = feature_digest();
  policy.provenance = {{"seed", seed}, {"steps", 0}};
  FastRandom random(seed);
  for (const WeightShape& shape : weight_shapes(policy.shape)) {
    const bool bias = shape.columns == 1;
    const bool last = shape.rows == 1;
    const double scale = bias ? 0 : (last ? 0.1 : 1) / std::sqrt(shape.columns);
    Eigen::MatrixXf matrix(shape.rows, shape.columns);
    for (Eigen::Index i = 0; i < matrix.size(); ++i)
      matrix.data()[i] = static_cast<float>(scale * random.normal());
    policy.weights.emplace(shape.name, std::move(matrix));
  }
  for (const char* skip : {"implementation_skip", "resource_skip"}) {
    Eigen::MatrixXf& weights = policy.weights.at(skip);
    weights.setZero();
    weights(0, 1) = -1;  // optimistic mean
    weights(0, 3) = 3;   // expected gain
  }
  if (columns > 0) drop_features(policy, columns);
  return policy;
}

std::string shipped_file(const std::string& variable, const std::string& below_tuner) {
  namespace fs = std::filesystem;
  const char* named = variable.empty() ? nullptr : std::getenv(variable.c_str());
  if (named != nullptr && *named != '\0') return named;
  std::error_code problem;
  fs::path folder = fs::read_symlink("/proc/self/exe", problem).parent_path();
  constexpr int kLevels = 5;
  for (int level = 0; !problem && level < kLevels; ++level, folder = folder.parent_path()) {
    for (const fs::path& root : {folder, folder / "share" / "dynamiccl"}) {
      const fs::path file = root / "tuner" / below_tuner;
      if (fs::exists(file, problem)) return file.string();
    }
  }
  return "";
}

std::string shipped_policy() {
  return shipped_file("DYNAMICCL_POLICY", "policy/pretrained.policy");
}

std::string policy_or_throw(const std::string& path) {
  std::string file = path.empty() ? shipped_policy() : path;
  if (file.empty())
    throw Error(ErrorKind::input,
                "the ppo agent needs its trained policy and none came with this program: name one "
                "with --policy or DYNAMICCL_POLICY, or take --agent bandit (--call-agent for a job "
                "of your own)");
  return file;
}

void write_policy(const Policy& policy, const std::string& path) {
  const std::string blob = blob_of(policy.shape, policy.weights);
  json tensors = json::array();
  for (const WeightShape& shape : weight_shapes(policy.shape))
    tensors.push_back({{"name", shape.name}, {"rows", shape.rows}, {"columns", shape.columns}});
  const json header{{"shape",
                     {{"input", policy.shape.input},
                      {"candidate", policy.shape.candidate},
                      {"hidden", policy.shape.hidden},
                      {"scorer", policy.shape.scorer}}},
                    {"features", policy.features},
                    {"tensors", tensors},
                    {"provenance", policy.provenance},
                    {"sha256", sha256_hex(blob)}};
  const std::string temporary = fmt::format("{}.{}.new", path, getpid());
  {
    std::ofstream file;
    if (begin_draft(temporary)) file.open(temporary, std::ios::binary);
    file << kMagic << kPolicyFileVersion << '\n' << header.dump() << '\n' << blob;
    file.flush();
    if (!file) {
      std::remove(temporary.c_str());
      throw Error(ErrorKind::environment,
                  path + ": the policy cannot be written; is the folder there and not full?");
    }
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) {
    std::remove(temporary.c_str());
    throw Error(ErrorKind::environment,
                path + ": the policy cannot be put in place: " + error.message());
  }
}

Policy read_policy(const std::string& path) {
  require_whole_file(path);
  const auto text = read_file(path);
  if (!text)
    throw Error(
        ErrorKind::input,
        path + ": the policy cannot be read; is the name right? `dynamiccl train` makes one");
  Policy policy = parse(*text, path);
  if (policy.features != feature_digest() ||
      policy.shape.input != state_width() + kFeedbackFeatures ||
      policy.shape.candidate != kCandidateFeatures)
    damaged(path, "was trained on another state vector");
  static_cast<void>(policy.network());
  return policy;
}

}  // namespace dynamiccl
