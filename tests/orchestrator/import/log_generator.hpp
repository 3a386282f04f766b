#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace dynamiccl::testing {

/// A cell as a log prints it: collective, ranks, size in our counting, direction, redop or "".
using PrintedCell = std::tuple<std::string, int, std::uint64_t, bool, std::string>;

/// A log that a benchmark program would have written, and what an import of it has to hold.
struct GeneratedLog {
  std::string description;  ///< the form and its flags
  std::string text;
  std::vector<std::string> options;         ///< of import
  std::map<PrintedCell, double> times_us;   ///< of the cells that are good
  std::map<PrintedCell, double> failed_us;  ///< of cells that the log itself calls wrong
  bool complete = true;
};

/// Logs in the forms of nccl-tests, rccl-tests, OSU and IMB, with the flags of each and with what
/// launchers and collectors put around lines. The same seed makes the same log.
class LogGenerator {
 public:
  explicit LogGenerator(std::uint32_t seed) : random_(seed) {}
  GeneratedLog nccl_tests(bool rccl);
  GeneratedLog osu();
  GeneratedLog imb();

 private:
  int pick(int low, int high);
  bool chance(int percent);
  std::string two_decimals(double value);
  double time_us(std::uint64_t size);
  /// Puts a launcher's or collector's prefix before each line.
  void dress(GeneratedLog& log);

  std::mt19937 random_;
};

}  // namespace dynamiccl::testing
