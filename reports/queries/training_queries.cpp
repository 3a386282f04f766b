#include "reports/queries/training_queries.hpp"

#include <array>

#include "reports/queries/run_queries.hpp"

namespace dynamiccl {
namespace {

constexpr std::array kTrainingQueries{
    RunQuery{"taxonomy", "Taxonomy of what was run",
             "one training cell, or one operation of a micro-benchmark: synchronisation, "
             "compression, architecture, scheduling, protocol and topology, whether that loses "
             "anything, and what the tuner chose at its level",
             taxonomy_table},
    RunQuery{"techniques", "Techniques by level",
             "one technique of the published taxonomy: its level, lossy or lossless as published "
             "and as used here, and in how many cells",
             techniques_table},
    RunQuery{"c2c", "Communication over computation",
             "one training cell: C2C = f(N) / (M I) with f(N) by formula, counted and fitted, what "
             "a worker computes and a link carries, T_comm / T_comp of it beside the measured one "
             "(expected: one after the other without scheduling, else the longer), and for the "
             "best method of a workload whether anything lossless is left",
             c2c_table},
    RunQuery{"c2c_contrasts", "C2C against two contrasts",
             "one pair of models that differ in intensity or batch: held where the one of the "
             "higher C2C surely (95 % interval) has the lower speed-up, published and here",
             c2c_contrasts_table},
    RunQuery{"ps_against_ring", "Parameter server against ring",
             "one method with a server against the same without: time of equal samples (the "
             "published 10 epochs of CIFAR-10 as steps here), at equal ranks as published and at "
             "equal workers, with the published times",
             ps_against_ring_table},
    RunQuery{"published_training", "Published speed-ups",
             "one model, method and number of workers: throughput over one worker here, beside "
             "what the survey published of its three links",
             published_training_table},
    RunQuery{"architecture_tradeoff", "Trade-offs of architectures",
             "one published property of server, all-reduce and gossip, and what was measured of it "
             "in one workload, by the fastest method of the architecture",
             architecture_tradeoff_table},
    RunQuery{"scheduling_tradeoff", "Trade-offs of scheduling",
             "one published property of a way to schedule gradients, and what the plan and the "
             "trace of one step show of it, by the fastest method that does so (ByteScheduler both "
             "cuts and orders)",
             scheduling_tradeoff_table}};

}  // namespace

std::span<const RunQuery> training_queries() { return kTrainingQueries; }

}  // namespace dynamiccl
