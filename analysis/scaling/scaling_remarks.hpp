// Caveats on a point of a scaling series, as sentences.
#pragma once

#include <string>

#include "analysis/scaling/scaling.hpp"

namespace lockstep::analysis {

// `work`: of the point over that of the base.
void remark_on(ScalingPoint& point, const ScalingPoint& base, const Scaling& scaling, const ScalingSeries& series,
               double work);
std::string seconds_words(double seconds);  // "12.345 ms", "1.23 s"

}  // namespace lockstep::analysis
