#pragma once

#include <string>

namespace dynamiccl {

/// "PID.START.BOOT.NAMESPACE": names a process so that neither a reused pid, a reboot nor an equal
/// pid of another container is mistaken for it. Everything a run makes carries its owner's token.
std::string owner_token();

/// True while the process the token names is alive on this machine, or may be: a process of another
/// PID namespace (a run inside a container) cannot always be seen from here.
bool owner_alive(const std::string& token);

}  // namespace dynamiccl
