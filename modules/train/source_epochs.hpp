// Log lines where a source of a mixture begins another pass over its windows.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.hpp"

namespace lockstep::train {

class SourceEpochs {
  public:
    explicit SourceEpochs(const data::Dataset& data) : data_(data), sources_(data.sources()) {}
    // `sample` is the next to be issued. Of a source that is passed often, epochs 2 to 10, 20, … 100, 200, … are
    // logged.
    void follow(std::int64_t sample);

  private:
    const data::Dataset& data_;
    std::vector<data::SourceSummary> sources_;
    std::vector<std::int64_t> epochs_;  // begun, by source; empty before the first call
};

}  // namespace lockstep::train
