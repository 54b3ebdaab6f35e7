// A checkpoint's adapters (model/adapters.hpp), merged into the weights that they adapt.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cluster/host_group.hpp"
#include "config/model_description.hpp"

namespace lockstep::exchange {

class AdapterMerge {
  public:
    // Collective: every rank reads all adapters of the checkpoint, or their averages; none of a model without.
    AdapterMerge(const std::string& checkpoint, const config::ModelDescription& model, bool averages,
                 cluster::HostGroup& group);

    // Adds what its adapter adds to elements [first, first + count) of a parameter, if it has one.
    void add_to(const std::string& parameter, std::int64_t first, std::int64_t count, float* values) const;

  private:
    struct Factors {
        std::int64_t in = 0;
        std::vector<double> a, b;  // [rank, in], [out, rank]
    };
    std::int64_t rank_;
    double scale_ = 1;
    std::map<std::string, Factors> factors_;  // by the weight's name
};

}  // namespace lockstep::exchange
