#include "workers/backends/mpi_control.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <charconv>
#include <optional>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

struct Info {
  std::string name;
  MPI_Datatype type = MPI_INT;
  MPI_T_enum values = MPI_T_ENUM_NULL;
};

std::optional<Info> info_at(int index) {
  std::array<char, 512> name{};
  int name_length = name.size();
  int verbosity = 0;
  int description_length = 0;
  int bind = 0;
  int scope = 0;
  Info info;
  if (MPI_T_cvar_get_info(index, name.data(), &name_length, &verbosity, &info.type, &info.values,
                          nullptr, &description_length, &bind, &scope) != MPI_SUCCESS) {
    return std::nullopt;
  }
  info.name = name.data();
  return info;
}

struct Item {
  std::string name;
  int value;
};

std::vector<Item> items_of(MPI_T_enum values) {
  std::vector<Item> items;
  if (values == MPI_T_ENUM_NULL) return items;
  std::array<char, 256> name{};
  int length = name.size();
  int count = 0;
  if (MPI_T_enum_get_info(values, &count, name.data(), &length) != MPI_SUCCESS) return items;
  for (int i = 0; i < count; ++i) {
    int value = 0;
    length = name.size();
    if (MPI_T_enum_get_item(values, i, &value, name.data(), &length) == MPI_SUCCESS)
      items.push_back({name.data(), value});
  }
  return items;
}

/// An open variable: its handle, type and size.
class Variable {
 public:
  explicit Variable(const std::string& name) : name_(name) {
    int index = 0;
    if (MPI_T_cvar_get_index(name.c_str(), &index) != MPI_SUCCESS)
      fail("is not known to this library");
    if (const auto info = info_at(index)) info_ = *info;
    if (MPI_T_cvar_handle_alloc(index, nullptr, &handle_, &count_) != MPI_SUCCESS)
      fail("cannot be opened");
  }
  ~Variable() { MPI_T_cvar_handle_free(&handle_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

  [[nodiscard]] bool is_text() const { return info_.type == MPI_CHAR; }
  [[nodiscard]] std::vector<Item> items() const { return items_of(info_.values); }

  [[nodiscard]] std::string read_text() const {
    std::string text(static_cast<std::size_t>(count_) + 1, '\0');
    if (MPI_T_cvar_read(handle_, text.data()) != MPI_SUCCESS) fail("cannot be read");
    return text.c_str();
  }
  [[nodiscard]] long long read_number() const {
    // Wide enough for every integer type the library may use; little-endian low bytes first.
    long long number = 0;
    if (MPI_T_cvar_read(handle_, &number) != MPI_SUCCESS) fail("cannot be read");
    return info_.type == MPI_INT ? static_cast<int>(number) : number;
  }
  void write_text(const std::string& text) const { set(text.c_str()); }
  void write_number(long long number) const { set(&number); }
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorKind::environment, fmt::format("MPI control variable {} {}", name_, why));
  }

 private:
  void set(const void* value) const {
    if (MPI_T_cvar_write(handle_, value) != MPI_SUCCESS)
      fail("cannot be set while the job runs; set it when the job is launched");
  }

  std::string name_;
  Info info_;
  MPI_T_cvar_handle handle_ = MPI_T_CVAR_HANDLE_NULL;
  int count_ = 0;
};

}  // namespace

MpiControl::MpiControl() {
  int provided = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS)
    throw Error(ErrorKind::environment, "MPI_T_init_thread failed");
}

MpiControl::~MpiControl() { MPI_T_finalize(); }

bool MpiControl::has(const std::string& name) const {
  int index = 0;
  return MPI_T_cvar_get_index(name.c_str(), &index) == MPI_SUCCESS;
}

std::string MpiControl::suggest(const std::string& name) const {
  std::vector<std::string> names;
  int count = 0;
  MPI_T_cvar_get_num(&count);
  for (int i = 0; i < count; ++i) {
    if (auto info = info_at(i)) names.push_back(std::move(info->name));
  }
  const std::string nearest = nearest_word(name, names);
  return nearest.empty() ? fmt::format("the library has {} others", count)
                         : fmt::format("did you mean \"{}\"?", nearest);
}

std::string MpiControl::read(const std::string& name) const {
  const Variable variable(name);
  return variable.is_text() ? variable.read_text() : std::to_string(variable.read_number());
}

void MpiControl::write(const std::string& name, const std::string& value) const {
  const Variable variable(name);
  if (variable.is_text()) return variable.write_text(value);
  std::vector<std::string> known;
  for (const auto& item : variable.items()) {
    if (item.name == value) return variable.write_number(item.value);
    known.push_back(item.name);
  }
  long long number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) {
    throw Error(ErrorKind::input,
                fmt::format("MPI control variable {} cannot be \"{}\"; {}", name, value,
                            known.empty() ? "it takes a number" : suggestion(value, known)));
  }
  variable.write_number(number);
}

std::vector<std::string> MpiControl::enumerators(const std::string& name) const {
  std::vector<std::string> names;
  if (!has(name)) return names;
  for (auto& item : Variable(name).items()) names.push_back(std::move(item.name));
  return names;
}

ControlOverrides::ControlOverrides(const MpiControl& control,
                                   const std::map<std::string, std::string>& values)
    : control_(control) {
  try {
    for (const auto& [name, value] : values) {
      std::string original = control.read(name);
      control.write(name, value);
      originals_.emplace(name, std::move(original));
    }
  } catch (...) {
    set_back();
    throw;
  }
}

ControlOverrides::~ControlOverrides() {
  try {
    set_back();
  } catch (const Error&) {
    // A variable that could be set can be set again; a destructor has nobody to tell otherwise.
    return;
  }
}

void ControlOverrides::set_back() {
  for (const auto& [name, value] : originals_) control_.write(name, value);
  originals_.clear();
}

}  // namespace dynamiccl
