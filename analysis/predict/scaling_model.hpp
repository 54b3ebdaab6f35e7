// The time of a step as a function of the number of ranks, with a few unknown numbers: what each rank computes of its
// share, what it waits for, what it exchanges. docs/scaling-prediction.md has the equations and their sources.
#pragma once

#include <string>
#include <vector>

#include "config/machine.hpp"

namespace lockstep::analysis {

// What is the same in all runs of one program.
struct ScalingProgram {
    double shards = 1;          // ranks that hold different parameters of one replica: tensor · pipeline
    double context = 1;         // ranks along a sequence
    double gradient_bytes = 0;  // that one rank adds up with its replicas in a step; 0: unknown
    double buckets = 1;         // pieces that the gradients are sent in
    // Each replica updates a part of the parameters only, and they collect `gather_bytes` of the others afterwards.
    bool divided_update = false;
    double gather_bytes = 0;
    double micro_batch = 0;      // sequences of a forward pass; 0: unknown, a share is computed in one
    bool must_divide = true;     // the replicas must divide the batch; otherwise the slowest has a sequence more
    double ranks_per_node = 1;   // that are placed on a node
    double places_per_node = 1;  // ranks that a node has devices or cores for
    bool batch_known = true;     // otherwise a batch of 1 stands for the whole work
    double model_ranks() const { return shards * context; }
};

// A part of a step that a rank does alone, or with the ranks of its replica.
struct WorkTerm {
    enum class Follows {
        share,   // some of it grows with the rank's sequences, some does not
        update,  // with the rank's part of the parameters: the same on all ranks, or divided among the replicas
    };
    std::string name;  // forward, loss, backward, optimizer, tensor …
    Follows follows = Follows::share;
    bool communication = false;  // among the ranks of a replica; its time counts as communication
    double backward = 0;         // share of it beneath which gradients may travel
};

// The mean of the largest of `count` numbers drawn from one distribution of mean 0 and deviation 1.
double largest_of_normal(double count);
double largest_of_exponential(double count);

// At which scale a step runs; `batch`: sequences a step.
struct Scale {
    Scale(double ranks, double nodes, double batch);
    double ranks, nodes, batch;
    double normal_largest, exponential_largest;  // of the ranks, as above
};
// On as many nodes as the ranks fill, one after the other.
Scale scale_of(const ScalingProgram& program, double ranks, double batch);

struct StepTime {
    std::vector<double> work;  // seconds of each term
    double wait = 0;           // until the slowest rank has computed
    double exchange = 0;       // gradients and control, as far as they are waited for
    double compute = 0;
    double communication = 0;  // with wait and exchange
    double total() const { return compute + communication; }
};

class ScalingModel {
  public:
    ScalingModel(const ScalingProgram& program, std::vector<WorkTerm> terms);

    // An unknown: numbers above 0 by their logarithm, shares from 0 to 1 by the normal quantile.
    struct Unknown {
        std::string name, title;  // snake_case; as a reader says it, with the unit
        bool share = false;
        bool used = true;                // it stands in an equation of this program
        double mean = 0, deviation = 1;  // the prior
        double value(double unknown) const;
    };
    // `seconds`: of each term in a run with so many sequences a replica and so many replicas, the order of magnitude
    // that it begins with. Where the bytes of the gradients are not known, a guess of them is set.
    std::vector<Unknown> unknowns(const config::Machine& machine, const std::vector<double>& seconds, double sequences,
                                  double divided_among);

    StepTime step(const Scale& scale, const std::vector<double>& unknowns) const;
    double sequences_per_replica(const Scale& scale) const;
    const ScalingProgram& program() const { return program_; }
    const std::vector<WorkTerm>& terms() const { return terms_; }

  private:
    double exchange(const Scale& scale, const double* links, double window) const;
    double replicas(const Scale& scale) const { return scale.ranks / program_.shards; }
    ScalingProgram program_;
    std::vector<WorkTerm> terms_;
    bool guessed_ = false;  // the bytes are
    double steps_ = 1;      // that the measured seconds are of, a guess where they are of a whole run
};

}  // namespace lockstep::analysis
