// The records of TensorBoard's event files. A record is an Event (tensorflow/core/util/event.proto, summary.proto) in
// protobuf's wire format, framed as a TFRecord: length, its checksum, the bytes, their checksum. A file begins with
// version_record(); records of further events follow one another. Wall times are seconds since 1970.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tensorboard {

struct Scalar {
    std::string tag;
    double value = 0;  // stored as a float
};

std::string version_record(double wall_time);
// A launch begins that writes steps from `step` on: TensorBoard forgets what launches before it wrote of these.
std::string start_record(double wall_time, std::int64_t step);
std::string scalars_record(double wall_time, std::int64_t step, const std::vector<Scalar>& scalars);
std::string text_record(double wall_time, std::int64_t step, std::string_view tag, std::string_view markdown);

// Markdown that shows the text as it is, in a fixed-width font.
std::string as_code(std::string_view text);

}  // namespace lockstep::tensorboard
