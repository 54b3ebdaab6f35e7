// A checkpoint's model as programs see it that know no adapters, no averages and no warm-up of inner learning rates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/stream.hpp"
#include "cluster/host_group.hpp"
#include "config/run_description.hpp"

namespace lockstep::exchange {

class MergedModel {
  public:
    // Local. Opens and checks all but the tensors' values. `averages`: those of optimizer.ema, where a parameter has
    // them; usage error where the run kept none.
    MergedModel(std::string path, bool averages);

    const checkpoint::Contents& contents() const { return contents_; }
    const config::RunDescription& run() const { return run_; }
    // Without adapters, with the inner learning rates of the checkpoint's step.
    const config::ModelDescription& model() const { return model_; }
    bool has_adapters() const { return run_.model.adapters.rank > 0; }

    // Collective. Elements of "parameters/NAME" of that model: what adapters add is added. `base`: where that of a
    // checkpoint of adapters alone is, if not where it says. Damaged error for values that are not finite. Not longer
    // than this.
    checkpoint::Source source(const std::string& base, cluster::HostGroup& group,
                              const checkpoint::StreamProgress& progress = {}) const;
    // Collective. Likewise as they are stored, the adapters too.
    checkpoint::Source stored(cluster::HostGroup& group) const;

  private:
    void check_tensors() const;

    std::string path_;
    bool averages_;
    checkpoint::Contents contents_;
    config::RunDescription run_;
    config::ModelDescription model_;
};

// Usage error where the run that wrote the checkpoint kept no averages.
void check_has_averages(const std::string& checkpoint, const config::RunDescription& description);

}  // namespace lockstep::exchange
