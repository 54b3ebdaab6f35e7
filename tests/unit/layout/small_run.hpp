// A small run whose layout is looked at.
#pragma once

#include "config/run_description.hpp"

namespace lockstep::layout {

inline config::RunDescription small() {
    config::RunDescription description;
    auto& model = description.model;
    model.mixers = {"ttt-linear"};
    model.width = 32;
    model.layers = 6;
    model.heads = {4};
    model.mlp_width = 48;
    model.vocabulary = 259;
    model.context = 32;
    model.options.change("ttt").set("mini_batch", 4);
    config::resolve(model);
    description.batch.global = 12;
    description.batch.length = 32;
    return description;
}

}  // namespace lockstep::layout
