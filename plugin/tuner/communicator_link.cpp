#include "plugin/tuner/communicator_link.hpp"

#include <utility>

namespace dynamiccl {
namespace {

thread_local OfferedLink offered_here;

}  // namespace

void CommunicatorLink::set(std::shared_ptr<Member> member) {
  const std::lock_guard lock(mutex_);
  member_ = std::move(member);
}

std::shared_ptr<Member> CommunicatorLink::member() const {
  const std::lock_guard lock(mutex_);
  return member_;
}

void offer_link(OfferedLink offered) { offered_here = std::move(offered); }

OfferedLink take_link() { return std::exchange(offered_here, {}); }

}  // namespace dynamiccl
