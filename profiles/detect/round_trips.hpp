#pragma once

#include <optional>
#include <string>

namespace dynamiccl {

/// Round trips of one byte over TCP between two machines, for a static program without a resolver:
/// addresses are numbers, IPv4.

/// Answers whatever comes, on a free port of the machine, until standard input ends. Prints
/// "echo ADDRESS:PORT" first. @param interface whose address is printed; "" = that of the default
/// route, else the first one that is up and no loopback
/// @returns exit code: 0, 1 without an address or a port
int serve_round_trips(const std::string& interface);

/// Microseconds of a round trip to such a place: the lower quartile of many, so that a burst of
/// other traffic does not count. nullopt: no connection, or one that stood still for seconds.
std::optional<double> round_trip_us(const std::string& place);

}  // namespace dynamiccl
