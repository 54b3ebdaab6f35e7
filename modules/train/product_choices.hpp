// Which of the library's algorithms computes each kind of matrix product on a GPU. They are timed once, all ranks agree
// on one for each kind, and the run folder keeps them (products.json), so that a later launch computes the same bits.
#pragma once

#include <cstdint>

#include "cluster/host_group.hpp"
#include "kernels/product_tuner.hpp"
#include "model/parameters.hpp"
#include "train/products_file.hpp"

namespace lockstep::train {

struct Launch;

struct ProductAgreement {
    ProductChoices choices;      // those given, and the new ones
    std::int64_t kept = 0;       // kinds of this rank that had a choice
    std::int64_t timed = 0;      // kinds of all ranks that were timed now …
    std::int64_t not_first = 0;  // … and whose fastest was not the first proposal
    std::int64_t left_out = 0;   // operations of the rank with most of them
    double gain = 1;             // the greatest ratio of the first proposal's time to the fastest's
};
// Collective; `choices` are the same on all ranks. Each kind of product that has no choice yet, on any rank that has
// it, is timed by the lowest of these ranks. Then every tuner uses all choices for its library and GPU.
ProductAgreement agree_on_products(kernels::ProductTuner& tuner, ProductChoices choices, cluster::HostGroup& group);

// Collective; nothing on CPUs, and unless run.tune_products is set. To be called while GPU memory is free.
void choose_products(const Launch& launch, const model::ParameterSet& parameters);

}  // namespace lockstep::train
