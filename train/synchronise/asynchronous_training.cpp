#include "train/synchronise/asynchronous_training.hpp"

#include <algorithm>

#include "core/statistics/statistics.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

double typical(const std::vector<StepTimes>& steps, double StepTimes::*member) {
  std::vector<double> values;
  for (const auto& step : steps) values.push_back(step.*member);
  return values.empty() ? 0 : median(values);
}

}  // namespace

AsynchronousTraining::AsynchronousTraining(Communicator& comm, const ExchangePlan& plan,
                                           const TrainingSpec& spec, TrainingWorker* worker,
                                           Micros silence)
    : comm_(comm), spec_(spec), servers_(plan.servers), worker_(worker) {
  // Of those that wait for others, for the time of a silence each. At a phase's end workers wait
  // for the first server, which the other servers do not see.
  const Micros of_all(silence.count() * comm.size());
  if (worker == nullptr) {
    server_ = make_outliving<UpdateServer>(comm, plan, spec,
                                           comm.rank() == kUpdateServer ? silence : of_all);
  } else {
    steps_ = make_outliving<UpdateWorker>(comm, plan, spec, *worker, of_all);
  }
}

void AsynchronousTraining::start() { server_ ? server_->start() : steps_->start(); }

void AsynchronousTraining::switch_over() {
  if (server_) server_->switch_over();
}

std::vector<UpdateRound> AsynchronousTraining::run(int rounds, double epoch_us) {
  std::vector<UpdateRound> done(static_cast<std::size_t>(rounds));
  const std::size_t bytes = done.size() * sizeof(UpdateRound);
  if (server_) {
    done = server_->serve(rounds);
    for (auto& round : done) round.start_us -= epoch_us;
    std::vector<Request> sending;
    for (int rank = servers_; comm_.rank() == kUpdateServer && rank < comm_.size(); ++rank)
      sending.push_back(comm_.isend(done.data(), bytes, rank, kReportTag));
    for (const Request request : sending) comm_.wait(request);
    return done;
  }
  const auto steps = steps_->work();
  typical_.data_us = typical(steps, &StepTimes::data_us);
  typical_.forward_us = typical(steps, &StepTimes::forward_us);
  typical_.backward_us = typical(steps, &StepTimes::backward_us);
  typical_.update_us = typical(steps, &StepTimes::update_us);
  typical_.exposed_us = typical(steps, &StepTimes::exposed_us);
  // By the typical share of parts in a step: those of a typical step need not be those of one that
  // was, and whoever else uses the machine comes between the parts of some steps alone.
  std::vector<double> shares;
  for (const auto& step : steps) shares.push_back(step.total_us / std::max(1.0, step.parts_us()));
  typical_.total_us = shares.empty() ? 0 : typical_.parts_us() * median(shares);
  comm_.wait(comm_.irecv(done.data(), bytes, kUpdateServer, kReportTag));
  return done;
}

std::uint64_t AsynchronousTraining::sent_bytes() const {
  return server_ ? server_->sent_bytes() : steps_->sent_bytes();
}

std::size_t AsynchronousTraining::held_bytes() const {
  return server_ ? server_->held_bytes() : steps_->held_bytes();
}

std::optional<CodingFigures> AsynchronousTraining::take_coding() {
  return server_ ? std::nullopt : steps_->take_coding();
}

std::optional<CodingFigures> AsynchronousTraining::take_group_coding() {
  return server_ ? std::nullopt : steps_->take_group_coding();
}

void AsynchronousTraining::describe(TrainingFigures& figures) const {
  if (!server_) return;
  const Staleness found = staleness_of(groups_of(spec_, comm_.size() - servers_), server_->log());
  figures.details["staleness"] = {{"mean", found.mean},
                                  {"most", found.most},
                                  {"furthest_ahead", found.furthest_ahead},
                                  {"dropped", found.dropped}};
}

}  // namespace dynamiccl
