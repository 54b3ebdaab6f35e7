// A checkpoint file before it has its name. Only checkpoint/ includes this.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/layout.hpp"

namespace lockstep::checkpoint {

// On one rank. Makes unfinished_name(path) with all metadata and reserves space for the rest.
Layout lay_out(const std::string& path, const Contents& contents, const std::vector<TensorInfo>& tensors);
// On one rank, once all of it is written: it must open as a checkpoint, is synced, and gets its name. `fault_point`:
// point before that at which tests let it fail.
void publish(const std::string& path, std::string_view fault_point = "checkpoint_before_rename");
void remove_quietly(const std::string& path);

}  // namespace lockstep::checkpoint
