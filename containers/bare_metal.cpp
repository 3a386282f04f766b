#include "containers/bare_metal.hpp"

#include "containers/local_ranks.hpp"
#include "containers/owner.hpp"

namespace dynamiccl {
namespace {

class BareMetalEnvironment : public Environment {
 public:
  explicit BareMetalEnvironment(const StartRequest& request) : Environment(request) {
    use_plan(plan_local_ranks(request, name(), RunFolder::path_of(name()), owner_token(), {}));
  }
  ~BareMetalEnvironment() override { end_marked_processes(name()); }

  nlohmann::json provenance() const override { return {{"engine", "none"}}; }

  void end_ranks() const override { end_local_ranks(name()); }
  void stop() override {
    end_marked_processes(name());
    remove_folder();
  }
};

}  // namespace

std::unique_ptr<Environment> start_bare_metal(const StartRequest& request) {
  return std::make_unique<BareMetalEnvironment>(request);
}

}  // namespace dynamiccl
