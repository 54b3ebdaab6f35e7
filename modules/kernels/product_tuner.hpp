// Choosing among a library's algorithms for matrix products. A backend takes the library's first proposal unless it is
// told otherwise: algorithms differ in speed and in the last bits of their results, so whoever chooses sees to it that
// all ranks and later launches have the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::kernels {

class CountingBackend;

struct TimedAlgorithm {
    std::string algorithm;  // as text, for the same library and GPU
    double seconds;
    bool first;  // the library's first proposal
};

class ProductTuner {
  public:
    ProductTuner() = default;
    ProductTuner(const ProductTuner&) = delete;
    ProductTuner& operator=(const ProductTuner&) = delete;
    virtual ~ProductTuner() = default;

    // What algorithms belong to: "cuBLASLt 13.0.0 on NVIDIA H100 80GB HBM3, 132 multiprocessors".
    virtual std::string library() const = 0;
    // All that the choice depends on, as texts: types, sizes, transpositions, row lengths, epilogue, alignment.
    virtual const std::vector<std::string>& kinds() const = 0;
    // Operations for which the device has no memory left: their products keep the first proposal.
    virtual std::int64_t left_out() const = 0;
    // The library's proposals for one of kinds(), in its order, timed on scratch memory; those that fail are left out.
    virtual std::vector<TimedAlgorithm> time(const std::string& kind) = 0;
    // Whether the library takes the algorithm for one of kinds().
    virtual bool accepts(const std::string& kind, const std::string& algorithm) = 0;
    // From now on, for any kind.
    virtual void use(const std::string& kind, const std::string& algorithm) = 0;
};

}  // namespace lockstep::kernels
