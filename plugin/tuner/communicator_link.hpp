#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "plugin/agreement/call_stream.hpp"
#include "plugin/agreement/member.hpp"

namespace dynamiccl {

/// Joins the two halves of the plugin: the profiler is started before the tuner of the same
/// communicator, by the same thread, and hands over the link; the tuner puts its member in. Any
/// thread may call.
class CommunicatorLink {
 public:
  void set(std::shared_ptr<Member> member);
  [[nodiscard]] std::shared_ptr<Member> member() const;
  /// Where this rank tells what it calls; nullptr: nobody asked. Set before the link is offered.
  void set_stream(std::shared_ptr<CallStream> stream) { stream_ = std::move(stream); }
  [[nodiscard]] const std::shared_ptr<CallStream>& stream() const { return stream_; }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Member> member_;
  std::shared_ptr<CallStream> stream_;
};

struct OfferedLink {
  std::uint64_t communicator = 0;
  std::shared_ptr<CommunicatorLink> link;
};
void offer_link(OfferedLink offered);
/// What this thread offered last; an empty one when there was nothing. Taken once.
OfferedLink take_link();

}  // namespace dynamiccl
