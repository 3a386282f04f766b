#include <algorithm>
#include <array>
#include <set>

#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/elf.hpp"
#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kMaxMapsBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxLibraries = 64;

struct LibraryName {
  std::string_view file;  ///< how the file's name begins, up to ".so"
  std::string_view name;
};
// Longest first where one name begins another.
constexpr std::array kLibraries{LibraryName{"libmpi.so", "openmpi"},
                                LibraryName{"libmpich.so", "mpich"},
                                LibraryName{"libgloo.so", "gloo"},
                                LibraryName{"libnccl-net", "nccl-net-plugin"},
                                LibraryName{"libnccl-tuner", "nccl-tuner"},
                                LibraryName{"libnccl.so", "nccl"},
                                LibraryName{"librccl.so", "rccl"},
                                LibraryName{"libmsccl", "msccl"},
                                LibraryName{"libucp.so", "ucx"},
                                LibraryName{"libucc.so", "ucc"},
                                LibraryName{"libhcoll.so", "hcoll"},
                                LibraryName{"libsharp", "sharp"},
                                LibraryName{"libfabric.so", "libfabric"},
                                LibraryName{"libibverbs.so", "ibverbs"},
                                LibraryName{"libpmix.so", "pmix"},
                                LibraryName{"libcudart.so", "cudart"},
                                LibraryName{"libcuda.so", "cuda-driver"},
                                LibraryName{"libtorch_cpu.so", "torch"},
                                LibraryName{"libsimgrid.so", "simgrid"},
                                LibraryName{"libc.so", "libc"},
                                LibraryName{"libc-", "libc"}};
// Which of the loaded libraries runs the collectives, first match wins.
constexpr std::array kCollectiveLibraries{"simgrid", "nccl", "rccl", "gloo", "openmpi", "mpich"};

std::string_view known_name(std::string_view file) {
  for (const LibraryName& library : kLibraries)
    if (file.starts_with(library.file)) return library.name;
  return {};
}

/// "libmpi.so.40.30.4" as "40.30.4": the version of the file, not of the product.
Known<std::string> file_version(const ProbeRoot& root, const std::string& path) {
  std::string file = path.substr(path.rfind('/') + 1);
  // The map names the file itself, but a copied tree may hold a link in its place.
  if (const auto target = root.link_name(path)) file = *target;
  const std::size_t so = file.find(".so.");
  if (so == std::string::npos)
    return Known<std::string>::unknown("the file name carries no version");
  return {file.substr(so + 4), ""};
}

nlohmann::json describe(const ProbeRoot& root, const std::string& path, std::string_view name) {
  Section section;
  section.set("name", std::string(name));
  section.set("path", path);
  section.set("file_version", file_version(root, path));
  section.set("build_id", elf_build_id(root, path));
  return std::move(section).take();
}

/// Paths of mapped files, without the mark of deleted ones.
std::set<std::string> mapped_files(const std::string& maps) {
  std::set<std::string> paths;
  std::string_view rest = maps;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::size_t slash = line.find('/');
    if (slash == std::string_view::npos) continue;
    line.remove_prefix(slash);
    constexpr std::string_view kDeleted = " (deleted)";
    if (line.ends_with(kDeleted)) line.remove_suffix(kDeleted.size());
    if (!known_name(line.substr(line.rfind('/') + 1)).empty()) paths.emplace(line);
  }
  return paths;
}

/// A path part that tells who implements libblas.so.3. Debian's alternatives lead to one of them.
struct BlasMark {
  std::string_view part;
  std::string_view name;
};
constexpr std::array kBlas{BlasMark{"openblas", "openblas"}, BlasMark{"mkl", "mkl"},
                           BlasMark{"blis", "blis"}, BlasMark{"atlas", "atlas"},
                           BlasMark{"/blas/", "reference"}};

/// Which BLAS a program that asks for libblas.so.3 gets.
Known<std::string> installed_blas(const ProbeRoot& root) {
  constexpr int kMostLinks = 4;
  for (const char* start :
       {"/usr/lib/x86_64-linux-gnu/libblas.so.3", "/usr/lib/aarch64-linux-gnu/libblas.so.3",
        "/usr/lib64/libblas.so.3", "/usr/lib/libblas.so.3"}) {
    std::string path = start;
    for (int step = 0; step < kMostLinks; ++step) {
      const auto target = root.link(path);
      if (!target || !target->starts_with('/')) break;
      path = *target;
    }
    if (!root.exists(path)) continue;
    for (const BlasMark& mark : kBlas)
      if (path.find(mark.part) != std::string::npos) return {std::string(mark.name), ""};
  }
  return Known<std::string>::unknown("no libblas.so.3 whose provider is known");
}

}  // namespace

nlohmann::json probe_libraries(const ProbeContext& context) {
  Section section;
  section.set("blas", installed_blas(context.root));
  const auto maps = context.root.text("/proc/self/maps", kMaxMapsBytes);
  if (!maps) {
    section.unknown("loaded", maps.reason);
    section.unknown("collective_library", maps.reason);
    return std::move(section).take();
  }
  nlohmann::json loaded = nlohmann::json::array();
  std::set<std::string_view> names;
  for (const std::string& path : mapped_files(*maps)) {
    const std::string_view name = known_name(std::string_view(path).substr(path.rfind('/') + 1));
    names.insert(name);
    if (loaded.size() < kMaxLibraries) loaded.push_back(describe(context.root, path, name));
  }
  section.set("loaded", loaded);
  const auto first = std::find_if(kCollectiveLibraries.begin(), kCollectiveLibraries.end(),
                                  [&](const char* name) { return names.contains(name); });
  if (first != kCollectiveLibraries.end())
    section.set("collective_library", std::string(*first));
  else
    section.unknown("collective_library", "no known collective library is loaded as a shared file");
  return std::move(section).take();
}

}  // namespace dynamiccl
