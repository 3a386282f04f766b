#include "containers/bare_metal.hpp"

#include "containers/local_ranks.hpp"
#include "containers/run_folder.hpp"

namespace dynamiccl {
namespace {

LaunchShape shape_for(const StartRequest& request, const std::string& name) {
  LaunchShape shape;
  shape.hosts = {{"localhost", "", request.ranks}};
  shape.host_address = "127.0.0.1";
  shape.interface = "lo";
  shape.launcher_environment = rank_marks(name);
  return shape;
}

class BareMetalEnvironment : public Environment {
 public:
  explicit BareMetalEnvironment(const StartRequest& request)
      : folder_(request.run_id), shape_(shape_for(request, folder_.name())) {
    folder_.write_script("end-ranks", end_marked_script());
  }
  ~BareMetalEnvironment() override { end_marked_processes(folder_.name()); }

  LaunchShape shape() const override { return shape_; }

  std::vector<std::string> wrap_rank(int /*rank*/, const std::vector<std::string>& command,
                                     const std::map<std::string, std::string>& env) const override {
    return marked_rank_argv(folder_.name(), {}, command, env);
  }

  std::vector<std::vector<std::string>> kill_commands() const override {
    return {{"/bin/sh", folder_.path() + "/end-ranks", folder_.name()}};
  }

  nlohmann::json provenance() const override { return {{"engine", "none"}}; }

  void stop() override {
    end_marked_processes(folder_.name());
    folder_.remove();
  }

 private:
  RunFolder folder_;
  LaunchShape shape_;
};

}  // namespace

std::unique_ptr<Environment> start_bare_metal(const EnvironmentProfile& /*profile*/,
                                              const StartRequest& request) {
  return std::make_unique<BareMetalEnvironment>(request);
}

LaunchShape bare_metal_planned_shape(const StartRequest& request) {
  return shape_for(request, RunFolder::planned_name(request.run_id));
}

std::vector<std::string> bare_metal_planned_rank(const EnvironmentProfile& /*profile*/,
                                                 const StartRequest& request, int /*rank*/,
                                                 const std::vector<std::string>& command,
                                                 const std::map<std::string, std::string>& env) {
  return marked_rank_argv(RunFolder::planned_name(request.run_id), {}, command, env);
}

}  // namespace dynamiccl
