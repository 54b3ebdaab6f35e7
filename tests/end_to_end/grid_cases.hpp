// The layouts of a run that tests try: a pairwise covering set of them, or all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "end_to_end/covering_set.hpp"

namespace lockstep::tests {

// The small model that is laid out in all these ways, and its batch: see grid_settings().
constexpr int grid_heads = 4, grid_layers = 4, grid_batch = 12;

struct GridCase {
    std::string mixer = "ttt-linear";  // or "hybrid", see mixers(), whose layers differ in their heads
    int data = 1, tensor = 1, pipeline = 1, context = 1, zero = 0, interleave = 1;
    std::string recompute = "none";
    bool sequence = false;
    bool own_heads = false;  // of attention, by layer: wider than the model's width over their number, with norms
    bool bounded = false;    // windows of every second block, caps of scores and logits
    bool documents = false;  // that do not see each other, of positions learned in each where there is only attention

    std::string mixers() const { return mixer == "hybrid" ? "'[\"ttt-linear\",\"ttt-linear\",\"attention\"]'" : mixer; }
    std::string kind() const {
        return mixer + (own_heads ? "-heads" : "") + (bounded ? "-bounded" : "") + (documents ? "-documents" : "");
    }
    int ranks() const { return data * tensor * pipeline * context; }
    std::string name() const {
        return kind() + "-d" + std::to_string(data) + "-t" + std::to_string(tensor) + "-p" + std::to_string(pipeline) +
               "-c" + std::to_string(context) + "-z" + std::to_string(zero) + "-v" + std::to_string(interleave) + "-" +
               recompute + (sequence ? "-sequence" : "");
    }
    // Pipelines have several micro-batches: p at least, and whole rounds where they are interleaved.
    int micro() const {
        const int share = grid_batch / data;
        if (pipeline == 1) return 0;
        for (int batches = pipeline; batches < share; ++batches)
            if (share % batches == 0 && (interleave == 1 || batches % pipeline == 0)) return share / batches;
        return 1;
    }
    std::string settings() const {
        const auto set = [](const char* key, const std::string& value) {
            return " --set parallel." + std::string(key) + "=" + value;
        };
        return " --set model.mixer=" + mixers() + " --set batch.micro=" + std::to_string(micro()) +
               set("data", std::to_string(data)) + set("tensor", std::to_string(tensor)) +
               set("pipeline", std::to_string(pipeline)) + set("context", std::to_string(context)) +
               set("zero", std::to_string(zero)) + set("interleave", std::to_string(interleave)) +
               set("recompute", recompute) + set("sequence", sequence ? "true" : "false") +
               (mixer == "hybrid" ? " --set model.heads=[4,4,8]" : "") +
               (own_heads ? " --set model.heads=[4,8] --set model.kv_heads=4 --set "
                            "model.head_width=[12,6] --set model.qk_norm=true"
                          : "") +
               (bounded ? " --set model.window=[11,0] --set model.score_cap=2.0 --set model.logit_cap=4.0" : "") +
               (documents ? " --set data.train=short.jsonl --set data.documents=separate" : "") +
               (documents && mixer == "attention" ? " --set model.position=learned" : "");
    }
    bool possible() const {
        const int share = grid_batch / data;
        return ranks() <= 8 && grid_batch % data == 0 && grid_heads % tensor == 0 &&
               grid_layers >= pipeline * interleave && (interleave == 1 || (pipeline > 1 && share % pipeline == 0)) &&
               (!sequence || tensor > 1) &&
               // Without replicas there is nothing to divide, and recomputation is the same at every stage.
               (zero < 2 || (data * context > 1 && (recompute == "none" || recompute == "full")));
    }
};

inline std::vector<GridCase> all_grid_cases() {
    std::vector<GridCase> cases;
    for (const char* mixer : {"attention", "ttt-linear", "ttt-mlp", "gated-deltanet", "hybrid"})
        for (const int data : {1, 2, 3, 4})
            for (const int tensor : {1, 2, 4})
                for (const int pipeline : {1, 2, 3, 4})
                    for (const int context : {1, 2, 4})
                        for (const int zero : {0, 1, 2, 3})
                            for (const int interleave : {1, 2})
                                for (const char* recompute : {"none", "cheap", "selective", "full"})
                                    for (const bool sequence : {false, true}) {
                                        const GridCase one{mixer, data,       tensor,    pipeline, context,
                                                           zero,  interleave, recompute, sequence};
                                        if (one.possible()) cases.push_back(one);
                                    }
    return cases;
}

inline std::vector<GridCase> covering_grid_cases() {
    return covering_set(all_grid_cases(), [](const GridCase& one) {
        return std::vector<std::string>{one.mixer,
                                        std::to_string(one.data),
                                        std::to_string(one.tensor),
                                        std::to_string(one.pipeline),
                                        std::to_string(one.context),
                                        std::to_string(one.zero),
                                        std::to_string(one.interleave),
                                        one.recompute,
                                        one.sequence ? "sequence" : ""};
    });
}

// The covering set is of large grids; these are small ones, with one axis or two.
inline std::vector<GridCase> few_ranks_grid_cases() {
    return {{"attention", 1, 2, 1, 1, 0, 1, "none", false},
            {"attention", 1, 1, 2, 1, 0, 2, "none", false},
            {"attention", 2, 1, 1, 1, 1, 1, "none", false},
            {"ttt-linear", 1, 2, 1, 1, 0, 1, "none", true},
            {"ttt-linear", 1, 1, 1, 2, 0, 1, "none", false},
            {"ttt-mlp", 1, 1, 1, 2, 1, 1, "full", false},
            {"ttt-mlp", 1, 2, 1, 1, 0, 1, "selective", false},
            {"ttt-mlp", 1, 1, 2, 1, 0, 1, "none", false},
            {"attention", 3, 1, 1, 1, 1, 1, "none", false},
            {"ttt-linear", 1, 1, 3, 1, 0, 1, "none", false},
            {"ttt-linear", 2, 1, 2, 1, 1, 1, "none", false},
            {"ttt-mlp", 1, 4, 1, 1, 0, 1, "none", false},
            {"ttt-linear", 1, 1, 1, 4, 0, 1, "none", false},
            {"gated-deltanet", 1, 2, 1, 1, 1, 1, "cheap", true},
            {"gated-deltanet", 1, 1, 2, 2, 0, 1, "full", false},
            {"gated-deltanet", 2, 1, 1, 1, 1, 1, "none", false},
            {"gated-deltanet", 1, 1, 3, 1, 0, 1, "none", false},
            {"attention", 1, 2, 1, 1, 0, 1, "cheap", true, true},
            {"attention", 1, 1, 2, 1, 0, 1, "full", false, true},
            {"attention", 1, 4, 1, 1, 0, 1, "none", false, true},
            {"attention", 2, 2, 1, 1, 1, 1, "none", false, true},
            {"attention", 1, 2, 2, 1, 0, 1, "selective", false, true},
            {"hybrid", 1, 1, 2, 1, 0, 1, "none", false},
            {"hybrid", 1, 2, 1, 1, 0, 1, "cheap", true},
            {"hybrid", 2, 1, 2, 1, 1, 1, "full", false},
            {"hybrid", 1, 1, 3, 1, 0, 1, "selective", false},
            {"attention", 1, 1, 1, 2, 0, 1, "none", false},
            {"attention", 1, 1, 1, 4, 0, 1, "full", false},
            {"attention", 1, 1, 1, 8, 0, 1, "none", false},
            {"attention", 1, 2, 1, 2, 0, 1, "cheap", true, true},
            {"hybrid", 1, 1, 1, 2, 0, 1, "full", false},
            {"hybrid", 1, 1, 1, 4, 0, 1, "none", false},
            {"attention", 1, 2, 1, 1, 0, 1, "none", false, false, true},
            {"attention", 1, 1, 2, 1, 0, 1, "full", false, false, true},
            {"attention", 1, 1, 1, 2, 0, 1, "none", false, true, true},
            {"attention", 2, 1, 1, 2, 1, 1, "full", false, false, true},
            {"attention", 1, 1, 1, 4, 0, 1, "cheap", false, false, true},
            {"hybrid", 1, 2, 1, 2, 0, 1, "none", true, false, true},
            {"attention", 1, 1, 1, 2, 0, 1, "none", false, false, false, true},
            {"attention", 2, 1, 2, 1, 1, 1, "full", false, false, false, true},
            {"attention", 1, 1, 1, 4, 0, 1, "none", false, false, true, true},
            {"ttt-linear", 1, 1, 1, 2, 0, 1, "none", false, false, false, true},
            {"ttt-linear", 2, 1, 1, 1, 1, 1, "full", false, false, false, true},
            {"ttt-mlp", 1, 1, 1, 4, 0, 1, "cheap", false, false, false, true},
            {"gated-deltanet", 1, 2, 1, 2, 0, 1, "none", true, false, false, true},
            {"gated-deltanet", 1, 1, 3, 1, 0, 1, "full", false, false, false, true},
            {"hybrid", 1, 1, 2, 2, 0, 1, "selective", false, false, false, true}};
}

// LOCKSTEP_GRIDS=all: the full product; or that of one mixer, by its name.
inline std::vector<GridCase> grid_cases(int ranks) {
    const char* wanted = std::getenv("LOCKSTEP_GRIDS");
    std::vector<GridCase> all;
    if (wanted) {
        for (const GridCase& one : all_grid_cases())
            if (std::string(wanted) == "all" || one.mixer == wanted) all.push_back(one);
    } else {
        all = covering_grid_cases();
        for (const GridCase& one : few_ranks_grid_cases())
            if (std::none_of(all.begin(), all.end(), [&](const GridCase& other) { return other.name() == one.name(); }))
                all.push_back(one);
    }
    std::vector<GridCase> cases;
    for (const GridCase& one : all)
        if (one.ranks() == ranks) cases.push_back(one);
    return cases;
}

}  // namespace lockstep::tests
