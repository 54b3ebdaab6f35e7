// What is planned: the models of a job and how they are trained, by which program, and one way to lay them out.
// Letters: s tokens a sequence, b sequences a micro-batch, d width, t tensor-parallel ranks, p pipeline stages, m
// micro-batches a step, v pieces of the model on a stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_description.hpp"
#include "kernels/operation_work.hpp"

namespace lockstep::cost {

// How a training program spends memory and time. Launches and passes matter for described programs only; those of our
// own are counted.
struct Program {
    std::string name = "lockstep";
    bool own = true;
    bool attention_scores = false;  // the matrix of attention scores is written to memory, not kept on the chip
    bool layers_even = false;       // stages have the same number of layers; the embedding and the head come on top
    double gradient_bytes = 4;      // a parameter
    double owner_bytes = 12;        // a parameter that a rank updates: optimizer state, and the fp32 value where it
                                    // computes in another type
    double reduced_bytes = 4;       // a parameter, of gradients as replicas reduce them
    double accumulated_bytes = 0;   // a parameter and micro-batch, moved to add to its gradient
    double forward_kernels = 0, backward_kernels = 0;              // launched for a block
    double stream_passes_forward = 0, stream_passes_backward = 0;  // over [b·s, d], by kernels bound by memory
    double score_passes_forward = 0, score_passes_backward = 0;    // over the scores
    double logit_bytes = 4, logit_moved_bytes = 0;  // an element of the logits, held and moved; 2 bytes a number
    bool logits_whole = false;                      // of all rows of a micro-batch at once
    double hidden_reduction = 0.9;                  // share of the last backward pass that hides reductions
};
const Program& program_named(const std::string& name);  // unknown: usage error with the known ones
std::vector<std::string> program_names();

// One of the models that a job holds.
struct ModelLoad {
    std::string name;
    config::ModelDescription shape;  // resolved
    double adapters = 0;             // trained parameters in addition to the model's own, spread over its blocks

    // Numbers of parameters, found once by measure().
    double block = 0, block_trained = 0;  // of an average block, adapters included
    double table = 0, table_trained = 0;  // embedding and positions
    double head = 0, head_trained = 0;    // weight of the head, the embedding's where tied; final norm
    double total = 0, trained = 0;
    std::vector<double> trained_before;  // in the blocks before each, and after the last: layers + 1 numbers
    bool trains() const { return trained > 0; }
};
void measure(ModelLoad& model);

struct Job {
    config::RunDescription run;     // batch, precision, parallel, schedule; the first model
    std::vector<ModelLoad> models;  // at least one
    Program program;
    std::vector<kernels::Operation> update_products;  // of our own program's optimizer, over the whole model
    double steps = 0;                                 // 0: not known
    std::int64_t ranks_per_node = 0;                  // 0: as many as the machine has devices
    bool own_program() const { return program.own; }
};
// The job of a run description alone, for our own program.
Job job_of(const config::RunDescription& run);

// The keys of a run that say how it is laid out, resolved; zero is 0 to 3 for described programs.
struct Layout : config::ParallelSection {
    std::int64_t micro = 1;  // sequences
};
// "data 8 x tensor 4 x pipeline 12, micro-batch 2, zero 1, recompute full".
std::string layout_text(const Layout& layout);
std::int64_t micro_batches(const Job& job, const Layout& layout);
config::RunDescription laid_out(const Job& job, const Layout& layout);  // with the layout's keys

// Blocks of a model of the job on each stage: as our own program cuts it; of others whole numbers whose most loaded
// stage has the least, embedding and head counted, or, where the program does so and they divide, as many on each.
std::vector<double> blocks_of_stages(const Job& job, const config::ModelDescription& model, std::int64_t stages);

}  // namespace lockstep::cost
