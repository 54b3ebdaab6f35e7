#include "train/source_epochs.hpp"

#include "base/format.hpp"
#include "base/log.hpp"

namespace lockstep::train {
namespace {

// The latest epoch up to `epoch` that is worth a line.
std::int64_t logged_epoch(std::int64_t epoch) {
    std::int64_t unit = 1;
    while (epoch >= 10 * unit) unit *= 10;
    return epoch / unit * unit;
}

}  // namespace

void SourceEpochs::follow(std::int64_t sample) {
    if (sources_.size() < 2) return;
    const std::vector<std::int64_t> counts = data_.counts_before(sample);
    const bool begins = epochs_.empty();
    epochs_.resize(sources_.size());
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        // The first, of which nothing or a part is seen, is 1.
        const std::int64_t epoch = logged_epoch(counts[i] / sources_[i].windows + 1);
        if (!begins && epoch > epochs_[i])
            log::info("{}: epoch {} begins, after {} samples from it", sources_[i].name, with_commas(epoch),
                      with_commas(counts[i]));
        epochs_[i] = epoch;
    }
}

}  // namespace lockstep::train
