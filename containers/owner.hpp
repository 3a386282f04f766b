#pragma once

#include <string>

namespace dynamiccl {

/// "PID.START.BOOT": names a process so that neither a reused pid nor a reboot is mistaken for it.
/// Everything a run makes carries its owner's token.
std::string owner_token();

/// True while the process the token names is alive on this machine.
bool owner_alive(const std::string& token);

}  // namespace dynamiccl
