#pragma once

#include <string>

namespace dynamiccl {

/// The interface a rank is reached by when nobody says which: the one of the default route, else
/// the first that is up and no loopback, else "lo".
std::string default_interface();

}  // namespace dynamiccl
