// Memory of an optimizer's state: the parts belonging to the pieces that this rank updates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/memory.hpp"
#include "model/parameters.hpp"
#include "optim/optimizer_type.hpp"
#include "optim/parameter_ranges.hpp"

namespace lockstep::optim {

// A rank's part of one state of one parameter.
struct StatePart {
    std::string path;        // "first_moment/blocks/0/mixer/query/weight"
    Shape shape;             // of the whole tensor
    model::Slice slice;      // this rank's, of the whole tensor
    std::int64_t first = 0;  // elements of the slice before `value`
    Tensor value;            // fp32, flat
};

class StateMemory {
  public:
    // Initialized to zero. Fault error if a state's shape and split contradict its parameter's granularity.
    // `averages`: with the average of each parameter.
    StateMemory(Device device, const model::ParameterSet& parameters, const OptimizerType& type, bool averages = false);

    // A state with the parameters' shapes, over all elements of an owned piece, padding included.
    Tensor of_piece(const std::string& state, std::size_t piece) const;
    // A state with its parameter's shape, of a range of an owned piece, without padding.
    Tensor of_range(const std::string& state, const ParameterRange& range) const;
    // A state of a parameter that this rank updates whole, shaped as the rank's slice; else empty.
    Tensor of_parameter(const std::string& state, std::size_t parameter) const;
    std::vector<StatePart> parts() const;  // everything held, without padding
    Tensor all() const { return all_; }    // flat, with padding; empty if nothing is updated
    std::size_t bytes() const { return memory_.capacity(); }

  private:
    struct Place {
        std::size_t state = 0, parameter = 0, piece = 0;
        std::int64_t first = 0, count = 0;    // of the state's slice
        std::int64_t offset = 0, padded = 0;  // within all()
    };
    struct Run {  // the places of a piece's state
        std::int64_t offset = 0, count = 0;
    };
    struct Kept {  // one state of one parameter
        Shape shape;
        model::Slice slice;
    };
    void plan(const model::ParameterSet& parameters, const OptimizerType& type);
    std::size_t number_of(const std::string& state) const;
    Kept kept(const std::string& state, std::size_t parameter) const;

    const model::ParameterSet& parameters_;
    const OptimizerType& type_;
    bool averages_;
    std::vector<std::string> states_;
    std::vector<Place> places_;  // by state, piece and parameter, in memory order
    std::vector<Run> runs_;      // by state and piece
    std::int64_t total_ = 0;
    Arena memory_;
    Tensor all_;
};

}  // namespace lockstep::optim
