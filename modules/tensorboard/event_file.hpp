// The event file of one launch, FOLDER/events.out.tfevents.SECONDS.HOST. TensorBoard reads the files of a folder in the
// order of their names, as one run: each launch's file has a later name than those before it, whatever the clocks say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/open_file.hpp"
#include "tensorboard/event.hpp"

namespace lockstep::tensorboard {

// What cannot be written is lost, with one warning: showing a run must not end it. Every record is written at once and
// whole, or not at all; none is synced.
class EventFile {
  public:
    // Of a launch whose first step is `first_step`: what earlier launches wrote for it and later steps is no longer
    // shown.
    EventFile(const std::string& folder, std::int64_t first_step);

    void add_scalars(std::int64_t step, const std::vector<Scalar>& scalars);
    void add_text(std::int64_t step, std::string_view tag, std::string_view markdown);

  private:
    void add(const std::string& record);
    OpenFile file_;       // closed: it could not be opened
    std::string header_;  // what the file must begin with, until it is written
    bool writable_ = true;
};

}  // namespace lockstep::tensorboard
