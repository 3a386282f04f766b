#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "core/vocabulary/parsed_json.hpp"
#include "orchestrator/doctor/job/logged_job.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

const json& field_of(const json& object, const char* name) {
  static const json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(name);
  return found == object.end() ? kNone : *found;
}

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : ""; }

/// A number, or one that is written as a text, as the recorder's JSON has them.
std::optional<std::uint64_t> whole_of(const json& value) {
  if (value.is_number_integer() && (value.is_number_unsigned() || value.get<std::int64_t>() >= 0))
    return value.get<std::uint64_t>();
  const auto text = text_of(value);
  std::uint64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  return !text.empty() && end.ec == std::errc{} && end.ptr == text.data() + text.size()
             ? std::optional(number)
             : std::nullopt;
}

int rank_of(const json& value) {
  const auto number = whole_of(value);
  return number && *number < (1U << 24) ? static_cast<int>(*number) : -1;
}

RasAnswer::Process process_of(const json& rank) {
  const auto pid = whole_of(field_of(rank, "pid")).value_or(0);
  return {text_of(field_of(rank, "host")), pid < (1U << 30) ? static_cast<pid_t>(pid) : 0};
}

/// How many elements [[3, 4], [5]] has in all.
std::uint64_t elements_of(const json& sizes) {
  std::uint64_t all = 0;
  if (!sizes.is_array()) return 0;
  for (const auto& one : sizes) {
    std::uint64_t product = 1;
    if (one.is_array())
      for (const auto& length : one) product *= whole_of(length).value_or(0);
    all += product;
  }
  return all;
}

/// Whether elements have to be as many on all ranks: not where each may send another share.
bool elements_must_agree(const std::string& name) {
  return name.find("all_reduce") != std::string::npos ||
         name.find("allreduce") != std::string::npos || name.ends_with("_base") ||
         name.find("broadcast") != std::string::npos || name.ends_with(":reduce");
}

std::string group_name(const json& names) {
  if (!names.is_array()) return text_of(names);
  std::string name = names.empty() ? "" : text_of(names[0]);
  const auto description = names.size() > 1 ? text_of(names[1]) : "";
  return description.empty() ? name : name + "(" + description + ")";
}

void read_entry(LoggedJob& job, const json& entry, int rank,
                std::map<std::string, std::string>& group_of_id) {
  const auto& p2p = field_of(entry, "is_p2p");
  const auto number = whole_of(field_of(entry, "collective_seq_id"));
  if (!number || (p2p.is_boolean() && p2p.get<bool>())) return;
  const auto& names = field_of(entry, "process_group");
  const auto name = group_name(names);
  const auto key = "recorded " + (names.is_array() && !names.empty() ? text_of(names[0]) : name);
  auto& group = job.groups[key];
  group.name = "process group " + name;
  group.tells_ends = true;
  auto& member = group.members[std::to_string(rank)];
  member.rank = rank;
  if (const auto id = whole_of(field_of(entry, "pg_id"))) group_of_id[std::to_string(*id)] = key;
  LoggedCall call;
  call.name = text_of(field_of(entry, "profiling_name"));
  call.arguments =
      fmt::format("{} elements in, {} out", elements_of(field_of(entry, "input_sizes")),
                  elements_of(field_of(entry, "output_sizes")));
  call.must_agree = elements_must_agree(call.name);
  call.ended = text_of(field_of(entry, "state")) == "completed";
  CallPlace place{*number, 0};
  while (member.calls.contains(place)) ++place.second;
  if (call.ended && (!member.ended || *member.ended < place)) member.ended = place;
  member.enter(place, std::move(call));
}

/// "[0, 1]", or the same as a list.
void read_members(LoggedGroup& group, const json& ranks) {
  const auto list = ranks.is_string() ? json_or_discarded(text_of(ranks)) : ranks;
  if (!list.is_array()) return;
  for (const auto& one : list)
    if (const int rank = rank_of(one); rank >= 0) group.expected.insert(rank);
  group.size = group.expected.size();
}

/// The last calls of each group, of which entries may have gone from the recorder's ring.
void read_status(LoggedJob& job, const json& status, int rank,
                 const std::map<std::string, std::string>& group_of_id) {
  if (!status.is_object()) return;
  for (const auto& [id, last] : status.items()) {
    const auto found = group_of_id.find(id);
    const auto key = found != group_of_id.end() ? found->second : "recorded " + id;
    const auto entered = whole_of(field_of(last, "last_enqueued_collective"));
    const auto ended = whole_of(field_of(last, "last_completed_collective"));
    if (!entered || !job.groups.contains(key)) continue;
    auto& group = job.groups[key];
    auto& member = group.members[std::to_string(rank)];
    group.tells_ends = true;
    member.rank = rank;
    if (!member.entered || member.entered->first < *entered) member.entered = {*entered, 0};
    if (ended && (!member.ended || member.ended->first < *ended)) member.ended = {*ended, 0};
  }
}

}  // namespace

void read_flight_record(LoggedJob& job, const json& dump, int rank) {
  constexpr std::size_t kMostRecordedGroups = 4096;
  const auto& groups = field_of(dump, "pg_config");
  if (groups.is_object() && groups.size() <= kMostRecordedGroups)
    for (const auto& [key, group] : groups.items()) {
      auto& known = job.groups["recorded " + key];
      const auto description = text_of(field_of(group, "desc"));
      known.name = "process group " + key + (description.empty() ? "" : "(" + description + ")");
      known.tells_ends = true;
      read_members(known, field_of(group, "ranks"));
      // It has a dump: a rank without any call in it has made none.
      if (known.expected.contains(rank)) known.members[std::to_string(rank)].rank = rank;
    }
  std::map<std::string, std::string> group_of_id;
  const auto& entries = field_of(dump, "entries");
  if (entries.is_array())
    for (const auto& entry : entries) read_entry(job, entry, rank, group_of_id);
  read_status(job, field_of(dump, "pg_status"), rank, group_of_id);
}

json parse_ras_answer(std::string_view text) {
  auto parsed = json_or_discarded(text);
  if (!parsed.is_discarded() || text.find("\"missing_ranks\"") == std::string_view::npos)
    return parsed;
  // "nvml_dev": 0 "status": {
  std::string mended;
  std::size_t copied = 0;
  for (std::size_t at = text.find("\"status\""); at != std::string_view::npos;
       at = text.find("\"status\"", at + 2)) {
    const auto before = at > 0 ? text.find_last_not_of(" \n\r\t", at - 1) : at;
    if (before == std::string_view::npos ||
        std::isdigit(static_cast<unsigned char>(text[before])) == 0)
      continue;
    mended.append(text.substr(copied, before + 1 - copied)).append(",");
    copied = before + 1;
  }
  return json_or_discarded(mended.append(text.substr(copied)));
}

void read_ras_answer(LoggedJob& job, const json& answer) {
  const auto& communicators = field_of(answer, "communicators");
  if (!communicators.is_array()) return;
  for (const auto& one : communicators) {
    RasAnswer read;
    read.communicator = text_of(field_of(one, "hash")) + text_of(field_of(one, "secondary_hash"));
    read.size = std::max(rank_of(field_of(one, "size")), 0);
    if (const auto& ranks = field_of(one, "ranks"); ranks.is_array())
      for (const auto& rank : ranks) {
        const int number = rank_of(field_of(rank, "rank"));
        auto& launched = read.launched[number];
        read.processes[number] = process_of(rank);
        const auto& counts = field_of(rank, "collective_counts");
        if (counts.is_object())
          for (const auto& [call, count] : counts.items())
            launched[call] = whole_of(count).value_or(0);
      }
    if (const auto& missing = field_of(one, "missing_ranks"); missing.is_array())
      for (const auto& rank : missing) {
        const auto& status = field_of(rank, "status");
        const auto says = [&](const char* name) {
          const auto& value = field_of(status, name);
          return value.is_boolean() && value.get<bool>();
        };
        const int number = rank_of(field_of(rank, "rank"));
        const auto process = process_of(rank);
        read.missing[number] = {fmt::format("process {} on node {}", process.pid, process.host),
                                says("considered_dead"), says("unresponsive")};
        read.processes[number] = process;
      }
    job.ras.push_back(std::move(read));
  }
}

}  // namespace dynamiccl
