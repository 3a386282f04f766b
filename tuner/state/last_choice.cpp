#include "tuner/state/last_choice.hpp"

namespace dynamiccl {

std::array<double, 4> last_choice_of(const ActionSpace& space, const Action& action) {
  const auto place = [&](const char* name) {
    const auto knob = space.knob_index(name);
    if (!knob || space.knobs()[*knob].values.size() < 2) return 0.0;
    return static_cast<double>(action[*knob]) /
           static_cast<double>(space.knobs()[*knob].values.size() - 1);
  };
  const auto magnitude = [&](const char* name, double scale) {
    const auto knob = space.knob_index(name);
    return knob ? space.magnitude(*knob, action[*knob]).value_or(0) / scale : 0.0;
  };
  return {place("algorithm"), place("protocol"), magnitude("channels", 8),
          magnitude("threads", 16)};
}

}  // namespace dynamiccl
