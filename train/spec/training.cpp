#include "train/spec/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/splitmix64.hpp"

namespace dynamiccl {
namespace {

constexpr std::uint64_t kVocabulary = 30522;
constexpr std::uint64_t kFloatBytes = 4;
constexpr const char* kAuto = "auto";
constexpr const char* kAny = "any";
constexpr const char* kNone = "none";
constexpr int kMostRank = 64;
constexpr int kMostThreads = 4096;
constexpr int kMostBatch = 1 << 20;
// What waits in a machine's stead still ends within a launch.
constexpr double kMostPaceMs = 60'000;
constexpr double kMostSlowFactor = 1000;

Bytes or_usual(Bytes said, std::uint64_t usual) { return said.count() > 0 ? said : Bytes(usual); }

ModelFacts image_model(std::uint64_t parameters, double macs, std::uint64_t side, int classes) {
  return {parameters, macs, 3 * side * side * kFloatBytes, false, classes};
}

/// Encoder with a tied masked-language head: embeddings, `layers` blocks of 12 h^2 weights, and the
/// head's transform and bias.
ModelFacts bert(std::uint64_t layers, std::uint64_t h, std::uint64_t s) {
  const std::uint64_t embeddings = (kVocabulary + kPositions + 2) * h + 2 * h;
  const std::uint64_t block = 12 * h * h + 13 * h;
  const std::uint64_t head = h * h + h + 2 * h + kVocabulary;
  const double tokens = static_cast<double>(s);
  const double width = static_cast<double>(h);
  const double macs =
      static_cast<double>(layers) * (12 * tokens * width * width + 2 * tokens * tokens * width) +
      tokens * width * (width + static_cast<double>(kVocabulary));
  return {embeddings + layers * block + head, macs, s * 8, true, static_cast<int>(kVocabulary)};
}

[[noreturn]] void refuse(const std::string& knob, const std::string& value, const char* expected) {
  throw Error(ErrorKind::input,
              fmt::format("training: {} = \"{}\": expected {}", knob, value, expected));
}

constexpr int kUnbounded = std::numeric_limits<int>::max();
constexpr double kAnyMost = std::numeric_limits<double>::max();

int whole(const std::string& knob, const std::string& value, int least, int most) {
  int number = 0;
  const auto* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error == std::errc() && stop == end && number >= least && number <= most) return number;
  const bool too_large = error == std::errc::result_out_of_range && value.front() != '-';
  const std::string range = fmt::format("{}..{}", least, most);
  const std::string from = fmt::format("from {} on", least);
  refuse(knob, value,
         ("a whole number " + (most < kUnbounded || too_large ? range : from)).c_str());
}

std::optional<double> finite_number(const std::string& value) {
  double number = 0;
  const auto* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  const bool finite = error == std::errc() && stop == end && std::isfinite(number);
  return finite ? std::optional(number) : std::nullopt;
}

/// Refused with both ends, whatever is wrong.
double above_zero(const char* knob, const std::string& value, const char* expected, double most) {
  if (const auto n = finite_number(value); n && *n > 0 && *n <= most) return *n;
  refuse(knob, value, expected);
}

/// A finite number: of what is none, nothing could be computed or written down.
double real(const std::string& knob, const std::string& value, double least = 0,
            double most = kAnyMost) {
  if (const auto number = finite_number(value); number && *number >= least && *number <= most)
    return *number;
  refuse(knob, value,
         (most < kAnyMost ? fmt::format("a number from {} to {}", least, most)
                          : fmt::format("a finite number from {} on", least))
             .c_str());
}

/// One row per knob: how it is read and written.
struct KnobRow {
  std::string name;
  std::string about;
  std::function<void(TrainingSpec&, const std::string&)> read;
  std::function<std::string(const TrainingSpec&)> write;
};

KnobRow number_row(const char* name, const char* about, int TrainingSpec::*member, int least,
                   int most = kUnbounded) {
  return {
      name, about,
      [=](TrainingSpec& spec, const std::string& v) { spec.*member = whole(name, v, least, most); },
      [=](const TrainingSpec& spec) { return std::to_string(spec.*member); }};
}

KnobRow size_row(const char* name, const char* about, Bytes TrainingSpec::*member) {
  return {name, about,
          [=](TrainingSpec& spec, const std::string& v) {
            spec.*member = v == kAuto ? Bytes(0) : parse_bytes(v);
            if (v != kAuto && (spec.*member).count() < kFloatBytes)
              refuse(name, v, "\"auto\" or at least 4 bytes");
          },
          [=](const TrainingSpec& spec) {
            const auto bytes = (spec.*member).count();
            return bytes == 0 ? std::string(kAuto) : std::to_string(bytes);
          }};
}

KnobRow real_row(const char* name, const char* about, double TrainingSpec::*member,
                 double least = 0, double most = kAnyMost) {
  return {
      name, about,
      [=](TrainingSpec& spec, const std::string& v) { spec.*member = real(name, v, least, most); },
      [=](const TrainingSpec& spec) { return fmt::format("{}", spec.*member); }};
}

const std::vector<KnobRow>& knob_rows() {
  static const std::vector<KnobRow> rows{
      {"model", "what is trained",
       [](TrainingSpec& s, const std::string& v) { s.model = parse_named<TrainingModel>(v); },
       [](const TrainingSpec& s) { return std::string(name_of(s.model)); }},
      number_row("batch", "samples per worker and step", &TrainingSpec::batch, 1, kMostBatch),
      number_row("sequence", "tokens per sample of a transformer", &TrainingSpec::sequence, 1,
                 kPositions),
      {"data",
       "generated, generated-hard (faint patterns, a quarter of the labels wrong), or a folder "
       "with CIFAR-10 binary or IDX files",
       [](TrainingSpec& s, const std::string& v) { s.data = v; },
       [](const TrainingSpec& s) { return s.data; }},
      real_row("learning_rate", "of SGD", &TrainingSpec::learning_rate),
      {"momentum", "of SGD",
       [](TrainingSpec& s, const std::string& v) {
         s.momentum = real("momentum", v);
         if (s.momentum >= 1) refuse("momentum", v, "a number from 0, below 1");
       },
       [](const TrainingSpec& s) { return fmt::format("{}", s.momentum); }},
      real_row("lars",
               "LARS' trust coefficient: part of a matrix' norm that a step is long, times the "
               "learning rate; 0: none",
               &TrainingSpec::lars),
      number_row("rate_warmup", "steps in which the learning rate rises to its value, linearly",
                 &TrainingSpec::rate_warmup, 0),
      size_row("partition", "largest part of ByteScheduler and of servers",
               &TrainingSpec::partition),
      size_row("credit", "bytes under way, ByteScheduler", &TrainingSpec::credit),
      size_row("bucket", "DeAR's groups, DDP's buckets after its first", &TrainingSpec::bucket),
      {"merge", "how MG-WFBP finds its groups",
       [](TrainingSpec& s, const std::string& v) { s.merge = parse_named<MergeRule>(v); },
       [](const TrainingSpec& s) { return std::string(name_of(s.merge)); }},
      {"optimizer", "who applies the gradients; server: methods with servers only",
       [](TrainingSpec& s, const std::string& v) { s.optimizer = parse_named<OptimizerPlace>(v); },
       [](const TrainingSpec& s) { return std::string(name_of(s.optimizer)); }},
      {"packing",
       "how gradients travel; exponents: lossless, host memory, own methods without servers",
       [](TrainingSpec& s, const std::string& v) { s.packing = parse_named<Packing>(v); },
       [](const TrainingSpec& s) { return std::string(name_of(s.packing)); }},
      {"precision", "what a GPU computes products in; tf32 and bf16 on GPUs only",
       [](TrainingSpec& s, const std::string& v) { s.precision = parse_named<Precision>(v); },
       [](const TrainingSpec& s) { return std::string(name_of(s.precision)); }},
      {"servers", "methods with servers; 0: one dedicated, or all ranks colocated",
       [](TrainingSpec& s, const std::string& v) {
         s.servers = whole("servers", v, 0, kUnbounded);
       },
       [](const TrainingSpec& s) {
         // One dedicated server is what nothing needs to be said for.
         const bool usual = s.placement == ServerPlacement::dedicated && s.servers == 1;
         return std::to_string(usual ? 0 : s.servers);
       }},
      {"placement", "where servers are: ranks of their own, or the first workers",
       [](TrainingSpec& s, const std::string& v) { s.placement = parse_named<ServerPlacement>(v); },
       [](const TrainingSpec& s) { return std::string(name_of(s.placement)); }},
      {"server_sums",
       "dedicated servers over NCCL: who sums: their processors (host), their GPUs, or a chief, "
       "the "
       "first worker, for a server without one",
       [](TrainingSpec& s, const std::string& v) { s.server_sums = parse_named<ServerSums>(v); },
       [](const TrainingSpec& s) { return std::string(name_of(s.server_sums)); }},
      number_row("threads", "of computation per rank; 0: cores / ranks", &TrainingSpec::threads, 0,
                 kMostThreads),
      number_row("oracle",
                 "steps compared with one process that computes every worker; 0: ranks are "
                 "compared with each other",
                 &TrainingSpec::oracle, 0),
      number_row("samples", "of one pass over generated data", &TrainingSpec::samples, 1),
      number_row("evaluate", "held-out samples for the accuracy; 0: none, with epochs all",
                 &TrainingSpec::evaluate, 0),
      number_row("steps", "exactly so many measured; 0: as the protocol says", &TrainingSpec::steps,
                 0),
      number_row(
          "epochs",
          "passes over the data at most, the accuracy taken after each; 0: steps are counted",
          &TrainingSpec::epochs, 0),
      real_row("target", "accuracy, 0 to 1, at which epochs end; 0: all of them",
               &TrainingSpec::target, 0, 1),
      number_row("looks", "times in an epoch that the accuracy is taken, in equal parts of it",
                 &TrainingSpec::looks, 1),
      {"synchronisation", "when workers wait for each other",
       [](TrainingSpec& s, const std::string& v) {
         s.synchronisation = parse_named<Synchronisation>(v);
       },
       [](const TrainingSpec& s) { return std::string(name_of(s.synchronisation)); }},
      number_row("staleness", "ssp: steps that a worker may be ahead of the slowest",
                 &TrainingSpec::staleness, 0),
      number_row("backups", "backup: workers of each step that are not waited for",
                 &TrainingSpec::backups, 1),
      number_row("local_steps",
                 "local, post-local, adacomm (in the beginning), easgd: steps between two meetings",
                 &TrainingSpec::local_steps, 1),
      number_row("local_after",
                 "post-local: steps of plain SGD before local ones begin, without epochs the "
                 "warm-up's among them",
                 &TrainingSpec::local_after, 0),
      {"topology", "d-psgd: who averages with whom",
       [](TrainingSpec& s, const std::string& v) { s.topology = parse_named<PeerGraph>(v); },
       [](const TrainingSpec& s) { return std::string(name_of(s.topology)); }},
      {"slow_momentum", "local, post-local: momentum of the averages themselves (SlowMo); 0: none",
       [](TrainingSpec& s, const std::string& v) {
         s.slow_momentum = real("slow_momentum", v);
         if (s.slow_momentum >= 1) refuse("slow_momentum", v, "a number from 0, below 1");
       },
       [](const TrainingSpec& s) { return fmt::format("{}", s.slow_momentum); }},
      {"shares",
       "local: the workers' parts of the data, by which averages are weighted: equal, or linear "
       "(one "
       "part, two, three, ...)",
       [](TrainingSpec& s, const std::string& v) { s.shares = parse_named<DataShares>(v); },
       [](const TrainingSpec& s) { return std::string(name_of(s.shares)); }},
      number_row("participants",
                 "local: workers that take part in a round, drawn anew for each; 0: all",
                 &TrainingSpec::participants, 0),
      real_row(
          "lag_threshold",
          "lag: squared change of a gradient up to which it is not sent, over the mean squared "
          "movement of the weights; 0: all are sent",
          &TrainingSpec::lag_threshold),
      number_row("adapt_every", "adacomm: steps after which the loss sets how long rounds are",
                 &TrainingSpec::adapt_every, 1),
      {"gossip_pull",
       "d-psgd with compression: part of the way to the neighbours' known weights that a worker "
       "goes in a round (CHOCO-SGD)",
       [](TrainingSpec& s, const std::string& v) {
         s.gossip_pull = above_zero("gossip_pull", v, "a number above 0, up to 1", 1);
       },
       [](const TrainingSpec& s) { return fmt::format("{}", s.gossip_pull); }},
      {"elastic", "easgd: part of the way that the centre goes to the workers' mean in a round",
       [](TrainingSpec& s, const std::string& v) {
         s.elastic = above_zero("elastic", v, "a number above 0, up to 1", 1);
       },
       [](const TrainingSpec& s) { return fmt::format("{}", s.elastic); }},
      number_row(
          "group_size",
          "ssp, asp, staggered: workers that all-reduce among themselves and whose first one "
          "speaks with the server; 1: no groups",
          &TrainingSpec::group_size, 1),
      {"switch_to", "how workers wait from the end of epoch switch_after on; none: as before",
       [](TrainingSpec& s, const std::string& v) {
         s.switch_to.reset();
         if (v != kNone) s.switch_to = parse_named<Synchronisation>(v);
       },
       [](const TrainingSpec& s) {
         return std::string(s.switch_to ? name_of(*s.switch_to) : kNone);
       }},
      number_row("switch_after", "epochs before switch_to", &TrainingSpec::switch_after, 1),
      {"compression", "codec of the gradients that travel; all but none lose something",
       [](TrainingSpec& s, const std::string& v) { s.compression = parse_named<Codec>(v); },
       [](const TrainingSpec& s) { return std::string(name_of(s.compression)); }},
      {"error_feedback",
       "whether workers add to a gradient what encoding took from the last ones; auto: as is usual "
       "for the codec",
       [](TrainingSpec& s, const std::string& v) {
         s.error_feedback = parse_named<FeedbackWish>(v);
       },
       [](const TrainingSpec& s) { return std::string(name_of(s.error_feedback)); }},
      {"density", "topk, randomk, dgc and other sparse codecs: share of the values that are sent",
       [](TrainingSpec& s, const std::string& v) {
         s.density = above_zero("density", v, "a share above 0, up to 1, as 0.01 of 1 %", 1);
       },
       [](const TrainingSpec& s) { return fmt::format("{}", s.density); }},
      number_row("density_warmup", "sparse codecs: steps in which the density comes down from 0.25",
                 &TrainingSpec::density_warmup, 0),
      {"bits", "qsgd, diana: of a value, its sign among them: 2, 4 or 8",
       [](TrainingSpec& s, const std::string& v) {
         if (v != "2" && v != "4" && v != "8") refuse("bits", v, "2, 4 or 8");
         s.bits = whole("bits", v, 2, 8);
       },
       [](const TrainingSpec& s) { return std::to_string(s.bits); }},
      {"layer_bits",
       "qsgd, diana: bits in all gradients, or by size: 8 in those of up to 4096 values",
       [](TrainingSpec& s, const std::string& v) { s.layer_bits = parse_named<LayerBits>(v); },
       [](const TrainingSpec& s) { return std::string(name_of(s.layer_bits)); }},
      real_row("shift_rate",
               "diana: part of a difference by which what is known of a gradient changes; 0: by "
               "the bits",
               &TrainingSpec::shift_rate, 0, 1),
      {"group_compression",
       "group_size of 2 or more: codec of gradients within a group; compression is that of what it "
       "sends to the server",
       [](TrainingSpec& s, const std::string& v) { s.group_compression = parse_named<Codec>(v); },
       [](const TrainingSpec& s) { return std::string(name_of(s.group_compression)); }},
      number_row("rank", "powersgd: columns of a factor", &TrainingSpec::rank, 1, kMostRank),
      {"threshold", "threshold: least magnitude that is sent",
       [](TrainingSpec& s, const std::string& v) {
         s.threshold = above_zero("threshold", v, "a number above 0, up to 3.4e38", 3.4e38);
       },
       [](const TrainingSpec& s) { return fmt::format("{}", s.threshold); }},
      real_row("clip_each", "dgc: most of each gradient's norm, over sqrt(N) of N workers; 0: none",
               &TrainingSpec::clip),
      real_row("pace",
               "milliseconds that a step's computation takes at least, by waiting; 0: as it comes",
               &TrainingSpec::pace, 0, kMostPaceMs),
      real_row("slow_factor", "times as long that computation takes on a slowed worker, by waiting",
               &TrainingSpec::slow_factor, 1, kMostSlowFactor),
      {"slow_worker", "number of the slowed worker, or any: in each step one drawn at random",
       [](TrainingSpec& s, const std::string& v) {
         s.slow_worker = v == kAny ? kAnyWorker : whole("slow_worker", v, 0, kUnbounded);
       },
       [](const TrainingSpec& s) {
         return s.slow_worker == kAnyWorker ? std::string(kAny) : std::to_string(s.slow_worker);
       }},
      {"tuner",
       "who sets the library's all-reduces in each step: off, online (an agent learns from the "
       "steps), or the path of a table that tune wrote",
       [](TrainingSpec& s, const std::string& v) {
         if (v.empty()) refuse("tuner", v, "off, online or a table's path");
         s.tuner = v;
       },
       [](const TrainingSpec& s) { return s.tuner; }}};
  return rows;
}

}  // namespace

bool is_generated(const std::string& data) {
  return data == kGeneratedData || data == kGeneratedHardData;
}

bool waits_as(const TrainingSpec& spec, Synchronisation synchronisation) {
  return spec.synchronisation == synchronisation || spec.switch_to == synchronisation;
}

TrainingSpec leg_of(const TrainingSpec& spec, bool after) {
  TrainingSpec leg = spec;
  leg.synchronisation =
      after ? spec.switch_to.value_or(spec.synchronisation) : spec.synchronisation;
  leg.switch_to.reset();
  leg.switch_after = 1;
  if (!has_local_steps(leg.synchronisation)) leg.local_steps = 1;
  return leg;
}

int round_steps(const TrainingSpec& spec) {
  return has_local_steps(spec.synchronisation) ? spec.local_steps : 1;
}

int groups_of(const TrainingSpec& spec, int workers) { return workers / spec.group_size; }

int adapted_steps(int steps, int first, double first_loss, double loss) {
  const double share = first_loss > 0 ? std::max(loss, 0.0) / first_loss : 1;
  const double by_loss = std::ceil(std::sqrt(share) * first);
  // A loss that stays where it is halves them all the same: else they would never become one.
  const double shorter = by_loss < steps ? by_loss : std::ceil(steps / 2.0);
  return std::isfinite(shorter) ? std::max(1, static_cast<int>(shorter)) : steps;
}

CodecSettings codec_settings(const TrainingSpec& spec) {
  CodecSettings settings = resolve_codec(spec, spec.momentum);
  // Replicas of neighbours know what was not sent.
  if (method_row(spec.method).sums == SumPlace::neighbours) settings.feedback = false;
  return settings;
}

CodecSettings group_codec_settings(const TrainingSpec& spec) {
  CodecSpec within = spec;
  within.compression = spec.group_compression;
  within.error_feedback = FeedbackWish::usual;
  return resolve_codec(within, 0);
}

double rate_at(const TrainingSpec& spec, std::uint64_t step) {
  const auto rising = static_cast<std::uint64_t>(spec.rate_warmup);
  if (step >= rising) return spec.learning_rate;
  return spec.learning_rate * static_cast<double>(step + 1) / static_cast<double>(rising);
}

double optimizer_momentum(const TrainingSpec& spec) {
  return codec_row(spec.compression).momentum ? 0 : spec.momentum;
}

Bytes partition_of(const TrainingSpec& spec) { return or_usual(spec.partition, 4U << 20); }
Bytes credit_of(const TrainingSpec& spec) { return or_usual(spec.credit, 16U << 20); }
Bytes bucket_of(const TrainingSpec& spec) { return or_usual(spec.bucket, 25U << 20); }

bool leaves_a_choice(const TrainingSpec& spec) {
  switch (method_row(spec.method).choice) {
    case MethodChoice::none:
      return false;
    case MethodChoice::bucket:
      return spec.bucket.count() == 0;
    case MethodChoice::parts:
      return spec.partition.count() == 0 || spec.credit.count() == 0;
    case MethodChoice::merge:
      return spec.merge == MergeRule::optimal;
  }
  return false;
}

ModelFacts facts_of(TrainingModel model, int sequence) {
  const auto tokens = static_cast<std::uint64_t>(sequence);
  switch (model) {
    case TrainingModel::mlp:
      return image_model(1'707'274, 1'706'496, 32, 10);
    case TrainingModel::cnn:
      return image_model(545'098, 6'128'896, 32, 10);
    case TrainingModel::cnn_small:
      return image_model(100'154, 148'416, 32, 10);
    case TrainingModel::resnet18:
      return image_model(11'173'962, 555'422'720, 32, 10);
    case TrainingModel::resnet50:
      return image_model(25'557'032, 4'089'184'256, 224, 1000);
    case TrainingModel::bert_base:
      return bert(12, 768, tokens);
    case TrainingModel::bert_large:
      return bert(24, 1024, tokens);
  }
  return {};
}

std::vector<std::string> training_settings() {
  std::vector<std::string> names;
  for (const auto& row : knob_rows()) names.push_back(row.name);
  return names;
}

const std::vector<std::string>& training_task_settings() {
  static const std::vector<std::string> names{
      "model", "batch",  "sequence", "data",  "precision", "oracle",      "samples",    "evaluate",
      "steps", "epochs", "target",   "looks", "pace",      "slow_factor", "slow_worker"};
  return names;
}

std::vector<TrainingSetting> training_setting_rows() {
  std::vector<TrainingSetting> settings;
  for (const auto& row : knob_rows()) settings.push_back({row.name, row.about, row.write({})});
  return settings;
}

TrainingSpec training_spec(const WorkCell& cell) {
  TrainingSpec spec;
  spec.method = parse_named<TrainingMethod>(cell.algorithm);
  for (const auto& [name, value] : cell.knobs) {
    const auto& rows = knob_rows();
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&name = name](const KnobRow& r) { return r.name == name; });
    if (row == rows.end())
      throw Error(ErrorKind::input, fmt::format("training has no setting \"{}\"; {}", name,
                                                suggestion(name, training_settings())));
    row->read(spec, value);
  }
  return spec;
}

WorkCell training_cell(const TrainingSpec& spec) {
  static const TrainingSpec defaults;
  WorkCell cell;
  cell.collective = Collective::training;
  cell.algorithm = name_of(spec.method);
  cell.size = Bytes(facts_of(spec.model, spec.sequence).parameters * kFloatBytes);
  for (const auto& row : knob_rows()) {
    const std::string value = row.write(spec);
    if (row.name == "model" || row.name == "batch" || value != row.write(defaults))
      cell.knobs[row.name] = value;
  }
  return cell;
}

bool is_tuned(const TrainingSpec& spec) { return spec.tuner != kNoTuner; }

std::string tuner_table(const TrainingSpec& spec) {
  return is_tuned(spec) && spec.tuner != kOnlineTuner ? spec.tuner : "";
}

std::string tuner_file(const TrainingSpec& spec) {
  return fmt::format("tuner-{}.json", stable_id(tuner_table(spec)));
}

int servers_of(const TrainingSpec& spec, int ranks) {
  if (architecture_of(spec.method) == Architecture::ring) return 0;
  if (spec.servers > 0) return spec.servers;
  return spec.placement == ServerPlacement::colocated ? ranks : 1;
}

int dedicated_servers(const TrainingSpec& spec) {
  return spec.placement == ServerPlacement::colocated ? 0 : servers_of(spec, 0);
}

int workers_of(const TrainingSpec& spec, int ranks) { return ranks - dedicated_servers(spec); }

bool trains_as_one(const TrainingSpec& spec) {
  return spec.compression == Codec::none && !spec.switch_to &&
         agreement_of(spec.method, spec.synchronisation) == WeightAgreement::every_step;
}

bool is_plain_sgd(const TrainingSpec& spec) {
  return trains_as_one(spec) && spec.lars == 0 && spec.rate_warmup == 0;
}

double share_of(const TrainingSpec& spec, int workers, int worker) {
  if (spec.shares == DataShares::equal) return 1.0 / workers;
  return 2.0 * (worker + 1) / (static_cast<double>(workers) * (workers + 1));
}

std::vector<int> participants_of(const TrainingSpec& spec, int workers, std::uint64_t round,
                                 std::uint64_t seed) {
  std::vector<int> all(static_cast<std::size_t>(workers));
  std::iota(all.begin(), all.end(), 0);
  if (spec.participants == 0 || spec.participants >= workers) return all;
  const auto wanted = static_cast<std::size_t>(spec.participants);
  std::uint64_t state = splitmix64_mixed(seed ^ 0x5A17ULL) ^ (round * kSplitmix64Step);
  for (std::size_t i = 0; i < wanted; ++i) {
    state = splitmix64_of(state);
    std::swap(all[i], all[i + state % (all.size() - i)]);
  }
  all.resize(wanted);
  std::sort(all.begin(), all.end());
  return all;
}

bool weighs_workers(const TrainingSpec& spec) {
  return spec.shares != DataShares::equal || spec.participants > 0;
}

bool is_slowed(const TrainingSpec& spec, int workers, int worker, std::uint64_t step,
               std::uint64_t seed) {
  if (spec.slow_factor <= 1) return false;
  if (spec.slow_worker != kAnyWorker) return worker == spec.slow_worker;
  const std::uint64_t drawn = splitmix64_mixed(seed ^ (step * kSplitmix64Step));
  return drawn % static_cast<std::uint64_t>(workers) == static_cast<std::uint64_t>(worker);
}

namespace {

double steps_per_epoch(const TrainingSpec& spec, int workers) {
  const double samples = is_generated(spec.data) ? spec.samples : 60'000;
  return std::max(1.0, std::floor(samples / (1.0 * workers * spec.batch)));
}

}  // namespace

double budgeted_steps(const TrainingSpec& spec, int workers) {
  if (spec.epochs == 0) return spec.steps;
  const double steps = steps_per_epoch(spec, workers);
  if (spec.switch_to) {
    const double before = spec.switch_after * steps / round_steps(leg_of(spec, false));
    const double after =
        (spec.epochs - spec.switch_after) * steps / round_steps(leg_of(spec, true));
    return std::max(1.0, std::floor(before) + std::floor(after));
  }
  // AdaComm's rounds may shorten to single steps.
  const int of_round = spec.synchronisation == Synchronisation::adacomm ? 1 : round_steps(spec);
  return std::max(1.0, std::floor(spec.epochs * steps / of_round));
}

double budgeted_worker_steps(const TrainingSpec& spec, int workers) {
  const int longest = std::max(round_steps(leg_of(spec, false)), round_steps(leg_of(spec, true)));
  if (spec.epochs == 0) return 1.0 * spec.steps * longest;
  // A round is done to its end.
  return std::max(budgeted_steps(spec, workers), spec.epochs * steps_per_epoch(spec, workers)) +
         longest - 1;
}

double waited_us(const TrainingSpec& spec, double computed_us) {
  return std::max(computed_us, spec.pace * 1000) * spec.slow_factor;
}

}  // namespace dynamiccl
