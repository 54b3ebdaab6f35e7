// The memory of an optimizer's state: of each state, what belongs to the pieces that this rank updates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/memory.hpp"
#include "model/parameters.hpp"
#include "optim/optimizer_type.hpp"

namespace lockstep::optim {

// What a rank holds of one state of one parameter.
struct StatePart {
    std::string path;        // "first_moment/blocks/0/mixer/query/weight"
    Shape shape;             // of the whole tensor
    model::Slice slice;      // of it, this rank's
    std::int64_t first = 0;  // elements of the slice before the value
    Tensor value;            // fp32, flat
};

class StateMemory {
  public:
    // Zero. Fault error where a state's shape, split and its parameter's granularity do not fit together.
    StateMemory(Device device, const model::ParameterSet& parameters, const OptimizerType& type);

    // A state of the parameters' own shapes, for all elements of an owned piece, padding included.
    Tensor of_piece(const std::string& state, std::size_t piece) const;
    // A state of a parameter that this rank updates whole, shaped as the rank's slice of it; empty where it does not.
    Tensor of_parameter(const std::string& state, std::size_t parameter) const;
    std::vector<StatePart> parts() const;  // all that is held, without padding
    Tensor all() const { return all_; }    // flat, with padding; empty where nothing is updated
    std::size_t bytes() const { return memory_.capacity(); }

  private:
    struct Place {
        std::size_t state = 0, parameter = 0, piece = 0;
        std::int64_t first = 0, count = 0;    // of the state's slice
        std::int64_t offset = 0, padded = 0;  // within all()
    };
    struct Run {  // the places of a state of a piece
        std::int64_t offset = 0, count = 0;
    };
    struct Kept {  // a state of a parameter
        Shape shape;
        model::Slice slice;
    };
    void plan(const model::ParameterSet& parameters, const OptimizerType& type);
    std::size_t number_of(const std::string& state) const;
    Kept kept(const std::string& state, std::size_t parameter) const;

    const model::ParameterSet& parameters_;
    const OptimizerType& type_;
    std::vector<std::string> states_;
    std::vector<Place> places_;  // by state, piece and parameter, as they lie in memory
    std::vector<Run> runs_;      // by state and piece
    std::int64_t total_ = 0;
    Arena memory_;
    Tensor all_;
};

}  // namespace lockstep::optim
